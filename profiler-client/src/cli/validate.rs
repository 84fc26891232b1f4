//! The one place where typed flags become a request that makes sense; a file a verb where there is more to it.

mod dry_run;
mod endings;
mod explain;
mod flame;
mod latency;
mod record;
mod session;
mod spans;
mod syscalls;
#[cfg(test)]
mod tests;
mod timeline;
mod top;
mod trace;
mod tui;
mod waits;

use std::{collections::HashSet, path::PathBuf, time::Duration};

use profiler_proto::v1;

pub use self::flame::require_predicate;
use self::{
    explain::explain,
    flame::{diff, flame},
    latency::latency,
    record::{own, record},
    session::session_new,
    spans::spans,
    syscalls::syscalls,
    timeline::timeline,
    top::top,
    trace::trace,
    tui::tui,
    waits::waits,
};
use super::{
    args::{Cli, FromArgs, HostArgs, RecordedTime, ScopeVerb, SessionVerb, TargetArgs, Verb},
    request::{Host, Request, ScopeEdit},
};
use crate::failure::Failure;

/// Why a recording is not asked for values.
const RECORDED_VALUES: &str =
    "A recording has the values that it was made with (`profiler record --print …`): leave --print out.";

/// Validates what was typed.
///
/// # Errors
///
/// A usage failure (exit status 2) that says which flags do not go together.
pub fn validate(cli: Cli) -> Result<(Host, Request), Failure> {
    Ok(match cli.verb {
        Verb::Info(args) => (
            match args.from {
                Some(path) => Host::Recording(path),
                None => host(args.host)?,
            },
            Request::Info { json: args.json },
        ),
        Verb::Ps(args) => (
            host(args.host)?,
            Request::Ps {
                pattern: args.pattern.unwrap_or_default(),
                json: args.json,
            },
        ),
        Verb::Functions(args) => (
            host(args.host)?,
            Request::Functions {
                target: target(args.target)?,
                pattern: args.glob.unwrap_or_default(),
                json: args.json,
            },
        ),
        Verb::Source(args) => (
            host(args.host)?,
            Request::Source {
                target: target(args.target)?,
                place: place(args.place)?,
                json: args.json,
                color: args.color,
            },
        ),
        Verb::Tui(mut args) => {
            let given = std::mem::take(&mut args.host);
            let place = place_of(given.clone(), args.from.as_ref())?;
            let request = tui(args, given.host)?;
            (place, Request::Tui(Box::new(request)))
        }
        Verb::Top(mut args) => (
            place_of(std::mem::take(&mut args.host), args.from.as_ref())?,
            Request::Top(top(args)?),
        ),
        Verb::Latency(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            dry_run::or_estimate(args.dry_run, Request::Latency(latency(args)?))?,
        ),
        Verb::Trace(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            dry_run::or_estimate(args.dry_run, Request::Trace(trace(args)?))?,
        ),
        Verb::Spans(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            dry_run::or_estimate(args.dry_run, Request::Spans(spans(args)?))?,
        ),
        Verb::Flame(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            dry_run::or_estimate(args.dry_run, Request::Flame(flame(args)?))?,
        ),
        Verb::Diff(args) => diff(args)?,
        Verb::Waits(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            Request::Waits(waits(args)?),
        ),
        Verb::Timeline(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            Request::Timeline(timeline(args)?),
        ),
        Verb::Syscalls(mut args) => (
            place_of(std::mem::take(&mut args.host), args.recording.from.as_ref())?,
            Request::Syscalls(syscalls(args)?),
        ),
        Verb::Explain(mut args) => (
            place_of(std::mem::take(&mut args.host), args.from.as_ref())?,
            dry_run::or_estimate(args.dry_run, Request::Explain(explain(args)?))?,
        ),
        Verb::Record(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Record(record(args)?),
        ),
        Verb::Own(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::RecordOwn(own(args)?),
        ),
        Verb::Session(args) => match args.verb {
            SessionVerb::New(mut args) => (
                host(std::mem::take(&mut args.host))?,
                dry_run::or_estimate(args.dry_run, session_new(*args)?)?,
            ),
            SessionVerb::List(args) => (host(args.host)?, Request::SessionList { json: args.json }),
            SessionVerb::End(args) => (host(args.host)?, Request::SessionEnd { name: args.name }),
        },
        Verb::Scope(args) => edit(args.verb)?,
    })
}

/// What `scope set`, `append`, `drop` and `undo` ask for.
fn edit(verb: ScopeVerb) -> Result<(Host, Request), Failure> {
    Ok(match verb {
        ScopeVerb::Set(args) => (
            host(args.host)?,
            dry_run::edit(args.dry_run, args.json, args.name, ScopeEdit::Set(args.scope)),
        ),
        ScopeVerb::Append(args) => (
            host(args.host)?,
            dry_run::edit(args.dry_run, args.json, args.name, ScopeEdit::Append(args.steps)),
        ),
        ScopeVerb::Drop(args) => (
            host(args.host)?,
            Request::ScopeEdit {
                name: args.name,
                edit: ScopeEdit::Drop(args.count),
            },
        ),
        ScopeVerb::Undo(args) => (
            host(args.host)?,
            Request::ScopeEdit {
                name: args.name,
                edit: ScopeEdit::Undo(args.count),
            },
        ),
    })
}

fn host(args: HostArgs) -> Result<Host, Failure> {
    let Some(endpoint) = args.host else {
        return Ok(Host::Default);
    };
    let path = endpoint.strip_prefix("unix:").unwrap_or(&endpoint);
    // `unix:///path` is how URLs have it.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || (path == endpoint && !path.contains('/')) {
        return Err(Failure::usage(format!(
            "--host `{endpoint}` is not a socket: give its path (/run/profilerd.sock) or unix:PATH."
        )));
    }
    Ok(Host::Socket(PathBuf::from(path)))
}

/// The recording that is looked at, or else where the daemon is.
fn place_of(args: HostArgs, recording: Option<&PathBuf>) -> Result<Host, Failure> {
    match recording {
        Some(path) => Ok(Host::Recording(path.clone())),
        None => host(args),
    }
}

/// A part of the recording, or else a process.
fn target_or_recording(args: TargetArgs, recording: &FromArgs) -> Result<v1::Target, Failure> {
    if recording.from.is_none() {
        return target(args);
    }
    Ok(v1::Target {
        target: Some(v1::target::Target::Recording(recorded_time(recording.time))),
    })
}

/// A part of a recording; without one, all of it.
#[must_use]
pub fn recorded_time(time: Option<RecordedTime>) -> v1::RecordedTime {
    let ns = |at: Option<Duration>| {
        let ns = at.unwrap_or_default().as_nanos();
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    let time = time.unwrap_or_default();
    v1::RecordedTime {
        begin_ns: ns(time.begin),
        end_ns: ns(time.end),
        without_scope: false,
    }
}

fn target(args: TargetArgs) -> Result<v1::Target, Failure> {
    let target = match (each_once(args.pid).as_slice(), args.exe) {
        (&[pid], _) => v1::target::Target::Pid(pid),
        ([], Some(exe)) if !exe.is_empty() => v1::target::Target::Executable(exe),
        ([], _) => {
            return Err(Failure::usage(
                "Say what to look at: -p PID or --exe EXE (`profiler ps` lists processes).",
            ));
        }
        (pids, _) => v1::target::Target::Processes(v1::Processes { pids: pids.to_vec() }),
    };
    Ok(v1::Target { target: Some(target) })
}

/// Processes in the order in which they are named, each once.
fn each_once(mut pids: Vec<u32>) -> Vec<u32> {
    let mut named = HashSet::new();
    pids.retain(|pid| named.insert(*pid));
    pids
}

fn place(text: String) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage(
            "Name what to show: a function or FILE:LINE, e.g. `profiler source -p PID main.cc:1310`.",
        ));
    }
    Ok(text)
}
