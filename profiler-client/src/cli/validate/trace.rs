//! What `trace` is asked for.

use profiler_proto::v1;

use super::{
    super::{
        args::{SessionMakingArgs, TraceArgs},
        print_list,
        request::{SessionChoice, Trace},
    },
    endings::{EVENTS, export},
    session::{OWN_LEASE, create},
    target, target_or_recording,
};
use crate::failure::Failure;

pub(super) fn trace(args: TraceArgs) -> Result<Trace, Failure> {
    let export = export(args.output, args.format, args.json, &EVENTS)?;
    if let Some(name) = args.session {
        return Ok(Trace {
            session: SessionChoice::Join(name),
            duration: args.duration.map(|span| span.0),
            export,
            json: args.json,
            color: args.color,
        });
    }
    if args.recording.from.is_some() {
        if args.stack || !args.print.is_empty() {
            return Err(Failure::usage(
                "A recording has the values and stacks that it was made with (`profiler record --print … --stack`): leave --print and --stack out.",
            ));
        }
        let target = target_or_recording(args.target, &args.recording)?;
        let making = SessionMakingArgs::default();
        return Ok(Trace {
            session: SessionChoice::Make(create(target, &making, args.scope, None, OWN_LEASE)?),
            duration: None,
            export,
            json: args.json,
            color: args.color,
        });
    }
    if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) {
        return Err(Failure::usage(
            "Say what to trace: a line or a function, e.g. `profiler trace -p PID main.cc:1310 --print n`.",
        ));
    }
    let print = print_list::join(args.print)?;
    let making = SessionMakingArgs {
        probing: args.probing,
        ..SessionMakingArgs::default()
    };
    let mut create = create(target(args.target)?, &making, args.scope, None, OWN_LEASE)?;
    create.capture = Some(v1::Capture {
        print,
        hits_per_second: args.limit,
        stack: args.stack,
    });
    Ok(Trace {
        session: SessionChoice::Make(create),
        duration: args.duration.map(|span| span.0),
        export,
        json: args.json,
        color: args.color,
    })
}
