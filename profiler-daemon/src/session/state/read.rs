//! Reads the counts of the programs, and what was lost on the way.

use profiler_aggregate::{path, threshold::Band};

use super::{
    super::{
        division::{self, slow_from_ns},
        flame::{EXPIRE_AFTER_NS, is_gone},
        population::Calls,
        span_losses::{OwnLosses, SpanLosses},
    },
    Session,
};
use crate::kernel::Engine;

impl Session {
    /// Reads what the programs have counted, and keeps their threshold current.
    pub fn read(&mut self, engine: &Engine, now_ns: u64) {
        self.read_children(engine);
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
            over_budget: self.over_budget(),
            code_changed: self.code_changed(),
            children: self.children.begun(),
            no_unwind_table: self.no_unwind_table,
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
