//! What `timeline` is asked for.

use std::time::Duration;

use super::{
    super::{
        args::{TimelineArgs, TimelineFormat},
        duration::Span,
        events,
        request::Timeline,
    },
    endings::export,
    session::{recorded, watched},
};
use crate::failure::Failure;

/// Length of a bucket where none is asked for.
const STEP: Duration = Duration::from_millis(100);

/// What is drawn on a screen where nothing else is asked for.
const RANGE: Duration = Duration::from_mins(1);

/// What files of a format end in.
const ENDINGS: [(&str, TimelineFormat); 5] = [
    (".svg", TimelineFormat::Svg),
    (".pftrace", TimelineFormat::Perfetto),
    (".perfetto-trace", TimelineFormat::Perfetto),
    (".trace.json", TimelineFormat::Chrome),
    (".firefox.json", TimelineFormat::Firefox),
];

/// The length of a bucket.
pub(super) fn step(asked: Option<Span>) -> Result<Duration, Failure> {
    let step = asked.map_or(STEP, |span| span.0);
    if !(Duration::from_millis(10)..=Duration::from_hours(1)).contains(&step) {
        return Err(Failure::usage("--step is from 10 ms to an hour"));
    }
    Ok(step)
}

pub(super) fn timeline(args: TimelineArgs) -> Result<Timeline, Failure> {
    let events: Vec<_> = args.events.into_iter().flat_map(|list| list.0).collect();
    let counters = events::counters(&events).map_err(Failure::usage)?;
    let step = step(args.step)?;
    let export = export(args.output, args.format, args.json, &ENDINGS)?;
    let session = match recorded(&args.recording, args.scope.as_ref())? {
        Some(session) => session,
        None => watched(args.session, args.target, args.scope, args.probing, &args.symbols)?,
    };
    let of_file = if export.is_some() { Duration::MAX } else { RANGE };
    Ok(Timeline {
        session,
        events,
        counters,
        step,
        rolling: args.rolling.map_or(Duration::ZERO, |span| span.0),
        range: args.range.map_or(of_file, |span| span.0),
        threads: args.threads,
        duration: args.duration.map(|span| span.0),
        export,
        json: args.json,
        color: args.color,
    })
}
