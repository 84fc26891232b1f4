//! Plans against runs: programs take single steps, and each call's entry and end has to be where the plan has a site for it.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod calls;
mod module;

use std::process::{Command, Stdio};

use profiler_testkit::{has_program, stepping::Stepping};

use calls::Run;

/// Has a program take at most so many steps, and gives what was seen.
fn watch(mut program: Stepping, most: u64) -> Run {
    let mut run = Run::default();
    for _ in 0..most {
        let Some(stop) = program.step() else { break };
        run.step(&program, stop);
    }
    run.end();
    run
}

fn check(of: &str, run: &Run) {
    println!("{of}:\n{run}");
    let first: Vec<_> = run.wrong.iter().take(50).map(String::as_str).collect();
    assert!(first.is_empty(), "{of}:\n{}", first.join("\n"));
}

#[test]
fn entries_and_ends_of_calls_are_where_the_plan_has_them() {
    for (program, arguments) in [
        (
            "sh",
            &["-c", "for i in 1 2 3; do echo $((i * 7)); done; cd /; pwd"][..],
        ),
        (
            "perl",
            &["-e", "print join ',', sort map { $_ * 7 % 13 } 1 .. 40"],
        ),
    ] {
        if !has_program(program) {
            continue;
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let run = watch(Stepping::start(&mut command), 300_000);
        check(program, &run);
        assert!(run.ended > 500, "{run}");
    }
}

/// `STEPPED_PID=N STEPS=20000000 cargo test --release -p profiler-plan --test stepped -- --ignored --nocapture`
#[test]
#[ignore = "by hand: of the process of a number, so many steps"]
fn entries_and_ends_of_a_running_programs_calls() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let pid = number("STEPPED_PID");
    let run = watch(Stepping::attach(pid.try_into().unwrap()), number("STEPS"));
    check(&format!("process {pid}"), &run);
}
