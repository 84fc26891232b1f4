//! Names of sessions. Each user has names of their own: a name is free whatever names other users have given, and nobody
//! learns those.

use std::fmt::{self, Display};

use super::command::Caller;

/// A session's name and its owner.
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
        let (uid, given) = Self::split(text).unwrap_or((caller.uid, text));
        Self {
            uid,
            given: given.to_owned(),
        }
    }

    /// The two parts of `UID/NAME`; the number as it is shown, without signs and zeros before it.
    pub fn split(text: &str) -> Option<(u32, &str)> {
        let (shown, given) = text.split_once('/')?;
        let uid: u32 = shown.parse().ok()?;
        (uid.to_string() == shown).then_some((uid, given))
    }

    /// Its owner's number.
    pub const fn uid(&self) -> u32 {
        self.uid
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
    fn the_number_is_written_in_one_way() {
        assert_eq!(SessionName::split("1000/s1"), Some((1000, "s1")));
        for text in [
            "s1",
            "+1000/s1",
            "01000/s1",
            "/s1",
            "alice/s1",
            "-1/s1",
            "4294967296/s1",
        ] {
            assert_eq!(SessionName::split(text), None, "{text}");
        }
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
