//! Names of the threads that a stream tells of.

use std::collections::HashSet;

use profiler_aggregate::ThreadId;
use profiler_proto::v1;
use profiler_symbolize::name_of_thread;

/// Threads whose names were told, at most; beyond it they are told again.
const MAX_TOLD: usize = 1 << 16;

/// Threads whose names one client has been told, each when it first came: not where it has ended before.
#[derive(Default)]
pub struct ThreadNames {
    told: HashSet<ThreadId>,
}

impl ThreadNames {
    /// The names of those of these threads that are new to the client.
    pub fn of(&mut self, threads: impl IntoIterator<Item = ThreadId>) -> Vec<v1::ThreadName> {
        let mut names = Vec::new();
        for thread in threads {
            if self.told.contains(&thread) {
                continue;
            }
            if self.told.len() >= MAX_TOLD {
                self.told.clear();
            }
            self.told.insert(thread);
            let ThreadId { tgid, tid } = thread;
            if let Some(name) = name_of_thread(tgid, tid) {
                names.push(v1::ThreadName { pid: tgid, tid, name });
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_once_and_of_a_thread_that_is_gone_never() {
        let pid = std::process::id();
        let mut names = ThreadNames::default();
        let thread = |tid| ThreadId { tgid: pid, tid };
        let told = names.of([pid, u32::MAX, pid].map(thread));
        let [name] = &told[..] else { panic!("{told:?}") };
        assert_eq!((name.pid, name.tid, name.name.is_empty()), (pid, pid, false));
        assert_eq!(names.of([thread(pid)]), []);
    }
}
