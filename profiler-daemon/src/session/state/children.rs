//! Processes that a session's own begin while it has probes in their code.
//!
//! A child with a copy of its parent's memory has the breakpoints in it too. It is not looked at, but stops at each of them: until it
//! ends, runs another program, or the probes are taken off.

use std::collections::BTreeMap;

use super::Session;
use crate::kernel::Engine;

/// How many there have been.
#[derive(Debug, Default)]
pub struct Children {
    /// What the programs had counted of each process when that was last read.
    read: BTreeMap<u32, u64>,
    /// Those that began while there were probes.
    begun: u64,
}

impl Children {
    /// Takes over what the programs have counted of a process by now. What they had counted before its first reading is not taken: the
    /// probes were not there.
    fn note(&mut self, pid: u32, counted: u64, is_probed: bool) {
        let before = self.read.insert(pid, counted).unwrap_or(counted);
        if is_probed {
            self.begun = self.begun.saturating_add(counted.saturating_sub(before));
        }
    }

    /// Those that began while there were probes.
    pub fn begun(&self) -> u64 {
        self.begun
    }
}

impl Session {
    /// Reads which children its processes have begun, where it has probes in their code.
    pub(super) fn read_children(&mut self, engine: &Engine) {
        if self.has_breakpoints() {
            self.note_children(engine);
        }
    }

    /// The same whether it has or is about to have some.
    pub(super) fn note_children(&mut self, engine: &Engine) {
        let is_probed = self.has_breakpoints();
        let pids = self.pids();
        match engine.counted_of(&pids) {
            Ok(counted) => {
                for pid in pids {
                    let children = counted.get(&pid).copied().unwrap_or_default().children;
                    self.children.note(pid, children, is_probed);
                }
            }
            Err(error) => tracing::warn!(%error, "the children of processes are not counted"),
        }
    }

    /// Whether children of its processes have breakpoints of it.
    fn has_breakpoints(&self) -> bool {
        self.steps.probes_code() || !self.allocations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_that_began_with_probes_are_counted() {
        let mut children = Children::default();
        // Begun before the first reading, while there were no probes, and while there were.
        for (counted, is_probed, begun) in [(7, true, 0), (9, false, 0), (12, true, 3), (12, true, 3)] {
            children.note(40, counted, is_probed);
            assert_eq!(children.begun(), begun);
        }
        children.note(41, 100, true);
        children.note(41, 101, true);
        assert_eq!(children.begun(), 4, "of two processes");
        // It is not admitted any more.
        children.note(41, 0, true);
        assert_eq!(children.begun(), 4);
    }
}
