//! The profiler's client: the command line and what it is made of.
//!
//! Everything goes through the `profiler.v1` service; nothing here traces or attaches. Of ELF files, only those that
//! debuginfod servers send are read, by the daemon's library.

#![expect(
    clippy::format_push_string,
    reason = "writing to a String cannot fail, and what is saved by not allocating does not show at a screen's pace"
)]

pub mod attached;
pub mod cli;
pub mod collector;
pub mod connect;
pub mod debuginfod;
pub mod departures;
pub mod failure;
pub mod in_process;
mod instance;
pub mod live;
pub mod output;
pub mod render;
pub mod run;
pub mod state;
pub mod stop;
mod tries;
pub mod tui;
pub mod verb;
pub mod view;
pub mod watch;
