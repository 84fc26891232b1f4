//! What slow calls of a session do that others do not, where that is looked for.

use std::sync::Arc;

use profiler_common::layout::bucket_of;
use profiler_symbolize::{Frame, demangle};

use super::{
    super::{
        calibrate::HitCosts,
        division::divided,
        ending::Ending,
        explain::{Explain, PreparedExplain},
        picture::{Cost, ExplainPicture, FlameTimes, Losses},
        sampling::Sampling,
        symbols::Dropped,
    },
    Session,
};
use crate::kernel::{Engine, KernelError};

/// Time between two pictures of what slow calls do: it is worked out anew for each.
const MIN_EXPLAIN_NS: u64 = 1_000_000_000;

impl Session {
    /// Begins to look for what slow calls do that others do not.
    pub(super) fn begin_explain(
        &mut self,
        engine: &mut Engine,
        prepared: Option<PreparedExplain>,
        hit_costs: Option<HitCosts>,
    ) -> Result<(), KernelError> {
        if let (Some(prepared), Some(last)) = (prepared, self.steps.last()) {
            let functions = last.functions.iter().flat_map(|function| {
                let key = (function.info.module.clone(), function.info.address);
                function.probes().map(move |probe| (probe, key.clone()))
            });
            self.explain = Some(Explain::begin(engine, prepared, functions.collect(), hit_costs)?);
        }
        Ok(())
    }

    /// What is lost from now on is lost of what is looked for.
    pub fn note_losses_before(&mut self, engine: &Engine, dropped: Dropped) {
        self.before_explain = Sampling::now(engine, dropped);
    }

    /// Whether what slow calls do is looked for.
    pub fn explains(&self) -> bool {
        self.explain.is_some()
    }

    /// Looks at other places if it is time.
    pub fn turn(&mut self, engine: &mut Engine, now_ns: u64) {
        if let (Some(explain), Some(last)) = (&mut self.explain, self.steps.last()) {
            let slow_ns = divided(last).and_then(|division| division.slow_from_ns());
            explain.turn(engine, now_ns, slow_ns);
        }
    }

    /// Opens a stream of what slow calls do; `None` where that is not looked for.
    pub fn watch_explain(
        &mut self,
        interval_ns: u64,
        first_ns: u64,
    ) -> Option<tokio::sync::watch::Receiver<Option<Arc<ExplainPicture>>>> {
        self.explains().then(|| {
            self.explain_watchers
                .add((), interval_ns.max(MIN_EXPLAIN_NS), first_ns)
        })
    }

    /// What slow calls do that others do not, by the calls so far.
    pub(super) fn explained(
        &mut self,
        engine: &Engine,
        (frames, dropped): (&[Frame], Dropped),
        cost: Cost,
        ended: Option<&Ending>,
    ) -> Option<ExplainPicture> {
        let mut lost: Losses = self.span_losses(engine).collect();
        let explain = self.explain.as_mut()?;
        let last = self.steps.last()?;
        let division = divided(last)?;
        let inside = division.inside();
        let is_slow = |duration_ns| inside.contains(bucket_of(duration_ns));
        let [slow, other] = explain.durations(is_slow);
        let sampling = Sampling::now(engine, dropped).since(self.before_explain);
        lost.extend(sampling.losses(FlameTimes::Both));
        lost.extend(explain.unknown().into_iter().filter(|(_, count)| *count > 0));
        for probe in last.functions.probes() {
            let hits = engine.hit_counts(probe);
            for (reason, count) in [("ring_full", hits.ring_full), ("disturbed", hits.disturbed)] {
                if count > 0 {
                    *lost.entry(reason).or_default() += count;
                }
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which is a float where calls have ages"
        )]
        let calls = division.calls as u64;
        let functions = last.functions.iter();
        // As frames are called, which have no parameters.
        let own: Vec<String> = functions
            .map(|function| demangle(function.info.linkage_name.as_bytes()))
            .collect();
        let (findings, judged) =
            explain.findings(engine, &self.scope, (frames, &own), ended.is_some(), is_slow);
        let mut left_out = explain.left_out().to_vec();
        if !explain.knows_waits() {
            left_out.push((
                "waits and frames".to_owned(),
                "the target is not sampled".to_owned(),
            ));
        }
        Some(ExplainPicture {
            seq: 0,
            scope: Arc::clone(&self.scope_text),
            threshold_ns: division.slow_from_ns().filter(|_| !division.warming),
            warming: division.warming,
            calls,
            looked_at: explain.calls(),
            slow,
            other,
            features: explain.features(),
            judged,
            findings,
            left_out,
            lost,
            cost,
            ended: ended.cloned(),
        })
    }
}
