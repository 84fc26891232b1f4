//! What slow calls of a part of a recording do that others do not, by what was recorded of them.
//!
//! All calls were counted. One whose end was not recorded was in no sample and never left the CPU, which is as much as is known of
//! a recorded one without: it is compared as such, so that those which were recorded do not stand for all.

use std::collections::{HashMap, HashSet};

use profiler_aggregate::{
    ThreadId,
    explain::{Call, Kind, Round},
    histogram::Histogram,
    threshold::divide,
    waits::{Place as WaitingAt, Wait, Waker},
};
use profiler_common::{
    layout::{bucket_of, lowest_ns, width_ns},
    limits::MAX_JOINED,
    probe::ProbeId,
    record::SpanEnd,
};
use profiler_plan::values::{Reading, Value};
use profiler_scope::Scope;
use profiler_symbolize::{FrameId, FrameTable, Frames, Grouping, Word, demangle};

use super::{
    super::{
        division::{self, CountedStep as _},
        ending::Ending,
        error::{Reason, SessionError},
        explain::{
            Constants, Feature, InWords, Judged, LostSamples, LostWaits, NotLookedAt, Noted, OpenCall, What,
            number,
        },
        picture::{Cost, ExplainPicture, FlameTimes, Losses},
        readings::Readings as _,
        records::{
            HitReading, Recorded, RecordedLook, RecordedSample, RecordedScope, RecordedWait, WAITS_DROPPED,
        },
        sampling::Sampling,
        span_losses::{OwnLosses, SpanLosses},
        spans::{WAITS_OVER_DURATION, inside_left_out, values_left_out},
        symbols::{NamedWait, waiting},
        watchers::{self, Pictures},
    },
    asked::{self, AskedStep},
    begun::{self, nothing},
    counts::RecordedCounts,
    part::{LATE_NS, Part},
    taken::{Taken, Told},
    unreadable,
};
use crate::{
    kernel::{Activity, HitCounts},
    recording::{self, Also, Batch, Recording, Wanted},
};

/// Calls whose own calls are kept until they end; then all are forgotten, counted.
const MAX_OPEN: usize = 16_384;

/// Calls that are counted: sums of these have room.
const MAX_CALLS: u64 = 1 << 60;

/// Calls that are known by their number alone change little where they are at most this part of all.
const FEW_OF_ALL: u64 = 100;

/// Calls of the smaller side for each interval off the CPU that was lost, from which on waits are compared all the same: by so much less
/// is certain.
const CALLS_FOR_A_LOST_WAIT: u64 = 20;

/// Said of waits of which few were lost.
const FEW_LOST: &str = "lost in that time: so many calls may have waited without being counted for it";

/// Said of what is left out as it was recorded in part.
const LOST_IN_PART: &str = "some of it was lost in that time, as `lost` says: a shorter --time may have all";

/// Names of an enumeration's values that are known.
const MAX_NAMES: usize = 256;

/// What slow calls of a part do that others do not.
///
/// # Errors
/// Where the scope does not say which calls are slow, was not recorded, or it cannot be read.
pub fn explain(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Pictures<ExplainPicture>, SessionError> {
    let begun = begun::begin(recording, asked, part)?;
    let begin_ns = recording.begin_ns();
    let mut playing = Playing {
        asked,
        taken: Taken::new(part, begun.begin_ns),
        explained: None,
    };
    let mut frames = Frames::default();
    let wanted = Wanted {
        from_ns: part.begin_ns,
        by: None,
        also: Some(Also::InCalls),
        answers: None,
    };
    recording
        .read(wanted, &mut frames, |read, frames| {
            is_awaited() && playing.take(read, frames.table())
        })
        .map_err(|error| unreadable(&error))?;
    playing.picture(begin_ns, frames.table())
}

/// A way through the recording.
struct Playing<'a> {
    asked: Option<&'a Scope>,
    taken: Taken,
    explained: Option<Explaining>,
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part, frames: &FrameTable) -> bool {
        match read {
            recording::Part::Summary(_) => true,
            recording::Part::Missing { from_ns, to_ns } => {
                let missing_until_ns = self.taken.pass_over(from_ns, to_ns);
                if let (Some(explained), Some(to_ns)) = (&mut self.explained, missing_until_ns) {
                    explained.pass_over(to_ns);
                }
                true
            }
            recording::Part::Batch(mut batch) => {
                if let Some((scope, _)) = batch.scope.take()
                    && let Err(error) = self.tell(scope, batch.from_ns)
                {
                    self.taken.failed = Some(error);
                    return false;
                }
                self.taken.edited_ns.is_none() && self.take_batch(*batch, frames)
            }
        }
    }

    /// Takes the scope that is told.
    fn tell(&mut self, scope: RecordedScope, from_ns: u64) -> Result<(), SessionError> {
        if self.taken.tell(scope, from_ns, usize::MAX) == Told::New
            && let Some(recorded) = &self.taken.recorded
        {
            self.explained = Some(Explaining::new(recorded, self.asked, self.taken.part)?);
        }
        Ok(())
    }

    fn take_batch(&mut self, batch: Batch, frames: &FrameTable) -> bool {
        let Some(explained) = &mut self.explained else {
            return true;
        };
        let is_late = batch.to_ns > self.taken.part.end_ns;
        if is_late && batch.from_ns > self.taken.now_ns.saturating_add(LATE_NS) {
            return false;
        }
        if is_late {
            explained.part.end_ns = explained.part.end_ns.min(self.taken.now_ns);
        } else if batch.from_ns >= self.taken.part.begin_ns {
            self.taken.count(&batch);
            for hits in &batch.hit_counts {
                let (probes, line) = (&explained.probes, &explained.line);
                let is_known = |probe| probes.contains(&probe) || line.contains(&probe);
                explained.hits.add_hits(hits, is_known);
            }
            for calls in batch
                .calls
                .iter()
                .filter(|calls| explained.probes.contains(&calls.probe))
            {
                for (bucket, count) in &calls.ended {
                    let room = MAX_CALLS.saturating_sub(explained.calls.total());
                    explained.calls.add_bucket(*bucket, (*count).min(room));
                }
            }
        }
        explained.take(batch, frames);
        true
    }

    fn picture(self, begin_ns: u64, frames: &FrameTable) -> Result<Pictures<ExplainPicture>, SessionError> {
        if let Some(error) = self.taken.failed {
            return Err(error);
        }
        let mut explained = self.explained.ok_or_else(nothing)?;
        let taken = &self.taken;
        let counted = |name: &str| taken.counted(name);
        let sampling = Sampling::of_counters(counted);
        let mut lost = sampling.losses(FlameTimes::Both);
        let spans = SpanLosses::of_counters(counted);
        lost.extend(spans.of_records());
        lost.extend(spans.unseen(&explained.scope));
        lost.extend(OwnLosses::of_counters(counted).by_reason());
        lost.extend(taken.dropped());
        lost.extend(explained.hit_losses());
        let loses_ends = taken.lost > 0 || spans.of_records().any(|(_, count)| count > 0);
        explained.complete(&Gaps {
            ends: loses_ends || sampling.loses_ends(),
            waits: counted(WAITS_DROPPED).saturating_add(sampling.lost_waits()),
            hole: taken.missing_ns > 0,
        });
        lost.extend(explained.unknown().filter(|(_, count)| *count > 0));
        let picture = explained.picture(frames, lost, taken.cost, taken.ending(begin_ns));
        Ok(watchers::single(picture))
    }
}

/// What was recorded of the calls.
struct Explaining {
    /// Of which calls.
    scope: Scope,
    step: AskedStep,
    probes: Vec<ProbeId>,
    /// Calls inside: they were recorded one by one.
    inside: HashSet<ProbeId>,
    /// The hits inside that were recorded, all of one line or branch, which may have many addresses.
    line: HashSet<ProbeId>,
    /// How many of the features are values.
    values: usize,
    round: u32,
    /// What calls that have not ended did.
    open: HashMap<OpenCall, Inside>,
    forgotten: u64,
    /// Calls with more inside than is recorded, and those of which records were lost.
    beyond_limit: u64,
    lost_inside: u64,
    /// Hits were left out until this time.
    hits_left_out_until_ns: u64,
    /// What was counted of the places of hits.
    hits: RecordedCounts,
    waits_are_told: bool,
    noted: Noted,
    /// All calls of the part, and those that are noted.
    calls: Histogram<u64>,
    recorded: Histogram<u64>,
    left_out: Vec<NotLookedAt>,
    /// What is inside of the calls, and how many features were left out in the end.
    inside_feature: Option<usize>,
    forgotten_features: usize,
    /// The share of a side's calls that may have waited without its being known: few waits were lost.
    lost_waits_share: f64,
    part: Part,
}

/// What is not in the part, though it happened.
struct Gaps {
    /// Ends of calls.
    ends: bool,
    /// Intervals off the CPU, of whatever threads.
    waits: u64,
    /// All of some time.
    hole: bool,
}

/// What was seen in a call that has not ended: sums, as a recording that somebody made up may have any number of it.
#[derive(Clone, Copy, Default)]
struct Inside {
    /// Calls that ended in it, and how long they took.
    calls: u64,
    ns: u64,
    /// One of them was abandoned: how long they took is not known.
    is_unknown: bool,
    hits: u64,
}

impl Inside {
    /// Adds a call; one without a duration was abandoned.
    fn add(&mut self, duration_ns: Option<u64>) {
        self.calls += 1;
        self.ns = self.ns.saturating_add(duration_ns.unwrap_or(0));
        self.is_unknown |= duration_ns.is_none();
    }
}

impl Explaining {
    fn new(recorded: &RecordedScope, asked: Option<&Scope>, part: Part) -> Result<Self, SessionError> {
        let mut steps = asked::steps(recorded, asked, recorded.ages, part.begin_ns)?;
        let scope = Scope {
            steps: steps.iter().map(AskedStep::text).collect(),
        };
        let number = steps.len().saturating_sub(1);
        let step = steps.pop().ok_or_else(not_explained)?;
        let is_asked = step.step().place.has_spans() && !step.step().predicates.is_empty();
        if !is_asked || steps.iter().any(|step| !step.step().predicates.is_empty()) {
            return Err(not_explained());
        }
        let mut explaining = Self {
            probes: step.functions.probes().collect(),
            step,
            scope,
            inside: HashSet::new(),
            line: HashSet::new(),
            values: 0,
            round: 0,
            open: HashMap::new(),
            forgotten: 0,
            beyond_limit: 0,
            lost_inside: 0,
            hits_left_out_until_ns: 0,
            hits: RecordedCounts::default(),
            waits_are_told: false,
            noted: Noted::default(),
            calls: Histogram::new(),
            recorded: Histogram::new(),
            left_out: Vec::new(),
            inside_feature: None,
            forgotten_features: 0,
            lost_waits_share: 0.0,
            part,
        };
        explaining.noted.waits.note_recorded(Some(part.begin_ns));
        explaining.choose(recorded, number)?;
        Ok(explaining)
    }

    /// Chooses what is looked at, of what was recorded.
    fn choose(&mut self, recorded: &RecordedScope, number: usize) -> Result<(), SessionError> {
        let known = asked::known(recorded)?;
        let mut round = Round::default();
        for place in recorded
            .places
            .iter()
            .filter(|place| self.probes.contains(&place.probe))
        {
            if self.values > 0 {
                break;
            }
            for told in &place.expressions {
                let expression =
                    profiler_scope::expression::parse(&told.expression).map_err(|_| damaged())?;
                round.amounts.push(self.noted.features.len());
                self.noted.features.push(Feature {
                    what: What::Value(expression, Constants::Numbers),
                    kind: Kind::Amount,
                });
            }
            self.values = place.expressions.len();
        }
        // Calls and hits inside wait for this step's calls only where it was asked for their ends.
        let behind = known.get(number).filter(|known| known.asks_for_end());
        let behind = behind.and_then(|_| Some((known.get(number + 1)?, recorded.steps.get(number + 1)?)));
        // Where values were asked for, others are not known, and a place's name does not tell that.
        if let Some((step, told)) = behind.filter(|(step, _)| step.conditions.is_empty()) {
            let feature = self.noted.features.len();
            let kind = if step.place.has_spans() {
                let functions = told.functions.iter();
                self.inside = functions.flat_map(|function| &function.probes).copied().collect();
                round.amounts.extend((!self.inside.is_empty()).then_some(feature));
                Kind::Time
            } else {
                // The hits that were recorded are those of the last step.
                let is_last = recorded.steps.len() == number + 2;
                let lines = recorded.places.iter().filter(|place| is_last && !place.is_call);
                self.line = lines.map(|place| place.probe).collect();
                round.flags.extend((!self.line.is_empty()).then_some(feature));
                Kind::Flag
            };
            if self.looks_inside() {
                self.inside_feature = Some(feature);
                let what = What::Place(step.place.clone());
                self.noted.features.push(Feature { what, kind });
            }
        }
        self.round = self.noted.study.begin(round);
        let mut leave_out = |what: &str, how: String| {
            self.left_out.push(NotLookedAt {
                what: what.to_owned(),
                reason: format!("not recorded: {how}"),
            });
        };
        if self.values == 0 {
            leave_out("values", "record with --print".to_owned());
        }
        let place = &self.step.step().place;
        let of_calls = "calls inside";
        let of_lines = "branches and lines";
        if self.inside.is_empty() {
            leave_out(of_calls, format!("record '{place}/CALL' with --calls"));
        } else {
            leave_out(
                "other calls inside",
                format!("record '{place}/CALL' with --calls for each"),
            );
        }
        if self.line.is_empty() {
            leave_out(
                of_lines,
                format!("record '{place}[>= 0ns]/FILE:LINE!taken' with --trace"),
            );
        }
        Ok(())
    }

    /// Whether what is inside of the calls was recorded.
    fn looks_inside(&self) -> bool {
        !self.inside.is_empty() || !self.line.is_empty()
    }

    /// Takes what came in a short time.
    fn take(&mut self, mut batch: Batch, frames: &FrameTable) {
        self.waits_are_told |= batch.off_cpu.is_some();
        let mut hits = batch.hit_counts.iter();
        let is_left_out = |hits: &HitReading| {
            let counts = hits.counts;
            let left_out = [
                counts.limited,
                counts.no_state,
                counts.ring_full,
                counts.disturbed,
            ];
            self.line.contains(&hits.probe) && left_out.iter().any(|count| *count > 0)
        };
        let is_of_part = batch.from_ns < self.part.end_ns;
        if is_of_part && (hits.any(is_left_out) || batch.dropped > 0) {
            self.hits_left_out_until_ns = batch.to_ns;
        }
        // Those from before the part are of calls of which not all is known.
        let waits = std::mem::take(&mut batch.waits).into_iter();
        for RecordedWait { wait, spans } in waits.filter(|_| batch.from_ns >= self.part.begin_ns) {
            let named = NamedWait::of(wait, spans, frames);
            let probes = &self.probes;
            self.noted.take_wait(&named, |probe| probes.contains(&probe));
        }
        let mut records = batch.records.into_iter().peekable();
        while let Some(record) = records.next() {
            match record {
                Recorded::Sample(sample) => self.sample(&sample, frames),
                Recorded::Reached(hit, _) if self.line.contains(&hit.probe) => {
                    if hit.joined
                        && let Some(inside) = self.inside_of(hit.tid, hit.parent)
                    {
                        inside.hits += 1;
                    }
                }
                Recorded::SpanEnd(end) => {
                    let look = match records.peek() {
                        Some(Recorded::Call(of, look))
                            if (of.tid, of.probe, of.sequence) == (end.tid, end.probe, end.sequence) =>
                        {
                            Some(look)
                        }
                        _ => None,
                    };
                    self.span_end(&end, look);
                }
                Recorded::Reached(..) | Recorded::Call(..) | Recorded::Wait(_) | Recorded::AtEvent(_) => {}
            }
        }
    }

    fn inside_of(&mut self, tid: u32, parent: u64) -> Option<&mut Inside> {
        if self.open.len() >= MAX_OPEN {
            self.forgotten += self.open.len() as u64;
            // The calls that they were in are told by their number of records.
            self.open.clear();
        }
        let number = u32::try_from(parent).ok()?;
        Some(self.open.entry(OpenCall { tid, number }).or_default())
    }

    fn sample(&mut self, sample: &RecordedSample, frames: &FrameTable) {
        let probes = &self.probes;
        let mut calls = sample
            .spans
            .iter()
            .filter(|span| probes.contains(&span.probe))
            .peekable();
        let Some(stack) = sample.stacks.of(Grouping::Function) else {
            return;
        };
        if calls.peek().is_none() {
            return;
        }
        if sample.activity == Activity::OnCpu {
            let stack = (stack, sample.complete);
            self.noted.samples.take(sample.tid, sample.ts_ns, calls, stack);
        } else if !self.waits_are_told {
            drop(calls);
            let named = wait_of(sample, stack, frames);
            self.noted.take_wait(&named, |probe| probes.contains(&probe));
        }
    }

    fn span_end(&mut self, end: &SpanEnd, look: Option<&RecordedLook>) {
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        if self.inside.contains(&end.probe) {
            if end.flags & SpanEnd::JOINED != 0
                && let Some(inside) = self.inside_of(end.tid, u64::from(end.parent))
            {
                let is_known = end.flags & SpanEnd::ABANDONED == 0;
                inside.add(is_known.then_some(duration_ns));
            }
            return;
        }
        if !self.probes.contains(&end.probe) {
            return;
        }
        let call = OpenCall::ending(end);
        let inside = self.open.remove(&call).unwrap_or_default();
        let waits = self.noted.waits.of_call(call, [end.start_ns, end.end_ns]);
        let samples = self.noted.samples.of_call(call, end.start_ns);
        let is_of_part = (self.part.begin_ns..=self.part.end_ns).contains(&end.end_ns);
        if !is_of_part || end.flags & (SpanEnd::REFUSED | SpanEnd::ABANDONED) != 0 {
            return;
        }
        self.recorded.add_bucket(bucket_of(duration_ns), 1);
        let mut amounts = self.read(look);
        let is_beyond = end.inside() >= MAX_JOINED;
        let (recorded, seen) = (u64::from(end.inside()), inside.calls + inside.hits);
        let is_in_full = end.start_ns >= self.part.begin_ns;
        let is_whole = is_in_full && !is_beyond && recorded == seen;
        if self.looks_inside() {
            self.beyond_limit += u64::from(is_beyond);
            self.lost_inside += u64::from(is_in_full && !is_beyond && recorded > seen);
        }
        if !self.inside.is_empty() {
            let is_known = is_whole && !inside.is_unknown;
            amounts.push(if is_known { inside.ns as f64 } else { f64::NAN });
        }
        // Of those that did not reach it is known as much as of those that did, so that these do not stand for all.
        let is_known = is_whole || is_in_full && is_beyond && inside.hits > 0;
        let is_known = is_known && end.start_ns > self.hits_left_out_until_ns;
        self.noted.study.add(Call {
            duration_ns,
            round: self.round,
            happened: u32::from(inside.hits > 0),
            known: u32::from(!self.line.is_empty() && is_known),
            amounts: amounts.into(),
            waits,
            many: None,
            samples,
        });
    }

    /// The values of a call; not numbers where none were read.
    fn read(&mut self, look: Option<&RecordedLook>) -> Vec<f64> {
        let mut amounts: Vec<f64> = Vec::with_capacity(self.values + 1);
        for (reading, feature) in look
            .iter()
            .flat_map(|look| &look.values)
            .zip(&mut self.noted.features)
        {
            amounts.push(number(reading));
            if let What::Value(_, constants) = &mut feature.what
                && note_constants(reading, constants)
            {
                feature.kind = Kind::Choice;
            }
        }
        amounts.resize(self.values, f64::NAN);
        amounts
    }

    /// Takes it that nothing is known until a time of what calls did.
    fn pass_over(&mut self, to_ns: u64) {
        self.noted.waits.note_recorded(Some(to_ns));
        self.hits_left_out_until_ns = self.hits_left_out_until_ns.max(to_ns);
    }

    /// Adds the calls whose ends were not recorded: no sample was taken in them, they did not leave the CPU, and nothing was inside of
    /// them. What was lost in part is left out for all calls: those of which it is known would stand for the others.
    fn complete(&mut self, gaps: &Gaps) {
        let mut alone = 0_u64;
        for (bucket, count) in self.calls.iter() {
            let missing = count.saturating_sub(self.recorded.count(bucket));
            alone = alone.saturating_add(missing);
            let mut amounts = vec![f64::NAN; self.values];
            amounts.extend((!self.inside.is_empty()).then_some(0.0));
            let call = Call {
                duration_ns: lowest_ns(bucket) + width_ns(bucket) / 2,
                round: self.round,
                happened: 0,
                known: u32::from(!self.line.is_empty()),
                amounts: amounts.into(),
                waits: Some(Box::default()),
                many: None,
                samples: Box::default(),
            };
            self.noted.study.add_alike(&call, missing);
        }
        let are_many = alone > self.calls.total() / FEW_OF_ALL;
        // Each may have been in one of the slow calls, or of the others.
        let smaller_side = self.calls_of_smaller_side();
        let are_few_waits = gaps.waits.saturating_mul(CALLS_FOR_A_LOST_WAIT) <= smaller_side;
        if !gaps.ends && are_few_waits && !(gaps.hole && are_many) {
            if gaps.waits > 0 {
                let what = format!("{} of all waits", gaps.waits);
                self.leave_out(what, FEW_LOST);
                self.lost_waits_share = gaps.waits as f64 / smaller_side as f64;
            }
        } else {
            self.noted.study.forget_waits();
            let is_wait = |feature: &&Feature| feature.kind == Kind::Wait;
            self.forgotten_features += self.noted.features.iter().filter(is_wait).count();
            self.leave_out("waits".to_owned(), LOST_IN_PART);
        }
        let is_left_out = gaps.ends || gaps.hole || self.hits_left_out_until_ns > self.part.begin_ns;
        if let Some(feature) = self.inside_feature.filter(|_| are_many && is_left_out) {
            self.noted.study.forget(feature);
            self.forgotten_features += 1;
            let what = self.noted.features.get(feature).map(|feature| &feature.what);
            if let Some(What::Place(place)) = what {
                self.leave_out(place.to_string(), LOST_IN_PART);
            }
        }
    }

    fn leave_out(&mut self, what: String, reason: &str) {
        self.left_out.push(NotLookedAt {
            what,
            reason: reason.to_owned(),
        });
    }

    /// The number of slow calls, or of the others, whichever are fewer.
    fn calls_of_smaller_side(&self) -> u64 {
        let predicates = division::predicates(self.step.step());
        let inside = divide(&predicates, &self.calls, 1.0, 0).inside();
        let slow = self.calls.iter().filter(|(bucket, _)| inside.contains(*bucket));
        let slow = slow.fold(0, |sum: u64, (_, count)| sum.saturating_add(count));
        slow.min(self.calls.total().saturating_sub(slow))
    }

    /// Hits that are not among what was recorded of the calls, by reason.
    fn hit_losses(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let of = |probes: &mut dyn Iterator<Item = ProbeId>| {
            probes.fold(HitCounts::default(), |sum, probe| {
                sum.plus(self.hits.hit_counts(probe))
            })
        };
        let values = of(&mut self.probes.iter().copied().filter(|_| self.values > 0));
        let inside = of(&mut self.line.iter().copied());
        let lost = values_left_out(values).into_iter().chain(inside_left_out(inside));
        lost.filter(|(_, count)| *count > 0)
    }

    /// Calls of which not all is known, by reason.
    fn unknown(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let LostWaits {
            full,
            forgotten,
            over_duration,
        } = self.noted.waits.lost();
        let LostSamples {
            forgotten: samples_forgotten,
            stacks_full,
        } = self.noted.samples.lost();
        [
            ("join_limit", self.beyond_limit),
            ("inside_lost", self.lost_inside.max(self.forgotten)),
            ("wait_places_full", full),
            ("waits_forgotten", forgotten),
            (WAITS_OVER_DURATION, over_duration),
            ("samples_forgotten", samples_forgotten),
            ("stacks_full", stacks_full),
        ]
        .into_iter()
    }

    fn picture(mut self, frames: &FrameTable, lost: Losses, cost: Cost, ended: Ending) -> ExplainPicture {
        let predicates = division::predicates(self.step.step());
        let of_all = divide(&predicates, &self.calls, 1.0, 0);
        let noted = &self.noted;
        let division = divide(&predicates, &noted.study.histogram(), 1.0, 0);
        let inside = division.inside();
        let is_slow = |duration_ns| inside.contains(bucket_of(duration_ns));
        let [slow, other] = noted.study.durations(is_slow);
        let functions = self.step.functions().iter();
        let own: Vec<String> = functions
            .map(|function| match function.info.linkage_name.as_str() {
                "" => function.info.name.clone(),
                name => demangle(name.as_bytes()),
            })
            .collect();
        let Judged { findings, judged } = noted.findings(frames, &own, is_slow);
        let in_words = InWords {
            scope: &self.scope,
            frames,
            // The program may not be there any more.
            can_be_probed: &|_| false,
            cost: &|_| None,
        };
        let mut findings = noted.explained(findings, &in_words);
        let of_waits = findings
            .iter_mut()
            .filter(|finding| matches!(finding.what, What::Wait(_)));
        for finding in of_waits {
            // So much of it may be for waits that were lost.
            finding.difference.low = (finding.difference.low - self.lost_waits_share).max(-1.0);
            finding.difference.high = (finding.difference.high + self.lost_waits_share).min(1.0);
        }
        if !self.waits_are_told {
            self.leave_out("who ended waits".to_owned(), "not recorded: record with --waits");
        }
        ExplainPicture {
            scope: self.scope.to_string().into(),
            threshold_ns: division.slow_from_ns().filter(|_| !division.warming),
            threshold_of_all_ns: of_all.slow_from_ns().filter(|_| !of_all.warming),
            warming: division.warming,
            calls: self.calls.total(),
            looked_at: self.noted.study.seen(),
            slow,
            other,
            features: self.noted.features.len().saturating_sub(self.forgotten_features),
            judged,
            findings,
            left_out: self.left_out,
            lost,
            cost,
            ended: Some(ended),
        }
    }
}

/// A wait of which only a sample was recorded: where it was, and not who ended it.
fn wait_of(sample: &RecordedSample, stack: &[FrameId], frames: &FrameTable) -> NamedWait {
    let words = stack
        .iter()
        .rev()
        .take_while(|frame| Word::is_of_activity(**frame));
    let stack = &stack[..stack.len() - words.count()];
    let begin_ns = sample.ts_ns.saturating_sub(sample.weight_ns);
    let waiting = waiting(sample.activity);
    let woken_ns = if waiting.is_some() { sample.ts_ns } else { begin_ns };
    let wait = Wait {
        thread: ThreadId {
            tgid: sample.tgid,
            tid: sample.tid,
        },
        place: WaitingAt {
            thread: sample.task.map_or(FrameId::OTHER, |task| task.thread),
            stack: stack.into(),
        },
        waiting,
        lock: None,
        times: [begin_ns, woken_ns, sample.ts_ns],
        waker: Waker::Unseen,
        still_ns: None,
    };
    NamedWait::of(wait, sample.spans.clone(), frames)
}

/// Notes how a value is written in conditions; whether it is one of a choice.
fn note_constants(reading: &Reading, constants: &mut Constants) -> bool {
    let Reading::Ok(value) = reading else { return false };
    match value {
        Value::Boolean(_) => *constants = Constants::Booleans,
        Value::Pointer(_) | Value::Text { pointer: Some(_), .. } => *constants = Constants::Pointers,
        Value::Enumerator { number, name } => {
            if !matches!(constants, Constants::Names(_)) {
                *constants = Constants::Names(Vec::new());
            }
            if let (Constants::Names(names), Some(name)) = (constants, name)
                && names.len() < MAX_NAMES
                && !names.iter().any(|(known, _)| known == number)
            {
                names.push((*number, name.clone()));
            }
        }
        _ => return false,
    }
    true
}

fn not_explained() -> SessionError {
    SessionError::new(
        Reason::ArgumentInvalid,
        "say which calls are slow: the scope's last step has to be a function with a condition on its duration, and no other step has one, as in 'handle_request[>= p95]'",
    )
}

fn damaged() -> SessionError {
    SessionError::new(
        Reason::ScopeInvalid,
        "the recording's expressions cannot be read: the recording was made by another version, or is damaged",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording that somebody made up has any number of calls inside of one, each as long as can be.
    #[test]
    fn what_is_inside_of_a_call_takes_no_memory_and_its_time_is_a_number() {
        let mut inside = Inside::default();
        let [one, copy] = [inside; 2];
        assert_eq!(one.calls + copy.calls, 0, "it has nothing on the heap");
        inside.add(Some(u64::MAX));
        inside.add(Some(u64::MAX));
        assert_eq!((inside.calls, inside.ns, inside.is_unknown), (2, u64::MAX, false));
        inside.add(None);
        assert!(inside.is_unknown);
    }
}
