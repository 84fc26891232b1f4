//! The flame graphs of a session, which exist while somebody watches them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use profiler_scope::Step;
use profiler_symbolize::Grouping;

use super::{
    At, Live, Renewed, Tick, View,
    unknown::{Unknown, refuse_unknown},
};
use crate::{
    kernel::{Engine, Event, KernelError, Times},
    session::{
        chains::Chains,
        command::{Caller, Handle},
        error::{Reason, SessionError},
        flame,
        picture::{FlameKind, FlamePicture, FlameRequest, FlameTimes},
        population::Calls,
        replay::Player,
        sampled_events::refuse_missing,
        sampling::{SampleCounts, Sampling},
        state::Session,
        symbols::{Dropped, Wanted},
        watchers::{Pictures, Streams},
    },
};

/// Where what is touched counts once.
pub(in super::super::super) const UNIQUE: Unknown = Unknown {
    by_duration: "pages and blocks that count once cannot be filtered by call duration, as fast and slow calls may touch the same one: remove the condition on it",
    by_return: "pages and blocks that count once cannot be filtered by return value, as calls of both kinds may touch the same one: remove the condition on it",
    at_line: "a flame graph needs a function or a call, not a line: put its function in front of it, as in f/main.cc:1310",
};

/// A client asks for one.
pub struct Flame {
    interval_ns: u64,
    request: FlameRequest,
}

impl View for Flame {
    type Stream = Pictures<FlamePicture>;

    const NAME: &'static str = "flame graph";
    const IS_SAMPLED: bool = true;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Self { interval_ns, request } = self;
        let Live {
            session,
            running,
            now_ns,
            ..
        } = live;
        if session.is_of_line() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "a flame graph needs a function or a call, not a line: use `profiler trace`",
            ));
        }
        request.check()?;
        if request.unique {
            refuse_unknown(&session.asked_steps(), UNIQUE)?;
        }
        if let Some(event) = request.times.and_then(FlameTimes::event) {
            refuse_missing(event)?;
            session.reserve_events(&mut running.engine, [event])?;
        }
        let variant = request.variant(session.divides());
        let stream = session.streams.flame.add(variant, interval_ns, now_ns);
        session.settle_flames(&running.engine, running.symbols.dropped(), now_ns);
        if let Some(flame) = session.flames.get_mut(&variant.kind) {
            flame.maintain(variant.over, now_ns);
        }
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.flame(session, self.request, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.flame
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.flame
    }

    fn times(session: &Session) -> Times {
        let in_spans = session.divides();
        let variants = session.streams.flame.variants();
        let times = variants.map(|variant| variant.kind.sampled(in_spans));
        times.fold(Times::default(), Times::or)
    }

    fn wanted(session: &Session) -> Wanted {
        let of_flames = session.flames.keys().map(|kind| kind.by);
        let asks_wakers = session.waits.is_some() || session.chains.is_some() || session.explains();
        Wanted {
            groupings: of_flames
                .chain(asks_wakers.then_some(Grouping::Function))
                .collect(),
            samples: !session.flames.is_empty() || session.explains(),
            ..Wanted::default()
        }
    }

    fn accepts(session: &Session, steps: &[&Step]) -> Result<(), SessionError> {
        let mut variants = session.streams.flame.variants();
        if variants.any(|variant| variant.kind.unique) {
            refuse_unknown(steps, UNIQUE)?;
        }
        Ok(())
    }

    fn settle(session: &mut Session, engine: &mut Engine, at: At) -> Result<(), KernelError> {
        session.settle_flames(engine, at.dropped, at.now_ns);
        Ok(())
    }

    /// Where the probes are the same, what was sampled stays.
    fn renew(session: &mut Session, engine: &mut Engine, at: At, renewed: Renewed) {
        for (kind, mut flame) in std::mem::take(&mut session.flames) {
            if renewed.has_same_nesting {
                flame.set_predicates(session.dividing());
            } else {
                let fresh = session.new_flame(kind, engine, at.dropped, at.now_ns);
                flame = fresh.succeeding(&flame, at.now_ns);
            }
            session.flames.insert(kind, flame);
        }
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let (scope, own) = (Arc::clone(&session.scope_text), session.own_losses());
        let moment = tick.moment(&scope, &own);
        for flame in session.flames.values_mut() {
            let counts = SampleCounts {
                sampling: Sampling::now(tick.engine, tick.dropped),
                events: session.events.counts(flame.kind().times, tick.engine),
            };
            flame.publish(&mut session.streams.flame, counts, &moment);
        }
    }
}

impl Handle {
    /// Pictures of a session's flame graph. The sampler runs while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, or the kernel refuses the sampler.
    pub async fn watch_flame(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
        request: FlameRequest,
    ) -> Result<Pictures<FlamePicture>, SessionError> {
        self.watch(caller, name, Flame { interval_ns, request }).await
    }
}

impl Session {
    /// Begins and ends flame graphs with their watchers.
    fn settle_flames(&mut self, engine: &Engine, dropped: Dropped, now_ns: u64) {
        let variants = self.streams.flame.variants();
        let watched: HashSet<FlameKind> = variants.map(|variant| variant.kind).collect();
        self.flames.retain(|kind, _| watched.contains(kind));
        if !watched.iter().any(|kind| kind.waits) {
            self.chains = None;
        } else if self.chains.is_none() {
            self.chains = Some(Chains::default());
        }
        self.events.keep(&self.watched_events());
        for kind in watched {
            if !self.flames.contains_key(&kind) {
                let flame = self.new_flame(kind, engine, dropped, now_ns);
                self.flames.insert(kind, flame);
            }
        }
        self.set_bands();
    }

    /// Takes stacks of these processes at the events whose flame graphs are watched, or that are recorded, once [that is
    /// opened](Self::take_opened_events).
    pub fn settle_events(&mut self, engine: &mut Engine, pids: &[u32]) {
        let watched = self.watched_events();
        self.events.keep(&watched);
        if watched.is_empty() {
            return;
        }
        let pids: Vec<u32> = pids.iter().copied().filter(|pid| self.looks_at(*pid)).collect();
        self.events.take(engine, &watched, &pids);
    }

    /// Has room for stacks at these events.
    ///
    /// # Errors
    /// Where there is none, or none of the share of who made the session.
    pub(in super::super) fn reserve_events(
        &mut self,
        engine: &mut Engine,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<(), SessionError> {
        self.events.reserve(engine, events)
    }

    /// Whether events that stacks are to be taken at are still being opened.
    pub(in super::super) fn opens_events(&self) -> bool {
        self.events.is_opening()
    }

    /// Takes stacks at events from now on where these are open by now: of the processes that they were opened for, if these are still there,
    /// as their numbers are other processes' otherwise.
    pub(in super::super) fn take_opened_events(&mut self) {
        let processes = &self.processes;
        let is_there = |pid: u32| {
            let mut of_number = processes.iter().filter(|process| process.pid() == pid);
            of_number.any(|process| process.is_alive())
        };
        self.events.take_opened(is_there);
    }

    /// Why stacks could not be taken at an event, since this was last asked.
    pub fn take_refused_event(&mut self) -> Option<SessionError> {
        self.events.take_refused()
    }

    /// Takes no more stacks at events.
    pub fn stop_events(&mut self) {
        self.events.stop();
    }

    fn watched_events(&self) -> BTreeSet<Event> {
        let variants = self.streams.flame.variants();
        variants
            .filter_map(|variant| variant.kind.times.event())
            .chain(self.recorded_events())
            .collect()
    }

    /// When the next flame graph is due; never, if nobody watches any.
    pub fn next_flame_ns(&self) -> u64 {
        self.streams.flame.next_due_ns()
    }

    /// True if the session uses only timer samples, which can be symbolised late: not by thread or process, which may be gone by then.
    pub fn is_of_ticks(&self) -> bool {
        let is_of_code = |kind: FlameKind| {
            kind.times.event().is_none() && !matches!(kind.by, Grouping::Thread | Grouping::Process)
        };
        self.times() == Times::TICKS
            && self.scope.steps.is_empty()
            && self.timelines.is_empty()
            && !self.is_recorded()
            && self
                .streams
                .flame
                .variants()
                .all(|variant| is_of_code(variant.kind))
    }

    fn new_flame(&self, kind: FlameKind, engine: &Engine, dropped: Dropped, now_ns: u64) -> flame::Flame {
        let before = SampleCounts {
            sampling: Sampling::now(engine, dropped),
            events: self.events.counts(kind.times, engine),
        };
        let (steps, calls) = (self.steps.as_slice(), self.counted_calls(engine));
        flame::Flame::new(kind, before, steps, calls, self.ages, now_ns)
    }

    /// What was counted of the calls of its steps.
    pub(in super::super) fn counted_calls<'a>(&'a self, engine: &'a Engine) -> Calls<'a> {
        Calls {
            counted: engine,
            joined: &self.joined_calls,
        }
    }
}
