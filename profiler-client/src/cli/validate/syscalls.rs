//! What `syscalls` is asked for.

use profiler_proto::v1;

use super::{
    super::{
        args::{CallersBy, SyscallsArgs},
        request::Syscalls,
    },
    session::{recorded, watched},
};
use crate::failure::Failure;

pub(super) fn syscalls(args: SyscallsArgs) -> Result<Syscalls, Failure> {
    let session = match recorded(&args.recording, args.scope.as_ref())? {
        Some(session) => session,
        None => watched(args.session, args.target, args.scope, args.probing, &args.symbols)?,
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
