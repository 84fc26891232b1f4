//! The processes that a session looks at.

use std::{collections::HashSet, ops::Deref, sync::Arc};

use profiler_target::Process;

use crate::session::attendance::{Attendance, Seen};

/// Processes in the order in which they were found. Of each record it is asked whether one of them has it.
#[derive(Default)]
pub(in crate::session) struct Processes {
    all: Vec<Arc<Process>>,
    pids: HashSet<u32>,
    /// What is seen of them.
    seen: Seen,
    /// Those that have ended or run another program.
    absent: HashSet<u32>,
}

impl Processes {
    /// Whether a process is one of them.
    pub(in crate::session) fn has(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// Has it seen from now on which of them are still there.
    pub(super) fn attend(&mut self, attendance: &Attendance) {
        self.seen = attendance.watch(&self.all);
    }

    /// Those that have left since this was last asked.
    pub(super) fn take_left(&mut self) -> Vec<Arc<Process>> {
        let news = self.seen.take();
        if news.is_empty() {
            return Vec::new();
        }
        let is_there = |process: &Process| news.get(&process.pid()).copied();
        for process in &self.all {
            match is_there(process) {
                Some(true) => _ = self.absent.remove(&process.pid()),
                Some(false) => _ = self.absent.insert(process.pid()),
                None => {}
            }
        }
        let left = self.all.iter().filter(|process| is_there(process) == Some(false));
        left.cloned().collect()
    }

    /// Whether one of them is still there, as far as that was taken, beside this one.
    pub(super) fn has_others(&self, pid: u32) -> bool {
        let is_counted = self.pids.contains(&pid) && !self.absent.contains(&pid);
        self.all.len() > self.absent.len() + usize::from(is_counted)
    }

    /// Whether all have left, as far as that was taken.
    pub(super) fn have_left(&self) -> bool {
        self.all.len() == self.absent.len()
    }

    /// Leaves a process out from now on.
    pub(in crate::session) fn lose(&mut self, pid: u32) {
        self.pids.remove(&pid);
        self.absent.remove(&pid);
        self.all.retain(|process| process.pid() != pid);
    }
}

impl From<Vec<Process>> for Processes {
    fn from(all: Vec<Process>) -> Self {
        Self {
            pids: all.iter().map(Process::pid).collect(),
            all: all.into_iter().map(Arc::new).collect(),
            ..Self::default()
        }
    }
}

impl Deref for Processes {
    type Target = [Arc<Process>];

    fn deref(&self) -> &[Arc<Process>] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn who_has_left_is_told_from_who_is_there() {
        let mut children = [0; 3].map(|_| Command::new("sleep").arg("1000").spawn().unwrap());
        let [first, second, third] = children.each_ref().map(Child::id);
        let all: Vec<Process> = children
            .iter()
            .map(|child| Process::open(child.id()).unwrap())
            .collect();
        let mut processes = Processes::from(all);
        let attendance = Attendance::start().unwrap();
        processes.attend(&attendance);
        assert!(processes.take_left().is_empty());
        let [child, others @ ..] = &mut children;
        child.kill().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + Duration::from_mins(1);
        let left = loop {
            let left = processes.take_left();
            if !left.is_empty() {
                break left;
            }
            assert!(Instant::now() < until, "nothing is seen");
            std::thread::yield_now();
        };
        assert_eq!(
            left.iter().map(|process| process.pid()).collect::<Vec<_>>(),
            [first]
        );
        assert!(processes.has_others(second) && processes.has_others(first));
        processes.lose(second);
        assert!(!processes.has_others(third) && processes.has_others(first));
        assert!(!processes.have_left());
        processes.lose(third);
        assert!(processes.have_left());
        for child in others {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
