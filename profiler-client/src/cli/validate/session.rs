//! What `session new` is asked for, and the sessions that views make for themselves.

use std::{path::PathBuf, time::Duration};

use profiler_proto::v1;

use super::{
    super::{
        args::{Exit, FromMoreArgs, ProbingArgs, SessionMakingArgs, SessionNewArgs, TargetArgs},
        budget::{self, Budget},
        duration::to_proto,
        print_list,
        request::{Request, SessionChoice},
    },
    recorded_time, target,
};
use crate::failure::Failure;

/// How long a session that a command made for itself outlives its last stream: long enough for a
/// busy machine to open the stream, short enough that a killed command leaves nothing for long.
pub(super) const OWN_LEASE: Duration = Duration::from_secs(10);

/// A new session. Where nothing of a recorded scope is asked for, it is left out, as is said by an empty one.
pub(super) fn create(
    mut target: v1::Target,
    making: &SessionMakingArgs,
    scope: Option<String>,
    frequency: Option<u32>,
    lease: Duration,
) -> Result<Box<v1::CreateSessionRequest>, Failure> {
    let ProbingArgs { exit, budget } = making.probing;
    let exit_method = match exit {
        Exit::Auto => v1::ExitMethod::Auto,
        Exit::Return => v1::ExitMethod::Return,
        Exit::Ret => v1::ExitMethod::Ret,
    };
    if scope.as_deref().is_some_and(|scope| scope.trim().is_empty()) {
        match &mut target.target {
            Some(v1::target::Target::Recording(time)) => time.without_scope = true,
            Some(v1::target::Target::Comparison(both)) => {
                let times = both.after.iter_mut().chain(&mut both.before);
                times.for_each(|time| time.without_scope = true);
            }
            _ => {}
        }
    }
    Ok(Box::new(v1::CreateSessionRequest {
        name: String::new(),
        target: Some(target),
        scope: scope.unwrap_or_default(),
        frequency_hz: frequency.unwrap_or(0),
        window: making.window.map(|span| to_proto(span.0)),
        half_life: making.half_life.map(|span| to_proto(span.0)),
        lease: Some(to_proto(lease)),
        exit_method: exit_method.into(),
        symbols: Vec::new(),
        capture: None,
        explain: false,
        by: String::new(),
        allocations: false,
        budget: budget::or_environment(budget)?.map(|Budget(share)| share),
    }))
}

pub(super) fn session_new(args: SessionNewArgs) -> Result<Request, Failure> {
    let mut create = create(
        target(args.target)?,
        &args.making,
        args.scope,
        args.frequency,
        args.lease.0,
    )?;
    if args.by.is_some() && create.scope.trim().is_empty() {
        return Err(Failure::usage(
            "Say whose calls to divide: a function, a glob or a scope, e.g. `profiler session new -p PID f --by n`.",
        ));
    }
    create.by = args.by.unwrap_or_default();
    create.name = args.name.unwrap_or_default();
    create.symbols = absolute(&args.symbols)?;
    create.allocations = args.allocations;
    if args.trace || args.stack || !args.print.is_empty() {
        create.capture = Some(v1::Capture {
            print: print_list::join(args.print)?,
            hits_per_second: args.limit,
            stack: args.stack,
        });
    }
    Ok(Request::SessionNew {
        create,
        json: args.json,
    })
}

/// A part of a recording, where one is looked at.
pub(super) fn recorded(
    recording: &FromMoreArgs,
    scope: Option<&String>,
) -> Result<Option<SessionChoice>, Failure> {
    if recording.from.is_none() {
        return Ok(None);
    }
    let target = v1::Target {
        target: Some(v1::target::Target::Recording(recorded_time(recording.time))),
    };
    let making = SessionMakingArgs::default();
    let create = create(target, &making, scope.cloned(), None, OWN_LEASE)?;
    Ok(Some(SessionChoice::Make(create)))
}

/// A running session, or one of its own for as long as it is watched.
pub(super) fn watched(
    running: Option<String>,
    of: TargetArgs,
    scope: Option<String>,
    probing: ProbingArgs,
    symbols: &[PathBuf],
) -> Result<SessionChoice, Failure> {
    if let Some(name) = running {
        return Ok(SessionChoice::Join(name));
    }
    let making = SessionMakingArgs {
        probing,
        ..SessionMakingArgs::default()
    };
    let mut create = create(target(of)?, &making, scope, None, OWN_LEASE)?;
    create.symbols = absolute(symbols)?;
    Ok(SessionChoice::Make(create))
}

/// Paths as the service can use them, which may be in another folder.
pub(super) fn absolute(paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let absolute = |path: &PathBuf| {
        let absolute = std::path::absolute(path).ok();
        absolute
            .and_then(|path| path.into_os_string().into_string().ok())
            .ok_or_else(|| Failure::usage(format!("--symbols `{}` is not a path in UTF-8.", path.display())))
    };
    paths.iter().map(absolute).collect()
}
