//! A session's counters over time.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::admission::ProcessState;
use profiler_target::{Process, Standing, TargetError};
use tokio::sync::mpsc;

use super::{Live, Request, Tick, View};
use crate::{
    kernel::{Engine, KernelError},
    session::{
        admissions::by_process,
        authorize::authorize,
        command::{Caller, Command, Handle, Reply},
        departures::{DepartureCause, Leaving},
        ending::Ending,
        error::{Reason, SessionError},
        owner::Owner,
        refusal::{kernel_refusal, target_refusal},
        replay::Player,
        running::answer,
        state::Session,
        timeline::{Moment, Started, Timeline, TimelineBucket, TimelineRequest},
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

/// A client asks for them, and it is being counted.
pub struct Timelines {
    started: Started,
}

/// A client asks whom to count for.
struct Asked {
    request: TimelineRequest,
    reply: Reply<Counted>,
}

/// Whom to count for.
enum Counted {
    /// These processes.
    Living(Vec<u32>),
    /// Nobody: it was recorded.
    Recorded(mpsc::Receiver<TimelineBucket>),
}

impl Request for Asked {
    fn open(self: Box<Self>, owner: &mut Owner, caller: Caller, session: &str) {
        let session = owner.asked_before::<Timelines>(caller, session);
        let pids = session.and_then(|session| session.counted_pids());
        answer(self.reply, pids.map(Counted::Living));
    }

    fn replay(self: Box<Self>, player: &mut Player, session: &str) {
        let Self { request, reply } = *self;
        if reply.is_closed() {
            return;
        }
        let replayed = player.timeline(session, &request, &|| !reply.is_closed());
        answer(reply, replayed.map(Counted::Recorded));
    }
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
        session.refuse_timeline()?;
        let Started { timeline, buckets } = self.started;
        let next_ns = session.begin_timeline(&mut running.engine, timeline, now_ns)?;
        running.next_tick_ns = running.next_tick_ns.min(next_ns);
        Ok(buckets)
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
        let (session, asked) = (name.clone(), request.clone());
        let counted = self.ask(caller, |reply| Command::Watch {
            caller,
            name: session,
            request: Box::new(Asked {
                request: asked,
                reply,
            }),
        });
        let pids = match counted.await? {
            Counted::Living(pids) => pids,
            Counted::Recorded(buckets) => return Ok(buckets),
        };
        let start = move |leave| Timeline::start(pids, request, leave);
        let started = self.leaves.run(caller, start).await?;
        self.watch(caller, name, Timelines { started }).await
    }
}

impl Session {
    /// Processes that counters are to count for.
    ///
    /// # Errors
    /// Where none can be shown.
    pub fn counted_pids(&self) -> Result<Vec<u32>, SessionError> {
        self.refuse_timeline()?;
        let living = self.processes.iter().filter(|process| process.is_alive());
        Ok(living.map(|process| process.pid()).collect())
    }

    /// Refuses what it cannot show.
    fn refuse_timeline(&self) -> Result<(), SessionError> {
        if self.last_asks_for_return() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "calls on a timeline cannot be filtered by return value, which is unknown when they begin: remove the condition on it",
            ));
        }
        Ok(())
    }

    /// Shows from now on what is counted for its processes. When the first bucket is over.
    ///
    /// # Errors
    /// Where one of them has ended or left, or the session's owner may not look at it any more.
    fn begin_timeline(
        &mut self,
        engine: &mut Engine,
        mut timeline: Timeline,
        now_ns: u64,
    ) -> Result<u64, SessionError> {
        // The session may be another of its name by now.
        if let Some(pid) = timeline.pids().iter().find(|pid| !self.looks_at(**pid)) {
            return Err(target_refusal(&TargetError::Ended(*pid)));
        }
        // What was opened may be of what a process has become since it was looked at last.
        let states = engine.look_at(&self.asked_about_of(timeline.pids().to_vec()));
        let states = by_process(states.map_err(|error| kernel_refusal(&error))?);
        let mut ended = Vec::new();
        let counted = |process: &&Arc<Process>| timeline.pids().contains(&process.pid());
        for process in self.processes.iter().filter(counted) {
            if process.is_alive() {
                self.may_be_shown(process.pid(), &states)?;
            } else {
                ended.push(process.pid());
            }
        }
        // Of several, those that have ended since are left out.
        for pid in ended {
            timeline.lose(pid);
            if timeline.pids().is_empty() {
                return Err(target_refusal(&TargetError::Ended(pid)));
            }
        }
        timeline.begin(self.calls_so_far(engine), now_ns);
        let next_ns = timeline.next_ns();
        self.timelines.push(timeline);
        Ok(next_ns)
    }

    /// Whether a bucket is over.
    pub fn has_due_bucket(&self, now_ns: u64) -> bool {
        self.timelines.iter().any(|timeline| timeline.next_ns() <= now_ns)
    }

    /// Processes that the kernel has to be asked about before it is shown what was counted of them: root may look at every one.
    pub fn asked_about(&self) -> Vec<u32> {
        if self.timelines.is_empty() {
            return Vec::new();
        }
        self.asked_about_of(self.pids())
    }

    fn asked_about_of(&self, pids: Vec<u32>) -> Vec<u32> {
        if self.owner.is_root() { Vec::new() } else { pids }
    }

    /// Whether the session's owner may be shown what was counted of a process, which is one of these.
    fn may_be_shown(&self, pid: u32, states: &BTreeMap<u32, ProcessState>) -> Result<(), SessionError> {
        if self.owner.is_root() {
            return Ok(());
        }
        let state = states
            .get(&pid)
            .ok_or_else(|| target_refusal(&TargetError::Ended(pid)))?;
        authorize(self.owner, pid, &standing(state))
    }

    /// Living processes that the session's owner may look at no more, as the kernel's own counters ask nobody; those that have ended
    /// are let go of. `states` is what they are now.
    pub fn closed_to_owner(&mut self, states: &BTreeMap<u32, ProcessState>) -> Vec<Closed> {
        let mut closed = Vec::new();
        for process in self.processes.iter() {
            let pid = process.pid();
            let asked = self.may_be_shown(pid, states);
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

    /// Counts no more for processes that its owner may look at no more; where that is not known, for none.
    pub fn lose_closed(&mut self, states: Result<BTreeMap<u32, ProcessState>, KernelError>) {
        if self.timelines.is_empty() {
            return;
        }
        let closed: Vec<u32> = match states {
            Ok(states) => {
                let closed = self.closed_to_owner(&states).into_iter();
                closed.map(|closed| closed.pid).collect()
            }
            Err(error) => {
                tracing::warn!(%error, "processes could not be looked at: what was counted of them last is not shown");
                self.pids()
            }
        };
        for pid in closed {
            self.lose_timelines(pid);
        }
    }

    /// Counts no more for a process.
    pub fn lose_timelines(&mut self, pid: u32) {
        self.timelines.iter_mut().for_each(|timeline| timeline.lose(pid));
    }

    /// When the next bucket is over.
    pub fn next_bucket_ns(&self) -> Option<u64> {
        self.timelines.iter().map(Timeline::next_ns).min()
    }

    /// Hands over the buckets that are over, or all where `ended` says why they are the last.
    pub fn end_buckets(&mut self, engine: &Engine, now_ns: u64, ended: Option<&Ending>) {
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
    }
}

/// What a process is to the kernel. A first thread that has ended before the others has no memory any more that could be read or not; whose
/// it was stays.
fn standing(state: &ProcessState) -> Standing {
    let standing = Standing::from(state);
    Standing {
        dumpable: standing.dumpable || state.image.memory == 0,
        ..standing
    }
}
