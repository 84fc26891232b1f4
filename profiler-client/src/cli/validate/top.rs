//! What `top` is asked for.

use super::{
    super::{
        args::{FromArgs, TopArgs},
        request::{SessionChoice, Top},
    },
    session::{OWN_LEASE, create},
    target_or_recording,
};
use crate::failure::Failure;

pub(super) fn top(args: TopArgs) -> Result<Top, Failure> {
    let recording = FromArgs {
        from: args.from,
        time: args.time,
    };
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None => SessionChoice::Make(create(
            target_or_recording(args.target, &recording)?,
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
