//! What the calls of a function are that its name does not say: other functions' too, of a future alone, of code that no probe
//! reaches, of a file that was replaced. Each is said before the first figures, and in the list of functions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
    skipped,
};

/// Two functions of one code: a linker keeps one. Calls of the second are three times as many.
const SAME_CODE: &str = r#"
#include <stdio.h>
__attribute__((noinline)) long first(long n) { for (int i = 0; i < 100; i++) { n = n * 31 + i; __asm__ volatile("" : "+r"(n)); } return n; }
__attribute__((noinline)) long second(long n) { for (int i = 0; i < 100; i++) { n = n * 31 + i; __asm__ volatile("" : "+r"(n)); } return n; }
int main(void) {
    puts("ready"), fflush(stdout);
    while (getchar() > 10) {}
    for (int i = 0; i < 100; i++) first(i), second(i), second(i), second(i);
    return 0;
}
"#;

/// A future that is polled four times a call.
const ASYNC: &str = r#"
use std::{future::Future, pin::Pin, task::{Context, Poll, Waker}};
struct Yield(u32);
impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 { return Poll::Ready(()); }
        self.0 -= 1;
        Poll::Pending
    }
}
#[inline(never)]
pub async fn handle(n: u64) -> u64 {
    Yield(3).await;
    std::hint::black_box(n)
}
fn main() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for n in 0..100 {
        let mut future = Box::pin(handle(n));
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    }
}
"#;

/// A program that runs a function from a copy of its page.
const COPIED: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
__attribute__((noinline, section(".copied"), aligned(4096))) long copied(long n) { return n * 3 + (n >> 1); }
__attribute__((section(".copied"), aligned(4096))) long behind(long n) { return n; }
__attribute__((noinline)) long kept(long n) { return n * 5 + (n >> 1); }
int main(void) {
    void *page = (void *)copied;
    void *copy = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, page, 4096);
    mprotect(copy, 4096, PROT_READ | PROT_EXEC);
    if (mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) != page) return 1;
    puts("ready"), fflush(stdout);
    while (getchar() > 10) {}
    long sum = 0;
    for (int i = 0; i < 100; i++) sum += copied(i) + kept(i);
    return sum == 0;
}
"#;

/// A program that loads a library, calls it, and loads another one that has taken its place.
const REPLACED: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
static long (*load(const char *path, void **library))(long) {
    *library = dlopen(path, RTLD_NOW);
    return (long (*)(long))dlsym(*library, "plugged");
}
int main(int count, char **arguments) {
    void *library;
    long (*plugged)(long) = load(arguments[1], &library);
    puts("ready"), fflush(stdout);
    while (getchar() > 10) {}
    for (int i = 0; i < 100; i++) plugged(i);
    dlclose(library);
    if (rename(arguments[2], arguments[1])) return 1;
    plugged = load(arguments[1], &library);
    for (int i = 0; i < 100; i++) plugged(i);
    puts("loaded"), fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"#;

const LIBRARY: &str = "long plugged(long n) { return n * 3 + (n >> 1); }\n";

/// Compiles a text; `None` where it cannot be, as there is no such compiler or linker.
fn compiled(directory: &Path, name: &str, text: &str, command: &[&str]) -> Option<PathBuf> {
    let source = directory.join(name);
    fs::write(&source, text).unwrap();
    let program = source.with_extension("");
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .ok()?;
    if !output.status.success() {
        println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(program)
}

/// What a command says of a program that waits, and the functions of a name in it; the program runs on once it is watched.
fn watched(program: &Path, name: &str) -> (Ended, Value) {
    let daemon = Daemon::start();
    let mut target = Fixture::start_by(&mut Command::new(program));
    let pid = target.pid().to_string();
    let listed = run(profiler(&["functions", "-p", &pid, name, "--json"]))
        .status(0)
        .objects();
    let command = Running::start(through(&daemon.socket, &["latency", "-p", &pid, name, "--json"]));
    daemon.until_watched();
    target.say("go");
    assert_eq!(target.finish().status, Some(0));
    let function = listed.into_iter().find(|function| function["type"] == "function");
    (command.end(), function.unwrap())
}

/// A program that loads a plugin which a newer one may replace, and where both are.
struct Plugins {
    program: PathBuf,
    plugin: PathBuf,
    newer: PathBuf,
}

impl Plugins {
    fn make(directory: &Path) -> Self {
        let program = compiled(directory, "loads.c", REPLACED, &["gcc", "-O1", "-g"]).unwrap();
        let library = ["gcc", "-O1", "-g", "-shared", "-fPIC"];
        let [plugin, newer] = [("old.c", "plugin.so"), ("new.c", "newer.so")].map(|(name, of)| {
            let made = compiled(directory, name, LIBRARY, &library).unwrap();
            let path = directory.join(of);
            fs::rename(made, &path).unwrap();
            path
        });
        Self {
            program,
            plugin,
            newer,
        }
    }

    fn start(&self) -> Fixture {
        Fixture::start_by(Command::new(&self.program).args([&self.plugin, &self.newer]))
    }
}

/// The last object of a run for one function.
fn last(ended: &Ended) -> Value {
    let mut objects = ended.objects();
    objects.retain(|object| object["type"] == "latency");
    objects.pop().unwrap()
}

#[test]
#[ignore = "needs root"]
fn functions_with_one_code_say_that_all_their_calls_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let linker = [
        "gcc",
        "-O2",
        "-g",
        "-ffunction-sections",
        "-fuse-ld=gold",
        "-Wl,--icf=all",
    ];
    let linker = [&linker[..], &["-fno-ipa-icf"]].concat();
    let Some(program) = compiled(directory.path(), "same.c", SAME_CODE, &linker) else {
        return skipped("gold is not installed");
    };
    let (ended, function) = watched(&program, "second");
    let shown = last(&ended);
    assert_eq!(shown["since_start"]["count"], 400);
    let [kept, other] = match shown["function"].as_str().unwrap() {
        "first" => ["first", "second"],
        _ => ["second", "first"],
    };
    assert_eq!(shown["same_code"], serde_json::json!([other]), "{shown}");
    assert_eq!(
        (&function["name"], &function["same_code"]),
        (&shown["function"], &shown["same_code"])
    );
    let said = format!("{kept} has the same code as {other}");
    assert!(ended.stderr().contains(&said), "{}", ended.stderr());
}

#[test]
#[ignore = "needs root"]
fn an_async_function_says_that_its_calls_make_futures() {
    let directory = tempfile::tempdir().unwrap();
    let compiler = [
        "rustc",
        "--edition=2021",
        "-Copt-level=1",
        "-g",
        "--crate-name=polled",
    ];
    let Some(program) = compiled(directory.path(), "polled.rs", ASYNC, &compiler) else {
        return skipped("rustc cannot compile it");
    };
    let (ended, function) = watched(&program, "polled::handle");
    let shown = last(&ended);
    assert_eq!(
        (&shown["async"], &function["async"]),
        (&true.into(), &true.into()),
        "{shown} {function}"
    );
    let said = "polled::handle is an async function: its calls only make a future";
    assert!(ended.stderr().contains(said), "{}", ended.stderr());
}

#[test]
#[ignore = "needs root"]
fn code_that_a_process_runs_from_a_copy_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "copied.c", COPIED, &["gcc", "-O1", "-g"]).unwrap();
    let target = Fixture::start_by(&mut Command::new(&program));
    let pid = target.pid().to_string();
    let refused = run(profiler(&["latency", "-p", &pid, "copied", "--duration", "1"])).status(1);
    let reason = "copied is not probed: the process has not mapped its code from the file";
    assert!(refused.stderr().contains(reason), "{}", refused.stderr());
    for (name, is_copied) in [("copied", true), ("kept", false)] {
        let listed = run(profiler(&["functions", "-p", &pid, name, "--json"]))
            .status(0)
            .objects();
        assert_eq!(listed[0]["copied"], is_copied, "{listed:?}");
    }
    drop(target);
    let (ended, _) = watched(&program, "kept");
    assert_eq!(
        last(&ended)["since_start"]["count"],
        100,
        "the rest of the file is probed"
    );
}

#[test]
#[ignore = "needs root"]
fn a_library_that_was_replaced_ends_the_run_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start();
    let mut target = Plugins::make(directory.path()).start();
    let pid = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &["latency", "-p", &pid, "plugged", "--json"],
    ));
    daemon.until_watched();
    target.say("go");
    assert_eq!(target.line(), "loaded");
    let ended = command.end();
    assert_eq!(
        last(&ended)["since_start"]["count"],
        100,
        "calls of the file that was probed"
    );
    let said = "the process has loaded another file in place of its own, of the same path";
    assert!(ended.stderr().contains(said), "{}", ended.stderr());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_library_that_one_of_two_processes_replaces_is_said_in_the_streams() {
    let directory = tempfile::tempdir().unwrap();
    let plugins = Plugins::make(directory.path());
    let daemon = Daemon::start();
    let (mut replaces, stays) = (plugins.start(), plugins.start());
    let pids = [&replaces, &stays].map(Fixture::pid);
    let named = pids.map(|pid| pid.to_string()).join(",");
    let words = ["latency", "-p", &named, "plugged", "--json"];
    let mut command = Running::start(through(&daemon.socket, &words));
    daemon.until_watched();
    replaces.say("go");
    assert_eq!(replaces.line(), "loaded");
    let told = loop {
        let line = command.line();
        assert!(!line.is_empty(), "the run has ended");
        let object: Value = serde_json::from_str(&line).unwrap();
        if object["type"] == "file_replaced" {
            break object;
        }
    };
    let path = plugins.plugin.display().to_string();
    let reason = format!(
        "process {} (loads) has loaded another {path}: its calls since then were not seen",
        pids[0]
    );
    assert_eq!(
        told,
        serde_json::json!({"type": "file_replaced", "schema": 1, "pid": pids[0], "name": "loads", "path": path,
                           "reason": reason})
    );
    assert_eq!(replaces.finish().status, Some(0));
    drop(stays);
    let ended = command.end();
    let said = ended.stderr().matches(&reason).count();
    assert_eq!(said, 1, "{}", ended.stderr());
}
