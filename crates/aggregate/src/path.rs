//! What waits for the durations of the spans around it.
//!
//! A scope's step with a condition on durations admits what happens inside its spans only when they end as is asked.
//! So what the steps behind it have seen waits for that end; there it is dropped, or handed on to the span that the
//! ended one was inside of, or, where no further step asks for a duration, given out.
//!
//! The band that a step asks for is the present one: what has been given out or dropped stays so when it moves.
//!
//! See `docs/internals/steps.md` for how steps nest.

use std::{collections::HashMap, ops::AddAssign};

use foldhash::fast::RandomState;
use profiler_common::{layout::bucket_of, probe::ProbeId, record::SpanEnd};

use super::{gone::GoneThreads, thread::ThreadId, threshold::Band};

/// What may wait of one scope, at most. Beyond it what has waited for longest is given up, counted: the end that it waits
/// for may have been lost.
pub const MAX_WAITING: usize = 1 << 17;

/// A span's id on this host: its thread, and its number there.
type SpanKey = (u32, u64);

/// One step that has spans.
#[derive(Clone, Debug)]
struct Step {
    /// What is asked of its durations; `None` where nothing is.
    band: Option<Band>,
    /// A step before it asks for a duration.
    is_joined: bool,
}

/// What waits for one span.
#[derive(Clone, Debug)]
struct Waiting<T> {
    tgid: u32,
    since_ns: u64,
    items: Vec<T>,
}

/// What became of what is not given out, by weight.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// A span around it has another duration than was asked for, or returned something else.
    pub outside: u64,
    /// A span around it was abandoned, and so has no duration.
    pub abandoned: u64,
    /// The end of a span around it never came, and its thread is gone.
    pub expired: u64,
    /// More was waiting than may.
    pub join_full: u64,
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, more: Self) {
        let Self {
            outside,
            abandoned,
            expired,
            join_full,
        } = more;
        self.outside += outside;
        self.abandoned += abandoned;
        self.expired += expired;
        self.join_full += join_full;
    }
}

/// The spans around what is looked at, and what waits for their ends.
#[derive(Clone, Debug)]
pub struct Path<T> {
    steps: Vec<Step>,
    /// One of them waits for another.
    joins: bool,
    step_of: HashMap<ProbeId, usize, RandomState>,
    waiting: HashMap<SpanKey, Waiting<T>, RandomState>,
    /// Things that wait.
    count: usize,
    /// What one of them weighs in the counts.
    weigh: fn(&T) -> u64,
    dropped: Dropped,
    gone: GoneThreads,
    max_waiting: usize,
    /// What its things take beside themselves, in bytes.
    bytes: usize,
    bytes_of: fn(&T) -> usize,
    max_bytes: usize,
}

impl<T> Path<T> {
    /// A path whose steps with spans are these, outermost first: their probes, and whether they ask for a duration.
    /// `weigh` says how much of what is counted a thing is.
    #[must_use]
    pub fn new(steps: impl IntoIterator<Item = (Vec<ProbeId>, bool)>, weigh: fn(&T) -> u64) -> Self {
        let mut path = Self {
            steps: Vec::new(),
            joins: false,
            step_of: HashMap::default(),
            waiting: HashMap::default(),
            count: 0,
            weigh,
            dropped: Dropped::default(),
            gone: GoneThreads::default(),
            max_waiting: MAX_WAITING,
            bytes: 0,
            bytes_of: |_| 0,
            max_bytes: usize::MAX,
        };
        let mut is_joined = false;
        for (number, (probes, asks)) in steps.into_iter().enumerate() {
            path.step_of
                .extend(probes.into_iter().map(|probe| (probe, number)));
            path.steps.push(Step {
                // Nothing is admitted before the band is known.
                band: asks.then_some(NOTHING),
                is_joined,
            });
            path.joins |= is_joined;
            is_joined |= asks;
        }
        path
    }

    /// One whose things take at most so many bytes beside themselves: beyond that, they are given up as beyond their number.
    #[must_use]
    pub fn with_room(self, max_bytes: usize, bytes_of: fn(&T) -> usize) -> Self {
        Self {
            bytes_of,
            max_bytes,
            ..self
        }
    }

    /// Sets what a step asks of its durations, if it does.
    pub fn set_band(&mut self, step: usize, asked: Band) {
        if let Some(Step { band: Some(band), .. }) = self.steps.get_mut(step) {
            *band = asked;
        }
    }

    /// Whether what such a probe sees waits for a span around it.
    #[must_use]
    pub fn is_joined(&self, probe: ProbeId) -> bool {
        self.joins && self.step(probe).is_some_and(|step| step.is_joined)
    }

    fn step(&self, probe: ProbeId) -> Option<&Step> {
        self.steps.get(*self.step_of.get(&probe)?)
    }

    /// Takes something that happened inside a span of a thread.
    pub fn wait(&mut self, tgid: u32, tid: u32, parent: u64, now_ns: u64, item: T) {
        self.hand_on(tgid, (tid, parent), now_ns, vec![item]);
    }

    fn hand_on(&mut self, tgid: u32, parent: SpanKey, now_ns: u64, mut items: Vec<T>) {
        if items.is_empty() {
            return;
        }
        let mut bytes = self.bytes_of(&items);
        let is_full = self.count + items.len() > self.max_waiting;
        if is_full || self.bytes.saturating_add(bytes) > self.max_bytes {
            self.give_up_oldest(parent, bytes);
            let room = self.max_waiting.saturating_sub(self.count);
            let mut left = self.max_bytes.saturating_sub(self.bytes);
            let mut most = 0;
            for item in items.iter().take(room) {
                let Some(rest) = left.checked_sub((self.bytes_of)(item)) else {
                    break;
                };
                left = rest;
                most += 1;
            }
            self.dropped.join_full += items.drain(most..).map(|item| (self.weigh)(&item)).sum::<u64>();
            bytes = self.bytes_of(&items);
        }
        self.count += items.len();
        self.bytes += bytes;
        let waiting = self.waiting.entry(parent).or_insert_with(|| Waiting {
            tgid,
            since_ns: now_ns,
            items: Vec::new(),
        });
        waiting.items.append(&mut items);
    }

    fn bytes_of(&self, items: &[T]) -> usize {
        items.iter().map(self.bytes_of).sum()
    }

    /// Gives up an eighth at a time, so that the sort is rare, or so many bytes as are asked for; nothing of the span that more is
    /// taken of.
    fn give_up_oldest(&mut self, but: SpanKey, bytes: usize) {
        let most = (self.max_bytes - self.max_bytes / 8).min(self.max_bytes.saturating_sub(bytes));
        let mut by_age: Vec<(u64, SpanKey)> = self
            .waiting
            .iter()
            .map(|(&span, waiting)| (waiting.since_ns, span))
            .filter(|(_, span)| *span != but)
            .collect();
        by_age.sort_unstable();
        for (_, span) in by_age {
            let is_roomy = self.count <= self.max_waiting - self.max_waiting / 8;
            if is_roomy && self.bytes <= most {
                break;
            }
            if let Some(Waiting { items, .. }) = self.waiting.remove(&span) {
                self.count -= items.len();
                self.bytes -= self.bytes_of(&items);
                self.dropped.join_full += items.iter().map(self.weigh).sum::<u64>();
            }
        }
    }

    /// Takes the end of a span; gives what waited for it and waits for nothing more.
    #[must_use]
    pub fn span_end(&mut self, end: &SpanEnd) -> Vec<T> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let Some(&Step { band, is_joined }) = self.step(end.probe) else {
            return Vec::new();
        };
        let Some(Waiting { tgid, items, .. }) = self.waiting.remove(&(end.tid, end.sequence)) else {
            return Vec::new();
        };
        let count: u64 = items.iter().map(self.weigh).sum();
        self.count -= items.len();
        self.bytes -= self.bytes_of(&items);
        if tgid != end.tgid {
            // Of a thread that had this number before.
            self.dropped.expired += count;
            return Vec::new();
        }
        if end.flags & SpanEnd::ABANDONED != 0 {
            self.dropped.abandoned += count;
            return Vec::new();
        }
        let bucket = bucket_of(end.end_ns.saturating_sub(end.start_ns));
        let is_refused = end.flags & SpanEnd::REFUSED != 0;
        if is_refused || band.is_some_and(|band| !band.contains(bucket)) {
            self.dropped.outside += count;
            return Vec::new();
        }
        if is_joined {
            self.hand_on(tgid, (end.tid, u64::from(end.parent)), end.end_ns, items);
            return Vec::new();
        }
        items
    }

    /// Gives up what waits for a span of a thread that has been gone for `after_ns`: its end was lost, or is none.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        let is_long = |waiting: &Waiting<T>| now_ns.saturating_sub(waiting.since_ns) >= after_ns;
        let waiting = self.waiting.iter().filter(|(_, waiting)| is_long(waiting));
        let threads = waiting.map(|((tid, _), waiting)| ThreadId {
            tgid: waiting.tgid,
            tid: *tid,
        });
        let gone = self.gone.look(threads, now_ns, after_ns, is_gone);
        if gone.is_empty() {
            return;
        }
        let (count, dropped, weigh) = (&mut self.count, &mut self.dropped, self.weigh);
        let (bytes, bytes_of) = (&mut self.bytes, self.bytes_of);
        self.waiting.retain(|(tid, _), waiting| {
            let stays = !gone.contains(&ThreadId {
                tgid: waiting.tgid,
                tid: *tid,
            });
            if !stays {
                *count -= waiting.items.len();
                *bytes -= waiting.items.iter().map(bytes_of).sum::<usize>();
                dropped.expired += waiting.items.iter().map(weigh).sum::<u64>();
            }
            stays
        });
    }

    /// What waits, by weight.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let waiting = self.waiting.values().flat_map(|waiting| &waiting.items);
        waiting.map(self.weigh).sum()
    }

    /// What was not given out since this was last asked.
    pub fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.dropped)
    }
}

/// No duration.
const NOTHING: Band = Band {
    from: usize::MAX,
    to: 0,
};

#[cfg(test)]
mod tests;
