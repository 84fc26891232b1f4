//! Names of threads, as a stream has told them.

use std::collections::HashMap;

use profiler_proto::v1;

/// Names that are kept; then all are forgotten. It is as many as a daemon tells once.
const MAX_NAMES: usize = 1 << 16;

/// Names by process and thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadNames(HashMap<(u32, u32), String>);

impl ThreadNames {
    /// Takes those of a message.
    pub fn take(&mut self, names: Vec<v1::ThreadName>) {
        for v1::ThreadName { pid, tid, name } in names {
            if self.0.len() >= MAX_NAMES {
                self.0.clear();
            }
            self.0.insert((pid, tid), name);
        }
    }

    /// What a thread is called; `None` where that was not told.
    #[must_use]
    pub fn of(&self, pid: u32, tid: u32) -> Option<&str> {
        let name = self.0.get(&(pid, tid))?;
        (!name.is_empty()).then_some(name)
    }
}
