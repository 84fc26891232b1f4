//! What is taken of a way through a part of a recording whatever it is for: losses, what is missing, and where it ends.

use profiler_scope::Scope;

use super::{
    super::{
        ending::Ending,
        error::SessionError,
        picture::Cost,
        records::{RecordedScope, WAITS_DROPPED},
    },
    asked::{self, Compared},
    named_counts::NamedCounts,
    part::{Part, end_of_part},
};
use crate::recording::Batch;

/// Why records are missing that were lost before they were written.
pub const DROPPED: &str = "recording_behind";

/// Why records are missing of kinds that a newer version has written.
pub const UNKNOWN: &str = "newer_format";

/// What was taken so far.
pub struct Taken {
    pub part: Part,
    /// The scope that was told last.
    pub recorded: Option<RecordedScope>,
    /// In the part.
    counters: NamedCounts,
    /// Records that were lost before they were written.
    pub lost: u64,
    /// Records of kinds that a newer version has written.
    unknown: u64,
    pub missing_ns: u64,
    pub edited_ns: Option<u64>,
    pub now_ns: u64,
    pub cost: Cost,
    pub failed: Option<SessionError>,
}

/// What the scope that is told is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The one before.
    Again,
    /// The first, or another before the part begins.
    New,
    /// Another, from a time of the part on: it ends there.
    Edited,
}

impl Taken {
    /// Nothing yet, of a part that begins at what was recorded first in it.
    pub fn new(part: Part, begun_ns: u64) -> Self {
        Self {
            part: Part {
                begin_ns: begun_ns.max(part.begin_ns),
                ..part
            },
            recorded: None,
            counters: NamedCounts::default(),
            lost: 0,
            unknown: 0,
            missing_ns: 0,
            edited_ns: None,
            now_ns: begun_ns,
            cost: Cost::default(),
            failed: None,
        }
    }

    /// Takes it that all is missing from a time to another; the end of that in the part, if any of it is.
    pub fn pass_over(&mut self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let to_ns = to_ns.min(self.part.end_ns);
        let missing_ns = to_ns.saturating_sub(from_ns.max(self.part.begin_ns));
        self.missing_ns = self.missing_ns.saturating_add(missing_ns);
        (missing_ns > 0).then_some(to_ns)
    }

    /// Takes the scope that is told, of which at most so many steps are looked at.
    pub fn tell(&mut self, scope: RecordedScope, from_ns: u64, steps: usize) -> Told {
        let before = self.recorded.replace(scope);
        let is_other = before.as_ref().zip(self.recorded.as_ref()).map(|(before, now)| {
            let compared = Compared::AnyDurations(steps);
            asked::is_another(before, now, compared)
        });
        match is_other {
            Some(false) => Told::Again,
            Some(true) if from_ns > self.part.begin_ns => {
                self.edited_ns = Some(from_ns);
                Told::Edited
            }
            // What was before it is not asked for.
            Some(true) | None => Told::New,
        }
    }

    /// Takes the scope that a batch tells, if it does; of what is asked for, the steps are looked at.
    pub fn tell_of(&mut self, batch: &mut Batch, asked: Option<&Scope>) -> Told {
        let Some((scope, _)) = batch.scope.take() else {
            return Told::Again;
        };
        let steps = asked.map_or(usize::MAX, |asked| asked.steps.len());
        self.tell(scope, batch.from_ns, steps)
    }

    /// Takes what was counted, where it lies in the part.
    pub fn count(&mut self, batch: &Batch) {
        self.counters.add(&batch.counters);
        self.lost = self.lost.saturating_add(batch.dropped);
        self.unknown = self.unknown.saturating_add(batch.unknown);
        self.cost = batch.cost;
        self.now_ns = batch.to_ns;
    }

    /// What was counted by a name.
    pub fn counted(&self, name: &str) -> u64 {
        self.counters.of(name)
    }

    /// Records that are not in the file, waits among them, and those that cannot be read, by reason; and what else was lost of
    /// which only a newer version knows.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let dropped = self.lost.saturating_add(self.counted(WAITS_DROPPED));
        let all = [(DROPPED, dropped), (UNKNOWN, self.unknown)];
        all.into_iter()
            .filter(|(_, count)| *count > 0)
            .chain(self.newer())
    }

    /// Losses of reasons that this version does not know.
    pub fn newer(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.newer()
    }

    /// Why nothing more is shown.
    pub fn ending(&self, begin_ns: u64) -> Ending {
        Ending::of_recording(end_of_part(begin_ns, self.edited_ns, self.missing_ns))
    }
}
