//! What comes of a way through a part: pictures, and what was lost.

use std::sync::Arc;

use profiler_aggregate::threshold::Band;
use profiler_scope::Scope;

use super::{
    super::{
        super::{
            division::{self, CountedStep as _},
            error::{Reason, SessionError},
            flame::{Flame, Moment},
            picture::{FlamePicture, FlameRequest, FlameTimes, FlameVariant, LatencyPicture, Losses},
            records::{AT_EVENTS_DROPPED, OUTSIDE_DROPPED, WAITS_DROPPED},
            sampling::{SampleCounts, Sampling, event_losses},
            span_losses::{OwnLosses, SpanLosses},
            state::read::join_losses,
            symbols::Dropped,
            trace::{Around, TraceLosses},
            watchers::{Pictures, Watchers},
        },
        asked,
        begun::scope_of,
        summed,
        taken::{DROPPED, UNKNOWN},
    },
    Played,
};
use crate::kernel::Activity;

impl Played {
    /// Waits that were lost before they were written.
    pub fn lost_waits(&self) -> Option<(&'static str, u64)> {
        let lost = self.counters.of(WAITS_DROPPED);
        (lost > 0).then(|| (DROPPED, lost.saturating_add(self.lost)))
    }

    /// What the session did not see.
    fn own_losses(&self) -> OwnLosses {
        OwnLosses::of_counters(|name| self.counters.of(name))
    }

    /// What was lost of spans on their way.
    pub fn span_losses(&self) -> Losses {
        let spans = SpanLosses::of_counters(|name| self.counters.of(name));
        spans
            .of_records()
            .chain(spans.unseen(&self.parsed))
            .chain(join_losses(self.dropped))
            .chain(self.own_losses().by_reason())
            .chain(self.dropped_records())
            .collect()
    }

    /// Records that this version does not know.
    fn unknown(&self) -> Option<(&'static str, u64)> {
        (self.unknown > 0).then_some((UNKNOWN, self.unknown))
    }

    /// What hits wait for, and have waited for in vain.
    pub fn around_hits(&self) -> Around {
        Around {
            dropped: self.dropped,
            waiting: self.path.waiting(),
        }
    }

    /// What was lost of hits before they were recorded.
    pub fn trace_losses(&self) -> TraceLosses {
        TraceLosses::of_counters(|name| self.counters.of(name))
    }

    /// Records that are not in the file, or cannot be read, and what else was lost of which only a newer version knows.
    pub fn dropped_records(&self) -> Losses {
        let dropped = (self.lost > 0).then_some((DROPPED, self.lost));
        let dropped = dropped.into_iter().chain(self.unknown());
        dropped.chain(self.counters.newer()).collect()
    }

    /// The same for a flame graph of these times, as far as it is known of which times they are.
    fn dropped_samples(&self, times: FlameTimes) -> Losses {
        let mut lost = self.dropped_records();
        let (on, off) = (times.contain(Activity::OnCpu), times.contain(Activity::Runnable));
        if self.waiting.is_some() {
            lost.extend(self.lost_waits());
        }
        for (name, is_drawn) in [
            (OUTSIDE_DROPPED, off),
            (AT_EVENTS_DROPPED, times.event().is_some()),
        ] {
            let dropped = self.counters.of(name);
            if is_drawn && dropped > 0 {
                let sum = lost.entry(DROPPED).or_default();
                *sum = sum.saturating_add(dropped);
            }
        }
        lost.retain(|reason, _| {
            (on || !reason.starts_with("sample_")) && (off || !reason.starts_with("off_cpu_"))
        });
        lost
    }

    /// What the session did not see, whatever was recorded.
    pub fn unseen(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let spans = SpanLosses::of_counters(|name| self.counters.of(name));
        spans.unseen(&self.parsed).chain(self.own_losses().by_reason())
    }

    /// What the last step with spans asks of durations, by all its calls.
    pub fn last_band(&self) -> Option<Band> {
        let bands = division::bands(&self.steps).of_spans;
        bands.last().map(|step| step.band)
    }

    /// The latency at the end.
    ///
    /// # Errors
    /// Where there is nothing to time.
    pub fn latency(&mut self) -> Result<LatencyPicture, SessionError> {
        let last = self.steps.last().filter(|last| last.step().place.has_spans());
        let last = last.ok_or_else(|| {
            SessionError::new(
                Reason::ArgumentInvalid,
                "the recording has nothing to time: its scope does not end with a function or a call; it takes a recording of one: \
                 profiler record -p PID FUNCTION -o FILE",
            )
        })?;
        Ok(LatencyPicture {
            scope: Arc::clone(&self.scope),
            functions: last.functions.pictures(&self.counts, self.now_ns),
            by: Vec::new(),
            cost: self.cost,
            lost: self.span_losses(),
            ended: Some(self.ended.clone()),
        })
    }

    /// Whether another scope can be answered from what was played, and then does. It can where it asks other durations
    /// of the step that divides, and nothing else.
    pub fn ask_again(&mut self, asked: Option<&Scope>) -> bool {
        let Ok(steps) = asked::steps(&self.recorded, asked, self.ages, self.now_ns) else {
            return false;
        };
        if !summed::are_alike(&steps, &self.steps) {
            return false;
        }
        for (known, asked) in self.steps.iter_mut().zip(steps) {
            known.ask(asked);
        }
        self.parsed = scope_of(&self.steps);
        self.scope = self.parsed.to_string().into();
        if let Some(flame) = &mut self.flame {
            flame.set_predicates(division::dividing(&self.steps));
        }
        true
    }

    /// What a flame graph is asked for. An event is the recorded one, which is what is collected.
    pub fn variant(&self, request: FlameRequest) -> FlameVariant {
        let variant = request.variant(division::divider(&self.steps).is_some());
        FlameVariant {
            kind: self.flame.as_ref().map_or(variant.kind, Flame::kind),
            ..variant
        }
    }

    /// What became of the samples on their way.
    pub fn sampling(&self) -> Sampling {
        Sampling::of_counters(|name| self.counters.of(name))
    }

    /// What was lost of what a flame graph of these times is drawn of, before it came there.
    pub fn flame_losses(&self, times: FlameTimes) -> Losses {
        let mut lost = self.sampling().losses(times);
        lost.extend(event_losses(self.event_counts));
        lost.extend(self.dropped_samples(times));
        lost.extend(self.own_losses().by_reason());
        lost
    }

    /// Samples of these times that were attempted.
    pub fn attempted(&self, times: FlameTimes) -> u64 {
        self.sampling()
            .attempted(times)
            .saturating_add(self.event_counts.attempted)
    }

    /// The flame graph at the end.
    ///
    /// # Errors
    /// Where none was asked for.
    pub fn flame(&mut self, request: FlameRequest) -> Result<Pictures<FlamePicture>, SessionError> {
        let variant = self.variant(request);
        let sampling = self.sampling();
        let mut also_lost = self.dropped_samples(variant.kind.times);
        also_lost.extend(self.own_losses().by_reason());
        let Some(flame) = &mut self.flame else {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "no flame graph was requested",
            ));
        };
        let moment = Moment {
            now_ns: self.now_ns,
            scope: &self.scope,
            frames: &self.frames,
            cost: self.cost,
            dropped: Dropped::default(),
            also_lost,
            ended: Some(&self.ended),
        };
        let counts = SampleCounts {
            sampling,
            events: self.event_counts,
        };
        let mut watchers = Watchers::default();
        let receiver = watchers.add(variant, 0, 0);
        flame.publish(&mut watchers, counts, &moment);
        Ok(receiver)
    }
}
