//! How a session ends, and its watchers get their last pictures.
//!
//! Its probes go at once, and what it has recorded goes to the thread that names stacks. The last pictures are made when that has come
//! back, which nobody else waits for: the thread may be reading a large file.

use std::sync::Arc;

use super::Owner;
use crate::{
    kernel::{AttachKind, OffCpu},
    session::{
        command::Reply,
        cost::monotonic_ns,
        ending::Ending,
        memory,
        name::SessionName,
        pace::TICK_NS,
        running::answer,
        state::{Closed, Session},
        symbols::NamedBatch,
    },
};

/// The owner waits so long for names itself: they are nearly always there by then, and the session is over when that is answered.
const AT_ONCE_NS: u64 = 20_000_000;

/// Longest time that a session waits for the names of what it has recorded; what is not named by then is shown as lost.
const MAX_WAIT_NS: u64 = 15_000_000_000;

/// A session that has ended, and whose last records are being named.
pub struct Over {
    session: Session,
    ending: Ending,
    /// The time that its last pictures are of.
    now_ns: u64,
    /// Since when it waits for names.
    since_ns: u64,
    /// Batches that its records may be in.
    awaited: usize,
    /// The last of them, which have what its threads still did off the CPU: those before may have the same of another session that ended.
    last: usize,
    /// Who waits for its end, if somebody does.
    reply: Option<Reply<()>>,
}

impl Over {
    fn is_named(&self, now_ns: u64) -> bool {
        self.awaited == 0 || now_ns >= self.since_ns + MAX_WAIT_NS
    }

    /// Whether others went on before it was over.
    fn is_late(&self, now_ns: u64) -> bool {
        now_ns > self.since_ns + 2 * AT_ONCE_NS
    }
}

impl Owner {
    /// Ends a session: what is on its way still counts, watchers get their last picture.
    pub(super) fn end_session(&mut self, name: &SessionName, ending: &Ending) {
        self.end_session_and_answer(name, ending, None);
    }

    /// The same, and answers when it is over.
    pub(super) fn end_session_and_answer(
        &mut self,
        name: &SessionName,
        ending: &Ending,
        reply: Option<Reply<()>>,
    ) {
        let (Some(running), Some(mut session)) = (&mut self.running, self.sessions.remove(name)) else {
            return;
        };
        Self::note_ended(&mut self.ended, name, &session, ending);
        let sessions = self.sessions.values().chain([&session]);
        running.wanted = sessions.map(Session::wanted).collect();
        // In calls it is not known which are open.
        let still_off = if session.times().off_cpu == OffCpu::All && !session.divides() {
            // The iterator finds room for its stacks.
            running.drain_all(monotonic_ns());
            running.engine.stop_watch()
        } else {
            Vec::new()
        };
        let still_off_ns = monotonic_ns();
        // The clocks stand still until the last samples are counted; other sessions' go on below.
        if session.samples()
            && let Err(error) = running.engine.pause()
        {
            tracing::warn!(%error, "the sampler could not be stopped");
        }
        session.stop_events();
        // What is counted from here on would be shown nowhere.
        let closing_ns = monotonic_ns();
        session.quiesce(&mut running.engine);
        // A link counts nothing any more when it begins to close; that the kernel then waits is no part of the run. Of many, as perf
        // events are, each counts until its turn to be closed comes.
        let is_one = session.attachments() == 1 && running.engine.ability().attach == AttachKind::Multi;
        let now_ns = if is_one { closing_ns } else { monotonic_ns() };
        session.read(&running.engine, now_ns);
        let counts_calls = session.watches_calls();
        if counts_calls {
            running.end_turn(now_ns);
        }
        running.drain_all(now_ns);
        if counts_calls {
            let others = self.sessions.values_mut();
            running.take_calls(others.chain([&mut session]), now_ns);
        }
        let before = running.symbols.under_way();
        running.send_still_off(&still_off, &session.pids(), still_off_ns);
        let awaited = running.symbols.under_way();
        for Closed { pid, .. } in session.closed_to_owner() {
            session.lose_timelines(pid);
        }
        session.end_buckets(&running.engine, monotonic_ns(), Some(ending));
        let since_ns = monotonic_ns();
        self.over.push(Over {
            session,
            ending: ending.clone(),
            now_ns,
            since_ns,
            awaited,
            last: awaited - before,
            reply,
        });
        self.wait_for_names(since_ns + AT_ONCE_NS);
        if let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
        self.finish_over();
    }

    /// Waits for the names of what ended sessions have recorded.
    fn wait_for_names(&mut self, until_ns: u64) {
        while self.over.iter().any(|over| !over.is_named(monotonic_ns())) {
            let batch = self
                .running
                .as_mut()
                .and_then(|running| running.symbols.take_until(until_ns));
            let Some(batch) = batch else { return };
            self.hand_over(&batch);
        }
    }

    /// Gives all sessions what has been named.
    fn take_named(&mut self) {
        while let Some(batch) = self.running.as_mut().and_then(|running| running.symbols.take()) {
            self.hand_over(&batch);
        }
        let Some(running) = &mut self.running else { return };
        let dropped = running.symbols.take_dropped_hits();
        if !dropped.is_empty() {
            let over = self.over.iter_mut().map(|over| &mut over.session);
            for session in self.sessions.values_mut().chain(over) {
                session.miss(&dropped);
            }
        }
    }

    fn hand_over(&mut self, batch: &NamedBatch) {
        let Some(running) = &mut self.running else { return };
        if !batch.frames.is_empty() {
            Arc::make_mut(&mut running.frames).extend(batch.frames.iter().cloned());
        }
        for session in self.sessions.values_mut() {
            session.take(batch);
        }
        for over in self.over.iter_mut().filter(|over| over.awaited > 0) {
            if over.awaited > over.last {
                over.session.take(batch);
            } else {
                over.session.take_last(batch);
            }
            over.awaited -= 1;
        }
    }

    /// Gives the watchers of sessions whose last records have names their last pictures, and takes back what these held.
    pub(super) fn finish_over(&mut self) {
        self.take_named();
        let now_ns = monotonic_ns();
        let named: Vec<Over> = self.over.extract_if(.., |over| over.is_named(now_ns)).collect();
        if !named.is_empty() {
            self.finish(named);
        }
        if let Some(running) = &mut self.running
            && !self.over.is_empty()
        {
            running.next_tick_ns = running.next_tick_ns.min(now_ns + TICK_NS);
        }
    }

    fn finish(&mut self, all: Vec<Over>) {
        let now_ns = monotonic_ns();
        let is_late = all.iter().any(|over| over.is_late(now_ns));
        let replies: Vec<Reply<()>> = all.into_iter().filter_map(|over| self.show_last(over)).collect();
        self.settle_admissions();
        // Meanwhile somebody may have begun to prepare a session with what is loaded: it stays for a while then.
        let is_kept = self
            .running
            .as_ref()
            .is_some_and(|running| now_ns < running.keep_until_ns);
        if !is_late || !is_kept {
            self.unload_if_idle();
        }
        for reply in replies {
            answer(reply, Ok(()));
        }
        memory::give_back_soon();
    }

    /// Gives a session's watchers their last pictures. Who waits for that.
    fn show_last(&mut self, over: Over) -> Option<Reply<()>> {
        let Over {
            mut session,
            ending,
            now_ns,
            awaited,
            reply,
            ..
        } = over;
        let running = self.running.as_mut()?;
        let mut dropped = running.symbols.dropped();
        if awaited > 0 {
            // They come too late for it.
            session.miss(&running.symbols.hits_under_way());
            dropped = running.symbols.dropped_at_end();
        }
        session.publish(&running.engine, &running.frames, dropped, now_ns, Some(&ending));
        for pid in session.pids() {
            running.symbols.forget(pid);
        }
        session.detach(&mut running.engine);
        tracing::info!(target: "audit", session = %session.name, reason = %ending, "detached");
        reply
    }

    /// Ends all sessions, and waits for their last pictures.
    pub(super) fn end_all(&mut self, reason: &str) {
        for name in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.end_session(&name, &Ending::other(reason));
        }
        self.wait_for_names(monotonic_ns() + MAX_WAIT_NS);
        let all = std::mem::take(&mut self.over);
        self.finish(all);
    }
}
