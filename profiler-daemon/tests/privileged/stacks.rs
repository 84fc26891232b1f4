//! Stacks of a program without frame pointers, held against those that it can have: as it is, and with
//! return probes pending or instructions single-stepped all over it.

use std::sync::Arc;

use profiler_daemon::session::{ExitMethod, FlamePicture, SessionInfo};
use tokio::sync::watch;

use super::{
    fixture::{Fixture, small_scale},
    service::{Service, ended},
    stacks_truth::{Judged, Truth},
};

/// Shares of complete stacks.
const COMPLETE: f64 = 0.995;
const COMPLETE_PENDING: f64 = 0.99;

/// Samples that are judged.
fn enough() -> u64 {
    if small_scale() { 400 } else { 4000 }
}

const ROOTS: [&str; 2] = ["_start - main", "- thread_main"];

const CHAINS: [&str; 16] = [
    "have_child",
    "timers_begin",
    "all_acts tower n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23 n24 n25 \
     n26 n27 n28 n29",
    "all_acts sorting - compare",
    "all_acts raising - on_raise raised_leaf",
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

const HANDLERS: [&str; 2] = ["on_tick", "on_alternate"];

const HANDLER_CHAINS: [&str; 2] = ["on_tick tick_leaf", "on_alternate alternate_leaf"];

fn truth() -> Truth {
    Truth::new(&["stacks"], &ROOTS, &CHAINS, &HANDLERS, &HANDLER_CHAINS)
}

/// A fixture that is sampled.
struct Sampled {
    service: Service,
    target: Fixture,
    pictures: watch::Receiver<Option<Arc<FlamePicture>>>,
    sessions: Vec<SessionInfo>,
}

impl Sampled {
    /// Starts it, with spans of these scopes.
    fn start(acts: &[&str], probes: &[&str], method: ExitMethod) -> Self {
        let service = Service::start();
        let mut args = vec!["-"];
        args.extend(acts);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let mut target = Fixture::start("stacks", &args);
        let sessions = probes
            .iter()
            .map(|scope| {
                let session = service.attach_by(target.pid(), scope, Some(method)).unwrap();
                assert!(session.sites.iter().all(|site| site.exit_method == method));
                session
            })
            .collect();
        let all = service.attach(target.pid(), "").unwrap();
        let pictures = service.watch_flame(&all);
        target.say("go");
        Self {
            service,
            target,
            pictures,
            sessions,
        }
    }

    /// Waits for so many samples, and judges them.
    fn judge(&mut self, truth: &Truth, samples: u64, what: &str) -> Judged {
        let picture = self
            .service
            .until(&mut self.pictures, |picture| picture.picture.summary.samples >= samples);
        let judged = truth.judge(&picture);
        judged.print(what);
        println!("  lost: {:?}", picture.lost);
        judged
    }

    /// Ends everything; calls that were timed.
    fn finish(self) -> u64 {
        let Self {
            service,
            target,
            pictures: _,
            sessions,
        } = self;
        let calls = sessions
            .iter()
            .map(|session| {
                let last = service.last_latency(session);
                last.functions.iter().map(ended).sum::<u64>()
            })
            .sum();
        assert_eq!(target.finish().status, Some(0), "the target came to harm");
        calls
    }
}

#[test]
#[ignore = "needs root"]
fn all_acts() {
    let mut sampled = Sampled::start(&[], &[], ExitMethod::Ret);
    let judged = sampled.judge(&truth(), enough(), "all acts");
    sampled.finish();
    judged.assert(COMPLETE);
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
    let mut sampled = Sampled::start(&["drowning"], &[], ExitMethod::Ret);
    let judged = sampled.judge(&truth(), enough() / 4, "600 deep");
    sampled.finish();
    judged.assert(0.0);
    assert!(judged.under("seabed") > 0);
    let deep = |stacks: &std::collections::BTreeMap<String, u64>| {
        stacks
            .iter()
            .filter(|(stack, _)| stack.contains("seabed"))
            .map(|(_, samples)| samples)
            .sum::<u64>()
    };
    assert_eq!(deep(&judged.incomplete), judged.under("seabed"));
}

fn pending(acts: &[&str], probes: &[&str], leaf: &str) {
    let mut sampled = Sampled::start(acts, probes, ExitMethod::Return);
    let judged = sampled.judge(&truth(), enough(), &format!("return probes on {probes:?}"));
    let calls = sampled.finish();
    println!("  {calls} calls timed");
    judged.assert(COMPLETE_PENDING);
    assert!(calls > 0 && judged.under(leaf) > 0);
}

#[test]
#[ignore = "needs root"]
fn a_return_probe_pending() {
    pending(&["tower"], &["n15"], "n29");
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_on_five() {
    pending(&["tower"], &["n02", "n09", "n15", "n21", "n28"], "n29");
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_on_thirty() {
    pending(&["tower"], &["n??"], "n29");
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_in_all_acts() {
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
    pending(&[], &probes, "n29");
}

#[test]
#[ignore = "needs root"]
fn return_probes_pending_on_a_recursion() {
    // The kernel keeps 64 of the 300.
    pending(&["recursing"], &["sink_to"], "bottom");
}

#[test]
#[ignore = "needs root"]
fn return_probes_of_another_tool_pending() {
    let mut sampled = Sampled::start(&["tower"], &["n15"], ExitMethod::Return);
    let other = Service::start();
    let pid = sampled.target.pid();
    for scope in ["n15", "n1?"] {
        other.attach_by(pid, scope, Some(ExitMethod::Return)).unwrap();
    }
    let judged = sampled.judge(&truth(), enough(), "return probes of two tools");
    drop(other);
    assert!(sampled.finish() > 0);
    judged.assert(COMPLETE_PENDING);
}

#[test]
#[ignore = "needs root"]
fn single_stepped() {
    let probes = ["n??", "tail_begin", "tail_end", "compare", "realigned", "from_library"];
    let mut sampled = Sampled::start(&[], &probes, ExitMethod::Ret);
    let judged = sampled.judge(&truth(), enough(), "probes on every ret");
    let calls = sampled.finish();
    println!("  {calls} calls timed");
    judged.assert(COMPLETE);
    assert!(calls > 0);
}
