//! Targets: processes, their mappings, and how to find them.
//!
//! All but `ids` is read from `/proc`. What a process can choose itself (its name, its command line,
//! the paths of its files) is taken as bytes and never trusted to be text.
//!
//! | file | idea |
//! |---|---|
//! | `process` | one process, pinned by a descriptor |
//! | `ids` | what the kernel says by the numbers of processes and threads alone |
//! | `standing` | whose a process is, and what it may do |
//! | `peer` | whether who is on the other end of a socket may do what this process may |
//! | `stat` | the fields of `/proc/PID/stat` and `/proc/PID/status` that matter here |
//! | `maps` | what a process has mapped, and opening it |
//! | `memory` | its memory, as far as reading it waits for nobody |
//! | `contents` | the bytes of a file, of which others may not take any away |
//! | `on_disk` | copies of large files that others may write to |
//! | `list` | the processes that the caller may see |
//! | `container` | the container or service that a process is in |
//! | `environment` | what a program believes of its own environment |
//! | `file_systems` | those that files are not read from, and those that may not answer |
//! | `open_file` | files that are open, and known to answer or not |
//! | `place` | where a file is, in which mount |
//! | `own_mounts` | the file systems that are mounted for this process |
//! | `blocked` | how long a thread waits for others |
//! | `timed` | reads that a process may keep from coming to an end, each waited for a bounded time |
//! | `user` | whom what is done for a process counts for |
//! | `time_shares` | the part of a thread's time that each user's processes may take |
//! | `error` | why a process cannot be a target |

mod blocked;
mod container;
pub mod contents;
pub mod environment;
mod error;
pub mod file_systems;
mod ids;
mod list;
mod maps;
mod memory;
mod on_disk;
mod open_file;
mod own_mounts;
mod peer;
mod place;
mod process;
mod standing;
mod stat;
mod thread_rights;
mod time_shares;
mod timed;
mod user;

pub use blocked::Blocked;
pub use container::Surroundings;
pub use error::TargetError;
pub use ids::{has_thread, is_running};
pub use list::{Children, Life, Listed, Resolved, children, command_line, find_executable, list};
pub use maps::{
    MAPPINGS_MAX, Mapping, MapsError, Module, executable_mappings, modules, open_at_once, visit_mappings,
};
pub use memory::Memory;
pub use open_file::{Handle, OpenFile};
pub use peer::has_own_rights;
pub use place::Place;
pub use process::{Process, mapped_code_bytes};
pub use standing::{Ids, Namespace, Standing};
pub use stat::{Stat, Status};
pub use thread_rights::ThreadRights;
pub use time_shares::{TimeShare, TimeShares};
pub use timed::{
    has_unanswered, read_file, read_for_request, read_of_process, read_of_processes, read_of_user,
};
pub use user::{ROOT, user_of};
