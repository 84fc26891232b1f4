//! A part of a recording's time.

use profiler_aggregate::{latency::AgeConfig, slots::WindowConfig};

use super::super::{ending::END_OF_RECORDING, records::RecordedScope};
use crate::recording::Batch;

/// A part of a recording's time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// `CLOCK_MONOTONIC` of the recorded machine.
    pub begin_ns: u64,
    /// The same.
    pub end_ns: u64,
    pub ages: AskedAges,
}

impl Part {
    /// How long calls are remembered.
    pub(super) fn ages(&self, recorded: &RecordedScope) -> AgeConfig {
        let or = |asked_ns: u64, recorded_ns: u64| if asked_ns == 0 { recorded_ns } else { asked_ns };
        AgeConfig {
            window: WindowConfig {
                window_ns: or(self.ages.window_ns, recorded.ages.window.window_ns),
                ..recorded.ages.window
            },
            half_life_ns: or(self.ages.half_life_ns, recorded.ages.half_life_ns),
        }
    }
}

/// How long calls are remembered by the window and by the moving average; 0 for as long as where it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedAges {
    pub window_ns: u64,
    pub half_life_ns: u64,
}

impl Batch {
    /// Whether it lies in a part as a whole.
    pub(super) fn is_in(&self, part: Part) -> bool {
        self.from_ns >= part.begin_ns
    }
}

/// So long after it happened, a hit, a wait or a bucket of counters may be told.
pub const LATE_NS: u64 = 2_000_000_000;

/// Why nothing more of a part is shown: its end or a change of the scope, and how much of it is missing.
pub fn end_of_part(begin_ns: u64, edited_ns: Option<u64>, missing_ns: u64) -> String {
    let mut reason = match edited_ns {
        Some(edited_ns) => {
            let at = since(begin_ns, edited_ns);
            format!(
                "the scope was changed {at} s into the recording, and only the time before is shown; for the rest: --time {at}s.."
            )
        }
        None => END_OF_RECORDING.to_owned(),
    };
    if missing_ns > 0 {
        let missing = format!("; {} s of it are damaged and left out", since(0, missing_ns));
        reason.push_str(&missing);
    }
    reason
}

/// A time since another in seconds, rounded down so that what is there is not passed over.
pub fn since(begin_ns: u64, ns: u64) -> String {
    let ms = ns.saturating_sub(begin_ns) / 1_000_000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
