//! Following sampled processes: what code they have mapped by now, and the unwind tables of it.
//!
//! | file | idea |
//! |---|---|
//! | `following` | the thread, and the way to it |
//! | `rounds` | when the thread looks at a process again by itself |
//! | `follower` | what the thread keeps: processes, and the tables that they share |
//! | `places` | who has how much of the table of mappings |
//! | `user` | which user the tables of a process count for |
//! | `files` | tables made of files, by build-id |
//!
//! See `docs/internals/stacks.md` for how stacks are walked.

mod files;
mod follower;
mod following;
mod places;
mod rounds;
mod user;

pub use following::Following;
