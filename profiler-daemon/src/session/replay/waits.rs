//! Who was waited for in a part of a recording: the waits that were recorded, drawn as a session draws them.

use std::sync::Arc;

use profiler_scope::{Scope, Step};
use profiler_symbolize::Frames;

use super::{
    super::{
        division,
        error::{Reason, SessionError},
        flame::Moment,
        records::{OffAtFirst, WAITS_DROPPED},
        sampling::Sampling,
        span_losses::OwnLosses,
        state::views::{unknown::refuse_unknown, waits::WAITS},
        symbols::Dropped,
        waits::{Pids, WaitsPicture, WatchedWaits},
        watchers::{self, Pictures},
    },
    asked::{self, AskedStep},
    begun::{self, nothing},
    part::{LATE_NS, Part},
    taken::{Taken, Told},
    unreadable,
    waiting::NOT_RECORDED,
};
use crate::recording::{self, Also, Batch, Recording, Wanted};

/// The waits of a part.
///
/// # Errors
/// Where they were not recorded, the scope asks for durations, or it cannot be read.
pub fn waits(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Pictures<WaitsPicture>, SessionError> {
    let begun = begun::begin(recording, asked, part)?;
    let begin_ns = recording.begin_ns();
    let mut playing = Playing {
        asked,
        taken: Taken::new(part, begun.begin_ns),
        watched: None,
        missed_until_ns: 0,
    };
    let mut frames = Frames::default();
    let wanted = Wanted {
        from_ns: part.begin_ns,
        by: None,
        also: Some(Also::Waits),
        answers: None,
    };
    recording
        .read(wanted, &mut frames, |read, _| is_awaited() && playing.take(read))
        .map_err(|error| unreadable(&error))?;
    playing.picture(begin_ns, &begun.scope.into(), &frames)
}

/// A way through the recording.
struct Playing<'a> {
    asked: Option<&'a Scope>,
    taken: Taken,
    /// Once it is known who was off the CPU.
    watched: Option<WatchedWaits>,
    /// Waits of before may be missing.
    missed_until_ns: u64,
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part) -> bool {
        match read {
            recording::Part::Summary(_) => true,
            recording::Part::Missing { from_ns, to_ns } => {
                self.taken.pass_over(from_ns, to_ns);
                self.miss_until(to_ns);
                true
            }
            recording::Part::Batch(mut batch) => {
                match self.taken.tell_of(&mut batch, self.asked) {
                    Told::Again => {}
                    Told::New => self.watched = None,
                    Told::Edited => return false,
                }
                if let Some(off) = batch.off_cpu.take()
                    && self.watched.is_none()
                {
                    match self.begin(off) {
                        Ok(watched) => self.watched = Some(watched),
                        Err(error) => {
                            self.taken.failed = Some(error);
                            return false;
                        }
                    }
                }
                self.take_batch(&batch)
            }
        }
    }

    fn begin(&self, off: OffAtFirst) -> Result<WatchedWaits, SessionError> {
        let recorded = self.taken.recorded.as_ref().ok_or_else(nothing)?;
        let steps = asked::steps(recorded, self.asked, recorded.ages, off.since_ns)?;
        let parsed: Vec<Step> = steps.iter().map(AskedStep::text).collect();
        refuse_unknown(&parsed.iter().collect::<Vec<_>>(), WAITS)?;
        let nesting = division::nesting(&steps);
        let level = nesting.and_then(|nesting| nesting.levels.into_iter().next_back());
        let pids: Pids = recorded.pids.iter().copied().collect();
        let since_ns = off
            .since_ns
            .max(self.taken.part.begin_ns)
            .max(self.missed_until_ns);
        let mut watched = WatchedWaits::recorded(level, pids, off.threads, since_ns);
        watched.miss_until(self.missed_until_ns);
        Ok(watched)
    }

    fn miss_until(&mut self, ns: u64) {
        self.missed_until_ns = self.missed_until_ns.max(ns);
        if let Some(watched) = &mut self.watched {
            watched.miss_until(ns);
        }
    }

    fn take_batch(&mut self, batch: &Batch) -> bool {
        let dropped = batch.counters.get(WAITS_DROPPED).copied().unwrap_or(0);
        if dropped > 0 || batch.dropped > 0 {
            self.miss_until(batch.to_ns);
        }
        if let Some(watched) = &mut self.watched {
            for waited in &batch.waits {
                watched.take_of(&waited.wait, &waited.spans, self.taken.part.end_ns);
            }
        }
        let part = self.taken.part;
        if batch.to_ns > part.end_ns {
            return batch.from_ns <= part.end_ns.saturating_add(LATE_NS);
        }
        if batch.from_ns >= part.begin_ns {
            self.taken.count(batch);
        }
        true
    }

    fn picture(
        self,
        begin_ns: u64,
        scope: &Arc<str>,
        frames: &Frames,
    ) -> Result<Pictures<WaitsPicture>, SessionError> {
        if let Some(error) = self.taken.failed {
            return Err(error);
        }
        let watched = self
            .watched
            .ok_or_else(|| SessionError::new(Reason::ArgumentInvalid, NOT_RECORDED))?;
        let taken = &self.taken;
        let counted = |name: &str| taken.counted(name);
        let ended = taken.ending(begin_ns);
        let moment = Moment {
            now_ns: taken.now_ns,
            scope,
            frames: frames.table(),
            cost: taken.cost,
            dropped: Dropped::default(),
            also_lost: OwnLosses::of_counters(counted)
                .by_reason()
                .chain(taken.dropped())
                .collect(),
            ended: Some(&ended),
        };
        let picture = watched.picture(&moment, Sampling::of_counters(counted));
        Ok(watchers::single(picture))
    }
}
