//! What `syscalls` is asked for.

use profiler_proto::v1;

use super::{
    super::{
        args::{CallersBy, SessionMakingArgs, SyscallsArgs},
        exit::Failure,
        request::{SessionChoice, Syscalls},
    },
    session::{OWN_LEASE, absolute, create},
    target,
};

pub(super) fn syscalls(args: SyscallsArgs) -> Result<Syscalls, Failure> {
    let session = if let Some(name) = args.session {
        SessionChoice::Join(name)
    } else {
        let making = SessionMakingArgs {
            exit: args.exit,
            ..SessionMakingArgs::default()
        };
        let target = target(args.target)?;
        let mut create = create(target, &making, args.scope, None, OWN_LEASE);
        create.symbols = absolute(&args.symbols)?;
        SessionChoice::Make(create)
    };
    Ok(Syscalls {
        session,
        duration: args.duration.map(|span| span.0),
        by: match args.by {
            CallersBy::Function => v1::Grouping::Function,
            CallersBy::Line => v1::Grouping::Line,
            CallersBy::Module => v1::Grouping::Module,
        },
        json: args.json,
        color: args.color,
    })
}
