//! Views of sessions are opened for clients.

use super::Owner;
use crate::session::{
    command::{Caller, Reply},
    cost::monotonic_ns,
    error::{Reason, SessionError},
    name::SessionName,
    running::{OPENING_NS, Opening, answer},
    state::{
        Session,
        views::{Live, View},
    },
};

impl Owner {
    /// Opens a view of a session, and answers with its stream.
    pub fn watch<V: View>(&mut self, caller: Caller, name: &str, view: V, reply: Reply<V::Stream>) {
        let now_ns = monotonic_ns();
        let allowed = self.session(caller, name).map(|_| ());
        let name = &SessionName::meant_by(caller, name);
        let done = if allowed.is_ok() { "watched" } else { "refused" };
        tracing::info!(target: "audit", uid = caller.uid, session = %name, view = V::NAME, "{done}");
        if let Err(error) = allowed {
            answer(reply, Err(error));
            return;
        }
        let stream = self.open(name, view, now_ns);
        if V::IS_SAMPLED {
            self.open_sampled(name, now_ns, stream, reply);
        } else {
            answer(reply, stream);
        }
    }

    /// A session that is asked about something before a view of it is opened. That a caller may not is logged.
    pub fn asked_before<V: View>(
        &mut self,
        caller: Caller,
        name: &str,
    ) -> Result<&mut Session, SessionError> {
        let session = self.session(caller, name);
        if session.is_err() {
            let session = &SessionName::meant_by(caller, name);
            tracing::info!(target: "audit", uid = caller.uid, session = %session, view = V::NAME, "refused");
        }
        session
    }

    pub(super) fn open<V: View>(
        &mut self,
        name: &SessionName,
        view: V,
        now_ns: u64,
    ) -> Result<V::Stream, SessionError> {
        let (Some(running), Some(mut session)) = (&mut self.running, self.sessions.remove(name)) else {
            return Err(SessionError::new(Reason::Kernel, "the engine is not loaded"));
        };
        let stream = view.open(Live {
            session: &mut session,
            others: &mut self.sessions,
            running,
            backlogs: &mut self.backlogs,
            now_ns,
        });
        if stream.is_ok() {
            session.renew(now_ns);
        }
        self.sessions.insert(name.clone(), session);
        // The session may end before the next tick, and what the ring buffer holds then is for this stream too.
        self.want_records(&[]);
        stream
    }

    /// Answers with a stream of a session's samples, once its target is sampled.
    pub(super) fn open_sampled<W: Send + 'static>(
        &mut self,
        name: &SessionName,
        now_ns: u64,
        watch: Result<W, SessionError>,
        reply: Reply<W>,
    ) {
        let watch = watch.and_then(|watch| self.settle_sampler().map(|()| watch));
        let refused = self.sessions.get_mut(name).and_then(Session::take_refused_event);
        let watch = watch.and_then(|watch| refused.map_or(Ok(watch), Err));
        match (watch, &mut self.running, self.sessions.get(name)) {
            (Ok(watch), Some(running), Some(session)) => {
                let (pids, until_ns) = (session.pids(), now_ns + OPENING_NS);
                let wanted = session.wanted();
                if wanted.names_tasks() {
                    running.symbols.meet_tasks(pids.clone(), wanted, now_ns);
                }
                let open = move |refused: Option<SessionError>| answer(reply, refused.map_or(Ok(watch), Err));
                running
                    .opening
                    .push(Opening::new(pids, until_ns, open).of_stream(name.clone()));
                running.open(&mut self.sessions, now_ns);
            }
            (watch, ..) => answer(reply, watch),
        }
    }
}
