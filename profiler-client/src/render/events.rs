//! Views as events over time, which formats of traces are made of.
//!
//! | file | idea |
//! |---|---|
//! | `hits` | hits and calls of a trace, as they come |
//! | `spans` | the slowest calls |
//! | `counters` | counters over time |
//! | `values` | values and stacks as arguments |

pub mod counters;
pub mod hits;
pub mod spans;
mod values;

use std::collections::BTreeMap;

use profiler_export::{
    chrome, firefox, perfetto,
    timeline::{Fact, Timeline, Written},
};

use crate::cli::args::EventFormat;

/// How large a file gets; what would make it larger is counted.
const MOST_BYTES: usize = 512 << 20;

/// A view's events.
#[derive(Debug)]
pub struct Events {
    /// All that there was room for.
    pub timeline: Timeline,
    /// Those that there was no room for.
    pub left_out: u64,
}

impl Events {
    /// How many there are, points of counters included.
    #[must_use]
    pub fn len(&self) -> u64 {
        let points: usize = self
            .timeline
            .counters
            .iter()
            .map(|counter| counter.points.len())
            .sum();
        (self.timeline.slices.len() + self.timeline.instants.len() + points) as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives processes their names, by their numbers.
    pub fn name_processes(&mut self, names: &BTreeMap<u32, String>) {
        for process in &mut self.timeline.processes {
            if let Some(name) = process.pid.and_then(|pid| names.get(&pid)) {
                process.name.clone_from(name);
            }
        }
    }

    /// Makes a file of them, and says in it what is not there.
    #[must_use]
    pub fn write(mut self, format: EventFormat) -> Written {
        if self.left_out > 0 {
            self.timeline
                .facts
                .push(fact("left out", &self.left_out.to_string()));
        }
        let written = match format {
            EventFormat::Perfetto => perfetto::write(&self.timeline, MOST_BYTES),
            EventFormat::Chrome => chrome::write(&self.timeline, MOST_BYTES),
            EventFormat::Firefox => firefox::events(&self.timeline, MOST_BYTES),
        };
        Written {
            left_out: written.left_out.saturating_add(self.left_out),
            ..written
        }
    }
}

fn fact(key: &str, value: &str) -> Fact {
    Fact {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// What is missing, by reason, with a word for how.
fn missing(how: &str, counts: &BTreeMap<String, u64>) -> impl Iterator<Item = Fact> {
    let counts = counts.iter().filter(|(_, count)| **count > 0);
    counts.map(move |(reason, count)| fact(&format!("{how}: {reason}"), &count.to_string()))
}
