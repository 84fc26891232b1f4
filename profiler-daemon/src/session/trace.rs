//! Hits and ended calls on their way to their watchers, each once and in order.
//!
//! See `docs/internals/values.md` for how a hit gets its values.

mod batches;
mod losses;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use profiler_aggregate::{ThreadId, gone::GoneThreads, path::Dropped};
use profiler_common::{
    probe::ProbeId,
    record::SpanEnd,
    values::{MAX_BYTES, OUTPUT_BYTES, State},
};
use profiler_plan::values::{self, Reading, Refusal};
use profiler_symbolize::{Frame, FrameId};
use tokio::sync::mpsc;

use self::batches::{Batches, GROW_TO};
pub use self::losses::TraceLosses;
use super::{
    ending::Ending,
    lines::{Known, Printed, Shown, TracedPlace},
    picture::{Cost, Losses},
    readings::Readings,
    records::{RecordedExpression, RecordedLook, RecordedPlace},
    symbols::{NamedHit, NamedStack},
};
use crate::kernel::{Engine, Hit, ReadValue};

/// Calls that may be open with what was read where they began; those beyond are counted as `too_many_open`.
const MAX_ENTERED: usize = 65_536;

/// Hits in one batch; those beyond are counted as `batch_full`.
const MAX_BATCH: usize = 65_536;

/// A value at a hit.
#[derive(Clone, PartialEq, Debug)]
pub struct TracedValue {
    /// The expression, as it was understood.
    pub expression: Arc<str>,
    /// The type's name; empty where it is not known.
    pub type_name: Arc<str>,
    /// What came of it.
    pub reading: Reading,
}

/// A line that was reached, or a call that ended.
#[derive(Clone, PartialEq, Debug)]
pub struct TracedHit {
    /// `CLOCK_MONOTONIC`: when the line was reached, or the call began.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The place, as an index of all of the trace's.
    pub place: u32,
    /// Of a call.
    pub duration_ns: Option<u64>,
    /// In the order in which they were asked for.
    pub values: Vec<TracedValue>,
    /// Of the thread, where it was asked for: at the line, or where the call began.
    pub stack: Option<Arc<NamedStack>>,
}

impl TracedHit {
    /// Memory of its values and its stack, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes(&self.values, self.stack.as_deref())
    }
}

fn bytes(values: &[TracedValue], stack: Option<&NamedStack>) -> usize {
    let values: usize = values.iter().map(|value| value.reading.bytes()).sum();
    values + stack.map_or(0, |stack| size_of_val(stack.frames.as_slice()))
}

/// What was recorded where a call began.
#[derive(Clone)]
pub struct Entry {
    /// In the order in which they were asked for.
    pub values: Vec<TracedValue>,
    /// Of the thread, where it was asked for.
    pub stack: Option<Arc<NamedStack>>,
    /// Whether it returned what it has to, once it has; `None` where that is not known.
    passes: Option<bool>,
}

impl Entry {
    /// Memory of its values and its stack, in bytes.
    pub fn bytes(&self) -> usize {
        bytes(&self.values, self.stack.as_deref())
    }

    /// What was recorded of a call that has ended.
    pub fn of_ended(end: &SpanEnd, values: Vec<TracedValue>, stack: Option<Arc<NamedStack>>) -> Self {
        Self {
            values,
            stack,
            passes: passes(end),
        }
    }

    /// The same, to be recorded.
    pub fn look(&self) -> RecordedLook {
        look(&self.values, self.stack.clone())
    }
}

/// What is recorded of what was read.
fn look(values: &[TracedValue], stack: Option<Arc<NamedStack>>) -> RecordedLook {
    RecordedLook {
        values: values.iter().map(|value| value.reading.clone()).collect(),
        stack,
    }
}

/// What happened since the batch before.
#[derive(Clone, Debug)]
pub struct TraceBatch {
    /// Number of the batch within its stream.
    pub seq: u64,
    /// Places that are new to the stream.
    pub places: Vec<Arc<TracedPlace>>,
    /// Frames of the hits' stacks that are new to the stream.
    pub frames: Vec<(FrameId, Frame)>,
    /// In the order in which they were seen.
    pub hits: Arc<Vec<TracedHit>>,
    /// Hits at the places since they were attached.
    pub reached: u64,
    /// Those that a condition on values rejected.
    pub rejected: u64,
    /// Those that are not shown, by reason.
    pub lost: Losses,
    /// What the kernel did not show, in whichever process, by reason: no part of `reached`.
    pub unseen: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// What threads are called, of a recording; else whoever shows them asks the kernel.
    pub thread_names: Option<Vec<ThreadName>>,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// What a thread was called.
#[derive(Clone, Debug)]
pub struct ThreadName {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name that it had given itself.
    pub name: String,
}

/// What becomes of hits and calls because of the spans around them.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// What was not inside such spans as the scope asks for.
    pub dropped: Dropped,
    /// What is in spans that are still open.
    pub waiting: u64,
}

struct Watcher {
    batches: Batches,
    /// The first of the hits that are handed over next, so many, are not for it.
    skips: usize,
    seq: u64,
    places_sent: usize,
    frames_sent: HashSet<FrameId>,
    /// Hits that it was too slow for.
    slow: u64,
    /// What had been counted at places of earlier scopes when it came.
    earlier: Totals,
}

/// A call that began and was recorded.
struct Entered {
    tgid: u32,
    probe: ProbeId,
    ts_ns: u64,
    entry: Entry,
    /// What was read where it returned.
    followed: Option<Vec<ReadValue>>,
}

impl Entered {
    /// Whether it is the beginning of this call, and not that of one whose end was lost: the numbers of a thread that is
    /// gone come again.
    fn is_of(&self, end: &SpanEnd) -> bool {
        (self.tgid, self.probe) == (end.tgid, end.probe) && self.ts_ns >= end.start_ns
    }
}

/// A line's probe.
struct Line {
    place: u32,
    printed: Arc<[Printed]>,
    limit: Limit,
    /// Hits that were handed over.
    handed_over: u64,
}

/// A function's probe, or a call's.
struct Call {
    place: u32,
    shown: Shown,
    limit: Limit,
    /// Calls that were handed over.
    handed_over: u64,
}

/// How many are shown of what is known only when a call ends to be shown: so many of each second of their own time, as they
/// come in the order in which calls end.
#[derive(Default)]
struct Limit {
    /// 0 where all are that were recorded.
    per_second: u64,
    /// Those that are shown, by the second.
    shown: BTreeMap<u64, u64>,
}

/// Seconds that a limit knows of; calls that took longer may show more.
const MAX_SECONDS: usize = 1024;

impl Limit {
    fn of(interval_ns: u64) -> Self {
        Self {
            per_second: 1_000_000_000_u64.checked_div(interval_ns).unwrap_or(0),
            shown: BTreeMap::new(),
        }
    }

    /// Whether one of this time may be shown, which then counts against the limit.
    fn lets(&mut self, ts_ns: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let shown = self.shown.entry(ts_ns / 1_000_000_000).or_default();
        let is_shown = *shown < self.per_second;
        *shown += u64::from(is_shown);
        if self.shown.len() > MAX_SECONDS {
            self.shown.pop_first();
        }
        is_shown
    }
}

/// The values of a hit.
pub fn read(printed: &[Printed], hit: &Hit) -> Vec<TracedValue> {
    let mut read = hit.values.iter();
    printed
        .iter()
        .map(|printed| match &printed.lowered {
            Ok(lowered) if printed.known != Known::AtOnce => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: lowered.shape.type_name.as_str().into(),
                reading: Reading::Unsupported("the call has not ended".to_owned()),
            },
            Err(refusal) => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: "".into(),
                reading: refused(refusal),
            },
            Ok(lowered) => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: lowered.shape.type_name.as_str().into(),
                reading: read.next().map_or_else(
                    || Reading::Unsupported("the record of the hit is full".to_owned()),
                    |value| values::render(lowered, &state(value)),
                ),
            },
        })
        .collect()
}

/// Puts in what a call has returned; `followed` was read where it did.
pub fn returned(
    printed: &[Printed],
    end: &SpanEnd,
    followed: Option<&[ReadValue]>,
    values: &mut [TracedValue],
) {
    let mut followed = followed.unwrap_or_default().iter();
    for (printed, value) in printed.iter().zip(values) {
        let Ok(lowered) = &printed.lowered else { continue };
        value.reading = match printed.known {
            Known::AtOnce => continue,
            _ if end.flags & SpanEnd::RETURNED == 0 => Reading::Unsupported(
                "the call ended by a jump to another function, which returns in its place".to_owned(),
            ),
            Known::Returned => values::render_returned(lowered, end.returned),
            Known::Followed => followed.next().map_or_else(
                || Reading::Unreadable("there was no room for the values read at the return".to_owned()),
                |value| values::render(lowered, &state(value)),
            ),
        };
    }
}

/// Whether a call returned what it has to; `None` where that is not known.
fn passes(end: &SpanEnd) -> Option<bool> {
    (end.flags & SpanEnd::UNDECIDED == 0).then_some(end.flags & SpanEnd::REFUSED == 0)
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
    fn and(mut self, now: &Self, since: &Self) -> Self {
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

/// What a session records, and who gets it.
#[derive(Default)]
pub struct Trace {
    places: Vec<Arc<TracedPlace>>,
    lines: HashMap<ProbeId, Line>,
    calls: HashMap<ProbeId, Call>,
    /// What was read where calls began that have not ended, by thread and number.
    entered: HashMap<(u32, u64), Entered>,
    gone: GoneThreads,
    /// What was counted at places of earlier scopes.
    earlier: Totals,
    hits: Vec<TracedHit>,
    /// Those that came faster than they were named.
    missed: HashMap<ProbeId, u64>,
    /// What was lost before it was recorded, of a recording.
    before: TraceLosses,
    batch_full: u64,
    /// Calls whose duration is not as asked, or what they return.
    calls_outside: u64,
    /// Hits and calls beyond the limit, where it is known only when a call ends whether they are shown.
    limited: u64,
    /// Calls that were jumped over.
    calls_abandoned: u64,
    /// Calls whose end never came.
    calls_lost: u64,
    /// Calls that were open when there was no more room for them.
    calls_full: u64,
    /// Calls of which it is not known what they return, where a condition asks for it.
    calls_jumped: u64,
    watchers: Vec<Watcher>,
    /// The first of the hits, so many, are of an earlier scope, which who comes later is not told.
    of_earlier: usize,
}

impl Trace {
    /// Adds a line's probe. `interval_ns` is that between two hits that are shown, 0 where all are that were recorded.
    pub fn add_line(
        &mut self,
        probe: ProbeId,
        place: &Arc<TracedPlace>,
        printed: Arc<[Printed]>,
        interval_ns: u64,
    ) {
        let place = self.place(place);
        let handed_over = self.lines.get(&probe).map_or(0, |line| line.handed_over);
        let line = Line {
            place,
            printed,
            limit: Limit::of(interval_ns),
            handed_over,
        };
        self.lines.insert(probe, line);
    }

    /// Adds a function's probe; `interval_ns` as of a line.
    pub fn add_call(&mut self, probe: ProbeId, place: &Arc<TracedPlace>, shown: Shown, interval_ns: u64) {
        let call = Call {
            place: self.place(place),
            shown,
            limit: Limit::of(interval_ns),
            handed_over: self.calls.get(&probe).map_or(0, |call| call.handed_over),
        };
        self.calls.insert(probe, call);
    }

    fn place(&mut self, wanted: &Arc<TracedPlace>) -> u32 {
        let at = self
            .places
            .iter()
            .position(|place| place == wanted)
            .unwrap_or_else(|| {
                self.places.push(Arc::clone(wanted));
                self.places.len() - 1
            });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Adds a place that was recorded, whose hits come with their values.
    pub fn add_recorded(&mut self, recorded: &RecordedPlace) {
        let interval_ns = 1_000_000_000_u64
            .checked_div(recorded.shown_per_second)
            .unwrap_or(0);
        if recorded.is_call {
            self.add_call(recorded.probe, &recorded.place, Shown::default(), interval_ns);
        } else {
            self.add_line(recorded.probe, &recorded.place, [].into(), interval_ns);
        }
    }

    /// The places whose hits come, to be recorded.
    pub fn recorded_places(&self) -> Vec<RecordedPlace> {
        let lines =
            (self.lines.iter()).map(|(probe, line)| (*probe, line.place, &line.limit, &line.printed, false));
        let calls = (self.calls.iter())
            .map(|(probe, call)| (*probe, call.place, &call.limit, &call.shown.printed, true));
        let mut places: Vec<RecordedPlace> = lines
            .chain(calls)
            .filter_map(|(probe, place, limit, printed, is_call)| {
                Some(RecordedPlace {
                    probe,
                    place: Arc::clone(self.places.get(place as usize)?),
                    is_call,
                    shown_per_second: limit.per_second,
                    expressions: printed.iter().map(expression).collect(),
                })
            })
            .collect();
        places.sort_by_key(|place| place.probe);
        places
    }

    /// The places, in the order of their numbers.
    pub fn places(&self) -> &[Arc<TracedPlace>] {
        &self.places
    }

    /// Forgets probes that are gone; whether there were any. Places stay: hits that were sent name them. What is `around`
    /// begins anew then, and is counted as of before.
    pub fn retain(
        &mut self,
        readings: &dyn Readings,
        around: Around,
        is_live: impl Fn(ProbeId) -> bool,
    ) -> bool {
        let is_gone = |probe| !is_live(probe);
        let gone = self
            .lines
            .keys()
            .chain(self.calls.keys())
            .filter(|probe| is_gone(**probe));
        if gone.count() == 0 {
            return false;
        }
        let mut earlier = self.counted(readings, around, is_gone);
        let lines = self.lines.iter().map(|(probe, line)| (*probe, line.handed_over));
        let calls = self.calls.iter().map(|(probe, call)| (*probe, call.handed_over));
        let handed_over = lines.chain(calls).filter(|(probe, _)| is_gone(*probe));
        let known: u64 = earlier.lost.values().sum::<u64>()
            + earlier.rejected
            + handed_over.map(|(_, count)| count).sum::<u64>();
        // Records of what is traced no longer are still on their way, and calls open.
        add(
            &mut earlier.lost,
            [("edited", earlier.reached.saturating_sub(known))],
        );
        self.earlier = std::mem::take(&mut self.earlier).and(&earlier, &Totals::default());
        self.lines.retain(|probe, _| is_live(*probe));
        self.calls.retain(|probe, _| is_live(*probe));
        self.entered.retain(|_, entered| is_live(entered.probe));
        self.missed.retain(|probe, _| is_live(*probe));
        self.calls_outside = 0;
        self.limited = 0;
        self.calls_abandoned = 0;
        self.calls_lost = 0;
        self.calls_full = 0;
        self.calls_jumped = 0;
        self.batch_full = 0;
        self.of_earlier = self.hits.len();
        if self.watchers.is_empty() {
            self.of_earlier = 0;
            // Who comes later is told what the scope sees as it is then.
            let lines = self.lines.values().map(|line| line.place);
            let places: HashSet<u32> = lines.chain(self.calls.values().map(|call| call.place)).collect();
            self.hits.retain(|hit| places.contains(&hit.place));
        }
        true
    }

    /// Opens a stream.
    pub fn watch(&mut self) -> mpsc::Receiver<TraceBatch> {
        let (batches, receiver) = Batches::open();
        self.watchers.push(Watcher {
            batches,
            skips: self.of_earlier,
            seq: 0,
            places_sent: 0,
            frames_sent: HashSet::new(),
            slow: 0,
            earlier: self.earlier.clone(),
        });
        receiver
    }

    /// Number of open streams.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Forgets streams that nobody reads any more.
    pub fn sweep(&mut self) {
        self.watchers.retain(|watcher| !watcher.batches.is_closed());
    }

    /// Whether a probe is of one of its lines.
    pub fn has_line(&self, probe: ProbeId) -> bool {
        self.lines.contains_key(&probe)
    }

    /// Counts hits that came faster than they were named, or beginnings of calls, if they are of one of its probes.
    pub fn miss(&mut self, probe: ProbeId, count: u64) {
        if self.lines.contains_key(&probe) || self.calls.contains_key(&probe) {
            *self.missed.entry(probe).or_default() += count;
        }
    }

    /// What is recorded of a hit, if it is of one of its lines.
    pub fn look(&self, NamedHit { hit, stack }: &NamedHit) -> Option<RecordedLook> {
        let line = self.lines.get(&hit.probe)?;
        Some(look(&read(&line.printed, hit), stack.clone()))
    }

    /// Takes a hit, if it is of one of its lines.
    pub fn take_hit(&mut self, NamedHit { hit, stack }: &NamedHit) {
        self.take_reached(hit.probe, hit.ts_ns, |line| TracedHit {
            ts_ns: hit.ts_ns,
            pid: hit.tgid,
            tid: hit.tid,
            place: line.place,
            duration_ns: None,
            values: read(&line.printed, hit),
            stack: stack.clone(),
        });
    }

    /// Takes a hit that was recorded with its values, if it is of one of its lines.
    pub fn take_recorded(&mut self, probe: ProbeId, hit: TracedHit) {
        self.take_reached(probe, hit.ts_ns, |line| TracedHit {
            place: line.place,
            ..hit
        });
    }

    fn take_reached(&mut self, probe: ProbeId, ts_ns: u64, hit: impl FnOnce(&Line) -> TracedHit) {
        let Some(line) = self.lines.get_mut(&probe) else {
            return;
        };
        if !line.limit.lets(ts_ns) {
            self.limited += 1;
            return;
        }
        let hit = hit(line);
        let is_shown = self.push(hit);
        if let Some(line) = self.lines.get_mut(&probe) {
            line.handed_over += u64::from(is_shown);
        }
    }

    /// The hits that have come since they were taken last.
    pub fn take_hits(&mut self) -> Vec<TracedHit> {
        std::mem::take(&mut self.hits)
    }

    /// What was lost before it can be recorded.
    pub fn losses(&self) -> TraceLosses {
        TraceLosses {
            symbols_behind: self.missed.values().sum(),
            abandoned: self.calls_abandoned,
            end_lost: self.calls_lost,
            too_many_open: self.calls_full,
        }
    }

    /// Says what was lost before it was recorded.
    pub fn set_losses(&mut self, before: TraceLosses) {
        self.before = before;
    }

    /// Takes what was read where a call began, if it is of one of its functions.
    pub fn take_entry(&mut self, NamedHit { hit, stack }: &NamedHit) {
        let Some(call) = self.calls.get(&hit.probe) else {
            return;
        };
        if self.entered.len() >= MAX_ENTERED {
            self.calls_full += 1;
            return;
        }
        let entered = Entered {
            tgid: hit.tgid,
            probe: hit.probe,
            ts_ns: hit.ts_ns,
            entry: Entry {
                values: read(&call.shown.printed, hit),
                stack: stack.clone(),
                passes: None,
            },
            followed: None,
        };
        self.entered.insert((hit.tid, hit.parent), entered);
    }

    /// Takes what was read where a call returns, if it is of one that was recorded when it began.
    pub fn take_followed(&mut self, hit: &Hit) {
        if let Some(entered) = self.entered.get_mut(&(hit.tid, hit.parent))
            && (entered.tgid, entered.probe) == (hit.tgid, hit.probe)
        {
            entered.followed = Some(hit.values.clone());
        }
    }

    /// What was recorded where a call began that ends; `None` where nothing was, or it has no duration.
    pub fn leave(&mut self, end: &SpanEnd) -> Option<Entry> {
        let call = self.calls.get(&end.probe)?;
        let mut entered = self.entered.remove(&(end.tid, end.sequence))?;
        if !entered.is_of(end) {
            self.calls_lost += 1;
            return None;
        }
        if end.flags & SpanEnd::ABANDONED != 0 {
            self.calls_abandoned += 1;
            return None;
        }
        let followed = entered.followed.as_deref();
        returned(&call.shown.printed, end, followed, &mut entered.entry.values);
        entered.entry.passes = passes(end);
        Some(entered.entry)
    }

    /// Takes a call that ended, if its duration is one that is looked for.
    pub fn take_call(
        &mut self,
        end: &SpanEnd,
        Entry {
            values,
            stack,
            passes,
        }: Entry,
        is_inside: impl FnOnce(u64) -> bool,
    ) {
        let Some(call) = self.calls.get_mut(&end.probe) else {
            return;
        };
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        if !is_inside(duration_ns) {
            self.calls_outside += 1;
            return;
        }
        match passes {
            Some(true) => {}
            Some(false) => {
                self.calls_outside += 1;
                return;
            }
            None => {
                self.calls_jumped += 1;
                return;
            }
        }
        if !call.limit.lets(end.end_ns) {
            self.limited += 1;
            return;
        }
        let place = call.place;
        let is_shown = self.push(TracedHit {
            ts_ns: end.start_ns,
            pid: end.tgid,
            tid: end.tid,
            place,
            duration_ns: Some(duration_ns),
            values,
            stack,
        });
        if let Some(call) = self.calls.get_mut(&end.probe) {
            call.handed_over += u64::from(is_shown);
        }
    }

    /// Forgets calls of threads that have been gone for `after_ns`: their ends were lost.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        let entered = self.entered.iter();
        let old = entered.filter(|(_, entered)| now_ns.saturating_sub(entered.ts_ns) >= after_ns);
        let thread = |tid: u32, tgid: u32| ThreadId { tgid, tid };
        let threads = old.map(|((tid, _), entered)| thread(*tid, entered.tgid));
        let gone = self.gone.look(threads, now_ns, after_ns, is_gone);
        if gone.is_empty() {
            return;
        }
        let before = self.entered.len();
        self.entered
            .retain(|(tid, _), entered| !gone.contains(&thread(*tid, entered.tgid)));
        self.calls_lost += (before - self.entered.len()) as u64;
    }

    /// Adds a hit to those that are handed over; whether there was room.
    fn push(&mut self, hit: TracedHit) -> bool {
        let has_room = self.hits.len() < MAX_BATCH;
        if has_room {
            self.hits.push(hit);
        } else {
            self.batch_full += 1;
        }
        has_room
    }

    /// Hits and calls since their probes were attached, or since a recording's part began, and what became of them.
    pub fn totals(&self, readings: &dyn Readings, around: Around) -> Totals {
        let mut totals = self.counted(readings, around, |_| true);
        add(&mut totals.lost, [("join_open", around.waiting)]);
        totals
    }

    /// Hits and calls at some of the probes since they were attached, and what became of all that waited.
    fn counted(&self, readings: &dyn Readings, around: Around, is_of: impl Fn(ProbeId) -> bool) -> Totals {
        let Around { dropped, waiting: _ } = around;
        let mut totals = Totals {
            reached: 0,
            rejected: dropped.outside + self.calls_outside,
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
                ("rate_limit", self.limited),
                ("return_unknown", self.calls_jumped),
                ("symbols_behind", self.before.symbols_behind),
                ("abandoned", self.calls_abandoned + self.before.abandoned),
                ("end_lost", self.calls_lost + self.before.end_lost),
                ("too_many_open", self.calls_full + self.before.too_many_open),
                ("join_abandoned", dropped.abandoned),
                ("join_expired", dropped.expired),
                ("join_full", dropped.join_full),
                ("batch_full", self.batch_full),
            ],
        );
        totals
    }

    /// Hands over what there is, to those who have not heard of the places yet in any case; `ended` says why it is the
    /// last.
    pub fn publish(
        &mut self,
        engine: &Engine,
        frames: &[Frame],
        around: Around,
        unseen: &Losses,
        cost: Cost,
        ended: Option<&Ending>,
    ) {
        self.sweep();
        let grows = ended.is_none() && self.hits.len() < GROW_TO;
        if self.watchers.is_empty()
            || grows && self.watchers.iter().all(|watcher| watcher.batches.are_behind())
        {
            return;
        }
        let all_hits = Arc::new(std::mem::take(&mut self.hits));
        self.of_earlier = 0;
        let stacks = all_hits.iter().filter_map(|hit| hit.stack.as_deref());
        let used: BTreeSet<FrameId> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
        let mut totals = self.totals(engine, around);
        // They come and go.
        let open = if ended.is_some() {
            self.entered.len() as u64
        } else {
            0
        };
        add(&mut totals.lost, [("open", open)]);
        for watcher in &mut self.watchers {
            let hits = match std::mem::take(&mut watcher.skips) {
                0 => Arc::clone(&all_hits),
                skips => Arc::new(all_hits.get(skips..).unwrap_or_default().to_vec()),
            };
            if hits.is_empty() && ended.is_none() && watcher.batches.are_behind() {
                continue;
            }
            let places = self
                .places
                .get(watcher.places_sent..)
                .unwrap_or_default()
                .to_vec();
            let is_new = |id: &FrameId| !watcher.frames_sent.contains(id);
            let new: Vec<FrameId> = used.iter().copied().filter(is_new).collect();
            let frame = |id: &FrameId| Some((*id, frames.get(id.0 as usize)?.clone()));
            let Totals {
                reached,
                rejected,
                mut lost,
            } = totals.clone().and(&self.earlier, &watcher.earlier);
            if watcher.slow > 0 {
                lost.insert("slow_client", watcher.slow);
            }
            let size = hits.len();
            let batch = TraceBatch {
                seq: watcher.seq,
                places,
                frames: new.iter().filter_map(frame).collect(),
                hits,
                reached,
                rejected,
                lost,
                unseen: unseen.clone(),
                cost,
                thread_names: None,
                ended: ended.cloned(),
            };
            if ended.is_some() {
                watcher.batches.end(batch);
            } else if watcher.batches.offer(batch) {
                watcher.seq += 1;
                watcher.places_sent = self.places.len();
                watcher.frames_sent.extend(new);
            } else {
                watcher.slow += size as u64;
            }
        }
    }
}

/// Adds what was lost, if anything was, to what is lost by reason.
fn add(lost: &mut Losses, counts: impl IntoIterator<Item = (&'static str, u64)>) {
    for (reason, count) in counts {
        if count > 0 {
            *lost.entry(reason).or_default() += count;
        }
    }
}

/// What is told of an expression with its place.
fn expression(printed: &Printed) -> RecordedExpression {
    let type_name = printed.lowered.as_ref().map(|lowered| &*lowered.shape.type_name);
    RecordedExpression {
        expression: Arc::clone(&printed.expression),
        type_name: type_name.unwrap_or_default().into(),
    }
}

/// What the interpreter ended with.
fn state(value: &ReadValue) -> State {
    let mut state = State::START;
    state.outcome = u8::try_from(value.outcome).unwrap_or(u8::MAX);
    state.fault = value.fault;
    let length = value.bytes.len().min(MAX_BYTES);
    state.output[..length].copy_from_slice(&value.bytes[..length]);
    state.length = u32::try_from(length).unwrap_or(0);
    state
}

const _: () = assert!(MAX_BYTES <= OUTPUT_BYTES);

/// Why nothing is read, as a reading.
fn refused(refusal: &Refusal) -> Reading {
    Reading::from(refusal.clone())
}
