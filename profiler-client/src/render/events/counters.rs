//! Counters over time as counters of formats of traces, where a value holds until the next.

use std::collections::BTreeMap;

use profiler_export::timeline::{Counter, Point, Process, Timeline};

use super::{Events, fact, missing};
use crate::{
    render::timeline::{Drawn, notes},
    state::timeline::{Bucket, TimelineState},
};

/// The rows that are drawn, of a target of this name: of one process, or of several together.
#[must_use]
pub fn of(state: &TimelineState, drawn: &[Drawn], title: &str, pids: &[u32]) -> Events {
    let mut timeline = Timeline::of(title);
    let process = if let [pid] = pids {
        timeline.process(*pid)
    } else {
        timeline.processes.push(Process {
            pid: None,
            name: title.to_owned(),
        });
        0
    };
    let names: BTreeMap<u32, &str> = state.threads().into_iter().collect();
    let mut unknown = 0;
    for row in drawn {
        let thread = row.thread.map(|tid| {
            let thread = timeline.thread(process, tid);
            if let (Some(thread), Some(name)) = (timeline.threads.get_mut(thread as usize), names.get(&tid)) {
                (*name).clone_into(&mut thread.name);
            }
            thread
        });
        timeline.counters.push(Counter {
            process,
            thread,
            name: row.counter.clone(),
            unit: row.unit.name().to_owned(),
            points: points(state, row, &mut unknown),
        });
    }
    timeline.facts = vec![fact("scope", &state.scope)];
    let notes = notes(state).join("; ");
    if !notes.is_empty() {
        timeline.facts.push(fact("notes", &notes));
    }
    if unknown > 0 {
        timeline
            .facts
            .push(fact("not known, as the point before", &unknown.to_string()));
    }
    let dropped = [("slow_client".to_owned(), state.dropped)].into();
    timeline.facts.extend(missing("lost", &dropped));
    Events {
        timeline,
        left_out: 0,
    }
}

/// A row's points, each where its bucket begins, and the last one again where that ends. A thread that was not there counted
/// nothing; what is not known, for another reason, is left out and counted.
fn points(state: &TimelineState, row: &Drawn, unknown: &mut u64) -> Vec<Point> {
    let bucket = |end_ns: u64| -> Option<&Bucket> {
        let at = state
            .buckets
            .binary_search_by_key(&end_ns, |bucket| bucket.to_ns)
            .ok()?;
        state.buckets.get(at)
    };
    let mut points: Vec<Point> = Vec::with_capacity(row.points.len() + 1);
    let mut last_ns = 0;
    for (end_ns, value) in &row.points {
        let Some(bucket) = bucket(*end_ns) else {
            continue;
        };
        let is_absent = row.thread.is_some_and(|tid| !bucket.has_thread(tid));
        match value.or_else(|| is_absent.then_some(0.0)) {
            Some(value) => points.push(Point {
                at_ns: bucket.from_ns,
                value,
            }),
            None => *unknown += 1,
        }
        last_ns = bucket.to_ns;
    }
    if let Some(last) = points.last().copied() {
        points.push(Point {
            at_ns: last_ns,
            ..last
        });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::timeline::tests::sample;

    #[test]
    fn a_counter_has_a_point_where_each_bucket_begins() {
        let (state, view) = sample();
        let drawn = view.drawn(&state);
        let Events { timeline, .. } = of(&state, &drawn, "server", &[7]);
        assert_eq!(timeline.processes[0].pid, Some(7));
        let clock = &timeline.counters[0];
        assert_eq!(
            (clock.label().as_str(), clock.thread),
            ("task-clock (CPUs)", None)
        );
        let points: Vec<_> = clock
            .points
            .iter()
            .map(|point| (point.at_ns, point.value))
            .collect();
        assert_eq!(
            points,
            [
                (1_000, 0.5),
                (100_001_000, 1.0),
                (200_001_000, 0.0),
                (300_001_000, 0.5),
                (400_001_000, 0.5)
            ]
        );
        let of_thread = timeline.counters.iter().find(|counter| counter.thread.is_some());
        let of_thread = of_thread.unwrap();
        assert_eq!(of_thread.name, "task-clock");
        let thread = &timeline.threads[of_thread.thread.unwrap() as usize];
        assert_eq!((thread.tid, thread.name.as_str()), (7, "clerk"));
        // Faults of the thread are not known in any bucket.
        let faults = timeline.counters.iter().rev();
        let mut faults = faults.filter(|counter| counter.name == "page-faults" && counter.thread.is_some());
        assert_eq!(faults.next().unwrap().points, []);
        let facts: Vec<_> = timeline.facts.iter().map(|fact| fact.key.as_str()).collect();
        assert_eq!(facts, ["scope", "notes", "not known, as the point before"]);
    }

    #[test]
    fn several_processes_are_one_group() {
        let (state, view) = sample();
        let drawn = view.drawn(&state);
        let events = of(&state, &drawn, "2 processes of server", &[7, 8]);
        assert_eq!(
            events.timeline.processes,
            [Process {
                pid: None,
                name: "2 processes of server".into()
            }]
        );
    }
}
