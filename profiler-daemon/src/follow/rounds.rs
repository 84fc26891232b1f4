//! When processes are looked at again that nobody asks about: a library can come to lie where another lay.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

/// From one look at a process to the next.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Those that are due so soon are looked at together.
const TOGETHER: Duration = Duration::from_millis(100);

/// How long nothing is due while no process is followed.
const NOBODY: Duration = Duration::from_hours(1);

/// The processes that are followed.
#[derive(Default)]
pub struct Rounds {
    due: HashMap<u32, Instant>,
    /// The same, the next first.
    turns: BTreeSet<Turn>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    due: Instant,
    pid: u32,
}

impl Rounds {
    /// Notes that a process was looked at.
    pub fn note(&mut self, pid: u32, now: Instant) {
        self.forget(pid);
        let due = now + LOOK_AGAIN;
        self.due.insert(pid, due);
        self.turns.insert(Turn { due, pid });
    }

    /// Looks at a process no more.
    pub fn forget(&mut self, pid: u32) {
        if let Some(due) = self.due.remove(&pid) {
            self.turns.remove(&Turn { due, pid });
        }
    }

    /// How long no process is due.
    pub fn pause(&self, now: Instant) -> Duration {
        let next = self.turns.first();
        next.map_or(NOBODY, |turn| turn.due.saturating_duration_since(now))
    }

    /// A process that is due: it is looked at now, and noted then.
    pub fn take_due(&mut self, now: Instant) -> Option<u32> {
        let turn = self.turns.first().filter(|turn| turn.due <= now + TOGETHER)?;
        let pid = turn.pid;
        self.forget(pid);
        Some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are due at a time.
    fn due(rounds: &mut Rounds, now: Instant) -> Vec<u32> {
        let due = std::iter::from_fn(|| rounds.take_due(now));
        let due: Vec<u32> = due.collect();
        for pid in &due {
            rounds.note(*pid, now);
        }
        due
    }

    #[test]
    fn each_process_is_looked_at_once_a_second_unless_it_was_meanwhile() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rounds = Rounds::default();
        assert_eq!(rounds.pause(start), NOBODY);
        rounds.note(1, at(0));
        rounds.note(2, at(50));
        rounds.note(3, at(300));
        assert_eq!(rounds.pause(at(400)), Duration::from_millis(600));
        assert!(due(&mut rounds, at(800)).is_empty());
        rounds.note(1, at(850));
        assert_eq!(due(&mut rounds, at(1000)), [2]);
        assert_eq!(due(&mut rounds, at(1300)), [3]);
        rounds.forget(2);
        rounds.forget(2);
        rounds.note(2, at(1400));
        assert_eq!(due(&mut rounds, at(1850)), [1]);
        assert_eq!(due(&mut rounds, at(2500)), [3, 2]);
        rounds.forget(1);
        rounds.forget(2);
        rounds.forget(3);
        assert_eq!(rounds.pause(at(3000)), NOBODY);
    }
}
