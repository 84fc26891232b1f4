//! Records between two batches, each kind with room of its own: a flood of one leaves room for the others.

use std::{mem, ops::AddAssign};

use super::record::Recorded;

/// Samples, ends of calls and hits of one batch; those beyond are lost, counted.
pub(super) const MAX_RECORDS: usize = 16_384;

/// Waits of one batch, beside those.
pub(super) const MAX_WAITS: usize = 16_384;

/// Samples of events and weights of one batch, beside those.
pub(super) const MAX_AT_EVENTS: usize = 16_384;

/// Samples off the CPU outside of calls of one batch, beside those.
pub(super) const MAX_OUTSIDE: usize = 16_384;

/// What has room of its own.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Samples, ends of calls and hits. Calls wait for them.
    Call,
    /// Waits.
    Wait,
    /// Samples off the CPU outside of calls.
    Outside,
    /// Samples of events, and weights.
    AtEvent,
}

impl Kind {
    /// How many of it are in one batch, at most.
    fn most(self) -> usize {
        match self {
            Self::Call => MAX_RECORDS,
            Self::Wait => MAX_WAITS,
            Self::Outside => MAX_OUTSIDE,
            Self::AtEvent => MAX_AT_EVENTS,
        }
    }
}

/// A number of records of each kind.
#[derive(Clone, Copy, Default)]
pub(super) struct OfKinds {
    pub(super) calls: u64,
    pub(super) waits: u64,
    pub(super) outside: u64,
    pub(super) at_events: u64,
}

impl OfKinds {
    fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Call => &mut self.calls,
            Kind::Wait => &mut self.waits,
            Kind::Outside => &mut self.outside,
            Kind::AtEvent => &mut self.at_events,
        }
    }
}

impl AddAssign for OfKinds {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.waits += other.waits;
        self.outside += other.outside;
        self.at_events += other.at_events;
    }
}

/// Records since the batch before, as they came.
#[derive(Default)]
pub(super) struct Gathered {
    records: Vec<Recorded>,
    /// How many there are.
    came: OfKinds,
    /// How many there was no room for, since the first batch.
    lost: OfKinds,
}

impl Gathered {
    /// Keeps a record, which is made where there is room for it.
    pub(super) fn keep(&mut self, kind: Kind, make: impl FnOnce() -> Recorded) {
        let came = self.came.of(kind);
        if *came < kind.most() as u64 {
            *came += 1;
            self.records.push(make());
        } else {
            self.lose(kind, 1);
        }
    }

    /// Counts some as lost.
    pub(super) fn lose(&mut self, kind: Kind, count: u64) {
        *self.lost.of(kind) += count;
    }

    /// Hands over what came, and how many of each kind.
    pub(super) fn take(&mut self) -> (Vec<Recorded>, OfKinds) {
        (mem::take(&mut self.records), mem::take(&mut self.came))
    }

    /// How many there was no room for, since the first batch.
    pub(super) fn lost(&self) -> OfKinds {
        self.lost
    }
}
