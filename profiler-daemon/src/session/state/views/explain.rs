//! What slow calls of a session do that others do not, where that is looked for.

use std::sync::Arc;

use profiler_aggregate::threshold::divide;
use profiler_common::layout::bucket_of;
use profiler_scope::Step;
use profiler_symbolize::demangle;

use super::{FIRST_NS, Live, Tick, View};
use crate::{
    kernel::{Engine, KernelError, Times},
    session::{
        calibrate::HitCosts,
        command::{Caller, Handle},
        division::{divided, predicates},
        error::{Reason, SessionError},
        explain::{self, Judged, NotLookedAt, PreparedExplain},
        functions::key,
        picture::{ExplainPicture, FlameTimes, Losses},
        replay::Player,
        sampling::Sampling,
        state::Session,
        symbols::Dropped,
        watchers::{Pictures, Streams},
    },
};

/// Time between two pictures of what slow calls do: it is worked out anew for each.
const MIN_EXPLAIN_NS: u64 = 1_000_000_000;

/// A client asks for it.
pub struct Explain {
    interval_ns: u64,
}

impl View for Explain {
    type Stream = Pictures<ExplainPicture>;

    const NAME: &'static str = "explanation";

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live { session, now_ns, .. } = live;
        if !session.explains() {
            let message = "the session was not made to explain calls: use `profiler explain`";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let interval_ns = self.interval_ns.max(MIN_EXPLAIN_NS);
        Ok(session.streams.explain.add((), interval_ns, now_ns + FIRST_NS))
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.explain(session, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.explain
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.explain
    }

    fn times(session: &Session) -> Times {
        if session.explains() {
            Times::IN_SPANS.or(Times::WAITS_IN_SPANS)
        } else {
            Times::default()
        }
    }

    fn accepts(session: &Session, _steps: &[&Step]) -> Result<(), SessionError> {
        if !session.explains() {
            return Ok(());
        }
        let message = "the scope of an `explain` session is fixed: start a new session";
        Err(SessionError::new(Reason::ArgumentInvalid, message))
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let Some(picture) = session.explained(tick) else {
            return;
        };
        let streams = &mut session.streams.explain;
        streams.publish(tick.now_ns, tick.is_last(), |()| Some(picture.clone()));
    }
}

impl Handle {
    /// What slow calls of a session do that others do not.
    ///
    /// # Errors
    /// Where there is no such session, or it was not made for that.
    pub async fn watch_explain(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
    ) -> Result<Pictures<ExplainPicture>, SessionError> {
        self.watch(caller, name, Explain { interval_ns }).await
    }
}

impl Session {
    /// Begins to look for what slow calls do that others do not.
    pub(in super::super) fn begin_explain(
        &mut self,
        engine: &mut Engine,
        prepared: Option<PreparedExplain>,
        hit_costs: Option<HitCosts>,
    ) -> Result<(), KernelError> {
        if let (Some(prepared), Some(last)) = (prepared, self.steps.last()) {
            let functions = last.functions.iter().flat_map(|function| {
                let key = key(&function.info);
                function.probes().map(move |probe| (probe, key.clone()))
            });
            self.explain = Some(explain::Explain::begin(
                engine,
                prepared,
                functions.collect(),
                hit_costs,
            )?);
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
            let turned = explain.turn(engine, now_ns, slow_ns);
            if turned && let Some(budget) = &mut self.budget {
                budget.expect_new(now_ns);
            }
        }
    }

    /// What slow calls do that others do not, by the calls so far.
    fn explained(&mut self, tick: &Tick<'_>) -> Option<ExplainPicture> {
        let Tick {
            engine,
            frames,
            dropped,
            cost,
            ended,
            ..
        } = *tick;
        let mut lost: Losses = self.span_losses(engine).collect();
        let explain = self.explain.as_mut()?;
        let last = self.steps.last()?;
        let of_all = divided(last)?;
        // Slow are the slowest of those that are compared, which take longer than others for being looked at.
        let division = divide(&predicates(&last.step), &explain.histogram(), 1.0, 0);
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
        let calls = of_all.calls as u64;
        let functions = last.functions.iter();
        // As frames are called, which have no parameters.
        let own: Vec<String> = functions
            .map(|function| demangle(function.info.linkage_name.as_bytes()))
            .collect();
        let Judged { findings, judged } =
            explain.findings(engine, &self.scope, frames, &own, ended.is_some(), is_slow);
        let mut left_out = explain.left_out().to_vec();
        if !explain.knows_waits() {
            left_out.push(NotLookedAt {
                what: "waits and frames".to_owned(),
                reason: "the target is not sampled".to_owned(),
            });
        }
        Some(ExplainPicture {
            scope: Arc::clone(&self.scope_text),
            threshold_ns: division.slow_from_ns().filter(|_| !division.warming),
            threshold_of_all_ns: of_all.slow_from_ns().filter(|_| !of_all.warming),
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
