//! What `waits` is asked for.

use super::{
    super::{
        args::WaitsArgs,
        request::{SessionChoice, Waits},
    },
    session::{recorded, watched},
};
use crate::failure::Failure;

pub(super) fn waits(args: WaitsArgs) -> Result<Waits, Failure> {
    let is_recorded = args.recording.from.is_some();
    if is_recorded && args.allocations {
        return Err(Failure::usage(
            "Recordings do not hold allocations: leave --allocations out.",
        ));
    }
    let mut session = match recorded(&args.recording, args.scope.as_ref())? {
        Some(session) => session,
        None => watched(args.session, args.target, args.scope, args.probing, &args.symbols)?,
    };
    if let SessionChoice::Make(create) = &mut session {
        create.allocations = args.allocations;
    }
    Ok(Waits {
        session,
        duration: args.duration.map(|span| span.0),
        json: args.json,
        color: args.color,
    })
}
