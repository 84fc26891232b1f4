//! How a session ends, and its watchers get their last pictures.
//!
//! ```text
//! end_session ──▶ Detaching ── links are closed ──▶ answer ──▶ Over ── records have names ──▶ last pictures ──▶ slots are free
//! ```
//!
//! Its probes go at once, but the kernel takes its time to close their links. What it has recorded until then goes to the thread that
//! names stacks, which may be reading a large file, or have much to name of others. Nobody else waits for either, and root, who asked for
//! the end, only for the links.

use std::collections::HashSet;

use super::{Owner, Steps};
use crate::{
    kernel::{AttachKind, OffCpu, StillOff},
    session::{
        admissions::by_process,
        command::Reply,
        cost::monotonic_ns,
        ending::Ending,
        memory,
        name::SessionName,
        off_at_first::{Needs, OffLook},
        records::OffAtFirst,
        running::Running,
        state::Session,
        symbols::NamedBatch,
    },
};

/// Longest time that a session waits for the names of what it has recorded; what is not named by then is shown as lost.
const MAX_WAIT_NS: u64 = 15_000_000_000;

/// Longest time that a session waits until it is known which of its threads are off the CPU; then what the programs say counts alone.
const MAX_LOOK_NS: u64 = 1_000_000_000;

/// What is named is given to sessions for so long at once.
const HANDED_OVER_NS: u64 = 10_000_000;

/// A session that has ended, and whose probes are being taken off the target.
pub struct Detaching {
    session: Session,
    ending: Ending,
    /// Since when.
    since_ns: u64,
    /// All are taken off at once, as one link: they count until its turn comes.
    is_one: bool,
    /// What its threads did off the CPU when it ended.
    still_off: Vec<StillOff>,
    /// The look which of them are, if it is needed.
    off_look: OffLook,
    /// What it has found.
    off: Option<OffAtFirst>,
    /// Who waits for its end, if somebody does.
    reply: Option<Reply<()>>,
}

/// A session whose probes are off the target, and whose last records are being named.
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
    /// Who still waits for its end, where something of it is on the target until then.
    reply: Option<Reply<()>>,
}

impl Over {
    fn is_named(&self, now_ns: u64) -> bool {
        self.awaited == 0 || now_ns >= self.since_ns + MAX_WAIT_NS
    }

    /// The session, which holds its slots still.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl Detaching {
    /// The session, whose probes may still count.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Takes what the look has found.
    fn take_look(&mut self) {
        if let Some(off) = self.off_look.take() {
            self.off = Some(off);
        } else if self.off_look.is_looking() && monotonic_ns() >= self.since_ns + MAX_LOOK_NS {
            tracing::warn!(session = %self.session.name, "it is not known yet who is off the CPU: not waited for");
            self.off_look.stop();
        }
    }

    /// Whether its probes are off the target, and nothing else is waited for.
    fn is_settled(&self) -> bool {
        !self.off_look.is_looking() && self.session.is_settled()
    }
}

impl Owner {
    /// Ends a session: what is on its way still counts, watchers get their last picture.
    pub(super) fn end_session(&mut self, name: &SessionName, ending: &Ending) {
        self.end_session_and_answer(name, ending, None);
    }

    /// The same, and answers when its probes are off the target; a user when it holds nothing any more, either.
    pub(super) fn end_session_and_answer(
        &mut self,
        name: &SessionName,
        ending: &Ending,
        reply: Option<Reply<()>>,
    ) {
        let Some(mut session) = self.sessions.remove(name) else {
            return;
        };
        Self::note_ended(&mut self.ended, name, &session, ending);
        self.refuse_edits_of(name, ending);
        self.want_records(&[&session]);
        let mut steps = Steps::begin();
        let Some(running) = &mut self.running else { return };
        // Who is off the CPU for others stays known: their times go on.
        let others_watch = self
            .sessions
            .values()
            .any(|other| other.times().off_cpu != OffCpu::No);
        // In calls it is not known which are open.
        let mut still_off = if session.times().off_cpu == OffCpu::All && !session.divides() {
            // The iterator finds room for its stacks.
            running.drain_all(monotonic_ns());
            if others_watch {
                running.engine.still_off()
            } else {
                running.engine.stop_watch()
            }
        } else {
            Vec::new()
        };
        // The clocks stand still for its last sample; other sessions' go on below.
        if session.samples()
            && let Err(error) = running.engine.pause(others_watch)
        {
            tracing::warn!(%error, "the sampler could not be stopped");
        }
        steps.end("end_sampling");
        session.stop_events();
        let since_ns = monotonic_ns();
        session.end_samples(since_ns);
        if others_watch {
            // Who has come back before is told by a record of its own.
            running.engine.keep_off(&mut still_off);
        }
        session.quiesce(&mut running.engine);
        steps.end("end_probes");
        if session.watches_calls() {
            running.end_turn(since_ns);
            running.take_calls(self.sessions.values_mut().chain([&mut session]), since_ns);
            session.stop_calls(&running.engine);
        }
        steps.end("end_system_calls");
        // A link counts nothing any more when it begins to close; that the kernel then waits is no part of the run. Of many, as perf
        // events are, each counts until its turn to be closed comes.
        let is_one = session.attachments() == 1 && running.engine.ability().attach == AttachKind::Multi;
        let mut off_look = session.another_off_look();
        let needs = Needs {
            waits: !still_off.is_empty(),
            ..Needs::default()
        };
        off_look.begin(session.pids(), needs);
        self.detaching.push(Detaching {
            session,
            off_look,
            off: None,
            ending: ending.clone(),
            since_ns,
            is_one,
            still_off,
            reply,
        });
        self.settle_sampler_or_warn();
        steps.end("end_sampler_of_others");
    }

    /// Goes on with what waits for links to be closed and for names: sessions that have ended, and probes that are to be attached again.
    pub(super) fn go_on(&mut self) {
        self.attach_again();
        // One at a time: others ask in between.
        self.detaching.iter_mut().for_each(Detaching::take_look);
        if let Some(at) = self.detaching.iter().position(Detaching::is_settled) {
            let detaching = self.detaching.remove(at);
            self.take_last(detaching);
            // Tables for its stacks were needed until now.
            self.settle_sampler_or_warn();
        }
        self.finish_over();
        if let Some(running) = &mut self.running
            && running.answer_left()
        {
            self.unload_unless_kept();
        }
    }

    /// Unloads the engine where nobody needs it, and nobody prepares a session with what is loaded.
    fn unload_unless_kept(&mut self) {
        let now_ns = monotonic_ns();
        let running = self.running.as_ref();
        if running.is_some_and(|running| now_ns >= running.keep_until_ns) {
            self.unload_if_idle();
        }
    }

    /// Whether sessions are ending, or requests wait for that.
    pub(super) fn is_ending(&self) -> bool {
        let running = self.running.as_ref();
        !self.detaching.is_empty() || !self.over.is_empty() || running.is_some_and(Running::has_leavers)
    }

    /// Sessions whose probes may be on their targets: all, and those that have ended and whose probes are being taken off.
    pub(super) fn at_targets(&self) -> impl Iterator<Item = &Session> {
        let detaching = self.detaching.iter().map(Detaching::session);
        self.sessions.values().chain(detaching)
    }

    /// Whether a session that is ending can go on at once.
    pub(super) fn can_go_on(&self) -> bool {
        let now_ns = monotonic_ns();
        self.detaching.iter().any(Detaching::is_settled) || self.over.iter().any(|over| over.is_named(now_ns))
    }

    /// Whether [`Self::go_on`] has something to go on with.
    pub(super) fn is_awaiting(&self) -> bool {
        self.is_ending() || self.sessions.values().any(Session::is_awaited)
    }

    /// Takes what a session has counted and recorded, now that its probes are off the target.
    fn take_last(&mut self, detaching: Detaching) {
        let Detaching {
            mut session,
            ending,
            since_ns,
            is_one,
            still_off,
            off,
            reply,
            ..
        } = detaching;
        let now_ns = if is_one {
            since_ns.saturating_add(session.delay_ns())
        } else {
            monotonic_ns()
        };
        self.want_records(&[&session]);
        let Some(running) = &mut self.running else { return };
        session.read(&running.engine, now_ns);
        // A user may have few, and can make another once this one holds nothing any more.
        let is_of_root = session.owner().is_root();
        let detached = is_of_root.then(|| session.detached(&running.engine)).flatten();
        let reply = match (reply, detached) {
            (Some(reply), Some(detached)) => {
                running.answer_when_left(detached, reply, ());
                None
            }
            (reply, _) => reply,
        };
        running.drain_all(now_ns);
        let before = running.symbols.under_way();
        running.send_still_off(&still_off, off.as_ref(), &session.pids(), since_ns);
        let awaited = running.symbols.under_way();
        let states = running.engine.look_at(&session.asked_about());
        session.lose_closed(states.map(by_process));
        session.end_buckets(&running.engine, now_ns, Some(&ending));
        self.over.push(Over {
            session,
            ending,
            now_ns,
            since_ns: monotonic_ns(),
            awaited,
            last: awaited - before,
            reply,
        });
        // Nobody looks at its processes for it any more.
        running.admissions.unsettle();
    }

    /// Has records kept of what sessions look at: of all, of those whose probes are being taken off, and of these.
    pub(super) fn want_records(&mut self, beside: &[&Session]) {
        let sessions = self.at_targets().chain(beside.iter().copied());
        let wanted = sessions.map(Session::wanted).collect();
        if let Some(running) = &mut self.running {
            running.wanted = wanted;
        }
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

    /// Gives all sessions what has been named. What there is no time for comes soon, when others had their turn.
    pub(super) fn take_named(&mut self) {
        let begin_ns = monotonic_ns();
        // Of one that waits no longer, all is taken that there is.
        let is_last = |over: &Over| over.awaited > 0 && over.is_named(begin_ns);
        let until_ns = if self.over.iter().any(is_last) {
            u64::MAX
        } else {
            begin_ns + HANDED_OVER_NS
        };
        self.has_named = false;
        while let Some(batch) = self.running.as_mut().and_then(|running| running.symbols.take()) {
            self.hand_over(&batch);
            if monotonic_ns() >= until_ns {
                self.has_named = true;
                break;
            }
        }
        let Some(running) = &mut self.running else { return };
        let dropped = running.symbols.take_dropped_hits();
        if !dropped.is_empty() {
            let over = self.over.iter_mut().map(|over| &mut over.session);
            let detaching = self.detaching.iter_mut().map(|detaching| &mut detaching.session);
            for session in self.sessions.values_mut().chain(detaching).chain(over) {
                session.miss(&dropped);
            }
        }
    }

    fn hand_over(&mut self, batch: &NamedBatch) {
        let Some(running) = &mut self.running else { return };
        running.frames = batch.frames.clone();
        let detaching = self.detaching.iter_mut().map(|detaching| &mut detaching.session);
        for session in self.sessions.values_mut().chain(detaching) {
            // Before the first waits after that.
            session.take_off_at_first();
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
    fn finish_over(&mut self) {
        self.take_named();
        let now_ns = monotonic_ns();
        if let Some(at) = self.over.iter().position(|over| over.is_named(now_ns)) {
            let over = self.over.remove(at);
            self.finish(vec![over]);
        }
    }

    fn finish(&mut self, all: Vec<Over>) {
        for over in all {
            self.show_last(over);
        }
        self.settle_admissions();
        self.unload_unless_kept();
        memory::give_back_soon();
    }

    /// Gives a session's watchers their last pictures, and answers who waits for its end once nothing of it is on the target.
    fn show_last(&mut self, over: Over) {
        let Over {
            mut session,
            ending,
            now_ns,
            awaited,
            reply,
            ..
        } = over;
        let Some(running) = &mut self.running else { return };
        let mut dropped = running.symbols.dropped();
        if awaited > 0 {
            // They come too late for it.
            session.miss(&running.symbols.hits_under_way());
            dropped = running.symbols.dropped_at_end();
        }
        session.publish(&running.engine, &running.frames, dropped, now_ns, Some(&ending));
        // A session that was made meanwhile has met its processes: they may have ended since.
        let others = self.sessions.values();
        let others = others.chain(self.detaching.iter().map(Detaching::session));
        let others = others.chain(self.over.iter().map(Over::session));
        let looked_at: HashSet<u32> = others.flat_map(Session::pids).collect();
        let mut unseen = session.pids();
        unseen.retain(|pid| !looked_at.contains(pid));
        running.symbols.forget(unseen);
        let detached = session.detach(&mut running.engine);
        tracing::info!(target: "audit", session = %session.name, reason = %ending, "detached");
        if let Some(reply) = reply {
            running.answer_when_left(detached, reply, ());
        }
        // Nobody has begun to prepare another session since this one was made.
        if running.preparations == session.preparation {
            running.keep_until_ns = 0;
        }
    }

    /// Ends all sessions, and waits for their last pictures.
    pub(super) fn end_all(&mut self, reason: &str) {
        for name in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.end_session(&name, &Ending::other(reason));
        }
        for detaching in &self.detaching {
            detaching.session.wait_until_settled();
        }
        while let Some(mut detaching) = self.detaching.pop() {
            detaching.take_look();
            self.take_last(detaching);
        }
        self.wait_for_names(monotonic_ns() + MAX_WAIT_NS);
        // With the hits that were dropped.
        self.take_named();
        let all = std::mem::take(&mut self.over);
        self.finish(all);
        if let Some(running) = &mut self.running {
            running.engine.wait_for_leaving();
            running.answer_all();
        }
        self.unload_if_idle();
    }
}
