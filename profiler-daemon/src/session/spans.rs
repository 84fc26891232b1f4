//! The slowest calls of the window, while somebody watches them.
//!
//! They are of the step that divides the samples too: the last one that asks for a duration, or else the last one with
//! spans. What the steps behind it see is inside. The programs record a call's end where it took long enough to come
//! among the slowest, and this keeps their limit current by the histogram of all calls; so a call is not recorded, but
//! counted, unless it is one of them.

mod layout;
mod picture;

use std::{cmp::Reverse, collections::HashMap, ops::Range, sync::Arc};

use profiler_common::{
    counter::Counter,
    layout::{BUCKETS, bucket_of, lowest_ns},
    probe::ProbeId,
    record::SpanEnd,
};

use self::layout::Shown;
pub use self::{
    layout::{Layout, inside_left_out, program_losses, values_left_out},
    picture::{
        SlowSpan, SpanChild, SpanPeriod, SpanPeriods, SpanSystemCall, SpanSystemCalls, SpanWait,
        SpansPicture, SpansRequest, Times,
    },
};
use super::{
    flame::Moment,
    picture::Losses,
    symbols::{Dropped, Named},
    trace::{self, TracedValue},
};
use crate::kernel::{Activity, CallNumber, Engine, Hit, ReadValue, ReturnedCall};
use profiler_aggregate::{
    ThreadId,
    histogram::Histogram,
    slots::WindowConfig,
    slowest::{MAX_SHOWN, RECORDED_PER_SHOWN, Rank, Slowest, record_from_ns},
    slowest_open::{
        Child, Gathered, LeftOut, OffCpu, OpenSpans, Period, SystemCallKind, SystemCallSum, SystemCalls,
        WaitedAt,
    },
    threshold::Band,
    waits::{Wait, Waker},
    watched::Watched,
};
use profiler_symbolize::Grouping;

/// What the share of calls in which all lines were reached is remembered by, from one reading to the next.
const REMEMBERED: f64 = 0.95;

/// What was read of a span.
pub enum Begun {
    /// As the programs read it.
    Hit {
        /// Where it began.
        hit: Hit,
        /// Where it returned.
        followed: Option<Vec<ReadValue>>,
    },
    /// As it was recorded.
    Recorded {
        /// When it began.
        at_ns: u64,
        /// In the order in which they were asked for.
        values: Vec<TracedValue>,
    },
}

impl Begun {
    /// Memory of recorded values, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Hit { .. } => 0,
            Self::Recorded { values, .. } => values.iter().map(|value| value.reading.bytes()).sum(),
        }
    }

    fn at_ns(&self) -> u64 {
        match self {
            Self::Hit { hit, .. } => hit.ts_ns,
            Self::Recorded { at_ns, .. } => *at_ns,
        }
    }
}

/// What was gathered of a span that has ended.
pub type Before = Box<Gathered<Begun>>;

/// Since when a session's target is sampled for it, which begins when the tables to walk its stacks by are there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampledFrom(Option<u64>);

impl SampledFrom {
    /// Says whether it is sampled from now on; if it was before, it goes on.
    pub fn set(&mut self, is_sampled: bool, now_ns: u64) {
        self.0 = is_sampled.then(|| self.0.unwrap_or(now_ns));
    }

    /// Whether it is sampled.
    pub fn is_sampled(self) -> bool {
        self.0.is_some()
    }

    /// Since when.
    pub fn since_ns(self) -> Option<u64> {
        self.0
    }

    /// Whether samples would have hit what began then.
    fn covers(self, start_ns: u64) -> bool {
        self.0.is_some_and(|from_ns| start_ns >= from_ns)
    }
}

/// The slowest calls of a session, while somebody watches them.
pub struct Spans {
    layout: Layout,
    open: OpenSpans<Begun>,
    /// So many are shown.
    wanted: usize,
    /// As many as may be shown: more may be wanted later.
    slowest: Slowest<Arc<SlowSpan>>,
    watched: Watched,
    /// Ends come from a recording: those that were recorded are known, and no limit.
    is_recorded: bool,
    window_ns: u64,
    /// What is asked of durations.
    band: Band,
    threshold_ns: u64,
    /// Calls whose end came, and those of them in which all lines were reached; a decayed number.
    ended: f64,
    reached: f64,
    /// Calls that were off the CPU for longer than they took, as it was told.
    contradictory: u64,
    /// Calls that are not ranked, as setting up the sampler may be why they took long.
    while_attaching: u64,
    /// What had been lost before it began.
    lost_before: Losses,
    /// The wait that came last, whose samples follow.
    last_wait: Option<LastWait>,
    /// Whether system calls are recorded.
    system_calls: RecordedCalls,
}

/// Since when system calls are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordedCalls {
    /// They are not.
    No,
    /// They were asked for: so many readings after that they are certain to be.
    Asked(u32),
    /// From a time on.
    From(u64),
}

/// Calls whose times off the CPU were together longer than they took, which are not shown.
pub const WAITS_OVER_DURATION: &str = "waits_over_duration";

/// Readings after which what was asked of the programs is done.
const READINGS: u32 = 2;

/// Who ended a thread's wait, and when.
struct LastWait {
    thread: ThreadId,
    woken_ns: u64,
    by: Waker,
}

impl Spans {
    /// None yet: `before` are all calls so far, `lost_before` what was lost of them.
    pub fn new(
        layout: Layout,
        wanted: usize,
        window: WindowConfig,
        before: &Histogram<u64>,
        lost_before: Losses,
        now_ns: u64,
    ) -> Self {
        let window_ns = window.window_ns;
        Self {
            layout,
            open: OpenSpans::default(),
            wanted: wanted.clamp(1, MAX_SHOWN),
            slowest: Slowest::new(MAX_SHOWN, window_ns),
            watched: Watched::new(window, now_ns, before.iter()),
            is_recorded: false,
            window_ns,
            band: Band::ALL,
            threshold_ns: 0,
            ended: 0.0,
            reached: 0.0,
            contradictory: 0,
            while_attaching: 0,
            lost_before,
            last_wait: None,
            system_calls: RecordedCalls::No,
        }
    }

    /// Those of a recording from a time on, of which so many are shown; the window is its part.
    pub fn of_recording(layout: Layout, wanted: usize, window: WindowConfig, from_ns: u64) -> Self {
        Self {
            is_recorded: true,
            ..Self::new(layout, wanted, window, &Histogram::new(), Losses::new(), from_ns)
        }
    }

    /// The frames that its stacks are made of: functions tell stacks apart, lines are shown.
    pub const GROUPINGS: [Grouping; 2] = [Grouping::Function, Grouping::Line];

    /// Whose calls are shown.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Goes on with the scope as it has become, if the same calls are shown; whether it does.
    pub fn goes_on(&mut self, layout: Layout) -> bool {
        let same = self.layout.is_same(&layout);
        if same {
            self.layout = layout;
        }
        same
    }

    /// Changes how many are wanted.
    pub fn want(&mut self, wanted: usize) {
        self.wanted = wanted.clamp(1, MAX_SHOWN);
    }

    /// Says whether system calls are recorded from soon on; if they were before, it goes on.
    pub fn want_system_calls(&mut self, wanted: bool) {
        self.system_calls = match (wanted, self.system_calls) {
            (false, _) => RecordedCalls::No,
            (true, RecordedCalls::No) => RecordedCalls::Asked(READINGS),
            (true, known) => known,
        };
    }

    /// Takes a system call that has returned.
    pub fn system_call(&mut self, returned: &ReturnedCall) {
        let thread = ThreadId {
            tgid: returned.tgid,
            tid: returned.tid,
        };
        for span in &returned.spans {
            // What is itself a system call begins with its own.
            if self.layout.shown.contains_key(&span.probe) && returned.start_ns >= span.start_ns {
                let kind = SystemCallKind {
                    number: returned.call.in_programs(),
                    error: returned.error,
                };
                let times = (returned.start_ns, returned.end_ns);
                self.open.system_call(thread, span.sequence, kind, times);
            }
        }
    }

    /// Takes a wait, before the samples of it.
    pub fn wait(&mut self, wait: &Wait) {
        self.last_wait = Some(LastWait {
            thread: wait.thread,
            woken_ns: wait.times[1],
            by: wait.waker.clone(),
        });
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: &Named) {
        let Named::Sample {
            tgid,
            tid,
            ts_ns,
            weight,
            activity,
            count,
            spans,
            stacks,
            lock,
            system_call,
            ..
        } = sample
        else {
            return;
        };
        let [Some(functions), Some(lines)] = Self::GROUPINGS.map(|grouping| stacks.of(grouping)) else {
            return;
        };
        for span in spans {
            if self.layout.shown.contains_key(&span.probe) {
                let thread = ThreadId {
                    tgid: *tgid,
                    tid: *tid,
                };
                if *activity == Activity::OnCpu {
                    self.open.sample(thread, span.sequence, *ts_ns, functions, lines);
                } else {
                    let period = Period {
                        activity: activity.number(),
                        system_call: system_call.map(CallNumber::in_programs),
                        start_ns: ts_ns.saturating_sub(*weight),
                        time_ns: *weight,
                    };
                    let last = self.last_wait.as_ref().filter(|last| {
                        *activity != Activity::Runnable && (last.thread, last.woken_ns) == (thread, *ts_ns)
                    });
                    let at = WaitedAt {
                        lines,
                        lock: *lock,
                        ended_by: last.map(|last| &last.by),
                    };
                    self.open.wait(thread, span.sequence, period, *count, at);
                }
            }
        }
    }

    /// Takes a hit, or what was read where a call began.
    pub fn hit(&mut self, hit: &Hit) {
        let thread = ThreadId {
            tgid: hit.tgid,
            tid: hit.tid,
        };
        if hit.is_entry {
            if self.layout.shown.contains_key(&hit.probe) {
                let begun = Begun::Hit {
                    hit: hit.clone(),
                    followed: None,
                };
                self.open.entry(thread, hit.parent, hit.ts_ns, begun);
            }
        } else if hit.is_end {
            if let Some(Begun::Hit { hit: began, followed }) = self.open.entry_of(thread, hit.parent)
                && began.probe == hit.probe
            {
                *followed = Some(hit.values.clone());
            }
        } else {
            self.reached(thread, hit.probe, hit.parent, hit.ts_ns);
        }
    }

    /// Takes a line that a thread has reached in the span of a number, if it is inside of what is shown.
    pub fn reached(&mut self, thread: ThreadId, probe: ProbeId, parent: u64, ts_ns: u64) {
        if self.layout.behind.contains_key(&probe) {
            let child = Child {
                probe,
                start_ns: ts_ns,
                duration_ns: None,
            };
            self.open.child(thread, parent, child);
        }
    }

    /// Takes what was recorded of the values of a span, before its end.
    pub fn values(&mut self, end: &SpanEnd, values: Vec<TracedValue>) {
        if self.layout.shown.contains_key(&end.probe) {
            let begun = Begun::Recorded {
                at_ns: end.start_ns,
                values,
            };
            let thread = ThreadId {
                tgid: end.tgid,
                tid: end.tid,
            };
            self.open.entry(thread, end.sequence, end.start_ns, begun);
        }
    }

    /// Takes the end of a span; gives what was gathered of it, if it is one of those that are shown.
    pub fn span_end(&mut self, end: &SpanEnd) -> Option<Before> {
        let thread = ThreadId {
            tgid: end.tgid,
            tid: end.tid,
        };
        if self.layout.shown.contains_key(&end.probe) {
            return self.open.end(thread, end.sequence).map(Box::new);
        }
        if self.layout.behind.contains_key(&end.probe) {
            if end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0 {
                let call = Child {
                    probe: end.probe,
                    start_ns: end.start_ns,
                    duration_ns: Some(end.end_ns.saturating_sub(end.start_ns)),
                };
                self.open.call(thread, end.sequence, u64::from(end.parent), call);
            } else {
                self.open.end(thread, end.sequence);
            }
        }
        None
    }

    /// Takes a call that ended and counts, be it that this was found out only now.
    pub fn call(&mut self, end: &SpanEnd, mut before: Option<Before>, sampled_from: SampledFrom) {
        let Some(shown) = self.layout.shown.get(&end.probe) else {
            return;
        };
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        let bucket = bucket_of(duration_ns);
        // What ended before they were watched is on its way still.
        if end.flags & SpanEnd::ABANDONED != 0 || end.end_ns < self.watched.since_ns() {
            return;
        }
        if self.is_recorded || end.flags & SpanEnd::SLOW == 0 {
            self.watched.recorded_below(bucket);
        }
        if !self.band.contains(bucket) {
            return;
        }
        self.ended += 1.0;
        if end.gates & self.layout.gates != self.layout.gates {
            return;
        }
        self.reached += 1.0;
        if !self.is_recorded
            && self
                .setting_up(sampled_from)
                .may_have_delayed(end.start_ns, end.end_ns)
        {
            self.while_attaching += 1;
            return;
        }
        let rank = Rank {
            duration_ns,
            end_ns: end.end_ns,
            tid: end.tid,
            sequence: end.sequence,
        };
        let behind = &self.layout.behind;
        // Samples from before it was watched were not looked at.
        let watched = end.start_ns >= self.watched.since_ns();
        let sampled = watched && sampled_from.covers(end.start_ns);
        let mut has_times = sampled;
        if let Some(before) = &mut before
            && before.off_cpu.total_ns() > duration_ns
        {
            // One of both is wrong, and the duration at least is what all calls are ordered by.
            before.off_cpu = OffCpu::default();
            has_times = false;
            self.contradictory += 1;
        }
        let has_system_calls =
            sampled && matches!(self.system_calls, RecordedCalls::From(from_ns) if end.start_ns >= from_ns);
        self.slowest.take(rank, || {
            let before = *before.unwrap_or_default();
            let waits = before.off_cpu.count;
            let sampled_partly = sampled || before.samples > 0;
            Arc::new(SlowSpan {
                sampled: sampled_partly,
                times: has_times.then(|| times(duration_ns, &before.off_cpu)),
                waits,
                longest_wait: longest_wait(end, &before),
                // Of one that it was not recorded of from its beginning, what is missing would seem to be time on the CPU.
                off_cpu: if sampled {
                    periods(end, &before.off_cpu)
                } else {
                    SpanPeriods::default()
                },
                system_calls: has_system_calls.then(|| system_calls(&before.system_calls)),
                ..slow_span(end, shown, behind, &before)
            })
        });
    }

    /// Gives up what was gathered of spans of threads that have been gone for `after_ns`.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        self.open.expire(now_ns, after_ns, is_gone);
    }

    /// Sets what is asked of durations.
    pub fn set_band(&mut self, band: Band) {
        self.band = band;
    }

    /// Takes all calls so far, as they were read.
    pub fn read(&mut self, calls: &Histogram<u64>, now_ns: u64) {
        self.watched.read(now_ns, calls.iter());
    }

    /// Says from which duration on ends are recorded by now.
    pub fn set_limit(&mut self, from_ns: u64) {
        self.watched.set_limit(bucket_of(from_ns));
    }

    /// The duration from which on the ends of calls are to be recorded, by all calls of the window.
    pub fn threshold_ns(&mut self, calls: &Histogram<u64>, now_ns: u64) -> u64 {
        self.slowest.expire(now_ns);
        self.system_calls = match self.system_calls {
            RecordedCalls::Asked(0) => RecordedCalls::From(now_ns),
            RecordedCalls::Asked(left) => RecordedCalls::Asked(left - 1),
            known => known,
        };
        let share = (self.reached + 1.0) / (self.ended + 1.0);
        self.ended *= REMEMBERED;
        self.reached *= REMEMBERED;
        let wanted = self.wanted;
        let recorded = (wanted * RECORDED_PER_SHOWN) as f64 / share;
        let threshold_ns = record_from_ns(calls, self.band, recorded);
        self.threshold_ns =
            if self.slowest.top(now_ns).take(wanted).count() < wanted && threshold_ns < u64::MAX {
                // Calls that take nearly the same need not lie evenly in their bucket.
                lowest_ns(bucket_of(threshold_ns))
            } else {
                threshold_ns
            };
        self.threshold_ns
    }

    /// When the sampler was set up for those who watch.
    fn setting_up(&self, sampled_from: SampledFrom) -> SettingUp {
        let from_ns = self.watched.since_ns();
        let until_ns = sampled_from.since_ns().unwrap_or(u64::MAX);
        SettingUp {
            from_ns,
            until_ns: until_ns.min(from_ns.saturating_add(MAX_SETTING_UP_NS)),
        }
    }

    /// The slowest at one moment. `lost` is what the session has lost.
    pub fn picture(&self, moment: &Moment<'_>, sampled_from: SampledFrom, lost: Losses) -> SpansPicture {
        let LeftOut {
            open_full,
            open_expired,
            stacks_full,
        } = self.open.left_out();
        let mut lost = since(lost, &self.lost_before);
        if self.system_calls == RecordedCalls::No {
            // Those of other sessions.
            lost.retain(|reason, _| !SYSTEM_CALL_LOSSES.contains(reason));
        }
        for (reason, count) in [
            ("open_full", open_full),
            ("open_expired", open_expired),
            ("stacks_full", stacks_full),
            ("kept_full", self.slowest.left_out()),
            (WAITS_OVER_DURATION, self.contradictory),
            ("while_attaching", self.while_attaching),
            ("below_limit", self.below_limit(moment.now_ns)),
        ] {
            if count > 0 {
                lost.insert(reason, count);
            }
        }
        let spans = self.slowest.top(moment.now_ns).take(self.wanted);
        SpansPicture {
            spans: spans.map(|(_, span)| Arc::clone(span)).collect(),
            calls: self.watched.calls(moment.now_ns),
            watched_ns: self.watched.watched_ns(moment.now_ns),
            threshold_ns: self.threshold_ns,
            lost,
            ..SpansPicture::without(self.window_ns, sampled_from, moment)
        }
    }

    /// The duration from which on the end of each call was recorded.
    pub fn recorded_from_ns(&self, now_ns: u64) -> u64 {
        match self.watched.recorded_from(now_ns) {
            0 => 0,
            bucket if bucket >= BUCKETS => u64::MAX,
            bucket => lowest_ns(bucket),
        }
    }

    /// Calls that may be missing among the slowest, because their ends were not recorded: they are slower than one that
    /// is there, or there would be room for them.
    fn below_limit(&self, now_ns: u64) -> u64 {
        let last = self.slowest.top(now_ns).nth(self.wanted - 1);
        let from = last.map_or(0, |(rank, _)| bucket_of(rank.duration_ns) + 1);
        let Band { from: asked, to } = self.band;
        let missing: Range<usize> = from.max(asked)..to;
        self.watched.below_limit(now_ns, &missing)
    }
}

/// The time in which the sampler is set up, which may hold up the target's threads.
#[derive(Clone, Copy, Debug)]
struct SettingUp {
    from_ns: u64,
    until_ns: u64,
}

/// Setting up the sampler takes no longer, be it that the tables to walk stacks by come later.
const MAX_SETTING_UP_NS: u64 = 2_000_000_000;

impl SettingUp {
    /// Whether a call may have taken as long as it did because of that: at least half of its time is in it.
    fn may_have_delayed(self, start_ns: u64, end_ns: u64) -> bool {
        let within_ns = end_ns
            .min(self.until_ns)
            .saturating_sub(start_ns.max(self.from_ns));
        within_ns > 0 && within_ns >= end_ns.saturating_sub(start_ns).div_ceil(2)
    }
}

fn since(mut lost: Losses, before: &Losses) -> Losses {
    for (reason, count) in &mut lost {
        *count = count.saturating_sub(before.get(reason).copied().unwrap_or(0));
    }
    lost.retain(|_, count| *count > 0);
    lost
}

fn slow_span(
    end: &SpanEnd,
    shown: &Shown,
    behind: &HashMap<ProbeId, Arc<str>>,
    before: &Gathered<Begun>,
) -> SlowSpan {
    let (stack, stack_samples) = before.most_sampled().unwrap_or_default();
    let stack = stack.into();
    // Of a span whose end was lost, and that had the same number, nothing is told.
    let is_own = |since_ns: u64| since_ns >= end.start_ns;
    let values = match before.entry.as_ref().filter(|begun| is_own(begun.at_ns())) {
        Some(Begun::Hit { hit, followed }) => {
            let mut values = trace::read(&shown.printed, hit);
            trace::returned(&shown.printed, end, followed.as_deref(), &mut values);
            Some(values)
        }
        Some(Begun::Recorded { values, .. }) => Some(values.clone()),
        None => (!shown.has_values).then(Vec::new),
    };
    let mut children: Vec<SpanChild> = before
        .children
        .iter()
        .filter(|child| is_own(child.start_ns))
        .filter_map(|child| {
            Some(SpanChild {
                place: Arc::clone(behind.get(&child.probe)?),
                offset_ns: child.start_ns - end.start_ns,
                duration_ns: child.duration_ns,
            })
        })
        .collect();
    children.sort_by_key(|child| child.offset_ns);
    SlowSpan {
        start_ns: end.start_ns,
        pid: end.tgid,
        tid: end.tid,
        function: Arc::clone(&shown.function),
        duration_ns: end.end_ns.saturating_sub(end.start_ns),
        values,
        children,
        children_left_out: before.children_left_out,
        sampled: true,
        samples: before.samples,
        stack,
        stack_samples,
        times: None,
        waits: 0,
        longest_wait: None,
        off_cpu: SpanPeriods::default(),
        system_calls: None,
    }
}

/// The system calls of a call, what took the most time first.
fn system_calls(gathered: &SystemCalls) -> SpanSystemCalls {
    let call = |(kind, sum): (&SystemCallKind, &SystemCallSum)| {
        Some(SpanSystemCall {
            call: CallNumber::of_thread(kind.number)?,
            error: kind.error,
            count: sum.count,
            time_ns: sum.time_ns,
            longest_ns: sum.longest_ns,
        })
    };
    let mut calls: Vec<SpanSystemCall> = gathered.iter().filter_map(call).collect();
    calls.sort_by_key(|call| (Reverse(call.time_ns), call.call, call.error));
    SpanSystemCalls {
        calls,
        left_out: gathered.left_out(),
    }
}

/// System calls that were not recorded, by reason, since the programs were loaded.
pub fn system_call_losses(engine: &Engine, dropped: Dropped) -> Losses {
    let counts = [
        engine.counter(Counter::SyscallYielded),
        engine.counter(Counter::SyscallRingFull),
        engine.counter(Counter::SyscallOpenLimit),
        engine.missed_calls(),
        dropped.system_calls,
    ];
    SYSTEM_CALL_LOSSES.into_iter().zip(counts).collect()
}

/// Reasons by which the system calls of calls are lost.
const SYSTEM_CALL_LOSSES: [&str; 5] = [
    "syscall_yielded",
    "syscall_ring_full",
    "syscall_open_limit",
    "syscall_missed",
    "syscall_symbols_behind",
];

/// When the thread was off the CPU in a call, in the order of time.
fn periods(end: &SpanEnd, off_cpu: &OffCpu) -> SpanPeriods {
    let period = |period: &Period| {
        Some(SpanPeriod {
            activity: *Activity::ALL.get(period.activity)?,
            offset_ns: period.start_ns.saturating_sub(end.start_ns),
            time_ns: period.time_ns,
            system_call: period.system_call.and_then(CallNumber::of_thread),
        })
    };
    let mut periods: Vec<SpanPeriod> = off_cpu.periods.iter().filter_map(period).collect();
    periods.sort_by_key(|period| period.offset_ns);
    SpanPeriods {
        periods,
        left_out: off_cpu.left_out,
        left_out_ns: off_cpu.left_out_ns,
    }
}

/// What the thread did in a call: what it was not seen to do off the CPU, it did on it.
fn times(duration_ns: u64, off_cpu: &OffCpu) -> Times {
    let mut times = off_cpu.times_ns;
    times[Activity::OnCpu.number()] = duration_ns.saturating_sub(off_cpu.total_ns());
    times
}

fn longest_wait(end: &SpanEnd, before: &Gathered<Begun>) -> Option<SpanWait> {
    let longest = before.off_cpu.longest.as_ref()?;
    // Its innermost frame says what the thread did.
    let (_, stack) = longest.lines.split_last()?;
    Some(SpanWait {
        activity: *Activity::ALL.get(longest.activity)?,
        offset_ns: longest.start_ns.saturating_sub(end.start_ns),
        time_ns: longest.time_ns,
        stack: stack.into(),
        lock: longest.lock,
        ended_by: longest.ended_by.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_setting_up_the_sampler_may_have_delayed_are_those_mostly_within_that_time() {
        let setting_up = SettingUp {
            from_ns: 1_000,
            until_ns: 2_000,
        };
        for (start_ns, end_ns, is_meant) in [
            (1_000, 1_050, true),
            (1_900, 2_100, true),
            (1_900, 2_101, false),
            (900, 1_100, true),
            (900, 1_099, false),
            // They take long whoever looks.
            (1_000, 5_000_000, false),
            (0, 1_000_000, false),
            (2_000, 2_050, false),
            (500, 900, false),
            (1_500, 1_500, false),
        ] {
            let is_delayed = setting_up.may_have_delayed(start_ns, end_ns);
            assert_eq!(is_delayed, is_meant, "from {start_ns} to {end_ns}");
        }
        // What is sampled already is not held up.
        let over = SettingUp {
            from_ns: 1_000,
            until_ns: 500,
        };
        assert!(!over.may_have_delayed(400, 1_600));
    }
}
