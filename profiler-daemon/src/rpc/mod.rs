//! The gRPC service: the only part that knows the wire format.
//!
//! | file | idea |
//! |---|---|
//! | `server` | a service on a socket, or in this process |
//! | `connections` | the connections that clients have |
//! | `places` | how many connections and streams each user may have |
//! | `peer` | who is on the other end of one |
//! | `info`, `targets`, `sessions`, `views` | one gRPC service each |
//! | `streams` | the messages of each view |
//! | `watches` | several views in one stream |
//! | `arguments` | messages parsed once, into values that cannot be wrong |
//! | `latency_delta`, `flame_delta` | what changed since the last message of a stream |
//! | `source` | a function's source as a message |
//! | `trace` | hits as messages |
//! | `spans` | the slowest calls as messages |
//! | `thread_names` | names of the threads that a stream tells of |
//! | `estimate` | what attaching a scope would do, as a message |
//! | `waits` | who is waited for as messages |
//! | `timeline` | counters over time as messages |
//! | `system_calls` | system calls as messages |
//! | `records` | samples, ends of calls, hits and counts as messages |
//! | `recorded_counters` | counters over time among those |
//! | `departures` | which processes have left the session of a stream |
//! | `stream_info` | what every message of a stream begins with |
//! | `convert` | values that both directions need |
//! | `status` | errors with their reason |

mod arguments;
mod connections;
mod convert;
mod departures;
mod estimate;
mod explain;
mod flame_delta;
mod info;
mod latency_delta;
mod peer;
mod places;
mod recorded_counters;
pub(crate) use latency_delta::histogram;
pub(crate) mod records;
pub use records::signal as signal_recordings;
mod server;
mod sessions;
mod source;
mod spans;
mod status;
mod stream_info;
mod streams;
mod system_calls;
mod targets;
mod thread_names;
mod timeline;
mod trace;
mod views;
mod waits;
mod watches;

pub use server::{
    InProcess, ServerError, in_process, in_process_of_comparison, in_process_of_recording, serve,
};
