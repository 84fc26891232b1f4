//! What `top` is asked for.

use super::{
    super::{
        args::TopArgs,
        exit::Failure,
        request::{SessionChoice, Top},
    },
    session::{OWN_LEASE, create},
    target,
};

pub(super) fn top(args: TopArgs) -> Result<Top, Failure> {
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None => SessionChoice::Make(create(
            target(args.target)?,
            &args.making,
            args.scope,
            args.frequency,
            OWN_LEASE,
        )?),
    };
    Ok(Top {
        session,
        number: usize::try_from(args.number).unwrap_or(usize::MAX),
        sort: args.sort,
        duration: args.duration.map(|span| span.0),
        json: args.json,
        color: args.color,
    })
}
