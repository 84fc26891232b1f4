//! Which processes the programs may look at, and for whom: asked when a session begins, and whenever a process has changed.

use std::collections::HashSet;

use profiler_common::admission::ProcessState;
use profiler_target::{Process, Standing, TargetError};

use super::{Owner, PREPARE_NS, over::Detaching};
use crate::session::{
    admissions::Changed,
    authorize::authorize,
    children_before::ChildrenCount,
    command::Caller,
    cost::monotonic_ns,
    ending::Ending,
    error::{Reason, SessionError},
    measure::Measuring,
    name::SessionName,
    prepare::Prepared,
    refusal::{kernel_refusal, target_refusal},
    state::{Closed, Session},
};

impl Owner {
    /// Lets the programs look at no other processes than somebody does.
    pub(super) fn settle_admissions(&mut self) {
        let mut wanted: HashSet<u32> = self.at_targets().flat_map(Session::pids).collect();
        let Some(running) = &mut self.running else { return };
        running.admissions.end_counts(&mut running.engine, monotonic_ns());
        wanted.extend(running.measuring.iter().flat_map(Measuring::pids));
        running
            .admissions
            .keep(&mut running.engine, |pid| wanted.contains(&pid), monotonic_ns());
    }

    /// Counts the children of processes for a while, which a caller may look at, and whom a session is being made for.
    pub(super) fn count_children(
        &mut self,
        caller: Caller,
        pids: &[u32],
    ) -> Result<Vec<ChildrenCount>, SessionError> {
        let running = self.running()?;
        // Until they are counted once more.
        let until_ns = monotonic_ns() + PREPARE_NS;
        running.keep_until_ns = running.keep_until_ns.max(until_ns);
        let counted = running
            .admissions
            .count_children(&mut running.engine, caller, pids, monotonic_ns());
        counted.map_err(|error| kernel_refusal(&error))
    }

    /// Lets the programs look at processes for a caller, too.
    ///
    /// Processes that have changed since others began to look at them are taken from those who may look at them no more.
    pub(super) fn admit(&mut self, caller: Caller, pids: &[u32]) -> Result<(), SessionError> {
        self.look_at_changed(pids);
        let running = self.running()?;
        let states = running
            .engine
            .look_at(pids)
            .map_err(|error| kernel_refusal(&error))?;
        if let Some(state) = states.iter().find(|state| self.is_still_probed(state)) {
            let pid = state.tgid;
            let message =
                format!("probes of another user's session are being taken off process {pid}: try again");
            return Err(SessionError::new(Reason::TargetGone, message));
        }
        for state in &states {
            // It may be known of a session that has ended, as what it was then.
            if self.is_seen_by_nobody(state.tgid) {
                let running = self.running()?;
                let renewed = running.admissions.renew(&mut running.engine, state);
                renewed.map_err(|error| kernel_refusal(&error))?;
            }
        }
        let running = self.running()?;
        running
            .admissions
            .admit(&mut running.engine, caller, pids, states)
    }

    /// Lets the programs look at the processes of a session that is to be.
    pub(super) fn admit_prepared(&mut self, caller: Caller, prepared: &Prepared) -> Result<(), SessionError> {
        self.admit(caller, &prepared.pids())?;
        still_the_same(&prepared.processes)
    }

    /// Looks at processes that became something else under the programs, which have looked at them no more since: they are taken from
    /// the sessions whose owners may look at them no more, and then admitted anew for the others. Those in `asked` are looked at also
    /// where no program has noticed.
    pub(super) fn look_at_changed(&mut self, asked: &[u32]) {
        let Some(running) = &mut self.running else { return };
        let changed = running.admissions.changed(&mut running.engine, asked);
        let mut changed = changed.unwrap_or_else(|error| {
            tracing::warn!(%error, "processes that changed could not be looked at: nothing is seen of them");
            Vec::new()
        });
        let now_ns = monotonic_ns();
        changed.retain(|change| !running.admissions.doubts(change, now_ns));
        let mut closed = Vec::new();
        for change in &changed {
            let pid = change.pid;
            let looking = self.sessions.iter_mut();
            for (name, session) in looking.filter(|(_, session)| session.looks_at(pid)) {
                match change.reason_to_leave(session.owner()) {
                    Some(why) => closed.push((name.clone(), Closed { pid, why })),
                    // How often a program with more rights was met is nobody's to know.
                    None => session.note_not_admitted(change.missed),
                }
            }
            running.refuse_measuring(change);
        }
        self.take_from(closed);
        for change in &changed {
            if change.now.is_some_and(|now| self.is_still_probed(&now)) {
                if let Some(running) = &mut self.running {
                    running.admissions.look_again(change.pid, now_ns);
                }
            } else {
                self.admit_anew(change);
            }
        }
        if !asked.is_empty() {
            self.settle_admissions();
        }
    }

    /// Whether nobody looks at a process but sessions that have ended.
    fn is_seen_by_nobody(&self, pid: u32) -> bool {
        let running = self.running.as_ref();
        let is_measured = running.is_some_and(|running| running.measuring_callers(pid).next().is_some());
        !is_measured && !self.sessions.values().any(|session| session.looks_at(pid))
    }

    /// Whether probes are being taken off a process for somebody who may not look at it as it is now: until they are off, nobody looks at
    /// it, as programs know one answer for all.
    fn is_still_probed(&self, state: &ProcessState) -> bool {
        self.at_targets().any(|session| {
            session.may_run_on(state.tgid)
                && authorize(session.owner(), state.tgid, &Standing::from(state)).is_err()
        })
    }

    /// Takes processes from sessions, by their names.
    pub(super) fn take_from(&mut self, closed: Vec<(SessionName, Closed)>) {
        let is_any = !closed.is_empty();
        let mut over = Vec::new();
        for (name, Closed { pid, why }) in closed {
            let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(&name)) else {
                continue;
            };
            tracing::info!(target: "audit", session = %name, pid, reason = why.reason, "lost");
            running.admissions.unsettle();
            if !session.lose(&mut running.engine, pid, &why) {
                over.push((name, why.reason));
            }
        }
        for (name, reason) in &over {
            self.end_session(name, &Ending::other(reason));
        }
        if is_any {
            self.settle_sampler_or_warn();
        }
    }

    /// Admits a process that changed, once nobody looks at it who may not.
    pub(super) fn admit_anew(&mut self, change: &Changed) {
        let Some(running) = &mut self.running else { return };
        let pid = change.pid;
        let looking = self.sessions.values().filter(|session| session.looks_at(pid));
        let detaching = self.detaching.iter().map(Detaching::session);
        let owners: Vec<Caller> = looking
            .map(Session::owner)
            .chain(
                detaching
                    .filter(|session| session.may_run_on(pid))
                    .map(Session::owner),
            )
            .chain(running.measuring_callers(pid))
            .collect();
        // One that has ended is its sessions' to notice.
        let Some(state) = change.now.filter(|_| !owners.is_empty()) else {
            return;
        };
        let any_rights = owners.iter().all(|owner| owner.is_root());
        if let Err(error) = running.admissions.open(&mut running.engine, state, any_rights) {
            tracing::warn!(%error, pid, "a process that changed could not be admitted anew: nothing is seen of it");
        }
    }
}

/// Checks that processes were alive when they were admitted by their numbers.
fn still_the_same(processes: &[Process]) -> Result<(), SessionError> {
    match processes.iter().find(|process| !process.is_alive()) {
        None => Ok(()),
        Some(process) => Err(target_refusal(&TargetError::Ended(process.pid()))),
    }
}
