//! The command line: raw arguments become validated arguments here and nowhere else.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{address::Address, cpus::CpuSet, error::Error};

/// The async server holds two descriptors a pair, and 1,024 is the usual limit.
const PAIRS_MAX: i64 = 400;
const THREADS_MAX: i64 = 256;
const WORKING_SET_MAX_BYTES: usize = 1 << 30;

/// A socket echo server to profile, and its load.
#[derive(Debug, Parser)]
#[command(name = "demo", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: RawCommand,
    /// Stop after so many seconds; without it, on SIGINT or SIGTERM
    #[arg(long, global = true, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Run on these CPUs only, such as 0-1,3
    #[arg(long, global = true, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Print one JSON object a line instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Serve with one thread a connection
    Blocking(RawServer),
    /// Serve with tokio tasks that never block
    Async(RawServer),
    /// Send requests to a server and check its replies
    Load(RawLoad),
    /// Call the small function `tick` at a steady rate, with no sockets at all
    Calls(RawCalls),
}

#[derive(Debug, Args)]
struct RawServer {
    /// Where to listen: unix:PATH, unix:@NAME (abstract) or tcp:HOST:PORT; default: unix:@demo-PID
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    #[command(flatten)]
    traffic: Traffic,
    /// Bytes of memory that a request touches (K, M and G are understood)
    #[arg(long, value_name = "BYTES", default_value = "512K", value_parser = parse_bytes)]
    size: usize,
    /// Distance between two touched bytes
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    stride: usize,
    /// Share of the requests that take the slow path
    #[arg(long, value_name = "PERCENT", default_value = "4", value_parser = parse_percent)]
    slow_percent: f64,
    /// Have slow requests append to a journal in this new file, under a lock that is held while it is written to the disk
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Also start the load generator, as a child process
    #[arg(long)]
    load: bool,
}

#[derive(Debug, Args)]
struct RawLoad {
    /// The server's address, as its `ready` line gives it
    address: Address,
    #[command(flatten)]
    traffic: Traffic,
}

/// What server and generator must agree about.
#[derive(Debug, Clone, Args)]
pub struct Traffic {
    /// Connections: made by the generator, served at once by the server (more are refused)
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=PAIRS_MAX))]
    pub pairs: u32,
    /// Threads of the generator and of the async server (the blocking one has one a connection)
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    pub threads: u32,
    /// Requests a second, over all connections, that the generator sends at most
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
}

#[derive(Debug, Args)]
struct RawCalls {
    /// Calls a second, over all threads
    #[arg(long, value_name = "N", default_value = "50000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Calling threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: u32,
}

/// Arguments that can be acted upon.
#[derive(Debug)]
pub struct Validated {
    pub command: Command,
    pub duration: Option<Duration>,
    pub cpus: Option<CpuSet>,
    pub json: bool,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    Blocking(Server),
    Async(Server),
    Load(Load),
    Calls(Calls),
}

/// A server's settings, the same for both variants.
#[derive(Debug, Clone)]
pub struct Server {
    pub listen: Address,
    pub traffic: Traffic,
    pub work: Work,
    /// File that slow requests append to, instead of rebuilding an index.
    pub journal: Option<PathBuf>,
    pub with_load: bool,
}

/// What a request costs.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Memory that one request touches, in bytes; at least 1.
    pub size_bytes: usize,
    /// Distance between two touched bytes; from 1 to `size_bytes`.
    pub stride_bytes: usize,
    /// Requests in a million that take the slow path.
    pub slow_per_million: u32,
}

/// The generator's settings.
#[derive(Debug)]
pub struct Load {
    pub address: Address,
    pub traffic: Traffic,
}

/// The settings of `calls`.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    pub rate: u32,
    pub threads: u32,
}

impl Arguments {
    /// Checks what clap cannot check one argument at a time.
    ///
    /// # Errors
    /// [`Error::Usage`] where two values do not go together.
    pub fn validate(self) -> Result<Validated, Error> {
        let Self {
            command,
            duration,
            cpus,
            json,
        } = self;
        let command = match command {
            RawCommand::Blocking(raw) => Command::Blocking(raw.validate()?),
            RawCommand::Async(raw) => Command::Async(raw.validate()?),
            RawCommand::Load(RawLoad { address, traffic }) => Command::Load(Load { address, traffic }),
            RawCommand::Calls(RawCalls { rate, threads }) => Command::Calls(Calls { rate, threads }),
        };
        Ok(Validated {
            command,
            duration,
            cpus,
            json,
        })
    }
}

impl RawServer {
    fn validate(self) -> Result<Server, Error> {
        let Self {
            listen,
            traffic,
            size,
            stride,
            slow_percent,
            journal,
            load,
        } = self;
        if stride > size {
            return Err(Error::Usage(format!(
                "--stride {stride} is larger than --size {size}: make it smaller"
            )));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "parse_percent let only 0 to 100 through"
        )]
        let slow_per_million = (slow_percent * 10_000.0).round() as u32;
        Ok(Server {
            listen: listen.unwrap_or_else(|| Address::of_process(std::process::id())),
            traffic,
            work: Work {
                size_bytes: size,
                stride_bytes: stride,
                slow_per_million,
            },
            journal,
            with_load: load,
        })
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration < Duration::from_hours(10_000) => Ok(duration),
        _ => Err("must be above 0 and below 36,000,000".to_owned()),
    }
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let count: usize = digits
        .parse()
        .map_err(|_| "not a number of bytes, such as 4096, 64K or 1M".to_owned())?;
    match count.checked_mul(unit) {
        Some(bytes) if (1..=WORKING_SET_MAX_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err("must be from 1 byte to 1G".to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("must be from 0 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn bytes_take_a_unit_and_are_bounded() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65_536));
        assert_eq!(parse_bytes("1G"), Ok(1 << 30));
        for wrong in [
            "",
            "K",
            "0",
            "2G",
            "-1",
            "99999999999999999999",
            "18446744073709551615G",
            "1.5M",
            "é",
        ] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percent_and_seconds_refuse_what_is_no_quantity() {
        assert_eq!(parse_percent("4.5%"), Ok(4.5));
        for wrong in ["-1", "101", "NaN", "inf", ""] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
            assert!(parse_seconds(wrong).is_err() || wrong == "101", "{wrong}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_seconds("0").is_err());
    }

    #[test]
    fn a_stride_beyond_the_size_is_refused() {
        let arguments =
            Arguments::try_parse_from(["demo", "blocking", "--size", "1K", "--stride", "2K"]).unwrap();
        assert!(arguments.validate().unwrap_err().is_usage());
    }
}
