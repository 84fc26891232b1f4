//! What is left of an allowance: a small file whose parts refer to each other over and over asks for endlessly much.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An allowance that all cores take from.
#[derive(Debug)]
pub(super) struct Left {
    left: AtomicUsize,
    short: AtomicBool,
}

impl Left {
    pub const fn new(count: usize) -> Self {
        Self {
            left: AtomicUsize::new(count),
            short: AtomicBool::new(false),
        }
    }

    /// Takes from it, where there is as much.
    pub fn take(&self, count: usize) -> bool {
        let taken = |left: usize| left.checked_sub(count);
        let enough = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok();
        if !enough {
            self.short.store(true, Ordering::Relaxed);
        }
        enough
    }

    /// Whether it was too small once.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let left = Left::new(10);
        assert!(left.take(7));
        assert!(!left.is_short());
        assert!(!left.take(4));
        assert!(left.is_short());
        assert!(left.take(3));
        assert!(!left.take(1));
    }
}
