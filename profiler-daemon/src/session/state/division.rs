//! What the steps of a session ask of durations, and who is told.

use profiler_aggregate::{
    Nesting,
    predicate::Predicate,
    threshold::{Band, Division},
};
use profiler_common::probe::ProbeId;

use super::{
    super::{
        division::{self, Bands},
        steps::RunningStep,
    },
    Session,
};

impl Session {
    /// The steps with spans, each with its number.
    pub(super) fn spans(&self) -> impl DoubleEndedIterator<Item = (usize, &RunningStep)> {
        division::spans(self.steps.as_slice())
    }

    /// The probes of the steps with spans, and whether they ask for what is known at their end.
    pub(super) fn asked(&self) -> Vec<(Vec<ProbeId>, bool)> {
        division::asked(self.steps.as_slice())
    }

    /// The number of the step that divides.
    pub(super) fn divider(&self) -> Option<usize> {
        division::divider(self.steps.as_slice())
    }

    /// What divides the samples.
    pub(super) fn dividing(&self) -> Vec<Predicate> {
        division::dividing(self.steps.as_slice())
    }

    /// How samples are looked for in the spans of the scope; `None` where all are inside.
    pub(super) fn nesting(&self) -> Option<Nesting> {
        division::nesting(self.steps.as_slice())
    }

    /// Says what steps ask of durations, by their calls so far; what the last one's conditions come to.
    pub(super) fn set_bands(&mut self) -> Option<Division> {
        let Bands { of_spans, last } = division::bands(self.steps.as_slice());
        for (place, band) in of_spans.iter().enumerate() {
            self.path.set_band(place, band.band);
            for flame in self.flames.values_mut() {
                flame.set_band(place, band.band);
            }
        }
        if let Some(spans) = &mut self.spans {
            let step = spans.layout().step();
            let asked = of_spans.iter().find(|band| band.step == step);
            spans.set_band(asked.map_or(Band::ALL, |band| band.band));
        }
        last
    }
}
