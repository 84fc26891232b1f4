//! The only part that knows the kernel: loads the programs, attaches them, reads what they count.
//!
//! | file | idea |
//! |---|---|
//! | `engine` | the loaded object and what can be done with it |
//! | `attach` | probes on functions |
//! | `admission` | which processes may be looked at |
//! | `object` | the compiled object, and its settings on this kernel |
//! | `btf` | offsets of kernel structures |
//! | `events` | programs on the kernel's own tracepoints |
//! | `kernel_functions` | programs on the kernel's functions |
//! | `kernel_symbols` | which functions the kernel has |
//! | `watched_calls` | which system calls are seen as spans, and by whom |
//! | `ready` | programs that are loaded before they are attached |
//! | `missed` | system calls that the kernel did not show to the programs |
//! | `tracefs` | which tracepoints there are, and what their records hold |
//! | `closing` | links taken back, without waiting for ever |
//! | `multi` | programs and links of the `uprobe_multi` kind |
//! | `opening` | links are opened by threads of their own |
//! | `perf` | one perf event per site, where the kernel has no multi links |
//! | `gates` | how a step of a scope is observed only inside the step before it |
//! | `hits` | probes on single instructions, and what is read there |
//! | `sampler` | the perf-event sampler |
//! | `sampled_events` | the same at events |
//! | `event_opener` | opens these for threads, on whatever thread |
//! | `allocations` | who allocates memory |
//! | `off_cpu` | intervals off the CPU, from the scheduler |
//! | `counters` | counters of threads, by perf events |
//! | `system_calls` | system calls, counted by who makes them |
//! | `tracepoints` | programs at tracepoints, while somebody looks |
//! | `counts` | histograms and counters, read through shared memory |
//! | `unwind_maps` | the tables that stacks are walked by |
//! | `ring` | records, parsed once |
//! | `unended` | spans whose ends are not seen any more |
//! | `capability` | what the process is allowed to do |
//!
//! See `docs/internals/spans.md` for how the programs pair entries and exits.

mod admission;
mod allocations;
mod attach;
mod btf;
mod capability;
mod closing;
mod counters;
mod counts;
mod engine;
mod error;
mod event_opener;
mod events;
mod gates;
mod hits;
mod kernel_functions;
mod kernel_symbols;
mod leaving;
mod missed;
mod multi;
mod object;
mod off_cpu;
mod opening;
mod perf;
mod ready;
mod ring;
mod sampled_events;
mod sampler;
mod shared_stacks;
mod syscall;
mod system_calls;
mod tracefs;
mod tracepoints;
mod unended;
mod unwind_maps;
mod watched_calls;

pub use admission::AdmissionCounts;
pub use allocations::{Allocated, AllocationWatch, Allocations, AllocatorSpec};
pub use attach::{Attachment, Ends, ExitSite, ProbeSpec, SpanKind, can_be_done};
pub use btf::Btf;
pub use capability::{Missing, missing_capabilities};
pub(crate) use counters::threads;
pub use counters::{Counter, CountersError, Counting};
pub use counts::ProbeCounts;
pub use engine::{Ability, AttachKind, Config, Engine, OffCpu, Times};
pub use error::KernelError;
pub use event_opener::{EventOpener, OpenedEvents};
pub use gates::{Gate, Gates};
pub use hits::{HitCounts, HitSpec, KernelPlace, LookSpec};
pub use kernel_symbols::{KernelSymbols, has_function_probes};
pub use leaving::Detached;
pub use missed::Missed;
pub(crate) use object::prepare;
pub use off_cpu::{Activity, Interval, StillOff};
pub use profiler_aggregate::pace::Pace;
pub use ready::Expected;
pub use ring::{Hit, Key, ReadValue, Record, UserStack};
pub use sampled_events::{Event, EventCounts, EventError, SampledEvent};
pub use shared_stacks::SharedStack;
pub use system_calls::{CallNumber, CallResult, CountedCalls, OpenSystemCall, ReturnedCall};
pub use tracefs::Tracefs;
pub use unwind_maps::{LIMITS as UNWIND_LIMITS, UnwindMaps};
