//! What slow calls of a function do that others do not.
//!
//! Some of the calls are looked at: those whose beginnings are recorded, up to a limit. Each opens a gate, behind which
//! the branches and the calls in it are observed. What happens in a call is a bit of its frame that its end brings along:
//! a branch that is taken a thousand times in a call costs no record. Bits are few, so that places take turns.
//!
//! | file | idea |
//! |---|---|
//! | `call` | which call something was in |
//! | `candidates` | what may separate slow calls from others, before anything is attached |
//! | `statement` | a finding in words, and as the next step of the scope |
//! | `waits` | what calls waited for, and who ended it |
//! | `samples` | where calls were sampled |
//! | `probed` | of which functions a step can be made |
//!
//! See `docs/internals/explain.md` for how the reasons of slow calls are found.

mod call;
pub mod candidates;
mod left_out;
pub mod probed;
mod samples;
mod statement;
mod waits;

use std::collections::{HashMap, HashSet};

use profiler_common::{
    limits::MAX_JOINED,
    probe::ProbeId,
    record::{SpanEnd, SpanRef},
};

pub use self::{
    call::OpenCall,
    samples::LostSamples,
    waits::{LostWaits, WaitPlace},
};
use self::{probed::Probed, samples::SamplesOfCalls, statement::Said, waits::WaitsOfCalls};
use super::{
    calibrate::HitCosts,
    command::Capture,
    cost::monotonic_ns,
    functions::Key,
    picture::ExitMethod,
    prepare::{PreparedSpan, PreparedStep},
    spans::WAITS_OVER_DURATION,
    symbols::NamedWait,
    trace::TracedValue,
};
use crate::kernel::{Attachment, Detached, Engine, Gate, Gates, HitSpec, KernelError, LookSpec, ProbeSpec};
use profiler_aggregate::{
    explain::{About, Call, Durations, Finding, Kind, Means, Round, Share, Study, Tree},
    histogram::Histogram,
    interval::Estimate,
};
use profiler_plan::values::{Reading, Value};
use profiler_scope::expression::Expression;
use profiler_scope::{Place, Scope};
use profiler_symbolize::{FrameId, FrameTable};

/// Branches that are looked at at a time: of the gates that all sessions share.
const MAX_FLAGS: usize = 20;

/// Calls that are looked at at a time.
const MAX_TIMED: usize = 16;

/// Gates that are left to others.
const GATES_FOR_OTHERS: u32 = 8;

/// How long a turn takes where there are several, at least and at most.
const TURN_NS: u64 = 1_000_000_000;
const MAX_TURN_NS: u64 = 60_000_000_000;

/// So many times as long as a slow call, and as attaching took.
const CALLS_OF_A_TURN: u64 = 4;
const TURNS_OF_ATTACHING: u64 = 10;

/// Calls whose own calls are kept until they end.
const MAX_OPEN: usize = 16_384;

/// Something that may separate slow calls from others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// What it is.
    pub what: What,
    /// What may be said of it.
    pub kind: Kind,
}

/// What a feature is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A value where the call begins, and how such are written.
    Value(Expression, Constants),
    /// A branch that is taken, or the time in calls that are made at a line.
    Place(Place),
    /// The time off the CPU there.
    Wait(WaitPlace),
    /// More calls than are recorded, most of them at that line.
    Many(Place),
    /// Samples on the CPU in that function.
    Frame(FrameId),
}

/// How a value is written in a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Constants {
    /// As a number.
    Numbers,
    /// As `true` or `false`.
    Booleans,
    /// Null or not.
    Pointers,
    /// By its name, if it has one.
    Names(Vec<(i128, String)>),
}

/// What is to be looked at.
pub struct PreparedExplain {
    /// What is read where calls begin: the features before those of places, in the same order.
    pub capture: Capture,
    /// All.
    pub features: Vec<Feature>,
    /// Those that have places.
    pub places: Vec<PreparedPlace>,
    /// What is not looked at.
    pub left_out: Vec<NotLookedAt>,
    /// Tells of which functions a step can be made.
    pub can_be_probed: probed::Check,
}

/// Something that is not looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotLookedAt {
    /// What, in words.
    pub what: String,
    /// Why not.
    pub reason: String,
}

/// Where a feature is seen.
pub struct PreparedPlace {
    /// Which one, as an index of all.
    pub feature: usize,
    /// The functions that it is in: calls of others say nothing of it.
    pub functions: Vec<Key>,
    /// Its sites.
    pub step: PreparedStep,
}

/// A finding, for those who look.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// What kind of thing it is about.
    pub what: What,
    /// In words of a scope.
    pub text: String,
    /// Slow calls of which it is true.
    pub slow: Share,
    /// Other calls of which it is true.
    pub other: Share,
    /// Share of slow calls less share of others.
    pub difference: Estimate,
    /// The amount on average; `None` of what is no amount.
    pub means: Option<Means>,
    /// The scope that looks only at such calls; `None` where the statement is no step of one.
    pub next: Option<String>,
    /// What its step costs in addition; `None` where it probes nothing more.
    pub cost: Option<StepCost>,
}

/// What a step costs, from what was seen while its place was looked at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepCost {
    /// Times a second that its probes are reached, inside of the steps before or not.
    pub hits_per_s: f64,
    /// Share of a CPU that the target spends in them.
    pub cpu_share: f64,
}

/// How often the probes of a place were reached.
#[derive(Clone, Copy, Default)]
struct Reached {
    hits: u64,
    /// While they were attached.
    ns: u64,
    /// What all of it cost the target.
    cost_ns: u64,
}

impl Reached {
    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.ns += other.ns;
        self.cost_ns += other.cost_ns;
    }

    fn cost(self) -> Option<StepCost> {
        let ns = self.ns as f64;
        (self.ns > 0).then(|| StepCost {
            hits_per_s: self.hits as f64 * 1e9 / ns,
            cpu_share: self.cost_ns as f64 / ns,
        })
    }
}

/// What a probe is of.
#[derive(Clone, Copy)]
struct OfPlace {
    /// Its place, by the number of its feature.
    feature: usize,
    /// What reaching it costs the target; of a call, with its end.
    cost_ns: u64,
}

/// A probe for the time in calls.
#[derive(Clone, Copy)]
struct TimedProbe {
    /// What it times, as an index of the round's amounts.
    amount: usize,
    of: OfPlace,
}

/// What this turn's probes see in the calls of one function.
#[derive(Clone, Default)]
struct SeenIn {
    /// The flags that are in it, a bit each.
    flags: u32,
    /// The amounts that are not, as indices of the round's: they are of other functions.
    elsewhere: Vec<usize>,
}

/// A call within a call that has not ended.
#[derive(Clone, Copy)]
struct InsideCall {
    /// What it is counted as, as an index of the round's amounts.
    amount: usize,
    /// How long it took; `None` where that is not known.
    duration_ns: Option<u64>,
}

/// What is attached for this turn.
#[derive(Default)]
struct Turn {
    attachments: Vec<Attachment>,
    /// The gate of each flag.
    flags: Vec<Gate>,
    /// What each probe is of.
    places: Vec<(ProbeId, OfPlace)>,
    /// What each probe times, as an index of the round's amounts.
    timed: HashMap<ProbeId, usize>,
    /// What is seen in calls of each function, by its probe.
    seen: HashMap<ProbeId, SeenIn>,
    round: u32,
    /// The features of the round's amounts.
    amounts: Vec<usize>,
    /// All is attached that there is.
    is_all: bool,
    /// Calls that began before were not looked at in full. None are yet if it is `None`.
    since_ns: Option<u64>,
    /// How long it took to attach.
    attach_ns: u64,
}

/// What was noted of calls.
#[derive(Default)]
pub struct Noted {
    /// What may separate them; those of waits are added as they come.
    pub features: Vec<Feature>,
    pub waits: WaitsOfCalls,
    pub samples: SamplesOfCalls,
    pub study: Study,
}

/// A running explanation.
pub struct Explain {
    noted: Noted,
    places: Vec<PreparedPlace>,
    left_out: Vec<NotLookedAt>,
    /// Values among the features.
    values: usize,
    /// Opened by each call that is looked at.
    looked_at: Gate,
    /// The functions' own probes.
    probes: HashMap<ProbeId, Key>,
    turn: Turn,
    /// What the turn before has detached.
    leaving: Option<Detached>,
    /// The place that the next turn begins with.
    next_place: usize,
    /// The round of calls of which only the values are known.
    bare_round: u32,
    /// Calls within calls that have not ended.
    inside: HashMap<OpenCall, Vec<InsideCall>>,
    /// Calls in which more was called than is recorded, and those of which records were lost.
    beyond_limit: u64,
    lost_inside: u64,
    probed: Probed,
    /// What it costs to reach a probe, if that could be measured.
    hit_costs: Option<HitCosts>,
    /// How often the places of turns that are over were reached, by the number of their feature.
    reached: HashMap<usize, Reached>,
}

impl Explain {
    /// Begins to look at the calls that these probes see.
    ///
    /// # Errors
    /// Where no gate is left for it.
    pub fn begin(
        engine: &mut Engine,
        prepared: PreparedExplain,
        probes: HashMap<ProbeId, Key>,
        hit_costs: Option<HitCosts>,
    ) -> Result<Self, KernelError> {
        let looked_at = engine.take_gate(monotonic_ns())?;
        let values = prepared.capture.print.len();
        let mut study = Study::default();
        let bare_round = study.begin(Round {
            flags: Vec::new(),
            amounts: (0..values).collect(),
        });
        let mut explain = Self {
            noted: Noted {
                features: prepared.features,
                study,
                ..Noted::default()
            },
            places: prepared.places,
            left_out: prepared.left_out,
            values,
            looked_at,
            probes,
            turn: Turn::default(),
            leaving: None,
            next_place: 0,
            bare_round,
            inside: HashMap::new(),
            beyond_limit: 0,
            lost_inside: 0,
            probed: Probed::new(prepared.can_be_probed),
            hit_costs,
            reached: HashMap::new(),
        };
        explain.next_turn(engine);
        for probe in explain.probes.keys() {
            engine.open_where_recorded(*probe, Some(looked_at));
        }
        Ok(explain)
    }

    /// Processes in which places are timed by return probes, be it in other turns.
    pub fn return_probed(&self) -> impl Iterator<Item = u32> + '_ {
        let files = self.places.iter().flat_map(|place| &place.step.files);
        let is_return = |span: &PreparedSpan| span.site.exit_method == ExitMethod::Return;
        let returns = files.filter(move |file| file.sites.iter().any(is_return));
        returns.map(|file| file.pid)
    }

    /// What it has attached.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.turn.attachments.iter()
    }

    /// What it has detached that may still be on the target.
    pub fn detached(&self) -> Option<&Detached> {
        self.leaving.as_ref()
    }

    /// Takes the probes of its turn off the target; what they have counted stays.
    pub fn quiesce(&mut self, engine: &mut Engine) {
        for attachment in &mut self.turn.attachments {
            engine.quiesce(attachment);
        }
    }

    /// Takes the probes of its turn off the target at once: they are not safe any more.
    pub fn take_off_now(&mut self, engine: &mut Engine) {
        for attachment in &mut self.turn.attachments {
            engine.silence_now(attachment, monotonic_ns);
        }
    }

    /// Takes everything off the target.
    pub fn end(&mut self, engine: &mut Engine) {
        for probe in self.probes.keys() {
            engine.open_where_recorded(*probe, None);
        }
        self.end_turn(engine);
        engine.give_back_gate(self.looked_at);
    }

    /// Turns to other places if it is time: long enough for calls that take `slow_ns`, and for what turning costs. Whether it did.
    pub fn turn(&mut self, engine: &mut Engine, now_ns: u64, slow_ns: Option<u64>) -> bool {
        if self.turn.is_all {
            return false;
        }
        let turn_ns = slow_ns
            .map_or(0, |slow_ns| slow_ns.saturating_mul(CALLS_OF_A_TURN))
            .max(self.turn.attach_ns.saturating_mul(TURNS_OF_ATTACHING))
            .clamp(TURN_NS, MAX_TURN_NS);
        let since_ns = self.turn.since_ns.unwrap_or(0);
        // What the turn before held is given back by then.
        let has_left = self.leaving.as_ref().is_none_or(|before| engine.has_left(before));
        let is_time = now_ns.saturating_sub(since_ns) >= turn_ns && has_left;
        if is_time {
            self.leaving = Some(engine.detached_by(|engine| self.end_turn(engine)));
            self.next_turn(engine);
        }
        is_time
    }

    fn end_turn(&mut self, engine: &mut Engine) {
        for (feature, reached) in self.reached_now(engine, monotonic_ns()) {
            self.reached.entry(feature).or_default().add(reached);
        }
        let turn = std::mem::take(&mut self.turn);
        for attachment in turn.attachments {
            engine.detach(attachment);
        }
        for gate in turn.flags {
            engine.give_back_gate(gate);
        }
        self.inside.clear();
    }

    /// How often the places of this turn were reached, by the number of their feature.
    fn reached_now(&self, engine: &Engine, now_ns: u64) -> HashMap<usize, Reached> {
        let Some(since_ns) = self.turn.since_ns else {
            return HashMap::new();
        };
        let mut all: HashMap<usize, Reached> = HashMap::new();
        for (probe, OfPlace { feature, cost_ns }) in &self.turn.places {
            let counts = engine.probe_counts(*probe);
            let hits = counts.entries + counts.outside;
            let reached = all.entry(*feature).or_default();
            reached.hits += hits;
            reached.ns = now_ns.saturating_sub(since_ns);
            reached.cost_ns += hits.saturating_mul(*cost_ns);
        }
        all
    }

    /// What a place costs as a step of its own. A branch's probe is reached whichever way it goes, and counts but one.
    fn step_cost(&self, feature: usize, now: &HashMap<usize, Reached>) -> Option<StepCost> {
        self.hit_costs?;
        let ways = match &self.noted.features.get(feature)?.what {
            What::Place(Place::Branch { file, line, .. }) => [true, false]
                .map(|taken| Place::Branch {
                    file: file.clone(),
                    line: *line,
                    taken,
                })
                .into_iter()
                .filter_map(|way| {
                    let mut features = self.noted.features.iter();
                    features.position(|other| matches!(&other.what, What::Place(place) if *place == way))
                })
                .collect(),
            _ => vec![feature],
        };
        let costs = ways.into_iter().filter_map(|way| {
            let mut reached = self.reached.get(&way).copied().unwrap_or_default();
            reached.add(now.get(&way).copied().unwrap_or_default());
            reached.cost()
        });
        costs.reduce(|one, other| StepCost {
            hits_per_s: one.hits_per_s + other.hits_per_s,
            cpu_share: one.cpu_share + other.cpu_share,
        })
    }

    /// Attaches as much as there is room for, from the next place on. What cannot be attached is left out from then on.
    fn next_turn(&mut self, engine: &mut Engine) {
        let began_ns = monotonic_ns();
        let mut turn = Turn::default();
        let mut round = Round {
            flags: Vec::new(),
            amounts: (0..self.values).collect(),
        };
        let chosen = self.choose(engine, &mut turn, &mut round, began_ns);
        let attached = self.attach(engine, &mut turn, &round, &chosen);
        for (&probe, function) in &self.probes {
            let is_in = |place: &&usize| self.places[**place].functions.contains(function);
            let mut flags = 0;
            let mut elsewhere = Vec::new();
            let (mut flag, mut amount) = (0, self.values);
            for place in &chosen {
                let here = is_in(&place);
                if self.places[*place].step.step.place.has_spans() {
                    if !here {
                        elsewhere.push(amount);
                    }
                    amount += 1;
                } else {
                    flags |= u32::from(here) << flag;
                    flag += 1;
                }
            }
            turn.seen.insert(probe, SeenIn { flags, elsewhere });
        }
        turn.is_all = chosen.len() == self.places.len();
        turn.amounts.clone_from(&round.amounts);
        turn.round = self.noted.study.begin(round);
        let now_ns = monotonic_ns();
        turn.attach_ns = now_ns.saturating_sub(began_ns);
        turn.since_ns = Some(now_ns);
        self.turn = turn;
        let failed = attached.err();
        if let Some(error) = &failed {
            tracing::warn!(%error, "not everything is looked at");
            let detached = engine.detached_by(|engine| self.end_turn(engine));
            let before = self.leaving.take().filter(|before| !engine.has_left(before));
            self.leaving = Some(detached.and(before.as_ref()));
            if error.is_of_room() && before.is_some() {
                // There is room again once these have left: they are tried again then.
                return;
            }
        }
        self.next_place += chosen.len();
        if let Some(error) = failed {
            let reason = error.to_string();
            self.leave_out(|number, _| chosen.contains(&number).then(|| reason.clone()));
        }
        self.next_place %= self.places.len().max(1);
    }

    /// The places that there is room for, with a gate for each flag.
    fn choose(&self, engine: &mut Engine, turn: &mut Turn, round: &mut Round, now_ns: u64) -> Vec<usize> {
        let count = self.places.len();
        let mut chosen = Vec::new();
        let mut timed = 0;
        for ahead in 0..count {
            let number = (self.next_place + ahead) % count;
            let place = &self.places[number];
            if place.step.step.place.has_spans() {
                if timed == MAX_TIMED {
                    break;
                }
                timed += 1;
                round.amounts.push(place.feature);
            } else {
                if turn.flags.len() == MAX_FLAGS || engine.gates_left() <= GATES_FOR_OTHERS {
                    break;
                }
                let Ok(gate) = engine.take_gate(now_ns) else { break };
                turn.flags.push(gate);
                round.flags.push(place.feature);
            }
            chosen.push(number);
        }
        chosen
    }

    /// Attaches them, one link for many sites: by process and file. Of a process that is gone there is nothing to see.
    fn attach(
        &self,
        engine: &mut Engine,
        turn: &mut Turn,
        round: &Round,
        chosen: &[usize],
    ) -> Result<(), KernelError> {
        let gates = |opens, joined| Gates {
            requires: Some(self.looked_at),
            opens,
            joined,
        };
        let mut hits: HashMap<_, Vec<(HitSpec, OfPlace)>> = HashMap::new();
        let mut spans: HashMap<_, Vec<(ProbeSpec, TimedProbe)>> = HashMap::new();
        let mut opens = turn.flags.iter().copied();
        let costs = self.hit_costs.unwrap_or_default();
        for number in chosen {
            let place = &self.places[*number];
            if place.step.step.place.has_spans() {
                let amount = round.amounts.iter().position(|feature| *feature == place.feature);
                for file in &place.step.files {
                    let specs = spans.entry((file.pid, &file.path)).or_default();
                    specs.extend(file.sites.iter().map(|site| {
                        let mut spec = site.spec.clone();
                        spec.look = None;
                        spec.gates = gates(None, true);
                        let (entry, exit) = (site.site.entry_single_stepped, site.site.exit_single_stepped);
                        let cost_ns = costs.of(entry) + costs.of(exit);
                        let of = OfPlace {
                            feature: place.feature,
                            cost_ns,
                        };
                        let amount = amount.unwrap_or(usize::MAX);
                        (spec, TimedProbe { amount, of })
                    }));
                }
            } else {
                let gate = opens.next();
                for lines in &place.step.lines {
                    let specs = hits.entry((lines.pid, &lines.path)).or_default();
                    specs.extend(lines.lines.iter().map(|line| {
                        let mut spec = line.spec.clone();
                        spec.look = LookSpec::default();
                        spec.gates = gates(gate, false);
                        let cost_ns = costs.of(line.single_stepped.is_some());
                        let of = OfPlace {
                            feature: place.feature,
                            cost_ns,
                        };
                        (spec, of)
                    }));
                }
            }
        }
        for ((pid, path), specs) in spans {
            let (specs, timed): (Vec<_>, Vec<_>) = specs.into_iter().unzip();
            if let Some(attachment) = unless_gone(engine.attach(pid, path, &specs))? {
                for (probe, TimedProbe { amount, of }) in attachment.probes().iter().zip(timed) {
                    turn.timed.insert(*probe, amount);
                    turn.places.push((*probe, of));
                }
                turn.attachments.push(attachment);
            }
        }
        for ((pid, path), specs) in hits {
            let (specs, places): (Vec<_>, Vec<_>) = specs.into_iter().unzip();
            if let Some(attachment) = unless_gone(engine.attach_hits(pid, path, &specs))? {
                turn.places
                    .extend(attachment.probes().iter().copied().zip(places));
                turn.attachments.push(attachment);
            }
        }
        Ok(())
    }

    /// Takes the end of a span if it is one of a call within the calls.
    pub fn take_inside(&mut self, end: &SpanEnd) -> bool {
        let Some(&amount) = self.turn.timed.get(&end.probe) else {
            return false;
        };
        if end.flags & SpanEnd::JOINED == 0 {
            return true;
        }
        if self.inside.len() >= MAX_OPEN {
            // The calls that they were in are told by their number of records.
            self.inside.clear();
        }
        // One that was abandoned was jumped over.
        let is_known = end.flags & SpanEnd::ABANDONED == 0;
        let inside = self.inside.entry(OpenCall::around(end)).or_default();
        inside.push(InsideCall {
            amount,
            duration_ns: is_known.then(|| end.end_ns.saturating_sub(end.start_ns)),
        });
        true
    }

    /// Says since when what threads do off the CPU is recorded; `None` where it is not.
    pub fn note_recorded(&mut self, since_ns: Option<u64>) {
        self.noted.waits.note_recorded(since_ns);
    }

    /// Whether it is.
    pub fn knows_waits(&self) -> bool {
        self.noted.waits.is_recorded()
    }

    /// Takes a wait, if it is in one of the calls.
    pub fn take_wait(&mut self, named: &NamedWait) {
        let probes = &self.probes;
        self.noted.take_wait(named, |probe| probes.contains_key(&probe));
    }

    /// Takes a sample of a thread on the CPU, at this stack, if it is in one of the calls.
    pub fn take_sample(&mut self, tid: u32, ts_ns: u64, spans: &[SpanRef], stack: (&[FrameId], bool)) {
        let probes = &self.probes;
        let calls = spans.iter().filter(|span| probes.contains_key(&span.probe));
        self.noted.samples.take(tid, ts_ns, calls, stack);
    }

    /// Takes the end of a call; with what was read where it began, if it is one that is looked at.
    pub fn take_call(&mut self, end: &SpanEnd, values: Option<&[TracedValue]>) {
        if !self.probes.contains_key(&end.probe) {
            return;
        }
        let call = OpenCall::ending(end);
        let inside = self.inside.remove(&call);
        let waits = self.noted.waits.of_call(call, [end.start_ns, end.end_ns]);
        let samples = self.noted.samples.of_call(call, end.start_ns);
        let Some(values) = values.filter(|_| end.flags & SpanEnd::REFUSED == 0) else {
            return;
        };
        let inside = inside.unwrap_or_default();
        let mut amounts: Vec<f64> = values.iter().map(|value| number(&value.reading)).collect();
        amounts.resize(self.values, f64::NAN);
        let (mut round, mut happened, mut known, mut many) = (self.bare_round, 0, 0, None);
        let in_full = self
            .turn
            .since_ns
            .is_some_and(|since_ns| end.start_ns >= since_ns);
        if in_full && end.gates & self.looked_at.bits() != 0 {
            round = self.turn.round;
            for (bit, gate) in self.turn.flags.iter().enumerate() {
                happened |= u32::from(end.gates & gate.bits() != 0) << bit;
            }
            let SeenIn { flags, elsewhere } = self.turn.seen.get(&end.probe).cloned().unwrap_or_default();
            known = flags;
            // Beyond the limit there may be more of any kind; so there may where records were lost.
            let beyond_limit = end.inside() >= MAX_JOINED;
            let all_known = !beyond_limit && end.inside() as usize == inside.len();
            self.beyond_limit += u64::from(beyond_limit);
            self.lost_inside += u64::from(!beyond_limit && !all_known);
            if beyond_limit {
                many = self.mostly_called(&inside);
            }
            amounts.resize(self.turn.amounts.len(), if all_known { 0.0 } else { f64::NAN });
            for InsideCall { amount, duration_ns } in inside {
                if let Some(sum) = amounts.get_mut(amount) {
                    *sum += duration_ns.map_or(f64::NAN, |duration_ns| duration_ns as f64);
                }
            }
            for amount in elsewhere {
                if let Some(sum) = amounts.get_mut(amount) {
                    *sum = f64::NAN;
                }
            }
        }
        self.noted.study.add(Call {
            duration_ns: end.end_ns.saturating_sub(end.start_ns),
            round,
            happened,
            known,
            amounts: amounts.into(),
            waits,
            many,
            samples,
        });
    }

    /// The feature of more calls than are recorded at the place that most of the recorded ones were made at, if there is one.
    fn mostly_called(&mut self, inside: &[InsideCall]) -> Option<usize> {
        let count_of = |amount: usize| inside.iter().filter(|call| call.amount == amount).count();
        let most = inside.iter().map(|call| call.amount);
        let most = most.max_by_key(|amount| count_of(*amount))?;
        if 2 * count_of(most) <= inside.len() {
            return None;
        }
        let timed = *self.turn.amounts.get(most)?;
        let kind = Kind::Many(timed);
        if let Some(known) = self
            .noted
            .features
            .iter()
            .position(|feature| feature.kind == kind)
        {
            return Some(known);
        }
        let What::Place(place) = &self.noted.features.get(timed)?.what else {
            return None;
        };
        let what = What::Many(place.clone());
        self.noted.features.push(Feature { what, kind });
        Some(self.noted.features.len() - 1)
    }

    /// Calls of which it is not known how long what they called took, or they waited, by reason; and waits that are none
    /// of those that are told apart.
    pub fn unknown(&self) -> [(&'static str, u64); 7] {
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
            ("inside_lost", self.lost_inside),
            ("wait_places_full", full),
            ("waits_forgotten", forgotten),
            (WAITS_OVER_DURATION, over_duration),
            ("samples_forgotten", samples_forgotten),
            ("stacks_full", stacks_full),
        ]
    }

    /// Calls that were looked at.
    pub fn calls(&self) -> u64 {
        self.noted.study.seen()
    }

    /// How long the calls that are kept took. What is looked at in them makes them longer than others.
    pub fn histogram(&self) -> Histogram<u64> {
        self.noted.study.histogram()
    }

    /// Of the calls that are kept: slow ones and others.
    pub fn durations(&self, is_slow: impl Fn(u64) -> bool) -> [Durations; 2] {
        self.noted.study.durations(is_slow)
    }

    /// What separates slow calls from others. `own` are the names of the functions; `is_last` where nothing more comes.
    pub fn findings(
        &mut self,
        engine: &Engine,
        scope: &Scope,
        frames: &FrameTable,
        own: &[String],
        is_last: bool,
        is_slow: impl Fn(u64) -> bool,
    ) -> Judged<Explained> {
        let now = self.reached_now(engine, monotonic_ns());
        let Judged { findings, judged } = self.noted.findings(frames, own, is_slow);
        let sure = findings.iter().filter(|finding| finding.difference.low > 0.0);
        let asked = sure.filter_map(|finding| match finding.about {
            About::Frame(id) => samples::function(frames.get(id.0 as usize)?),
            About::Feature(_) => None,
        });
        self.probed.ask(asked, is_last);
        let in_words = InWords {
            scope,
            frames,
            can_be_probed: &|function| self.probed.can_be(function),
            cost: &|feature| self.step_cost(feature, &now),
        };
        Judged {
            findings: self.noted.explained(findings, &in_words),
            judged,
        }
    }

    /// Things that are looked at.
    pub fn features(&self) -> usize {
        self.noted.features.len()
    }

    /// What is not looked at.
    pub fn left_out(&self) -> &[NotLookedAt] {
        &self.left_out
    }
}

/// What separates slow calls from others.
pub struct Judged<F> {
    /// The surest first.
    pub findings: Vec<F>,
    /// How many things there were enough calls to judge.
    pub judged: usize,
}

/// What findings are put into words with.
pub struct InWords<'a> {
    /// The scope that they are of.
    pub scope: &'a Scope,
    /// Frames by number.
    pub frames: &'a FrameTable,
    /// Whether a step can be made of a function.
    pub can_be_probed: &'a dyn Fn(&str) -> bool,
    /// What a step of a feature costs, where that is known.
    pub cost: &'a dyn Fn(usize) -> Option<StepCost>,
}

/// What a finding is about, and what is said of it.
struct InScope {
    what: What,
    said: Said,
    cost: Option<StepCost>,
}

impl Noted {
    /// Takes a wait, if it is in a call that is looked at.
    pub fn take_wait(&mut self, named: &NamedWait, is_looked_at: impl Fn(ProbeId) -> bool) {
        let features = &mut self.features;
        self.waits.take(named, is_looked_at, |place| {
            features.push(Feature {
                what: What::Wait(place),
                kind: Kind::Wait,
            });
            features.len() - 1
        });
    }

    /// What separates slow calls from others. `own` are the names of the functions.
    pub fn findings(
        &self,
        frames: &FrameTable,
        own: &[String],
        is_slow: impl Fn(u64) -> bool,
    ) -> Judged<Finding> {
        let kinds: Vec<Kind> = self.features.iter().map(|feature| feature.kind).collect();
        let frame = |id: FrameId| frames.get(id.0 as usize);
        let tree = Tree {
            stacks: self.samples.stacks(),
            is_own: &|id| frame(id).is_some_and(|frame| own.iter().any(|own| **own == *frame.function)),
            is_probe: &|id| frame(id).is_some_and(samples::is_probe),
        };
        let mut findings = self.study.findings(&kinds, &tree, is_slow);
        let judged = findings.len();
        // That others go the other way at a branch says the same once more.
        let ways = |finding: &Finding| match self.what(finding.about) {
            Some(What::Place(Place::Branch { file, line, .. })) => Some((file.clone(), *line)),
            _ => None,
        };
        let said: HashSet<_> = findings
            .iter()
            .filter(|finding| finding.difference.low > 0.0)
            .filter_map(ways)
            .collect();
        let is_of_frame = |finding: &Finding| matches!(finding.about, About::Frame(_));
        let mut of_frames = findings.iter().filter(|finding| is_of_frame(finding));
        let says_where = of_frames.any(|finding| finding.difference.low > 0.0);
        findings.retain(|finding| {
            // Where slow calls have more of their samples, others have less.
            let is_said = says_where && is_of_frame(finding);
            finding.difference.value >= 0.0
                || !is_said && ways(finding).is_none_or(|way| !said.contains(&way))
        });
        Judged { findings, judged }
    }

    /// Findings in words, with where they lead.
    pub fn explained(&self, findings: Vec<Finding>, in_words: &InWords<'_>) -> Vec<Explained> {
        let InWords {
            scope,
            frames,
            can_be_probed,
            cost,
        } = *in_words;
        let explained = findings.into_iter().filter_map(|finding| {
            let InScope { what, said, cost } = match finding.about {
                About::Frame(id) => {
                    let frame = frames.get(id.0 as usize)?;
                    let function = samples::function(frame).filter(|name| can_be_probed(name));
                    let said = statement::of_frame(&frame.function, function, scope);
                    InScope {
                        what: What::Frame(id),
                        said,
                        cost: None,
                    }
                }
                About::Feature(number) => {
                    let what = self.features.get(number)?.what.clone();
                    let said = match &what {
                        What::Wait(place) => Said {
                            text: self.waits.text(*place, finding.statement, frames),
                            next: None,
                        },
                        what => statement::of(what, finding.statement, scope),
                    };
                    InScope {
                        what,
                        said,
                        cost: cost(number),
                    }
                }
            };
            Some(Explained {
                what,
                text: said.text,
                slow: finding.slow,
                other: finding.other,
                difference: finding.difference,
                means: finding.means,
                // Of what the others do there is no reason to look at slow calls.
                next: said.next.filter(|_| finding.difference.value > 0.0),
                cost,
            })
        });
        explained.collect()
    }

    fn what(&self, about: About) -> Option<&What> {
        match about {
            About::Feature(number) => self.features.get(number).map(|feature| &feature.what),
            About::Frame(_) => None,
        }
    }
}

/// What was attached; `None` where the process is gone.
fn unless_gone(attached: Result<Attachment, KernelError>) -> Result<Option<Attachment>, KernelError> {
    match attached {
        Err(error) if error.is_gone() => Ok(None),
        attached => attached.map(Some),
    }
}

/// Whole numbers beyond it are not told apart by a double.
const EXACT: u128 = 1 << 53;

/// A value as a number; not a number of what cannot be had or compared.
pub fn number(reading: &Reading) -> f64 {
    let Reading::Ok(value) = reading else {
        return f64::NAN;
    };
    match value {
        Value::Signed(number) | Value::Enumerator { number, .. } if number.unsigned_abs() <= EXACT => {
            *number as f64
        }
        Value::Register(number) if u128::from(number.unsigned_abs()) <= EXACT => *number as f64,
        Value::Unsigned(number) if *number <= EXACT => *number as f64,
        Value::Boolean(value) => f64::from(u8::from(*value)),
        Value::Float(number) => *number,
        // Null or not.
        Value::Pointer(address)
        | Value::Text {
            pointer: Some(address),
            ..
        } => f64::from(u8::from(*address != 0)),
        _ => f64::NAN,
    }
}
