//! Names of sessions. Each user has names of their own, so a name is free whatever others have chosen, and nobody learns
//! what that is.

use std::fmt::{self, Display};

use super::command::Caller;

/// Whose a session is, and what they call it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionName {
    uid: u32,
    given: String,
}

impl SessionName {
    /// The name of a session of this user's.
    pub const fn new(owner: Caller, given: String) -> Self {
        Self {
            uid: owner.uid,
            given,
        }
    }

    /// The session that a caller means by a text: `NAME` is one of their own, `UID/NAME` that user's. Whether the caller may
    /// use it is for others to decide.
    pub fn meant_by(caller: Caller, text: &str) -> Self {
        let of_user = text
            .split_once('/')
            .and_then(|(uid, given)| Some((uid.parse().ok()?, given)));
        let (uid, given) = of_user.unwrap_or((caller.uid, text));
        Self {
            uid,
            given: given.to_owned(),
        }
    }

    /// The text by which a caller means it.
    pub fn shown_to(&self, caller: Caller) -> String {
        if self.uid == caller.uid {
            self.given.clone()
        } else {
            self.to_string()
        }
    }
}

/// For who looks at all users' sessions.
impl Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Caller = Caller { uid: 0, gid: 0 };
    const USER: Caller = Caller { uid: 1000, gid: 1000 };

    #[test]
    fn each_user_has_names_of_their_own() {
        let [roots, users] = [ROOT, USER].map(|caller| SessionName::meant_by(caller, "s1"));
        assert_ne!(roots, users);
        assert_eq!(users, SessionName::new(USER, "s1".to_owned()));
        assert_eq!(users.shown_to(USER), "s1");
        assert_eq!(users.shown_to(ROOT), "1000/s1");
    }

    #[test]
    fn what_is_shown_leads_back() {
        for caller in [ROOT, USER] {
            for owner in [ROOT, USER] {
                let name = SessionName::new(owner, "slow-calls".to_owned());
                assert_eq!(SessionName::meant_by(caller, &name.shown_to(caller)), name);
            }
        }
    }
}
