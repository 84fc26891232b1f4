//! Running `profilerd`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::command::{Ended, Running, Watchdog, program, run, through};

/// Longest wait for a session to be watched.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longest life of a daemon, through which a test may run dozens of commands. Its end has as long as one of these.
const LIFE: Duration = Duration::from_mins(15);

/// A daemon that is ready, as it has told its service manager.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
    manager: UnixDatagram,
    directory: TempDir,
    _watchdog: Watchdog,
}

/// `profilerd` on a socket. In a directory is the manager that it tells, and what it logs.
pub fn profilerd(socket: &Path, directory: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("profilerd"));
    command
        .arg("--socket")
        .arg(socket)
        .args(arguments)
        .env("NOTIFY_SOCKET", directory.path().join("manager"))
        .env("RUST_LOG", "info,held_up=debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.path().join("log")).unwrap());
    command
}

impl Daemon {
    /// What the session task did for so long that others waited, with the longest time of each step in milliseconds.
    pub fn held_up(&self) -> BTreeMap<String, u64> {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let field = |line: &str, name: &str| {
            let value = line.split_once(&format!("{name}="))?.1;
            Some(value.split_whitespace().next()?.trim_matches('"').to_owned())
        };
        let mut longest = BTreeMap::new();
        for line in log.lines().filter(|line| line.contains("held_up")) {
            let (Some(step), Some(took)) = (field(line, "step"), field(line, "took_ms")) else {
                continue;
            };
            let most = longest.entry(step).or_insert(0);
            *most = took.parse().unwrap_or(0).max(*most);
        }
        longest
    }

    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(arguments: &[&str]) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), arguments)
    }

    pub fn in_directory(directory: TempDir, arguments: &[&str]) -> Self {
        // Others than root are to get to the socket.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        let manager = directory.path().join("manager");
        let _ = fs::remove_file(&manager);
        let manager = UnixDatagram::bind(manager).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let socket = directory.path().join("profilerd.sock");
        let child = profilerd(&socket, &directory, arguments).spawn().unwrap();
        let daemon = Self {
            socket,
            manager,
            directory,
            _watchdog: Watchdog::after(LIFE, &child),
            child,
        };
        assert_eq!(daemon.told(), "READY=1", "{}", daemon.log());
        daemon
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it tells its service manager next.
    pub fn told(&self) -> String {
        let mut message = [0; 256];
        let length = self.manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim_end().to_owned()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// `profiler` through this daemon, to its end.
    pub fn profiler(&self, arguments: &[&str]) -> Ended {
        run(through(&self.socket, arguments))
    }

    /// Its sessions.
    pub fn sessions(&self) -> Vec<Value> {
        self.profiler(&["session", "list", "--json"])
            .status(0)
            .quietly()
            .objects()
    }

    /// Waits until somebody watches its first session: one that is watched is attached, and sampled where samples are shown.
    /// Whoever watches may not know it yet: an interrupt can come too early still, and [`Self::end`] cannot.
    pub fn until_watched(&self) {
        self.until_watched_by(1);
    }

    /// The same of so many at once.
    pub fn until_watched_by(&self, watchers: u64) {
        let begin = Instant::now();
        loop {
            let sessions = self.sessions();
            if sessions
                .first()
                .is_some_and(|session| session["watchers"] == watchers)
            {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{sessions:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until so many watch each of its sessions.
    pub fn until_each_is_watched_by(&self, expected: &[u64]) {
        let begin = Instant::now();
        loop {
            let sessions = self.sessions();
            let watchers = sessions.iter().map(|session| session["watchers"].as_u64());
            if watchers.eq(expected.iter().copied().map(Some)) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{sessions:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a command on one of its sessions: a recorder or a view.
    pub fn on(&self, session: &str, arguments: &[&str]) -> Running {
        let arguments = [arguments, &["--session", session]].concat();
        Running::start(through(&self.socket, &arguments))
    }

    /// Ends its only session; what the command leaves that watches it, from before until then, and that has made it. The
    /// target need not end, and has what it has mapped: that gives addresses their names.
    #[track_caller]
    pub fn end(&self, command: Running) -> Ended {
        let sessions = self.sessions();
        let [session] = sessions.as_slice() else {
            panic!("not one session: {sessions:?}")
        };
        self.profiler(&["session", "end", session["name"].as_str().unwrap()])
            .status(0);
        let ended = command.end().status(0).says("the session was ended");
        assert_eq!(self.sessions(), Vec::<Value>::new());
        ended
    }

    /// SIGTERM, and its exit status.
    pub fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.told(), "STOPPING=1");
        let _watchdog = Watchdog::of(&self.child);
        let status = self.child.wait().unwrap().code();
        assert!(!self.socket.exists(), "the socket is still there");
        status
    }

    /// SIGKILL; what it left in its directory.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A test that failed half-way must not leave it behind; one that finished has reaped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
