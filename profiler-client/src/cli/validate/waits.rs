//! What `waits` is asked for.

use super::{
    super::{
        args::{SessionMakingArgs, WaitsArgs},
        exit::Failure,
        request::{SessionChoice, Waits},
    },
    session::{OWN_LEASE, absolute, create},
    target,
};

pub(super) fn waits(args: WaitsArgs) -> Result<Waits, Failure> {
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
    Ok(Waits {
        session,
        duration: args.duration.map(|span| span.0),
        json: args.json,
        color: args.color,
    })
}
