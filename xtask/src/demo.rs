//! `cargo xtask demo`: the demo server under load, its live latency, and flame graphs of its slow requests.

use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    sh, workspace,
};

/// What `cargo xtask demo` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which server to profile
    #[arg(value_enum, default_value = "blocking")]
    variant: Variant,
    /// Length of each of the three views
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Variant {
    /// One thread a connection
    Blocking,
    /// Tasks that never block
    Async,
}

/// The function that both servers call once a request.
const FUNCTION: &str = "handle_request";
/// Longest wait for the server's end before it is killed: it prints its figures on the way.
const STOP_LIMIT: Duration = Duration::from_secs(10);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    if !sh::is_root() {
        return Err(Error::told(
            "attaching to a process needs root: run `cargo xtask demo` as root",
        ));
    }
    let Programs { profiler, demo } = Programs::build()?;
    catch_interrupts();
    let variant = match arguments.variant {
        Variant::Blocking => "blocking",
        Variant::Async => "async",
    };
    let server = Server::start(&demo, variant)?;
    let pid = server.pid.to_string();
    let seconds = arguments.seconds.to_string();
    let slow = format!("{FUNCTION}[>= p95]");
    let views: [(&str, &[&str]); 3] = [
        ("the live latency of every request", &["latency", FUNCTION]),
        (
            "where the slowest 5% of the requests spend their time",
            &["flame", &slow, "-o", "slow.svg"],
        ),
        (
            "what they do that the others do not",
            &["flame", &slow, "--diff", "-o", "diff.svg"],
        ),
    ];
    for (what, words) in views {
        if INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
        println!("\n== {what}");
        // Where the kernel single-steps each return, probes take more of this small server's time than a service's may.
        sh::run(Command::new(&profiler).args(words).args([
            "-p",
            &pid,
            "--duration",
            &seconds,
            "--budget",
            "0",
        ]))?;
    }
    println!("\n== what the server says of itself");
    server.stop();
    for file in ["slow.svg", "diff.svg"] {
        let path = env::current_dir().unwrap_or_default().join(file);
        if path.exists() {
            println!("{} (open it in a browser)", path.display());
        }
    }
    Ok(())
}

/// The programs that are shown, in the folder of the user's own release build: what that has compiled already is not
/// compiled again.
struct Programs {
    profiler: PathBuf,
    demo: PathBuf,
}

impl Programs {
    fn build() -> Result<Self> {
        sh::run(sh::cargo().args([
            "build",
            "--release",
            "--locked",
            "-p",
            "profiler-client",
            "--bin",
            "profiler",
            "-p",
            "demo",
            "--bin",
            "demo",
        ]))?;
        let release = workspace::target().join("release");
        Ok(Self {
            profiler: release.join("profiler"),
            demo: release.join("demo"),
        })
    }
}

/// The demo server, under load from a generator of its own; stopped when dropped.
struct Server {
    child: Child,
    pid: u32,
    output: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it and waits until it serves.
    fn start(demo: &Path, variant: &str) -> Result<Self> {
        let mut command = Command::new(demo);
        command
            .args([variant, "--load"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // SAFETY: prctl is async-signal-safe, and the closure touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                // Should we be killed, the server is not left behind.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        println!("  $ {}", sh::display(&command));
        let failed = |source| Error::Start {
            command: demo.display().to_string(),
            directory: ".".into(),
            source,
        };
        let child = command.spawn().map_err(failed)?;
        let mut server = Self {
            pid: child.id(),
            output: None,
            child,
        };
        let stdout = server
            .child
            .stdout
            .take()
            .ok_or_else(|| Error::told("the demo server has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        match lines.next() {
            Some(Ok(line)) if line.starts_with("ready ") => println!("{line}"),
            other => {
                return Err(Error::told(format!(
                    "the demo server did not get ready; it said {other:?}"
                )));
            }
        }
        server.output = Some(thread::spawn(move || {
            for line in lines.map_while(std::result::Result::ok) {
                println!("{line}");
            }
        }));
        Ok(server)
    }

    /// Asks it to end and shows what it prints then.
    fn stop(mut self) {
        self.end();
        if let Some(output) = self.output.take() {
            // It only prints, and ends with the pipe.
            let _ = output.join();
        }
    }

    fn end(&mut self) {
        let Ok(pid) = libc::pid_t::try_from(self.pid) else {
            return;
        };
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // SAFETY: kill takes no pointer; the child has not been waited for, so its PID is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let start = Instant::now();
        while start.elapsed() < STOP_LIMIT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            // The standard library cannot wait for a child with a limit.
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ctrl-C reaches the profiler, which prints its result and ends, and us: we then stop what we started.
fn catch_interrupts() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe; programs that we start get
        // the default action back.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}
