//! What `latency` is asked for.

use std::path::PathBuf;

use super::{
    super::{
        args::{BarsOver, LatencyArgs, LatencyFormat},
        exit::Failure,
        request::{Latency, LatencyExport, SessionChoice},
    },
    endings::format_of,
    session::{OWN_LEASE, create},
    target_or_recording,
};

pub(super) fn latency(args: LatencyArgs) -> Result<Latency, Failure> {
    let export = export(args.output, args.format, args.json)?;
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None if args.recording.from.is_none() && args.scope.as_deref().is_none_or(str::is_empty) => {
            return Err(Failure::usage(
                "Say which calls to time: a function, a glob or a scope, e.g. `profiler latency -p PID 'handle_*'`.",
            ));
        }
        None => {
            let target = target_or_recording(args.target, &args.recording)?;
            let mut create = create(target, &args.making, args.scope, None, OWN_LEASE);
            create.by = args.by.unwrap_or_default();
            SessionChoice::Make(create)
        }
    };
    Ok(Latency {
        session,
        duration: args.duration.map(|span| span.0),
        interval: args.interval.0,
        export,
        bars: args.over.unwrap_or(BarsOver::Window),
        json: args.json,
        color: args.color,
    })
}

/// What files of a format end in.
const ENDINGS: [(&str, LatencyFormat); 1] = [(".hlog", LatencyFormat::Hlog)];

fn export(
    output: Option<PathBuf>,
    format: Option<LatencyFormat>,
    json: bool,
) -> Result<Option<LatencyExport>, Failure> {
    let format = match (format, &output) {
        (None, None) => return Ok(None),
        (Some(_), None) if json => {
            return Err(Failure::usage(
                "--format and --json are both for standard output: leave out one of them, or name a file with -o.",
            ));
        }
        (Some(format), _) => format,
        (None, Some(path)) => format_of(path, &ENDINGS)?,
    };
    Ok(Some(LatencyExport { output, format }))
}
