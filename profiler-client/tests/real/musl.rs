//! Stacks of programs with musl, whose own code has no unwind information.

use std::{fs, process::Command};

use profiler_testkit::has_program;
use serde_json::Value;

use super::{
    command::{profiler, run},
    fixture::Fixture,
};

/// Three threads, as each way to begin one makes them, that work until standard input ends.
const WORKING: &str = "
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <threads.h>
    #include <unistd.h>
    static volatile unsigned long sum;
    __attribute__((noinline)) static void work(void) { for (int i = 0; i < 10000; i++) sum += i; }
    static void *in_thread(void *unused) { for (;;) work(); return unused; }
    static int in_c11_thread(void *unused) { for (;;) work(); return unused != 0; }
    int main(void)
    {
        pthread_t thread;
        thrd_t c11_thread;
        char byte;
        pthread_create(&thread, 0, in_thread, 0);
        thrd_create(&c11_thread, in_c11_thread, 0);
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
fn stacks_of_all_threads_are_complete() {
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
        // A busy machine may leave the target an eighth of this.
        let asked = ["flame", "-p", &pid, "-F", "499", "--duration", "4", "--json"];
        let objects = run(profiler(&asked)).status(0).objects();
        let (summary, stacks) = objects.split_last().unwrap();
        // Of what musl itself calls nothing says by whom.
        let frames = |stack: &Value| stack["frames"].as_array().unwrap().clone();
        let mut works = stacks.to_vec();
        works.retain(|stack| frames(stack).last().unwrap()["function"] == "work");
        let samples = |complete_in: Option<&str>| -> u64 {
            let counted = works.iter().filter(|stack| {
                complete_in.is_none_or(|function| {
                    let begins = frames(stack).iter().any(|frame| frame["function"] == function);
                    begins && stack["complete"] == true
                })
            });
            counted.map(|stack| stack["samples"].as_u64().unwrap()).sum()
        };
        let all = samples(None);
        let complete = ["main", "in_thread", "in_c11_thread"].map(|function| samples(Some(function)));
        println!("{name}: of {all} samples, {complete:?} in each thread are complete");
        assert!(
            complete.iter().all(|samples| *samples > 20),
            "{name}: {summary} {stacks:?}"
        );
        // Without musl's first functions all would be incomplete: a stack here and there that could not be read is another matter.
        assert!(
            complete.iter().sum::<u64>() * 100 > all * 95,
            "{name}: {summary} {stacks:?}"
        );
        assert_eq!(target.finish().status, Some(0));
    }
}

/// One thread that works until standard input ends. Of others nothing but names says which function ends them.
const WORKING_ALONE: &str = "
    #include <stdio.h>
    static volatile unsigned long sum;
    __attribute__((noinline)) static void work(void) { for (int i = 0; i < 10000; i++) sum += i; }
    int main(void)
    {
        puts(\"ready\");
        fflush(stdout);
        for (;;) work();
    }
";

#[test]
#[ignore = "needs root"]
fn stacks_of_a_stripped_static_program_are_complete() {
    if !has_program("musl-gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["working.c", "stripped"].map(|name| folder.path().join(name));
    fs::write(&source, WORKING_ALONE).unwrap();
    let mut build = Command::new("musl-gcc");
    build
        .args(["-O2", "-static", "-s", "-o"])
        .args([&program, &source]);
    assert!(build.status().unwrap().success());
    let target = Fixture::start_by(&mut Command::new(&program));
    let pid = target.pid().to_string();
    let asked = ["flame", "-p", &pid, "-F", "499", "--duration", "4", "--json"];
    let objects = run(profiler(&asked)).status(0).objects();
    let (_, stacks) = objects.split_last().unwrap();
    let samples = |is_meant: &dyn Fn(&Value) -> bool| -> u64 {
        let meant = stacks.iter().filter(|stack| is_meant(stack));
        meant.map(|stack| stack["samples"].as_u64().unwrap()).sum()
    };
    let (all, complete) = (samples(&|_| true), samples(&|stack| stack["complete"] == true));
    println!("of {all} samples, {complete} are complete");
    assert!(all > 20 && complete * 100 > all * 95, "{stacks:?}");
    drop(target);
}
