//! How many of the sessions, probes, gates, values and events one user may hold.
//!
//! They are few, and one that is held is missing to others. Root may hold all of them. One user leaves some to the others,
//! and all users together leave some to root.

use profiler_common::{
    event::MAX_EVENTS,
    hit::MAX_READ_PLANS,
    limits::{MAX_GATES, MAX_PROBES},
};

use super::{
    command::Caller,
    error::{Reason, SessionError},
};

/// Highest sampling frequency of a user, in Hz: the clock of a CPU interrupts whatever runs there.
const MAX_USER_FREQUENCY_HZ: u32 = 1_000;

/// What sessions hold, or may hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Held {
    /// Sessions.
    pub sessions: usize,
    /// Probes: functions, calls and lines, each once for each process.
    pub probes: usize,
    /// Gates between steps.
    pub gates: usize,
    /// Values that are read at probes.
    pub values: usize,
}

impl Held {
    fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            probes: self.probes + other.probes,
            gates: self.gates + other.gates,
            values: self.values + other.values,
        }
    }
}

/// What there is.
#[derive(Clone, Copy, Debug)]
pub struct Quotas(pub Held);

/// What one caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// At once.
    pub held: Held,
    /// Samples a second, where that is bounded for them.
    pub frequency_hz: Option<u32>,
}

impl Quotas {
    /// Where so many sessions may exist.
    pub fn of(sessions: usize) -> Self {
        Self(Held {
            sessions,
            probes: MAX_PROBES as usize,
            gates: MAX_GATES as usize,
            values: MAX_READ_PLANS as usize,
        })
    }

    /// What a caller may have, if nobody has anything.
    pub fn allowed(self, caller: Caller) -> Allowed {
        if caller.is_root() {
            return Allowed {
                held: self.0,
                frequency_hz: None,
            };
        }
        Allowed {
            held: self.of_user(),
            frequency_hz: Some(MAX_USER_FREQUENCY_HZ),
        }
    }

    /// What one user may hold; at least a session.
    fn of_user(self) -> Held {
        Held {
            sessions: (self.0.sessions / 4).max(1),
            probes: self.0.probes / 2,
            gates: self.0.gates / 4,
            values: self.0.values / 2,
        }
    }

    /// What all users but root may hold together; at least a session.
    fn of_users(self) -> Held {
        Held {
            sessions: (self.0.sessions - self.0.sessions / 4).max(1),
            probes: self.0.probes - self.0.probes / 4,
            gates: self.0.gates - self.0.gates / 4,
            values: self.0.values - self.0.values / 4,
        }
    }

    /// Whether a caller may have more beside what sessions hold by now, each with who made it.
    ///
    /// # Errors
    /// Where that is more than there is, or than is left by others' shares.
    pub fn admit(
        self,
        caller: Caller,
        held: impl Iterator<Item = (Caller, Held)>,
        more: Held,
    ) -> Result<(), SessionError> {
        let (mut all, mut users, mut own) = (more, more, more);
        for (owner, held) in held {
            all = all.plus(held);
            if !owner.is_root() {
                users = users.plus(held);
            }
            if owner.uid == caller.uid {
                own = own.plus(held);
            }
        }
        let Self(there_are) = self;
        // The engine counts its probes itself.
        if all.sessions > there_are.sessions {
            let limit = there_are.sessions;
            return refuse(format!("there are {limit} sessions already: end one first"));
        }
        if caller.is_root() {
            return Ok(());
        }
        let uid = caller.uid;
        for (holders, held, most) in [
            (format!("user {uid}"), own, self.of_user()),
            ("all users but root".to_owned(), users, self.of_users()),
        ] {
            if held.sessions > most.sessions {
                return refuse(format!(
                    "{holders} may have at most {} of the {} sessions at once: end one first",
                    most.sessions, there_are.sessions
                ));
            }
            if held.probes > most.probes {
                return refuse(format!(
                    "{holders} may have at most {} of the {} probes, this would make {}: narrow the scope, or end a session",
                    most.probes, there_are.probes, held.probes
                ));
            }
            if held.gates > most.gates {
                return refuse(format!(
                    "{holders} may have at most {} of the {} gates between steps, this would make {}: shorten the scope, or end a session",
                    most.gates, there_are.gates, held.gates
                ));
            }
            if held.values > most.values {
                return refuse(format!(
                    "{holders} may have at most {} of the {} values that are read at probes, this would make {}: print fewer, narrow the scope, or end a session",
                    most.values, there_are.values, held.values
                ));
            }
        }
        Ok(())
    }
}

/// Whether a caller may have stacks sampled so often.
///
/// # Errors
/// Where only root may.
pub fn admit_frequency(caller: Caller, frequency_hz: u32) -> Result<(), SessionError> {
    if caller.is_root() || frequency_hz <= MAX_USER_FREQUENCY_HZ {
        return Ok(());
    }
    refuse(format!(
        "only root may sample at {frequency_hz} Hz, as the timers of all CPUs do the sampling: other users may have {MAX_USER_FREQUENCY_HZ} Hz"
    ))
}

/// Whether a caller may have stacks taken at more events, beside those whose users these are.
///
/// # Errors
/// Where there are no more, or not for them.
pub fn admit_events(caller: Caller, holders: &[u32], more: usize) -> Result<(), SessionError> {
    const OF_USER: usize = MAX_EVENTS / 4;
    const OF_USERS: usize = MAX_EVENTS - MAX_EVENTS / 4;
    let would_hold = |is: &dyn Fn(u32) -> bool| holders.iter().filter(|uid| is(**uid)).count() + more;
    let all = would_hold(&|_| true);
    let users = would_hold(&|uid| uid != 0);
    let own = would_hold(&|uid| uid == caller.uid);
    let exceeded = match (all > MAX_EVENTS, caller.is_root()) {
        (true, _) => Some(("all sessions together".to_owned(), MAX_EVENTS, all)),
        (_, true) => None,
        _ if own > OF_USER => Some((format!("user {}", caller.uid), OF_USER, own)),
        _ if users > OF_USERS => Some(("all users but root".to_owned(), OF_USERS, users)),
        _ => None,
    };
    match exceeded {
        Some((holders, most, held)) if more > 0 => refuse(format!(
            "{holders} may have stacks taken at {most} of the {MAX_EVENTS} events at once, this would make {held}: end a flame graph or recording of an event first"
        )),
        _ => Ok(()),
    }
}

fn refuse(message: String) -> Result<(), SessionError> {
    Err(SessionError::new(Reason::LimitReached, message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THERE_ARE: Quotas = Quotas(Held {
        sessions: 64,
        probes: 4_096,
        gates: 32,
        values: 4_096,
    });

    fn user(uid: u32) -> Caller {
        Caller { uid, gid: uid }
    }

    fn session(probes: usize) -> Held {
        Held {
            sessions: 1,
            probes,
            gates: 0,
            values: 0,
        }
    }

    #[test]
    fn a_user_holds_a_quarter_of_the_sessions_and_half_of_the_probes() {
        let held = |sessions: usize, probes: usize| (0..sessions).map(move |_| (user(7), session(probes)));
        let admit = |held: &mut dyn Iterator<Item = (Caller, Held)>, probes| {
            THERE_ARE.admit(user(7), held, session(probes))
        };
        assert!(admit(&mut held(15, 1), 1).is_ok());
        let refused = admit(&mut held(16, 1), 1).unwrap_err();
        assert_eq!(
            refused.message,
            "user 7 may have at most 16 of the 64 sessions at once: end one first"
        );
        assert!(admit(&mut held(1, 1_000), 1_048).is_ok());
        let refused = admit(&mut held(1, 1_000), 1_049).unwrap_err();
        assert_eq!(
            refused.message,
            "user 7 may have at most 2048 of the 4096 probes, this would make 2049: narrow the scope, or end a session"
        );
    }

    #[test]
    fn a_user_leaves_gates_to_others_and_users_to_root() {
        let of = |gates| Held { gates, ..session(1) };
        let held = [(user(7), of(7)), (user(8), of(8)), (user(9), of(8))];
        let admit = |caller, gates| THERE_ARE.admit(caller, held.into_iter(), of(gates));
        assert!(admit(user(7), 1).is_ok());
        let refused = admit(user(7), 2).unwrap_err();
        assert!(
            refused
                .message
                .starts_with("user 7 may have at most 8 of the 32 gates between steps, this would make 9"),
            "{}",
            refused.message
        );
        assert!(admit(user(10), 2).is_err(), "three quarters are all users'");
        assert!(admit(user(0), 8).is_ok());
    }

    #[test]
    fn a_user_leaves_values_to_others_and_users_to_root() {
        let of = |values| Held { values, ..session(1) };
        let held = [(user(7), of(2_000)), (user(8), of(1_000))];
        let admit = |caller, values| THERE_ARE.admit(caller, held.into_iter(), of(values));
        assert!(admit(user(7), 48).is_ok());
        let refused = admit(user(7), 49).unwrap_err();
        assert_eq!(
            refused.message,
            "user 7 may have at most 2048 of the 4096 values that are read at probes, this would make 2049: print fewer, narrow the scope, or end a session"
        );
        assert!(
            admit(user(9), 72).is_ok() && admit(user(9), 73).is_err(),
            "three quarters are all users'"
        );
        assert!(admit(user(0), 1_096).is_ok());
    }

    #[test]
    fn a_user_leaves_events_to_others_and_users_to_root() {
        let refused =
            |caller, holders: &[u32], more| admit_events(caller, holders, more).unwrap_err().message;
        assert!(admit_events(user(7), &[7, 0, 0], 1).is_ok());
        assert_eq!(
            refused(user(7), &[7, 0, 0], 2),
            "user 7 may have stacks taken at 2 of the 8 events at once, this would make 3: end a flame graph or recording of an event first"
        );
        let users = [1, 1, 2, 2, 3, 3];
        assert!(
            refused(user(7), &users, 1).starts_with("all users but root may have stacks taken at 6 of the 8")
        );
        assert!(admit_events(user(0), &users, 2).is_ok());
        assert!(
            refused(user(0), &users, 3)
                .starts_with("all sessions together may have stacks taken at 8 of the 8")
        );
        // Nothing more is asked for.
        assert!(admit_events(user(1), &[1, 1, 1], 0).is_ok());
    }

    #[test]
    fn samples_beyond_a_thousand_a_second_are_for_root() {
        assert!(admit_frequency(user(0), 10_000).is_ok());
        assert!(admit_frequency(user(7), 1_000).is_ok());
        assert!(admit_frequency(user(7), 1_001).is_err());
    }

    proptest! {
        /// However users ask, root gets the rest, and a user who has nothing gets a session unless all users have their share.
        #[test]
        fn root_always_has_a_share(asks in prop::collection::vec((1_u32..6, 0_usize..900), 0..200)) {
            let mut held: Vec<(Caller, Held)> = Vec::new();
            for (uid, probes) in asks {
                if THERE_ARE.admit(user(uid), held.iter().copied(), session(probes)).is_ok() {
                    held.push((user(uid), session(probes)));
                }
            }
            let sum = held.iter().fold(Held::default(), |sum, (_, held)| sum.plus(*held));
            prop_assert!(sum.sessions <= 48 && sum.probes <= 3_072);
            for _ in 0..16 {
                prop_assert!(THERE_ARE.admit(user(0), held.iter().copied(), session(64)).is_ok());
                held.push((user(0), session(64)));
            }
        }
    }
}
