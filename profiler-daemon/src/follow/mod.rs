//! Following sampled processes: what code they have mapped by now, and the unwind tables of it.
//!
//! | file | idea |
//! |---|---|
//! | `following` | the thread, and the way to it |
//! | `rounds` | when the thread looks at a process again by itself |
//! | `follower` | what the thread keeps: processes, and the tables that they share |
//! | `places` | who has how much of the table of mappings |
//! | `files` | tables made of files, by build-id |
//!
//! See `docs/internals/stacks.md` for how stacks are walked.

mod files;
mod follower;
mod following;
mod places;
mod rounds;

pub use following::Following;
