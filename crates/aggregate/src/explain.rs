//! What slow calls do that others do not: how well each thing that was noted of calls separates the two.
//!
//! A feature is something that happens in a call or does not (a branch is taken), or an amount that it has (the value of
//! an argument, the time in what it calls). An amount becomes a statement, such as `n > 4096`, by a bound; the bound is
//! chosen on every second call and judged on the others, so that it is not judged by what it was fitted to.
//!
//! How well a statement separates is the difference of two shares: that of slow calls of which it is true, less that of
//! the others. Of a frame that samples were taken in, it is the share of slow calls' samples less that of the others', with the
//! call as what is observed. Its interval is so wide that of all statements together one in twenty is outside of its own by chance
//! (Bonferroni's correction), for many are looked at.
//!
//! See `docs/internals/explain.md` for how the reasons of slow calls are found.

mod frames;

pub use frames::Tree;

use super::{
    calltree::{FrameId, NodeId},
    histogram::Histogram,
    interval::{Estimate, difference, wilson},
    reservoir::Random,
};

/// Calls that are kept, a uniform selection of all.
pub const MAX_CALLS: usize = 8_192;

/// Of one side, fewer calls than this say nothing.
pub const FEW_CALLS: u64 = 5;

/// Chance that any of the intervals misses.
const ALPHA: f64 = 0.05;

/// What was looked for in some of the calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// The feature of each bit of [`Call::happened`].
    pub flags: Vec<usize>,
    /// The feature of each of [`Call::amounts`].
    pub amounts: Vec<usize>,
}

/// A call that was looked at.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// How long it took.
    pub duration_ns: u64,
    /// The round that it was looked at in.
    pub round: u32,
    /// What happened in it, by the bits of its round.
    pub happened: u32,
    /// Bits of which it is known whether they happened.
    pub known: u32,
    /// Amounts by the order of its round; not a number where unknown.
    pub amounts: Box<[f64]>,
    /// How long it waited for what; not at all for those that it has not. `None` where that is unknown.
    pub waits: Option<Box<[Waited]>>,
    /// It made more calls than are recorded, most of them those that this feature is about, of the kind [`Kind::Many`].
    pub many: Option<usize>,
    /// Samples that were taken in it on the CPU, by stack.
    pub samples: Box<[SamplesAt]>,
}

/// How long a call waited for something.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Waited {
    /// The feature that this is, of the kind [`Kind::Wait`].
    pub feature: usize,
    /// How long; a number of nanoseconds that is summed up.
    pub time_ns: f64,
}

/// Samples of a call at one stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplesAt {
    /// The stack, as its innermost node.
    pub stack: NodeId,
    /// How many.
    pub count: u32,
}

/// What a statement says of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Statement {
    /// It happened.
    Happened,
    /// The amount is greater.
    Above(f64),
    /// It is not greater.
    AtMost(f64),
    /// It is this one.
    Is(f64),
}

/// What may be said of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// That it happened.
    Flag,
    /// That there is much or little of it.
    Amount,
    /// As [`Self::Amount`], of a time: a bound has three significant digits.
    Time,
    /// As [`Self::Time`], of [waits](Call::waits).
    Wait,
    /// Which one it is.
    Choice,
    /// That there are [so many](Call::many) of what the feature of this number times.
    Many(usize),
}

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A feature, by its number.
    Feature(usize),
    /// A function that samples were taken in.
    Frame(FrameId),
}

/// Calls of one side that a statement was judged on; samples, about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Of which it is true.
    pub have: u64,
    /// All.
    pub of: u64,
}

/// The calls of one side.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Durations {
    /// How many.
    pub calls: u64,
    /// How long they take on average; 0 where there are none.
    pub mean_ns: f64,
}

/// How well a feature separates slow calls from others.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What it is about.
    pub about: About,
    /// The statement that separates best.
    pub statement: Statement,
    /// Slow calls.
    pub slow: Share,
    /// The others.
    pub other: Share,
    /// Share of slow calls less share of others.
    pub difference: Estimate,
    /// The amount on average; `None` of what is no amount.
    pub means: Option<Means>,
}

/// An amount on average, in its own unit; of a time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Means {
    /// Of slow calls.
    pub slow: f64,
    /// Of the others.
    pub other: f64,
}

impl Finding {
    /// The difference that there is at least, whatever its sign; 0 where there may be none.
    #[must_use]
    pub fn certain(&self) -> f64 {
        self.difference.low.max(-self.difference.high).max(0.0)
    }
}

/// Calls, and what was noted of them.
#[derive(Clone, Debug)]
pub struct Study {
    rounds: Vec<Round>,
    calls: Vec<Call>,
    seen: u64,
    random: Random,
}

impl Default for Study {
    fn default() -> Self {
        Self {
            rounds: Vec::new(),
            calls: Vec::new(),
            seen: 0,
            random: Random::new(0),
        }
    }
}

impl Study {
    /// Begins a round; its number. One that is as the one before is the same.
    pub fn begin(&mut self, round: Round) -> u32 {
        let at = self.rounds.iter().position(|known| *known == round);
        let at = at.unwrap_or_else(|| {
            self.rounds.push(round);
            self.rounds.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Takes a call (Vitter's algorithm R, as [`super::reservoir`]).
    pub fn add(&mut self, call: Call) {
        self.seen += 1;
        if self.calls.len() < MAX_CALLS {
            self.calls.push(call);
            return;
        }
        let at = self.random.below(self.seen);
        if let Some(place) = usize::try_from(at).ok().and_then(|at| self.calls.get_mut(at)) {
            *place = call;
        }
    }

    /// Takes so many calls that are alike, as if one came after the other.
    pub fn add_alike(&mut self, call: &Call, count: u64) {
        let mut left = count;
        while left > 0 && self.calls.len() < MAX_CALLS {
            self.add(call.clone());
            left -= 1;
        }
        while left > 0 {
            // Until the next one that is kept, each is kept with about this chance.
            let chance = MAX_CALLS as f64 / self.seen.saturating_add(1) as f64;
            let skipped = if chance >= 1.0 {
                0
            } else {
                self.random.failures(chance)
            };
            if skipped >= left {
                self.seen = self.seen.saturating_add(left);
                return;
            }
            self.seen = self.seen.saturating_add(skipped + 1);
            left -= skipped + 1;
            let at = self.random.below(MAX_CALLS as u64);
            if let Some(place) = usize::try_from(at).ok().and_then(|at| self.calls.get_mut(at)) {
                *place = call.clone();
            }
        }
    }

    /// Forgets how long calls waited, of all: it is known of some of them alone.
    pub fn forget_waits(&mut self) {
        for call in &mut self.calls {
            call.waits = None;
        }
    }

    /// Forgets a feature of a round, of all calls: it is known of some of them alone.
    pub fn forget(&mut self, feature: usize) {
        for call in &mut self.calls {
            let round = usize::try_from(call.round)
                .ok()
                .and_then(|at| self.rounds.get(at));
            let Some(Round { flags, amounts }) = round else {
                continue;
            };
            for bit in (0..flags.len()).filter(|bit| flags[*bit] == feature) {
                call.known &= !(1 << bit);
            }
            for (amount, of) in call.amounts.iter_mut().zip(amounts) {
                if *of == feature {
                    *amount = f64::NAN;
                }
            }
        }
    }

    /// Calls that were looked at.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// How long the calls that are kept took.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new();
        for call in &self.calls {
            histogram.record(call.duration_ns);
        }
        histogram
    }

    /// Of the calls that are kept: how many are slow and how many are not, and how long each side's take on average.
    #[must_use]
    pub fn durations(&self, is_slow: impl Fn(u64) -> bool) -> [Durations; 2] {
        let mut sides = [Durations::default(); 2];
        for call in &self.calls {
            let side = &mut sides[usize::from(!is_slow(call.duration_ns))];
            side.calls += 1;
            side.mean_ns += (call.duration_ns as f64 - side.mean_ns) / side.calls as f64;
        }
        sides
    }

    /// What separates calls that are slow from others, what does so most surely first. Features and frames about which
    /// there are too few calls are left out. The stacks of samples are those of `tree`.
    #[must_use]
    pub fn findings(&self, kinds: &[Kind], tree: &Tree<'_>, is_slow: impl Fn(u64) -> bool) -> Vec<Finding> {
        let frames = tree.frames(&self.calls, &is_slow);
        let columns = self.columns(kinds, is_slow);
        let columns = columns.iter().zip(kinds).enumerate();
        let judged = columns.filter_map(|(feature, (column, kind))| column.judge(feature, *kind));
        let judged: Vec<Judged> = judged.collect();
        let z = normal_quantile(ALPHA / (judged.len() + frames.len()).max(1) as f64);
        let mut findings: Vec<Finding> = judged
            .into_iter()
            .map(|judged| judged.finding(z))
            .chain(frames.into_iter().filter_map(|frame| frame.finding(z)))
            .collect();
        findings.sort_by(|a, b| {
            let by_size = || b.difference.value.abs().total_cmp(&a.difference.value.abs());
            b.certain().total_cmp(&a.certain()).then_with(by_size)
        });
        findings
    }

    fn columns(&self, kinds: &[Kind], is_slow: impl Fn(u64) -> bool) -> Vec<Column> {
        let mut columns = vec![Column::default(); kinds.len()];
        let waits = kinds.iter().enumerate().filter(|(_, kind)| **kind == Kind::Wait);
        let waits: Vec<usize> = waits.map(|(feature, _)| feature).collect();
        let many = kinds.iter().enumerate().filter_map(|(feature, kind)| match kind {
            Kind::Many(timed) => Some(Many {
                feature,
                timed: *timed,
            }),
            _ => None,
        });
        let many: Vec<Many> = many.collect();
        for call in &self.calls {
            let Some(round) = usize::try_from(call.round)
                .ok()
                .and_then(|at| self.rounds.get(at))
            else {
                continue;
            };
            let slow = is_slow(call.duration_ns);
            let flags = round.flags.iter().enumerate().map(|(bit, feature)| {
                let bit = |bits: u32| bits >> bit & 1;
                let known = bit(call.known) == 1;
                (
                    *feature,
                    if known {
                        f64::from(bit(call.happened))
                    } else {
                        f64::NAN
                    },
                )
            });
            let amounts = round.amounts.iter().copied().zip(call.amounts.iter().copied());
            let waited = call.waits.as_deref().into_iter().flat_map(|waited| {
                let time_of = |feature: &usize| {
                    let time = waited.iter().find(|waited| waited.feature == *feature);
                    (*feature, time.map_or(0.0, |waited| waited.time_ns))
                };
                waits.iter().map(time_of)
            });
            let often = many.iter().filter_map(|&Many { feature, timed }| {
                let timed = round.amounts.iter().position(|known| *known == timed)?;
                let is_timed = call.amounts.get(timed).is_some_and(|ns| !ns.is_nan());
                let is_one = call.many == Some(feature);
                (is_timed || call.many.is_some()).then(|| (feature, f64::from(u8::from(is_one))))
            });
            for (feature, value) in flags.chain(amounts).chain(waited).chain(often) {
                if let Some(column) = columns.get_mut(feature).filter(|_| !value.is_nan()) {
                    let side = if slow { &mut column.slow } else { &mut column.other };
                    side.push(value);
                }
            }
        }
        columns
    }
}

impl Share {
    fn of(side: &[f64], statement: Statement) -> Self {
        Self {
            have: side.iter().filter(|value| statement.holds(**value)).count() as u64,
            of: side.len() as u64,
        }
    }

    fn value(self) -> f64 {
        self.have as f64 / self.of.max(1) as f64
    }

    fn estimate(self, z: f64) -> Estimate {
        let value = self.value();
        let (low, high) = wilson(value, self.of as f64, z);
        Estimate { value, low, high }
    }
}

impl Statement {
    /// With a bound of three significant digits.
    fn rounded(self) -> Self {
        let round = |bound: f64| {
            if bound == 0.0 {
                return bound;
            }
            let unit = 10_f64.powf(bound.abs().log10().floor() - 2.0);
            (bound / unit).round() * unit
        };
        match self {
            Self::Above(bound) => Self::Above(round(bound)),
            Self::AtMost(bound) => Self::AtMost(round(bound)),
            other => other,
        }
    }

    fn holds(self, value: f64) -> bool {
        match self {
            Self::Happened => value > 0.0,
            Self::Above(bound) => value > bound,
            Self::AtMost(bound) => value <= bound,
            #[expect(clippy::float_cmp, reason = "one of the very values")]
            Self::Is(one) => value == one,
        }
    }
}

/// A feature of the kind [`Kind::Many`].
#[derive(Clone, Copy)]
struct Many {
    feature: usize,
    /// The feature of the times of such calls.
    timed: usize,
}

/// A feature about which there are enough calls, before it is known of how many such it is one.
struct Judged {
    feature: usize,
    statement: Statement,
    slow: Share,
    other: Share,
    means: Option<Means>,
}

impl Judged {
    /// With intervals of this quantile.
    fn finding(self, z: f64) -> Finding {
        Finding {
            about: About::Feature(self.feature),
            statement: self.statement,
            slow: self.slow,
            other: self.other,
            difference: difference(self.slow.estimate(z), self.other.estimate(z)),
            means: self.means,
        }
    }
}

/// One feature's values, in the order of the calls.
#[derive(Clone, Default)]
struct Column {
    slow: Vec<f64>,
    other: Vec<f64>,
}

impl Column {
    /// The statement that separates best, and on how many calls it was seen to; `None` where there are too few.
    fn judge(&self, feature: usize, kind: Kind) -> Option<Judged> {
        let judged = |statement, slow: &[f64], other: &[f64]| Judged {
            feature,
            statement,
            slow: Share::of(slow, statement),
            other: Share::of(other, statement),
            means: matches!(kind, Kind::Amount | Kind::Time | Kind::Wait).then(|| self.means()),
        };
        let few = |side: &[f64]| (side.len() as u64) < FEW_CALLS;
        if matches!(kind, Kind::Flag | Kind::Many(_)) {
            if few(&self.slow) || few(&self.other) {
                return None;
            }
            return Some(judged(Statement::Happened, &self.slow, &self.other));
        }
        let half = |side: &[f64], rest| -> Vec<f64> { side.iter().skip(rest).step_by(2).copied().collect() };
        let (slow, other) = (half(&self.slow, 1), half(&self.other, 1));
        if few(&slow) || few(&other) {
            return None;
        }
        let mut statement = choose(half(&self.slow, 0), half(&self.other, 0), kind)?;
        if matches!(kind, Kind::Time | Kind::Wait) {
            statement = statement.rounded();
        }
        Some(judged(statement, &slow, &other))
    }

    fn means(&self) -> Means {
        let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len().max(1) as f64;
        Means {
            slow: mean(&self.slow),
            other: mean(&self.other),
        }
    }
}

/// The statement with the greatest difference of shares; `None` where all values are one.
fn choose(mut slow: Vec<f64>, mut other: Vec<f64>, kind: Kind) -> Option<Statement> {
    slow.sort_by(f64::total_cmp);
    other.sort_by(f64::total_cmp);
    let mut values: Vec<f64> = slow.iter().chain(&other).copied().collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    if values.len() < 2 {
        return None;
    }
    let share_at_most =
        |side: &[f64], value: f64| side.partition_point(|known| *known <= value) as f64 / side.len() as f64;
    let share_below =
        |side: &[f64], value: f64| side.partition_point(|known| *known < value) as f64 / side.len() as f64;
    let mut best = (0.0, None);
    // Above the greatest there is nothing.
    let bounds = if kind == Kind::Choice {
        &values[..]
    } else {
        &values[..values.len() - 1]
    };
    for &value in bounds {
        let (statement, gain) = if kind == Kind::Choice {
            let share = |side: &[f64]| share_at_most(side, value) - share_below(side, value);
            (Statement::Is(value), share(&slow) - share(&other))
        } else {
            let gain = share_at_most(&slow, value) - share_at_most(&other, value);
            if gain > 0.0 {
                (Statement::AtMost(value), gain)
            } else {
                (Statement::Above(value), -gain)
            }
        };
        if gain > best.0 {
            best = (gain, Some(statement));
        }
    }
    best.1
}

/// The two-sided quantile of the normal distribution (Abramowitz and Stegun 26.2.23, within 4.5e-4).
fn normal_quantile(alpha: f64) -> f64 {
    let t = (-2.0 * (alpha / 2.0).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(test)]
mod tests;
