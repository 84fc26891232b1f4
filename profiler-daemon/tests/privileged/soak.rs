//! Real programs of many languages, interpreters and servers: random functions of all their files are attached and
//! detached under load, and the programs' own answers and exit statuses have to be those of an unprobed run.
//!
//! `cargo xtask soak` probes 200 functions of each; here it is fewer. Which ones depends on a seed, which is printed, and on
//! the functions that samples are seen in: `PROFILER_SOAK_SEED`, or the number of the day, so that a test that fails is likely
//! to do so again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use profiler_daemon::session::{
    DEFAULT_BUDGET, EndCause, ExitMethod, FunctionInfo, Library, NewSession, Reason, SiteInfo, TargetSpec,
    list_functions,
};
use profiler_testkit::Random;
use serde_json::json;

use super::{
    programs::{Folder, Running, environment, installed, programs, sampled, seed},
    service::{ROOT, Service, ended, session_of},
};

/// Functions of each program that are probed, unless `PROFILER_SOAK_FUNCTIONS` says otherwise.
const FUNCTIONS: usize = 24;
/// Functions that are probed at the same time, each by a session of its own.
const BATCH: usize = 12;
/// Answers that a program has to give while a batch is attached.
const ANSWERS: u64 = 3;
/// Time between pictures of a session, of which the last one counts.
const PICTURES_NS: u64 = 1_000_000_000;

/// The files of all programs, read once.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::new(None));

/// Functions to probe, each once: half of them seen in samples, as far as there are, and the others of any file.
fn selected(functions: &[FunctionInfo], seen: &[String], count: usize, seed: u64) -> Vec<String> {
    let mut by_file: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for function in functions {
        by_file
            .entry(&function.module)
            .or_default()
            .insert(&function.name);
    }
    let known: BTreeSet<&str> = by_file.values().flatten().copied().collect();
    let called: BTreeSet<&str> = seen
        .iter()
        .map(String::as_str)
        .filter(|name| known.contains(name))
        .collect();
    let mut called: Vec<&str> = called.into_iter().collect();
    let files: Vec<Vec<&str>> = by_file
        .into_values()
        .map(|names| names.into_iter().collect())
        .collect();
    let mut names = Vec::new();
    let mut random = Random::from_seed(seed);
    while names.len() < count / 2 && !called.is_empty() {
        names.push(called.swap_remove(random.below(called.len())));
    }
    // These are the same whatever was sampled.
    let mut random = Random::from_seed(!seed);
    for _ in 0..count * 10 {
        if names.len() == count || files.is_empty() {
            break;
        }
        let file = &files[random.below(files.len())];
        let name = file[random.below(file.len())];
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

/// What became of the functions.
#[derive(Default)]
struct Tally {
    /// Probed functions by how their end is seen.
    methods: BTreeMap<&'static str, u64>,
    /// Functions that are left alone, by the reason.
    refused: BTreeMap<String, u64>,
    /// Probed functions that were called.
    called: u64,
    /// Calls that were timed.
    calls: u64,
    /// Functions whose probes were taken off because they cost too much.
    taken_off: u64,
}

impl Tally {
    fn attached(&mut self, sites: &[SiteInfo]) {
        for site in sites {
            let method = match (site.exit_method, site.exit_single_stepped) {
                (ExitMethod::Return, _) => "return probe",
                (ExitMethod::Ret, true) => "ret, single-stepped",
                (ExitMethod::Ret, false) => "ret",
                _ => "counted",
            };
            *self.methods.entry(method).or_default() += 1;
        }
    }
}

/// Attaches to a batch of functions, lets the program answer, and detaches.
fn probe(service: &Service, program: &Running, batch: &[String], tally: &mut Tally) {
    let mut sessions = Vec::new();
    for name in batch {
        let scope = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        let request = NewSession {
            budget: Some(DEFAULT_BUDGET),
            ..session_of(program.pid(), &scope)
        };
        match service.create_for(ROOT, request) {
            Ok(session) => {
                tally.attached(&session.sites);
                // It may go over its budget at once, and end.
                let pictures = service.runtime.block_on(service.handle.watch_latency(
                    ROOT,
                    session.name.clone(),
                    PICTURES_NS,
                ));
                sessions.push((session, pictures));
            }
            Err(error) => {
                let harmed = [Reason::Kernel, Reason::TargetGone, Reason::TargetNotFound];
                assert!(!harmed.contains(&error.reason), "{name}: {error}");
                *tally.refused.entry(format!("{:?}", error.reason)).or_default() += 1;
            }
        }
    }
    program.wait(ANSWERS, format!("with probes in {batch:?}"));
    for (session, pictures) in sessions {
        let Ok(mut pictures) = pictures else {
            tally.taken_off += 1;
            continue;
        };
        // It may have ended by itself.
        let _ = service.runtime.block_on(service.handle.end(ROOT, session.name));
        let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
        let is_over_budget = picture
            .ended
            .as_ref()
            .is_some_and(|ended| ended.cause == EndCause::Budget);
        tally.taken_off += u64::from(is_over_budget);
        for function in &picture.functions {
            let calls = ended(function);
            tally.calls += calls;
            tally.called += u64::from(calls + function.open + function.abandoned > 0);
        }
    }
    program.wait(1, format!("after probes in {batch:?} were removed"));
}

/// Runs a program without probes and with them, and compares.
fn soak(name: &str) {
    let Some(program) = installed(name) else { return };
    let program = &program;
    let seed = seed("PROFILER_SOAK_SEED");
    let count =
        environment("PROFILER_SOAK_FUNCTIONS").map_or(FUNCTIONS, |count| usize::try_from(count).unwrap());

    let folder = Folder::make(name, program);
    let plain = Running::start(program, folder.of_run("plain"));
    plain.wait(ANSWERS, "without probes");
    let plain = plain.finish();

    let service = Service::start();
    let running = Running::start(program, folder.of_run("probed"));
    running.wait(ANSWERS, "before probes");
    let seen = sampled(&service, &running);
    let functions = list_functions(&LIBRARY, ROOT, &TargetSpec::Pid(running.pid()), "").unwrap();
    let functions = functions.functions;
    let names = selected(&functions, &seen, count, seed);
    let mut tally = Tally::default();
    for batch in names.chunks(BATCH) {
        probe(&service, &running, batch, &mut tally);
    }
    let probed = running.finish();
    assert_eq!(probed, plain, "with probes, and without");
    let report = json!({
        "program": name,
        "functions": functions.len(),
        "chosen": names.len(),
        "probed": tally.methods,
        "called": tally.called,
        "calls": tally.calls,
        "taken_off": tally.taken_off,
        "refused": tally.refused,
    });
    // `cargo xtask soak` makes a table of these.
    println!("soak: {report}");
}

macro_rules! programs {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                soak(stringify!($name));
            }
        )+

        #[test]
        #[ignore = "one of the privileged suite, though it needs no root"]
        fn every_program_has_a_test() {
            let tested = [$(stringify!($name)),+];
            let listed: Vec<_> = programs().iter().map(|program| program["name"].as_str().unwrap().to_owned()).collect();
            assert_eq!(listed, tested);
        }
    };
}

programs!(
    c, cxx, clang, rust, go, haskell, ocaml, ada, d, fortran, lisp, scheme, forth, java, erlang, node,
    python, perl, ruby, php, lua, luajit, tcl, awk, jq, sqlite, bash, bc, redis, memcached, nginx, haproxy,
    postgres, mariadb,
);
