//! Who is on the other end of a connection.

use profiler_target::has_own_rights;
use tokio::net::{UnixStream, unix::UCred};

use crate::session::Caller;

/// Who is on the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A user; of root, a process that may do all that the daemon may.
    User(Caller),
    /// A process of user 0 that may not, as those of a container without a user namespace of its own.
    RootByNumber,
}

impl Peer {
    /// Who has connected. `None` where that is gone: it has nothing to ask.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        let caller = caller(&credentials);
        if !caller.is_root() {
            return Some(Self::User(caller));
        }
        // A process that the daemon's own namespace of processes does not hold has no number here.
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
        if pid.is_some_and(|pid| pid != 0 && has_own_rights(stream, pid)) {
            return Some(Self::User(caller));
        }
        tracing::info!(
            ?pid,
            "a process of root's without the daemon's capabilities is refused"
        );
        Some(Self::RootByNumber)
    }

    /// The user that its connection is counted for.
    pub fn counted_as(self) -> u32 {
        match self {
            Self::User(caller) => caller.uid,
            // Nobody's number.
            Self::RootByNumber => u32::MAX,
        }
    }
}

/// The user of a socket's credentials.
pub fn caller(credentials: &UCred) -> Caller {
    Caller {
        uid: credentials.uid(),
        gid: credentials.gid(),
    }
}
