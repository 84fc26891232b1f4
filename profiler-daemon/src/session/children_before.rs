//! Processes that a target begins before it is probed: how many will pay for its probes.
//!
//! A child with a copy of its parent's memory has the breakpoints in it too, and stops at each that it reaches as long as it runs its
//! parent's program. So who asks for probes is told before how many children there will be a second. The programs count them from when
//! the request is known to be allowed: while files are read and the scope is planned.

use std::time::Duration;

use profiler_target::Process;

use super::{
    command::{Caller, Command, Handle},
    prepare::Prepared,
};

/// The least time that children are counted in, where there may be any: shorter, the number says nothing of how many begin a second. A
/// process that has no child, and has waited for none, is not waited for.
const COUNTED_NS: u64 = 100_000_000;

/// From so many children on it is said how many begin a second: of fewer, the rate would be by chance.
const RATED_FROM: u64 = 5;

/// Parents that are spelled out.
const MAX_SAID: usize = 5;

/// What the programs have counted of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildrenCount {
    pub pid: u32,
    /// Processes that it has begun with a copy of its memory, by then.
    pub count: u64,
    /// When that was read.
    pub at_ns: u64,
    /// Since when they are counted without a gap, at least.
    pub since_ns: u64,
}

/// A process in whose code there will be probes.
pub struct Parent {
    pid: u32,
    name: String,
    /// Children of it that run.
    running: usize,
    /// Children of it have ended.
    have_ended: bool,
}

/// What was counted of a process between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    count: u64,
    ns: u64,
}

impl Parent {
    /// Of each process.
    pub fn all(processes: &[Process]) -> Vec<Self> {
        let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
        let children = profiler_target::children(&pids).unwrap_or_default();
        let parent = |process: &Process| {
            let children = children.get(&process.pid()).copied().unwrap_or_default();
            Self {
                pid: process.pid(),
                name: process.name().to_owned(),
                running: children.running,
                have_ended: children.have_ended,
            }
        };
        processes.iter().map(parent).collect()
    }

    /// Whether it begins others, as far as is known.
    fn may_begin_others(&self, begun: Option<Begun>) -> bool {
        self.running > 0 || self.have_ended || begun.is_some_and(|begun| begun.count > 0)
    }

    /// What is said of its children before it is probed.
    fn warning(&self, begun: Option<Begun>) -> Option<String> {
        let Self { pid, name, .. } = self;
        let (children, those) = match begun.filter(|begun| begun.count > 0) {
            Some(begun) => {
                let (said, those) = begun.said();
                (format!("began {said} before it was probed"), those)
            }
            None => match self.running {
                0 => return None,
                1 => ("has a child process".to_owned(), LATER),
                count => (format!("has {count} child processes"), LATER),
            },
        };
        Some(format!("{pid} ({name}) {children}: {those}"))
    }
}

/// What is said of the children of a process that has begun none of late.
const LATER: &str = "those that it begins from now on pay for each probe that they reach, as long as they run its program, and are not \
                     counted";

impl Begun {
    /// Between two readings; `None` where it was not counted all the time.
    fn between(before: &ChildrenCount, after: &ChildrenCount) -> Option<Self> {
        (after.since_ns <= before.at_ns).then(|| Self {
            count: after.count.saturating_sub(before.count),
            ns: after.at_ns.saturating_sub(before.at_ns),
        })
    }

    /// How many, and what they do from now on.
    fn said(self) -> (String, &'static str) {
        let Self { count, ns } = self;
        let took = format!("{} ms", ns / 1_000_000);
        let each = "each such process pays for each probe that it reaches, as long as it runs its parent's program, and is not counted";
        if count == 1 {
            return (format!("1 process in {took}"), each);
        }
        let rate = if count >= RATED_FROM {
            let rate = count as f64 * 1e9 / ns.max(1) as f64;
            format!(" ({rate:.0} a second)")
        } else {
            String::new()
        };
        (format!("{count} processes in {took}{rate}"), each)
    }
}

/// Readings before probes are attached, and the parents that they are of.
struct Counting<'a> {
    parents: &'a [Parent],
    before: Vec<ChildrenCount>,
    after: Vec<ChildrenCount>,
}

impl Counting<'_> {
    /// Takes over a later reading. What is counted anew since the first one begins with this.
    fn read(&mut self, counts: Vec<ChildrenCount>) {
        for count in &counts {
            match self.before.iter_mut().find(|before| before.pid == count.pid) {
                Some(before) if count.since_ns > before.at_ns => *before = *count,
                Some(_) => {}
                None => self.before.push(*count),
            }
        }
        self.after = counts;
    }

    fn begun(&self, pid: u32) -> Option<Begun> {
        let of = |counts: &[ChildrenCount]| counts.iter().find(|count| count.pid == pid).copied();
        Begun::between(&of(&self.before)?, &of(&self.after)?)
    }

    /// How long to count on, as there are parents that were counted for too short a time; in nanoseconds.
    fn missing_ns(&self) -> u64 {
        let begun = self.parents.iter().filter_map(|parent| {
            let begun = self.begun(parent.pid)?;
            parent.may_begin_others(Some(begun)).then_some(begun)
        });
        let shortest = begun.map(|begun| begun.ns).min();
        COUNTED_NS.saturating_sub(shortest.unwrap_or(COUNTED_NS))
    }

    /// What is said of them, of those that begin most first.
    fn warnings(&self) -> Vec<String> {
        let of = |parent: &Parent| (self.begun(parent.pid), parent.running);
        let mut parents: Vec<&Parent> = self.parents.iter().collect();
        parents.sort_by_key(|parent| {
            let (begun, running) = of(parent);
            std::cmp::Reverse((begun.map_or(0, |begun| begun.count), running))
        });
        let said = parents
            .into_iter()
            .filter_map(|parent| parent.warning(of(parent).0));
        said.take(MAX_SAID).collect()
    }
}

impl Prepared {
    /// Says which processes have children, of a session that is probed already.
    pub fn warn_of_running_children(&mut self) {
        let counting = Counting {
            parents: &self.parents,
            before: Vec::new(),
            after: Vec::new(),
        };
        let warnings = counting.warnings();
        self.warnings.extend(warnings);
    }
}

impl Handle {
    /// Says how many children the processes begin that are about to be probed. It waits for [`COUNTED_NS`] at most, and for that only where
    /// there are parents among them.
    pub(super) async fn warn_of_children(&self, caller: Caller, prepared: &mut Prepared) {
        if prepared.parents.is_empty() {
            return;
        }
        let pids: Vec<u32> = prepared.parents.iter().map(|parent| parent.pid).collect();
        let mut counting = Counting {
            parents: &prepared.parents,
            before: std::mem::take(&mut prepared.children_before),
            after: Vec::new(),
        };
        counting.read(self.count_children(caller, pids.clone()).await);
        let missing_ns = counting.missing_ns();
        if missing_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(missing_ns)).await;
            counting.read(self.count_children(caller, pids).await);
        }
        let warnings = counting.warnings();
        prepared.warnings.extend(warnings);
    }

    /// What the programs have counted of the children of processes, which they count from now on; nothing where they cannot.
    pub(super) async fn count_children(&self, caller: Caller, pids: Vec<u32>) -> Vec<ChildrenCount> {
        let counts = self.ask(caller, |reply| Command::CountChildren { caller, pids, reply });
        counts.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the children of processes are not counted");
            Vec::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn parent(running: usize, have_ended: bool) -> Parent {
        Parent {
            pid: 7,
            name: "postgres".to_owned(),
            running,
            have_ended,
        }
    }

    fn count(count: u64, at_ms: u64, since_ms: u64) -> ChildrenCount {
        ChildrenCount {
            pid: 7,
            count,
            at_ns: at_ms * MS,
            since_ns: since_ms * MS,
        }
    }

    fn counting(parents: &[Parent], readings: impl IntoIterator<Item = ChildrenCount>) -> Counting<'_> {
        let mut counting = Counting {
            parents,
            before: Vec::new(),
            after: Vec::new(),
        };
        for reading in readings {
            counting.read(vec![reading]);
        }
        counting
    }

    #[test]
    fn the_rate_is_of_the_time_before_the_probes() {
        let parents = [parent(6, true)];
        let counting = counting(&parents, [count(1000, 50, 10), count(1041, 154, 10)]);
        assert_eq!(counting.missing_ns(), 0);
        let [warning] = &counting.warnings()[..] else {
            panic!("one")
        };
        assert!(
            warning.starts_with(
                "7 (postgres) began 41 processes in 104 ms (394 a second) before it was probed: each"
            ),
            "{warning}"
        );
    }

    #[test]
    fn few_children_have_no_rate() {
        let parents = [parent(0, false)];
        for (begun, said) in [
            (1, "1 process in 100 ms before"),
            (4, "4 processes in 100 ms before"),
        ] {
            let counting = counting(&parents, [count(0, 0, 0), count(begun, 100, 0)]);
            let warnings = counting.warnings();
            assert!(warnings[0].contains(said), "{warnings:?}");
        }
    }

    #[test]
    fn a_process_without_children_is_not_waited_for() {
        let is_waited_for = |parents: &[Parent], begun| {
            let counting = counting(parents, [count(0, 0, 0), count(begun, 5, 0)]);
            counting.missing_ns() == 95 * MS
        };
        assert!(!is_waited_for(&[parent(0, false)], 0));
        assert!(is_waited_for(&[parent(0, false)], 1));
        assert!(is_waited_for(&[parent(1, false)], 0));
        assert!(is_waited_for(&[parent(0, true)], 0));
        let idle = [parent(0, true)];
        let counting = counting(&idle, [count(3, 0, 0), count(3, 200, 0)]);
        assert!(counting.warnings().is_empty(), "it begins none any more");
    }

    #[test]
    fn what_is_counted_anew_begins_with_its_first_reading() {
        let parents = [parent(2, false)];
        // The programs were loaded anew meanwhile.
        let mut counting = counting(&parents, [count(900, 0, 0), count(3, 4000, 3999)]);
        assert_eq!(counting.begun(7), Some(Begun { count: 0, ns: 0 }));
        assert_eq!(counting.missing_ns(), COUNTED_NS);
        counting.read(vec![count(13, 4100, 3999)]);
        assert!(counting.warnings()[0].contains("began 10 processes in 100 ms (100 a second)"));
        // Not counted at all.
        counting.read(Vec::new());
        assert_eq!(counting.missing_ns(), 0);
        assert!(counting.warnings()[0].starts_with("7 (postgres) has 2 child processes: those"));
    }
}
