//! Buckets of counters that are over are handed over: root's at once, users' in turns, each as far as its share of the time goes.

use std::collections::HashSet;

use super::Owner;
use crate::session::{admissions::by_process, command::Caller, cost::monotonic_ns, state::Session};

impl Owner {
    /// Hands over what was counted in buckets that are over, of those whose turn it is.
    pub(super) fn end_due_buckets(&mut self, now_ns: u64) {
        // They are asked about again at the next tick, whenever that is.
        let mut unknown = HashSet::new();
        for owner in self.counting_turns(now_ns) {
            let begun_ns = monotonic_ns();
            if self.ask_about_counted(owner, begun_ns) {
                self.end_buckets(owner, begun_ns);
            } else {
                unknown.insert(owner.uid);
            }
            if let Some(running) = &mut self.running {
                running.shares.use_up(owner, begun_ns, monotonic_ns());
            }
        }
        let Some(running) = &mut self.running else { return };
        for session in self.sessions.values() {
            if let Some(next_ns) = session.next_bucket_ns()
                && !unknown.contains(&session.owner().uid)
            {
                let next_ns = next_ns.max(running.shares.allowed_from_ns(session.owner()));
                running.next_tick_ns = running.next_tick_ns.min(next_ns);
            }
        }
    }

    /// Whose buckets are over and handed over now.
    fn counting_turns(&self, now_ns: u64) -> Vec<Caller> {
        let Some(running) = &self.running else {
            return Vec::new();
        };
        let due = self.sessions.values();
        let due = due.filter(|session| session.has_due_bucket(now_ns));
        let owners: Vec<Caller> = due.map(Session::owner).collect();
        running.shares.turns(&owners, now_ns)
    }

    /// Takes processes from an owner's sessions whose counters are about to be read, where the owner may look at them no more: the kernel
    /// counts on whatever becomes of a thread, and asks nobody. Whether that is known; else they are not to be read.
    fn ask_about_counted(&mut self, owner: Caller, now_ns: u64) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let is_due = |session: &Session| session.owner().uid == owner.uid && session.has_due_bucket(now_ns);
        let asked = self.sessions.values().filter(|session| is_due(session));
        let asked: Vec<u32> = asked.flat_map(Session::asked_about).collect();
        let states = match running.engine.look_at(&asked) {
            Ok(states) => by_process(states),
            Err(error) => {
                tracing::warn!(%error, "processes could not be looked at: what was counted of them is not shown yet");
                return false;
            }
        };
        let due = self.sessions.iter_mut();
        let due = due.filter(|(_, session)| is_due(session));
        let closed = due.flat_map(|(name, session)| {
            let closed = session.closed_to_owner(&states);
            closed.into_iter().map(|closed| (name.clone(), closed))
        });
        let closed = closed.collect();
        self.take_from(closed);
        true
    }

    /// Hands over what was counted in an owner's buckets that are over, once it was asked about their processes.
    fn end_buckets(&mut self, owner: Caller, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let own = self.sessions.values_mut();
        for session in own.filter(|session| session.owner().uid == owner.uid) {
            session.end_buckets(&running.engine, now_ns, None);
        }
    }
}
