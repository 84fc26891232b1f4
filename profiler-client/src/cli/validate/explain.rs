//! What `explain` is asked for.

use super::{
    super::{
        args::{ExplainArgs, FromArgs, SessionMakingArgs},
        request::{Explain, SessionChoice},
    },
    session::{OWN_LEASE, create},
    target, target_or_recording,
};
use crate::failure::Failure;

/// Samples a second and CPU: slow calls are few, and the run is short.
const FREQUENCY_HZ: u32 = 499;

pub(super) fn explain(args: ExplainArgs) -> Result<Explain, Failure> {
    let recording = FromArgs {
        from: args.from,
        time: args.time,
    };
    if recording.from.is_some() {
        let target = target_or_recording(args.target, &recording)?;
        let making = SessionMakingArgs::default();
        return Ok(Explain {
            session: SessionChoice::Make(create(target, &making, args.scope, None, OWN_LEASE)?),
            duration: args.duration.0,
            number: usize::try_from(args.number).unwrap_or(usize::MAX),
            json: args.json,
            color: args.color,
        });
    }
    if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) {
        return Err(Failure::usage(
            "Say which calls are slow: e.g. `profiler explain -p PID 'handle_request[>= p95]'`.",
        ));
    }
    let making = SessionMakingArgs {
        probing: args.probing,
        ..SessionMakingArgs::default()
    };
    let target = target(args.target)?;
    let mut create = create(target, &making, args.scope, Some(FREQUENCY_HZ), OWN_LEASE)?;
    create.explain = true;
    Ok(Explain {
        session: SessionChoice::Make(create),
        duration: args.duration.0,
        number: usize::try_from(args.number).unwrap_or(usize::MAX),
        json: args.json,
        color: args.color,
    })
}
