//! Real programs under load, of many languages, interpreters and servers: each gives the same answer over and over, a line each.
//! `tests/fixtures/soak/programs.json` lists them.

use std::{
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
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_testkit::skipped;
use serde_json::Value;

use super::service::Service;

/// Longest wait for answers: a single-stepped function that is called all the time makes a program slow until the budget
/// takes its probes off.
const PATIENCE: Duration = Duration::from_mins(2);
/// Samples by which the functions that are called are known.
const SAMPLES: u64 = 100;

/// Where the programs' sources are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/soak")
}

/// Which programs there are, and how each is built and run.
pub fn programs() -> Vec<Value> {
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

/// A program, unless it cannot be run here, which is then said.
pub fn installed(name: &str) -> Option<Value> {
    let program = programs().into_iter().find(|program| program["name"] == name)?;
    let is_there = match program["package"].as_str() {
        Some(package) => is_installed(package),
        None => Command::new(&words(&program["build"])[0])
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success()),
    };
    if !is_there {
        skipped(format!(
            "{name} is not installed: `cargo xtask setup` installs it"
        ));
        return None;
    }
    Some(program)
}

/// What random choices begin with: what the environment sets, or the number of the day, so that a test that fails is likely to do
/// so again. It is printed.
pub fn seed(variable: &str) -> u64 {
    let seed = environment(variable).unwrap_or_else(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since_epoch.as_secs() / 86_400
    });
    println!("{variable}={seed}");
    seed
}

/// A folder with the sources and what is built of them; removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn make(name: &str, program: &Value) -> Self {
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
    pub fn of_run(&self, run: &str) -> PathBuf {
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
pub struct Ended {
    answer: Option<String>,
    /// Its exit status.
    code: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
}

/// A program that gives the same answer over and over, a line each.
pub struct Running {
    child: Child,
    folder: PathBuf,
    answers: Arc<(Mutex<Answers>, Condvar)>,
    reader: Option<JoinHandle<()>>,
    ends_by_signal: bool,
}

impl Running {
    pub fn start(program: &Value, folder: PathBuf) -> Self {
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
    pub fn wait(&self, more: u64, during: impl Display) {
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
    pub fn pid(&self) -> u32 {
        fs::read_to_string(self.folder.join("pid"))
            .map_or_else(|_| self.child.id(), |pid| pid.trim().parse().unwrap())
    }

    /// Ends it.
    pub fn finish(mut self) -> Ended {
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

/// Names of functions that samples are in.
pub fn sampled(service: &Service, program: &Running) -> Vec<String> {
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

/// A number that the environment sets.
pub fn environment(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}
