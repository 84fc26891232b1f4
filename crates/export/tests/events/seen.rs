//! What there is to see of events, whatever the format.

#![allow(dead_code, reason = "the readers' tests take a part of it")]

use std::collections::BTreeMap;

use profiler_export::timeline::Timeline;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub pid: u64,
    pub tid: u64,
    pub name: String,
    pub category: String,
    pub at_ns: u64,
    /// `None` of an instant.
    pub duration_ns: Option<u64>,
}

/// All events of a timeline, in order.
pub fn all(timeline: &Timeline) -> Vec<Seen> {
    let seen = |thread: u32, name: u32, category: &str, at_ns, duration_ns| {
        let thread = &timeline.threads[thread as usize];
        let pid = timeline.processes[thread.process as usize].pid;
        Seen {
            pid: pid.unwrap_or(0).into(),
            tid: thread.tid.into(),
            name: timeline.names()[name as usize].clone(),
            category: category.to_owned(),
            at_ns,
            duration_ns,
        }
    };
    let slices = timeline.slices.iter().map(|slice| {
        let (category, duration_ns) = (slice.category.name(), Some(slice.duration_ns));
        seen(slice.thread, slice.name, category, slice.began_ns, duration_ns)
    });
    let instants = timeline.instants.iter().map(|instant| {
        let category = instant.category.name();
        seen(instant.thread, instant.name, category, instant.at_ns, None)
    });
    let mut all: Vec<Seen> = slices.chain(instants).collect();
    all.sort();
    all
}

/// Whether no two slices of one lane overlap but where one is within the other. Lanes are those of the map.
pub fn nests<K: Ord>(lanes: &BTreeMap<K, Vec<(u64, u64)>>) -> bool {
    lanes.values().all(|slices| {
        slices.iter().enumerate().all(|(at, (began, end))| {
            slices[at + 1..].iter().all(|(other_began, other_end)| {
                let apart = end <= other_began || other_end <= began;
                let within = |a: u64, b: u64, c: u64, d: u64| c <= a && b <= d;
                apart
                    || within(*began, *end, *other_began, *other_end)
                    || within(*other_began, *other_end, *began, *end)
            })
        })
    })
}
