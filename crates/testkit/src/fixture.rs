//! Running the compiled fixtures.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longest wait for a fixture that sleeps.
const PATIENCE: Duration = Duration::from_mins(1);

/// What one function did, by the target's own count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truth {
    /// Calls that it made.
    pub calls: u64,
    /// Those that returned to their caller.
    pub returned: u64,
    /// Those that were left otherwise: by an exception, `longjmp`, the end of their thread.
    pub abandoned: u64,
}

/// An entry of the manifest.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its functions that are probed.
    pub probe: Vec<String>,
    /// Its command line, without its name.
    pub args: Vec<String>,
    /// What each function does with these arguments.
    pub truth: BTreeMap<String, Truth>,
}

/// Whether the suite runs where everything is slow: `PROFILER_SCALE=vm`.
pub fn small_scale() -> bool {
    scale_is("vm")
}

/// Whether the suite has hours, so that what is done over and over is done several times as often:
/// `PROFILER_SCALE=long`.
pub fn long_scale() -> bool {
    scale_is("long")
}

fn scale_is(name: &str) -> bool {
    std::env::var("PROFILER_SCALE").is_ok_and(|scale| scale == name)
}

/// Where the compiled fixtures are.
pub fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("PROFILER_FIXTURES").expect("PROFILER_FIXTURES: run `cargo xtask test`"))
}

fn manifest() -> &'static [Value] {
    static MANIFEST: OnceLock<Vec<Value>> = OnceLock::new();
    MANIFEST.get_or_init(|| {
        serde_json::from_str(include_str!(
            "../../../profiler-daemon/tests/fixtures/engine/fixtures.json"
        ))
        .unwrap()
    })
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

/// The manifest's entry.
pub fn spec(name: &str) -> Spec {
    let entry = manifest()
        .iter()
        .find(|entry| entry["name"] == name)
        .unwrap_or_else(|| panic!("no fixture {name}"));
    let pick = |small: &str, full: &str| {
        if small_scale() && !entry[small].is_null() {
            entry[small].clone()
        } else {
            entry[full].clone()
        }
    };
    Spec {
        probe: strings(&entry["probe"]),
        args: strings(&pick("vm_args", "args")),
        truth: truth_of(&pick("vm_truth", "truth")),
    }
}

fn truth_of(value: &Value) -> BTreeMap<String, Truth> {
    let count = |value: &Value| value.as_u64().unwrap();
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, truth)| {
            let (calls, returned, abandoned) = (
                count(&truth["calls"]),
                count(&truth["returned"]),
                count(&truth["abandoned"]),
            );
            (
                name.clone(),
                Truth {
                    calls,
                    returned,
                    abandoned,
                },
            )
        })
        .collect()
}

/// A fixture that is ready and waits for `go`.
pub struct Fixture {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// What it has printed so far.
    pub output: String,
}

/// How a fixture ended.
pub struct Ended {
    /// Its exit status; none where a signal ended it.
    pub status: Option<i32>,
    /// Everything that it printed.
    pub output: String,
}

impl Fixture {
    /// Starts it and waits until it is ready.
    pub fn start(name: &str, args: &[String]) -> Self {
        let mut command = Command::new(directory().join(name));
        command.args(args);
        Self::start_by(&mut command)
    }

    /// The same of a copy of one, or of one with other rights.
    pub fn start_by(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut fixture = Self {
            child,
            stdin,
            stdout,
            output: String::new(),
        };
        assert_eq!(fixture.line(), "ready");
        fixture
    }

    /// Starts it as the process of a certain number, which has to be free; `None` where the kernel has no such
    /// thing, or others are always quicker.
    pub fn start_as(pid: u32, name: &str, args: &[String]) -> Option<Self> {
        for _ in 0..20 {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let fixture = Self::start(name, args);
            if fixture.pid() == pid {
                return Some(fixture);
            }
        }
        None
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it precedence over everything else that runs, so that it does not wait for a CPU.
    pub fn prefer(&self) {
        let pid = self.pid().cast_signed();
        let real_time = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameters live through the call, which only reads them.
        if unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &raw const real_time) } == 0 {
            return;
        }
        // Not to be had in a control group without a share of real time.
        // SAFETY: the call takes no pointers.
        let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, self.pid(), -20) };
        assert_eq!(set, 0, "setpriority: {}", std::io::Error::last_os_error());
    }

    /// The next line that it prints; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        self.output.push_str(&line);
        line.trim_end().to_owned()
    }

    /// Waits until its first thread sleeps for a line.
    pub fn until_it_reads(&self) {
        let path = format!("/proc/{}/syscall", self.pid());
        // The number of `read`; of a thread that runs it says so instead.
        while !std::fs::read_to_string(&path).unwrap().starts_with("0 ") {
            std::thread::yield_now();
        }
    }

    /// Waits until its first thread has left the CPU to wait so many times more; panics where it does not for long.
    pub fn until_it_has_slept(&self, times: u64) {
        let path = format!("/proc/{}/status", self.pid());
        let waits = || -> u64 {
            let status = std::fs::read_to_string(&path).unwrap();
            let count = |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok();
            status.lines().find_map(count).unwrap()
        };
        let (begin, end) = (Instant::now(), waits() + times);
        while waits() < end {
            assert!(begin.elapsed() < PATIENCE, "it does not sleep any more");
            std::thread::yield_now();
        }
    }

    /// Lets it go on.
    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Lets it run to where its truth is known: no counted call is open any more.
    pub fn run(&mut self) -> BTreeMap<String, Truth> {
        self.say("go");
        self.truth()
    }

    /// Waits for its truth.
    pub fn truth(&mut self) -> BTreeMap<String, Truth> {
        loop {
            let line = self.line();
            if line.is_empty() {
                let status = self.child.wait().unwrap();
                panic!("the fixture ended early ({status}); it printed:\n{}", self.output);
            }
            if let Some(truth) = line.strip_prefix("truth ") {
                return truth_of(&serde_json::from_str(truth).unwrap());
            }
        }
    }

    /// Lets one end that goes on until it is told, unharmed; gives its truth.
    pub fn end(mut self) -> BTreeMap<String, Truth> {
        self.say("exit");
        let truth = self.truth();
        assert_eq!(self.finish().status, Some(0));
        truth
    }

    /// Lets it end.
    pub fn finish(mut self) -> Ended {
        drop(self.stdin.take());
        self.stdout.read_to_string(&mut self.output).unwrap();
        let status = self.child.wait().unwrap().code();
        Ended {
            status,
            output: std::mem::take(&mut self.output),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // A test that failed half-way must not leave it behind; one that finished has reaped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
