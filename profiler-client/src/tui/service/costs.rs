//! What a step would cost, asked before it is attached: who adds a costly one is asked back, all others wait a tenth of a
//! second.

use std::time::Duration;

use profiler_daemon::session::{ALWAYS_ALLOWED, OVER_BUDGET};
use profiler_proto::v1::{self, estimate_scope_request, session_service_client::SessionServiceClient};
use profiler_scope::{Scope, Step, parse};
use tonic::transport::Channel;

use crate::render::estimate::{cost_cores, places_in_words, share_of_target};

/// Places that are attached without asking back.
const MANY: usize = 256;

/// The same where each takes a tenth of a second to be let go of.
const MANY_PERF: usize = 16;

/// How long the target is sampled, where its probes cost so much that their share of its time matters.
const SAMPLED: Duration = Duration::from_millis(100);

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
}

impl Costs {
    /// What is costly about a scope in the place of another, in a clause; `None` where nothing is.
    pub async fn of(&mut self, before: &str, scope: &str) -> Option<String> {
        let added = Added::of(before, scope)?;
        let mut estimate = self.estimate(scope, PLAN).await?;
        // Where they cannot be let go of quickly, places are not counted at.
        if !self.are_perf {
            estimate = self.estimate(scope, COUNT).await.unwrap_or(estimate);
        }
        if cost_cores(&estimate).is_some_and(|cores| cores > ALWAYS_ALLOWED) {
            let with_samples = self.estimate(scope, COUNT_AND_SAMPLE).await;
            estimate = with_samples.unwrap_or(estimate);
        }
        let many = if self.are_perf { MANY_PERF } else { MANY };
        costly(&estimate, &added, many)
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

/// What is costly about what an estimate says.
fn costly(estimate: &v1::EstimateScopeResponse, added: &Added, many: usize) -> Option<String> {
    let steps = added.0.iter().filter_map(|number| estimate.steps.get(*number));
    let places: usize = steps.map(|step| step.places.len()).sum();
    let warning = estimate
        .warnings
        .iter()
        .find(|warning| warning.contains(OVER_BUDGET));
    match warning {
        Some(warning) => Some(format!("{}; {warning}", places_in_words(places))),
        None if places > many => {
            let share = share_of_target(estimate);
            Some(places_in_words(places) + &share.map(|words| format!(", {words}")).unwrap_or_default())
        }
        None => None,
    }
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

    fn estimate(places: usize, warnings: &[&str]) -> v1::EstimateScopeResponse {
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
            warnings: warnings.iter().map(|&warning| warning.to_owned()).collect(),
            ..v1::EstimateScopeResponse::default()
        }
    }

    #[test]
    fn many_places_and_costs_over_the_budget_are_asked_about() {
        let costly = |places, warnings: &[&str]| costly(&estimate(places, warnings), &Added(vec![1]), MANY);
        assert_eq!(costly(MANY, &["the entry of g is single-stepped"]), None);
        assert_eq!(costly(4096, &[]).unwrap(), "4,096 places");
        let over = format!("the probes would take 66%, {OVER_BUDGET} 3%");
        assert_eq!(
            costly(1, &["another", &over]).unwrap(),
            format!("1 place; {over}")
        );

        let mut known = estimate(3000, &[]);
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
        let words = super::costly(&known, &Added(vec![1]), MANY);
        assert_eq!(
            words.unwrap(),
            "3,000 places, about 28.6% of the target's CPU time"
        );
    }
}
