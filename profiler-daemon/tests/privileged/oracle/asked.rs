//! Random scopes of functions.

use profiler_daemon::session::FunctionInfo;
use profiler_testkit::Random;

use super::trace::{Call, Truth};

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
}

impl Asked {
    pub fn choose(random: &mut Random, turn: u64, watched: &[FunctionInfo], truth: &Truth) -> Option<Self> {
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
        Some(match turn % 6 {
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

    /// The function of the last step.
    pub fn last(self) -> usize {
        match self {
            Self::All { function }
            | Self::Slower { function, .. }
            | Self::Percentile { function, .. }
            | Self::Argument { function, .. } => function,
            Self::Within { inner, .. } | Self::Behind { inner, .. } => inner,
        }
    }

    pub fn scope(self, watched: &[FunctionInfo]) -> String {
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
