//! What `record` is asked for.

use std::time::Duration;

use profiler_proto::v1;
use profiler_scope::{Bound, Comparison, Predicate};

use super::{
    super::{
        args::{OwnArgs, RecordArgs, SessionMakingArgs},
        duration::to_proto,
        events, print_list,
        request::{Keep, On, Record, SessionChoice},
    },
    session::{OWN_LEASE, absolute, create},
    target, timeline,
};
use crate::failure::Failure;

/// What is kept of the time before what is waited for.
const KEPT_BEFORE: Duration = Duration::from_mins(2);

fn on(text: &str) -> On {
    match text.trim() {
        "signal" => On::Signal,
        condition => On::Condition(condition.to_owned()),
    }
}

/// What `self` is asked for; its target is found out by the one who runs it.
pub(super) fn own(args: OwnArgs) -> Result<Record, Failure> {
    let making = SessionMakingArgs::default();
    let target = v1::Target::default();
    let scope = recorded_scope(args.scope, args.calls)?;
    Ok(Record {
        session: SessionChoice::Make(create(target, &making, scope, args.frequency, OWN_LEASE)?),
        duration: args.duration.map(|span| span.0),
        output: args.output,
        force: args.force,
        keep: Keep::default(),
        redact: args.redact,
        on: Vec::new(),
        more: v1::WatchRecordsRequest::default(),
        after: Duration::ZERO,
    })
}

/// The scope that is recorded, with each inner call where those are asked for.
fn recorded_scope(scope: Option<String>, calls: bool) -> Result<Option<String>, Failure> {
    match scope {
        Some(scope) if calls => Ok(Some(each_call(&scope)?)),
        None if calls => Err(no_calls_inside()),
        scope => Ok(scope),
    }
}

/// A scope whose inner calls are recorded one by one: what is known at the end of each call around them is asked for, and
/// given by all.
fn each_call(scope: &str) -> Result<String, Failure> {
    let Ok(mut parsed) = profiler_scope::parse(scope) else {
        // The daemon says what is wrong with it.
        return Ok(scope.to_owned());
    };
    let (_, outer) = parsed.steps.split_last_mut().ok_or_else(no_calls_inside)?;
    let mut outer: Vec<_> = outer.iter_mut().filter(|step| step.place.has_spans()).collect();
    if outer.is_empty() {
        return Err(no_calls_inside());
    }
    for step in &mut outer {
        if !step.asks_for_end() {
            step.predicates.push(Predicate {
                comparison: Comparison::GreaterOrEqual,
                bound: Bound::Duration(0),
            });
        }
    }
    Ok(parsed.to_string())
}

/// Whether what a scope ends with is reached, and is no call.
fn ends_with_line(scope: &str) -> bool {
    let parsed = profiler_scope::parse(scope).ok();
    let last = parsed.and_then(|mut parsed| parsed.steps.pop());
    last.is_some_and(|last| !last.place.has_spans())
}

fn no_calls_inside() -> Failure {
    Failure::usage(
        "--calls is for calls inside of others, as in 'handle_request/parse': all calls of a single step are counted, and any percentile can be asked for afterwards without it."
            .to_owned(),
    )
}

/// The counters over time that are recorded, if any are.
fn counters(args: &RecordArgs) -> Result<Option<v1::WatchTimelineRequest>, Failure> {
    let events: Vec<_> = args
        .over_time
        .events
        .iter()
        .flat_map(|list| list.0.clone())
        .collect();
    if !args.over_time.timeline && !args.over_time.threads && events.is_empty() {
        let without = "--step is the length of buckets of counters: give --timeline, or -e, with it.";
        return match args.over_time.step {
            Some(_) => Err(Failure::usage(without.to_owned())),
            None => Ok(None),
        };
    }
    Ok(Some(v1::WatchTimelineRequest {
        session: String::new(),
        counters: events::counters(&events).map_err(Failure::usage)?,
        step: Some(to_proto(timeline::step(args.over_time.step)?)),
        threads: args.over_time.threads,
    }))
}

pub(super) fn record(args: RecordArgs) -> Result<Record, Failure> {
    let counters = counters(&args)?;
    let session = if let Some(name) = args.session {
        if args.calls {
            return Err(Failure::usage(format!(
                "--calls cannot be added to the running session {name}: which calls are kept one by one is decided by its scope. Give the calls around the last step the condition [>= 0ns], as in 'scope set {name} handle_request[>= 0ns]/parse', and record the session without --calls; or record the process itself, with -p."
            )));
        }
        SessionChoice::Join(name)
    } else {
        let target = target(args.target)?;
        let scope = recorded_scope(args.scope, args.calls)?;
        let records_hits = args.hits.trace || args.hits.stack || !args.hits.print.is_empty();
        if records_hits && scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) {
            return Err(Failure::usage(
                "Say whose hits to record: a line or a function, e.g. `profiler record -p PID main.cc:1310 --print n -o FILE`.",
            ));
        }
        let is_of_hits = records_hits || scope.as_deref().is_some_and(ends_with_line);
        let mut create = create(target, &args.making, scope, args.frequency, OWN_LEASE)?;
        create.symbols = absolute(&args.symbols)?;
        if is_of_hits {
            create.capture = Some(v1::Capture {
                print: print_list::join(args.hits.print)?,
                hits_per_second: args.hits.limit,
                stack: args.hits.stack,
            });
        }
        SessionChoice::Make(create)
    };
    let on: Vec<On> = args.on.iter().map(|text| on(text)).collect();
    let is_kept_whole = args.max_size.is_none() && args.max_age.is_none();
    let before = (!on.is_empty() && is_kept_whole).then_some(KEPT_BEFORE);
    Ok(Record {
        session,
        duration: args.duration.map(|span| span.0),
        output: args.output,
        force: args.force,
        keep: Keep {
            max_bytes: args.max_size.map(|size| size.0),
            max_age: args.max_age.map(|span| span.0).or(before),
        },
        redact: args.redact,
        on,
        more: v1::WatchRecordsRequest {
            session: String::new(),
            counters,
            waits: args.more.waits,
            syscalls: args.more.syscalls,
            off_cpu: args.more.off_cpu,
            events: (args.more.costs.into_iter().flat_map(|list| list.0))
                .map(|event| v1::RecordedEvent {
                    name: event.name,
                    period: event.period,
                    frequency_hz: event.frequency_hz,
                })
                .collect(),
        },
        after: args.after.0,
    })
}
