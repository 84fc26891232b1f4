//! How sessions begin and change their scope.

use profiler_scope::Step;

use super::{
    Owner,
    over::{Detaching, Over},
};
use crate::session::{
    authorize::authorize_steps,
    command::{Caller, Reply},
    cost::monotonic_ns,
    ending::Ending,
    error::{Reason, SessionError},
    late_code::PlannedAnew,
    name::SessionName,
    picture::SessionInfo,
    prepare::Prepared,
    probed_code::ChangedCode,
    quotas::{Held, Quotas},
    refusal::attach_refusal,
    running::answer,
    state::{Session, Terms},
};

/// Users whose made-up names are counted; beyond, those without a session begin anew.
const MAX_NAMING_USERS: usize = 1024;

/// Why a session ends that cannot go on without return probes.
const BESIDE_RETURNS: &str = "newly mapped code makes return probes unsafe";

/// An edit that is answered once all its probes are attached.
pub struct Edited {
    name: SessionName,
    info: SessionInfo,
    reply: Reply<SessionInfo>,
}

impl Owner {
    pub(super) fn attach(
        &mut self,
        caller: Caller,
        name: String,
        terms: Terms,
        mut prepared: Prepared,
    ) -> Result<SessionInfo, SessionError> {
        let given = (!name.is_empty()).then(|| SessionName::new(terms.owner, name));
        if let Some(given) = given.as_ref().filter(|given| self.sessions.contains_key(given)) {
            return Err(SessionError::new(
                Reason::SessionExists,
                format!("a session `{}` exists already", given.shown_to(caller)),
            ));
        }
        self.admit_more(terms.owner, None, prepared.held())?;
        let running = self.running()?;
        let hit_costs = match prepared.explain {
            Some(_) => running.hit_costs(),
            None => None,
        };
        prepared.leave_out_ended();
        let mut admitted = self.admit_prepared(terms.owner, &prepared);
        while admitted.is_err() && prepared.leave_out_ended() {
            admitted = self.admit_prepared(terms.owner, &prepared);
        }
        prepared.warn_of_ended();
        let pids = prepared.pids();
        if let Err(error) = admitted {
            tracing::info!(target: "audit", uid = caller.uid, ?pids, %error, "refused");
            self.settle_admissions();
            self.unload_if_idle();
            return Err(error);
        }
        let name = given.unwrap_or_else(|| self.make_name(terms.owner));
        let running = self.running()?;
        running.has_names = true;
        // Before there is anything to be seen: it takes a while.
        running.calibrate(prepared.exit_methods());
        let attached = Session::attach(
            &mut running.engine,
            name.clone(),
            terms,
            (prepared, hit_costs),
            monotonic_ns(),
        );
        let mut session = match attached {
            Ok(session) => session,
            Err(error) => {
                self.settle_admissions();
                self.unload_if_idle();
                return Err(attach_refusal(&error, &pids));
            }
        };
        running.set_costs(&mut session);
        session.attend(&running.attendance);
        session.preparation = running.preparations;
        session.note_losses_before(&running.engine, running.symbols.dropped());
        let info = session.info(caller);
        let reads = session.reads();
        tracing::info!(target: "audit", uid = caller.uid, session = %name, pids = ?info.pids, scope = info.scope, reads, "attached");
        let takes_stacks = session.takes_stacks() || session.samples();
        if !session.is_of_ticks() {
            running.expect_records(monotonic_ns());
        }
        self.sessions.insert(name, session);
        // The programs may have been loaded anew since the tables were asked for.
        if takes_stacks {
            self.settle_sampler_or_warn();
        }
        Ok(info)
    }

    /// Whether a user may have a session of so much, in the place of another or beside all.
    fn admit_more(
        &self,
        owner: Caller,
        instead_of: Option<&SessionName>,
        more: Held,
    ) -> Result<(), SessionError> {
        let quotas = Quotas::of(self.config.max_sessions);
        // Those that have ended hold what they had until they are over.
        let ended = self.detaching.iter().map(Detaching::session);
        let ended = ended.chain(self.over.iter().map(Over::session));
        let others = self.sessions.values();
        let others = others.filter(|session| Some(&session.name) != instead_of);
        let others = others.chain(ended);
        let held = others.map(|session| (session.owner(), session.held()));
        quotas.admit(owner, held, more)
    }

    /// A name that no session of a user has, be it one that a client chose.
    pub(super) fn make_name(&mut self, owner: Caller) -> SessionName {
        if self.names_made.len() >= MAX_NAMING_USERS {
            let sessions = &self.sessions;
            self.names_made
                .retain(|uid, _| sessions.keys().any(|name| name.uid() == *uid));
        }
        let made = self.names_made.entry(owner.uid).or_default();
        loop {
            *made += 1;
            let name = SessionName::new(owner, format!("s{made}"));
            if !self.sessions.contains_key(&name) {
                return name;
            }
        }
    }

    pub(super) fn replace(
        &mut self,
        caller: Caller,
        name: &str,
        revision: u64,
        edits_undone: usize,
        prepared: Prepared,
    ) -> Result<SessionInfo, SessionError> {
        let session = self.session(caller, name)?;
        if session.revision() != revision {
            let message = "another client is changing the scope at the same time: try again";
            return Err(SessionError::new(Reason::ScopeChanged, message));
        }
        let (name, owner) = (session.name.clone(), session.owner());
        authorize_steps(owner, prepared.steps.iter().map(|step| &step.step))?;
        let pids = session.pids();
        self.admit_more(owner, Some(&name), prepared.held())?;
        self.admit(owner, &pids)?;
        self.take_recorded_calls(&name);
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(&name)) else {
            return Err(SessionError::new(Reason::Kernel, "the engine is not loaded"));
        };
        let steps: Vec<&Step> = prepared.steps.iter().map(|step| &step.step).collect();
        session.accepts(&steps)?;
        let counts_calls = session.watches_calls();
        running
            .attach_anew(
                session,
                prepared,
                |session, engine, (dropped, prepared), now_ns| {
                    session.renew(now_ns);
                    session.edit(engine, dropped, prepared, edits_undone, now_ns)
                },
            )
            .map_err(|error| attach_refusal(&error, &pids))?;
        let is_recorded = session.is_recorded();
        let info = session.info(caller);
        tracing::info!(target: "audit", uid = caller.uid, session = %name, scope = info.scope, "scope set");
        if counts_calls || is_recorded {
            self.settle_sampler()?;
        }
        Ok(info)
    }

    /// Answers an edit of a session: once all its probes are attached, where some wait for others to be closed.
    pub(super) fn answer_attached(
        &mut self,
        caller: Caller,
        name: &str,
        edited: Result<SessionInfo, SessionError>,
        reply: Reply<SessionInfo>,
    ) {
        let name = SessionName::meant_by(caller, name);
        let session = self.sessions.get(&name);
        match edited {
            Ok(info) if session.is_some_and(Session::is_awaited) => {
                self.edited.push(Edited { name, info, reply });
            }
            edited => answer(reply, edited),
        }
    }

    /// Attaches what waited for other probes to be closed, where these are, and answers those who wait for that.
    pub(super) fn attach_again(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut over = Vec::new();
        for (name, session) in self
            .sessions
            .iter_mut()
            .filter(|(_, session)| session.is_awaited())
        {
            if let Err(reason) = session.attach_again(&mut running.engine) {
                over.push((name.clone(), reason));
            }
        }
        let sessions = &self.sessions;
        let is_attached = |edited: &mut Edited| {
            let session = sessions.get(&edited.name);
            session.is_some_and(|session| !session.is_awaited())
                && !over.iter().any(|(name, _)| *name == edited.name)
        };
        for Edited { info, reply, .. } in self.edited.extract_if(.., is_attached) {
            answer(reply, Ok(info));
        }
        for (name, reason) in over {
            self.end_session(&name, &Ending::other(reason));
        }
    }

    /// Answers edits of a session that has ended before their probes were attached.
    pub(super) fn refuse_edits_of(&mut self, name: &SessionName, ending: &Ending) {
        for Edited { reply, .. } in self.edited.extract_if(.., |edited| edited.name == *name) {
            let message = format!("the session has ended: {ending}");
            answer(reply, Err(SessionError::new(Reason::SessionNotFound, message)));
        }
    }

    /// Takes probes off whose code the target has changed. Where a step has nothing left to look at, the session ends.
    pub(super) fn take_off_changed(
        &mut self,
        caller: Caller,
        name: &str,
        changed: &ChangedCode,
    ) -> Result<(), SessionError> {
        let name = self.session(caller, name)?.name.clone();
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(&name)) else {
            return Ok(());
        };
        if let Some(reason) = session.take_off_changed(&mut running.engine, changed) {
            self.end_session(&name, &Ending::other(reason));
        }
        Ok(())
    }

    /// Sees calls end in another way than by return probes, where these are not safe beside the code that there is by now.
    pub(super) fn give_up_returns(
        &mut self,
        caller: Caller,
        name: &str,
        revision: u64,
        anew: PlannedAnew,
    ) -> Result<(), SessionError> {
        if self.session(caller, name)?.is_awaited() {
            // Else what is attached instead would be seen to begin behind what it is around.
            self.session(caller, name)?.wait_until_settled();
            self.attach_again();
        }
        let session = self.session(caller, name)?;
        if session.revision() != revision {
            // It is planned anew for what was attached meanwhile.
            return Ok(());
        }
        if !session.needs_other_probes(&anew.no_returns_in) {
            session.keep_returns(anew.code);
            return Ok(());
        }
        let name = session.name.clone();
        if session.explains() {
            // Its calls are those of the probes that it began with.
            self.end_beside_returns(&name, BESIDE_RETURNS);
            return Ok(());
        }
        let prepared = match anew.prepared {
            Ok(prepared) => *prepared,
            Err(error) => {
                let reason = format!(
                    "{BESIDE_RETURNS}, and no other probes were found: {}",
                    error.message
                );
                self.end_beside_returns(&name, &reason);
                return Ok(());
            }
        };
        self.take_recorded_calls(&name);
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(&name)) else {
            return Ok(());
        };
        let given_up = running.attach_anew(
            session,
            prepared,
            |session, engine, (dropped, prepared), now_ns| {
                session.give_up_returns(engine, dropped, prepared, now_ns)
            },
        );
        match given_up {
            Ok(()) => tracing::info!(target: "audit", session = %name, "return probes given up"),
            Err(error) => {
                let reason = format!("{BESIDE_RETURNS}, and other probes were refused: {error}");
                self.end_beside_returns(&name, &reason);
            }
        }
        Ok(())
    }

    /// Ends a session whose return probes are not safe any more, which go first.
    fn end_beside_returns(&mut self, name: &SessionName, reason: &str) {
        if let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) {
            session.take_returns_off(&mut running.engine);
        }
        self.end_session(name, &Ending::other(reason));
    }
}
