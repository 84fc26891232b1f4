//! The scope whose records these are, with its places and events.

use std::collections::HashMap;

use profiler_common::probe::ProbeId;
use profiler_proto::v1;

use super::super::{convert, trace::traced_place};
use crate::{
    kernel::{Event, Pace},
    session::{ProbeReading, RecordedFunction, RecordedPlace, RecordedScope},
};

/// A scope as it begins, with the calls that were open.
pub(super) fn scope(scope: &RecordedScope, readings: &HashMap<ProbeId, ProbeReading>) -> v1::RecordedScope {
    let function = |function: &RecordedFunction| v1::RecordedFunction {
        function: Some(convert::function(&function.info)),
        exit_method: convert::exit_method(function.method).into(),
        overhead_ns: function.overhead_ns,
        probes: (function.probes.iter())
            .map(|probe| v1::RecordedProbe {
                id: probe.0,
                open: readings.get(probe).map_or(0, ProbeReading::open),
            })
            .collect(),
    };
    v1::RecordedScope {
        text: scope.text.to_string(),
        steps: (scope.steps.iter())
            .map(|step| v1::RecordedStep {
                text: step.text.clone(),
                functions: step.functions.iter().map(function).collect(),
                gates: step.gates,
            })
            .collect(),
        pids: scope.pids.clone(),
        frequency_hz: scope.frequency_hz,
        window: Some(convert::duration(scope.ages.window.window_ns)),
        half_life: Some(convert::duration(scope.ages.half_life_ns)),
        warnings: scope.warnings.clone(),
        places: scope.places.iter().map(place).collect(),
        off_cpu: scope.off_cpu,
        events: scope.events.iter().copied().map(event).collect(),
    }
}

/// An event, and how often stacks are taken at it.
pub fn event(event: Event) -> v1::RecordedEvent {
    let (period, frequency_hz) = match event.pace() {
        Pace::Period(period) => (period, 0),
        Pace::Frequency(frequency_hz) => (0, frequency_hz),
    };
    v1::RecordedEvent {
        name: event.to_string(),
        period,
        frequency_hz,
    }
}

/// A place whose hits are recorded.
fn place(place: &RecordedPlace) -> v1::RecordedPlace {
    v1::RecordedPlace {
        probe: place.probe.0,
        place: Some(traced_place(&place.place)),
        is_call: place.is_call,
        shown_per_second: place.shown_per_second,
        expressions: (place.expressions.iter())
            .map(|told| v1::RecordedExpression {
                expression: told.expression.to_string(),
                r#type: told.type_name.to_string(),
            })
            .collect(),
    }
}
