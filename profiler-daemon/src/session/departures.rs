//! Processes that leave a session while it looks at others, and those that load other files in place of what is probed in them.

use std::{
    collections::HashSet,
    path::PathBuf,
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

/// A file that is mapped in a process no more, but another one of its path is: probes in it see no calls of that process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacedFile {
    /// The process's number.
    pub pid: u32,
    /// What the process is called.
    pub name: String,
    /// The path of both files.
    pub path: PathBuf,
}

impl ReplacedFile {
    /// In words.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { pid, name, path } = self;
        format!(
            "process {pid} ({name}) has loaded another {}: its calls since then were not seen",
            path.display()
        )
    }
}

/// What happened in a session, in its order, as its streams read it. Cheap to clone.
#[derive(Debug)]
pub struct Told<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Told<T> {
    /// All behind the first so many.
    #[must_use]
    pub fn behind(&self, told: usize) -> Vec<T> {
        self.lock().get(told..).unwrap_or_default().to_vec()
    }

    fn push(&self, one: T) {
        self.lock().push(one);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Told<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Told<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// What a session's streams tell of its processes. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct Departures {
    /// Those that left: each once, so that there are no more than a session looks at.
    pub left: Told<Departure>,
    /// Files that processes replaced: each of a process once, so that there are no more than places whose code is watched.
    pub replaced: Told<ReplacedFile>,
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
            self.told.left.push(Departure {
                pid,
                name: name.to_owned(),
                why,
                left: self.of.saturating_sub(self.pids.len()),
                of: self.of,
            });
        }
    }

    /// Notes that a process has replaced a file; whether that was not known.
    pub fn note_replaced(&mut self, file: &ReplacedFile) -> bool {
        let is_new = !self.told.replaced.lock().contains(file);
        if is_new {
            self.told.replaced.push(file.clone());
        }
        is_new
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
        let first = told.left.behind(0);
        let [seven] = &*first else { panic!("{first:?}") };
        assert_eq!((seven.pid, seven.left, seven.of), (7, 2, 3));
        departed.note(8, "b", ended(8));
        let second = told.left.behind(1);
        let [eight] = &*second else { panic!("{second:?}") };
        assert_eq!((eight.pid, eight.left, eight.of), (8, 1, 3));
        assert!(departed.has(8) && !departed.has(9));
        assert!(told.left.behind(2).is_empty() && told.left.behind(9).is_empty());
    }

    #[test]
    fn a_file_that_a_process_replaced_is_told_once() {
        let mut departed = Departed::of(2);
        let file = |pid| ReplacedFile {
            pid,
            name: "calls".to_owned(),
            path: "/srv/plugin.so".into(),
        };
        let new: Vec<bool> = [7, 8, 7]
            .iter()
            .map(|pid| departed.note_replaced(&file(*pid)))
            .collect();
        assert_eq!(new, [true, true, false]);
        assert_eq!(departed.told().replaced.behind(1), [file(8)]);
        assert!(departed.told().left.behind(0).is_empty(), "it is still looked at");
    }
}
