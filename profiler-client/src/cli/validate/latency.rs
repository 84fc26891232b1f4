//! What `latency` is asked for.

use super::{
    super::{
        args::{BarsOver, LatencyArgs, LatencyFormat},
        request::{Latency, SessionChoice},
    },
    endings::export,
    session::{OWN_LEASE, create},
    target_or_recording,
};
use crate::failure::Failure;

pub(super) fn latency(args: LatencyArgs) -> Result<Latency, Failure> {
    let export = export(args.output, args.format, args.json, &ENDINGS)?;
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None if args.recording.from.is_none() && args.scope.as_deref().is_none_or(str::is_empty) => {
            return Err(Failure::usage(
                "Say which calls to time: a function, a glob or a scope, e.g. `profiler latency -p PID 'handle_*'`.",
            ));
        }
        None => {
            let target = target_or_recording(args.target, &args.recording)?;
            let mut create = create(target, &args.making, args.scope, None, OWN_LEASE)?;
            create.by = args.by.unwrap_or_default();
            SessionChoice::Make(create)
        }
    };
    Ok(Latency {
        session,
        duration: args.duration.map(|span| span.0),
        interval: args.interval.0,
        export,
        otlp: args.otlp,
        bars: args.over.unwrap_or(BarsOver::Window),
        json: args.json,
        color: args.color,
    })
}

/// What files of a format end in.
const ENDINGS: [(&str, LatencyFormat); 2] = [(".hlog", LatencyFormat::Hlog), (".otlp", LatencyFormat::Otlp)];
