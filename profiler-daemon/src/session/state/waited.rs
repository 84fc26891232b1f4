//! Who a session's threads wait for: what begins and ends with those who watch it.

use profiler_aggregate::join::Level;

use super::{
    super::{cost::monotonic_ns, sampling::Sampling, symbols::Dropped, waits::WatchedWaits},
    Session,
};
use crate::kernel::Engine;

impl Session {
    /// Whether somebody watches its waits.
    pub fn watches_waits(&self) -> bool {
        !self.waits_watchers.is_empty()
    }

    /// Begins and ends the look at waits with its watchers.
    pub fn settle_waits(&mut self, engine: &Engine, dropped: Dropped) {
        if self.waits_watchers.is_empty() {
            self.waits = None;
        } else if self.waits.is_none() {
            self.waits = Some(WatchedWaits::new(self.level(), Sampling::now(engine, dropped)));
        }
    }

    /// Goes on with another scope.
    pub(super) fn renew_waits(&mut self, engine: &Engine, dropped: Dropped) {
        let level = self.level();
        let is_sampled = self.sampled_from.is_sampled();
        let pids = self.pids();
        if let Some(waits) = &mut self.waits {
            waits.renew(level, Sampling::now(engine, dropped));
            if is_sampled {
                waits.begin(&pids, monotonic_ns);
            }
        }
    }

    /// Begins the look at waits where they are recorded by now.
    pub(super) fn begin_waits(&mut self) {
        let (is_sampled, pids) = (self.sampled_from.is_sampled(), self.pids());
        if let Some(waits) = self.waits.as_mut().filter(|_| is_sampled) {
            waits.begin(&pids, monotonic_ns);
        }
        if let Some(chains) = self.chains.as_mut().filter(|_| is_sampled) {
            chains.begin(&pids);
        }
    }

    /// The spans of the last step that has any, and the lines behind it.
    fn level(&self) -> Option<Level> {
        self.nesting()?.levels.into_iter().next_back()
    }
}
