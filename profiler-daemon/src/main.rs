//! `profilerd`: the daemon. Load, serve, drain.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use profiler_daemon::{
    kernel, rpc,
    session::{self, Handle},
};
use profiler_target::environment;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The bits of a socket's mode by which others than its owner may connect.
const OF_OTHERS: u32 = 0o066;

/// Live profiling of running processes, served over gRPC on a Unix socket.
///
/// Nothing is loaded into the kernel while no client has a session, unless --keep-loaded is given; nothing is
/// attached to a process or sampled then. Root may profile every process, other users their own. The
/// environment variable `RUST_LOG` sets what is logged to standard error (`RUST_LOG=debug`;
/// `RUST_LOG=audit=info` for attachments alone).
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "Exit status: 0 after a stop by signal, 1 on failure, 2 on wrong usage."
)]
struct Arguments {
    /// Socket to listen on.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/profilerd.sock",
        env = "PROFILER_SOCKET"
    )]
    socket: PathBuf,

    /// Permissions of the socket, octal. Whatever they are, the kernel tells the daemon which user connects.
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = mode)]
    socket_mode: u32,

    /// Bytes of the ring buffer for samples and span ends; a power of two, at least 4096.
    #[arg(long, value_name = "BYTES", default_value_t = profiler_common::limits::RING_BYTES, value_parser = ring_bytes)]
    ring_bytes: u32,

    /// Sessions that may exist at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_sessions: usize,

    /// Load the eBPF programs at the start, and keep them loaded while no client has a session: a session's first sample then
    /// does not wait for the kernel to verify them. Costs the memory of their maps, and a short program at each thread's end.
    #[arg(long)]
    keep_loaded: bool,

    /// Folder of the cache for debug information and unwind tables of large files, so that each build is read once. By default
    /// `$PROFILER_CACHE`, or else `/var/cache/profiler` for root and `profiler` in `$XDG_CACHE_HOME` or `~/.cache` for other
    /// users. Only root and the daemon's own user may be able to write to it.
    #[arg(long, value_name = "PATH")]
    cache: Option<PathBuf>,

    /// Let the eBPF programs log; costs time at every message.
    #[arg(long)]
    kernel_log: bool,
}

fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "an octal number up to 777 is expected, such as 660".to_owned())
}

fn ring_bytes(text: &str) -> Result<u32, String> {
    text.parse::<u32>()
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 30).contains(bytes))
        .ok_or_else(|| "a power of two from 4096 to 1073741824 is expected".to_owned())
}

/// Writes lines of the log, each at once. Names of files and processes are anybody's: none begins a line of its own, as an entry of the
/// audit log would.
struct LogLine<W>(W);

impl<W: Write> Write for LogLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line.split_last() {
            Some((b'\n', text)) => (text, &b"\n"[..]),
            _ => (line, &b""[..]),
        };
        if text.contains(&b'\n') || text.contains(&b'\r') {
            let mut whole = Vec::with_capacity(line.len() + 8);
            for byte in text {
                match byte {
                    b'\n' => whole.extend(b"\\n"),
                    b'\r' => whole.extend(b"\\r"),
                    byte => whole.push(*byte),
                }
            }
            whole.extend(end);
            self.0.write_all(&whole)?;
        } else {
            self.0.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn main() -> ExitCode {
    environment::distrust();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(|| LogLine(std::io::stderr()))
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")))
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("profilerd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Lets the daemon have as many descriptors as it is allowed to: each connection, probe and file of a target takes one.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it was");
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    raise_descriptors();
    for missing in kernel::missing_capabilities() {
        tracing::warn!(
            "missing {} ({}): sessions will be refused; run as root",
            missing.name,
            missing.purpose
        );
    }
    let handle = session::start(session::Config {
        engine: kernel::Config {
            ring_bytes: arguments.ring_bytes,
            kernel_log: arguments.kernel_log,
            ..kernel::Config::default()
        },
        max_sessions: arguments.max_sessions,
        keep_loaded: arguments.keep_loaded,
        serves_others: arguments.socket_mode & OF_OTHERS != 0,
        cache: arguments.cache.clone().or_else(session::default_cache),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments, handle))?;
    Ok(())
}

async fn serve(arguments: &Arguments, handle: Handle) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Stop::new()?;
    let listening = || {
        tracing::info!(socket = %arguments.socket.display(), "listening");
        notify(sd_notify::NotifyState::Ready);
    };
    let mut marks = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while marks.recv().await.is_some() {
            tracing::info!("SIGUSR1: recordings that wait for a signal are kept");
            rpc::signal_recordings();
        }
    });
    let stopped = {
        let handle = handle.clone();
        async move {
            let signal = stop.wait().await;
            tracing::info!(%signal, "stopping");
            notify(sd_notify::NotifyState::Stopping);
            // Streams get their last message by this, and so end.
            handle.stop().await;
        }
    };
    rpc::serve(
        &handle,
        &arguments.socket,
        arguments.socket_mode,
        listening,
        stopped,
    )
    .await?;
    Ok(())
}

/// Tells the service manager, if there is one.
fn notify(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "no service manager was told");
    }
}

/// The signals that stop the daemon. SIGUSR1 does not.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

/// A signal's name.
struct Name(&'static str);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(mut self) -> Name {
        tokio::select! {
            _ = self.terminate.recv() => Name("SIGTERM"),
            _ = self.interrupt.recv() => Name("SIGINT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_no_line_of_the_log() {
        let mut log = LogLine(Vec::new());
        log.write_all(b"INFO audit: attached scope=a\nINFO audit: forged\r\n")
            .unwrap();
        log.write_all(b"INFO plain\n").unwrap();
        let expected = "INFO audit: attached scope=a\\nINFO audit: forged\\r\nINFO plain\n";
        assert_eq!(String::from_utf8(log.0).unwrap(), expected);
    }
}
