//! What is done again and again: records are taken, budgets kept, sessions looked after, pictures given out.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::{Owner, READ_NS, Steps};
use crate::{
    kernel::{OffCpu, Times},
    session::{
        command::Caller,
        cost::monotonic_ns,
        ending::{EndCause, Ending},
        error::SessionError,
        name::SessionName,
        refusal::kernel_refusal,
        state::{ProbeCosts, Session, views::At},
    },
};

/// Where tables of some processes take long to make, so much time passes at least from one setting of the sampler to the next, for those
/// that have theirs by then.
const SAMPLER_AGAIN_NS: u64 = 500_000_000;

/// Pictures are given out for so long at once.
const SHOWN_NS: u64 = 10_000_000;

/// What is shown is of no time longer ago.
const STALE_NS: u64 = 20_000_000;

fn is_of_user(name: &SessionName) -> bool {
    name.uid() != 0
}

impl Owner {
    /// As [`Self::settle_sampler`], where nobody has asked who could be told that it failed.
    pub(super) fn settle_sampler_or_warn(&mut self) {
        if let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
    }

    /// Samples the processes whose flame graph somebody looks at, and follows those whose stacks are taken.
    pub(super) fn settle_sampler(&mut self) -> Result<(), SessionError> {
        let taken = self.at_targets().filter(|session| session.takes_stacks());
        let mut followed: BTreeSet<u32> = taken.flat_map(Session::pids).collect();
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let sampled = || self.sessions.values().filter(|session| session.samples());
        let pids: HashSet<u32> = sampled().flat_map(Session::pids).collect();
        let watched = !pids.is_empty();
        let now_ns = monotonic_ns();
        running.expected.retain(|process| now_ns < process.until_ns);
        followed.extend(&pids);
        followed.extend(running.expected.iter().map(|process| process.pid));
        running.has_new_tables = false;
        running.sampler_set_ns = now_ns;
        // Those whose tables are not there yet follow at a tick.
        let mut ready = running.following.follow(&followed, now_ns);
        ready.retain(|pid| pids.contains(pid));
        if watched {
            // While the tables are being made.
            running
                .engine
                .ready_sampler()
                .map_err(|error| kernel_refusal(&error))?;
        }
        let frequency_hz = sampled().map(|session| session.frequency_hz).max().unwrap_or(0);
        let times: Vec<(&Session, Times)> = sampled().map(|session| (session, session.times())).collect();
        let times_of = |pid: &u32| {
            let wanted = times.iter().filter(|(session, _)| session.looks_at(*pid));
            wanted.map(|(_, times)| *times).fold(Times::default(), Times::or)
        };
        let targets: Vec<(u32, Times)> = ready.iter().map(|pid| (*pid, times_of(pid))).collect();
        let is_watched = sampled().any(|session| session.times().off_cpu != OffCpu::No);
        let mut sampled = running.engine.sample(&targets, frequency_hz);
        if is_watched && sampled.is_ok() {
            sampled = running.engine.ready_watch();
        }
        let (pids, now_ns) = (if sampled.is_ok() { &*ready } else { &[] }, monotonic_ns());
        let all: HashSet<u32> = pids.iter().copied().collect();
        for session in self.sessions.values_mut() {
            session.note_sampled(&all, now_ns);
            session.settle_events(&mut running.engine, pids);
        }
        sampled.map_err(|error| kernel_refusal(&error))
    }

    /// Whether processes whose tables have become ready are to be sampled now: where they are all, where somebody waits for no others, or
    /// where others take long.
    fn is_sampler_due(&self, now_ns: u64) -> bool {
        self.running.as_ref().is_some_and(|running| {
            let has_waited = || now_ns.saturating_sub(running.sampler_set_ns) >= SAMPLER_AGAIN_NS;
            running.has_new_tables
                && (!running.following.awaits_any() || running.can_open_any() || has_waited())
        })
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let mut steps = Steps::begin();
        let Some(running) = &mut self.running else { return };
        running.next_tick_ns = running.tick_after(self.sessions.values(), now_ns);
        // First: what a bucket holds is what was counted when it was over.
        self.end_due_buckets(now_ns);
        self.want_records(&[]);
        let Some(running) = &mut self.running else { return };
        if running.drain(now_ns) {
            running.next_tick_ns = now_ns;
        }
        running.has_new_tables |= running.following.tick();
        steps.end("records");
        self.go_on();
        steps.end("names_and_ends");
        let Some(running) = &mut self.running else { return };
        let read = now_ns >= running.next_read_ns;
        self.look_at_changed(&[]);
        self.note_departed();
        if self.is_sampler_due(now_ns) {
            self.settle_sampler_or_warn();
        }
        self.keep_to_budgets(now_ns);
        steps.end("processes_and_budgets");
        let Some(running) = &mut self.running else { return };
        running.open(&mut self.sessions, now_ns);
        running.end_measuring(now_ns);
        if read {
            self.take_calls(now_ns);
            let Some(running) = &mut self.running else { return };
            running.next_read_ns = now_ns + READ_NS;
            self.housekeeping(now_ns);
        }
        steps.end("readings");
        self.to_show = self.next_to_show();
        self.shown_ns = now_ns;
        self.to_show_for_ns = monotonic_ns().saturating_sub(now_ns).max(1);
    }

    /// In which order pictures are given out: root's first, and of root's as of users' those first that had no time since the tick before.
    fn next_to_show(&mut self) -> VecDeque<SessionName> {
        let mut order = std::mem::take(&mut self.to_show);
        order.retain(|name| self.sessions.contains_key(name));
        let others = self.sessions.keys().filter(|name| !order.contains(name));
        let others: Vec<SessionName> = others.cloned().collect();
        order.extend(others);
        order.make_contiguous().sort_by_key(is_of_user);
        order
    }

    /// The next session whose pictures are given out; of a user, also where root's are left.
    fn take_next(&mut self, of_user: bool) -> Option<SessionName> {
        let is_next = |name: &SessionName| !of_user || is_of_user(name);
        let at = self.to_show.iter().position(is_next)?;
        self.to_show.remove(at)
    }

    /// Gives out what is due of some sessions since the last tick; others ask in between.
    pub(super) fn show_some(&mut self) {
        let begin_ns = monotonic_ns();
        if begin_ns.saturating_sub(self.shown_ns) > STALE_NS {
            // Something took long meanwhile: what is shown is of now, with the records until then.
            if let Some(running) = &mut self.running {
                running.drain(begin_ns);
            }
            self.take_named();
            self.shown_ns = begin_ns;
        }
        let mut is_over = false;
        while let Some(name) = self.take_next(is_over) {
            self.show(&name);
            if is_over {
                // However many are root's, one of a user's has its turn each time.
                break;
            }
            is_over = monotonic_ns().saturating_sub(begin_ns) > SHOWN_NS;
        }
        let took_ns = monotonic_ns().saturating_sub(begin_ns);
        self.to_show_for_ns = self.to_show_for_ns.saturating_sub(took_ns);
        if let Some(running) = &mut self.running
            && self.to_show.is_empty()
        {
            // However long all that took: between ticks, commands have their time.
            running.next_tick_ns = running.next_tick_ns.max(monotonic_ns());
        }
    }

    /// Gives out what is still to be shown of a session, before a caller changes it.
    pub(super) fn show_before(&mut self, caller: Caller, name: &str) {
        let meant = SessionName::meant_by(caller, name);
        let Some(at) = self.to_show.iter().position(|name| *name == meant) else {
            return;
        };
        if self.session(caller, name).is_ok() {
            self.to_show.remove(at);
            self.show(&meant);
        }
    }

    fn show(&mut self, name: &SessionName) {
        let mut steps = Steps::begin();
        if let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) {
            session.publish(
                &running.engine,
                &running.frames,
                running.symbols.dropped(),
                self.shown_ns,
                None,
            );
            steps.end("pictures");
        }
    }

    /// Takes off targets what costs them more than is allowed.
    pub(super) fn keep_to_budgets(&mut self, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let due = |session: &Session| session.is_cost_due(now_ns);
        let matter = |session: &Session| due(session) && session.has_many_hits(&running.engine);
        if running.hit_costs.get().is_none() && self.sessions.values().any(matter) {
            running.hit_costs();
        }
        let costs = ProbeCosts {
            calls: &running.call_costs,
            hits: running.hit_costs.get().copied().flatten(),
            programs_do_ret: running.engine.ability().write_context,
        };
        let mut over = Vec::new();
        for (name, session) in self.sessions.iter_mut().filter(|(_, session)| due(session)) {
            if let Some(reason) = session.keep_to_budget(&mut running.engine, costs, now_ns) {
                over.push((name.clone(), reason));
            }
        }
        for (name, reason) in over {
            self.end_session(&name, &Ending::of(EndCause::Budget, reason));
        }
    }

    /// Takes what was counted of system calls up to the reading before, which no program adds to any more.
    pub(super) fn take_calls(&mut self, now_ns: u64) {
        if let Some(running) = &mut self.running
            && self.sessions.values().any(Session::watches_calls)
        {
            running.take_calls(self.sessions.values_mut(), now_ns);
            running.next_turn(self.sessions.values().any(Session::records_calls));
        }
    }

    /// Takes what was counted of system calls by now, where a session's are recorded: what comes from here on is of another scope.
    pub(super) fn take_recorded_calls(&mut self, name: &SessionName) {
        if let Some(running) = &mut self.running
            && self.sessions.get(name).is_some_and(Session::records_calls)
        {
            let now_ns = monotonic_ns();
            running.end_turn(now_ns);
            running.take_calls(self.sessions.values_mut(), now_ns);
        }
    }

    /// Notes which processes have left their sessions, and ends those that have none left.
    fn note_departed(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut over = Vec::new();
        for (name, session) in &mut self.sessions {
            if let Some(ending) = session.note_departed(&mut running.engine) {
                over.push((name.clone(), ending));
            }
        }
        for (name, ending) in over {
            self.end_session(&name, &ending);
        }
    }

    /// Readings, leases, streams that nobody reads any more.
    pub(super) fn housekeeping(&mut self, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let mut over = Vec::new();
        let mut watchers_left = false;
        for (name, session) in &mut self.sessions {
            session.note_no_unwind_table(running.following.files_without(|| session.pids()));
            session.read(&running.engine, now_ns);
            session.turn(&mut running.engine, now_ns);
            let watched = session.samples();
            session.sweep();
            let at = At {
                dropped: running.symbols.dropped(),
                now_ns,
            };
            session.settle_views(&mut running.engine, at);
            watchers_left |= watched && !session.samples();
            if session.lease_is_over(now_ns) {
                over.push((name.clone(), Ending::of(EndCause::Lease, "its lease ran out")));
            }
        }
        for (name, ending) in over {
            self.end_session(&name, &ending);
        }
        let running = self.running.as_ref();
        if running.is_some_and(|running| running.admissions.may_be_too_many(now_ns)) {
            self.settle_admissions();
        }
        if watchers_left {
            self.settle_sampler_or_warn();
        }
        if self
            .running
            .as_ref()
            .is_some_and(|running| now_ns >= running.keep_until_ns)
        {
            self.unload_if_idle();
        }
    }
}
