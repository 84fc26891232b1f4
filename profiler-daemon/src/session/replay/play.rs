//! Plays a recording once: does at its ticks what a session would have done.
//!
//! | file | idea |
//! |---|---|
//! | `way` | the way through a part |
//! | `behind` | what goes on behind it |
//! | `take` | what is done with the records of a part |
//! | `inside` | what waits for the calls around it |
//! | `flame` | the flame graph that is asked for |
//! | `summary` | whether a summary does |
//! | `answer` | pictures, and what was lost |

mod answer;
mod behind;
mod flame;
mod inside;
mod summary;
mod take;
mod way;

use std::sync::Arc;

use profiler_aggregate::{
    latency::AgeConfig,
    path::{self, Path},
    threshold::Band,
};
use profiler_scope::Scope;
use profiler_symbolize::FrameTable;

pub use self::way::go_through;
use self::{inside::Inside, summary::recent_ns};
use super::{
    super::{
        ending::Ending, error::SessionError, flame::Flame, picture::Cost, population::JoinedCalls,
        records::RecordedScope,
    },
    around,
    asked::AskedStep,
    counts::RecordedCounts,
    hits::{self, Hits},
    named_counts::NamedCounts,
    part::Part,
    question::Question,
    spans::Slowest,
    waiting::Waiting,
};
use crate::{kernel::EventCounts, recording::Recording};

/// The scope that is asked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// `None` for the recorded one.
    pub scope: Option<&'a Scope>,
    /// What its outer steps with spans ask of durations, where that is known before: see [`around::bands`].
    pub around: &'a [Option<Band>],
}

/// Goes through a part of a recording.
///
/// # Errors
/// As [`begin`], and where the flame graph that is asked for was not recorded, or nobody waits for it any more.
pub fn play(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    question: Question,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Played, SessionError> {
    let around = around::bands(recording, asked, part, question, is_awaited)?;
    let asked = Asked {
        scope: asked,
        around: &around,
    };
    let is_summed = question.can_be_summed();
    let played = go_through(recording, asked, part, question, is_awaited, is_summed)?;
    // It ended before the part does: its last windows may have been summed up.
    let is_cut_short = question == Question::Latency
        && played.summed_until_ns > 0
        && played.summed_until_ns.saturating_add(recent_ns(played.ages)) > played.now_ns;
    if is_cut_short {
        return go_through(recording, asked, part, question, is_awaited, false);
    }
    Ok(played)
}

/// What came of a way through the recording.
pub struct Played {
    pub scope: Arc<str>,
    parsed: Scope,
    /// The scope that was told first.
    recorded: RecordedScope,
    pub steps: Vec<AskedStep>,
    pub counts: RecordedCounts,
    joined: JoinedCalls,
    /// As of [`Asked::around`].
    around: Vec<Option<Band>>,
    path: Path<Inside>,
    dropped: path::Dropped,
    pub flame: Option<Flame>,
    /// Where waits are drawn with who was waited for.
    waiting: Option<Waiting>,
    /// When the part began.
    begun_ns: u64,
    /// Time off the CPU is drawn that lies in no call.
    draws_outside: bool,
    /// What became of the samples of the event that is drawn.
    event_counts: EventCounts,
    pub hits: Option<Hits>,
    pub spans: Option<Slowest>,
    /// What was counted is read with each message, as a session does at its ticks; or else at the end, where only the sums are asked
    /// for.
    reads_each: bool,
    pub threads: hits::Threads,
    ages: AgeConfig,
    /// In this part.
    counters: NamedCounts,
    /// Records that were lost before they were written.
    lost: u64,
    /// Records of kinds that a newer version has written.
    unknown: u64,
    pub frames: FrameTable,
    pub cost: Cost,
    pub now_ns: u64,
    /// Until when summaries did in the place of records; 0 where none did.
    summed_until_ns: u64,
    pub ended: Ending,
}
