//! Running `profiler`.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::fd::{FromRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

pub use profiler_testkit::json::objects;
use profiler_testkit::json::{objects_of, verb_of};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// A command that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_mins(3);

/// The program of a name, built with the tests.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_profiler")).with_file_name(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo xtask test`",
        path.display()
    );
    path
}

/// `profiler`, with everything within its own process.
pub fn profiler(arguments: &[&str]) -> Command {
    through(Path::new("/nonexistent/profilerd.sock"), arguments)
}

/// `profiler`, through the daemon at a socket.
pub fn through(socket: &Path, arguments: &[&str]) -> Command {
    as_program(&program("profiler"), socket, arguments)
}

/// `profiler` from another place.
pub fn as_program(program: &Path, socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PROFILER_SOCKET", socket)
        // Fixtures call what is probed as often as they can, and emulated machines are slow.
        .env("PROFILER_BUDGET", "0")
        .env_remove("NO_COLOR")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A script that runs `profiler`, its `$0`, on the process `$1`; its folder is a small disk, which nobody else sees.
pub fn on_a_small_disk(folder: &Path, size: &str, pid: &str, script: &str) -> Command {
    let mount = format!("mount -t tmpfs -o size={size} full . && cd \"$PWD\" || exit 9\n");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &(mount + script)])
        .arg(program("profiler"))
        .arg(pid)
        .env("PROFILER_SOCKET", "/nonexistent/profilerd.sock")
        .env("PROFILER_BUDGET", "0")
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub fn run(mut command: Command) -> Ended {
    let child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    Ended {
        verb: verb(&command),
        output: child.wait_with_output().unwrap(),
    }
}

/// The verb of `profiler` whose lines a command prints as JSON, where it is one.
fn verb(command: &Command) -> Option<String> {
    let arguments: Vec<&str> = command.get_args().filter_map(OsStr::to_str).collect();
    verb_of(&arguments)
}

/// What a command left.
#[derive(Debug)]
pub struct Ended {
    verb: Option<String>,
    output: Output,
}

impl Ended {
    pub fn stdout(&self) -> &str {
        std::str::from_utf8(&self.output.stdout).unwrap()
    }

    pub fn stderr(&self) -> &str {
        std::str::from_utf8(&self.output.stderr).unwrap()
    }

    /// Its exit status, where no signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Checks its exit status.
    #[track_caller]
    pub fn status(self, status: i32) -> Self {
        assert_eq!(
            self.output.status.code(),
            Some(status),
            "{:?}\n{}\n{}",
            self.output.status,
            self.stdout(),
            self.stderr()
        );
        self
    }

    /// Checks that it complains with these words.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(
            self.stderr().contains(words),
            "no `{words}` in: {}",
            self.stderr()
        );
        self
    }

    /// Checks that it has nothing to complain about.
    #[track_caller]
    pub fn quietly(self) -> Self {
        assert_eq!(self.stderr(), "");
        self
    }

    /// The objects that it printed, one a line.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        let lines = self.stdout();
        match &self.verb {
            Some(verb) => objects_of(verb, lines),
            None => objects(lines),
        }
    }
}

/// A command that is under way.
pub struct Running {
    pub child: Child,
    verb: Option<String>,
    stdout: Option<BufReader<ChildStdout>>,
    output: String,
    _watchdog: Watchdog,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        Self {
            verb: verb(&command),
            stdout: child.stdout.take().map(BufReader::new),
            output: String::new(),
            _watchdog: Watchdog::of(&child),
            child,
        }
    }

    /// Starts one whose complaints go to a terminal, and waits until it shows there what it has so far.
    pub fn on_a_terminal(mut command: Command) -> Self {
        let (mut terminal, of_command) = terminal();
        let running = Self::start({
            command.stderr(of_command);
            command
        });
        let mut shown = [0];
        assert_eq!(terminal.read(&mut shown).unwrap(), 1);
        // What nobody reads would hold it up in the end.
        std::thread::spawn(move || io::copy(&mut terminal, &mut io::sink()));
        running
    }

    /// The next line of its output; its first says that it is attached.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut complaint = String::new();
            let stderr = self.child.stderr.as_mut().unwrap();
            stderr.read_to_string(&mut complaint).unwrap();
            panic!("it ended early: {complaint}");
        }
        self.output.push_str(&line);
        line
    }

    /// Its output, for whoever is to read it instead.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.stdout.take().unwrap().into_inner()
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; what it printed before belongs to its output.
    pub fn end(mut self) -> Ended {
        if let Some(mut stdout) = self.stdout.take() {
            stdout.read_to_string(&mut self.output).unwrap();
        }
        let mut output = self.child.wait_with_output().unwrap();
        output.stdout = self.output.into_bytes();
        Ended {
            verb: self.verb,
            output,
        }
    }
}

/// A terminal: its screen, and what a program has of it.
fn terminal() -> (File, OwnedFd) {
    let (mut screen, mut of_program) = (-1, -1);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: both numbers live through the call, which writes them; it takes nothing else.
    let made = unsafe { libc::openpty(&raw mut screen, &raw mut of_program, name, settings, size) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    // SAFETY: both have just been made for us, and nobody else has them.
    unsafe { (File::from_raw_fd(screen), OwnedFd::from_raw_fd(of_program)) }
}

/// Kills a process that hangs, so that whoever waits for it gets its end and says what was missing.
pub struct Watchdog {
    _over: Sender<()>,
}

impl Watchdog {
    pub fn of(child: &Child) -> Self {
        Self::after(PATIENCE, child)
    }

    /// One for a process that lives as long as many others do.
    pub fn after(patience: Duration, child: &Child) -> Self {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                // An error means that it has just ended.
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        });
        Self { _over: over }
    }
}
