//! What `timeline` is asked for.

use std::time::Duration;

use super::{
    super::{args::TimelineArgs, events, exit::Failure, request::Timeline},
    session::watched,
};

/// Length of a bucket where none is asked for.
const STEP: Duration = Duration::from_millis(100);

/// What is drawn on a screen where nothing else is asked for.
const RANGE: Duration = Duration::from_mins(1);

pub(super) fn timeline(args: TimelineArgs) -> Result<Timeline, Failure> {
    let events: Vec<_> = args.events.into_iter().flat_map(|list| list.0).collect();
    let counters = events::counters(&events).map_err(Failure::usage)?;
    let step = args.step.map_or(STEP, |span| span.0);
    if !(Duration::from_millis(10)..=Duration::from_hours(1)).contains(&step) {
        return Err(Failure::usage("--step is from 10 ms to an hour"));
    }
    if let Some(output) = &args.output
        && !output
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
    {
        return Err(Failure::usage(format!(
            "a timeline is written as SVG: {} does not end with .svg",
            output.display()
        )));
    }
    let session = watched(args.session, args.target, args.scope, args.exit, &args.symbols)?;
    let of_file = if args.output.is_some() {
        Duration::MAX
    } else {
        RANGE
    };
    Ok(Timeline {
        session,
        events,
        counters,
        step,
        rolling: args.rolling.map_or(Duration::ZERO, |span| span.0),
        range: args.range.map_or(of_file, |span| span.0),
        threads: args.threads,
        duration: args.duration.map(|span| span.0),
        output: args.output,
        json: args.json,
        color: args.color,
    })
}
