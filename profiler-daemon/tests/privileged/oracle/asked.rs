//! Random scopes of functions.

use profiler_daemon::session::FunctionInfo;
use profiler_testkit::Random;

use super::{
    branches::Branches,
    trace::{Call, Truth},
};

/// A function as a step of a scope: by its whole name.
fn step(function: &FunctionInfo) -> String {
    let name = function.name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{name}\"")
}

/// Its first instruction as one.
fn address_step(function: &FunctionInfo) -> String {
    let file = function.module.rsplit('/').next().unwrap_or(&function.module);
    format!("\"{file}\"+{:#x}", function.address)
}

/// A random scope.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// All calls, each recorded.
    All {
        function: usize,
    },
    Slower {
        function: usize,
        than_ns: u64,
    },
    Percentile {
        function: usize,
        percentile: u64,
    },
    Argument {
        function: usize,
        is: u64,
    },
    Within {
        outer: usize,
        slower_than_ns: u64,
        inner: usize,
    },
    /// Behind the first instruction of another function that is called inside as well.
    Behind {
        outer: usize,
        reached: usize,
        inner: usize,
    },
    /// A line's branch where it goes one way, each hit recorded.
    AtBranch {
        outer: usize,
        line: usize,
        taken: bool,
    },
    /// Behind that.
    BehindBranch {
        outer: usize,
        line: usize,
        taken: bool,
        inner: usize,
    },
}

impl Asked {
    /// Kinds of scopes, without those of branches.
    const WITHOUT_BRANCHES: usize = 6;

    /// How many kinds of scopes there are.
    pub fn kinds(branches: &Branches) -> usize {
        if branches.lines.is_empty() {
            Self::WITHOUT_BRANCHES
        } else {
            Self::WITHOUT_BRANCHES + 2
        }
    }

    pub fn choose(
        random: &mut Random,
        turn: usize,
        (watched, branches): (&[FunctionInfo], &Branches),
        truth: &Truth,
    ) -> Option<Self> {
        let kind = turn % Self::kinds(branches);
        if kind >= Self::WITHOUT_BRANCHES {
            let is_hit = kind == Self::WITHOUT_BRANCHES;
            return Self::choose_branch(random, is_hit, (watched, branches), truth);
        }
        let counts = |function: &usize| truth.calls_of(*function).count();
        let called: Vec<usize> = (0..watched.len())
            .filter(|function| counts(function) > 20)
            .collect();
        if called.is_empty() {
            return None;
        }
        let function = called[random.below(called.len())];
        let calls: Vec<&Call> = truth
            .calls_of(function)
            .filter(|call| call.end_ns < Call::OPEN_NS)
            .collect();
        if calls.is_empty() {
            return None;
        }
        let than_ns = threshold(random, &calls);
        let pairs: Vec<(usize, usize)> = called
            .iter()
            .flat_map(|outer| called.iter().map(move |inner| (*outer, *inner)))
            .filter(|(outer, inner)| outer != inner && truth.nested(*outer, *inner) > 10)
            .collect();
        let pair = |random: &mut Random| (!pairs.is_empty()).then(|| pairs[random.below(pairs.len())]);
        Some(match kind {
            0 => Self::All { function },
            1 => Self::Slower { function, than_ns },
            2 => Self::Percentile {
                function,
                percentile: [50, 80, 90, 95, 99][random.below(5)],
            },
            3 => Self::Argument {
                function,
                is: calls[random.below(calls.len())].argument,
            },
            4 => {
                let (outer, inner) = pair(random)?;
                let of_outer: Vec<&Call> = truth
                    .calls_of(outer)
                    .filter(|call| call.end_ns < Call::OPEN_NS)
                    .collect();
                let slower_than_ns = if of_outer.is_empty() || random.below(3) == 0 {
                    0
                } else {
                    threshold(random, &of_outer)
                };
                Self::Within {
                    outer,
                    slower_than_ns,
                    inner,
                }
            }
            _ => {
                let (outer, inner) = pair(random)?;
                let reached: Vec<usize> = pairs
                    .iter()
                    .filter(|pair| pair.0 == outer && pair.1 != inner)
                    .map(|pair| pair.1)
                    .collect();
                if reached.is_empty() || truth.is_recursive(outer) {
                    return None;
                }
                let reached = reached[random.below(reached.len())];
                Self::Behind {
                    outer,
                    reached,
                    inner,
                }
            }
        })
    }

    /// A line that went this way before, in a function that it lies in or one around that.
    fn choose_branch(
        random: &mut Random,
        is_hit: bool,
        (watched, branches): (&[FunctionInfo], &Branches),
        truth: &Truth,
    ) -> Option<Self> {
        let line = random.below(branches.lines.len());
        let taken = random.below(2) == 0;
        let went = branches.went(truth, line, taken);
        let holds = |outer: &usize| {
            let around = went
                .iter()
                .filter(|at| truth.around(&at.around, *outer).next().is_some());
            !truth.is_recursive(*outer) && around.count() > 10
        };
        let outers: Vec<usize> = (0..watched.len()).filter(holds).collect();
        if outers.is_empty() {
            return None;
        }
        let outer = outers[random.below(outers.len())];
        if is_hit {
            return Some(Self::AtBranch { outer, line, taken });
        }
        let inner = (0..watched.len()).filter(|inner| *inner != outer && truth.nested(outer, *inner) > 10);
        let inner: Vec<usize> = inner.collect();
        if inner.is_empty() {
            return None;
        }
        Some(Self::BehindBranch {
            outer,
            line,
            taken,
            inner: inner[random.below(inner.len())],
        })
    }

    /// The function of the last step, or where that is a branch, the one around it.
    pub fn last(self) -> usize {
        match self {
            Self::All { function }
            | Self::Slower { function, .. }
            | Self::Percentile { function, .. }
            | Self::Argument { function, .. } => function,
            Self::Within { inner, .. } | Self::Behind { inner, .. } | Self::BehindBranch { inner, .. } => {
                inner
            }
            Self::AtBranch { outer, .. } => outer,
        }
    }

    pub fn scope(self, watched: &[FunctionInfo], branches: &Branches) -> String {
        let step = |function: usize| step(&watched[function]);
        match self {
            Self::All { function } => format!("{}[>= 1ns]", step(function)),
            Self::Slower { function, than_ns } => format!("{}[>= {than_ns}ns]", step(function)),
            Self::Percentile { function, percentile } => format!("{}[>= p{percentile}]", step(function)),
            Self::Argument { function, is } => format!("{}[$rdi == {is}]", step(function)),
            Self::Within {
                outer,
                slower_than_ns: 0,
                inner,
            } => format!("{}/{}", step(outer), step(inner)),
            Self::Within {
                outer,
                slower_than_ns,
                inner,
            } => format!("{}[>= {slower_than_ns}ns]/{}", step(outer), step(inner)),
            Self::Behind {
                outer,
                reached,
                inner,
            } => {
                let reached = address_step(&watched[reached]);
                format!("{}/{reached}/{}", step(outer), step(inner))
            }
            Self::AtBranch { outer, line, taken } => {
                format!("{}/{}", step(outer), branches.lines[line].step(taken))
            }
            Self::BehindBranch {
                outer,
                line,
                taken,
                inner,
            } => {
                let branch = branches.lines[line].step(taken);
                format!("{}/{branch}/{}", step(outer), step(inner))
            }
        }
    }
}

/// The duration of one of some calls, of a few random ones that which is near to the fewest others.
fn threshold(random: &mut Random, calls: &[&Call]) -> u64 {
    let durations = (0..16).map(|_| calls[random.below(calls.len())].duration_ns());
    let near = |than_ns: &u64| {
        calls
            .iter()
            .filter(|call| call.is_slow(*than_ns).is_none())
            .count()
    };
    durations.min_by_key(near).unwrap_or(1)
}
