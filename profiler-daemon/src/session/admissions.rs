//! Which processes the programs may look at, for whom, and what happens when a process changes, for example by an
//! exec.
//!
//! A process is looked at by all who may, or by nobody: the programs know one answer for each. It closes by itself, as they
//! compare before they read anything, and opens again once everybody who looks at it has been asked about anew.

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::{
    admission::{Image, ProcessState, Rights},
    counter::Counter,
};
use profiler_target::{Standing, TargetError};

use super::{
    authorize::authorize,
    children_before::ChildrenCount,
    command::Caller,
    departures::{DepartureCause, Leaving},
    error::{Reason, SessionError},
    refusal::{kernel_refusal, target_refusal},
};
use crate::kernel::{Engine, KernelError};

/// How long a process that may not be looked at is looked at again before that is believed.
///
/// In an exec the kernel takes the new memory first, which nobody may look at, and then says who may (`begin_new_exec` of `fs/exec.c`).
/// Meanwhile the programs see nothing of it.
const DOUBT_NS: u64 = 500_000_000;

/// Time between looks at which processes somebody looks at, where nothing says that this has changed.
const ADMISSIONS_AGAIN_NS: u64 = 10_000_000_000;

/// How long the children of a process are counted after somebody last asked for that, who is about to probe it.
const COUNTED_FOR_NS: u64 = 10_000_000_000;

/// Processes whose children are counted before they are probed: of all users, of all but root, of one.
const MAX_PARENTS: usize = 1024;
const MAX_PARENTS_OF_USERS: usize = MAX_PARENTS / 4 * 3;
const MAX_PARENTS_OF_A_USER: usize = MAX_PARENTS / 4;

/// Processes that the programs may look at.
#[derive(Default)]
pub struct Admissions {
    known: BTreeMap<u32, Known>,
    /// Processes that may be amid an exec, and since when.
    doubted: BTreeMap<u32, u64>,
    /// When all that are known were last compared with those that somebody looks at; `None` where that may have changed since.
    settled_ns: Option<u64>,
    /// Processes whose children are counted, as they are about to be probed.
    parents: BTreeMap<u32, CountedParent>,
    /// [`Counter::AdmissionRefused`] when it was last looked at.
    refused: u64,
}

/// One of them.
struct Known {
    state: ProcessState,
    /// All who look at it may look at every process.
    any_rights: bool,
    /// Times that a program was at it and did not look, as they have been told.
    missed: u64,
}

/// A process whose children are counted, whether or not the programs may look at it.
struct CountedParent {
    /// As what it was looked at: when it began tells it from others of its number.
    image: Image,
    /// Who asked for that first.
    uid: u32,
    /// Since when they are counted without a gap.
    since_ns: u64,
    /// Until then nobody has to ask again.
    until_ns: u64,
}

/// A process that is not what it was when it was admitted.
pub struct Changed {
    /// Its number, which may be another's by now.
    pub pid: u32,
    /// What it is now, if it is the same process.
    pub now: Option<ProcessState>,
    /// Its number is another process's now.
    pub is_another: bool,
    /// Another of its threads has taken the place of the first one, by an exec: its probes are dead.
    pub taken_over: bool,
    /// Times that a program was at one of its threads since that was last asked.
    pub missed: u64,
}

impl Changed {
    /// Whether it may be amid an exec, and nobody may look at it for that moment alone.
    fn may_be_amid_exec(&self) -> bool {
        let is_dumpable = |now: &ProcessState| now.rights.dumpable == Rights::DUMPABLE;
        !self.is_another && self.now.as_ref().is_some_and(|now| !is_dumpable(now))
    }

    /// Why whoever may look at it as it was may do so no more, if so; of one that has ended, and whose number nobody else has, that is
    /// left to others to notice.
    pub fn reason_to_leave(&self, owner: Caller) -> Option<Leaving> {
        let pid = self.pid;
        if self.is_another {
            return Some(Leaving::of(DepartureCause::Ended, format!("process {pid} ended")));
        }
        match authorize(owner, pid, &Standing::from(self.now.as_ref()?)) {
            Ok(()) if self.taken_over => Some(Leaving::of(
                DepartureCause::AnotherProgram,
                format!(
                    "process {pid} runs another program now, started by a thread other than its first: its probes are gone"
                ),
            )),
            Ok(()) => None,
            Err(error) => Some(Leaving::of(
                DepartureCause::NotAllowed,
                format!("{} since it changed", error.message),
            )),
        }
    }
}

impl Admissions {
    /// Lets the programs look at processes for a caller, too, as these were when they were looked at.
    ///
    /// # Errors
    /// Where the caller may not, or one of them is gone.
    pub fn admit(
        &mut self,
        engine: &mut Engine,
        caller: Caller,
        pids: &[u32],
        states: Vec<ProcessState>,
    ) -> Result<(), SessionError> {
        let admitted = self.admit_all(engine, caller, pids, &by_process(states));
        if admitted.is_err() {
            self.close(engine, pids);
        }
        admitted
    }

    fn admit_all(
        &mut self,
        engine: &mut Engine,
        caller: Caller,
        pids: &[u32],
        states: &BTreeMap<u32, ProcessState>,
    ) -> Result<(), SessionError> {
        let (mut of_root, mut of_all) = (Vec::new(), Vec::new());
        for pid in pids {
            let Some(state) = states.get(pid) else {
                return Err(target_refusal(&TargetError::Ended(*pid)));
            };
            authorize(caller, *pid, &Standing::from(state))?;
            let others = self.known.get(pid);
            // Those who look at it already are asked about first (see `changed`): it has changed since.
            if others.is_some_and(|known| known.state != *state && !known.any_rights) {
                let message = format!("process {pid} is starting another program (execve): try again");
                return Err(SessionError::new(Reason::TargetGone, message));
            }
            let any_rights = caller.is_root() && others.is_none_or(|known| known.any_rights);
            if others.is_some_and(|known| known.any_rights == any_rights) {
                continue;
            }
            let opened = if any_rights { &mut of_root } else { &mut of_all };
            opened.push(*state);
        }
        self.open_all(engine, &of_root, true)
            .and_then(|()| self.open_all(engine, &of_all, false))
            .map_err(|error| kernel_refusal(&error))
    }

    /// Lets the programs look at a process as it is now.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn open(
        &mut self,
        engine: &mut Engine,
        state: ProcessState,
        any_rights: bool,
    ) -> Result<(), KernelError> {
        self.open_all(engine, &[state], any_rights)
    }

    fn open_all(
        &mut self,
        engine: &mut Engine,
        states: &[ProcessState],
        any_rights: bool,
    ) -> Result<(), KernelError> {
        self.unsettle();
        engine.admit_all(states, any_rights)?;
        for state in states {
            let known = Known {
                state: *state,
                any_rights,
                missed: 0,
            };
            self.known.insert(state.tgid, known);
        }
        Ok(())
    }

    /// Processes that programs were at, and that were not what they were admitted as; of those in `asked` also where no program was at
    /// them since.
    pub fn changed(&mut self, engine: &mut Engine, asked: &[u32]) -> Result<Vec<Changed>, KernelError> {
        let refused = engine.counter(Counter::AdmissionRefused);
        let is_known = |pid: &&u32| self.known.contains_key(pid);
        let asked: BTreeSet<u32> = (asked.iter().chain(self.doubted.keys()).filter(is_known))
            .copied()
            .collect();
        if refused == self.refused && asked.is_empty() {
            return Ok(Vec::new());
        }
        let known: Vec<u32> = self.known.keys().copied().collect();
        let counted = engine.counted_of(&known)?;
        let mut changed = Vec::new();
        for (pid, known) in &self.known {
            let missed = counted.get(pid).copied().unwrap_or_default().refusals;
            if missed > known.missed || asked.contains(pid) {
                changed.push((*pid, known.state, missed));
            }
        }
        let pids: Vec<u32> = changed.iter().map(|(pid, ..)| *pid).collect();
        let states = by_process(engine.look_at(&pids)?);
        // Where something fails above, it is looked at again.
        self.refused = refused;
        let changed = changed.into_iter().filter_map(|(pid, before, all_missed)| {
            let known = self.known.get_mut(&pid)?;
            let missed = all_missed.saturating_sub(known.missed);
            known.missed = all_missed;
            let state = states.get(&pid);
            let now = state.filter(|now| now.image.start_ns == before.image.start_ns);
            let changed = Changed {
                pid,
                now: now.copied(),
                is_another: state.is_some() && now.is_none(),
                taken_over: now.is_some_and(|now| now.first_thread != before.first_thread),
                missed,
            };
            // A first thread that has ended before the others has no memory any more: nothing says that the process changed.
            let is_told = state.is_none_or(|state| state.image.memory != 0);
            (missed > 0 || is_told && state != Some(&before)).then_some(changed)
        });
        let changed: Vec<Changed> = changed.collect();
        // The others are as they were before.
        let pids: BTreeSet<u32> = changed.iter().map(|change| change.pid).collect();
        self.doubted.retain(|pid, _| pids.contains(pid));
        Ok(changed)
    }

    /// Lets the programs look at a process as it is now, where it is known of sessions alone that have ended: for all who may, as long as
    /// their probes are not off.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn renew(&mut self, engine: &mut Engine, state: &ProcessState) -> Result<(), KernelError> {
        let known = self.known.get(&state.tgid);
        match known.filter(|known| known.state != *state) {
            Some(known) => {
                let any_rights = known.any_rights;
                self.open(engine, *state, any_rights)
            }
            None => Ok(()),
        }
    }

    /// Looks at a process again that has changed, and that nobody may look at meanwhile.
    pub fn look_again(&mut self, pid: u32, now_ns: u64) {
        self.doubted.entry(pid).or_insert(now_ns);
    }

    /// Whether it has to be looked at again before it is believed what a process has become.
    pub fn doubts(&mut self, change: &Changed, now_ns: u64) -> bool {
        let pid = change.pid;
        if !change.may_be_amid_exec() {
            self.doubted.remove(&pid);
            return false;
        }
        let since_ns = *self.doubted.entry(pid).or_insert(now_ns);
        let is_doubted = now_ns.saturating_sub(since_ns) < DOUBT_NS;
        match self.known.get_mut(&pid) {
            // It is told of them then.
            Some(known) if is_doubted => known.missed = known.missed.saturating_sub(change.missed),
            _ => {
                self.doubted.remove(&pid);
            }
        }
        is_doubted
    }

    /// Somebody looks at a process no more, or is about to look at one.
    pub fn unsettle(&mut self) {
        self.settled_ns = None;
    }

    /// Whether processes may be admitted that nobody looks at, or that was not asked for long.
    pub fn may_be_too_many(&self, now_ns: u64) -> bool {
        let is_settled = |settled_ns| now_ns.saturating_sub(settled_ns) < ADMISSIONS_AGAIN_NS;
        !self.settled_ns.is_some_and(is_settled)
    }

    /// Counts the children of processes from now on, of those that a caller may look at; what was counted until now. Beyond a bound, no
    /// more are counted.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn count_children(
        &mut self,
        engine: &mut Engine,
        caller: Caller,
        pids: &[u32],
        now_ns: u64,
    ) -> Result<Vec<ChildrenCount>, KernelError> {
        let states = engine.look_at(pids);
        let counts = states.and_then(|states| self.count_all(engine, caller, states, now_ns));
        self.close(engine, pids);
        counts
    }

    fn count_all(
        &mut self,
        engine: &mut Engine,
        caller: Caller,
        states: Vec<ProcessState>,
        now_ns: u64,
    ) -> Result<Vec<ChildrenCount>, KernelError> {
        let mut counts = Vec::new();
        let mut room = self.room_for_parents(caller);
        for state in states {
            let pid = state.tgid;
            if authorize(caller, pid, &Standing::from(&state)).is_err() || self.is_anothers(&state) {
                continue;
            }
            if !self.parents.contains_key(&pid) {
                let Some(left) = room.checked_sub(1) else { continue };
                room = left;
            }
            engine.count_children(&state)?;
            let known = self.parents.get(&pid);
            let since_ns = known.filter(|parent| parent.image == state.image);
            let uid = known.map_or(caller.uid, |parent| parent.uid);
            let since_ns = since_ns.map_or(now_ns, |parent| parent.since_ns);
            let parent = CountedParent {
                image: state.image,
                uid,
                since_ns,
                until_ns: now_ns.saturating_add(COUNTED_FOR_NS),
            };
            self.parents.insert(pid, parent);
            let counted = engine.counted_of(&[pid])?;
            counts.push(ChildrenCount {
                pid,
                count: counted.get(&pid).copied().unwrap_or_default().children,
                at_ns: now_ns,
                since_ns,
            });
        }
        Ok(counts)
    }

    /// Whether the number of a process is known as another's.
    fn is_anothers(&self, state: &ProcessState) -> bool {
        let known = self.known.get(&state.tgid);
        known.is_some_and(|known| known.state.image.start_ns != state.image.start_ns)
    }

    /// Of how many more processes a caller may have the children counted.
    fn room_for_parents(&self, caller: Caller) -> usize {
        let count = |is_counted: &dyn Fn(u32) -> bool| {
            let uids = self.parents.values().map(|parent| parent.uid);
            uids.filter(|uid| is_counted(*uid)).count()
        };
        let room = MAX_PARENTS.saturating_sub(self.parents.len());
        if caller.is_root() {
            return room;
        }
        let of_users = MAX_PARENTS_OF_USERS.saturating_sub(count(&|uid| uid != 0));
        let of_user = MAX_PARENTS_OF_A_USER.saturating_sub(count(&|uid| uid == caller.uid));
        room.min(of_users).min(of_user)
    }

    /// Counts the children of those processes no more whom nobody has asked about for long.
    pub fn end_counts(&mut self, engine: &mut Engine, now_ns: u64) {
        let over: Vec<u32> = self
            .parents
            .extract_if(.., |_, parent| now_ns >= parent.until_ns)
            .map(|(pid, _)| pid)
            .collect();
        self.close(engine, &over);
    }

    /// Lets the programs look at no other processes than these.
    pub fn keep(&mut self, engine: &mut Engine, is_wanted: impl Fn(u32) -> bool, now_ns: u64) {
        self.settled_ns = Some(now_ns);
        let over: Vec<u32> = self
            .known
            .keys()
            .copied()
            .filter(|pid| !is_wanted(*pid))
            .collect();
        for pid in &over {
            self.known.remove(pid);
            self.doubted.remove(pid);
        }
        self.close(engine, &over);
    }

    /// Closes processes that are not known; children that are counted are counted on.
    fn close(&self, engine: &mut Engine, pids: &[u32]) {
        let own = std::process::id();
        let is_over = |pid: &u32| *pid != own && !self.known.contains_key(pid);
        let over = pids.iter().copied().filter(is_over);
        let (parents, others): (Vec<u32>, Vec<u32>) = over.partition(|pid| self.parents.contains_key(pid));
        if let Err(error) = engine.shut(&parents).and(engine.dismiss(&others)) {
            tracing::error!(%error, ?parents, ?others, "a process that nobody looks at stays admitted");
        }
    }
}

/// By number, as [`Engine::look_at`] tells them.
pub fn by_process(states: Vec<ProcessState>) -> BTreeMap<u32, ProcessState> {
    states.into_iter().map(|state| (state.tgid, state)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_room_for_the_parents_of_others() {
        let caller = |uid| Caller { uid, gid: uid };
        let mut admissions = Admissions::default();
        let mut fill = |uid| {
            let room = admissions.room_for_parents(caller(uid));
            let next = u32::try_from(admissions.parents.len()).unwrap();
            for pid in next..next + u32::try_from(room).unwrap() {
                let parent = CountedParent {
                    image: Image::default(),
                    uid,
                    since_ns: 0,
                    until_ns: 0,
                };
                admissions.parents.insert(pid, parent);
            }
            room
        };
        let rooms = [1, 1, 2, 3, 4, 0, 0].map(&mut fill);
        assert_eq!(rooms, [256, 0, 256, 256, 0, 256, 0]);
    }
}
