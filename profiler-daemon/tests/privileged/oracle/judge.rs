//! Whether what the engine says of a scope follows from what bpftrace has written down.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use profiler_common::{probe::ProbeId, record::SpanEnd};
use profiler_daemon::{kernel::Activity, session::Recorded};

use super::{
    super::service::ended,
    Seen, SeenHits,
    asked::Asked,
    branches::Branches,
    trace::{AT_SWITCH_NS, Away, BEGIN_APART_NS, BUCKET_PERCENT, Call, END_LATER_NS, SWITCH_APART_NS, Truth},
};

/// How many of some events may be further apart in the two traces: a thread can lose its CPU between the engine's program and
/// bpftrace's.
fn may_be_preempted(events: usize) -> usize {
    2 + events / 50
}

/// What was compared, and what does not agree.
#[derive(Default)]
pub struct Verdict {
    pub calls: usize,
    /// Of branches.
    pub hits: usize,
    pub samples: usize,
    /// Times that threads were off the CPU in calls.
    pub away: usize,
    /// Samples and calls so near to an edge that neither answer is wrong.
    pub near: usize,
    /// Calls and samples that the engine says it has lost.
    pub lost: u64,
    pub wrong: Vec<String>,
}

impl Verdict {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }
}

/// Judges what was seen of one scope.
pub struct Judge<'a> {
    seen: &'a Seen,
    truth: &'a Truth,
    branches: &'a Branches,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    pub fn judge(seen: &'a Seen, truth: &'a Truth, branches: &'a Branches) -> Verdict {
        let mut judge = Self {
            seen,
            truth,
            branches,
            verdict: Verdict {
                lost: lost(seen),
                ..Verdict::default()
            },
        };
        // The engine says where it takes the end of calls for another than bpftrace.
        let is_cut = |warning: &String| warning.contains("end where it jumps to");
        let is_cut = seen.warnings.iter().any(is_cut);
        let asks_duration = matches!(seen.asked, Asked::Within { slower_than_ns, .. } if slower_than_ns > 0);
        if !is_cut || !asks_duration {
            judge.counts();
        }
        if !is_cut {
            if let Asked::All { function } = seen.asked {
                judge.ends(function);
            }
            judge.samples(Side::On);
            judge.samples(Side::Off);
            judge.away();
        }
        judge.verdict
    }

    /// The calls of a function that began while it was attached.
    fn begun(&self, function: usize) -> Vec<&'a Call> {
        let seen = self.seen;
        let calls = self.truth.calls_of(function);
        calls
            .filter(|call| (seen.begin_ns..seen.end_ns).contains(&call.begin_ns))
            .collect()
    }

    /// The calls of a function that are among some, by their numbers, and began while it was attached.
    fn around(&self, numbers: &'a [usize], outer: usize) -> impl Iterator<Item = &'a Call> {
        let begin_ns = self.seen.begin_ns;
        let around = self.truth.around(numbers, outer);
        around.filter(move |call| call.begin_ns >= begin_ns)
    }

    /// Those that ended as well.
    fn ended(&self, function: usize) -> Vec<&'a Call> {
        let mut calls = self.begun(function);
        calls.retain(|call| call.end_ns < self.seen.end_ns);
        calls
    }

    /// The calls of the last step.
    fn counts(&mut self) {
        let count: u64 = self.seen.latency.functions.iter().map(ended).sum();
        let expected = match self.seen.asked {
            Asked::All { function } | Asked::Slower { function, .. } | Asked::Percentile { function, .. } => {
                self.ended(function).len()..=self.begun(function).len()
            }
            Asked::Argument { function, is } => {
                let has = |calls: Vec<&Call>| calls.iter().filter(|call| call.argument == is).count();
                has(self.ended(function))..=has(self.begun(function))
            }
            Asked::Within {
                outer,
                slower_than_ns,
                inner,
            } => {
                let (mut surely, mut maybe) = (0, 0);
                for call in self.begun(inner) {
                    let around = self.around(&call.around, outer);
                    let ages: Vec<_> = around.map(|call| self.is_slow(call, slower_than_ns)).collect();
                    let has_ended = call.end_ns < self.seen.end_ns;
                    surely += usize::from(has_ended && ages.contains(&Some(true)));
                    maybe += usize::from(ages.iter().any(|slow| *slow != Some(false)));
                }
                if slower_than_ns > 0 {
                    surely.saturating_sub(may_be_preempted(surely))..=maybe
                } else {
                    surely..=maybe
                }
            }
            Asked::Behind {
                outer,
                reached,
                inner,
            } => {
                let reached = self.begun(reached);
                self.behind(outer, reached.iter().map(|call| (call.tid, call.begin_ns)), inner)
            }
            Asked::BehindBranch {
                outer,
                line,
                taken,
                inner,
            } => {
                let went = self.branches.went(self.truth, line, taken);
                self.behind(outer, went.iter().map(|at| (at.tid, at.ts_ns)), inner)
            }
            Asked::AtBranch { .. } => return,
        };
        // The engine may look a few instructions behind the first one, which a thread had yet to come to when it was stopped.
        let begin_ns = self.seen.begin_ns;
        let open = self.truth.calls_of(self.seen.asked.last());
        let open = open.filter(|call| call.begin_ns < begin_ns && begin_ns < call.end_ns);
        let expected = *expected.start()..=expected.end() + open.count();
        let count = usize::try_from(count).unwrap();
        self.verdict.calls += count;
        self.verdict.near += expected.end() - expected.start();
        let lost = usize::try_from(self.verdict.lost).unwrap();
        let at_least = expected.start().saturating_sub(lost);
        self.verdict
            .expect((at_least..=*expected.end()).contains(&count), || {
                format!("{count} calls were counted, {expected:?} were made")
            });
    }

    /// How many calls of a function began in calls of another behind one of these moments of their thread.
    fn behind(
        &self,
        outer: usize,
        moments: impl Iterator<Item = (u32, u64)>,
        inner: usize,
    ) -> RangeInclusive<usize> {
        let moments: BTreeSet<(u32, u64)> = moments.collect();
        let is_behind = |call: &&'a Call| {
            self.around(&call.around, outer).any(|around| {
                let between = (call.tid, around.begin_ns)..(call.tid, call.begin_ns);
                moments.range(between).next().is_some()
            })
        };
        self.ended(inner).into_iter().filter(is_behind).count()
            ..=self.begun(inner).into_iter().filter(is_behind).count()
    }

    /// The times that threads were off the CPU in calls of the first step: each that the scheduler told, how long it was, and which
    /// calls it lies in; and that no call was off the CPU for longer than it took.
    fn away(&mut self) {
        let function = match self.seen.asked {
            Asked::All { function } | Asked::Slower { function, .. } | Asked::Percentile { function, .. } => {
                function
            }
            Asked::Within { outer, .. } => outer,
            // Which calls are meant, the trace of the scheduler does not tell.
            Asked::Argument { .. }
            | Asked::Behind { .. }
            | Asked::AtBranch { .. }
            | Asked::BehindBranch { .. } => return,
        };
        let window = self.seen.begin_ns..self.seen.end_ns;
        let truth = self.truth;
        let mut made: BTreeMap<(u32, u64), &Away> = truth
            .away()
            .filter(|away| window.contains(&away.left_ns))
            .map(|away| ((away.tid, away.left_ns), away))
            .collect();
        let probes = self.first_probes();
        let (mut unknown, mut misplaced, mut far, mut near, mut all) = (0, 0, 0, 0, 0);
        let told = self.told_away();
        for ours in &told {
            let from =
                (ours.tid, ours.left_ns - SWITCH_APART_NS)..=(ours.tid, ours.left_ns + SWITCH_APART_NS);
            let nearest = made
                .range(from)
                .min_by_key(|((_, left_ns), _)| left_ns.abs_diff(ours.left_ns));
            let Some((key, theirs)) = nearest.map(|(key, away)| (*key, *away)) else {
                unknown += 1;
                continue;
            };
            made.remove(&key);
            let (our_ns, their_ns) = (ours.back_ns - ours.left_ns, theirs.back_ns - theirs.left_ns);
            let open: Vec<&Call> = self.around(&theirs.around, function).collect();
            let in_calls = ours.probes.iter().filter(|probe| probes.contains(probe)).count();
            // Those in no call are told as well.
            if in_calls == 0 && open.is_empty() {
                continue;
            }
            all += 1;
            far += usize::from(our_ns.abs_diff(their_ns) > SWITCH_APART_NS);
            let is_near = self.is_near_an_edge(function, theirs);
            near += usize::from(is_near);
            misplaced += usize::from(!is_near && in_calls != open.len());
        }
        let surely_in_a_call = |away: &&Away| {
            away.back_ns < window.end
                && !self.is_near_an_edge(function, away)
                && self.around(&away.around, function).next().is_some()
        };
        let unseen = made.into_values().filter(surely_in_a_call).count();
        let longer = self.longer_off_than_they_took();
        let lost = lost_off_cpu(self.seen);
        self.verdict.away += all;
        self.verdict.near += near;
        self.verdict.expect(longer.is_empty(), || {
            format!("calls were off the CPU for longer than they took: {longer:?}")
        });
        // Beside other work, threads lose their CPU between the two tools' probes at one place, again and again: only where this is run
        // by itself can it be told which calls such a time lies in.
        if !super::is_run_by_itself() {
            return;
        }
        let may_be = may_be_preempted(all);
        self.verdict.expect(unknown <= may_be, || {
            format!("{unknown} of {all} times off the CPU were told that were none")
        });
        self.verdict.expect(unseen as u64 <= lost + may_be as u64, || {
            format!("{unseen} times off the CPU were not told, beside {all}")
        });
        self.verdict.expect(misplaced <= may_be, || {
            format!("{misplaced} of {all} times off the CPU lie in other calls")
        });
        self.verdict.expect(far <= may_be, || {
            format!("{far} of {all} times off the CPU were of another length")
        });
    }

    /// The times off the CPU that the engine tells, each in one piece.
    fn told_away(&self) -> Vec<ToldAway> {
        let mut told: Vec<ToldAway> = Vec::new();
        let records = self.seen.records.iter().flat_map(|batch| batch.records.iter());
        for record in records {
            let Recorded::Sample(sample) = record else {
                continue;
            };
            if sample.activity == Activity::OnCpu {
                continue;
            }
            match told.last_mut() {
                Some(last) if sample.continues && last.tid == sample.tid => last.back_ns = sample.ts_ns,
                _ => told.push(ToldAway {
                    tid: sample.tid,
                    left_ns: sample.begin_ns(),
                    back_ns: sample.ts_ns,
                    probes: sample.spans.iter().map(|span| span.probe).collect(),
                }),
            }
        }
        told
    }

    /// Whether a call of a function begins just before a time off the CPU, or ends just behind it: a thread may lose its CPU where the
    /// call is open for one of both alone, such as between the engine's probe at the return and that behind it.
    fn is_near_an_edge(&self, function: usize, away: &Away) -> bool {
        let mut calls = self.truth.calls_of(function).filter(|call| call.tid == away.tid);
        calls.any(|call| call.contains(away.left_ns).is_none() || call.contains(away.back_ns).is_none())
    }

    /// Calls that the engine says were off the CPU for longer than they took: for how long, and how long they took.
    fn longer_off_than_they_took(&self) -> Vec<(u64, u64)> {
        let mut off_ns: HashMap<(u32, u64), u64> = HashMap::new();
        let mut longer = Vec::new();
        for record in self.seen.records.iter().flat_map(|batch| batch.records.iter()) {
            match record {
                Recorded::Sample(sample) if sample.activity != Activity::OnCpu => {
                    for span in &sample.spans {
                        *off_ns.entry((sample.tid, span.sequence)).or_default() += sample.weight_ns;
                    }
                }
                Recorded::SpanEnd(end) if end.flags & SpanEnd::ABANDONED == 0 => {
                    let off_ns = off_ns.remove(&(end.tid, end.sequence)).unwrap_or(0);
                    let duration_ns = end.end_ns - end.start_ns;
                    if off_ns > duration_ns {
                        longer.push((off_ns, duration_ns));
                    }
                }
                _ => {}
            }
        }
        longer
    }

    /// Whether a call is one that is slower; `None` where that cannot be told, be it that it has not ended.
    fn is_slow(&self, call: &Call, than_ns: u64) -> Option<bool> {
        if than_ns == 0 {
            return Some(true);
        }
        if call.end_ns >= self.seen.end_ns {
            // What is inside waits for its end. It may have ended for the engine, and not for bpftrace.
            return if call.end_ns < Call::OPEN_NS {
                None
            } else {
                Some(false)
            };
        }
        call.is_slow(than_ns)
    }

    /// Each call that was recorded, and its times.
    fn ends(&mut self, function: usize) {
        let truth = self.truth;
        let mut by_begin: BTreeMap<(u32, u64), &Call> = BTreeMap::new();
        for call in self.begun(function) {
            by_begin.insert((call.tid, truth.on_cpu_ns(call.tid, call.begin_ns)), call);
        }
        let made = by_begin.len();
        let records = self.seen.records.iter().flat_map(|batch| batch.records.iter());
        let ends = records.filter_map(|record| match record {
            Recorded::SpanEnd(end) if end.flags & SpanEnd::ABANDONED == 0 => Some(end),
            _ => None,
        });
        let (mut recorded, mut unknown, mut far, mut early) = (0, 0, 0, 0);
        let mut durations = Vec::new();
        for end in ends {
            recorded += 1;
            let duration_ns = end.end_ns - end.start_ns;
            durations.push(duration_ns);
            let begin_ns = truth.on_cpu_ns(end.tid, end.start_ns);
            let window_ns = begin_ns - END_LATER_NS..=begin_ns + END_LATER_NS;
            let nearest = by_begin
                .range((end.tid, *window_ns.start())..=(end.tid, *window_ns.end()))
                .min_by_key(|((_, theirs_ns), _)| theirs_ns.abs_diff(begin_ns));
            let Some((key, call)) = nearest.map(|(key, call)| (*key, *call)) else {
                unknown += 1;
                continue;
            };
            by_begin.remove(&key);
            let is_open = call.end_ns >= self.seen.end_ns;
            // Behind the first instruction more can come between: others at the breakpoint of that.
            let begins_there = self.seen.looks_behind || key.1.abs_diff(begin_ns) <= BEGIN_APART_NS;
            let on_cpu_ns = truth.on_cpu_ns(end.tid, end.end_ns) - begin_ns;
            let their_on_cpu_ns = truth.on_cpu_ns(end.tid, call.end_ns) - key.1;
            let is_longer = on_cpu_ns > their_on_cpu_ns + BEGIN_APART_NS;
            far += usize::from(!begins_there || !is_open && is_longer);
            // Where the thread was switched between the two ends, what the tools do at each switch is on the CPU too.
            let switched = truth.times_away(end.tid, end.end_ns..call.end_ns);
            let may_be_later_ns = END_LATER_NS + switched * AT_SWITCH_NS;
            let is_shorter = on_cpu_ns + may_be_later_ns < their_on_cpu_ns;
            early += usize::from(!is_open && is_shorter);
        }
        by_begin.retain(|_, call| call.end_ns < self.seen.end_ns);
        let lost = self.verdict.lost;
        let unseen = by_begin.len();
        self.verdict.expect(unknown <= may_be_preempted(made), || {
            format!("{unknown} of {recorded} calls were recorded that were not made")
        });
        self.verdict
            .expect(unseen.saturating_sub(unknown) as u64 <= lost, || {
                format!("{unseen} of {made} calls were made and not recorded")
            });
        self.verdict.expect(far <= may_be_preempted(recorded), || {
            format!("{far} of {recorded} calls have other times")
        });
        self.verdict.expect(early <= may_be_preempted(recorded), || {
            format!("{early} of {recorded} calls end earlier")
        });
        let [Some(times)] = self
            .seen
            .latency
            .functions
            .iter()
            .map(|function| function.summaries.since_start.times)
            .collect::<Vec<_>>()[..]
        else {
            return self
                .verdict
                .expect(recorded == 0, || "there are no percentiles".to_owned());
        };
        durations.sort_unstable();
        for (name, ours_ns, percent) in [
            ("p50", times.p50_ns, 50),
            ("p90", times.p90_ns, 90),
            ("p99", times.p99_ns, 99),
        ] {
            let exact_ns = durations[((durations.len() * percent).div_ceil(100)).max(1) - 1];
            let overhead_ns = self.seen.latency.functions[0].overhead_ns;
            let apart_ns = ours_ns.abs_diff(exact_ns);
            self.verdict.expect(
                lost > 0 || apart_ns <= exact_ns * BUCKET_PERCENT / 100 + overhead_ns + 1,
                || format!("{name} is {ours_ns} ns, of the recorded calls {exact_ns} ns"),
            );
        }
    }

    /// The samples of time on the CPU, or off it: which calls they lie in, and which side of the flame graph.
    fn samples(&mut self, side: Side) {
        let threshold_ns = self.seen.flame.picture.summary.threshold_ns;
        let (function, inner, than_ns) = match self.seen.asked {
            Asked::All { function } => (function, None, 1),
            Asked::Slower { function, than_ns } => (function, None, than_ns),
            Asked::Percentile { function, .. } => (function, None, threshold_ns.unwrap_or(u64::MAX / 4)),
            Asked::Within {
                outer,
                slower_than_ns,
                inner,
            } => (outer, Some(inner), slower_than_ns),
            // Samples do not tell the argument, nor what was reached.
            Asked::Argument { .. }
            | Asked::Behind { .. }
            | Asked::AtBranch { .. }
            | Asked::BehindBranch { .. } => return,
        };
        let outer = ByThread::of(self.begun(function));
        let inner = inner.map(|inner| ByThread::of(self.begun(inner)));
        let probes = self.first_probes();
        let samples = self.told(side);
        let (mut surely_ns, mut maybe_ns, mut total_ns, mut longest_ns) = (0, 0, 0, 0);
        let (looked_at, mut misplaced) = (samples.len(), 0);
        for sample in &samples {
            let open = outer.open(sample);
            let is_near = open.iter().any(|call| call.contains(sample.ts_ns).is_none());
            let ours = sample
                .probes
                .iter()
                .filter(|probe| probes.contains(probe))
                .count();
            misplaced += usize::from(!is_near && ours != open.len());
            // In recursion the outermost call counts.
            let is_slow = open
                .first()
                .map_or(Some(false), |call| self.is_slow(call, than_ns));
            let is_within = inner.as_ref().map_or(Some(true), |inner| inner.is_within(sample));
            let is_inside = match (is_slow, is_within) {
                (_, Some(false)) => Some(false),
                (Some(false), _) if !is_near => Some(false),
                (Some(true), Some(true)) if !is_near => Some(true),
                _ => None,
            };
            self.verdict.near += usize::from(is_inside.is_none());
            total_ns += sample.weight_ns;
            longest_ns = longest_ns.max(sample.weight_ns);
            surely_ns += sample.weight_ns * u64::from(is_inside == Some(true));
            maybe_ns += sample.weight_ns * u64::from(is_inside != Some(false));
        }
        let (flame, what) = match side {
            Side::On => (&self.seen.flame, "samples"),
            Side::Off => (&self.seen.off_cpu, "times off the CPU"),
        };
        if side == Side::On {
            self.verdict.samples += looked_at;
        }
        let may_be = may_be_preempted(looked_at);
        self.verdict.expect(misplaced <= may_be, || {
            format!("{misplaced} of {looked_at} {what} lie in other calls")
        });
        let inside_ns: u64 = flame.picture.weights.iter().map(|weight| weight.inside_ns).sum();
        let summary = &flame.picture.summary;
        // Samples of calls that had not ended, and those that may lie in others.
        let others = summary.open + may_be as u64;
        let other_ns = match side {
            Side::On => others * total_ns / summary.samples.max(1),
            // They are of any length.
            Side::Off => others * longest_ns,
        };
        let expected = surely_ns.saturating_sub(other_ns)..=maybe_ns + other_ns;
        let is_lossy = self.verdict.lost > 0 || side == Side::Off && lost_off_cpu(self.seen) > 0;
        self.verdict
            .expect(is_lossy || expected.contains(&inside_ns), || {
                format!("{inside_ns} of {total_ns} ns of {what} were inside, {expected:?} by the trace")
            });
    }

    /// The samples that the engine told of.
    fn told(&self, side: Side) -> Vec<Told> {
        let records = self.seen.records.iter().flat_map(|batch| batch.records.iter());
        let told = records.filter_map(|record| match record {
            Recorded::Sample(sample) => Some(sample),
            _ => None,
        });
        let told = told.filter(|sample| (sample.activity == Activity::OnCpu) == (side == Side::On));
        told.map(|sample| Told {
            tid: sample.tid,
            ts_ns: match side {
                Side::On => sample.ts_ns,
                // As far as can be from the begin and the end of calls.
                Side::Off => sample.ts_ns - sample.weight_ns / 2,
            },
            weight_ns: sample.weight_ns,
            probes: sample.spans.iter().map(|span| span.probe).collect(),
        })
        .collect()
    }

    /// The probes of the first step.
    fn first_probes(&self) -> BTreeSet<ProbeId> {
        let scopes = self.seen.records.iter().map(|batch| &batch.scope);
        let steps = scopes.filter_map(|scope| scope.steps.first());
        let functions = steps.flat_map(|step| &step.functions);
        functions.flat_map(|function| &function.probes).copied().collect()
    }
}

/// Which time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// On the CPU.
    On,
    /// Off it.
    Off,
}

/// A sample as the engine tells it.
struct Told {
    tid: u32,
    /// A moment in it.
    ts_ns: u64,
    weight_ns: u64,
    /// Of the calls that were open.
    probes: Vec<ProbeId>,
}

/// A time off the CPU as the engine tells it.
struct ToldAway {
    tid: u32,
    left_ns: u64,
    back_ns: u64,
    /// Of the calls that were open.
    probes: Vec<ProbeId>,
}

/// Calls of a function by their thread.
struct ByThread<'a>(HashMap<u32, Vec<&'a Call>>);

impl<'a> ByThread<'a> {
    fn of(calls: Vec<&'a Call>) -> Self {
        let mut threads: HashMap<u32, Vec<&Call>> = HashMap::new();
        for call in calls {
            threads.entry(call.tid).or_default().push(call);
        }
        Self(threads)
    }

    /// Those that were open, or may have been, when a sample was taken; outermost first.
    fn open(&self, sample: &Told) -> Vec<&'a Call> {
        let calls = self.0.get(&sample.tid).into_iter().flatten();
        let open = calls.filter(|call| call.contains(sample.ts_ns) != Some(false));
        open.copied().collect()
    }

    /// Whether any was.
    fn is_within(&self, sample: &Told) -> Option<bool> {
        let open = self.open(sample);
        if open.is_empty() {
            return Some(false);
        }
        open.iter().find_map(|call| call.contains(sample.ts_ns))
    }
}

/// Judges each hit of a branch that went one way in calls of a function.
pub fn of_hits(seen: &SeenHits, truth: &Truth, branches: &Branches) -> Verdict {
    let mut verdict = Verdict::default();
    let asked = &branches.lines[seen.line];
    let expected: BTreeSet<u64> = asked.jumps.iter().map(|jump| jump.address).collect();
    let addresses = &seen.addresses;
    verdict.expect(*addresses == expected, || {
        format!("the jumps are at {addresses:x?}, by objdump at {expected:x?}")
    });
    let is_in_a_call = |around: &[usize]| {
        let mut calls = truth.around(around, seen.outer);
        calls.any(|call| call.begin_ns >= seen.begin_ns)
    };
    let mut made: BTreeSet<(u32, u64)> = branches
        .went(truth, seen.line, seen.taken)
        .into_iter()
        .filter(|at| (seen.begin_ns..seen.end_ns).contains(&at.ts_ns) && is_in_a_call(&at.around))
        .map(|at| (at.tid, at.ts_ns))
        .collect();
    let all = made.len();
    let mut unknown = 0;
    for hit in &seen.hits {
        let near = (hit.tid, hit.ts_ns - BEGIN_APART_NS)..=(hit.tid, hit.ts_ns + BEGIN_APART_NS);
        let nearest = made
            .range(near)
            .min_by_key(|(_, ts_ns)| ts_ns.abs_diff(hit.ts_ns));
        match nearest.copied() {
            Some(nearest) => {
                made.remove(&nearest);
            }
            None => unknown += 1,
        }
    }
    let lost: u64 = seen.last.lost.values().sum();
    let (unseen, recorded, reached) = (made.len(), seen.hits.len(), seen.last.reached);
    verdict.hits = recorded;
    verdict.lost = lost;
    verdict.expect(unknown <= may_be_preempted(all), || {
        format!("{unknown} of {recorded} hits were recorded that were not made")
    });
    verdict.expect(unseen.saturating_sub(unknown) as u64 <= lost, || {
        format!("{unseen} of {all} hits were made and not recorded")
    });
    verdict.expect(recorded as u64 + lost == reached, || {
        format!("{recorded} of {reached} hits were recorded, and {lost} lost")
    });
    verdict
}

/// What the engine says it has lost of calls and records.
fn lost(seen: &Seen) -> u64 {
    let of_functions = seen.latency.functions.iter().flat_map(|function| &function.lost);
    let of_calls: u64 = of_functions
        .filter(|(reason, _)| **reason != "open_at_attach")
        .map(|(_, count)| count)
        .sum();
    let abandoned: u64 = seen
        .latency
        .functions
        .iter()
        .map(|function| function.abandoned)
        .sum();
    let dropped = seen.records.last().map_or(0, |batch| {
        batch.dropped + batch.spans.counters().iter().map(|(_, count)| count).sum::<u64>()
    });
    let of_samples: u64 = seen
        .flame
        .lost
        .iter()
        .filter(|(reason, _)| !reason.starts_with("off_cpu_"))
        .map(|(_, count)| count)
        .sum();
    of_calls + abandoned + dropped + of_samples
}

/// What the engine says it has lost of times off the CPU.
fn lost_off_cpu(seen: &Seen) -> u64 {
    let is_of_time = |reason: &str| reason.starts_with("off_cpu_") && !reason.starts_with("off_cpu_stack_");
    let lost = seen.off_cpu.lost.iter().filter(|(reason, _)| is_of_time(reason));
    lost.map(|(_, count)| count).sum()
}
