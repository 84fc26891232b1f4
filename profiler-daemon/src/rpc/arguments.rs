//! Requests, parsed once into values that cannot be wrong.

use std::collections::{BTreeSet, HashSet};

use profiler_aggregate::Over;
use profiler_common::values::MAX_VALUES;
use profiler_proto::{
    limits::{MAX_FREQUENCY_HZ, MAX_PERIOD},
    v1,
};
use profiler_scope::expression::{self, Expression};
use profiler_symbolize::Grouping;
use tonic::Request;

use super::peer::Peer;
use crate::{
    kernel::{Event, Pace},
    session::{
        AskedPace, Caller, Capture, DEFAULT_BUDGET, Estimated, ExitMethod, FlameTimes, Looks,
        MAX_RECORDED_EVENTS, NewSession, Purpose, Reason, RecordedTime, ScopeEdit, SessionError, SessionName,
        TargetSpec, unknown_event,
    },
};

const DEFAULT_FREQUENCY_HZ: u32 = 99;
const DEFAULT_HITS_PER_SECOND: u32 = 1_000;
const MAX_HITS_PER_SECOND: u32 = 100_000;
const MAX_NAME_BYTES: usize = 64;
const SECOND_NS: u64 = 1_000_000_000;

/// Who asks: the user on the other end of the socket.
///
/// # Errors
/// Where the connection does not say who that is, or where it is root by its number alone.
pub fn caller<T>(request: &Request<T>) -> Result<Caller, SessionError> {
    let refuse = |message: &str| Err(SessionError::new(Reason::PermissionDenied, message));
    match request.extensions().get::<Peer>() {
        Some(Peer::User(caller)) => Ok(*caller),
        Some(Peer::RootByNumber) => refuse(
            "your process is root's without all of the daemon's capabilities, as a container's root is: ask as the \
             machine's root, or as another user",
        ),
        None => refuse("the connection does not say which user it belongs to"),
    }
}

/// An edit of a scope.
pub fn edit(edit: Option<v1::edit_scope_request::Edit>) -> Result<ScopeEdit, SessionError> {
    use v1::edit_scope_request::Edit;
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    match edit {
        Some(Edit::Append(text)) => Ok(ScopeEdit::Append(text)),
        Some(Edit::Drop(steps)) => Ok(ScopeEdit::Drop(count(steps))),
        Some(Edit::Undo(edits)) => Ok(ScopeEdit::Undo(count(edits))),
        None => Err(invalid(
            "the edit is missing: append steps, drop steps, or undo edits",
        )),
    }
}

/// What is estimated instead of done.
pub fn estimated(request: Option<v1::estimate_scope_request::Request>) -> Result<Estimated, SessionError> {
    use v1::estimate_scope_request::Request;
    match request {
        Some(Request::Create(create)) => Ok(Estimated::New(Box::new(new_session(*create)?))),
        Some(Request::Set(v1::SetScopeRequest { name: text, scope })) => Ok(Estimated::Edit {
            name: name(text)?,
            edit: ScopeEdit::Set(scope),
        }),
        Some(Request::Edit(v1::EditScopeRequest {
            name: text,
            edit: wanted,
        })) => Ok(Estimated::Edit {
            name: name(text)?,
            edit: edit(wanted)?,
        }),
        None => Err(invalid("say what to estimate: a new session, or an edit of one")),
    }
}

/// What is wrong with an argument.
pub fn invalid(message: impl Into<String>) -> SessionError {
    SessionError::new(Reason::ArgumentInvalid, message)
}

/// What to look at.
pub fn target(target: Option<v1::Target>) -> Result<TargetSpec, SessionError> {
    match target.and_then(|target| target.target) {
        Some(v1::target::Target::Pid(0)) | None => {
            Err(invalid("no target is given: set a PID or an executable"))
        }
        Some(v1::target::Target::Pid(pid)) => Ok(TargetSpec::Pid(pid)),
        Some(v1::target::Target::Processes(v1::Processes { pids })) => each_of(pids),
        Some(v1::target::Target::Executable(name)) if name.is_empty() => {
            Err(invalid("the executable's name is empty"))
        }
        Some(v1::target::Target::Executable(name)) => Ok(TargetSpec::Executable(name)),
        Some(v1::target::Target::Recording(time)) => Ok(TargetSpec::Recording(recorded_time(time)?)),
        Some(v1::target::Target::Comparison(comparison)) => {
            let v1::RecordedComparison { after, before } = *comparison;
            Ok(TargetSpec::Comparison {
                after: recorded_time(after.unwrap_or_default())?,
                before: recorded_time(before.unwrap_or_default())?,
            })
        }
    }
}

/// Several processes, each once, in the order in which they are named.
fn each_of(mut pids: Vec<u32>) -> Result<TargetSpec, SessionError> {
    let mut named = HashSet::new();
    pids.retain(|pid| named.insert(*pid));
    match *pids {
        [] => Err(invalid("no target is given: the list of PIDs is empty")),
        _ if named.contains(&0) => Err(invalid("0 is not the PID of a process")),
        [pid] => Ok(TargetSpec::Pid(pid)),
        _ => Ok(TargetSpec::Each(pids)),
    }
}

/// The part of a recording that is looked at.
fn recorded_time(time: v1::RecordedTime) -> Result<RecordedTime, SessionError> {
    let v1::RecordedTime {
        begin_ns,
        end_ns,
        without_scope,
    } = time;
    let end_ns = if end_ns == 0 { u64::MAX } else { end_ns };
    if begin_ns >= end_ns {
        return Err(invalid("the time ends before it begins"));
    }
    Ok(RecordedTime {
        begin_ns,
        end_ns,
        without_scope,
    })
}

/// A duration between bounds; what is unset has a default.
pub fn duration_ns(
    what: &str,
    duration: Option<prost_types::Duration>,
    default_ns: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, SessionError> {
    let Some(duration) = duration else {
        return Ok(default_ns);
    };
    let ns = u64::try_from(duration.seconds)
        .ok()
        .and_then(|seconds| seconds.checked_mul(SECOND_NS))
        .and_then(|ns| ns.checked_add(u64::try_from(duration.nanos).ok()?));
    ns.filter(|ns| range.contains(ns)).ok_or_else(|| {
        let seconds = |ns: u64| ns as f64 / SECOND_NS as f64;
        invalid(format!(
            "{what} must be between {} s and {} s",
            seconds(*range.start()),
            seconds(*range.end())
        ))
    })
}

/// Time between the messages of a stream.
pub fn interval_ns(interval: Option<prost_types::Duration>) -> Result<u64, SessionError> {
    duration_ns(
        "the interval",
        interval,
        SECOND_NS,
        SECOND_NS / 20..=3600 * SECOND_NS,
    )
}

/// How long a target is sampled to estimate what a scope would cost; 0 for not at all.
pub fn sampled_ns(sampled: Option<prost_types::Duration>) -> Result<u64, SessionError> {
    duration_ns(
        "the time of sampling",
        sampled,
        Looks::SAMPLES.sampled_ns,
        0..=10 * SECOND_NS,
    )
}

/// The length of a bucket of a timeline.
pub fn step_ns(step: Option<prost_types::Duration>) -> Result<u64, SessionError> {
    duration_ns(
        "the step",
        step,
        SECOND_NS / 10,
        SECOND_NS / 100..=3600 * SECOND_NS,
    )
}

/// A session's name, as part of a request: with its user's number, where it is another's.
pub fn name(name: String) -> Result<String, SessionError> {
    match SessionName::split(&name) {
        Some((_, given)) => new_name(given.to_owned()).map(|_| name),
        None => new_name(name),
    }
}

/// The name of a new session; empty for one that is made up.
fn new_name(name: String) -> Result<String, SessionError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > MAX_NAME_BYTES || !name.chars().all(allowed) {
        return Err(invalid(format!(
            "a session's name has up to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`; another user's is UID/NAME"
        )));
    }
    Ok(name)
}

/// A new session.
pub fn new_session(request: v1::CreateSessionRequest) -> Result<NewSession, SessionError> {
    let exit_method = match request.exit_method() {
        v1::ExitMethod::Unspecified | v1::ExitMethod::Auto => None,
        v1::ExitMethod::Return => Some(ExitMethod::Return),
        v1::ExitMethod::Ret => Some(ExitMethod::Ret),
        // Not of functions, which are what it is asked for.
        v1::ExitMethod::SystemCall | v1::ExitMethod::KernelFunction | v1::ExitMethod::Never => {
            return Err(invalid("the exit method must be `return` or `ret`"));
        }
    };
    let v1::CreateSessionRequest {
        name: text,
        target: place,
        scope,
        frequency_hz,
        window,
        half_life,
        lease,
        exit_method: _,
        symbols: _,
        capture: wanted,
        explain,
        by,
        allocations,
        budget: share,
    } = request;
    if frequency_hz > MAX_FREQUENCY_HZ {
        return Err(invalid(format!(
            "the frequency must be at most {MAX_FREQUENCY_HZ} Hz"
        )));
    }
    let day = 24 * 3600 * SECOND_NS;
    let target = target(place)?;
    // Of a recording, those that it was recorded with.
    let (window_ns, half_life_ns) = match target {
        TargetSpec::Recording(_) | TargetSpec::Comparison { .. } => (0, 0),
        _ => (10 * SECOND_NS, 30 * SECOND_NS),
    };
    Ok(NewSession {
        name: new_name(text)?,
        target,
        scope,
        frequency_hz: if frequency_hz == 0 {
            DEFAULT_FREQUENCY_HZ
        } else {
            frequency_hz
        },
        window_ns: duration_ns("the window", window, window_ns, SECOND_NS..=day)?,
        half_life_ns: duration_ns("the half-life", half_life, half_life_ns, SECOND_NS..=day)?,
        lease_ns: duration_ns("the lease", lease, 60 * SECOND_NS, SECOND_NS..=day)?,
        exit_method,
        capture: recorded(wanted, by)?,
        explain,
        allocations,
        budget: budget(share)?,
    })
}

/// The share of a target's CPU time that probes may take; `None` for any.
fn budget(share: Option<f64>) -> Result<Option<f64>, SessionError> {
    match share {
        None => Ok(Some(DEFAULT_BUDGET)),
        Some(0.0) => Ok(None),
        Some(share) if share > 0.0 && share <= 1.0 => Ok(Some(share)),
        Some(share) => Err(invalid(format!("the budget {share} is not between 0 and 1"))),
    }
}

/// What is recorded, be it to be shown or to divide calls by.
fn recorded(wanted: Option<v1::Capture>, by: String) -> Result<Option<Capture>, SessionError> {
    if by.is_empty() {
        return wanted.map(capture).transpose();
    }
    if wanted.is_some() {
        return Err(invalid(
            "a session cannot both record hits and divide calls by a value: make two sessions",
        ));
    }
    Ok(Some(Capture {
        print: vec![expression(by)?],
        hits_per_second: MAX_HITS_PER_SECOND,
        stack: false,
        purpose: Purpose::Divided,
    }))
}

fn expression(text: String) -> Result<Expression, SessionError> {
    expression::parse(&text).map_err(|error| {
        SessionError::new(Reason::ExpressionInvalid, error.message.clone())
            .with("expression", text)
            .with("offset", error.offset.to_string())
    })
}

/// What is recorded of each hit.
fn capture(capture: v1::Capture) -> Result<Capture, SessionError> {
    let v1::Capture {
        print,
        hits_per_second,
        stack,
    } = capture;
    if print.len() > MAX_VALUES {
        return Err(invalid(format!(
            "at most {MAX_VALUES} values can be read at a place, not {}",
            print.len()
        )));
    }
    if hits_per_second > MAX_HITS_PER_SECOND {
        return Err(invalid(format!(
            "at most {MAX_HITS_PER_SECOND} hits a second can be recorded at a place"
        )));
    }
    Ok(Capture {
        print: print.into_iter().map(expression).collect::<Result<_, _>>()?,
        hits_per_second: if hits_per_second == 0 {
            DEFAULT_HITS_PER_SECOND
        } else {
            hits_per_second
        },
        stack,
        purpose: Purpose::Shown,
    })
}

/// What frames stand for.
pub fn grouping(by: v1::Grouping) -> Grouping {
    match by {
        v1::Grouping::Unspecified | v1::Grouping::Function => Grouping::Function,
        v1::Grouping::Line => Grouping::Line,
        v1::Grouping::Module => Grouping::Module,
        v1::Grouping::Thread => Grouping::Thread,
        v1::Grouping::Process => Grouping::Process,
    }
}

/// What the frames of system calls' callers stand for.
pub fn caller_grouping(by: v1::Grouping) -> Result<Grouping, SessionError> {
    match grouping(by) {
        by @ (Grouping::Function | Grouping::Line | Grouping::Module) => Ok(by),
        Grouping::Thread | Grouping::Process => Err(invalid(
            "system calls cannot be grouped by thread or process: choose FUNCTION, LINE or MODULE",
        )),
    }
}

/// Times or the event that a flame graph is drawn of, where they are said.
pub fn drawn(request: &v1::WatchFlameRequest) -> Result<Option<FlameTimes>, SessionError> {
    let times = match request.times() {
        v1::Times::Unspecified => None,
        v1::Times::OnCpu => Some(FlameTimes::OnCpu),
        v1::Times::OffCpu => Some(FlameTimes::OffCpu),
        v1::Times::Both => Some(FlameTimes::Both),
    };
    let pace = pace(request.period, request.frequency_hz)?;
    match (&*request.event, times, pace) {
        ("", times, None) => Ok(times),
        ("", _, Some(_)) => Err(invalid("a period or frequency needs an event")),
        (_, Some(_), _) => Err(invalid("a flame graph shows time or an event, not both")),
        (name, None, pace) => Ok(Some(FlameTimes::Event(event(name, pace, PaceFlags::OfFlame)?))),
    }
}

/// Whether it is said how often stacks are to be taken at an event that is drawn.
pub fn asked_pace(request: &v1::WatchFlameRequest) -> AskedPace {
    match (request.period, request.frequency_hz) {
        (0, 0) => AskedPace::LeftOut,
        _ => AskedPace::Given,
    }
}

/// The events whose stacks are recorded.
pub fn recorded_events(asked: &[v1::RecordedEvent]) -> Result<BTreeSet<Event>, SessionError> {
    if asked.len() > MAX_RECORDED_EVENTS {
        return Err(invalid(format!(
            "at most {MAX_RECORDED_EVENTS} events can be recorded: ask for fewer"
        )));
    }
    let mut events = BTreeSet::new();
    for asked in asked {
        let pace = pace(asked.period, asked.frequency_hz)?;
        let event = event(&asked.name, pace, PaceFlags::OfRecord)?;
        let is_other = |known: &&Event| known.is_of_the_name_of(event) && **known != event;
        if let Some(other) = events.iter().find(is_other) {
            let (other, pace) = (other.pace(), event.pace());
            return Err(invalid(format!(
                "`{event}` cannot be recorded in two ways, {other} and {pace}: leave one out"
            )));
        }
        events.insert(event);
    }
    Ok(events)
}

/// By which flags it was said how often stacks are to be taken at an event.
#[derive(Clone, Copy)]
enum PaceFlags {
    /// Those of `flame`: `-c` and `-F`.
    OfFlame,
    /// That of `record`: `--costs EVENT/period=N/`.
    OfRecord,
}

/// How often stacks are taken at an event, where that is said.
fn pace(period: u64, frequency_hz: u32) -> Result<Option<Pace>, SessionError> {
    Ok(match (period, frequency_hz) {
        (0, 0) => None,
        (period @ 1..=MAX_PERIOD, 0) => Some(Pace::Period(period)),
        (0, frequency_hz @ 1..=MAX_FREQUENCY_HZ) => Some(Pace::Frequency(frequency_hz)),
        (0, _) => {
            return Err(invalid(format!(
                "the frequency must be at most {MAX_FREQUENCY_HZ} Hz"
            )));
        }
        (_, 0) => return Err(invalid(format!("the period must be at most {MAX_PERIOD}"))),
        _ => return Err(invalid("an event has a period or a frequency, not both")),
    })
}

/// An event that stacks can be taken at so often.
fn event(name: &str, pace: Option<Pace>, flags: PaceFlags) -> Result<Event, SessionError> {
    let event = Event::parse(name, pace, DEFAULT_FREQUENCY_HZ).ok_or_else(|| unknown_event(name))?;
    if matches!(pace, Some(Pace::Frequency(_))) && !event.is_of_hardware() {
        let instead = match flags {
            PaceFlags::OfFlame => "leave -F out, or sample every Nth event (-c N)".to_owned(),
            PaceFlags::OfRecord => {
                format!("write --costs {event} for each event, or --costs {event}/period=N/ for every Nth")
            }
        };
        return Err(invalid(format!(
            "`{event}` comes in bursts, which a sampling frequency would misrepresent: {instead}"
        )));
    }
    if pace.is_some() && event.has_own_weight() {
        let instead = match flags {
            PaceFlags::OfFlame => "leave period and frequency (-c, -F) out".to_owned(),
            PaceFlags::OfRecord => format!("write --costs {event}"),
        };
        return Err(invalid(format!(
            "every `{event}` event is recorded with its own weight: {instead}"
        )));
    }
    Ok(event)
}

/// Which of the three histograms a picture is drawn of.
pub fn over(over: v1::Over) -> Over {
    match over {
        v1::Over::Unspecified | v1::Over::Start => Over::Start,
        v1::Over::Window => Over::Window,
        v1::Over::Ewma => Over::Ewma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clients_know_what_probes_may_always_take() {
        let (ours, theirs) = (
            crate::session::ALWAYS_ALLOWED,
            profiler_proto::limits::ALWAYS_ALLOWED,
        );
        assert!((ours - theirs).abs() < f64::EPSILON);
    }

    proptest! {
        #[test]
        fn a_duration_is_within_its_range_or_refused(seconds: i64, nanos: i32) {
            let duration = prost_types::Duration { seconds, nanos };
            if let Ok(ns) = interval_ns(Some(duration)) {
                prop_assert!((50_000_000..=3_600_000_000_000).contains(&ns));
            }
        }
    }

    #[test]
    fn several_processes_count_once_each() {
        let of = |pids: &[u32]| {
            let processes = v1::Processes { pids: pids.to_vec() };
            target(Some(v1::Target {
                target: Some(v1::target::Target::Processes(processes)),
            }))
        };
        assert_eq!(of(&[9, 7, 9]).unwrap(), TargetSpec::Each(vec![9, 7]));
        assert_eq!(of(&[7, 7]).unwrap(), TargetSpec::Pid(7));
        for wrong in [&[][..], &[7, 0]] {
            assert_eq!(of(wrong).unwrap_err().reason, Reason::ArgumentInvalid);
        }
    }

    #[test]
    fn what_is_unset_has_a_default() {
        let pid = v1::Target {
            target: Some(v1::target::Target::Pid(7)),
        };
        let session = new_session(v1::CreateSessionRequest {
            target: Some(pid),
            ..Default::default()
        })
        .unwrap();
        assert_eq!((session.frequency_hz, session.window_ns), (99, 10 * SECOND_NS));
        assert_eq!(session.target, TargetSpec::Pid(7));
    }

    #[test]
    fn calls_are_divided_by_one_expression_or_hits_shown() {
        let capture = recorded(None, "req->kind".to_owned()).unwrap().unwrap();
        assert_eq!(
            (
                capture.divides_by().unwrap().to_string().as_str(),
                capture.hits_per_second
            ),
            ("req->kind", 100_000)
        );
        let shown = recorded(Some(v1::Capture::default()), String::new())
            .unwrap()
            .unwrap();
        assert_eq!(shown.divides_by(), None);
        assert_eq!(recorded(None, String::new()), Ok(None));
        let both = recorded(Some(v1::Capture::default()), "n".to_owned()).unwrap_err();
        assert_eq!(both.reason, Reason::ArgumentInvalid);
        let error = recorded(None, "req->".to_owned()).unwrap_err();
        assert_eq!(error.reason, Reason::ExpressionInvalid);
        assert_eq!(
            error.metadata,
            [("expression", "req->".to_owned()), ("offset", "5".to_owned())]
        );
    }

    #[test]
    fn a_flame_graph_is_of_times_or_of_an_event() {
        let request = |event: &str, period, frequency_hz| v1::WatchFlameRequest {
            event: event.to_owned(),
            period,
            frequency_hz,
            ..Default::default()
        };
        let faults = |pace| Event::parse("page-faults", pace, 99).map(FlameTimes::Event);
        for (asked, expected) in [
            (request("", 0, 0), None),
            (request("faults", 0, 0), faults(None)),
            (request("faults", 1, 0), faults(None)),
            (request("faults", 16, 0), faults(Some(Pace::Period(16)))),
            (
                request("cycles", 0, 250),
                Event::parse("cycles", Some(Pace::Frequency(250)), 99).map(FlameTimes::Event),
            ),
        ] {
            assert_eq!(drawn(&asked), Ok(expected));
        }
        let mut both = request("faults", 0, 0);
        both.set_times(v1::Times::OnCpu);
        for refused in [
            both,
            request("", 1, 0),
            request("faults", 1, 1),
            request("faults", 0, 99),
            request("block-bytes", 2, 0),
            request("faults", 0, 10_001),
            request("faults", 2_000_000_000, 0),
        ] {
            assert_eq!(drawn(&refused).unwrap_err().reason, Reason::ArgumentInvalid);
        }
        for unknown in ["task-clock", "nothing", "tracepoint:sched:sched_switch"] {
            let error = drawn(&request(unknown, 0, 0)).unwrap_err();
            assert_eq!(error.reason, Reason::CounterNotFound);
            assert!(error.message.contains("page-faults"), "{error}");
        }
    }

    #[test]
    fn an_event_is_recorded_in_one_way() {
        let event = |name: &str, period, frequency_hz| v1::RecordedEvent {
            name: name.to_owned(),
            period,
            frequency_hz,
        };
        let known = |name, pace| Event::parse(name, Some(pace), 99).unwrap();
        let asked = [
            event("faults", 16, 0),
            event("cycles", 0, 0),
            event("page-faults", 16, 0),
        ];
        let expected = [
            known("page-faults", Pace::Period(16)),
            known("cycles", Pace::Frequency(99)),
        ];
        assert_eq!(recorded_events(&asked), Ok(BTreeSet::from(expected)));
        for (asked, said) in [
            (
                vec![event("faults", 16, 0), event("page-faults", 0, 0)],
                "leave one out",
            ),
            (
                vec![event("faults", 0, 99)],
                "--costs page-faults/period=N/ for every Nth",
            ),
            (vec![event("block-bytes", 2, 0)], "write --costs block-bytes"),
        ] {
            let error = recorded_events(&asked).unwrap_err();
            assert_eq!(error.reason, Reason::ArgumentInvalid);
            assert!(error.message.contains(said), "{error}");
        }
    }

    #[test]
    fn a_target_is_required() {
        let error = new_session(v1::CreateSessionRequest::default()).unwrap_err();
        assert_eq!(error.reason, Reason::ArgumentInvalid);
    }
}
