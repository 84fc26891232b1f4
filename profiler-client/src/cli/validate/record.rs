//! What `record` is asked for.

use super::{
    super::{
        args::RecordArgs,
        exit::Failure,
        request::{Record, SessionChoice},
    },
    session::{OWN_LEASE, absolute, create},
    target,
};

pub(super) fn record(args: RecordArgs) -> Result<Record, Failure> {
    let session = if let Some(name) = args.session {
        SessionChoice::Join(name)
    } else {
        let target = target(args.target)?;
        let mut create = create(target, &args.making, args.scope, args.frequency, OWN_LEASE)?;
        create.symbols = absolute(&args.symbols)?;
        SessionChoice::Make(create)
    };
    Ok(Record {
        session,
        duration: args.duration.map(|span| span.0),
        output: args.output,
        force: args.force,
    })
}
