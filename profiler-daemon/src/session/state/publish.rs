//! What the programs have counted is read, and whoever watches the session is given pictures of it.

use std::sync::Arc;

use profiler_aggregate::{path, threshold::Band};
use profiler_symbolize::Frame;

use super::{
    super::{
        by_value::{CallsByValue, Counted},
        division::{self, slow_from_ns},
        ending::Ending,
        flame::{EXPIRE_AFTER_NS, Moment, is_gone},
        picture::{ExplainPicture, LatencyPicture, Losses},
        population::Calls,
        sampling::{SampleCounts, Sampling},
        span_losses::{OwnLosses, SpanLosses},
        symbols::Dropped,
        trace::Around,
        waits::WaitsPicture,
    },
    Session,
};
use crate::kernel::Engine;

impl Session {
    /// Reads what the programs have counted, and keeps their threshold current.
    pub fn read(&mut self, engine: &Engine, now_ns: u64) {
        let calls = Calls {
            counted: engine,
            joined: &self.joined_calls,
        };
        division::read(self.steps.as_mut_slice(), calls, now_ns);
        let division = self.set_bands();
        let calls = Calls {
            counted: engine,
            joined: &self.joined_calls,
        };
        let steps = self.steps.as_slice();
        if let Some(divider) = division::divider(steps)
            && let Some(step) = steps.get(divider)
        {
            let population = division::population(steps, divider, calls);
            for flame in self.flames.values_mut() {
                flame.read(population, step.functions.probes(), Some(is_gone), now_ns);
            }
        }
        self.path.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        self.trace.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        if let Some(spans) = &mut self.spans {
            spans.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        }
        let dropped = self.path.take_dropped();
        self.drop_joined(dropped);
        let Some(last) = self.steps.last() else { return };
        self.traced = division.map_or(Band::ALL, |division| division.inside());
        let slow_from_ns = division.and_then(|division| slow_from_ns(&last.step, &division));
        self.slow_from_ns = slow_from_ns.unwrap_or(u64::MAX);
        self.set_thresholds(engine, slow_from_ns, now_ns);
    }

    /// Gives watchers their pictures; the last ones where `ended` says why.
    pub fn publish(
        &mut self,
        engine: &Engine,
        frames: &Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
        ended: Option<&Ending>,
    ) {
        let all = ended.is_some();
        if all {
            self.read(engine, now_ns);
        }
        self.set_limits(engine);
        if self.trace.watchers() > 0 {
            let cost = self.meter.read(now_ns);
            let around = Around {
                dropped: self.dropped,
                waiting: self.path.waiting(),
            };
            let lost = SpanLosses::now(engine).since(self.lost_before);
            let unseen = lost.unseen(&self.scope);
            let unseen = unseen.chain(self.own_losses().by_reason()).collect();
            self.trace.publish(engine, frames, (around, unseen), cost, ended);
        }
        self.publish_records(engine, frames, dropped, now_ns, ended);
        let latency_due = all || self.latency_watchers.any_due(now_ns);
        let flame_due = all || self.flame_watchers.any_due(now_ns);
        let explain_due = self.explain.is_some() && (all || self.explain_watchers.any_due(now_ns));
        let spans_due = all || self.spans_watchers.any_due(now_ns);
        let waits_due = all || self.waits_watchers.any_due(now_ns);
        let syscalls_due = all || self.syscalls_watchers.any_due(now_ns);
        let any_due = latency_due || flame_due || explain_due || spans_due || waits_due || syscalls_due;
        if !any_due {
            return;
        }
        // A picture shows the calls of this moment, not those of the last reading.
        self.read(engine, now_ns);
        let cost = self.meter.read(now_ns);
        if explain_due && let Some(picture) = self.explained(engine, (frames, dropped), cost, ended) {
            self.explain_watchers.publish(now_ns, all, |(), seq| {
                Some(ExplainPicture {
                    seq,
                    ..picture.clone()
                })
            });
        }
        if latency_due {
            let functions = self
                .steps
                .last()
                .map_or_else(Vec::new, |last| last.functions.pictures(engine, now_ns));
            let by = self.calls_by_value(engine, all);
            let lost: Losses = self
                .span_losses(engine)
                .chain(join_losses(self.dropped))
                .collect();
            self.latency_watchers.publish(now_ns, all, |(), seq| {
                Some(LatencyPicture {
                    seq,
                    scope: Arc::clone(&self.scope_text),
                    functions: functions.clone(),
                    by: by.clone(),
                    cost,
                    lost: lost.clone(),
                    ended: ended.cloned(),
                })
            });
        }
        let scope = &self.scope_text;
        let moment = Moment {
            now_ns,
            scope,
            frames,
            cost,
            dropped,
            also_lost: self.own_losses().by_reason().collect(),
            ended,
        };
        if spans_due {
            let picture = self.spans_picture(engine, &moment);
            self.spans_watchers
                .publish(now_ns, all, |wanted, seq| Some(picture.of_stream(wanted, seq)));
        }
        if waits_due && let Some(waits) = &self.waits {
            let picture = waits.picture(&moment, Sampling::now(engine, dropped));
            self.waits_watchers.publish(now_ns, all, |(), seq| {
                Some(WaitsPicture {
                    seq,
                    ..picture.clone()
                })
            });
        }
        if syscalls_due && let Some(calls) = &self.calls {
            Self::publish_calls(&mut self.syscalls_watchers, calls, engine, &moment);
        }
        if flame_due {
            for flame in self.flames.values_mut() {
                let counts = SampleCounts {
                    sampling: Sampling::now(engine, dropped),
                    events: self.events.counts(flame.kind().times, engine),
                };
                flame.publish(&mut self.flame_watchers, counts, &moment);
            }
        }
    }

    /// What is shown of the calls by value; `ended` where nothing more is to come.
    fn calls_by_value(&self, engine: &Engine, ended: bool) -> Vec<CallsByValue> {
        let (Some(by), Some(last)) = (&self.by, self.steps.last()) else {
            return Vec::new();
        };
        let counted = Counted {
            engine,
            joined: &self.joined_calls,
        };
        let functions = last.functions.iter();
        functions
            .map(|function| by.picture(counted, function, ended))
            .collect()
    }

    /// What was lost of spans on the way since it began, by reason.
    pub(super) fn span_losses(&self, engine: &Engine) -> impl Iterator<Item = (&'static str, u64)> {
        let lost = SpanLosses::now(engine).since(self.lost_before);
        lost.of_records()
            .chain(lost.unseen(&self.scope))
            .chain(self.own_losses().by_reason())
    }

    /// What it does not see, whatever its probes record.
    pub(super) fn own_losses(&self) -> OwnLosses {
        OwnLosses {
            not_admitted: self.not_admitted,
            over_budget: self.taken_off(),
        }
    }

    pub(super) fn drop_joined(&mut self, dropped: path::Dropped) {
        self.dropped += dropped;
    }
}

/// What waited for a span around it in vain, by reason.
pub fn join_losses(dropped: path::Dropped) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("join_abandoned", dropped.abandoned),
        ("join_expired", dropped.expired),
        ("join_full", dropped.join_full),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
}
