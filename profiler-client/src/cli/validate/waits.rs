//! What `waits` is asked for.

use super::{
    super::{
        args::WaitsArgs,
        exit::Failure,
        request::{SessionChoice, Waits},
    },
    session::watched,
};

pub(super) fn waits(args: WaitsArgs) -> Result<Waits, Failure> {
    let mut session = watched(args.session, args.target, args.scope, args.probing, &args.symbols)?;
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
