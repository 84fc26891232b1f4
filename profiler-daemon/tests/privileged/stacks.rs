//! Stacks of a program without frame pointers, held against those that it can have: as it is, and with
//! return probes pending or instructions single-stepped all over it.

use profiler_daemon::session::ExitMethod;
use profiler_symbolize::Frame;

use super::{
    fixture::small_scale,
    service::Service,
    skipped,
    stacks_target::{COMPLETE, EMULATED, Target, enough},
    stacks_truth::{Judged, Truth},
};

/// Share of stacks that are complete where return probes are pending.
const COMPLETE_PENDING: f64 = 0.99;
/// The same where the target does little else than to run into probes. From when the kernel replaces a return address
/// until it has noted which, nobody can say what it was; this is some 3% of what a probe takes.
const COMPLETE_STORM: f64 = 0.93;

/// Steps of the tower: some microseconds, and about a millisecond.
pub const FEW: &str = "4000";
const MANY: &str = "800000";

const ROOTS: [&str; 2] = ["_start - main", "- thread_main"];

const CHAINS: [&str; 17] = [
    "read_line",
    "have_child",
    "timers_begin",
    "all_acts tower n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23 n24 n25 \
     n26 n27 n28 n29",
    "all_acts sorting - compare",
    "all_acts raising",
    "all_acts in_library library_calls library_inner from_library",
    "all_acts allocating allocated",
    "all_acts aligning realigned in_realigned",
    "all_acts pushing many_arguments",
    "all_acts jumping tail_begin",
    "all_acts jumping tail_end",
    "all_acts clocks",
    "all_acts in_kernel",
    "all_acts linking",
    "all_acts recursing sink_to*300 bottom",
    "all_acts drowning drown_to*600 seabed",
];

/// The first is called by a signal of the thread's own, which another may come before.
const HANDLERS: [&str; 3] = ["on_raise", "on_tick", "on_alternate"];

const HANDLER_CHAINS: [&str; 3] = [
    "on_raise raised_leaf",
    "on_tick tick_leaf",
    "on_alternate alternate_leaf",
];

pub fn truth() -> Truth {
    let is_own = |frame: &Frame| frame.module.starts_with("stacks");
    Truth::new(is_own, &ROOTS, &CHAINS, &HANDLERS, &HANDLER_CHAINS)
}

/// Starts the fixture, with spans of these scopes.
fn start(steps: &str, acts: &[&str], probes: &[&str], method: ExitMethod) -> Target {
    let args: Vec<String> = [steps].iter().chain(acts).map(|arg| (*arg).to_owned()).collect();
    Target::start("stacks", &args, probes, method)
}

#[test]
#[ignore = "needs root"]
fn all_acts() {
    let mut target = start(FEW, &[], &[], ExitMethod::Ret);
    let judged = target.judge(&truth(), enough(), "all acts");
    target.finish();
    judged.assert(COMPLETE);
    if small_scale() {
        return;
    }
    for act in [
        "n29",
        "compare",
        "raised_leaf",
        "from_library",
        "in_realigned",
        "allocated",
        "bottom",
        "tick_leaf",
        "alternate_leaf",
        "thread_main",
    ] {
        assert!(judged.under(act) > 0, "{act} was not met");
    }
}

#[test]
#[ignore = "needs root"]
fn deeper_than_is_kept() {
    if small_scale() {
        return skipped(EMULATED);
    }
    let mut target = start(FEW, &["drowning"], &[], ExitMethod::Ret);
    let judged = target.judge(&truth(), enough() / 4, "600 deep");
    target.finish();
    judged.assert(0.0);
    assert!(judged.under("seabed") > 0);
    assert_eq!(
        judged.samples(|sampled| sampled.has("seabed") && sampled.complete),
        0
    );
}

fn pending(steps: &str, acts: &[&str], probes: &[&str], complete_share: f64) {
    let mut target = start(steps, acts, probes, ExitMethod::Return);
    let judged = target.judge(
        &truth(),
        enough(),
        &format!("return probes on {} of {acts:?}", probes.join(" ")),
    );
    let calls = target.finish();
    println!("  {calls} calls timed");
    judged.assert(complete_share);
    assert!(calls > 0);
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending() {
    let mut target = start(MANY, &["tower"], &[], ExitMethod::Return);
    let all: Vec<Judged> = [
        (1, &["n15"][..]),
        (5, &["n02", "n09", "n21", "n28"]),
        (30, &["n??"]),
    ]
    .into_iter()
    .map(|(pending, scopes)| {
        for scope in scopes {
            target.attach(scope, ExitMethod::Return);
        }
        target.judge(&truth(), enough(), &format!("{pending} return probes pending"))
    })
    .collect();
    let calls = target.finish();
    println!("  {calls} calls timed");
    for judged in all {
        judged.assert(COMPLETE_PENDING);
    }
    assert!(calls > 0);
}

#[test]
#[ignore = "needs root"]
fn a_storm_of_return_probes() {
    pending(FEW, &["tower"], &["n??"], COMPLETE_STORM);
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_in_all_acts() {
    if small_scale() {
        return skipped(EMULATED);
    }
    let probes = [
        "n?5",
        "sorting",
        "compare",
        "allocating",
        "realigned",
        "in_realigned",
        "library_inner",
        "from_library",
        "pushing",
        "many_arguments",
        "tail_begin",
        "tail_end",
        "raising",
        "linking",
        "clocks",
    ];
    pending(FEW, &[], &probes, COMPLETE_STORM);
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_on_a_recursion() {
    if small_scale() {
        return skipped(EMULATED);
    }
    // The kernel keeps 64 of the 300.
    pending(FEW, &["recursing"], &["sink_to"], COMPLETE_STORM);
}

#[test]
#[ignore = "needs root"]
fn return_probes_of_another_tool_pending() {
    if small_scale() {
        return skipped(EMULATED);
    }
    let mut target = start(FEW, &["tower"], &["n15"], ExitMethod::Return);
    let other = Service::start();
    let pid = target.process.pid();
    for scope in ["n15", "n1?"] {
        other.attach_by(pid, scope, Some(ExitMethod::Return)).unwrap();
    }
    let judged = target.judge(&truth(), enough(), "return probes of two tools");
    drop(other);
    assert!(target.finish() > 0);
    judged.assert(COMPLETE_STORM);
}

#[test]
#[ignore = "needs root"]
fn single_stepped() {
    let probes = [
        "n??",
        "tail_begin",
        "tail_end",
        "compare",
        "realigned",
        "from_library",
    ];
    let mut target = start(FEW, &[], &probes, ExitMethod::Ret);
    let judged = target.judge(&truth(), enough(), "probes on every ret");
    let calls = target.finish();
    println!("  {calls} calls timed");
    judged.assert(COMPLETE);
    assert!(calls > 0);
}
