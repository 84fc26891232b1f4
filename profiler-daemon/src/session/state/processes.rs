//! The processes that a session looks at.

use std::{collections::HashSet, ops::Deref};

use profiler_target::Process;

/// Processes in the order in which they were found. Of each record it is asked whether one of them has it.
#[derive(Default)]
pub(in crate::session) struct Processes {
    all: Vec<Process>,
    pids: HashSet<u32>,
}

impl Processes {
    /// Whether a process is one of them.
    pub(in crate::session) fn has(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// Leaves a process out from now on.
    pub(in crate::session) fn lose(&mut self, pid: u32) {
        self.pids.remove(&pid);
        self.all.retain(|process| process.pid() != pid);
    }
}

impl From<Vec<Process>> for Processes {
    fn from(all: Vec<Process>) -> Self {
        Self {
            pids: all.iter().map(Process::pid).collect(),
            all,
        }
    }
}

impl Deref for Processes {
    type Target = [Process];

    fn deref(&self) -> &[Process] {
        &self.all
    }
}
