//! The view of whom a session's threads wait for: what is attached while it is watched.

use std::sync::Arc;

use profiler_aggregate::join::Level;
use profiler_scope::Step;

use super::{
    At, FIRST_NS, Live, Renewed, Tick, View,
    unknown::{Unknown, refuse_unknown},
};
use crate::{
    kernel::{Engine, KernelError, Times},
    session::{
        command::{Caller, Handle},
        cost::monotonic_ns,
        error::SessionError,
        off_at_first::{Needs, OffLook},
        replay::Player,
        sampling::Sampling,
        state::Session,
        symbols::Dropped,
        waits::{WaitsPicture, WatchedWaits},
        watchers::{Pictures, Streams},
    },
};

/// What is refused.
pub const WAITS: Unknown = Unknown {
    by_duration: "waits cannot be filtered by call duration, which is unknown until the call ends: remove the condition on it",
    by_return: "waits cannot be filtered by return value, which is unknown until the call ends: remove the condition on it",
    at_line: "waits are those of a function or a call, not of a line: put its function in front of it, as in f/main.cc:1310",
};

/// A client asks for it.
pub struct Waits {
    interval_ns: u64,
}

impl View for Waits {
    type Stream = Pictures<WaitsPicture>;

    const NAME: &'static str = "waits";
    const IS_SAMPLED: bool = true;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live {
            session,
            running,
            now_ns,
            ..
        } = live;
        refuse_unknown(&session.asked_steps(), WAITS)?;
        let stream = session.streams.waits.add((), self.interval_ns, now_ns + FIRST_NS);
        session.settle_waits(&running.engine, running.symbols.dropped());
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.waits(session, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.waits
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.waits
    }

    fn times(session: &Session) -> Times {
        if session.streams.waits.is_empty() {
            Times::default()
        } else {
            Times::WAITS
        }
    }

    fn accepts(session: &Session, steps: &[&Step]) -> Result<(), SessionError> {
        if session.streams.waits.is_empty() {
            return Ok(());
        }
        refuse_unknown(steps, WAITS)
    }

    fn settle(session: &mut Session, engine: &mut Engine, at: At) -> Result<(), KernelError> {
        session.settle_waits(engine, at.dropped);
        Ok(())
    }

    fn renew(session: &mut Session, engine: &mut Engine, at: At, _renewed: Renewed) {
        session.renew_waits(engine, at.dropped);
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let (scope, own) = (Arc::clone(&session.scope_text), session.own_losses());
        let Some(waits) = &session.waits else { return };
        let sampling = Sampling::now(tick.engine, tick.dropped);
        let picture = waits.picture(&tick.moment(&scope, &own), sampling);
        let streams = &mut session.streams.waits;
        streams.publish(tick.now_ns, tick.is_last(), |()| Some(picture.clone()));
    }
}

impl Handle {
    /// Pictures of who a session's threads wait for. Their waits are recorded while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, its scope asks for durations or has no spans, or the kernel refuses the programs.
    pub async fn watch_waits(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
    ) -> Result<Pictures<WaitsPicture>, SessionError> {
        self.watch(caller, name, Waits { interval_ns }).await
    }
}

impl Session {
    /// Begins and ends the look at waits with its watchers.
    fn settle_waits(&mut self, engine: &Engine, dropped: Dropped) {
        if self.streams.waits.is_empty() {
            self.waits = None;
        } else if self.waits.is_none() {
            self.waits = Some(WatchedWaits::new(self.level(), Sampling::now(engine, dropped)));
        }
    }

    /// Goes on with another scope.
    fn renew_waits(&mut self, engine: &Engine, dropped: Dropped) {
        let level = self.level();
        if let Some(waits) = &mut self.waits {
            waits.renew(level, Sampling::now(engine, dropped));
            if !waits.has_begun() {
                // A look that goes on is of before.
                self.off_look.stop();
                self.begin_waits();
            }
        }
    }

    /// Has it looked who is off the CPU, where waits are recorded by now, and that is needed to tell them. What is found counts only where
    /// they were recorded before it was looked.
    pub(in super::super) fn begin_waits(&mut self) {
        if !self.sampled_from.is_sampled() {
            self.off_look.stop();
            return;
        }
        let needs = Needs {
            waits: self.waits.as_ref().is_some_and(|waits| !waits.has_begun()),
            chains: self.chains.as_ref().is_some_and(|chains| !chains.has_begun()),
            records: self.is_to_look_off_cpu(monotonic_ns()),
        };
        self.off_look.begin(self.pids(), needs);
    }

    /// Tells waits from now on, where it has been found by now who was off the CPU.
    pub fn take_off_at_first(&mut self) {
        let Some(off) = self.off_look.take() else { return };
        let pids = self.pids();
        if let Some(waits) = &mut self.waits {
            waits.begin(&pids, &off);
        }
        if let Some(chains) = &mut self.chains {
            chains.begin(&pids, &off.threads);
        }
        if self.is_to_look_off_cpu(off.since_ns)
            && let Some(recorder) = &mut self.records
        {
            recorder.set_off_cpu(off);
        }
    }

    /// Another look of this session's, which has not begun.
    pub fn another_off_look(&self) -> OffLook {
        self.off_look.another()
    }

    /// Whether something that is watched is still being begun, on threads of the session's.
    pub fn is_beginning(&self) -> bool {
        self.opens_events() || self.off_look.is_looking()
    }

    /// Takes over what was begun on such by now.
    pub fn take_begun(&mut self) {
        self.take_opened_events();
        self.take_off_at_first();
    }

    /// The spans of the last step that has any, and the lines behind it.
    fn level(&self) -> Option<Level> {
        self.nesting()?.levels.into_iter().next_back()
    }
}
