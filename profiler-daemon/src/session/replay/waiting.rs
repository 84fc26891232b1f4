//! What a flame graph of a recording draws on waits: who ended them, and what that one did meanwhile, as a session draws it.

use std::collections::{HashSet, VecDeque};

use profiler_aggregate::{ThreadId, waits::Wait};

use super::super::{
    chains::{Chain, Chains},
    error::{Reason, SessionError},
    records::{OffAtFirst, RecordedWait},
    waits::Pids,
};
use crate::kernel::Activity;

/// The waits of a recording on their way to the samples of them.
#[derive(Default)]
pub struct Waiting {
    /// Once it is told who was off the CPU; from then on, all waits are.
    chains: Option<Chains>,
    /// That was told, be it before something that is missing.
    was_told: bool,
    /// Waits of before may be missing.
    missed_until_ns: u64,
    /// Of the recorded scope.
    pids: Pids,
    /// Waits that are told with the records that follow, in their order; each comes before its samples.
    coming: VecDeque<Wait>,
    /// These, by their thread and when it could run again.
    keys: HashSet<(ThreadId, u64)>,
}

impl Waiting {
    /// Takes the processes whose waits are drawn.
    pub fn set_pids(&mut self, pids: &[u32]) {
        self.pids = pids.iter().copied().collect();
        if let Some(chains) = &mut self.chains {
            chains.set_pids(&self.pids);
        }
    }

    /// Takes waits that are told with the records that follow, and who was off the CPU, where that is told.
    pub fn take(&mut self, waits: Vec<RecordedWait>, off: Option<OffAtFirst>) {
        while self.take_next().is_some() {}
        if let (None, Some(off)) = (&self.chains, off) {
            let chains = (self.chains).insert(Chains::recorded(self.pids.clone(), off.threads));
            chains.miss_until(self.missed_until_ns);
            self.was_told = true;
        }
        self.coming = waits.into_iter().map(|recorded| recorded.wait).collect();
        self.keys = self.coming.iter().map(key).collect();
    }

    /// Takes the next wait.
    fn take_next(&mut self) -> Option<(ThreadId, u64)> {
        let wait = self.coming.pop_front()?;
        if let Some(chains) = &mut self.chains {
            chains.take_recorded(&wait);
        }
        Some(key(&wait))
    }

    /// What is drawn on a sample, after the waits that came before it.
    pub fn of_sample(&mut self, thread: ThreadId, ts_ns: u64, activity: Activity) -> &[Chain] {
        let is_wait = ![Activity::OnCpu, Activity::Runnable].contains(&activity);
        if is_wait && self.keys.remove(&(thread, ts_ns)) {
            while self.take_next().is_some_and(|key| key != (thread, ts_ns)) {}
        }
        let chains = self.chains.as_ref();
        chains.map_or(&[], |chains| chains.of_sample(thread, ts_ns, activity))
    }

    /// Forgets what threads did until a time, as some of it is missing: it would be taken for time in which nobody waited.
    pub fn forget_until(&mut self, ns: u64) {
        *self = Self {
            pids: std::mem::take(&mut self.pids),
            was_told: self.was_told,
            missed_until_ns: self.missed_until_ns.max(ns),
            ..Self::default()
        };
    }

    /// Refuses a recording without waits.
    ///
    /// # Errors
    /// Where it was not told who was off the CPU.
    pub fn check(&self) -> Result<(), SessionError> {
        if self.was_told {
            return Ok(());
        }
        Err(SessionError::new(Reason::ArgumentInvalid, NOT_RECORDED))
    }
}

/// Why waits are not shown that were not recorded.
pub const NOT_RECORDED: &str =
    "the recording does not have who was waited for: record it with `profiler record --waits`";

fn key(wait: &Wait) -> (ThreadId, u64) {
    (wait.thread, wait.times[1])
}
