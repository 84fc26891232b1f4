//! Which tests of the privileged suite CI runs on which kernel. All of them run on the developer's own kernel too, except
//! those of functions of the kernel where it has no kprobes.

use super::Tests;

/// Where programs of several threads, or of one thread and an interrupt, come in between each other: what `preempt=full` can change. These
/// tests run on 6.12 with it.
const BESIDE_EACH_OTHER: [&str; 11] = [
    "counts::",
    "cycles::",
    "gate::",
    "harm::",
    "hits::",
    "losses::",
    "many::",
    "off_cpu::",
    "stacks::",
    "system_calls::",
    "waits::",
];

/// What lies elsewhere in 6.12 than before and after: whose a process is, and what a CPU is at. These tests run on 6.12 too.
const OF_EACH_VERSION: [&str; 2] = ["admission::", "kernel_functions::"];

/// What is refused where a kernel cannot do it, and counters of the kernel's. These tests run on the oldest kernel alone, on which some of it
/// has to be refused.
const MOST_IS_REFUSED: [&str; 2] = ["bad_input::", "timeline::"];

/// Probes by perf events, for which a machine loads all programs another time. These tests run on the oldest kernel, which has no other probes,
/// and on the developer's own.
const BY_PERF_EVENTS: [&str; 2] = ["by_perf_events", "probes_that_are_still_being_taken_off"];

/// What programs count, what the daemon makes of that, and what becomes of it when a target, a session or the daemon ends. These tests do
/// not run on the newest kernel, where it takes longest to load programs: 6.12 and the developer's own kernel are new enough for them.
const NEW_ENOUGH_BEFORE: [&str; 13] = [
    "by_value::",
    "counts::",
    "cycles::",
    "endings::",
    "gate::",
    "gone::",
    "killed::",
    "losses::",
    "many::",
    "off_cpu::",
    "spans::",
    "system_calls::",
    "waits::",
];

/// What the daemon decides, and what it makes of calls, hits and samples whose arrival other tests hold against the target on each kernel; and
/// real programs, which are not in the machines. These tests run on the developer's own kernel alone.
const NOT_IN_MACHINES: [&str; 8] = [
    "budget::",
    "estimate::",
    "explain::",
    "matrix::",
    "oracle::",
    "percentiles::",
    "shares::",
    "soak::",
];

/// The part that runs on a kernel of [`super::DEFAULT`].
pub fn part(kernel: &str) -> Tests {
    let names = |parts: &[&[&str]]| parts.concat().into_iter().map(str::to_owned).collect();
    let (containing, without): (&[&[&str]], &[&[&str]]) = match kernel {
        "6.12-preempt" => (&[&BESIDE_EACH_OTHER, &OF_EACH_VERSION], &[&BY_PERF_EVENTS]),
        "7.2" => (
            &[],
            &[
                &MOST_IS_REFUSED,
                &NEW_ENOUGH_BEFORE,
                &BY_PERF_EVENTS,
                &NOT_IN_MACHINES,
            ],
        ),
        _ => (&[], &[&NOT_IN_MACHINES]),
    };
    Tests::Chosen {
        containing: names(containing),
        without: names(without),
    }
}
