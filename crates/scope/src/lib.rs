//! Scopes: which calls, lines and places to look inside of. This is their value; [`parse`] reads their text.
//!
//! A scope is a path of steps. Each is a place and conditions: on the duration of its spans, where it has such, and on
//! values. A step is observed only while those before it are open on the same thread. The canonical text, which
//! `Display` writes, is the shortest that parses to the same value.

mod error;
pub mod expression;
mod parse;
mod print;
mod value;

pub use error::ScopeError;
pub use parse::{MAX_TEXT_BYTES, parse};
pub use value::{Condition, Constant};

use expression::Root;

/// What to look inside of.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// Outermost first; none (the empty text) for everything.
    pub steps: Vec<Step>,
}

/// Steps that a scope has at most.
pub const MAX_STEPS: usize = 8;

impl Scope {
    /// The innermost step, whose spans or hits are what is looked at.
    #[must_use]
    pub fn last(&self) -> Option<&Step> {
        self.steps.last()
    }
}

/// A place, and which of its spans or hits qualify.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// Where it is.
    pub place: Place,
    /// Conditions on the duration that all have to hold; two of them make a band.
    pub predicates: Vec<Predicate>,
    /// Conditions on values that all have to hold.
    pub conditions: Vec<Condition>,
}

impl Step {
    /// Whether a condition is on what its spans return.
    #[must_use]
    pub fn asks_for_return(&self) -> bool {
        let mut conditions = self.conditions.iter();
        self.place.has_spans() && conditions.any(|condition| condition.expression.root == Root::Return)
    }

    /// Whether a condition is on what is known only when a span has ended: its duration, or what it returns.
    #[must_use]
    pub fn asks_for_end(&self) -> bool {
        !self.predicates.is_empty() || self.asks_for_return()
    }

    /// The share of its calls that its percentiles ask for, of durations that all differ; `None` where a duration is asked for, or
    /// nothing.
    #[must_use]
    pub fn share_of_calls(&self) -> Option<f64> {
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for predicate in &self.predicates {
            let Bound::Percentile(percentile) = predicate.bound else {
                return None;
            };
            match predicate.comparison {
                Comparison::Greater | Comparison::GreaterOrEqual => from = from.max(percentile.quantile()),
                Comparison::Less | Comparison::LessOrEqual => to = to.min(percentile.quantile()),
            }
        }
        (!self.predicates.is_empty()).then_some((to - from).max(0.0))
    }
}

/// Where a step is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// The functions of a name or glob.
    Function(Name),
    /// The functions of a name or glob, and what of them is inlined.
    Inlined(Name),
    /// A line of a source file.
    Line {
        /// The last components of the file's path.
        file: String,
        /// Counted from 1.
        line: u32,
    },
    /// The conditional branches of a line that go one way.
    Branch {
        /// As of [`Place::Line`].
        file: String,
        /// As of [`Place::Line`].
        line: u32,
        /// The jump is taken; else the code goes on behind it.
        taken: bool,
    },
    /// Calls that are made at a line.
    Call {
        /// Who is called.
        callee: Name,
        /// As of [`Place::Line`].
        file: String,
        /// As of [`Place::Line`].
        line: u32,
    },
    /// The instruction at an address.
    Address {
        /// The last components of the path of an executable or library.
        module: String,
        /// In the file's address space.
        address: u64,
    },
    /// System calls of a name.
    SystemCall(String),
    /// Calls of functions of the kernel.
    KernelFunction(Name),
    /// A tracepoint of the kernel.
    Tracepoint {
        /// The folder that it is in.
        category: String,
        /// Its own name.
        name: String,
    },
}

impl Place {
    /// What it is, in words.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Function(_) | Self::Inlined(_) => "a function",
            Self::Line { .. } | Self::Branch { .. } => "a line",
            Self::Call { .. } => "a call",
            Self::Address { .. } => "an address",
            Self::SystemCall(_) => "a system call",
            Self::KernelFunction(_) => "a function of the kernel",
            Self::Tracepoint { .. } => "a tracepoint",
        }
    }

    /// Makes of an instruction's address the calls of the function that begins there; anything else stays as it is.
    pub fn call_at_address(&mut self) {
        if let Self::Address { module, address } = self {
            *self = Self::Function(Name::at_address(module, *address));
        }
    }

    /// Whether it can be where what is inlined around it begins.
    #[must_use]
    pub fn may_begin_at_once(&self) -> bool {
        !matches!(self, Self::Function(_)) && !self.is_of_kernel()
    }

    /// Whether it has a beginning and an end, and so a duration.
    #[must_use]
    pub fn has_spans(&self) -> bool {
        match self {
            Self::Function(_)
            | Self::Inlined(_)
            | Self::Call { .. }
            | Self::SystemCall(_)
            | Self::KernelFunction(_) => true,
            Self::Line { .. } | Self::Branch { .. } | Self::Address { .. } | Self::Tracepoint { .. } => false,
        }
    }

    /// Whether it is the kernel's own, and not in a file of the target.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        matches!(
            self,
            Self::SystemCall(_) | Self::KernelFunction(_) | Self::Tracepoint { .. }
        )
    }
}

/// A function's name as the user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// Matches as a whole or as the last components of a path; `*` and `?` stand for themselves.
    Exact(String),
    /// Contains `*` (any text) or `?` (any character).
    Glob(String),
}

impl Name {
    /// How a function is called that begins at an address of a file: by both, whether or not it has a name besides.
    #[must_use]
    pub fn at_address(module: &str, address: u64) -> Self {
        Self::Exact(format!("{module}+{address:#x}"))
    }

    /// The file and the address that a function is called by.
    #[must_use]
    pub fn as_address(&self) -> Option<(&str, u64)> {
        let Self::Exact(text) = self else { return None };
        let (module, address) = text.rsplit_once("+0x")?;
        Some((module, u64::from_str_radix(address, 16).ok()?)).filter(|_| !module.is_empty())
    }

    /// Whether functions without names can be meant: it says where in a file they begin.
    #[must_use]
    pub fn may_mean_unnamed(&self) -> bool {
        match self {
            Self::Exact(_) => self.as_address().is_some(),
            Self::Glob(text) => text.contains("+0x"),
        }
    }

    /// The name's text, without quotes.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Glob(text) => text,
        }
    }
}

/// A condition on a span's duration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Predicate {
    /// How the duration compares to the bound.
    pub comparison: Comparison,
    /// What it is compared to.
    pub bound: Bound,
}

/// A comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What a duration is compared to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// A percentile of the durations themselves, which moves as they do.
    Percentile(Percentile),
    /// A fixed time, in nanoseconds.
    Duration(u64),
}

/// A percentile above 0 and below 100, exact to six decimals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Percentile(u32);

impl Percentile {
    /// Units of the stored integer per percent.
    const UNITS: u32 = 1_000_000;

    /// A percentile of so many millionths of a percent; `None` unless above 0 and below 100.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths >= 100 * Self::UNITS {
            None
        } else {
            Some(Self(millionths))
        }
    }

    /// Millionths of a percent: 95,000,000 for p95.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The fraction of values below it, above 0 and below 1.
    #[must_use]
    pub fn quantile(self) -> f64 {
        f64::from(self.0) / f64::from(100 * Self::UNITS)
    }
}

#[cfg(test)]
mod tests;
