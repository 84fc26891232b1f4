//! Which tests of the privileged suite CI runs on which kernel. All of them run on the developer's own kernel too, except
//! those of functions of the kernel where it has no kprobes.

use super::Tests;

/// Where programs of several threads, or of one thread and an interrupt, come in between each other: what `preempt=full`
/// can change. These tests run on 6.12 with it, and the others on 6.12 without.
const BESIDE_EACH_OTHER: [&str; 14] = [
    "by_value::",
    "counts::",
    "cycles::",
    "gate::",
    "gone::",
    "harm::",
    "hits::",
    "losses::",
    "many::",
    "off_cpu::",
    "spans::",
    "stacks::",
    "system_calls::",
    "waits::",
];

/// What is refused where a kernel cannot do it, and counters of the kernel's. These tests run on the oldest kernel alone, on which some of it
/// has to be refused.
const MOST_IS_REFUSED: [&str; 2] = ["bad_input::", "timeline::"];

/// Where a probe sits and what it reads there, and what is made of it. The ways to attach and to see an instruction done are three: the oldest
/// kernel's, the newest's, and those that 6.12 and the developer's own kernel (6.10 to 7.1) have in common. These tests do
/// not run on 6.12.
const BY_WAY_OF_ATTACHING: [&str; 3] = ["inlined::", "outcomes::", "paths::"];

/// Probes by perf events, for which a machine loads all programs another time. These tests run on the oldest kernel, which has no other probes,
/// and on the developer's own.
const BY_PERF_EVENTS: [&str; 2] = ["by_perf_events", "probes_that_are_still_being_taken_off"];

/// What the daemon makes of what programs count, and what becomes of them when a target, a session or the daemon ends. These tests do not run
/// on the newest kernel, where it takes longest to load programs: 6.12 and the developer's own kernel are new enough for them.
const NEW_ENOUGH_BEFORE: [&str; 8] = [
    "by_value::",
    "cycles::",
    "endings::",
    "gate::",
    "gone::",
    "killed::",
    "losses::",
    "many::",
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
    match kernel {
        "6.12-preempt" => Tests::Containing(names(&[&BESIDE_EACH_OTHER])),
        "6.12" => Tests::Without(names(&[
            &BESIDE_EACH_OTHER,
            &MOST_IS_REFUSED,
            &BY_WAY_OF_ATTACHING,
            &BY_PERF_EVENTS,
            &NOT_IN_MACHINES,
        ])),
        "7.2" => Tests::Without(names(&[
            &MOST_IS_REFUSED,
            &NEW_ENOUGH_BEFORE,
            &BY_PERF_EVENTS,
            &NOT_IN_MACHINES,
        ])),
        _ => Tests::Without(names(&[&NOT_IN_MACHINES])),
    }
}
