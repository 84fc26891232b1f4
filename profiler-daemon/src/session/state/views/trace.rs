//! What happens at a session's places, as it happens.

use tokio::sync::mpsc;

use super::{Live, Tick, View};
use crate::session::{
    command::{Caller, Handle, Purpose},
    error::{Reason, SessionError},
    replay::Player,
    span_losses::SpanLosses,
    state::Session,
    trace::{self, Around, TraceBatch},
    watchers::Streams,
};

/// A client asks for it.
pub struct Trace;

impl View for Trace {
    type Stream = mpsc::Receiver<TraceBatch>;

    const NAME: &'static str = "trace";
    const IS_OF_COUNTS: bool = false;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live {
            session,
            running,
            backlogs,
            now_ns,
            ..
        } = live;
        let capture = session.capture.as_ref();
        if !capture.is_some_and(|capture| capture.purpose == Purpose::Shown) {
            let message = "the session records no hits: make one with `profiler session new --trace`";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let stream = session.trace.watch(&backlogs.of(session.owner()));
        session.read(&running.engine, now_ns);
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.trace(session, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.trace
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.trace
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let around = Around {
            dropped: session.dropped,
            waiting: session.path.waiting(),
        };
        let lost = SpanLosses::now(tick.engine).since(session.lost_before);
        let unseen = lost.unseen(&session.scope);
        let unseen = unseen.chain(session.own_losses().by_reason()).collect();
        session
            .trace
            .publish(tick.engine, tick.frames, around, &unseen, tick.cost, tick.ended);
    }
}

impl Streams for trace::Trace {
    fn len(&self) -> usize {
        self.watchers()
    }

    fn sweep(&mut self) {
        trace::Trace::sweep(self);
    }

    /// What comes is told at each tick.
    fn is_due(&self, _now_ns: u64) -> bool {
        true
    }
}

impl Handle {
    /// What happens at a session's places as it happens.
    ///
    /// # Errors
    /// Where there is no such session, or it records nothing.
    pub async fn watch_trace(
        &self,
        caller: Caller,
        name: String,
    ) -> Result<mpsc::Receiver<TraceBatch>, SessionError> {
        self.watch(caller, name, Trace).await
    }
}
