//! The ring of time slots behind everything that is kept over a sliding window.

use super::tally::Tally;
use std::{collections::VecDeque, ops::AddAssign};

/// How a window is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// Its length.
    pub window_ns: u64,
    /// Number of slots; the window moves by one slot at a time.
    pub slots: u32,
}

impl Default for WindowConfig {
    /// 10 s in 20 slots.
    fn default() -> Self {
        Self {
            window_ns: 10_000_000_000,
            slots: 20,
        }
    }
}

impl WindowConfig {
    /// Length of a slot, at least one nanosecond.
    #[must_use]
    pub fn slot_ns(&self) -> u64 {
        (self.window_ns / u64::from(self.slots.max(1))).max(1)
    }

    /// The slot that a time belongs to, counted from time zero.
    #[must_use]
    pub fn slot_of(&self, ns: u64) -> u64 {
        ns / self.slot_ns()
    }

    /// The first slot that is still within the window at `now_ns`: the window is the slot of
    /// `now_ns`, as far as it has gone, and those before it.
    #[must_use]
    pub fn first_slot(&self, now_ns: u64) -> u64 {
        (self.slot_of(now_ns) + 1).saturating_sub(u64::from(self.slots.max(1)))
    }
}

#[derive(Clone, Debug)]
struct Slot<V> {
    number: u64,
    /// What came at the slot's first moment had gathered since then.
    from_ns: u64,
    tally: Tally<V>,
}

/// Sums by key for each slot of a window.
#[derive(Clone, Debug)]
pub struct Slots<V> {
    config: WindowConfig,
    latest_ns: u64,
    ring: VecDeque<Slot<V>>,
}

impl<V: Copy + AddAssign> Slots<V> {
    /// An empty window that begins at `start_ns`.
    #[must_use]
    pub fn new(config: WindowConfig, start_ns: u64) -> Self {
        Self {
            config,
            latest_ns: start_ns,
            ring: VecDeque::new(),
        }
    }

    /// Moves to `now_ns` and hands out what has left the window. Time does not go back: earlier
    /// times count as the latest one.
    pub fn advance(&mut self, now_ns: u64, mut expired: impl FnMut(u64, V)) {
        let now_ns = now_ns.max(self.latest_ns);
        let first = self.config.first_slot(now_ns);
        while let Some(slot) = self.ring.pop_front_if(|slot| slot.number < first) {
            slot.tally.iter().for_each(|(key, value)| expired(key, value));
        }
        let number = self.config.slot_of(now_ns);
        if self.ring.back().is_none_or(|slot| slot.number < number) {
            self.ring.push_back(Slot {
                number,
                from_ns: self.latest_ns,
                tally: Tally::default(),
            });
        }
        self.latest_ns = now_ns;
    }

    /// Adds to the slot that [`Self::advance`] moved to.
    pub fn add(&mut self, key: u64, value: V) {
        if let Some(slot) = self.ring.back_mut() {
            slot.tally.add(key, value);
        }
    }

    /// What will have left the window at `now_ns`; a key may come several times.
    pub fn expired(&self, now_ns: u64) -> impl Iterator<Item = (u64, V)> {
        let first = self.config.first_slot(now_ns);
        self.ring
            .iter()
            .take_while(move |slot| slot.number < first)
            .flat_map(|slot| slot.tally.iter())
    }

    /// The time in which the window's content at `now_ns` came.
    #[must_use]
    pub fn covered_ns(&self, now_ns: u64) -> u64 {
        let first = self.config.first_slot(now_ns);
        let oldest = self.ring.iter().find(|slot| slot.number >= first);
        oldest.map_or(0, |slot| self.latest_ns.saturating_sub(slot.from_ns))
    }

    /// Changes the keys of all slots.
    pub fn rename(&mut self, mut to: impl FnMut(u64) -> u64) {
        self.ring.iter_mut().for_each(|slot| slot.tally.rename(&mut to));
    }
}
