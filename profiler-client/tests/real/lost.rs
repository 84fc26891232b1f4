//! Connections to a daemon that break, as those through a tunnel do.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use super::{
    command::{Running, through},
    daemon::Daemon,
    fixture::Fixture,
    verbs::{busy, unharmed},
};

/// What has not come by then does not.
const PATIENCE: Duration = Duration::from_mins(1);

/// A way to a daemon that can be interrupted.
pub struct Tunnel {
    pub socket: PathBuf,
    shared: Arc<Shared>,
    _folder: TempDir,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    /// Both ends of each connection.
    open: Vec<UnixStream>,
    /// Connections that came while it was cut.
    refused: usize,
}

impl Tunnel {
    pub fn to(daemon: &Daemon) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("tunnel.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared::default());
        let (target, theirs) = (daemon.socket.clone(), Arc::clone(&shared));
        // It ends with the test.
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut state = theirs.state.lock().unwrap_or_else(PoisonError::into_inner);
                let client = client.unwrap();
                match UnixStream::connect(&target) {
                    Ok(daemon) if !state.is_cut => {
                        for (from, to) in [(&client, &daemon), (&daemon, &client)] {
                            pass_on(from.try_clone().unwrap(), to.try_clone().unwrap());
                        }
                        state.open.extend([client, daemon]);
                    }
                    _ => {
                        state.refused += 1;
                        theirs.changed.notify_all();
                    }
                }
            }
        });
        Self {
            socket,
            shared,
            _folder: folder,
        }
    }

    /// Ends all connections, and takes no others.
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_cut = true;
        state.refused = 0;
        for stream in state.open.drain(..) {
            // The other side may have ended it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until somebody has tried to connect so often in vain.
    pub fn until_refused(&self, times: usize) {
        let state = self.shared.state.lock().unwrap();
        let too_few = |state: &mut State| state.refused < times;
        let tried = self.shared.changed.wait_timeout_while(state, PATIENCE, too_few);
        assert!(!tried.unwrap().1.timed_out(), "nobody tries to connect again");
    }

    /// Takes connections again.
    pub fn mend(&self) {
        self.shared.state.lock().unwrap().is_cut = false;
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut pass = || -> io::Result<()> {
            loop {
                let count = from.read(&mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                to.write_all(&buffer[..count])?;
            }
        };
        // Whatever ended it, the other side is told.
        let _ = pass();
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Calls of a function so far, by a line of `latency --json`.
fn calls(line: &str) -> u64 {
    let object: serde_json::Value = serde_json::from_str(line).unwrap();
    object["since_start"]["count"].as_u64().unwrap()
}

/// When a hit was, by a line of `trace --json`.
fn hit_ns(line: &str) -> u64 {
    let object: serde_json::Value = serde_json::from_str(line).unwrap();
    object["ts_ns"].as_u64().unwrap()
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// A `latency` that has begun to show calls of `f`.
fn watched(socket: &Path, target: &Fixture) -> Running {
    let pid = target.pid().to_string();
    let latency = ["latency", "-p", &pid, "f", "--json", "--interval", "0.1"];
    let mut latency = Running::start(through(socket, &latency));
    latency.line();
    latency
}

const LOST: &str = "the connection to the daemon was lost";

#[test]
#[ignore = "needs root"]
fn a_view_goes_on_where_its_connection_was_lost_and_counts_nothing_less() {
    let target = busy();
    let daemon = Daemon::start();
    let tunnel = Tunnel::to(&daemon);
    let pid = target.pid().to_string();
    let mut latency = watched(&tunnel.socket, &target);
    let hits = ["trace", "-p", &pid, "f", "--json"];
    let mut trace = Running::start(through(&tunnel.socket, &hits));
    trace.line();
    let before = calls(&latency.line());
    tunnel.cut();
    tunnel.until_refused(4);
    tunnel.mend();
    let mended_ns = now_ns();
    let mut after = before;
    // Calls of meanwhile are among those that are counted.
    while after < before + 50 {
        let now = calls(&latency.line());
        assert!(now >= after, "{now} calls after {after}");
        after = now;
    }
    // Hits of before were on their way.
    while hit_ns(&trace.line()) < mended_ns {}
    for (view, running) in [("latency", latency), ("trace", trace)] {
        running.interrupt();
        let ended = running
            .end()
            .status(0)
            .says(LOST)
            .says("is connected again, after");
        let last = ended.objects().pop().unwrap();
        println!("{view}: {last}");
        if view == "trace" {
            let count = |name: &str| last[name].as_u64().unwrap();
            assert!(count("reached") >= count("hits"), "{last}");
        }
    }
    assert_eq!(
        daemon.sessions().len(),
        0,
        "they were ended through the new connection"
    );
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_run_that_ends_while_its_connection_is_lost_says_so() {
    let target = busy();
    let daemon = Daemon::start();
    let tunnel = Tunnel::to(&daemon);
    let pid = target.pid().to_string();
    let mut latency = watched(&tunnel.socket, &target);
    // What the session forgets while nobody watches is not begun anew as if nothing had been.
    let flame = ["flame", "-p", &pid, "-F", "499", "--json"];
    let flame = Running::start(through(&tunnel.socket, &flame));
    daemon.until_each_is_watched_by(&[1, 1]);
    // Longer than a flame graph takes to begin.
    for _ in 0..30 {
        latency.line();
    }
    tunnel.cut();
    let ended = flame.end().status(1).says("the result is of what came before");
    assert!(
        ended.stdout().contains("\"type\":\"summary\""),
        "{}",
        ended.stdout()
    );
    tunnel.until_refused(1);
    latency.interrupt();
    latency.end().status(1).says(LOST);
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_target_that_ended_while_the_connection_was_lost_is_known_to_have() {
    let target = busy();
    let daemon = Daemon::start();
    let tunnel = Tunnel::to(&daemon);
    let latency = watched(&tunnel.socket, &target);
    tunnel.cut();
    tunnel.until_refused(1);
    let pid = rustix::process::Pid::from_raw(target.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(target);
    while !daemon.sessions().is_empty() {}
    tunnel.mend();
    latency.end().status(5).says("was ended by signal 9 (SIGKILL)");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_recording_ends_with_its_connection_and_keeps_what_came() {
    let target = busy();
    let daemon = Daemon::start();
    let tunnel = Tunnel::to(&daemon);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let path = path.to_str().unwrap();
    let pid = target.pid().to_string();
    let record = Running::start(through(&tunnel.socket, &["record", "-p", &pid, "f", "-o", path]));
    daemon.until_watched();
    let is_long = || fs::metadata(path).is_ok_and(|file| file.len() > 2_000);
    while !is_long() {
        thread::yield_now();
    }
    tunnel.cut();
    let ended = record
        .end()
        .status(1)
        .says(LOST)
        .says("the result is of what came before");
    assert!(
        ended.stderr().contains(&format!("{path} written: ")),
        "{}",
        ended.stderr()
    );
    tunnel.mend();
    daemon.profiler(&["latency", "--from", path]).status(0);
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_daemon_that_is_gone_is_not_waited_for() {
    let target = busy();
    // Nobody listens any more.
    let daemon = Daemon::start();
    let latency = watched(&daemon.socket, &target);
    let directory = daemon.kill();
    latency.end().status(1).says(LOST);
    // Another one does, which has not heard of the session.
    let daemon = Daemon::in_directory(directory, &[]);
    let tunnel = Tunnel::to(&daemon);
    let latency = watched(&tunnel.socket, &target);
    tunnel.cut();
    tunnel.until_refused(1);
    let directory = daemon.kill();
    let daemon = Daemon::in_directory(directory, &[]);
    tunnel.mend();
    latency.end().status(3).says("the daemon was started anew");
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}
