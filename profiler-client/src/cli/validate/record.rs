//! What `record` is asked for.

use super::{
    super::{
        args::RecordArgs,
        exit::Failure,
        request::{Keep, Record, SessionChoice},
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
        keep: Keep {
            max_bytes: args.max_size.map(|size| size.0),
            max_age: args.max_age.map(|span| span.0),
        },
    })
}
