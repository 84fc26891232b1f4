//! What is counted of hits and calls, and what became of them.

use profiler_aggregate::path::Dropped;
use profiler_common::probe::ProbeId;

use super::{
    super::{picture::Losses, readings::Readings},
    Trace,
};

/// What becomes of hits and calls because of the spans around them.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// What was not inside such spans as the scope asks for.
    pub dropped: Dropped,
    /// What is in spans that are still open.
    pub waiting: u64,
}

/// What is counted of hits and calls.
#[derive(Clone, Default)]
pub struct Totals {
    pub reached: u64,
    /// Those that are not as asked.
    pub rejected: u64,
    /// Those that are not shown, by reason.
    pub lost: Losses,
}

impl Totals {
    /// With what was added since a time to something that only grows.
    pub(super) fn and(mut self, now: &Self, since: &Self) -> Self {
        self.reached += now.reached - since.reached;
        self.rejected += now.rejected - since.rejected;
        let grown = now.lost.iter().map(|(reason, count)| {
            let before = since.lost.get(reason).copied().unwrap_or(0);
            (*reason, count - before)
        });
        add(&mut self.lost, grown);
        self
    }
}

impl Trace {
    /// Hits and calls since their probes were attached, or since a recording's part began, and what became of them.
    pub fn totals(&self, readings: &dyn Readings, around: Around) -> Totals {
        let mut totals = self.counted(readings, around, |_| true);
        add(&mut totals.lost, [("join_open", around.waiting)]);
        totals
    }

    /// Hits and calls at some of the probes since they were attached, and what became of all that waited.
    pub(super) fn counted(
        &self,
        readings: &dyn Readings,
        around: Around,
        is_of: impl Fn(ProbeId) -> bool,
    ) -> Totals {
        let Around { dropped, waiting: _ } = around;
        let mut totals = Totals {
            reached: 0,
            rejected: dropped.outside + self.left_out.outside,
            lost: Losses::new(),
        };
        let lines = self.lines.keys().map(|probe| (*probe, false));
        let calls = self.calls.keys().map(|probe| (*probe, true));
        for (probe, is_call) in lines.chain(calls).filter(|(probe, _)| is_of(*probe)) {
            let (hits, calls) = (readings.hit_counts(probe), readings.probe_counts(probe));
            totals.reached += hits.reached;
            if is_call {
                // A call is counted where it begins, which is behind these.
                totals.reached += hits.rejected + hits.disturbed;
            }
            totals.rejected += hits.rejected;
            add(
                &mut totals.lost,
                [
                    ("rate_limit", hits.limited),
                    ("ring_full", hits.ring_full),
                    ("no_thread_state", hits.no_state + calls.no_state),
                    ("disturbed", hits.disturbed),
                    ("too_deep", calls.too_deep),
                    ("join_limit", calls.join_limit),
                    (
                        "symbols_behind",
                        self.missed.get(&probe).copied().unwrap_or_default(),
                    ),
                ],
            );
        }
        add(
            &mut totals.lost,
            [
                ("rate_limit", self.left_out.limited),
                ("return_unknown", self.left_out.return_unknown),
                ("symbols_behind", self.before.symbols_behind),
                ("abandoned", self.left_out.abandoned + self.before.abandoned),
                ("end_lost", self.left_out.end_lost + self.before.end_lost),
                (
                    "too_many_open",
                    self.left_out.too_many_open + self.before.too_many_open,
                ),
                ("join_abandoned", dropped.abandoned),
                ("join_expired", dropped.expired),
                ("join_full", dropped.join_full),
                ("batch_full", self.left_out.batch_full),
            ],
        );
        totals
    }
}

/// Adds what was lost, if anything was, to what is lost by reason.
pub(super) fn add(lost: &mut Losses, counts: impl IntoIterator<Item = (&'static str, u64)>) {
    for (reason, count) in counts {
        if count > 0 {
            *lost.entry(reason).or_default() += count;
        }
    }
}
