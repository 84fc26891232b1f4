//! Percentiles against the target's own clock.

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{Service, function},
};

/// Relative error that a bucket's midpoint and a target's own clock may differ by.
const TOLERANCE: f64 = 0.01;

#[test]
#[ignore = "needs root"]
fn percentiles_agree_with_the_targets_own_clock() {
    let service = Service::start();
    let args = if small_scale() {
        spec("latencies").args
    } else {
        ["400", "7", "mixed"].map(str::to_owned).into()
    };
    let mut target = Fixture::start("latencies", &args);
    target.prefer();
    let session = service.attach(target.pid(), "work").unwrap();
    target.say("go");
    let mut latencies = None;
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if let Some(json) = line.strip_prefix("latencies ") {
            latencies = Some(serde_json::from_str::<serde_json::Value>(json).unwrap());
        }
        if line.starts_with("truth ") {
            break;
        }
    }
    let picture = service.last_latency(&session);
    let seen = function(&picture, "work");
    let times = seen.summaries.since_start.times.unwrap();
    let latencies = latencies.unwrap_or_else(|| panic!("no latencies line in\n{}", target.output));
    let overhead = seen.overhead_ns as f64;
    for (name, ours) in [
        ("p50_ns", times.p50_ns),
        ("p90_ns", times.p90_ns),
        ("p95_ns", times.p95_ns),
        ("p99_ns", times.p99_ns),
    ] {
        // Between the two, in every order the kernel may run things: probes lie inside the call and around its body.
        let truth = |clock: &str| {
            latencies[clock][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{latencies}"))
        };
        let (inside, outside) = (truth("inside"), truth("outside"));
        println!(
            "{name}: ours {ours}, the target's {inside} inside and {outside} around the call, overhead {overhead}"
        );
        let ours = ours as f64;
        assert!(
            ours >= inside * (1.0 - TOLERANCE) && ours <= outside * (1.0 + TOLERANCE),
            "{name}: ours {ours}, the target's {inside} inside and {outside} around the call"
        );
        // Where a trap is emulated, it takes more than 1% of a call by itself.
        assert!(
            small_scale() || ours - inside <= inside * TOLERANCE + overhead,
            "{name}: ours {ours}, the target's {inside}, overhead {overhead}"
        );
    }
    assert_eq!(target.finish().status, Some(0));
}
