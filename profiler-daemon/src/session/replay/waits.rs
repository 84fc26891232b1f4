//! Who was waited for in a part of a recording: the waits that were recorded, drawn as a session draws them.

use std::{collections::BTreeMap, sync::Arc};

use profiler_scope::{Scope, Step};
use profiler_symbolize::Frames;
use tokio::sync::watch;

use super::{
    super::{
        division,
        ending::Ending,
        error::{Reason, SessionError},
        flame::Moment,
        picture::Cost,
        records::{OffAtFirst, RecordedScope, WAITS_DROPPED},
        sampling::Sampling,
        span_losses::OwnLosses,
        state::views::{unknown::refuse_unknown, waits::WAITS},
        symbols::Dropped,
        waits::{Pids, WaitsPicture, WatchedWaits},
        watchers::Watchers,
    },
    asked::{self, AskedStep, Compared},
    play::{self, DROPPED, LATE_NS, Part},
    unreadable,
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
) -> Result<watch::Receiver<Option<Arc<WaitsPicture>>>, SessionError> {
    let begun = play::begin(recording, asked, part)?;
    let begin_ns = recording.begin_ns();
    let mut playing = Playing {
        asked,
        part: Part {
            begin_ns: begun.begin_ns.max(part.begin_ns),
            ..part
        },
        scope: None,
        watched: None,
        counters: BTreeMap::new(),
        lost: 0,
        missing_ns: 0,
        edited_ns: None,
        now_ns: begun.begin_ns,
        cost: Cost::default(),
        failed: None,
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
    part: Part,
    scope: Option<RecordedScope>,
    /// Once it is known who was off the CPU.
    watched: Option<WatchedWaits>,
    /// By counter, in this part.
    counters: BTreeMap<String, u64>,
    /// Records that were lost before they were written.
    lost: u64,
    missing_ns: u64,
    edited_ns: Option<u64>,
    now_ns: u64,
    cost: Cost,
    failed: Option<SessionError>,
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part) -> bool {
        match read {
            recording::Part::Summary(_) => true,
            recording::Part::Missing { from_ns, to_ns } => {
                let to_ns = to_ns.min(self.part.end_ns);
                let missing_ns = to_ns.saturating_sub(from_ns.max(self.part.begin_ns));
                self.missing_ns = self.missing_ns.saturating_add(missing_ns);
                true
            }
            recording::Part::Batch(mut batch) => {
                if let Some((scope, _)) = batch.scope.take()
                    && self.is_edited(scope, batch.from_ns)
                {
                    self.edited_ns = Some(batch.from_ns);
                    return false;
                }
                if let Some(off) = batch.off_cpu.take()
                    && self.watched.is_none()
                {
                    match self.begin(off) {
                        Ok(watched) => self.watched = Some(watched),
                        Err(error) => {
                            self.failed = Some(error);
                            return false;
                        }
                    }
                }
                self.take_batch(&batch)
            }
        }
    }

    /// Whether other processes or steps are looked at than before.
    fn is_edited(&mut self, scope: RecordedScope, from_ns: u64) -> bool {
        let steps = self.asked.map_or(usize::MAX, |asked| asked.steps.len());
        let is_other = (self.scope.as_ref())
            .is_some_and(|before| asked::is_another(before, &scope, Compared::AnyDurations(steps)));
        self.scope = Some(scope);
        if is_other && from_ns <= self.part.begin_ns {
            // What was before it is not asked for.
            self.watched = None;
            return false;
        }
        is_other
    }

    fn begin(&self, off: OffAtFirst) -> Result<WatchedWaits, SessionError> {
        let recorded = self.scope.as_ref().ok_or_else(play::nothing)?;
        let steps = asked::steps(recorded, self.asked, recorded.ages, off.since_ns)?;
        let parsed: Vec<Step> = steps.iter().map(AskedStep::text).collect();
        refuse_unknown(&parsed.iter().collect::<Vec<_>>(), WAITS)?;
        let nesting = division::nesting(&steps);
        let level = nesting.and_then(|nesting| nesting.levels.into_iter().next_back());
        let pids: Pids = recorded.pids.iter().copied().collect();
        let since_ns = off.since_ns.max(self.part.begin_ns);
        Ok(WatchedWaits::recorded(level, pids, off.threads, since_ns))
    }

    fn take_batch(&mut self, batch: &Batch) -> bool {
        if let Some(watched) = &mut self.watched {
            for waited in &batch.waits {
                watched.take_of(&waited.wait, &waited.spans, self.part.end_ns);
            }
        }
        if batch.to_ns > self.part.end_ns {
            return batch.from_ns <= self.part.end_ns.saturating_add(LATE_NS);
        }
        if batch.from_ns >= self.part.begin_ns {
            for (name, count) in batch.counters.iter().filter(|(name, _)| play::is_counter(name)) {
                let sum = self.counters.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            self.lost = self.lost.saturating_add(batch.dropped);
            self.cost = batch.cost;
            self.now_ns = batch.to_ns;
        }
        true
    }

    fn picture(
        self,
        begin_ns: u64,
        scope: &Arc<str>,
        frames: &Frames,
    ) -> Result<watch::Receiver<Option<Arc<WaitsPicture>>>, SessionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let watched = self.watched.ok_or_else(|| {
            let message =
                "the recording does not have who was waited for: record it with `profiler record --waits`";
            SessionError::new(Reason::ArgumentInvalid, message)
        })?;
        let reason = play::end_of_part(begin_ns, self.edited_ns, self.missing_ns);
        let counted = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let lost = self.lost.saturating_add(counted(WAITS_DROPPED));
        let dropped = (lost > 0).then_some((DROPPED, lost));
        let ended = Ending::other(reason);
        let moment = Moment {
            now_ns: self.now_ns,
            scope,
            frames: &Arc::new(frames.table().to_vec()),
            cost: self.cost,
            dropped: Dropped::default(),
            also_lost: OwnLosses::of_counters(counted)
                .by_reason()
                .chain(dropped)
                .collect(),
            ended: Some(&ended),
        };
        let mut picture = watched.picture(&moment, Sampling::of_counters(counted));
        picture.lost.extend(dropped);
        let mut watchers = Watchers::default();
        let receiver = watchers.add((), 0, 0);
        watchers.publish(0, true, |(), seq| {
            Some(WaitsPicture {
                seq,
                ..picture.clone()
            })
        });
        Ok(receiver)
    }
}
