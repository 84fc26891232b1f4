//! Places that are not looked at any more: what cannot be attached, and what costs the target more than the budget.

use std::collections::{BTreeMap, HashMap};

use super::{
    super::{
        budget::{Counter, Reached},
        state::spans_reached,
    },
    Explain, NotLookedAt, OfPlace, PreparedPlace, What,
};
use crate::kernel::Engine;

impl Explain {
    /// How often the probes of each place that is looked at now were reached, by the number of its feature.
    pub fn probed(&self, engine: &Engine) -> BTreeMap<usize, Vec<Reached>> {
        let mut by_place: BTreeMap<usize, Vec<Reached>> = BTreeMap::new();
        for &(probe, OfPlace { feature, cost_ns }) in &self.turn.places {
            by_place.entry(feature).or_default().push(Reached {
                counter: Counter::Probe(probe),
                hits: spans_reached(engine, probe),
                cost_ns,
            });
        }
        by_place
    }

    /// The place of a feature, in words.
    pub fn place(&self, feature: usize) -> Option<String> {
        match &self.noted.features.get(feature)?.what {
            What::Place(place) => Some(place.to_string()),
            _ => None,
        }
    }

    /// Takes places off the target for good, by the numbers of their features, each with the reason; the next turn begins.
    pub fn take_off(&mut self, engine: &mut Engine, features: &HashMap<usize, String>) {
        self.end_turn(engine);
        self.leave_out(|_, place| features.get(&place.feature).cloned());
        self.next_turn(engine);
    }

    /// Leaves places out from now on: those of which there is a reason, by their numbers.
    pub(super) fn leave_out(&mut self, reason: impl Fn(usize, &PreparedPlace) -> Option<String>) {
        let reasons: Vec<Option<String>> = self
            .places
            .iter()
            .enumerate()
            .map(|(number, place)| reason(number, place))
            .collect();
        let before = reasons.iter().take(self.next_place);
        let next_place = before.filter(|reason| reason.is_none()).count();
        let places = std::mem::take(&mut self.places);
        for (place, reason) in places.into_iter().zip(reasons) {
            let Some(reason) = reason else {
                self.places.push(place);
                continue;
            };
            if let Some(what) = self.place(place.feature) {
                self.left_out.push(NotLookedAt { what, reason });
            }
        }
        self.next_place = next_place % self.places.len().max(1);
    }
}
