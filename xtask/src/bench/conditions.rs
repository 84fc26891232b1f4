//! `cargo xtask bench --conditions`: what a line costs whose condition rejects every hit.
//!
//! The line is the one at which a function begins, so that bpftrace, which knows no lines, can be asked the same.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    Arguments,
    attacher::Attacher,
    bpftrace::{Bpftrace, Counts},
    build_example,
    daemon::{Daemon, SESSION},
    finish,
    fixture::Fixture,
    table,
};
use crate::{
    error::{Error, Result},
    fixtures, workspace,
};

/// What is called.
pub const FUNCTION: &str = "target_fn";
/// What no call is made with: the fixture's arguments are what earlier calls returned.
const NEVER: i64 = 12_345;
/// gdb stops the process for each call.
const CALLS_OF_GDB: u32 = 50;
/// How long a program may take to say that it is ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is at the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Nothing,
    /// An empty program: nothing that sees all hits can cost less.
    Empty,
    Ours {
        condition: bool,
    },
    Bpftrace(Counts),
    Gdb,
}

const CASES: [(Case, &str); 8] = [
    (Case::Nothing, "nothing"),
    (Case::Empty, "an empty program"),
    (Case::Ours { condition: false }, "`trace LINE --limit 1`"),
    (Case::Ours { condition: true }, "`trace 'LINE[argument == …]'`"),
    (Case::Bpftrace(Counts::All), "bpftrace, `count()`"),
    (Case::Bpftrace(Counts::Those(NEVER)), "bpftrace, `/arg0 == …/`"),
    (
        Case::Bpftrace(Counts::Both(NEVER)),
        "bpftrace, and what is rejected is counted, as here",
    ),
    (Case::Gdb, "gdb, `break LINE if argument == …`"),
];

/// Measures, and shows the table.
pub fn main(arguments: &Arguments) -> Result<()> {
    let directory = fixtures::compile()?;
    let program = directory.join("calls");
    let mut attacher = Attacher::start(&build_example("bench_attach")?)?;
    let daemon = Daemon::start()?;
    let mut target = Fixture::start(&program, &["bench"])?;
    let line = line_of(&daemon, target.pid())?;
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
    for round in 1..=arguments.rounds {
        for ((case, name), row) in CASES.into_iter().zip(&mut rows) {
            let pid = target.pid();
            let mut calls = arguments.calls;
            let (mut bpftrace, mut gdb) = (None, None);
            match case {
                Case::Nothing => {}
                Case::Empty => {
                    attacher.attach("entry", pid, &program, &[FUNCTION])?;
                }
                Case::Ours { condition } => attach(&daemon, pid, &line, condition)?,
                Case::Bpftrace(counts) => {
                    bpftrace = Some(Bpftrace::count(pid, &program, FUNCTION, counts)?);
                }
                Case::Gdb => {
                    calls = CALLS_OF_GDB;
                    gdb = Some(Gdb::attach(pid, &line)?);
                }
            }
            let ns = target.call(calls, FUNCTION)?;
            match case {
                Case::Empty => {
                    attacher.detach()?;
                }
                Case::Ours { .. } => daemon.detach()?,
                _ => {}
            }
            bpftrace.map_or(Ok(()), Bpftrace::detach)?;
            gdb.map_or(Ok(()), Gdb::detach)?;
            println!("round {round}, {name}: {ns:.0} ns");
            row.push(ns);
        }
    }
    target.end()?;
    finish(arguments, table::CONDITIONS, &markdown(&rows)?)
}

fn markdown(rows: &[Vec<f64>]) -> Result<String> {
    let mut text = format!(
        "Nanoseconds a call of a function of two instructions while the line at which it begins is looked at ({}): the median, \
         lowest and highest in brackets. No call is as the condition asks.\n\n\
         | at the line | a call | / an empty program | / the same without a condition |\n|---|---|---|---|\n",
        table::machine()?
    );
    let medians: Vec<f64> = rows.iter().map(|row| table::median(row)).collect();
    let of = |wanted: Case| {
        let mut all = CASES.iter().zip(&medians);
        all.find_map(|((case, _), median)| (*case == wanted).then_some(*median))
    };
    let empty = of(Case::Empty).unwrap_or(f64::NAN);
    for (((case, name), row), median) in CASES.iter().zip(rows).zip(&medians) {
        let same = match case {
            Case::Ours { condition: true } => of(Case::Ours { condition: false }),
            Case::Bpftrace(Counts::Those(_) | Counts::Both(_)) => of(Case::Bpftrace(Counts::All)),
            _ => None,
        };
        let of_same = same.map_or_else(String::new, |same| format!("{:.2}", median / same));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {:.2} | {of_same} |",
            table::with_spread(row),
            median / empty
        );
    }
    Ok(text)
}

/// The line at which the function begins.
pub fn line_of(daemon: &Daemon, pid: u32) -> Result<String> {
    let text = daemon.profiler(&["source", "-p", &pid.to_string(), FUNCTION, "--json"])?;
    let objects: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let address = objects.first().map(|function| &function["address"]);
    let begins = |object: &&Value| {
        let sites = object["sites"].as_array();
        object["type"] == "line" && sites.is_some_and(|sites| sites.iter().any(|site| Some(site) == address))
    };
    let line = objects
        .iter()
        .find(begins)
        .and_then(|object| object["line"].as_u64());
    let line = line.ok_or_else(|| Error::told(format!("no line begins where {FUNCTION} does")))?;
    Ok(format!("calls.c:{line}"))
}

/// Looks at the line, with the condition that rejects every hit or without.
pub fn attach(daemon: &Daemon, pid: u32, line: &str, condition: bool) -> Result<()> {
    let scope = if condition {
        format!("{line}[argument == {NEVER}]")
    } else {
        line.to_owned()
    };
    let pid = pid.to_string();
    let session = [
        "session", "new", "-p", &pid, &scope, "--name", SESSION, "--trace", "--limit", "1",
    ];
    daemon.profiler(&session).map(drop)
}

/// gdb with a breakpoint; killed when dropped.
struct Gdb(Child);

impl Gdb {
    /// Starts it, and waits until the process runs on.
    fn attach(pid: u32, line: &str) -> Result<Self> {
        let log = workspace::target().join("bench-gdb.log");
        let output = fs::File::create(&log).map_err(Error::file("create", &log))?;
        let mut command = Command::new("gdb");
        command
            .args([
                "-nx",
                "-q",
                "-batch",
                "-iex",
                "set debuginfod enabled off",
                "-p",
                &pid.to_string(),
                "-ex",
            ])
            .arg(format!("break {line} if argument == {NEVER}"))
            .args(["-ex", "echo attached\\n", "-ex", "continue", "-ex", "detach"])
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null());
        let gdb = Self(command.spawn().map_err(Error::file("start", "gdb"))?);
        let since = Instant::now();
        while !fs::read_to_string(&log).is_ok_and(|text| text.contains("attached")) || is_stopped(pid) {
            if since.elapsed() > PATIENCE {
                return Err(Error::told("gdb did not attach"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(gdb)
    }

    /// Interrupts it, upon which it detaches.
    fn detach(mut self) -> Result<()> {
        let pid = libc::pid_t::try_from(self.0.id()).map_err(|_| Error::told("gdb's PID is out of range"))?;
        // SAFETY: kill takes no pointer; the child has not been waited for, so its PID is still its own.
        unsafe { libc::kill(pid, libc::SIGINT) };
        self.0.wait().map(drop).map_err(Error::file("wait for", "gdb"))
    }
}

impl Drop for Gdb {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is stopped by who traces it.
fn is_stopped(pid: u32) -> bool {
    let state = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    state.is_ok_and(|state| {
        state
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('t'))
    })
}
