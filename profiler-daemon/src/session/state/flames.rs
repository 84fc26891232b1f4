//! The flame graphs of a session, which begin and end with those who watch them.

use std::collections::HashSet;

use super::{
    super::{
        flame::Flame,
        picture::{FlameKind, FlameVariant},
        population::Population,
        spans::Spans,
        symbols::{Dropped, Wanted},
    },
    Session,
};
use crate::{kernel::Engine, symbolize::Grouping};

impl Session {
    /// What is looked at of what is recorded.
    pub fn wanted(&self) -> Wanted {
        let of_spans = self.spans.iter().flat_map(|_| Spans::GROUPINGS);
        let of_waits = self.waits.iter().map(|_| Grouping::Function);
        let of_explain = self.explains().then_some(Grouping::Function);
        let of_flames = self.flames.keys().map(|kind| kind.by);
        Wanted {
            groupings: of_flames
                .chain(of_spans)
                .chain(of_waits)
                .chain(of_explain)
                .collect(),
            samples: !self.flames.is_empty() || self.spans.is_some(),
        }
    }

    /// Begins and ends flame graphs with their watchers.
    pub fn settle_flame(&mut self, engine: &Engine, dropped: Dropped, now_ns: u64) {
        let watched: HashSet<FlameKind> = self
            .flame_watchers
            .variants()
            .map(|variant| variant.kind)
            .collect();
        self.flames.retain(|kind, _| watched.contains(kind));
        for kind in watched {
            if !self.flames.contains_key(&kind) {
                let flame = self.new_flame(kind, engine, dropped, now_ns);
                self.flames.insert(kind, flame);
            }
        }
        self.set_bands();
    }

    /// Keeps what such a flame graph needs.
    pub fn maintain(&mut self, variant: FlameVariant, now_ns: u64) {
        if let Some(flame) = self.flames.get_mut(&variant.kind) {
            flame.maintain(variant.over, now_ns);
        }
    }

    pub(super) fn new_flame(&self, kind: FlameKind, engine: &Engine, dropped: Dropped, now_ns: u64) -> Flame {
        let spans = self.divider().and_then(|number| {
            let step = self.steps.get(number)?;
            Some((self.nesting()?, &step.functions, self.population(engine, number)))
        });
        Flame::new(
            kind,
            engine,
            dropped,
            spans.as_ref(),
            self.dividing(),
            self.ages,
            now_ns,
        )
    }

    /// Where the calls of a step are counted.
    fn population<'a>(&'a self, engine: &'a Engine, number: usize) -> Population<'a> {
        if self.steps.is_joined(number) {
            Population::Joined(&self.joined_calls)
        } else {
            Population::Counted(engine)
        }
    }
}
