//! How much of a target's CPU time a session's probes may take, and which of them have to go when they take more.
//!
//! What a probe takes is the number of times that it was reached, by what reaching it was measured to take on this machine.
//!
//! See `docs/internals/budget.md` for how probes keep to a budget.

use std::collections::{HashMap, VecDeque};

use profiler_common::probe::ProbeId;

use super::picture::BudgetUse;

/// Share of the target's CPU time that probes may take where nothing else is asked for.
pub const DEFAULT_BUDGET: f64 = 0.03;

/// Costs are held against the CPU time of this long: a burst of calls that is over sooner costs no more than its share of it.
const WINDOW_NS: u64 = 1_000_000_000;

/// Share of one CPU that probes may take whatever the target does: one that is idle has hardly any time of its own.
pub const ALWAYS_ALLOWED: f64 = 0.005;

/// Time between looks.
const LOOK_NS: u64 = 250_000_000;

/// The same while probes are new, whose rate nobody knows yet.
const FIRST_LOOK_NS: u64 = 50_000_000;

/// For so long they are new.
const NEW_NS: u64 = 500_000_000;

/// CPU time is held against costs over this long at least: the kernel may count that of a running thread a scheduler's tick late.
const LEAST_NS: u64 = 40_000_000;

/// The share of its CPU time that probes would take of a target, where that is over the budget.
///
/// `cost_cores` is what they would take and `busy_cores` what the target takes without them, both in CPUs.
#[must_use]
pub fn excess(budget: f64, cost_cores: f64, busy_cores: f64) -> Option<f64> {
    let share = cost_cores / (cost_cores + busy_cores);
    (cost_cores > ALWAYS_ALLOWED && share > budget).then_some(share)
}

/// Probes that can be taken off the target together, and no others with them.
#[derive(Clone, Debug)]
pub struct Probed(pub Vec<Reached>);

/// Where it is counted how often probes are reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counter {
    /// Of a probe by itself.
    Probe(ProbeId),
    /// Of the functions of a process's allocator that allocate.
    Allocating(u32),
    /// Of those that only free.
    Freeing(u32),
    /// Nanoseconds that stacks of those that allocate took: each counts as one that costs one.
    Stacking(u32),
}

impl Counter {
    /// Whether it is of times, and not of nanoseconds.
    fn is_of_times(self) -> bool {
        !matches!(self, Self::Stacking(_))
    }
}

/// Probes that are counted together, and how often they were reached.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Which.
    pub counter: Counter,
    /// Times.
    pub hits: u64,
    /// CPU time that the target spends each time, in nanoseconds.
    pub cost_ns: u64,
}

/// Probes that cost too much.
#[derive(Clone, PartialEq, Debug)]
pub struct Excess {
    /// Which of those that were looked at have to go, the costliest first.
    pub costly: Vec<Costly>,
    /// What is allowed, as a share of the target's CPU time.
    pub allowed: f64,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costly {
    /// Its index.
    pub index: usize,
    /// Times a second that it was reached.
    pub hits_per_s: f64,
    /// Share of the target's CPU time that this took.
    pub share: f64,
}

/// What is allowed, and what was counted lately.
#[derive(Debug)]
pub struct Budget {
    share: f64,
    looks: VecDeque<Look>,
    new_until_ns: u64,
    next_ns: u64,
    /// Until then the CPU time is read at each look, as costs have mattered lately.
    matters_until_ns: u64,
    /// The share of the target's CPU time that probes took at the last look that knew it; `None` while it is always allowed.
    taken: Option<f64>,
}

/// What was counted up to a moment.
#[derive(Debug)]
struct Look {
    at_ns: u64,
    hits: HashMap<Counter, u64>,
    /// CPU time of the target so far; `None` where nobody had to know.
    cpu_ns: Option<u64>,
}

impl Budget {
    /// Allows probes this share of the target's CPU time.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self {
            share,
            looks: VecDeque::new(),
            new_until_ns: 0,
            next_ns: 0,
            matters_until_ns: 0,
            taken: None,
        }
    }

    /// The share.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// How much of it probes take lately.
    #[must_use]
    pub fn used(&self) -> Option<BudgetUse> {
        self.taken.map(|taken| BudgetUse {
            taken,
            allowed: self.share,
        })
    }

    /// Looks more often for a while, as there are probes whose rate is not known.
    pub fn expect_new(&mut self, now_ns: u64) {
        self.new_until_ns = now_ns + NEW_NS;
        self.next_ns = now_ns;
    }

    /// Whether it is time for a look.
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// What has to go so that the rest keeps within the budget, if anything: no more than that, and never one that costs less than
    /// one that stays. `cpu_ns` gives the target's CPU time so far; it is asked only where that matters.
    pub fn look(
        &mut self,
        now_ns: u64,
        probed: &[Probed],
        cpu_ns: impl FnOnce() -> Option<u64>,
    ) -> Option<Excess> {
        let is_new = now_ns < self.new_until_ns;
        self.next_ns = now_ns + if is_new { FIRST_LOOK_NS } else { LOOK_NS };
        if probed.is_empty() {
            // Nothing costs anything: nobody has to know the target's CPU time.
            self.looks.clear();
            self.taken = None;
            return None;
        }
        while self
            .looks
            .get(1)
            .is_some_and(|second| second.at_ns.saturating_add(WINDOW_NS) <= now_ns)
        {
            self.looks.pop_front();
        }
        let costs = self.looks.front().map(|first| first.costs(now_ns, probed));
        let reached = probed.iter().flat_map(|Probed(reached)| reached);
        let hits = reached.map(|reached| (reached.counter, reached.hits));
        let mut look = Look {
            at_ns: now_ns,
            hits: hits.collect(),
            cpu_ns: None,
        };
        let costs = costs.unwrap_or_default();
        let always_ns = ALWAYS_ALLOWED * costs.elapsed_ns.max(WINDOW_NS) as f64;
        let is_costly = costs.total_ns() > always_ns;
        let first = self.looks.front();
        if first.is_none() || is_costly {
            self.matters_until_ns = now_ns + 2 * WINDOW_NS;
        }
        if now_ns < self.matters_until_ns {
            look.cpu_ns = cpu_ns();
        }
        if is_costly && first.is_some_and(|first| first.cpu_ns.is_none()) {
            // Costs are held against the CPU time of the very same time: both are told from here on.
            self.looks.clear();
            self.next_ns = now_ns + FIRST_LOOK_NS;
        }
        let rate = self.cpu_rate(&look).filter(|_| is_costly);
        self.taken = match rate {
            Some(rate) => Some(costs.share(costs.total_ns(), rate)),
            None => self.taken.filter(|_| is_costly),
        };
        self.looks.push_back(look);
        let excess = costs.excess(rate?, self.share, always_ns)?;
        // What is left is looked at afresh.
        self.looks.clear();
        Some(excess)
    }

    /// CPU time of the target in a nanosecond, from the first look up to now; `None` where that is not known.
    fn cpu_rate(&self, now: &Look) -> Option<f64> {
        let first = self.looks.front()?;
        let elapsed_ns = now.at_ns.saturating_sub(first.at_ns);
        let cpu_ns = now.cpu_ns?.checked_sub(first.cpu_ns?)?;
        (elapsed_ns >= LEAST_NS).then(|| cpu_ns as f64 / elapsed_ns as f64)
    }
}

/// What probes took since a look.
#[derive(Debug, Default)]
struct Costs {
    elapsed_ns: u64,
    /// For each, times that it was reached and what that took.
    of: Vec<Cost>,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    hits: u64,
    ns: u64,
}

impl Look {
    fn costs(&self, now_ns: u64, probed: &[Probed]) -> Costs {
        let of = probed.iter().map(|Probed(reached)| {
            let mut cost = Cost { hits: 0, ns: 0 };
            for Reached {
                counter,
                hits,
                cost_ns,
            } in reached
            {
                let before = self.hits.get(counter).copied().unwrap_or(0);
                let hits = hits.saturating_sub(before);
                if counter.is_of_times() {
                    cost.hits += hits;
                }
                cost.ns = cost.ns.saturating_add(hits.saturating_mul(*cost_ns));
            }
            cost
        });
        Costs {
            elapsed_ns: now_ns.saturating_sub(self.at_ns),
            of: of.collect(),
        }
    }
}

impl Costs {
    fn total_ns(&self) -> f64 {
        self.of.iter().map(|cost| cost.ns as f64).sum()
    }

    /// The share that so much is of the target's CPU time, of which there was so much in a nanosecond. What was measured of a probe may
    /// be more than what it takes here.
    fn share(&self, ns: f64, cpu_rate: f64) -> f64 {
        let cpu_ns = cpu_rate * self.elapsed_ns as f64;
        ns / cpu_ns.max(ns).max(1.0)
    }

    /// `cpu_rate` is CPU time of the target in a nanosecond.
    fn excess(&self, cpu_rate: f64, share: f64, always_ns: f64) -> Option<Excess> {
        // As long as less than the window has gone by, nothing is said of the rest of it.
        let cpu_ns = cpu_rate * self.elapsed_ns.max(WINDOW_NS) as f64;
        let allowed_ns = always_ns.max(share * cpu_ns);
        let mut order: Vec<usize> = (0..self.of.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(self.of[*index].ns));
        let mut left_ns = self.total_ns();
        let mut costly = Vec::new();
        for index in order {
            if left_ns <= allowed_ns {
                break;
            }
            let Cost { hits, ns } = self.of[index];
            left_ns -= ns as f64;
            let elapsed_ns = self.elapsed_ns.max(1) as f64;
            costly.push(Costly {
                index,
                hits_per_s: hits as f64 * 1e9 / elapsed_ns,
                share: self.share(ns as f64, cpu_rate),
            });
        }
        (!costly.is_empty()).then_some(Excess {
            costly,
            allowed: share,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn probed(hits: &[u64], cost_ns: u64) -> Vec<Probed> {
        let of = |(number, hits): (u32, &u64)| {
            Probed(vec![Reached {
                counter: Counter::Probe(ProbeId(number)),
                hits: *hits,
                cost_ns,
            }])
        };
        (0..).zip(hits).map(of).collect()
    }

    #[test]
    fn without_probes_nobody_asks_for_the_cpu_time_and_those_that_come_are_held_to_the_budget() {
        let mut budget = Budget::new(0.03);
        budget.expect_new(0);
        for tick in 0..20 {
            assert_eq!(budget.look(tick * 50 * MS, &[], || panic!("it is asked")), None);
        }
        budget.expect_new(1000 * MS);
        let mut excess = None;
        for tick in 0..20_u64 {
            let (now_ns, hits) = ((1000 + tick * 50) * MS, tick * 50_000);
            let cpu_ns = Some(tick * 50 * MS);
            excess = excess.or(budget.look(now_ns, &probed(&[hits], 1000), || cpu_ns));
        }
        assert!(excess.is_some());
    }

    #[test]
    fn what_stacks_take_is_a_cost_and_no_call() {
        let mut budget = Budget::new(0.03);
        let probed = |allocations, stacks_ns| {
            let reached = |counter, hits, cost_ns| Reached {
                counter,
                hits,
                cost_ns,
            };
            [Probed(vec![
                reached(Counter::Allocating(7), allocations, 1000),
                reached(Counter::Stacking(7), stacks_ns, 1),
            ])]
        };
        // It runs on one CPU all the time, and allocates ten thousand times a second.
        assert_eq!(budget.look(0, &probed(0, 0), || Some(0)), None);
        let within = budget.look(1000 * MS, &probed(10_000, 0), || Some(1000 * MS));
        assert_eq!(within, None);
        let used = budget.used().unwrap();
        assert!((used.taken - 0.01).abs() < 0.001, "{used:?}");
        assert!((used.allowed - 0.03).abs() < 1e-9, "{used:?}");
        let over = budget.look(2000 * MS, &probed(20_000, 100 * MS), || Some(2000 * MS));
        let [costly] = over.unwrap().costly[..] else {
            panic!("one has to go")
        };
        assert!((costly.hits_per_s - 10_000.0).abs() < 1.0, "{costly:?}");
        assert!((costly.share - 0.11).abs() < 0.001, "{costly:?}");
    }

    /// Looks as often as it wants to, at functions that are called so often a second; gives when something had to go, and what.
    fn run(share: f64, cpu_share: f64, calls_per_s: &[u64], cost_ns: u64) -> Option<(u64, Vec<usize>)> {
        let mut budget = Budget::new(share);
        let at = |now_ns: u64| {
            let hits: Vec<u64> = calls_per_s
                .iter()
                .map(|calls| calls * now_ns / 1_000_000_000)
                .collect();
            probed(&hits, cost_ns)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a duration"
        )]
        let cpu = |now_ns: u64| Some((now_ns as f64 * cpu_share) as u64);
        budget.expect_new(0);
        assert!(budget.is_due(0), "the first look says what there was before");
        assert_eq!(budget.look(0, &at(0), || cpu(0)), None);
        for now_ns in (10 * MS..10_000 * MS).step_by(10_000_000) {
            if budget.is_due(now_ns)
                && let Some(excess) = budget.look(now_ns, &at(now_ns), || cpu(now_ns))
            {
                let costly = excess.costly.iter().map(|costly| costly.index);
                return Some((now_ns, costly.collect()));
            }
        }
        None
    }

    #[test]
    fn an_estimate_is_held_against_the_same_budget() {
        assert_eq!(excess(0.03, 0.25, 0.75), Some(0.25));
        assert_eq!(excess(0.03, 0.02, 0.98), None);
        assert_eq!(excess(0.03, 0.004, 0.0), None, "next to nothing");
        assert_eq!(excess(0.03, 0.0, 0.0), None);
    }

    #[test]
    fn a_very_hot_probe_goes_at_the_first_look() {
        assert_eq!(run(0.03, 1.0, &[400_000], 3_000), Some((50 * MS, vec![0])));
    }

    #[test]
    fn one_just_over_the_budget_goes_within_two_seconds() {
        let (at_ns, costly) = run(0.03, 1.0, &[11_000], 3_000).unwrap();
        assert_eq!(costly, [0]);
        assert!(at_ns <= 2_000 * MS, "{at_ns}");
    }

    #[test]
    fn keeps_probes_within_the_budget() {
        assert_eq!(run(0.03, 1.0, &[9_000], 3_000), None);
        // Of eight busy threads the same share is eight times as much.
        assert_eq!(run(0.03, 8.0, &[70_000], 3_000), None);
        assert_eq!(run(0.5, 1.0, &[100_000], 3_000), None);
    }

    #[test]
    fn an_idle_target_keeps_probes_that_cost_next_to_nothing() {
        assert_eq!(run(0.03, 0.01, &[1_500], 3_000), None);
        assert!(run(0.03, 0.01, &[2_500], 3_000).is_some());
    }

    #[test]
    fn the_costliest_go_and_no_others() {
        let (_, costly) = run(0.03, 1.0, &[3_000, 2_000_000, 2_000, 1_000_000], 3_000).unwrap();
        assert_eq!(costly, [1, 3]);
    }

    #[test]
    fn tolerates_a_burst_within_the_budget_of_a_second() {
        let mut budget = Budget::new(0.03);
        // 27 ms of cost at once, and nothing before or after.
        let calls = |now_ns: u64| if now_ns > 3_000 * MS { 9_000 } else { 0 };
        for now_ns in (0..10_000 * MS).step_by(250_000_000) {
            let excess = budget.look(now_ns, &probed(&[calls(now_ns)], 3_000), || Some(now_ns));
            assert_eq!(excess, None, "{now_ns}");
        }
    }

    /// A target that sleeps and then works for a while, with probes that take a share of that: bursts of calls of a time and a distance,
    /// at a rate while they last. Gives when something had to go.
    fn bursts(taken_per_mille: u64, burst_ns: u64, every_ns: u64) -> Option<u64> {
        let mut budget = Budget::new(0.03);
        let cost_ns = 3_000;
        budget.expect_new(0);
        for now_ns in (0..20_000 * MS).step_by(10_000_000) {
            if !budget.is_due(now_ns) {
                continue;
            }
            // It sleeps first, as long as one distance.
            let awake_ns = now_ns.saturating_sub(every_ns);
            let busy_ns =
                (awake_ns / every_ns * burst_ns.min(every_ns)) + (awake_ns % every_ns).min(burst_ns);
            let hits = busy_ns * taken_per_mille / 1_000 / cost_ns;
            if budget
                .look(now_ns, &probed(&[hits], cost_ns), || Some(busy_ns))
                .is_some()
            {
                return Some(now_ns);
            }
        }
        None
    }

    #[test]
    fn a_steady_cost_over_the_budget_goes_whenever_it_begins() {
        for (taken_per_mille, goes) in [(28, false), (32, true), (36, true), (200, true)] {
            // Busy all of the time, after one second or eight of sleep.
            for asleep_ns in [1_000 * MS, 8_000 * MS] {
                let gone_ns = bursts(taken_per_mille, u64::MAX, asleep_ns);
                assert_eq!(gone_ns.is_some(), goes, "{taken_per_mille} per mille");
                let after_ns = gone_ns.map_or(0, |gone_ns| gone_ns - asleep_ns);
                assert!(after_ns <= 2_000 * MS, "{taken_per_mille} per mille: {after_ns}");
            }
        }
    }

    #[test]
    fn compares_bursts_with_the_cpu_time_of_the_same_period() {
        for (burst_ns, every_ns) in [
            (300 * MS, 5_000 * MS),
            (300 * MS, 700 * MS),
            (900 * MS, 4_000 * MS),
        ] {
            assert_eq!(bursts(25, burst_ns, every_ns), None, "{burst_ns} of {every_ns}");
        }
        // As much more as it has to be for a burst that is over within the second.
        assert!(bursts(500, 300 * MS, 5_000 * MS).is_some());
    }

    #[test]
    fn where_the_cpu_time_is_not_known_nothing_goes() {
        let mut budget = Budget::new(0.03);
        for now_ns in (0..3_000 * MS).step_by(250_000_000) {
            assert_eq!(budget.look(now_ns, &probed(&[now_ns], 3_000), || None), None);
        }
    }

    proptest! {
        #[test]
        fn the_rest_keeps_within_the_budget_and_nothing_goes_in_vain(
            costs in prop::collection::vec(0_u64..50_000_000, 1..20),
            cpu_rate in 0.0..16.0_f64,
            share in 0.001..0.5_f64,
        ) {
            let all = Costs {
                elapsed_ns: WINDOW_NS,
                of: costs.iter().map(|ns| Cost { hits: 1, ns: *ns }).collect(),
            };
            let always_ns = ALWAYS_ALLOWED * WINDOW_NS as f64;
            let allowed_ns = always_ns.max(share * cpu_rate * WINDOW_NS as f64);
            let excess = all.excess(cpu_rate, share, always_ns);
            let gone: Vec<usize> = excess.iter().flat_map(|excess| &excess.costly).map(|costly| costly.index).collect();
            let of = |keep: &dyn Fn(usize) -> bool| -> u64 {
                (0..costs.len()).filter(|index| keep(*index)).map(|index| costs[index]).sum()
            };
            prop_assert!(of(&|index| !gone.contains(&index)) as f64 <= allowed_ns + 1.0);
            // Without the last to go, what stays would be too much; and nothing that stays costs more than what went.
            if let Some(last) = gone.last() {
                prop_assert!(of(&|index| index == *last || !gone.contains(&index)) as f64 > allowed_ns - 1.0);
                let most_left = (0..costs.len()).filter(|index| !gone.contains(index)).map(|index| costs[index]).max();
                prop_assert!(most_left.unwrap_or(0) <= costs[*last]);
            }
        }
    }
}
