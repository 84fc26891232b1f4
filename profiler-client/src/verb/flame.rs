//! `profiler flame`.

use std::time::Duration;

use profiler_export::{Profile, firefox, otlp, perf_script, pprof, speedscope};
use profiler_proto::{limits::EVENTS_WITH_OWN_WEIGHT, v1};

use super::{
    imported::{self, Imported},
    interruptible, target,
};
use crate::{
    attached::{Attached, Owned},
    cli::{
        duration::to_proto,
        request::{Flame, FlameFormat, Host, Sides},
        validate::require_predicate,
    },
    collector::{Collector, Signal},
    connect::connect,
    debuginfod::{Names, Settings, Worker},
    failure::Failure,
    output::{Output, Progress, note, warnings},
    render::{
        self, escape,
        escape::terminal,
        profile,
        svg::{self, About},
        threshold, units,
    },
    state::{
        flame::FlameState,
        rename::rename,
        shape::{Around, Shape},
        times::{ACTIVITIES, times},
        unresolved,
    },
    stop::Stop,
    view::View,
    watch::Run,
};

/// Time between messages; only the last one is written, the others are progress.
const INTERVAL: Duration = Duration::from_secs(1);

/// Rates of calls whose ratio is closer to one than this are taken for the same load.
const LIKE_LOAD: f64 = 0.8;

/// How long a user who asked to stop waits for debug information that is on its way.
const AFTER_STOP: Duration = Duration::from_secs(3);

/// Runs it.
pub async fn run(host: &Host, request: Flame, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let open = if request.format.is_binary() {
        Output::open_binary
    } else {
        Output::open
    };
    let output = open(request.output.as_deref())?;
    let collector = Collector::connect_if(request.otlp.as_ref(), Signal::Profiles);
    let collector = interruptible(&mut stop, collector).await?;
    if let Some(Imported { state, about }) = imported::open(host, &request)? {
        let state = shaped(state, &request);
        write(output, &state, &request, &about)?;
        say(&request, &imported::describe(&state, &about));
        return send(collector.as_ref(), &state, &request, &about).await;
    }
    let event = request.event.clone().unwrap_or_default();
    let (attached, target, stream) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        // A running session's scope is known only now.
        if attached.session.recorded_before.is_none() {
            require_predicate(request.sides, &attached.session.scope)?;
        }
        let watch = v1::WatchFlameRequest {
            session: attached.session.name.clone(),
            interval: Some(to_proto(INTERVAL)),
            over: request.over.into(),
            difference: request.sides == Sides::Difference,
            by: request.by.into(),
            times: request.times.into(),
            waits: request.waits,
            unique: request.unique,
            event: event.name,
            period: event.period,
            frequency_hz: event.frequency_hz,
        };
        let stream = View::open(&connection, &attached.session, watch).await?;
        let target = target::label(&connection, &attached.session).await;
        Ok((attached, target, stream))
    })
    .await?;
    warnings(&attached.session.warnings);

    let mut state = FlameState::default();
    let mut debuginfod = Worker::start(Settings::from_environment())
        .map_err(|error| Failure::failed(format!("Cannot start a thread: {error}.")))?;
    let mut interrupted = stop.clone();
    let prints_json = request.format == FlameFormat::Json && request.output.is_none();
    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(prints_json);
    let began = run.began;
    let ended = {
        let mut progress = Progress::default();
        run.watch(stream, |message| {
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(debuginfod) = &mut debuginfod {
                debuginfod.want(state.frames.values());
            }
            progress.show(&describe(
                &state,
                request.sides,
                attached.elapsed(began),
                request.duration,
            ));
            Ok(())
        })
        .await?
    };

    let mut exported = Ok(());
    if state.started {
        let about = About {
            target,
            elapsed: attached.elapsed(began),
        };
        if let Some(debuginfod) = debuginfod {
            let names = wait_for(debuginfod, &mut interrupted).await;
            name(&mut state, names);
        }
        state = shaped(state, &request);
        write(output, &state, &request, &about)?;
        let run = describe(&state, request.sides, about.elapsed, None) + &not_resolved(&state);
        if let Some(before) = &state.before {
            compare(&state, before, &attached.session);
        }
        say(&request, &run);
        exported = send(collector.as_ref(), &state, &request, &about).await;
        warn_of_too_many(&state, attached.session.recorded.is_some());
    }
    ended.with_export(state.started, exported)
}

/// Says how events are taken evenly, where some are missing because there were too many.
fn warn_of_too_many(state: &FlameState, is_recorded: bool) {
    let lost = state.summary.lost.get("event_rate_limit");
    if lost.is_some_and(|lost| *lost > 0) {
        let instead = instead_of_each(&state.event, is_recorded);
        note(&format!(
            "warning: there were too many events to sample each one, and some are missing: {instead}."
        ));
    }
}

/// What can be done where an event happens too often to sample each one.
fn instead_of_each(event: &str, is_recorded: bool) -> String {
    if EVENTS_WITH_OWN_WEIGHT.contains(&event) {
        return "a narrower scope has fewer".to_owned();
    }
    let evenly = if is_recorded {
        format!("`record --costs {}/period=N/`", terminal(event))
    } else {
        "-c N".to_owned()
    };
    format!("{evenly} samples every Nth, evenly")
}

/// What of the stacks is drawn.
fn shaped(state: FlameState, request: &Flame) -> FlameState {
    if request.shape.is_plain() {
        return state;
    }
    let shaped = request.shape.of(&state);
    if let Some(words) = left_out(&state, &shaped, &request.shape) {
        note(&words);
    }
    shaped
}

/// What flags leave out of a view; `None` where that is nothing.
fn left_out(all: &FlameState, shown: &FlameState, shape: &Shape) -> Option<String> {
    let (all_ns, shown_ns) = (all.inside(), shown.inside());
    if shown_ns >= all_ns {
        return None;
    }
    let around = shape.around.as_ref().map(|around| {
        let flag = match around {
            Around::Callees(_) => "--callees",
            Around::Callers(_) => "--callers",
        };
        (flag, around.functions())
    });
    if let Some((flag, functions)) = around
        && !all
            .frames
            .values()
            .any(|frame| functions.matches(&frame.function))
    {
        return Some(format!(
            "{flag}: no function that was sampled matches `{}`, and nothing is drawn",
            terminal(functions.text())
        ));
    }
    let flags = [
        (!shape.threads.is_empty()).then_some("--thread"),
        (!shape.hide.is_empty()).then_some("--hide"),
        around.map(|(flag, _)| flag),
    ];
    let flags: Vec<&str> = flags.into_iter().flatten().collect();
    let (last, others) = flags.split_last()?;
    let (names, leave) = if others.is_empty() {
        ((*last).to_owned(), "leaves")
    } else {
        (format!("{} and {last}", others.join(", ")), "leave")
    };
    let share = units::percent(units::ratio(shown_ns, all_ns));
    Some(format!("{names} {leave} {share} of it"))
}

/// Sends what was drawn to a collector, if there is one.
async fn send(
    collector: Option<&Collector>,
    state: &FlameState,
    request: &Flame,
    about: &About,
) -> Result<(), Failure> {
    let Some(collector) = collector else { return Ok(()) };
    let profile = stacks(state, request, about);
    collector.send_profiles(&otlp::encoded_profiles(&profile)).await?;
    let stacks = units::count(profile.stacks.len() as u64);
    note(&format!("{}: {stacks} stacks sent", collector.url()));
    Ok(())
}

/// Says what was drawn.
fn say(request: &Flame, run: &str) {
    match &request.output {
        Some(path) => note(&format!("{} written: {run}", terminal(&path.to_string_lossy()))),
        None => note(run),
    }
}

/// What debuginfod servers know of functions that the daemon could not name. A user who asks to stop gets the result
/// soon, without what has not come.
async fn wait_for(debuginfod: Worker, stop: &mut Stop) -> Names {
    let stopped = async {
        stop.requested().await;
        tokio::time::sleep(AFTER_STOP).await;
    };
    tokio::select! {
        names = debuginfod.finish() => names,
        () = stopped => {
            note("warning: some debug information did not arrive in time: the next run asks for it again.");
            Names::default()
        }
    }
}

fn name(state: &mut FlameState, mut names: Names) {
    if !names.is_empty() {
        let by = state.by;
        rename(state, |frame| names.of(frame, by));
    }
}

/// What other tools' formats are made of.
fn stacks(state: &FlameState, request: &Flame, about: &About) -> Profile {
    let about = profile::About {
        target: &about.target,
        elapsed: about.elapsed,
    };
    profile::of(state, request.sides, &about)
}

fn write(output: Output, state: &FlameState, request: &Flame, about: &About) -> Result<(), Failure> {
    let stacks = || stacks(state, request, about);
    let text = match request.format {
        FlameFormat::Pprof => return output.write(pprof::write(&stacks())),
        FlameFormat::Firefox => return output.write(firefox::write(&stacks())),
        FlameFormat::PerfScript => {
            let stacks = stacks();
            return output.write_by(|mut out| perf_script::write(&stacks, &mut out));
        }
        FlameFormat::Speedscope => return output.write(speedscope::write(&stacks())),
        FlameFormat::Otlp => return output.write(otlp::encoded_profiles(&stacks())),
        FlameFormat::Text => render::tree::render(state, request.sides),
        FlameFormat::Folded => render::folded::render(state, request.sides),
        FlameFormat::Json => escape::ndjson(&render::json::flame(state, request.sides)).into_owned(),
        FlameFormat::Svg => svg::render(state, request.sides, about),
    };
    output.write(text)
}

/// The run so far, in a line.
fn describe(state: &FlameState, sides: Sides, elapsed: Duration, of: Option<Duration>) -> String {
    let summary = &state.summary;
    let mut text = units::duration(elapsed.as_nanos() as f64);
    if let Some(of) = of {
        text.push_str(&format!(" of {}", units::duration(of.as_nanos() as f64)));
    }
    if !state.unit.is_empty() {
        let weight = |weight: &v1::NodeWeight| match sides {
            Sides::Inside => weight.inside_ns,
            Sides::Outside => weight.outside_ns,
            Sides::Difference => weight.inside_ns.saturating_add(weight.outside_ns),
        };
        let drawn = state.weights.values().map(weight).sum();
        text.push_str(&format!(", {} drawn", units::weight(drawn, &state.unit)));
    }
    text.push_str(&format!(", {} samples", units::count(summary.samples)));
    if let Some(pace) = state.pace {
        text.push_str(&format!(" ({})", pace.words(units::count)));
    }
    if state.before.is_some() {
        let (after, before) = (units::count(summary.inside), units::count(summary.outside));
        text.push_str(&format!(", {after} drawn of after and {before} of before"));
    } else if !state.scope.is_empty() {
        text.push_str(&format!(", {} inside", units::count(summary.inside)));
    }
    // What is complete is known of the samples on either side.
    let drawn = summary.inside.saturating_add(summary.outside);
    if drawn > 0 {
        let complete = units::ratio(drawn.saturating_sub(summary.incomplete), drawn);
        text.push_str(&format!(", {} of stacks complete", units::percent(complete)));
    }
    let activities = activities(state, sides);
    if !activities.is_empty() {
        text.push_str(&format!(", {activities}"));
    }
    let threshold = threshold::describe(&state.scope, summary);
    if !threshold.is_empty() {
        text.push_str(&format!(", {threshold}"));
    }
    text
}

/// Says in which respects two recordings are not alike that are compared.
fn compare(state: &FlameState, before: &v1::FlameSummary, session: &v1::Session) {
    let of_calls = threshold::describe(&state.scope, before);
    if !of_calls.is_empty() {
        note(&format!("before: {of_calls}"));
    }
    let seconds = |length: &Option<prost_types::Duration>| {
        let length = length.as_ref()?;
        Duration::try_from(*length)
            .ok()
            .map(|length| length.as_secs_f64())
    };
    let (Some(after_s), Some(before_s)) = (seconds(&session.recorded), seconds(&session.recorded_before))
    else {
        return;
    };
    let rate = |calls: f64, seconds: f64| if seconds > 0.0 { calls / seconds } else { 0.0 };
    let (after, before) = (rate(state.summary.calls, after_s), rate(before.calls, before_s));
    let (least, most) = (after.min(before), after.max(before));
    if most > 0.0 && least < most * LIKE_LOAD {
        note(&format!(
            "warning: the load differed: {} calls a second, before {}; shares are compared, not times.",
            units::number(after),
            units::number(before)
        ));
    }
}

/// What threads did in the time that is drawn, where that is time off the CPU too.
fn activities(state: &FlameState, sides: Sides) -> String {
    if matches!(state.times, v1::Times::Unspecified | v1::Times::OnCpu) {
        return String::new();
    }
    let times = times(state).map(|(inside_ns, outside_ns)| {
        if sides == Sides::Outside {
            outside_ns
        } else {
            inside_ns
        }
    });
    let all_ns: u64 = times.iter().sum();
    let shares: Vec<String> = ACTIVITIES
        .into_iter()
        .zip(times)
        .filter(|(_, time_ns)| *time_ns > 0)
        .map(|(activity, time_ns)| {
            let share = units::percent(units::ratio(time_ns, all_ns));
            format!("{share} {}", activity.replace("on_cpu", "on the CPU"))
        })
        .collect();
    shares.join(", ")
}

/// How many samples have functions that are not known, and why.
fn not_resolved(state: &FlameState) -> String {
    let samples = unresolved::samples(state);
    let total: u64 = samples.values().sum();
    if total == 0 {
        return String::new();
    }
    let reasons: Vec<String> = samples
        .iter()
        .map(|(reason, samples)| format!("{}: {}", terminal(reason), units::count(*samples)))
        .collect();
    format!(
        ", {} with functions that are not known ({})",
        units::count(total),
        reasons.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{shape::Patterns, tree::tests::sample};

    #[test]
    fn flags_that_leave_something_out_are_named_and_no_others() {
        let all = sample();
        let said = |shape: &Shape| left_out(&all, &shape.of(&all), shape).unwrap_or_default();
        let callees = |names: &str| Shape {
            around: Some(Around::Callees(Patterns::read(names))),
            ..Shape::default()
        };
        assert_eq!(said(&Shape::default()), "");
        assert_eq!(said(&callees("handle")), "--callees leaves 90.0% of it");
        let without_fast_path = Shape {
            hide: Patterns::read("fast_path"),
            ..callees("handle")
        };
        assert_eq!(said(&without_fast_path), "--hide and --callees leave 80.0% of it");
        assert_eq!(
            said(&callees("no_such_function")),
            "--callees: no function that was sampled matches `no_such_function`, and nothing is drawn"
        );
    }

    #[test]
    fn what_is_advised_where_there_are_too_many_events_is_accepted() {
        assert_eq!(
            instead_of_each("page-faults", false),
            "-c N samples every Nth, evenly"
        );
        assert_eq!(
            instead_of_each("page-faults", true),
            "`record --costs page-faults/period=N/` samples every Nth, evenly"
        );
        // Each comes with a weight of its own, and a period is refused.
        for event in ["memory-growth", "block-bytes", "block-latency"] {
            assert_eq!(
                instead_of_each(event, false),
                "a narrower scope has fewer",
                "{event}"
            );
        }
    }
}
