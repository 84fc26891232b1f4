//! `profilerd` for measurements, with nobody else's sessions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    sh, workspace,
};

/// The name of the session that is measured.
pub const SESSION: &str = "bench";

/// How long it may take to answer at first.
const PATIENCE: Duration = Duration::from_mins(1);

/// How many were started: each has a socket of its own.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// `profilerd`, as a release has it; killed when dropped.
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    client: PathBuf,
}

impl Daemon {
    /// Builds and starts it, and waits until it answers.
    pub fn start() -> Result<Self> {
        sh::run(sh::cargo().args([
            "build",
            "--release",
            "--locked",
            "-p",
            "profiler-client",
            "-p",
            "profiler-daemon",
        ]))?;
        Self::of(&workspace::target().join("release"))
    }

    /// Starts one that is built, and waits until it answers. `folder` has its programs.
    pub fn of(folder: &Path) -> Result<Self> {
        let own = STARTED.fetch_add(1, Ordering::Relaxed);
        let socket = workspace::target().join(format!("bench-{}-{own}.sock", std::process::id()));
        let child = Command::new(folder.join("profilerd"))
            .arg("--keep-loaded")
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::file("start", "profilerd"))?;
        let daemon = Self {
            child,
            socket,
            client: folder.join("profiler"),
        };
        let since = Instant::now();
        while daemon.profiler(&["session", "list"]).is_err() {
            if since.elapsed() > PATIENCE {
                return Err(Error::told("profilerd does not answer"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }

    /// Runs a command of the client's, by default without a budget: what probes cost is what is measured. What it printed.
    pub fn profiler(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.client)
            .args(arguments)
            .arg("--host")
            .arg(&self.socket)
            .env("PROFILER_BUDGET", "0")
            .output()
            .map_err(Error::file("start", "profiler"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(Error::told(format!("profiler {}: {said}", arguments.join(" "))))
        }
    }

    /// Ends the session that is measured.
    pub fn detach(&self) -> Result<()> {
        self.profiler(&["session", "end", SESSION]).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // All fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
