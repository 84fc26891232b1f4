//! Gates: how a step of a scope is observed only inside the step before it.

use profiler_common::limits::MAX_GATES;

use super::{Engine, KernelError};

/// A gate between two steps: a bit, and since when it stands for this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gate {
    bit: u32,
    since_ns: u64,
}

impl Gate {
    /// The bit, alone in its word.
    #[must_use]
    pub fn bits(self) -> u32 {
        1 << self.bit
    }

    /// `CLOCK_MONOTONIC`: what has the bit and began before is of an earlier use.
    #[must_use]
    pub fn since_ns(self) -> u64 {
        self.since_ns
    }
}

/// What a probe has to do with the steps before and after its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gates {
    /// The gate that has to be open; `None` for a scope's first step.
    pub requires: Option<Gate>,
    /// The gate that it opens; `None` for a scope's last step.
    pub opens: Option<Gate>,
    /// What it sees counts only where a span around it has the duration that is asked for.
    pub joined: bool,
}

/// Which gates are in use.
#[derive(Default)]
pub(super) struct GatePool {
    used: u32,
    next: u32,
}

impl GatePool {
    /// The bit that was free for the longest time.
    fn take(&mut self) -> Option<u32> {
        let bits = (0..MAX_GATES).map(|ahead| (self.next + ahead) % MAX_GATES);
        let bit = bits.into_iter().find(|bit| self.used & (1 << bit) == 0)?;
        self.used |= 1 << bit;
        self.next = (bit + 1) % MAX_GATES;
        Some(bit)
    }
}

const _: () = assert!(MAX_GATES == u32::BITS);

impl Engine {
    /// Takes a gate for what begins from now on.
    ///
    /// # Errors
    /// Where all are in use.
    pub fn take_gate(&mut self, now_ns: u64) -> Result<Gate, KernelError> {
        let bit = self
            .gates
            .take()
            .ok_or(KernelError::TooManyGates(MAX_GATES as usize))?;
        Ok(Gate {
            bit,
            since_ns: now_ns,
        })
    }

    /// Gates that can be taken.
    #[must_use]
    pub fn gates_left(&self) -> u32 {
        self.gates.used.count_zeros()
    }

    /// Gives a gate back that no probe has any more.
    pub fn give_back_gate(&mut self, gate: Gate) {
        self.gates.used &= !gate.bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_was_given_back_is_the_last_to_be_taken_again() {
        let mut pool = GatePool::default();
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, (0..MAX_GATES).collect::<Vec<_>>());
        pool.used &= !0b1001;
        assert_eq!((pool.take(), pool.take(), pool.take()), (Some(0), Some(3), None));
        let mut pool = GatePool::default();
        assert_eq!(pool.take(), Some(0));
        pool.used = 0;
        assert_eq!(pool.take(), Some(1));
    }
}
