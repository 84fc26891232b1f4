//! Plans against runs: programs take single steps, and each call's entry and end has to be where the plan has a site for it.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod calls;
mod module;

use std::process::{Command, Stdio};

use profiler_testkit::{has_program, stepping::Stepping};

use calls::Run;

/// Runs a program for at most so many steps and gives what was seen.
fn run(command: &mut Command, most: u64) -> Run {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut program = Stepping::start(command);
    let mut run = Run::default();
    for _ in 0..most {
        let Some(stop) = program.step() else { break };
        run.step(&program, stop);
    }
    run.end();
    run
}

fn check(command: &str, run: &Run) {
    println!("{command}:\n{run}");
    assert!(
        run.wrong.is_empty(),
        "{command}:\n{}",
        run.wrong.iter().take(50).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn entries_and_ends_of_calls_are_where_the_plan_has_them() {
    for (program, arguments) in [
        (
            "/bin/sh",
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
        let run = run(Command::new(program).args(arguments), 400_000);
        check(program, &run);
        assert!(run.ended > 500, "{run}");
    }
}

#[test]
#[ignore = "by hand: of the command that STEPPED names, as many steps as STEPS"]
fn entries_and_ends_of_one_programs_calls() {
    let command = std::env::var("STEPPED").unwrap();
    let most = std::env::var("STEPS").map_or(20_000_000, |steps| steps.parse().unwrap());
    let run = run(
        Command::new("/bin/sh").args(["-c", &format!("exec {command}")]),
        most,
    );
    check(&command, &run);
}
