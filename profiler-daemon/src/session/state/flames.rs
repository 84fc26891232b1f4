//! The flame graphs of a session, which begin and end with those who watch them.

use std::collections::{BTreeSet, HashSet};

use profiler_symbolize::Grouping;

use super::{
    super::{
        chains::Chains,
        error::SessionError,
        flame::Flame,
        picture::{FlameKind, FlameVariant},
        population::Calls,
        sampling::{SampleCounts, Sampling},
        spans::Spans,
        symbols::{Dropped, Wanted},
    },
    Session,
};
use crate::kernel::{Engine, Event};

impl Session {
    /// What is looked at of what is recorded.
    pub fn wanted(&self) -> Wanted {
        let of_spans = self.spans.iter().flat_map(|_| Spans::GROUPINGS);
        let asks_wakers = self.waits.is_some() || self.chains.is_some() || self.explains();
        let of_waits = asks_wakers.then_some(Grouping::Function);
        let of_flames = self.flames.keys().map(|kind| kind.by);
        Wanted {
            groupings: of_flames
                .chain(of_spans)
                .chain(of_waits)
                .chain(self.recorded_groupings())
                .collect(),
            samples: !self.flames.is_empty() || self.spans.is_some() || self.explains() || self.is_recorded(),
            locks: self.spans.is_some(),
            tasks: self.is_recorded(),
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
        if !watched.iter().any(|kind| kind.waits) {
            self.chains = None;
        } else if self.chains.is_none() {
            self.chains = Some(Chains::default());
        }
        self.events.keep(&self.watched_events());
        for kind in watched {
            if !self.flames.contains_key(&kind) {
                let flame = self.new_flame(kind, engine, dropped, now_ns);
                self.flames.insert(kind, flame);
            }
        }
        self.set_bands();
    }

    /// Takes stacks of these processes at the events whose flame graphs are watched.
    pub fn settle_events(&mut self, engine: &mut Engine, pids: &[u32]) {
        let own = self.pids();
        let pids: Vec<u32> = pids.iter().copied().filter(|pid| own.contains(pid)).collect();
        let watched = self.watched_events();
        self.events.keep(&watched);
        self.events.take(engine, &watched, &pids);
    }

    /// Why stacks could not be taken at an event, since this was last asked.
    pub fn take_refused_event(&mut self) -> Option<SessionError> {
        self.events.take_refused()
    }

    /// Takes no more stacks at events.
    pub fn stop_events(&mut self) {
        self.events.stop();
    }

    /// Whether there is one in which what is touched counts once.
    pub fn counts_unique(&self) -> bool {
        self.flame_watchers.variants().any(|variant| variant.kind.unique)
    }

    fn watched_events(&self) -> BTreeSet<Event> {
        let variants = self.flame_watchers.variants();
        variants
            .filter_map(|variant| variant.kind.times.event())
            .collect()
    }

    /// Keeps what such a flame graph needs.
    pub fn maintain(&mut self, variant: FlameVariant, now_ns: u64) {
        if let Some(flame) = self.flames.get_mut(&variant.kind) {
            flame.maintain(variant.over, now_ns);
        }
    }

    pub(super) fn new_flame(&self, kind: FlameKind, engine: &Engine, dropped: Dropped, now_ns: u64) -> Flame {
        let before = SampleCounts {
            sampling: Sampling::now(engine, dropped),
            events: self.events.counts(kind.times, engine),
        };
        let (steps, calls) = (self.steps.as_slice(), self.counted_calls(engine));
        Flame::new(kind, before, steps, calls, self.ages, now_ns)
    }

    /// What was counted of the calls of its steps.
    pub(super) fn counted_calls<'a>(&'a self, engine: &'a Engine) -> Calls<'a> {
        Calls {
            counted: engine,
            joined: &self.joined_calls,
        }
    }
}
