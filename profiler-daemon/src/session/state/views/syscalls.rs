//! The view of system calls of a session's threads: what is attached while it is watched.

use std::sync::Arc;

use profiler_scope::Step;
use profiler_symbolize::{Grouping, Groupings};

use super::{
    At, FIRST_NS, Live, Renewed, Tick, View,
    unknown::{Unknown, refuse_unknown},
};
use crate::{
    kernel::{CountedCalls, Engine, KernelError, SharedStack, Times},
    session::{
        command::{Caller, Handle},
        cost::monotonic_ns,
        error::SessionError,
        records::GROUPINGS,
        refusal::kernel_refusal,
        replay::Player,
        running::open_calls,
        state::Session,
        steps::RunningStep,
        system_calls::{CallView, SyscallsPicture, TakenTurn, UnnamedStacks, WatchedCalls},
        watchers::{Pictures, Streams},
    },
};

/// What is refused.
pub const SYSCALLS: Unknown = Unknown {
    by_duration: "system calls cannot be filtered by the duration of the call around them, which is unknown until it ends: remove the condition on it",
    by_return: "system calls cannot be filtered by what the call around them returns, which is unknown until it ends: remove the condition on it",
    at_line: "system calls are those of a function or a call, not of a line: put its function in front of it, as in f/main.cc:1310",
};

/// A client asks for them, by who makes them.
pub struct Syscalls {
    interval_ns: u64,
    by: Grouping,
}

impl View for Syscalls {
    type Stream = Pictures<SyscallsPicture>;

    const NAME: &'static str = "system calls";
    const IS_SAMPLED: bool = true;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Self { interval_ns, by } = self;
        let Live {
            session,
            others,
            running,
            now_ns,
            ..
        } = live;
        refuse_unknown(&session.asked_steps(), SYSCALLS)?;
        let is_counted = session.watches_calls();
        let stream = session.streams.syscalls.add(by, interval_ns, now_ns + FIRST_NS);
        if is_counted {
            running.end_turn(now_ns);
            running.take_calls(others.values_mut().chain([&mut *session]), now_ns);
        }
        session
            .settle_calls(&mut running.engine, now_ns)
            .map_err(|error| kernel_refusal(&error))?;
        // The first stack may be named when the process has ended already.
        running.symbols.meeting(session.pids(), Box::new(|| ()))();
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.syscalls(session, self.by, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.syscalls
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.syscalls
    }

    fn times(session: &Session) -> Times {
        Times {
            calls: session.call_views(),
            ..Times::default()
        }
    }

    fn accepts(session: &Session, steps: &[&Step]) -> Result<(), SessionError> {
        if session.streams.syscalls.is_empty() {
            return Ok(());
        }
        refuse_unknown(steps, SYSCALLS)
    }

    fn settle(session: &mut Session, engine: &mut Engine, at: At) -> Result<(), KernelError> {
        session.settle_calls(engine, at.now_ns)
    }

    fn renew(session: &mut Session, engine: &mut Engine, at: At, _renewed: Renewed) {
        session.renew_calls(engine, at.now_ns);
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let (scope, own) = (Arc::clone(&session.scope_text), session.own_losses());
        let Some(calls) = &session.calls else { return };
        let open = open_calls(tick.engine);
        let moment = tick.moment(&scope, &own);
        let streams = &mut session.streams.syscalls;
        streams.publish(tick.now_ns, tick.is_last(), |by| {
            Some(calls.picture(tick.engine, by, &moment, &open))
        });
    }
}

impl Handle {
    /// Pictures of a session's system calls, by who makes them. They are counted while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, its scope asks for durations or has no spans, or the kernel refuses the programs.
    pub async fn watch_syscalls(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
        by: Grouping,
    ) -> Result<Pictures<SyscallsPicture>, SessionError> {
        self.watch(caller, name, Syscalls { interval_ns, by }).await
    }
}

impl Session {
    /// Whether somebody watches or records its system calls.
    pub fn watches_calls(&self) -> bool {
        !self.streams.syscalls.is_empty() || self.records_calls()
    }

    /// The gates' bits that stand for its having all system calls counted, where calls are counted for it.
    fn call_views(&self) -> Option<u32> {
        let calls = self.calls.as_ref().filter(|_| self.watches_calls())?;
        Some(match calls.view() {
            CallView::All => calls.gate().bits(),
            CallView::InSpans | CallView::BehindLine => 0,
        })
    }

    /// Begins and ends the look at system calls with its watchers.
    ///
    /// # Errors
    /// Where too many count something in spans.
    pub(in super::super) fn settle_calls(
        &mut self,
        engine: &mut Engine,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        if !self.watches_calls() {
            self.end_calls(engine);
        } else if self.calls.is_none() {
            self.begin_calls(engine, now_ns)?;
        }
        let is_recorded = self.records_calls();
        if let Some(calls) = &mut self.calls {
            if is_recorded {
                calls.begin_recording(engine);
            } else {
                calls.end_recording();
            }
        }
        Ok(())
    }

    /// Goes on with another scope, from nothing.
    fn renew_calls(&mut self, engine: &mut Engine, now_ns: u64) {
        if self.calls.is_none() {
            return;
        }
        self.end_calls(engine);
        if let Err(error) = self.begin_calls(engine, now_ns) {
            // Tried again at the next reading.
            tracing::warn!(%error, "system calls are not counted");
        }
        self.note_calls();
    }

    fn begin_calls(&mut self, engine: &mut Engine, now_ns: u64) -> Result<(), KernelError> {
        let behind_line = self.steps.last().filter(|last| !last.step.place.has_spans());
        let (gate, view) = match behind_line.and_then(RunningStep::gate) {
            Some(gate) => (gate, CallView::BehindLine),
            None if self.steps.last().is_none() => (engine.take_gate(now_ns)?, CallView::All),
            None => (engine.take_gate(now_ns)?, CallView::InSpans),
        };
        let mut calls = WatchedCalls::new(engine, gate, view, &self.pids());
        if self.records_calls() {
            calls.begin_recording(engine);
        }
        self.calls = Some(calls);
        engine.add_call_view(gate, view != CallView::All);
        if view == CallView::InSpans {
            self.steps.open_in_last(engine, Some(gate));
        }
        Ok(())
    }

    /// Has no more system calls counted, and keeps what was.
    pub fn stop_calls(&self, engine: &Engine) {
        if let Some(calls) = &self.calls {
            engine.remove_call_view(calls.gate());
        }
    }

    /// Ends the look at system calls.
    pub(in super::super) fn end_calls(&mut self, engine: &mut Engine) {
        let Some(calls) = self.calls.take() else { return };
        let gate = calls.gate();
        engine.remove_call_view(gate);
        match calls.view() {
            CallView::All => engine.give_back_gate(gate),
            CallView::InSpans => {
                self.steps.open_in_last(engine, None);
                engine.give_back_gate(gate);
            }
            // It stays the step's.
            CallView::BehindLine => {}
        }
    }

    /// Begins the look at system calls where they are counted by now.
    pub(in super::super) fn note_calls(&mut self) {
        let is_counted = self.sampled_from.is_sampled();
        if let Some(calls) = self.calls.as_mut().filter(|_| is_counted) {
            calls.begin(monotonic_ns());
        }
    }

    /// Takes calls that returned, of whatever session.
    pub fn take_calls(&mut self, counted: &[CountedCalls]) {
        if let Some(calls) = &mut self.calls {
            for counted in counted {
                calls.take(counted);
            }
        }
    }

    /// Takes what was counted in a turn, to be recorded.
    pub fn record_calls(&mut self, taken: &TakenTurn<'_>) {
        if let Some(calls) = &mut self.calls {
            calls.record(taken);
        }
    }

    /// Stacks that system calls were made from and that have no names yet, and what to name them in.
    pub fn unnamed_callers(&mut self, engine: &Engine, now_ns: u64) -> (UnnamedStacks, Groupings) {
        let recorded = GROUPINGS.into_iter().filter(|_| self.records_calls());
        let groupings: Groupings = self.streams.syscalls.variants().chain(recorded).collect();
        let calls = self.calls.as_mut();
        let unnamed = calls.map_or_else(Vec::new, |calls| calls.unnamed(engine, groupings, now_ns));
        (unnamed, groupings)
    }

    /// Has them named another time: nobody had the time.
    pub fn ask_again(&mut self, stacks: &[(u32, Arc<SharedStack>)]) {
        if let Some(calls) = &mut self.calls {
            calls.ask_again(stacks);
        }
    }
}
