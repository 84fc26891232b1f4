//! System calls by who makes them: counts that come in parts are added up, and sums of them are parts of one another.
//!
//! What is counted together are calls of one number, with one result, from one stack. Stacks are numbers here; what they
//! stand for is known to whoever asks for a table, and equal ones there are one caller.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Calls, stacks and results that are told apart. Beyond it stacks are not told apart any more.
pub const MAX_ROWS: usize = 65_536;

/// The number of a stack that was not taken.
pub const NO_STACK: u64 = 0;

/// Calls that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Their number.
    pub calls: u64,
    /// Those that returned an error.
    pub failed: u64,
    /// The sum of their durations.
    pub time_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
}

impl Counted {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// System calls of some processes, by which call `N` it is.
#[derive(Clone, Debug)]
pub struct SystemCalls<N> {
    rows: HashMap<Row<N>, Counted>,
    begun_before: u64,
    /// Calls whose stacks found no room.
    unplaced: u64,
}

/// What is told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Row<N> {
    call: N,
    error: Option<u32>,
    stack: u64,
}

impl<N> Default for SystemCalls<N> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            begun_before: 0,
            unplaced: 0,
        }
    }
}

/// One kind of system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTotal<N, S> {
    /// Which.
    pub call: N,
    /// All of its calls.
    pub all: Counted,
    /// Those that failed, by their error.
    pub errors: BTreeMap<u32, u64>,
    /// Who made them, the most time first; they add up to all.
    pub callers: Vec<(S, Counted)>,
    /// Calls that have not returned.
    pub open: u64,
}

impl<N: Copy + Ord + Hash> SystemCalls<N> {
    /// Takes calls that returned.
    pub fn take(&mut self, call: N, error: Option<u32>, stack: u64, counted: Counted) {
        let mut row = Row { call, error, stack };
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&row) {
            self.unplaced = self.unplaced.saturating_add(counted.calls);
            row.stack = NO_STACK;
        }
        self.rows.entry(row).or_default().add(counted);
    }

    /// Takes calls that returned, and had begun before they were watched.
    pub fn take_begun_before(&mut self, calls: u64) {
        self.begun_before = self.begun_before.saturating_add(calls);
    }

    /// Calls that had begun before.
    #[must_use]
    pub fn begun_before(&self) -> u64 {
        self.begun_before
    }

    /// Calls whose stacks found no room among [`MAX_ROWS`].
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.unplaced
    }

    /// All of them, the most time first, with those that are open; `stack_of` says what a number stands for.
    pub fn table<S: Clone + Ord + Hash>(
        &self,
        open: &BTreeMap<N, u64>,
        mut stack_of: impl FnMut(u64) -> S,
    ) -> Vec<CallTotal<N, S>> {
        struct Part<S> {
            all: Counted,
            errors: BTreeMap<u32, u64>,
            callers: HashMap<S, Counted>,
        }
        let empty = || Part {
            all: Counted::default(),
            errors: BTreeMap::new(),
            callers: HashMap::new(),
        };
        let mut parts: HashMap<N, Part<S>> = open.keys().map(|call| (*call, empty())).collect();
        for (row, counted) in &self.rows {
            let part = parts.entry(row.call).or_insert_with(empty);
            part.all.add(*counted);
            if let Some(error) = row.error {
                let calls = part.errors.entry(error).or_default();
                *calls = calls.saturating_add(counted.calls);
            }
            part.callers.entry(stack_of(row.stack)).or_default().add(*counted);
        }
        let mut table: Vec<_> = parts
            .into_iter()
            .map(|(call, Part { all, errors, callers })| {
                let mut callers: Vec<_> = callers.into_iter().collect();
                callers.sort_by(|(stack, counted), (other_stack, other)| {
                    rank(counted)
                        .cmp(&rank(other))
                        .then_with(|| stack.cmp(other_stack))
                });
                let open = open.get(&call).copied().unwrap_or(0);
                CallTotal {
                    call,
                    all,
                    errors,
                    callers,
                    open,
                }
            })
            .collect();
        table.sort_by_key(|total| (rank(&total.all), Reverse(total.open), total.call));
        table
    }
}

/// The most time first, then the most calls.
fn rank(counted: &Counted) -> (Reverse<u64>, Reverse<u64>) {
    (Reverse(counted.time_ns), Reverse(counted.calls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(calls: u64, failed: u64, time_ns: u64, longest_ns: u64) -> Counted {
        Counted {
            calls,
            failed,
            time_ns,
            longest_ns,
        }
    }

    #[test]
    fn parts_add_up_by_call_error_and_caller() {
        let mut calls = SystemCalls::default();
        calls.take(0, None, 7, counted(3, 0, 30, 20));
        calls.take(0, None, 7, counted(1, 0, 50, 50));
        calls.take(0, Some(2), 8, counted(2, 2, 4, 3));
        calls.take(1, None, NO_STACK, counted(9, 0, 9, 1));
        calls.take_begun_before(2);
        let open = BTreeMap::from([(5, 4), (1, 1)]);
        let table = calls.table(&open, |stack| stack / 8);
        assert_eq!(
            table,
            [
                CallTotal {
                    call: 0,
                    all: counted(6, 2, 84, 50),
                    errors: BTreeMap::from([(2, 2)]),
                    callers: vec![(0, counted(4, 0, 80, 50)), (1, counted(2, 2, 4, 3))],
                    open: 0,
                },
                CallTotal {
                    call: 1,
                    all: counted(9, 0, 9, 1),
                    errors: BTreeMap::new(),
                    callers: vec![(0, counted(9, 0, 9, 1))],
                    open: 1,
                },
                CallTotal {
                    call: 5,
                    all: Counted::default(),
                    errors: BTreeMap::new(),
                    callers: Vec::new(),
                    open: 4,
                },
            ]
        );
        assert_eq!((calls.begun_before(), calls.unplaced()), (2, 0));
    }

    #[test]
    fn beyond_the_bound_calls_count_without_their_stacks() {
        let mut calls = SystemCalls::default();
        for stack in 1..=MAX_ROWS as u64 + 10 {
            calls.take(0, None, stack, counted(2, 0, 1, 1));
        }
        let table = calls.table(&BTreeMap::new(), |stack| stack);
        assert_eq!(table[0].all.calls, 2 * (MAX_ROWS as u64 + 10));
        assert_eq!(calls.unplaced(), 20);
        let without = table[0].callers.iter().find(|(stack, _)| *stack == NO_STACK);
        assert_eq!(without.map(|(_, counted)| counted.calls), Some(20));
    }

    proptest! {
        #[test]
        fn callers_and_errors_are_parts_of_their_call(
            parts in proptest::collection::vec((0_u32..4, 0_u32..3, 0_u64..6, 1_u64..9, 0_u64..99), 0..60)
        ) {
            let mut calls = SystemCalls::default();
            for (call, error, stack, count, time_ns) in &parts {
                let error = (*error > 0).then_some(*error);
                let failed = if error.is_some() { *count } else { 0 };
                calls.take(*call, error, *stack, counted(*count, failed, *time_ns, *time_ns));
            }
            let table = calls.table(&BTreeMap::new(), |stack| stack % 3);
            let all: u64 = table.iter().map(|total| total.all.calls).sum();
            prop_assert_eq!(all, parts.iter().map(|part| part.3).sum::<u64>());
            for total in &table {
                let mut sum = Counted::default();
                total.callers.iter().for_each(|(_, counted)| sum.add(*counted));
                prop_assert_eq!(sum, total.all);
                prop_assert_eq!(total.errors.values().sum::<u64>(), total.all.failed);
            }
        }
    }
}
