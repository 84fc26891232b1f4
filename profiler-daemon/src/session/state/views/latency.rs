//! The latency of a session's calls.

use std::sync::Arc;

use profiler_scope::Place;

use super::{FIRST_NS, Live, Tick, View};
use crate::{
    kernel::Engine,
    session::{
        by_value::{CallsByValue, Counted},
        command::{Caller, Handle},
        error::{Reason, SessionError},
        picture::{LatencyPicture, Losses},
        replay::Player,
        state::{Session, read::join_losses},
        watchers::{Pictures, Streams},
    },
};

/// A client asks for it.
pub struct Latency {
    interval_ns: u64,
}

impl View for Latency {
    type Stream = Pictures<LatencyPicture>;

    const NAME: &'static str = "latency";

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live { session, now_ns, .. } = live;
        if !session.has_spans() {
            let last = session.scope.last().map(|step| &step.place);
            let message = match last {
                Some(place @ Place::Address { .. }) => {
                    let mut call = place.clone();
                    call.call_at_address();
                    format!(
                        "the scope has nothing to time: behind other steps {place} is an instruction; in double quotes, \
                         {call} is the calls of the function that begins there"
                    )
                }
                _ => "the scope has nothing to time: it has to end with a function or a call, as in f or f@main.cc:1312"
                    .to_owned(),
            };
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let streams = &mut session.streams.latency;
        Ok(streams.add((), self.interval_ns, now_ns + FIRST_NS))
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.latency(session, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.latency
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.latency
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let Tick { engine, now_ns, .. } = *tick;
        let last = session.steps.last();
        let functions = last.map_or_else(Vec::new, |last| last.functions.pictures(engine, now_ns));
        let by = session.calls_by_value(engine, tick.is_last());
        let lost: Losses = session
            .span_losses(engine)
            .chain(join_losses(session.dropped))
            .collect();
        let streams = &mut session.streams.latency;
        streams.publish(now_ns, tick.is_last(), |()| {
            Some(LatencyPicture {
                scope: Arc::clone(&session.scope_text),
                functions: functions.clone(),
                by: by.clone(),
                cost: tick.cost,
                lost: lost.clone(),
                ended: tick.ended.cloned(),
            })
        });
    }
}

impl Handle {
    /// Pictures of a session's histograms. The latest one wins; dropping the receiver ends it.
    ///
    /// # Errors
    /// Where there is no such session, or it has no spans to time.
    pub async fn watch_latency(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
    ) -> Result<Pictures<LatencyPicture>, SessionError> {
        self.watch(caller, name, Latency { interval_ns }).await
    }
}

impl Session {
    /// What is shown of the calls by value; `ended` where nothing more is to come.
    fn calls_by_value(&self, engine: &Engine, ended: bool) -> Vec<CallsByValue> {
        let (Some(by), Some(last)) = (&self.by, self.steps.last()) else {
            return Vec::new();
        };
        let counted = Counted {
            engine,
            joined: &self.joined_calls,
        };
        let functions = last.functions.iter();
        functions
            .map(|function| by.picture(counted, function, ended))
            .collect()
    }
}
