//! Threads that are gone, and since when.
//!
//! The end of a thread's last span may still be on its way when the thread is gone already. So what waits for one is
//! given up a while after that, and not at once, however long it has waited.

use std::collections::{HashMap, HashSet};

use crate::ThreadId;

/// The threads that were gone when last looked at.
#[derive(Clone, Default, Debug)]
pub struct GoneThreads {
    since_ns: HashMap<ThreadId, u64>,
}

impl GoneThreads {
    /// Looks at all threads that matter: which of them have been gone for `after_ns` and longer.
    pub fn look(
        &mut self,
        threads: impl IntoIterator<Item = ThreadId>,
        now_ns: u64,
        after_ns: u64,
        mut is_gone: impl FnMut(ThreadId) -> bool,
    ) -> HashSet<ThreadId> {
        let before = std::mem::take(&mut self.since_ns);
        let threads: HashSet<ThreadId> = threads.into_iter().collect();
        let gone = threads.into_iter().filter(|thread| is_gone(*thread));
        self.since_ns = gone
            .map(|thread| (thread, before.get(&thread).copied().unwrap_or(now_ns)))
            .collect();
        let long_gone = self
            .since_ns
            .iter()
            .filter(|(_, since_ns)| now_ns.saturating_sub(**since_ns) >= after_ns);
        long_gone.map(|(thread, _)| *thread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_given_up_a_while_after_it_went() {
        let mut gone = GoneThreads::default();
        let thread = |tid| ThreadId { tgid: 1, tid };
        let threads = [2, 3, 2].map(thread);
        assert!(gone.look(threads, 1000, 50, |_| false).is_empty());
        assert!(gone.look(threads, 2000, 50, |thread| thread.tid == 2).is_empty());
        assert!(gone.look(threads, 2049, 50, |_| true).is_empty());
        assert_eq!(gone.look(threads, 2050, 50, |_| true), HashSet::from([thread(2)]));
        // Of another thread that has the number by now nothing is known.
        assert!(gone.look(threads, 3000, 50, |_| false).is_empty());
        assert!(gone.look([thread(3)], 3001, 50, |_| true).is_empty());
        assert!(gone.look([], 3050, 50, |_| true).is_empty());
        assert!(gone.look([thread(3)], 3051, 50, |_| true).is_empty());
    }
}
