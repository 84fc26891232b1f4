//! Processes that leave a session while it looks at others.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What has a process leave a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DepartureCause {
    /// It ended.
    Ended,
    /// It runs another program.
    AnotherProgram,
    /// The session's owner may look at it no more.
    NotAllowed,
}

/// Why a process leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// What brings it about.
    pub cause: DepartureCause,
    /// In words.
    pub reason: String,
    /// The number of the signal that ended it, where one did.
    pub signal: Option<u32>,
}

impl Leaving {
    /// For another reason than a signal.
    pub fn of(cause: DepartureCause, reason: impl Into<String>) -> Self {
        Self {
            cause,
            reason: reason.into(),
            signal: None,
        }
    }
}

/// A process that left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Its number.
    pub pid: u32,
    /// What it is called.
    pub name: String,
    /// Why it left.
    pub why: Leaving,
    /// How many are left.
    pub left: usize,
    /// How many there were when the session began.
    pub of: usize,
}

/// Those of a session in the order in which they left, as its streams read them: each process leaves once, so that there are no more
/// than a session looks at. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct Departures(Arc<Mutex<Vec<Departure>>>);

impl Departures {
    /// Those behind the first so many.
    #[must_use]
    pub fn behind(&self, told: usize) -> Vec<Departure> {
        self.lock().get(told..).unwrap_or_default().to_vec()
    }

    fn push(&self, departure: Departure) {
        self.lock().push(departure);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Departure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which processes of a session have left.
#[derive(Default)]
pub struct Departed {
    pids: HashSet<u32>,
    /// How many there were when the session began.
    of: usize,
    told: Departures,
}

impl Departed {
    /// None yet of so many.
    pub fn of(of: usize) -> Self {
        Self {
            of,
            ..Self::default()
        }
    }

    /// Whether a process has left.
    pub fn has(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// Notes that a process left, where that is not known.
    pub fn note(&mut self, pid: u32, name: &str, why: Leaving) {
        if self.pids.insert(pid) {
            self.told.push(Departure {
                pid,
                name: name.to_owned(),
                why,
                left: self.of.saturating_sub(self.pids.len()),
                of: self.of,
            });
        }
    }

    /// For the session's streams.
    pub fn told(&self) -> Departures {
        self.told.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(pid: u32) -> Leaving {
        Leaving::of(DepartureCause::Ended, format!("process {pid} ended"))
    }

    #[test]
    fn a_process_leaves_once_and_each_stream_is_told_what_it_was_not() {
        let mut departed = Departed::of(3);
        let told = departed.told();
        departed.note(7, "a", ended(7));
        departed.note(7, "a", ended(7));
        let first = told.behind(0);
        let [seven] = &*first else { panic!("{first:?}") };
        assert_eq!((seven.pid, seven.left, seven.of), (7, 2, 3));
        departed.note(8, "b", ended(8));
        let second = told.behind(1);
        let [eight] = &*second else { panic!("{second:?}") };
        assert_eq!((eight.pid, eight.left, eight.of), (8, 1, 3));
        assert!(departed.has(8) && !departed.has(9));
        assert!(told.behind(2).is_empty() && told.behind(9).is_empty());
    }
}
