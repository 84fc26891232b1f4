//! What attaching a scope would do, on its way to the wire.

use profiler_proto::v1;

use super::convert;
use crate::session::{Estimate, EstimatedPlace, EstimatedStep, Sampled};

/// The answer to who asked.
pub fn response(estimate: Estimate) -> v1::EstimateScopeResponse {
    let Estimate {
        scope,
        pids,
        perf_links,
        steps,
        features,
        warnings,
        sampled,
        counted_ns,
        over_budget,
    } = estimate;
    v1::EstimateScopeResponse {
        scope,
        pids,
        attach_method: convert::attach_method(perf_links).into(),
        steps: steps.iter().map(step).collect(),
        features: u32::try_from(features).unwrap_or(u32::MAX),
        warnings,
        samples: sampled.as_ref().map(samples),
        counted: counted_ns.map(convert::duration),
        over_budget: over_budget.unwrap_or_default(),
    }
}

fn samples(sampled: &Sampled) -> v1::EstimateSamples {
    v1::EstimateSamples {
        samples: sampled.samples,
        cpu: Some(convert::duration(sampled.cpu_ns)),
        sampled: Some(convert::duration(sampled.ns)),
    }
}

fn step(step: &EstimatedStep) -> v1::EstimatedStep {
    v1::EstimatedStep {
        step: step.text.clone(),
        places: step.places.iter().map(place).collect(),
    }
}

fn place(estimated: &EstimatedPlace) -> v1::EstimatedPlace {
    let EstimatedPlace {
        pid,
        place,
        instruction,
        single_stepped,
        end,
        samples_inside,
        hits,
        cost_ns,
    } = estimated;
    let method = end.map_or(v1::ExitMethod::Unspecified, |end| {
        convert::exit_method(end.method)
    });
    v1::EstimatedPlace {
        pid: *pid,
        site: place.site.clone(),
        function: place.function.clone(),
        file: place.file.clone(),
        line: place.line,
        module: place.module.clone(),
        address: place.address,
        instruction: instruction.clone(),
        single_stepped: *single_stepped,
        exit_method: method.into(),
        exits: end.map_or(0, |end| end.probes),
        exit_single_stepped: end.is_some_and(|end| end.single_stepped),
        samples_inside: *samples_inside,
        hits: *hits,
        hit_cost_ns: *cost_ns,
    }
}
