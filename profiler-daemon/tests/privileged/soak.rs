//! Real programs of many languages, interpreters and servers: random functions of all their files are attached and
//! detached under load, and the programs' own answers and exit statuses have to be those of an unprobed run.
//!
//! `cargo xtask soak` probes 200 functions of each; here it is fewer. Which ones depends on a seed, which is printed, and on
//! the functions that samples are seen in: `PROFILER_SOAK_SEED`, or the number of the day, so that a test that fails is likely
//! to do so again.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Display,
    fs::{self, Permissions},
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::PermissionsExt as _,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard},
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_daemon::session::{
    DEFAULT_BUDGET, ExitMethod, FunctionInfo, Library, NewSession, OVER_BUDGET, Reason, SiteInfo, TargetSpec,
    list_functions,
};
use profiler_testkit::skipped;
use serde_json::{Value, json};

use super::service::{ROOT, Service, ended, session_of};

/// Functions of each program that are probed, unless `PROFILER_SOAK_FUNCTIONS` says otherwise.
const FUNCTIONS: usize = 24;
/// Functions that are probed at the same time, each by a session of its own.
const BATCH: usize = 12;
/// Answers that a program has to give while a batch is attached.
const ANSWERS: u64 = 3;
/// Longest wait for them: a single-stepped function that is called all the time makes a program slow until the budget
/// takes its probes off.
const PATIENCE: Duration = Duration::from_mins(2);
/// Samples by which the functions that are called are known.
const SAMPLES: u64 = 100;

/// Time between pictures of a session, of which the last one counts.
const PICTURES_NS: u64 = 1_000_000_000;

/// The files of all programs, read once.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::new(None));

/// Where the programs' sources are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/soak")
}

/// Which programs there are, and how each is built and run.
fn programs() -> Vec<Value> {
    serde_json::from_str(include_str!("../fixtures/soak/programs.json")).unwrap()
}

fn words(value: &Value) -> Vec<String> {
    let words = value.as_array().into_iter().flatten();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Whether Debian's package is installed in full.
fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    query
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// A folder with the sources and what is built of them; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make(name: &str, program: &Value) -> Self {
        let folder = Self(env::temp_dir().join(format!("profiler-soak-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&folder.0);
        fs::create_dir(&folder.0).unwrap();
        // Servers that refuse to be root's run as users of their own.
        fs::set_permissions(&folder.0, Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(sources()).unwrap() {
            let source = entry.unwrap();
            fs::copy(source.path(), folder.0.join(source.file_name())).unwrap();
        }
        let build = words(&program["build"]);
        if let Some((compiler, arguments)) = build.split_first() {
            let built = Command::new(compiler)
                .args(arguments)
                .current_dir(&folder.0)
                .output();
            let built = built.unwrap();
            assert!(
                built.status.success(),
                "{build:?}: {}",
                String::from_utf8_lossy(&built.stderr)
            );
        }
        folder
    }

    /// A folder of its own for a run: servers leave their data in it.
    fn of_run(&self, run: &str) -> PathBuf {
        let folder = self.0.join(run);
        fs::create_dir(&folder).unwrap();
        for entry in fs::read_dir(&self.0).unwrap() {
            let file = entry.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), folder.join(file.file_name())).unwrap();
            }
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The answers of a program so far.
#[derive(Default)]
struct Answers {
    first: Option<String>,
    count: u64,
    /// The first answer that differs from the one before it.
    other: Option<String>,
    is_over: bool,
}

/// A program's answer, and how it ended.
#[derive(PartialEq, Eq, Debug)]
struct Ended {
    answer: Option<String>,
    /// Its exit status.
    code: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
}

/// A program that gives the same answer over and over, a line each.
struct Running {
    child: Child,
    folder: PathBuf,
    answers: Arc<(Mutex<Answers>, Condvar)>,
    reader: Option<JoinHandle<()>>,
    ends_by_signal: bool,
}

impl Running {
    fn start(program: &Value, folder: PathBuf) -> Self {
        let run = words(&program["run"]);
        let errors = fs::File::create(folder.join("errors")).unwrap();
        let mut child = Command::new(&run[0])
            .args(&run[1..])
            .current_dir(&folder)
            // What it starts goes down with it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{run:?}: {error}"));
        let answers = Arc::<(Mutex<Answers>, Condvar)>::default();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn({
            let answers = Arc::clone(&answers);
            move || {
                for line in output.lines() {
                    let Ok(line) = line else { break };
                    let mut known = answers.0.lock().unwrap();
                    known.count += 1;
                    match &known.first {
                        None => known.first = Some(line),
                        Some(first) if *first != line => {
                            known.other.get_or_insert(line);
                        }
                        Some(_) => {}
                    }
                    answers.1.notify_all();
                }
                answers.0.lock().unwrap().is_over = true;
                answers.1.notify_all();
            }
        });
        Self {
            child,
            folder,
            answers,
            reader: Some(reader),
            ends_by_signal: program["ended_by_a_signal"] == true,
        }
    }

    fn known(&self) -> MutexGuard<'_, Answers> {
        self.answers.0.lock().unwrap()
    }

    /// Waits for so many more answers.
    fn wait(&self, more: u64, during: impl Display) {
        let known = self.known();
        let enough = known.count + more;
        let (known, _) = self
            .answers
            .1
            .wait_timeout_while(known, PATIENCE, |known| known.count < enough && !known.is_over)
            .unwrap();
        let (is_over, has_enough) = (known.is_over, known.count >= enough);
        let (first, other) = (known.first.clone(), known.other.clone());
        drop(known);
        assert!(!is_over, "the program ended: {during}: {}", self.errors());
        assert!(has_enough, "not {more} answers in {PATIENCE:?}: {during}");
        assert_eq!(other, None, "instead of {first:?}: {during}");
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.folder.join("errors")).unwrap_or_default()
    }

    /// The process that does the work: its own, or that of the server that it has started.
    fn pid(&self) -> u32 {
        fs::read_to_string(self.folder.join("pid"))
            .map_or_else(|_| self.child.id(), |pid| pid.trim().parse().unwrap())
    }

    /// Ends it.
    fn finish(mut self) -> Ended {
        fs::write(self.folder.join("stop"), "").unwrap();
        if self.ends_by_signal {
            // SAFETY: the call takes no pointers; the process is a child that has not been waited for.
            unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        }
        let known = self.known();
        let (known, waited) = self
            .answers
            .1
            .wait_timeout_while(known, PATIENCE, |known| !known.is_over)
            .unwrap();
        assert!(!waited.timed_out(), "the program does not end");
        // Where a signal ended it, the last line may be cut off.
        let (answer, other) = (known.first.clone(), known.other.clone());
        drop(known);
        let status = self.child.wait().unwrap();
        assert!(
            other.is_none() || self.ends_by_signal,
            "{other:?} instead of {answer:?}: {}",
            self.errors()
        );
        Ended {
            answer,
            code: status.code(),
            signal: status.signal(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            // A test that has failed: let it go down by itself, with the server that it has started.
            let _ = fs::write(self.folder.join("stop"), "");
            for _ in 0..50 {
                if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            // SAFETY: the call takes no pointers. The group is the child's own, which has not been waited for.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
            let _ = self.child.wait();
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Numbers by `SplitMix64` (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// Names of functions that samples are in.
fn sampled(service: &Service, program: &Running) -> Vec<String> {
    let session = service.attach(program.pid(), "").unwrap();
    let mut pictures = service.watch_flame(&session);
    let picture = service.until(&mut pictures, |picture| {
        let weights = &picture.picture.weights;
        weights.len() > 3 && picture.attempted >= SAMPLES
    });
    service.end(&session);
    let frames = picture
        .frames
        .iter()
        .filter(|frame| !frame.kernel && !frame.inlined);
    frames.map(|frame| frame.function.to_string()).collect()
}

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
    let mut random = Random(seed);
    while names.len() < count / 2 && !called.is_empty() {
        names.push(called.swap_remove(random.below(called.len())));
    }
    // These are the same whatever was sampled.
    let mut random = Random(!seed);
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

fn environment(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
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
            .is_some_and(|ended| ended.contains(OVER_BUDGET));
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
    let programs = programs();
    let program = programs.iter().find(|program| program["name"] == name).unwrap();
    let is_there = match program["package"].as_str() {
        Some(package) => is_installed(package),
        None => Command::new(&words(&program["build"])[0])
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success()),
    };
    if !is_there {
        return skipped(format!(
            "{name} is not installed: `cargo xtask setup` installs it"
        ));
    }
    let seed = environment("PROFILER_SOAK_SEED").unwrap_or_else(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since_epoch.as_secs() / 86_400
    });
    let count =
        environment("PROFILER_SOAK_FUNCTIONS").map_or(FUNCTIONS, |count| usize::try_from(count).unwrap());
    println!("PROFILER_SOAK_SEED={seed}");

    let folder = Folder::make(name, program);
    let plain = Running::start(program, folder.of_run("plain"));
    plain.wait(ANSWERS, "without probes");
    let plain = plain.finish();

    let service = Service::start();
    let running = Running::start(program, folder.of_run("probed"));
    running.wait(ANSWERS, "before probes");
    let seen = sampled(&service, &running);
    let functions = list_functions(&LIBRARY, ROOT, &TargetSpec::Pid(running.pid()), "").unwrap();
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
