//! Code that a target maps while it is looked at: return probes that are not safe beside it are given up.
//!
//! A library that throws, ends threads or switches stacks may come with `dlopen`, long after how calls are seen to end was chosen.
//! Whoever made a session therefore watches how much code its return-probed processes have mapped, and has the scope planned anew where
//! that is not what the present plan was made for. Calls that are open at that moment return by the kernel's trampoline all the same.
//!
//! See `docs/internals/return-probes.md` for how return probes stay safe while code is loaded.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use profiler_target::mapped_code_bytes;

use super::{
    command::{Caller, Command, Editable, Handle, blocking},
    error::SessionError,
    prepare::Prepared,
};

/// Time between looks at how much code is mapped.
const LOOK: Duration = Duration::from_millis(250);

/// Code that processes have mapped, in bytes, by process.
pub type MappedCode = BTreeMap<u32, u64>;

/// The processes in which a session has return probes, each with the code that these were planned for; there as long as the session.
#[derive(Default, Debug)]
pub struct ReturnProbes(Mutex<MappedCode>);

impl ReturnProbes {
    /// Says which processes these are, and the code that the plan of all was made for.
    pub fn set(&self, pids: &HashSet<u32>, mut planned_for: MappedCode) {
        planned_for.retain(|pid, _| pids.contains(pid));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = planned_for;
    }

    /// Says that what is attached in these processes was planned for no code that they can have: it is planned anew.
    pub fn set_outdated(&self, pids: &HashSet<u32>) {
        self.set(pids, pids.iter().map(|pid| (*pid, 0)).collect());
    }

    fn planned_for(&self) -> MappedCode {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a process has other code by now; one that is gone has not.
fn has_other_code(planned_for: &MappedCode, now: &MappedCode) -> bool {
    let mut processes = planned_for.iter();
    processes.any(|(pid, code_bytes)| now.get(pid).is_some_and(|now| now != code_bytes))
}

/// A session's scope, planned for other code than that which it was attached for.
pub struct PlannedAnew {
    /// Processes in which no return probe is safe beside that code.
    pub no_returns_in: HashSet<u32>,
    /// The code.
    pub code: MappedCode,
    /// The plan, if there is one: what was probed may be gone.
    pub prepared: Result<Box<Prepared>, SessionError>,
}

/// A session whose return probes are looked after.
pub struct LookedAfter {
    /// Its owner.
    pub caller: Caller,
    /// Its name.
    pub name: String,
    /// Its return probes.
    pub returns: Weak<ReturnProbes>,
}

impl Handle {
    /// Looks after the return probes of a session until that ends.
    pub(super) async fn look_after(self, of: LookedAfter) {
        loop {
            let Some(planned_for) = of.returns.upgrade().map(|returns| returns.planned_for()) else {
                return;
            };
            if !planned_for.is_empty() {
                let pids: Vec<u32> = planned_for.keys().copied().collect();
                let now = blocking(move || Ok(mapped_code_bytes(&pids))).await;
                if now.is_ok_and(|now| has_other_code(&planned_for, &now))
                    && let Err(error) = self.plan_anew(of.caller, &of.name).await
                {
                    // It is tried again at the next look, unless the session is over.
                    tracing::debug!(uid = of.caller.uid, session = of.name, %error, "not planned anew");
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Has the scope of a session planned anew, for the code that its processes have by now.
    async fn plan_anew(&self, caller: Caller, name: &str) -> Result<(), SessionError> {
        let of = name.to_owned();
        let editable = self.ask(caller, |reply| Command::Target {
            caller,
            name: of,
            reply,
        });
        let editable = editable.await?;
        let how = editable.how();
        let Editable {
            target,
            scope,
            revision,
            ..
        } = editable;
        let (read, ability, turn) = self.read_target(caller, target, scope.to_string(), &how).await?;
        let anew = blocking(move || {
            let (no_returns_in, code) = (read.no_returns_in(ability, &how), read.code());
            let mut prepared = read.plan(ability, &how).map(Box::new);
            if let Ok(prepared) = &mut prepared {
                prepared.warn_of_running_children();
            }
            let anew = PlannedAnew {
                no_returns_in,
                code,
                prepared,
            };
            drop(turn);
            Ok(anew)
        });
        let anew = anew.await?;
        let name = name.to_owned();
        self.ask(caller, |reply| Command::GiveUpReturns {
            caller,
            name,
            revision,
            anew,
            reply,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_changes_of_the_mapped_code_of_live_processes() {
        let of = |code: &[(u32, u64)]| code.iter().copied().collect::<MappedCode>();
        let planned_for = of(&[(1, 10), (2, 20)]);
        assert!(!has_other_code(&planned_for, &of(&[(1, 10), (2, 20)])));
        assert!(!has_other_code(&planned_for, &of(&[(1, 10)])), "one has ended");
        // The sum is the same.
        assert!(has_other_code(&planned_for, &of(&[(1, 20), (2, 10)])));
        assert!(has_other_code(&planned_for, &of(&[(1, 10), (2, 0)])));
    }

    #[test]
    fn only_processes_with_return_probes_are_watched() {
        let returns = ReturnProbes::default();
        returns.set(&HashSet::from([2]), MappedCode::from([(1, 10), (2, 20)]));
        assert_eq!(returns.planned_for(), MappedCode::from([(2, 20)]));
    }
}
