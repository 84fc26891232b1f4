//! Probes that cost the target more than the budget: what is said of it, and how the command ends.

use super::{
    command::{Ended, profiler, run},
    fixture::Fixture,
    verbs::unharmed,
};

/// Its probes cost more than anything is allowed to.
fn hot() -> Fixture {
    let mut target = Fixture::start("hot", &[]);
    target.say("go");
    target
}

#[test]
#[ignore = "needs root"]
fn a_run_whose_only_function_costs_too_much_ends_with_the_reason() {
    let target = hot();
    let pid = target.pid().to_string();
    for verb in ["latency", "trace"] {
        let ended = run(profiler(&[verb, "-p", &pid, "step_hot", "--budget", "3"])).status(1);
        ended
            .says("`step_hot` was taken off: ")
            .says("of the target's CPU time, over the budget of 3%. `--budget 0` sets no limit.");
    }
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn of_several_functions_the_costly_one_is_named_and_the_run_goes_on() {
    let target = hot();
    let pid = target.pid().to_string();
    let of = |verb: &[&str]| -> Ended {
        let flags = ["-p", &pid, "step_*", "--budget", "25%", "--duration", "2"];
        run(profiler(&[verb, &flags].concat())).status(0)
    };
    let text = of(&["latency"]);
    let said = "  taken off the target, its counts stand still:\n";
    assert!(text.stdout().contains(said), "{}", text.stdout());

    let objects = of(&["latency", "--json"]).objects();
    let last = |name: &str| objects.iter().rfind(|object| object["function"] == name).unwrap();
    let (hot, cold) = (last("step_hot"), last("step_cold"));
    let why = hot["taken_off"].as_str().unwrap();
    assert!(why.ends_with("over the budget of 25%"), "{why}");
    assert!(cold["taken_off"].is_null(), "{cold}");
    assert_eq!(cold["lost"]["over_budget"], 1, "{cold}");

    let objects = of(&["flame", "--json"]).objects();
    assert_eq!(objects.last().unwrap()["lost"]["over_budget"], 1);
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_budget_is_a_percentage() {
    for (budget, words) in [
        ("101", "101 is not in 0..=100"),
        ("much", "a percentage is expected"),
    ] {
        run(profiler(&["latency", "-p", "1", "f", "--budget", budget]))
            .status(2)
            .says(words);
        let mut command = profiler(&["latency", "-p", "1", "f"]);
        command.env("PROFILER_BUDGET", budget);
        run(command).status(2).says("$PROFILER_BUDGET: ").says(words);
    }
}
