//! What `spans` is asked for.

use profiler_proto::v1;

use super::{
    super::{
        args::{SessionMakingArgs, SpansArgs},
        print_list,
        request::{SessionChoice, Spans},
    },
    RECORDED_VALUES,
    endings::{EVENTS, export},
    session::{OWN_LEASE, absolute, create},
    target, target_or_recording,
};
use crate::failure::Failure;

pub(super) fn spans(args: SpansArgs) -> Result<Spans, Failure> {
    let export = export(args.output, args.format, args.json, &EVENTS)?;
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None if args.recording.from.is_some() => {
            if !args.print.is_empty() {
                return Err(Failure::usage(RECORDED_VALUES));
            }
            let target = target_or_recording(args.target, &args.recording)?;
            let making = SessionMakingArgs::default();
            SessionChoice::Make(create(target, &making, args.scope, None, OWN_LEASE)?)
        }
        None if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) => {
            return Err(Failure::usage(
                "Say whose slowest calls to show: a function, a glob or a scope, e.g. `profiler spans -p PID handle_request`.",
            ));
        }
        None => {
            let making = SessionMakingArgs {
                window: args.window,
                probing: args.probing,
                ..SessionMakingArgs::default()
            };
            let target = target(args.target)?;
            let mut create = create(target, &making, args.scope, args.frequency, OWN_LEASE)?;
            create.symbols = absolute(&args.symbols)?;
            create.allocations = args.allocations;
            let print = print_list::join(args.print)?;
            create.capture = (!print.is_empty()).then_some(v1::Capture {
                print,
                hits_per_second: args.limit,
                stack: false,
            });
            SessionChoice::Make(create)
        }
    };
    Ok(Spans {
        session,
        number: args.number,
        waits: args.shown.waits,
        system_calls: args.shown.syscalls,
        duration: args.duration.map(|span| span.0),
        export,
        json: args.json,
        color: args.color,
    })
}
