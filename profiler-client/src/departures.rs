//! Processes that leave a session during a run, said at once.

use std::collections::HashSet;

use profiler_proto::v1;

use crate::{
    failure::Failure,
    output::{ndjson, note_amid_progress},
    render::{escape::terminal, json, units},
};

/// Processes that leave at once and have a line each.
const LINES: usize = 4;

/// Says which processes leave, each once.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    said: HashSet<u32>,
    as_json: bool,
}

impl Departures {
    /// None yet; they are told as objects too, where standard output takes those.
    #[must_use]
    pub fn new(as_json: bool) -> Self {
        Self {
            said: HashSet::new(),
            as_json,
        }
    }

    /// Says which processes a message tells of that were not said.
    ///
    /// # Errors
    ///
    /// Where standard output cannot be written.
    pub fn say(&mut self, info: &v1::StreamInfo) -> Result<(), Failure> {
        let new = self.take(info);
        for line in lines(&new) {
            note_amid_progress(&line);
        }
        if self.as_json && !new.is_empty() {
            ndjson(json::departures(&new))?;
        }
        Ok(())
    }

    /// The same in words, for a screen.
    pub fn lines(&mut self, info: &v1::StreamInfo) -> Vec<String> {
        lines(&self.take(info))
    }

    /// Those that were not taken before: a second stream tells them again.
    fn take<'a>(&mut self, info: &'a v1::StreamInfo) -> Vec<&'a v1::Departure> {
        let departures = info.departures.iter();
        departures.filter(|left| self.said.insert(left.pid)).collect()
    }
}

/// A line for each, or one for many.
fn lines(left: &[&v1::Departure]) -> Vec<String> {
    match left {
        [first, others @ .., last] if left.len() > LINES => vec![format!(
            "{}, and {} others left; {}",
            terminal(&first.reason),
            units::count(others.len() as u64 + 1),
            that_stay(last)
        )],
        few => few
            .iter()
            .map(|one| format!("{}; {}", terminal(&one.reason), that_stay(one)))
            .collect(),
    }
}

/// How many processes are left.
fn that_stay(last: &v1::Departure) -> String {
    let verb = if last.left == 1 { "is" } else { "are" };
    format!("{} of {} {verb} left", last.left, last.of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(pid: u32, left: u32) -> v1::Departure {
        v1::Departure {
            pid,
            name: "pcx".to_owned(),
            reason: format!("process {pid} (pcx) ended"),
            left,
            of: 9,
            ..v1::Departure::default()
        }
    }

    #[test]
    fn each_process_is_said_once_with_how_many_are_left() {
        let mut departures = Departures::default();
        let info = |pids: &[u32]| v1::StreamInfo {
            departures: pids.iter().map(|pid| departure(*pid, 9 - pid)).collect(),
            ..v1::StreamInfo::default()
        };
        let mut said = |pids: &[u32]| departures.lines(&info(pids));
        assert_eq!(said(&[]), [""; 0]);
        assert_eq!(said(&[1]), ["process 1 (pcx) ended; 8 of 9 are left"]);
        // A second stream begins with those that left before.
        assert_eq!(said(&[1, 8]), ["process 8 (pcx) ended; 1 of 9 is left"]);
        assert_eq!(
            said(&[2, 3, 4, 5, 6]),
            ["process 2 (pcx) ended, and 4 others left; 3 of 9 are left"]
        );
    }
}
