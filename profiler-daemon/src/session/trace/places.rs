//! The probes whose hits and calls are shown, where these are, and what becomes of them when the scope is edited.

use std::{collections::HashSet, sync::Arc};

use profiler_common::probe::ProbeId;

use super::{
    super::{
        lines::{Printed, Shown, TracedPlace},
        readings::Readings,
        records::{RecordedExpression, RecordedPlace},
    },
    Trace,
    limit::Limit,
    losses::LeftOut,
    totals::{Around, Totals, add},
};

/// A line's probe.
pub(super) struct Line {
    pub(super) place: u32,
    pub(super) printed: Arc<[Printed]>,
    pub(super) limit: Limit,
    /// Hits that were handed over.
    pub(super) handed_over: u64,
}

/// A function's probe, or a call's.
pub(super) struct Call {
    pub(super) place: u32,
    pub(super) shown: Shown,
    pub(super) limit: Limit,
    /// Calls that were handed over.
    pub(super) handed_over: u64,
}

impl Trace {
    /// Adds a line's probe. `interval_ns` is that between two hits that are shown, 0 where all are that were recorded.
    pub fn add_line(
        &mut self,
        probe: ProbeId,
        place: &Arc<TracedPlace>,
        printed: Arc<[Printed]>,
        interval_ns: u64,
    ) {
        let place = self.place(place);
        let handed_over = self.lines.get(&probe).map_or(0, |line| line.handed_over);
        let line = Line {
            place,
            printed,
            limit: Limit::of(interval_ns),
            handed_over,
        };
        self.lines.insert(probe, line);
    }

    /// Adds a function's probe; `interval_ns` as of a line.
    pub fn add_call(&mut self, probe: ProbeId, place: &Arc<TracedPlace>, shown: Shown, interval_ns: u64) {
        let call = Call {
            place: self.place(place),
            shown,
            limit: Limit::of(interval_ns),
            handed_over: self.calls.get(&probe).map_or(0, |call| call.handed_over),
        };
        self.calls.insert(probe, call);
    }

    fn place(&mut self, wanted: &Arc<TracedPlace>) -> u32 {
        let at = self
            .places
            .iter()
            .position(|place| place == wanted)
            .unwrap_or_else(|| {
                self.places.push(Arc::clone(wanted));
                self.places.len() - 1
            });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Adds a place that was recorded, whose hits come with their values.
    pub fn add_recorded(&mut self, recorded: &RecordedPlace) {
        let interval_ns = 1_000_000_000_u64
            .checked_div(recorded.shown_per_second)
            .unwrap_or(0);
        if recorded.is_call {
            self.add_call(recorded.probe, &recorded.place, Shown::default(), interval_ns);
        } else {
            self.add_line(recorded.probe, &recorded.place, [].into(), interval_ns);
        }
    }

    /// The places whose hits come, to be recorded.
    pub fn recorded_places(&self) -> Vec<RecordedPlace> {
        let lines =
            (self.lines.iter()).map(|(probe, line)| (*probe, line.place, &line.limit, &line.printed, false));
        let calls = (self.calls.iter())
            .map(|(probe, call)| (*probe, call.place, &call.limit, &call.shown.printed, true));
        let mut places: Vec<RecordedPlace> = lines
            .chain(calls)
            .filter_map(|(probe, place, limit, printed, is_call)| {
                Some(RecordedPlace {
                    probe,
                    place: Arc::clone(self.places.get(place as usize)?),
                    is_call,
                    shown_per_second: limit.per_second,
                    expressions: printed.iter().map(expression).collect(),
                })
            })
            .collect();
        places.sort_by_key(|place| place.probe);
        places
    }

    /// The places, in the order of their numbers.
    pub fn places(&self) -> &[Arc<TracedPlace>] {
        &self.places
    }

    /// Forgets probes that are gone; whether there were any. Places stay: hits that were sent name them. What is `around`
    /// begins anew then, and is counted as of before.
    pub fn retain(
        &mut self,
        readings: &dyn Readings,
        around: Around,
        is_live: impl Fn(ProbeId) -> bool,
    ) -> bool {
        let is_gone = |probe| !is_live(probe);
        let gone = self
            .lines
            .keys()
            .chain(self.calls.keys())
            .filter(|probe| is_gone(**probe));
        if gone.count() == 0 {
            return false;
        }
        let mut earlier = self.counted(readings, around, is_gone);
        let lines = self.lines.iter().map(|(probe, line)| (*probe, line.handed_over));
        let calls = self.calls.iter().map(|(probe, call)| (*probe, call.handed_over));
        let handed_over = lines.chain(calls).filter(|(probe, _)| is_gone(*probe));
        let known: u64 = earlier.lost.values().sum::<u64>()
            + earlier.rejected
            + handed_over.map(|(_, count)| count).sum::<u64>();
        // Records of what is traced no longer are still on their way, and calls open.
        add(
            &mut earlier.lost,
            [("edited", earlier.reached.saturating_sub(known))],
        );
        self.earlier = std::mem::take(&mut self.earlier).and(&earlier, &Totals::default());
        self.lines.retain(|probe, _| is_live(*probe));
        self.calls.retain(|probe, _| is_live(*probe));
        self.entered.retain(|_, entered| is_live(entered.probe));
        self.missed.retain(|probe, _| is_live(*probe));
        self.left_out = LeftOut::default();
        self.of_earlier = self.hits.len();
        if self.watchers.is_empty() {
            self.of_earlier = 0;
            // Who comes later is told what the scope sees as it is then.
            let lines = self.lines.values().map(|line| line.place);
            let places: HashSet<u32> = lines.chain(self.calls.values().map(|call| call.place)).collect();
            self.hits.retain(|hit| places.contains(&hit.place));
        }
        true
    }
}

/// What is told of an expression with its place.
fn expression(printed: &Printed) -> RecordedExpression {
    let type_name = printed.lowered.as_ref().map(|lowered| &*lowered.shape.type_name);
    RecordedExpression {
        expression: Arc::clone(&printed.expression),
        type_name: type_name.unwrap_or_default().into(),
    }
}
