//! How much of the time of the task that serves all goes into users' timelines. Before a bucket is handed over, the kernel is asked about all
//! threads of the machine, and all counters are read: whoever has many timelines with short steps would hold up everybody.

use std::collections::HashMap;

use crate::session::command::Caller;

/// Timelines of one user other than root take one part in so many of the time.
const PART_OF_A_USER: u64 = 10;
/// Those of all users together.
const PART_OF_USERS: u64 = 2;
/// Time from one turn of a user's timelines to the next at least, in ns: the task does more at each turn than what is measured.
const BETWEEN_OF_A_USER_NS: u64 = 5_000_000;
/// The same from a turn of one user's to that of another's.
const BETWEEN_OF_USERS_NS: u64 = 1_000_000;
/// So long it is known who had a turn; who had none since then is next.
const KNOWN_NS: u64 = 10_000_000_000;

/// Until when buckets of users wait, as these have had their share. Root's never wait.
#[derive(Debug, Default)]
pub struct Shares {
    /// By user, of those that had a turn of late.
    users: HashMap<u32, u64>,
    all_ns: u64,
}

impl Shares {
    /// From when on buckets of an owner may end.
    pub fn allowed_from_ns(&self, owner: Caller) -> u64 {
        if owner.is_root() {
            return 0;
        }
        self.until_ns(owner).max(self.all_ns)
    }

    /// Whose turn it is of those who have buckets that are over: root's, and that of one user, which had none for longest.
    pub fn turns(&self, due: &[Caller], now_ns: u64) -> Vec<Caller> {
        let root = due.iter().find(|owner| owner.is_root());
        let users = due.iter().filter(|owner| !owner.is_root());
        let users = users.filter(|owner| self.allowed_from_ns(**owner) <= now_ns);
        let user = users.min_by_key(|owner| self.until_ns(**owner));
        root.into_iter().chain(user).copied().collect()
    }

    /// Counts what a turn of an owner's took.
    pub fn use_up(&mut self, owner: Caller, begun_ns: u64, ended_ns: u64) {
        if owner.is_root() {
            return;
        }
        let took_ns = ended_ns.saturating_sub(begun_ns);
        let rest_ns = |part: u64, between_ns: u64| {
            let rest_ns = took_ns.saturating_mul(part - 1).max(between_ns);
            ended_ns.saturating_add(rest_ns)
        };
        let own_ns = rest_ns(PART_OF_A_USER, BETWEEN_OF_A_USER_NS);
        self.users
            .retain(|_, until_ns| until_ns.saturating_add(KNOWN_NS) > ended_ns);
        self.users.insert(owner.uid, own_ns);
        self.all_ns = rest_ns(PART_OF_USERS, BETWEEN_OF_USERS_NS);
    }

    fn until_ns(&self, owner: Caller) -> u64 {
        self.users.get(&owner.uid).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ROOT: Caller = Caller { uid: 0, gid: 0 };

    fn user(uid: u32) -> Caller {
        Caller { uid, gid: uid }
    }

    /// Time that turns of these took in a second, each `took_ns`, where all of them have buckets that are over all the time; and how many
    /// turns there were.
    fn second_of(owners: &[Caller], took_ns: u64) -> HashMap<u32, (u64, u64)> {
        let (mut shares, mut now_ns) = (Shares::default(), 0);
        let mut taken: HashMap<u32, (u64, u64)> = HashMap::new();
        while now_ns < 1000 * MS {
            for owner in shares.turns(owners, now_ns) {
                let begun_ns = now_ns;
                now_ns += took_ns;
                shares.use_up(owner, begun_ns, now_ns);
                let (time_ns, turns) = taken.entry(owner.uid).or_default();
                *time_ns += took_ns;
                *turns += 1;
            }
            now_ns += MS / 10;
        }
        taken
    }

    #[test]
    fn a_user_takes_a_tenth_of_the_time_and_all_users_half() {
        let (time_ns, _) = second_of(&[user(1)], 20 * MS)[&1];
        assert!((80 * MS..=120 * MS).contains(&time_ns), "{time_ns}");
        let many: Vec<Caller> = (1..=20).map(user).collect();
        let taken = second_of(&many, 5 * MS);
        let all_ns: u64 = taken.values().map(|(time_ns, _)| time_ns).sum();
        assert!((400 * MS..=520 * MS).contains(&all_ns), "{all_ns}");
        let turns: Vec<u64> = taken.values().map(|(_, turns)| *turns).collect();
        assert_eq!(turns.len(), 20);
        assert!(
            turns.iter().max().unwrap() - turns.iter().min().unwrap() <= 1,
            "{turns:?}"
        );
    }

    #[test]
    fn turns_that_take_next_to_nothing_are_bounded_by_their_number() {
        let (_, turns) = second_of(&[user(1)], 1)[&1];
        assert!((150..=200).contains(&turns), "{turns}");
        let many: Vec<Caller> = (1..=20).map(user).collect();
        let turns: u64 = second_of(&many, 1).values().map(|(_, turns)| turns).sum();
        assert!((800..=1000).contains(&turns), "{turns}");
    }

    #[test]
    fn root_does_not_wait_and_users_wait_only_after_their_turn() {
        let mut shares = Shares::default();
        let due = [user(1), ROOT, user(2)];
        assert_eq!(shares.turns(&due, 0), [ROOT, user(1)]);
        shares.use_up(ROOT, 0, 100 * MS);
        assert_eq!(shares.allowed_from_ns(user(1)), 0, "root's time is its own");
        shares.use_up(user(1), 0, 2 * MS);
        assert_eq!(
            (shares.allowed_from_ns(ROOT), shares.allowed_from_ns(user(2))),
            (0, 4 * MS)
        );
        assert_eq!(shares.allowed_from_ns(user(1)), 20 * MS);
        assert_eq!(shares.turns(&due, 3 * MS), [ROOT]);
        assert_eq!(shares.turns(&due, 4 * MS), [ROOT, user(2)]);
        shares.use_up(user(2), KNOWN_NS + 30 * MS, KNOWN_NS + 30 * MS);
        assert_eq!(shares.users.len(), 1, "who had no turn for long is forgotten");
    }
}
