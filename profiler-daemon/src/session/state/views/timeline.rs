//! A session's counters over time.

use profiler_target::TargetError;
use tokio::sync::mpsc;

use super::{Live, Tick, View};
use crate::{
    kernel::Engine,
    session::{
        authorize::authorize_now,
        command::{Caller, Handle},
        departures::{DepartureCause, Leaving},
        ending::Ending,
        error::{Reason, SessionError},
        refusal::target_refusal,
        replay::Player,
        state::Session,
        timeline::{Moment, Timeline, TimelineBucket, TimelineRequest},
        watchers::Streams,
    },
};

/// A process that the session's owner may look at no more.
pub struct Closed {
    /// Its number.
    pub pid: u32,
    /// Why.
    pub why: Leaving,
}

/// A client asks for them.
pub struct Timelines {
    request: TimelineRequest,
}

impl View for Timelines {
    type Stream = mpsc::Receiver<TimelineBucket>;

    const NAME: &'static str = "timeline";

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live {
            session,
            running,
            now_ns,
            ..
        } = live;
        if session.last_asks_for_return() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "calls on a timeline cannot be filtered by return value, which is unknown when they begin: remove the condition on it",
            ));
        }
        let next_ns = now_ns + self.request.step_ns;
        let stream = session.begin_timeline(&running.engine, self.request, now_ns)?;
        running.next_tick_ns = running.next_tick_ns.min(next_ns);
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.timeline(session, &self.request, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.timelines
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.timelines
    }

    /// Its buckets end at their own times.
    fn publish(_session: &mut Session, _tick: &Tick<'_>) {}
}

impl Streams for Vec<Timeline> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn sweep(&mut self) {
        self.retain(|timeline| !timeline.is_closed());
    }

    fn is_due(&self, _now_ns: u64) -> bool {
        false
    }
}

impl Handle {
    /// Counters of a session's processes over time. They count while this is open.
    ///
    /// # Errors
    /// Where there is no such session, or the machine does not have a counter or refuses to count.
    pub async fn watch_timeline(
        &self,
        caller: Caller,
        name: String,
        request: TimelineRequest,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        self.watch(caller, name, Timelines { request }).await
    }
}

impl Session {
    /// Begins to count for its processes.
    ///
    /// # Errors
    /// Where the machine does not have a counter, or refuses to count, or the session's owner may not look at a process any more.
    fn begin_timeline(
        &mut self,
        engine: &Engine,
        request: TimelineRequest,
        now_ns: u64,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        let calls = self.calls_so_far(engine);
        let living = self.processes.iter().filter(|process| process.is_alive());
        let pids: Vec<u32> = living.map(|process| process.pid()).collect();
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
        for process in self.processes.iter() {
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
                    why: Leaving::of(
                        DepartureCause::NotAllowed,
                        format!("{} since it changed", error.message),
                    ),
                }),
            }
        }
        closed
    }

    /// Counts no more for a process.
    pub fn lose_timelines(&mut self, pid: u32) {
        self.timelines.iter_mut().for_each(|timeline| timeline.lose(pid));
    }

    /// Hands over the buckets that are over, or all where `ended` says why they are the last. When the next one is.
    pub fn end_buckets(&mut self, engine: &Engine, now_ns: u64, ended: Option<&Ending>) -> Option<u64> {
        self.timelines.sweep();
        let is_due = |timeline: &Timeline| ended.is_some() || timeline.next_ns() <= now_ns;
        if self.timelines.iter().any(is_due) {
            let moment = Moment {
                now_ns,
                scope: &self.scope_text,
                calls: self.calls_so_far(engine),
                cost: self.cost(now_ns),
                ended,
            };
            for timeline in self.timelines.iter_mut().filter(|timeline| is_due(timeline)) {
                timeline.end_bucket(&moment);
            }
        }
        self.timelines.iter().map(Timeline::next_ns).min()
    }
}
