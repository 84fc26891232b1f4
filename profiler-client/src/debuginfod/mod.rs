//! Names from debuginfod servers, for functions that the daemon could not name.
//!
//! It is the client that asks, not the daemon: the machine with the target need not reach any server, and the names are
//! put in where the result is drawn. So all samples of a run have them, from its first on, and only modules are asked
//! for that samples lie in.
//!
//! | file | idea |
//! |---|---|
//! | `settings` | what the environment says: servers, folder, bounds |
//! | `store` | the files on disk, shared with other clients |
//! | `download` | one file from one server, bounded |
//! | `worker` | the thread that gets files while the run goes on |
//! | `names` | names of addresses, from the files |

mod download;
mod names;
mod settings;
mod store;
mod worker;

pub use names::Names;
pub use settings::Settings;
pub use worker::Worker;

/// How long a build-id is, in bytes.
const BUILD_ID_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

/// A build-id, as it is written in paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(String);

impl BuildId {
    /// From its bytes; `None` where that can be none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if !BUILD_ID_BYTES.contains(&bytes.len()) {
            return None;
        }
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let hex = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
        Some(Self(hex.collect()))
    }

    /// In hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }
}
