//! Profiles in the formats of other tools. Everything here is pure: a [`Profile`] in, bytes out.
//!
//! | file | idea |
//! |---|---|
//! | `profile` | what is written: stacks with weights |
//! | `pprof` | Go's pprof, and what reads its files |
//! | `firefox` | <https://profiler.firefox.com> |
//! | `speedscope` | <https://www.speedscope.app> |

pub mod firefox;
mod list;
pub mod pprof;
pub mod profile;
pub mod speedscope;

pub use profile::{Frame, Label, Measure, Profile, Stack, Unit};
