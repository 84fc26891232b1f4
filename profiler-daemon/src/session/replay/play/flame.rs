//! The flame graph that is asked for, as far as it was recorded.

use profiler_aggregate::latency::AgeConfig;

use super::super::{
    super::{
        division::{self, CountedStep as _},
        error::{Reason, SessionError},
        flame::Flame,
        picture::{AskedPace, FlameRequest, FlameTimes, FlameVariant},
        population::Calls,
        records::RecordedScope,
        sampling::SampleCounts,
        state::views::{UNIQUE, unknown::refuse_unknown},
    },
    asked::AskedStep,
};
use crate::kernel::{Activity, Event, Pace};

pub(super) fn new_flame(
    request: FlameRequest,
    recorded: &RecordedScope,
    steps: &[AskedStep],
    calls: Calls<'_>,
    ages: AgeConfig,
    now_ns: u64,
) -> Result<Flame, SessionError> {
    let divides = division::divider(steps).is_some();
    let variant = recorded_variant(request, recorded, divides)?;
    if request.unique {
        refuse_unknown(&steps.iter().map(AskedStep::step).collect::<Vec<_>>(), UNIQUE)?;
    }
    let refused = if draws_outside(request, steps) && !recorded.off_cpu {
        Some(
            "time off the CPU was recorded only inside calls: leave --off-cpu out, or record with --off-cpu to have that of all threads",
        )
    } else {
        None
    };
    if let Some(message) = refused {
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let before = SampleCounts::default();
    // Where it is not compared with another, that is not looked at.
    let mut flame = Flame::new(variant.kind, before, steps, calls, ages, now_ns).comparable();
    flame.maintain(variant.over, now_ns);
    if !request.difference {
        flame = flame.without_observations();
    }
    Ok(flame)
}

/// What is drawn for a request: of an event, as often as stacks were taken at it when it was recorded.
///
/// # Errors
/// Where the event was not recorded so, or not so that what it is about can be counted once.
fn recorded_variant(
    request: FlameRequest,
    recorded: &RecordedScope,
    divides: bool,
) -> Result<FlameVariant, SessionError> {
    let mut variant = request.variant(divides);
    if let Some(event) = request.event() {
        let event = recorded_event(event, request.pace, recorded)?;
        variant.kind.times = FlameTimes::Event(event);
        if request.unique && !event.has_keys() {
            let message = format!(
                "`{event}` was recorded with {}: --unique needs each one, as `record --costs {event}` takes them",
                event.pace()
            );
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
    }
    Ok(variant)
}

/// An event that is asked for, as it was recorded.
///
/// # Errors
/// Where its stacks were not recorded, or were taken more or less often than is said.
fn recorded_event(event: Event, pace: AskedPace, recorded: &RecordedScope) -> Result<Event, SessionError> {
    if recorded.events.contains(&event) {
        return Ok(event);
    }
    let mut events = recorded.events.iter();
    if let Some(known) = events.find(|known| known.is_of_the_name_of(event)) {
        if pace == AskedPace::LeftOut {
            return Ok(*known);
        }
        let flag = match known.pace() {
            Pace::Period(period) => format!(" (-c {period})"),
            Pace::Frequency(_) => String::new(),
        };
        let message = format!(
            "`{event}` was recorded with {}{flag}, which cannot be changed afterwards: leave -c out",
            known.pace()
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let names: Vec<String> = recorded.events.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        let message = format!(
            "no events were recorded: record them with --costs {event}, or leave -e out to draw time"
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let message = format!(
        "`{event}` was not recorded. There are: {}. record --costs {event} has it",
        names.join(", ")
    );
    Err(SessionError::new(Reason::CounterNotFound, message).with("nearest", names.join(",")))
}

/// Whether a flame graph of these steps has time off the CPU that lies in no call.
pub(super) fn draws_outside(request: FlameRequest, steps: &[AskedStep]) -> bool {
    let divides = division::divider(steps).is_some();
    !divides && request.variant(divides).kind.times.contain(Activity::Runnable)
}
