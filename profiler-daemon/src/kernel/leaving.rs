//! What probes held that were detached: given back once no program of theirs runs any more, at a later look.

use std::ops::RangeInclusive;

use profiler_common::probe::ProbeId;

use super::{Engine, closing::Closing, hits::Plans};

/// What is nobody else's as long as programs may go by it.
pub(super) enum Held {
    /// Of probes.
    Probes {
        probes: Vec<ProbeId>,
        sites: Vec<u32>,
        plans: Vec<Plans>,
    },
    /// Of a watched allocator, by its number.
    Allocator(u32),
}

/// What was detached from one time to another.
#[derive(Clone, Debug)]
pub struct Detached(RangeInclusive<u64>);

impl Default for Detached {
    /// Nothing.
    fn default() -> Self {
        Self(RangeInclusive::new(1, 0))
    }
}

impl Detached {
    /// This and all that was detached between it and another, with that.
    #[must_use]
    pub fn and(self, other: Option<&Self>) -> Self {
        match other {
            Some(Self(other)) if !other.is_empty() && !self.0.is_empty() => {
                Self(*self.0.start().min(other.start())..=*self.0.end().max(other.end()))
            }
            Some(other) if self.0.is_empty() => other.clone(),
            _ => self,
        }
    }
}

/// What is held until links are closed.
pub(super) struct Leaving {
    /// Those before have lower numbers.
    number: u64,
    held: Held,
    closing: Vec<Closing>,
}

impl Leaving {
    fn is_stuck(&self) -> bool {
        self.closing.iter().any(Closing::is_stuck)
    }

    fn is_over(&self) -> bool {
        self.closing.iter().all(Closing::is_over)
    }
}

impl Engine {
    /// Gives back what was held once these links are closed.
    pub(super) fn leave(&mut self, held: Held, closing: Vec<Closing>) {
        self.left += 1;
        self.leaving.push(Leaving {
            number: self.left,
            held,
            closing,
        });
        self.settle_leaving();
    }

    /// What something detaches.
    pub fn detached_by(&mut self, detach: impl FnOnce(&mut Self)) -> Detached {
        let before = self.left;
        detach(self);
        Detached(before + 1..=self.left)
    }

    /// Whether that is off its targets, or it is not known when it will be.
    #[must_use]
    pub fn has_left(&self, Detached(numbers): &Detached) -> bool {
        let mut leaving = self.leaving.iter();
        leaving.all(|leaving| !numbers.contains(&leaving.number) || leaving.is_stuck())
    }

    /// Waits until all that was detached is off its targets, as long as that is of use.
    pub fn wait_for_leaving(&mut self) {
        for Leaving { closing, .. } in &self.leaving {
            for closing in closing {
                closing.wait();
            }
        }
        self.settle_leaving();
    }

    /// Gives back what was held for programs that do not run any more.
    pub fn settle_leaving(&mut self) {
        let over: Vec<Leaving> = self.leaving.extract_if(.., |leaving| leaving.is_over()).collect();
        for Leaving { held, .. } in over {
            match held {
                Held::Probes { probes, sites, plans } => {
                    for probe in probes {
                        self.unmatched_at_end.remove(&probe);
                        self.close_slot(probe);
                    }
                    self.hits.give_back(&plans);
                    self.free_sites.extend(sites);
                }
                Held::Allocator(number) => {
                    self.forget_counts(number);
                    self.forget_allocations(number);
                }
            }
        }
    }
}
