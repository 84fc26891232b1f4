//! The frame around both servers: listen, say so, perhaps start the generator, wait, stop, report.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::{
    address::{Address, Listener},
    args::{self, Traffic},
    error::Error,
    handler::Workspaces,
    journal::Writer,
    report::{Output, ServerReport},
    served::Served,
    stop::{Reason, Signals},
    switches::Switches,
};

/// What both variants offer.
pub trait Variant: Sized {
    /// The variant's name in the report.
    const NAME: &str;

    /// Starts serving, in threads of its own.
    fn start(listener: Listener, traffic: &Traffic, workspaces: Workspaces) -> Result<Self, Error>;

    /// Ends every connection and gives the sum of what they did.
    fn stop(self) -> Result<Totals, Error>;
}

/// What a server did over its life.
#[derive(Debug)]
pub struct Totals {
    pub served: Served,
    pub connections: u64,
    pub refused: u64,
}

impl Totals {
    pub fn new() -> Self {
        Self {
            served: Served::new(),
            connections: 0,
            refused: 0,
        }
    }
}

/// Runs one server from its first to its last line of output.
pub fn serve<V: Variant>(
    settings: args::Server,
    duration: Option<Duration>,
    signals: &Signals,
    output: Output,
) -> Result<(), Error> {
    let args::Server {
        listen,
        traffic,
        work,
        journal,
        with_load,
    } = settings;
    let (listener, address) = listen.listen()?;
    let start = Instant::now();
    let writer = journal.as_deref().map(Writer::start).transpose()?;
    let journal = writer.as_ref().map(Writer::journal);
    let server = V::start(listener, &traffic, Workspaces { work, journal })?;
    output.ready(&[("address", &address.to_string()), ("variant", V::NAME)])?;

    let generator = if with_load {
        Some(Generator::start(&address, &traffic, output)?)
    } else {
        None
    };
    let waited = signals.wait(duration.map(|duration| start + duration));
    let generated = generator.map_or(Ok(()), |generator| generator.stop(&waited));
    let stopped = server.stop();
    let written = writer.map_or(Ok(()), Writer::stop);
    address.clean_up();

    let Totals {
        served,
        connections,
        refused,
    } = stopped?;
    output.server(&ServerReport {
        variant: V::NAME,
        elapsed: start.elapsed(),
        connections,
        refused,
        served,
        process: Switches::of_process(),
    })?;
    waited.and(generated).and(written)
}

/// `demo load` as a child process, which does not outlive this one.
struct Generator(Child);

impl Generator {
    fn start(address: &Address, traffic: &Traffic, output: Output) -> Result<Self, Error> {
        let Traffic { pairs, threads, rate } = traffic;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("demo").arg("load").arg(address.to_string());
        for (flag, value) in [("--pairs", pairs), ("--threads", threads), ("--rate", rate)] {
            command.arg(flag).arg(value.to_string());
        }
        if output.json {
            command.arg("--json");
        }
        // SAFETY: between fork and exec only prctl runs, a plain system call that touches no memory of ours.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().map_err(|source| Error::System {
            call: "starting the load generator",
            source,
        })?;
        Ok(Self(child))
    }

    /// Has the generator print its figures and end, unless it has ended already.
    fn stop(mut self, waited: &Result<Reason, Error>) -> Result<(), Error> {
        if !matches!(waited, Ok(Reason::Child)) {
            let pid = libc::pid_t::try_from(self.0.id()).unwrap_or(libc::pid_t::MAX);
            // SAFETY: no memory is involved; the child has not been waited for, so the PID is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let status = self
            .0
            .wait()
            .map_err(|source| Error::System { call: "wait", source })?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::Generator(status))
        }
    }
}
