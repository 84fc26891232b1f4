//! Profiles in the formats of other tools. Everything here is pure: data in, bytes out.
//!
//! | file | idea |
//! |---|---|
//! | `profile` | what is written: stacks with weights |
//! | `durations` | what is written: how long calls took |
//! | `timeline` | what is written: what happened when, on tracks of threads, and counters |
//! | `json_text` | names and values of targets as JSON |
//! | `lanes` | slices of a thread that nest, and those that do not |
//! | `pprof` | Go's pprof, and what reads its files |
//! | `otlp` | OpenTelemetry's collectors, and what they send profiles and metrics to |
//! | `firefox` | <https://profiler.firefox.com>: stacks, and events |
//! | `speedscope` | <https://www.speedscope.app> |
//! | `interval_log` | HdrHistogram, and what reads its logs |
//! | `perfetto` | <https://ui.perfetto.dev>, `trace_processor` |
//! | `chrome` | what reads the JSON of `chrome://tracing` |
//! | `perf_script` | what reads the text that `perf script` prints |
//! | `import` | profiles of other tools: bytes in, stacks out |
//! | `text` | names of targets in a line of text |

pub mod chrome;
pub mod durations;
pub mod firefox;
pub mod import;
pub mod interval_log;
mod json_text;
mod lanes;
mod list;
pub mod otlp;
pub mod perf_script;
pub mod perfetto;
pub mod pprof;
pub mod profile;
pub mod speedscope;
pub mod text;
pub mod timeline;

pub use durations::{Count, Durations, FunctionDurations};
pub use profile::{Frame, Label, Measure, Profile, Stack, Unit};
