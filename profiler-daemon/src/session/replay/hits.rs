//! The hits of a recording: which of them a scope shows, by what it asks of the calls around them.
//!
//! What was recorded is each hit, whatever became of the calls around it. So a replay finds out anew which are shown, as a session
//! does when those calls end.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use profiler_aggregate::{ThreadId, threshold::Band};
use profiler_common::{layout::bucket_of, probe::ProbeId, record::SpanEnd};
use profiler_symbolize::{Frame, FrameId, FrameTable, UNKNOWN_TASK};
use tokio::sync::mpsc;

use super::{
    super::{
        error::{Reason, SessionError},
        picture::Losses,
        readings::Readings,
        records::{RecordedExpression, RecordedLook, RecordedReached, RecordedScope},
        symbols::NamedStack,
        trace::{Around, Entry, ThreadName, Totals, Trace, TraceBatch, TraceLosses, TracedHit, TracedValue},
    },
    asked::AskedStep,
    play::Played,
};
use crate::recording::TaskOf;

/// Hits that one view of a recording shows; those beyond are counted as `replay_full`, and shown for a shorter time.
const MAX_HITS: usize = 1 << 18;

/// Memory of their values and stacks, in bytes; those beyond are counted as the same. As much may wait for the calls around them.
pub const MAX_HIT_BYTES: usize = 256 << 20;

/// Hits of one message.
const HITS_OF_BATCH: usize = 4096;

/// Threads whose names are known.
const MAX_THREADS: usize = 1 << 16;

/// A hit that waits for the calls around it.
pub enum Waiting {
    /// A line was reached.
    Reached(ProbeId, TracedHit),
    /// A call that ended.
    Call(SpanEnd, Entry),
}

impl Waiting {
    /// Memory of its values and its stack, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Reached(_, hit) => hit.bytes(),
            Self::Call(_, entry) => entry.bytes(),
        }
    }
}

/// The hits of a way through a recording. Some come late, after those who read them were counted: they are told by their times.
pub struct Hits {
    from_ns: u64,
    to_ns: u64,
    trace: Trace,
    expressions: HashMap<ProbeId, Vec<RecordedExpression>>,
    /// What is asked of the durations of calls of the last step.
    band: Band,
    shown: Vec<TracedHit>,
    /// Memory of their values and stacks.
    bytes: usize,
    too_many: u64,
}

impl Hits {
    /// Those of the last of these steps, from a time on.
    ///
    /// # Errors
    /// Where its hits were not recorded.
    pub fn new(recorded: &RecordedScope, steps: &[AskedStep], from_ns: u64) -> Result<Self, SessionError> {
        if recorded.places.is_empty() {
            return Err(refused(
                "the recording has no hits: record them with `profiler record --trace`, with --print for values",
            ));
        }
        if steps.len() != recorded.steps.len() {
            let message = "hits were recorded at the scope's last step, which cannot be left out for `trace`";
            return Err(refused(message));
        }
        let mut trace = Trace::default();
        let mut expressions = HashMap::new();
        for place in &recorded.places {
            trace.add_recorded(place);
            expressions.insert(place.probe, place.expressions.clone());
        }
        Ok(Self {
            from_ns,
            to_ns: u64::MAX,
            trace,
            expressions,
            band: Band::ALL,
            shown: Vec::new(),
            bytes: 0,
            too_many: 0,
        })
    }

    /// Says what is asked of the durations of calls of the last step, from here on.
    pub fn set_band(&mut self, band: Band) {
        self.band = band;
    }

    /// Takes none from a time on.
    pub fn end_at(&mut self, to_ns: u64) {
        self.to_ns = to_ns;
    }

    fn is_in(&self, ts_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&ts_ns)
    }

    /// A line that was reached, to be shown; `None` of another time.
    pub fn reached(&self, hit: &RecordedReached, look: &RecordedLook) -> Option<Waiting> {
        if !self.is_in(hit.ts_ns) {
            return None;
        }
        let traced = TracedHit {
            ts_ns: hit.ts_ns,
            pid: hit.tgid,
            tid: hit.tid,
            place: 0,
            duration_ns: None,
            values: self.values(hit.probe, look),
            stack: look.stack.clone(),
        };
        Some(Waiting::Reached(hit.probe, traced))
    }

    /// A call that ended, to be shown; `None` of another time.
    pub fn call(&self, end: &SpanEnd, look: &RecordedLook) -> Option<Waiting> {
        let values = self.is_in(end.end_ns).then(|| self.values(end.probe, look))?;
        let entry = Entry::of_ended(end, values, look.stack.clone());
        Some(Waiting::Call(*end, entry))
    }

    fn values(&self, probe: ProbeId, look: &RecordedLook) -> Vec<TracedValue> {
        let expressions = self.expressions.get(&probe);
        expressions.map_or_else(Vec::new, |expressions| values(expressions, look))
    }

    /// Takes what waits for no call any more.
    pub fn take(&mut self, waited: Waiting) {
        match waited {
            Waiting::Reached(probe, hit) => self.trace.take_recorded(probe, hit),
            Waiting::Call(end, entry) => {
                let band = self.band;
                let is_inside = |duration_ns| band.contains(bucket_of(duration_ns));
                self.trace.take_call(&end, entry, is_inside);
            }
        }
    }

    /// Keeps what has come to be shown.
    pub fn keep(&mut self) {
        for hit in self.trace.take_hits() {
            let bytes = self.bytes.saturating_add(hit.bytes());
            if self.shown.len() == MAX_HITS || bytes > MAX_HIT_BYTES {
                self.too_many += 1;
            } else {
                self.bytes = bytes;
                self.shown.push(hit);
            }
        }
    }

    /// What was counted, by reason what was lost of it.
    fn totals(&mut self, losses: TraceLosses, readings: &dyn Readings, around: Around) -> Totals {
        self.trace.set_losses(losses);
        let mut totals = self.trace.totals(readings, around);
        if self.too_many > 0 {
            totals.lost.insert("replay_full", self.too_many);
        }
        totals
    }
}

/// What was recorded of the values of these expressions.
pub fn values(expressions: &[RecordedExpression], look: &RecordedLook) -> Vec<TracedValue> {
    let values = (expressions.iter().zip(&look.values)).map(|(told, reading)| TracedValue {
        expression: Arc::clone(&told.expression),
        type_name: Arc::clone(&told.type_name),
        reading: reading.clone(),
    });
    values.collect()
}

/// What threads were called.
#[derive(Default)]
pub struct Threads(BTreeMap<ThreadId, FrameId>);

impl Threads {
    /// Takes those that are told.
    pub fn tell(&mut self, threads: &[TaskOf]) {
        for told in threads {
            let key = ThreadId {
                tgid: told.tgid,
                tid: told.tid,
            };
            if self.0.len() < MAX_THREADS || self.0.contains_key(&key) {
                self.0.insert(key, told.task.thread);
            }
        }
    }

    /// The name of one, which is a frame of the name with the number behind it; none of one that had ended before it was looked at.
    pub fn name(&self, thread: ThreadId, frames: &FrameTable) -> Option<String> {
        let frame = frames.get(self.0.get(&thread)?.0 as usize)?;
        let name = frame.function.strip_suffix(&format!(" ({})", thread.tid))?;
        (name != UNKNOWN_TASK).then(|| name.to_owned())
    }

    /// The names of those that hits are of.
    fn names(&self, hits: &[TracedHit], frames: &FrameTable) -> Vec<ThreadName> {
        let thread = |hit: &TracedHit| ThreadId {
            tgid: hit.pid,
            tid: hit.tid,
        };
        let threads: BTreeSet<ThreadId> = hits.iter().map(thread).collect();
        let names = threads.into_iter().filter_map(|thread| {
            let ThreadId { tgid: pid, tid } = thread;
            let name = self.name(thread, frames)?;
            Some(ThreadName { pid, tid, name })
        });
        names.collect()
    }
}

impl Played {
    /// The hits that the scope shows, in as many batches as they take.
    ///
    /// # Errors
    /// Where they were not asked for.
    pub fn trace(mut self) -> Result<mpsc::Receiver<TraceBatch>, SessionError> {
        let around = self.around_hits();
        let (losses, dropped) = (self.trace_losses(), self.dropped_records());
        let unseen: Losses = self.unseen().collect();
        let mut hits = self
            .hits
            .take()
            .ok_or_else(|| refused("no hits were requested"))?;
        let mut totals = hits.totals(losses, &self.counts, around);
        totals.lost.extend(dropped);
        let mut names = self.threads.names(&hits.shown, &self.frames);
        let mut places = hits.trace.places().to_vec();
        let mut told = HashSet::new();
        let mut rest = std::mem::take(&mut hits.shown).into_iter();
        let count = rest.len().div_ceil(HITS_OF_BATCH).max(1);
        let (batches, receiver) = mpsc::channel(count);
        for seq in 0..count as u64 {
            let now: Vec<TracedHit> = rest.by_ref().take(HITS_OF_BATCH).collect();
            let batch = TraceBatch {
                seq,
                places: std::mem::take(&mut places),
                frames: new_frames(&now, &mut told, &self.frames),
                hits: Arc::new(now),
                reached: totals.reached,
                rejected: totals.rejected,
                lost: totals.lost.clone(),
                unseen: unseen.clone(),
                cost: self.cost,
                thread_names: Some(std::mem::take(&mut names)),
                ended: (rest.len() == 0).then(|| self.ended.clone()),
                room: None,
            };
            // There is room for all.
            let _ = batches.try_send(batch);
        }
        Ok(receiver)
    }
}

/// The frames of hits' stacks that were not told before.
fn new_frames(hits: &[TracedHit], told: &mut HashSet<FrameId>, frames: &FrameTable) -> Vec<(FrameId, Frame)> {
    let stacks = hits.iter().filter_map(|hit| hit.stack.as_deref());
    let used: BTreeSet<FrameId> = stacks
        .flat_map(|NamedStack { frames, .. }| frames.iter().copied())
        .collect();
    let new = used.into_iter().filter(|id| told.insert(*id));
    new.filter_map(|id| Some((id, frames.get(id.0 as usize)?.clone())))
        .collect()
}

fn refused(message: &str) -> SessionError {
    SessionError::new(Reason::ArgumentInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_hit_has_its_stack() {
        let hit = TracedHit {
            ts_ns: 1,
            pid: 1,
            tid: 1,
            place: 0,
            duration_ns: None,
            values: Vec::new(),
            stack: Some(Arc::new(NamedStack {
                frames: vec![FrameId(1); 4096],
                complete: true,
            })),
        };
        let waiting = Waiting::Reached(ProbeId(1), hit);
        assert_eq!(waiting.bytes(), 4096 * size_of::<FrameId>());
    }
}
