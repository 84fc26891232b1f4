//! Stacks of programs with musl, whose own code has no unwind information.

use std::{fs, process::Command};

use profiler_testkit::has_program;
use serde_json::Value;

use super::{
    command::{profiler, run},
    fixture::Fixture,
};

/// Two threads that work until standard input ends.
const WORKING: &str = "
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <unistd.h>
    static volatile unsigned long sum;
    __attribute__((noinline)) static void work(void) { for (int i = 0; i < 10000; i++) sum += i; }
    static void *in_thread(void *unused) { for (;;) work(); return unused; }
    int main(void)
    {
        pthread_t thread;
        char byte;
        pthread_create(&thread, 0, in_thread, 0);
        fcntl(0, F_SETFL, O_NONBLOCK);
        puts(\"ready\");
        fflush(stdout);
        while (read(0, &byte, 1) != 0)
            work();
        return 0;
    }
";

#[test]
#[ignore = "needs root"]
fn stacks_of_both_threads_are_complete() {
    if !has_program("musl-gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("working.c");
    fs::write(&source, WORKING).unwrap();
    for (name, flags) in [("dynamic", &["-O2"][..]), ("static", &["-O2", "-static"])] {
        let program = folder.path().join(name);
        let built = Command::new("musl-gcc")
            .args(flags)
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .status();
        assert!(built.unwrap().success());
        let target = Fixture::start_by(&mut Command::new(&program));
        let pid = target.pid().to_string();
        let objects = run(profiler(&["flame", "-p", &pid, "--duration", "1.5", "--json"]))
            .status(0)
            .objects();
        let (summary, stacks) = objects.split_last().unwrap();
        assert!(summary["samples"].as_u64().unwrap() > 20, "{name}: {summary}");
        // Of what musl itself calls nothing says by whom.
        let frames = |stack: &Value| stack["frames"].as_array().unwrap().clone();
        let mut works = stacks.to_vec();
        works.retain(|stack| frames(stack).last().unwrap()["function"] == "work");
        for function in ["main", "in_thread"] {
            let begins = |stack: &&Value| frames(stack).iter().any(|frame| frame["function"] == function);
            let mut of_thread = works.iter().filter(begins).peekable();
            assert!(of_thread.peek().is_some(), "{name}: {function}: {stacks:?}");
            for stack in of_thread {
                assert_eq!(stack["complete"], true, "{name}: {stack}");
            }
        }
        assert_eq!(target.finish().status, Some(0));
    }
}
