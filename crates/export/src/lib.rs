//! Profiles in the formats of other tools. Everything here is pure: data in, bytes out.
//!
//! | file | idea |
//! |---|---|
//! | `profile` | what is written: stacks with weights |
//! | `pprof` | Go's pprof, and what reads its files |
//! | `firefox` | <https://profiler.firefox.com> |
//! | `speedscope` | <https://www.speedscope.app> |
//! | `interval_log` | HdrHistogram, and what reads its logs |
//! | `perf_script` | what reads the text that `perf script` prints |
//! | `text` | names of targets in a line of text |

pub mod firefox;
pub mod interval_log;
mod list;
pub mod perf_script;
pub mod pprof;
pub mod profile;
pub mod speedscope;
pub mod text;

pub use profile::{Frame, Label, Measure, Profile, Stack, Unit};
