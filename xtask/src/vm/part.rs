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

/// What is made of calls, hits and samples outside of the kernel, whose arrival other tests hold against the target on
/// each kernel. These tests run on the oldest kernel alone, on which some of it has to be refused.
const MADE_OUTSIDE: [&str; 3] = ["estimate::", "percentiles::", "timeline::"];

/// What is refused, and how users share what there is. The daemon decides it: of the machines, the one with the oldest kernel alone runs these
/// tests, as most is refused there.
const DECIDED_BY_THE_DAEMON: [&str; 2] = ["bad_input::", "shares::"];

/// Where a probe sits and what it reads there, and what is made of it. The ways to attach and to see an instruction done are three: the oldest
/// kernel's, the newest's, and those that 6.12 and the developer's own kernel (6.10 to 7.1) have in common. These tests do
/// not run on 6.12.
const BY_WAY_OF_ATTACHING: [&str; 5] = ["budget::", "explain::", "inlined::", "outcomes::", "paths::"];

/// What the daemon makes of what programs count, and what becomes of them when a target, a session or the daemon ends. These tests do not run
/// on the newest kernel, where it takes longest to load programs: 6.12 and the developer's own kernel are new enough for them.
const NEW_ENOUGH_BEFORE: [&str; 10] = [
    "budget::",
    "by_value::",
    "cycles::",
    "endings::",
    "explain::",
    "gate::",
    "gone::",
    "killed::",
    "losses::",
    "many::",
];

/// Who may send which request, which does not depend on the kernel's version; and real programs, which are not in the
/// machines. These tests run on the developer's own kernel alone.
const NOT_IN_MACHINES: [&str; 3] = ["matrix::", "oracle::", "soak::"];

/// The part that runs on a kernel of [`super::DEFAULT`].
pub fn part(kernel: &str) -> Tests {
    let names = |parts: &[&[&str]]| parts.concat().into_iter().map(str::to_owned).collect();
    match kernel {
        "6.12-preempt" => Tests::Containing(names(&[&BESIDE_EACH_OTHER])),
        "6.12" => Tests::Without(names(&[
            &BESIDE_EACH_OTHER,
            &MADE_OUTSIDE,
            &DECIDED_BY_THE_DAEMON,
            &BY_WAY_OF_ATTACHING,
            &NOT_IN_MACHINES,
        ])),
        "7.2" => Tests::Without(names(&[
            &MADE_OUTSIDE,
            &DECIDED_BY_THE_DAEMON,
            &NEW_ENOUGH_BEFORE,
            &NOT_IN_MACHINES,
        ])),
        _ => Tests::Without(names(&[&NOT_IN_MACHINES])),
    }
}
