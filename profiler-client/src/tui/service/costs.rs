//! What a step would cost, asked before it is attached: who adds a costly one is asked back, all others wait a tenth of a
//! second.

use std::time::Duration;

use profiler_proto::limits::ALWAYS_ALLOWED;
use profiler_proto::v1::{self, estimate_scope_request, session_service_client::SessionServiceClient};
use profiler_scope::{Scope, Step, parse};
use tonic::transport::Channel;

use crate::{
    render::estimate::{cost_cores, places_in_words, share_of_target},
    tui::lens::CostOfEdit,
};

/// Places that are attached without asking back.
const MANY: usize = 256;

/// The same where each takes a tenth of a second to be let go of.
const MANY_PERF: usize = 16;

/// How long the target is sampled, where its probes cost so much that their share of its time matters: one that works in bursts is
/// idle for a tenth of a second now and then.
const SAMPLED: Duration = Duration::from_millis(500);

/// Planning is what the edit has to do too, for a large program in seconds, and need not do again.
const PLANNING: Duration = Duration::from_secs(30);

/// Counts and samples that take longer are not waited for: a session takes off what costs too much.
const COUNTING: Duration = Duration::from_secs(2);

/// How a target is looked at.
#[derive(Clone, Copy, Debug)]
struct Look {
    counts: bool,
    sampled: Duration,
    /// How long the answer is waited for.
    patience: Duration,
}

const PLAN: Look = Look {
    counts: false,
    sampled: Duration::ZERO,
    patience: PLANNING,
};

const COUNT: Look = Look {
    counts: true,
    patience: COUNTING,
    ..PLAN
};

const COUNT_AND_SAMPLE: Look = Look {
    sampled: SAMPLED,
    ..COUNT
};

/// Asks what edits of a session would cost.
#[derive(Debug)]
pub(super) struct Costs {
    pub client: SessionServiceClient<Channel>,
    pub session: String,
    /// Its probes are perf events.
    pub are_perf: bool,
    /// Probes that take too much are taken off.
    pub has_budget: bool,
}

impl Costs {
    /// What is costly about a scope in the place of another; `None` where nothing is.
    pub async fn of(&mut self, before: &str, scope: &str) -> Option<CostOfEdit> {
        let added = Added::of(before, scope)?;
        let mut estimate = self.estimate(scope, PLAN).await?;
        // Where they cannot be let go of quickly, places are not counted at.
        if !self.are_perf {
            estimate = self.estimate(scope, COUNT).await.unwrap_or(estimate);
        }
        if cost_cores(&estimate).known > ALWAYS_ALLOWED {
            let with_samples = self.estimate(scope, COUNT_AND_SAMPLE).await;
            estimate = with_samples.unwrap_or(estimate);
        }
        let many = if self.are_perf { MANY_PERF } else { MANY };
        over_budget(&estimate, &added, self.has_budget).or_else(|| at_many(&estimate, &added, many))
    }

    async fn estimate(&mut self, scope: &str, look: Look) -> Option<v1::EstimateScopeResponse> {
        let set = v1::SetScopeRequest {
            name: self.session.clone(),
            scope: scope.to_owned(),
        };
        let request = v1::EstimateScopeRequest {
            request: Some(estimate_scope_request::Request::Set(set)),
            measure: look.counts,
            sampled: look.sampled.try_into().ok(),
        };
        let answer = tokio::time::timeout(look.patience, self.client.estimate_scope(request)).await;
        // What is refused is refused by the edit too, which says why.
        answer.ok()?.ok().map(tonic::Response::into_inner)
    }
}

/// The numbers of the steps of a scope that add probes to those of the scope before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Added(Vec<usize>);

impl Added {
    /// `None` where no step does, or what it is cannot be told.
    fn of(before: &str, scope: &str) -> Option<Self> {
        let before = parse(before).ok()?;
        let scope = parse(scope).ok()?;
        let steps = scope.steps.iter().enumerate();
        let added: Vec<usize> = steps
            .filter(|(_, step)| !has(&before, step))
            .map(|(number, _)| number)
            .collect();
        (!added.is_empty()).then_some(Self(added))
    }
}

/// Whether a scope has probes where a step has them. Durations are asked for by what is there already.
fn has(scope: &Scope, step: &Step) -> bool {
    let mut steps = scope.steps.iter();
    steps.any(|other| other.place == step.place && other.conditions == step.conditions)
}

/// How many places the added steps have.
fn places(estimate: &v1::EstimateScopeResponse, added: &Added) -> usize {
    let steps = added.0.iter().filter_map(|number| estimate.steps.get(*number));
    steps.map(|step| step.places.len()).sum()
}

/// What probes would take, where that is over the budget or, without samples to hold it against, may be.
fn over_budget(estimate: &v1::EstimateScopeResponse, added: &Added, has_budget: bool) -> Option<CostOfEdit> {
    let warning = Some(estimate.over_budget.clone()).filter(|warning| !warning.is_empty());
    let over_budget = warning.is_some();
    let cost = cost_cores(estimate);
    let is_unknown = has_budget && estimate.samples.is_none() && cost.known > ALWAYS_ALLOWED;
    let over =
        warning.or_else(|| is_unknown.then(|| format!("the probes would take {}", cost.in_words())))?;
    Some(CostOfEdit {
        words: format!("{}; {over}", places_in_words(places(estimate, added))),
        over_budget,
    })
}

/// How many places there are, where these are many.
fn at_many(estimate: &v1::EstimateScopeResponse, added: &Added, many: usize) -> Option<CostOfEdit> {
    let places = places(estimate, added);
    let share = share_of_target(estimate).map(|words| format!(", {words}"));
    (places > many).then(|| CostOfEdit {
        words: places_in_words(places) + &share.unwrap_or_default(),
        over_budget: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_that_add_probes_are_asked_about() {
        let added = |before: &str, scope: &str| Added::of(before, scope).map(|added| added.0);
        assert_eq!(added("", "f"), Some(vec![0]));
        assert_eq!(added("f", "f[>= p95]"), None, "their durations are known");
        assert_eq!(added("f[>= p95]", "f[>= p95]/a.c:3!else/g"), Some(vec![1, 2]));
        assert_eq!(added("f/g", "f"), None);
        assert_eq!(added("f", "f[n == 3]"), Some(vec![0]), "values are read");
        assert_eq!(added("f", ""), None);
        assert_eq!(added("f", "f["), None, "the edit says what is wrong");
    }

    fn estimate(places: usize, over_budget: &str) -> v1::EstimateScopeResponse {
        let step = |places| v1::EstimatedStep {
            places: vec![
                v1::EstimatedPlace {
                    hits: Some(10),
                    hit_cost_ns: Some(1000),
                    ..v1::EstimatedPlace::default()
                };
                places
            ],
            ..v1::EstimatedStep::default()
        };
        v1::EstimateScopeResponse {
            // The first is there already.
            steps: vec![step(1000), step(places)],
            over_budget: over_budget.to_owned(),
            ..v1::EstimateScopeResponse::default()
        }
    }

    #[test]
    fn many_places_and_costs_over_the_budget_are_asked_about() {
        let costly = |estimate: &v1::EstimateScopeResponse| {
            let added = Added(vec![1]);
            over_budget(estimate, &added, true).or_else(|| at_many(estimate, &added, MANY))
        };
        let costly_of = |places, over: &str| costly(&estimate(places, over));
        assert_eq!(costly_of(MANY, ""), None);
        let cost = |words: &str, over_budget| CostOfEdit {
            words: words.to_owned(),
            over_budget,
        };
        assert_eq!(costly_of(4096, "").unwrap(), cost("4,096 places", false));
        let over = "the probes would take 66%, over the budget of 3%";
        assert_eq!(
            costly_of(1, over).unwrap(),
            cost(&format!("1 place; {over}"), true)
        );

        let mut known = estimate(3000, "");
        let tenth = prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        };
        known.counted = Some(tenth);
        known.samples = Some(v1::EstimateSamples {
            samples: 50,
            cpu: Some(tenth),
            sampled: Some(tenth),
        });
        // 4,000 places, each 100 times a second, a microsecond each: 0.4 cores beside one.
        assert_eq!(
            costly(&known).unwrap().words,
            "3,000 places, about 28.6% of the target's CPU time"
        );
    }

    #[test]
    fn what_the_probes_take_is_asked_about_where_no_samples_hold_it_against_the_budget() {
        let added = Added(vec![1]);
        let mut counted = estimate(1, "");
        counted.steps.remove(0);
        counted.steps.insert(0, v1::EstimatedStep::default());
        let asked = |estimate: &v1::EstimateScopeResponse| over_budget(estimate, &added, true);
        assert_eq!(asked(&counted), None, "nothing was counted");
        counted.counted = Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        });
        // 100 times a second, a microsecond each: 0.01% of a core.
        assert_eq!(asked(&counted), None);
        counted.steps[1].places[0].hits = Some(12_000);
        assert_eq!(
            asked(&counted).unwrap().words,
            "1 place; the probes would take about 12.0% of a core"
        );
        // A step of the kernel, of which it is not known what its probes cost.
        counted.steps[0].places.push(v1::EstimatedPlace {
            hits: Some(100),
            ..v1::EstimatedPlace::default()
        });
        assert_eq!(
            asked(&counted).unwrap().words,
            "1 place; the probes would take at least 12.0% of a core"
        );
        assert_eq!(over_budget(&counted, &added, false), None, "it has no budget");
        counted.samples = Some(v1::EstimateSamples::default());
        assert_eq!(asked(&counted), None, "the daemon holds it against them");
    }
}
