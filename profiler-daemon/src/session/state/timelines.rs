//! A session's counters over time.

use tokio::sync::mpsc;

use super::{
    super::{
        error::SessionError,
        timeline::{Moment, Timeline, TimelineBucket, TimelineRequest},
    },
    Session,
};
use crate::kernel::Engine;

impl Session {
    /// Begins to count for its processes.
    ///
    /// # Errors
    /// Where the machine does not have a counter, or refuses to count.
    pub fn watch_timeline(
        &mut self,
        engine: &Engine,
        request: TimelineRequest,
        now_ns: u64,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        let calls = self.calls_so_far(engine);
        let (timeline, buckets) = Timeline::start(self.pids(), request, calls, now_ns)?;
        self.timelines.push(timeline);
        Ok(buckets)
    }

    /// Forgets streams that nobody reads any more; their counters end.
    pub fn sweep_timelines(&mut self) {
        self.timelines.retain(|timeline| !timeline.is_closed());
    }

    /// Hands over the buckets that are over, or all where `ended` says why they are the last. When the next one is.
    pub fn end_buckets(&mut self, engine: &Engine, now_ns: u64, ended: Option<&str>) -> Option<u64> {
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
