//! A session's counters over time.

use profiler_target::{Process, TargetError};
use tokio::sync::mpsc;

use super::{
    super::{
        authorize::authorize_now,
        ending::Ending,
        error::SessionError,
        refusal::target_refusal,
        timeline::{Moment, Timeline, TimelineBucket, TimelineRequest},
    },
    Session,
};
use crate::kernel::Engine;

/// A process that the session's owner may look at no more.
pub struct Closed {
    /// Its number.
    pub pid: u32,
    /// Why.
    pub reason: String,
}

impl Session {
    /// Begins to count for its processes.
    ///
    /// # Errors
    /// Where the machine does not have a counter, or refuses to count, or the session's owner may not look at a process any more.
    pub fn watch_timeline(
        &mut self,
        engine: &Engine,
        request: TimelineRequest,
        now_ns: u64,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        let calls = self.calls_so_far(engine);
        let living = self.processes.iter().filter(|process| process.is_alive());
        let pids: Vec<u32> = living.map(Process::pid).collect();
        let (timeline, buckets) = Timeline::start(pids.clone(), request, calls, now_ns)?;
        // What was opened above may be of what a process has become since it was looked at last.
        for process in self
            .processes
            .iter()
            .filter(|process| pids.contains(&process.pid()))
        {
            authorize_now(self.owner, process.pid())?;
            if !process.is_alive() {
                return Err(target_refusal(&TargetError::Ended(process.pid())));
            }
        }
        self.timelines.push(timeline);
        Ok(buckets)
    }

    /// Whether a bucket is over.
    pub fn has_due_bucket(&self, now_ns: u64) -> bool {
        self.timelines.iter().any(|timeline| timeline.next_ns() <= now_ns)
    }

    /// Living processes that the session's owner may look at no more, as the kernel's own counters ask nobody; those that have ended
    /// are let go of.
    pub fn closed_to_owner(&mut self) -> Vec<Closed> {
        let mut closed = Vec::new();
        for process in &self.processes {
            let pid = process.pid();
            let asked = authorize_now(self.owner, pid);
            // In this order: of a process that lives, the answer is.
            match asked {
                _ if !process.is_alive() => self
                    .timelines
                    .iter_mut()
                    .for_each(|timeline| timeline.let_go(pid)),
                Ok(()) => {}
                Err(error) => closed.push(Closed {
                    pid,
                    reason: format!("{} since it changed", error.message),
                }),
            }
        }
        closed
    }

    /// Counts no more for a process.
    pub fn lose_timelines(&mut self, pid: u32) {
        self.timelines.iter_mut().for_each(|timeline| timeline.lose(pid));
    }

    /// Forgets streams that nobody reads any more; their counters end.
    pub fn sweep_timelines(&mut self) {
        self.timelines.retain(|timeline| !timeline.is_closed());
    }

    /// Hands over the buckets that are over, or all where `ended` says why they are the last. When the next one is.
    pub fn end_buckets(&mut self, engine: &Engine, now_ns: u64, ended: Option<&Ending>) -> Option<u64> {
        self.sweep_timelines();
        let is_due = |timeline: &Timeline| ended.is_some() || timeline.next_ns() <= now_ns;
        if self.timelines.iter().any(is_due) {
            let moment = Moment {
                now_ns,
                scope: &self.scope_text,
                calls: self.calls_so_far(engine),
                cost: self.meter.read(now_ns),
                ended,
            };
            for timeline in self.timelines.iter_mut().filter(|timeline| is_due(timeline)) {
                timeline.end_bucket(&moment);
            }
        }
        self.timelines.iter().map(Timeline::next_ns).min()
    }
}
