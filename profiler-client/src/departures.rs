//! Processes that leave a session during a run, and files that they replace, said at once.

use std::collections::HashSet;

use profiler_proto::v1;

use crate::{
    failure::Failure,
    output::{ndjson, note_amid_progress},
    render::{escape::terminal, json, units},
};

/// Processes that leave at once and have a line each.
const LINES: usize = 4;

/// A file of a process, by that one's number and its own path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReplacedFile {
    pid: u32,
    path: String,
}

/// What a message tells that was not said.
struct New<'a> {
    left: Vec<&'a v1::Departure>,
    replaced: Vec<&'a v1::ReplacedFile>,
}

/// Says which processes leave, and which files they replace, each once.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    said: HashSet<u32>,
    replaced: HashSet<ReplacedFile>,
    as_json: bool,
}

impl Departures {
    /// None yet; they are told as objects too, where standard output takes those.
    #[must_use]
    pub fn new(as_json: bool) -> Self {
        Self {
            as_json,
            ..Self::default()
        }
    }

    /// Says what a message tells of its session's processes that was not said.
    ///
    /// # Errors
    ///
    /// Where standard output cannot be written.
    pub fn say(&mut self, info: &v1::StreamInfo) -> Result<(), Failure> {
        let new = self.take(info);
        for line in new.lines() {
            note_amid_progress(&line);
        }
        if self.as_json && !(new.left.is_empty() && new.replaced.is_empty()) {
            let left = json::departures(&new.left);
            ndjson(left + &json::replaced_files(&new.replaced))?;
        }
        Ok(())
    }

    /// The same in words, for a screen.
    pub fn lines(&mut self, info: &v1::StreamInfo) -> Vec<String> {
        self.take(info).lines()
    }

    /// What was not taken before: a second stream tells it again.
    fn take<'a>(&mut self, info: &'a v1::StreamInfo) -> New<'a> {
        let (departures, replaced) = (info.departures.iter(), info.replaced_files.iter());
        let mut is_new = |file: &&v1::ReplacedFile| {
            self.replaced.insert(ReplacedFile {
                pid: file.pid,
                path: file.path.clone(),
            })
        };
        New {
            replaced: replaced.filter(&mut is_new).collect(),
            left: departures.filter(|left| self.said.insert(left.pid)).collect(),
        }
    }
}

impl New<'_> {
    /// A line for each, or one for many.
    fn lines(&self) -> Vec<String> {
        let mut lines = lines_of_left(&self.left);
        lines.extend(lines_of_replaced(&self.replaced));
        lines
    }
}

fn lines_of_replaced(replaced: &[&v1::ReplacedFile]) -> Vec<String> {
    match replaced {
        [first, others @ ..] if replaced.len() > LINES => vec![format!(
            "{}; and so of {} other files of processes",
            terminal(&first.reason),
            units::count(others.len() as u64)
        )],
        few => few.iter().map(|one| terminal(&one.reason).into_owned()).collect(),
    }
}

fn lines_of_left(left: &[&v1::Departure]) -> Vec<String> {
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

    #[test]
    fn each_file_that_a_process_replaced_is_said_once() {
        let mut departures = Departures::default();
        let file = |pid: u32| v1::ReplacedFile {
            pid,
            path: "/srv/p.so".to_owned(),
            reason: format!("process {pid} (pcx) has loaded another /srv/p.so"),
            ..v1::ReplacedFile::default()
        };
        let mut said = |pids: &[u32]| {
            departures.lines(&v1::StreamInfo {
                replaced_files: pids.iter().map(|pid| file(*pid)).collect(),
                ..v1::StreamInfo::default()
            })
        };
        assert_eq!(said(&[1]), ["process 1 (pcx) has loaded another /srv/p.so"]);
        assert_eq!(said(&[1, 2]), ["process 2 (pcx) has loaded another /srv/p.so"]);
        assert_eq!(
            said(&[3, 4, 5, 6, 7]),
            ["process 3 (pcx) has loaded another /srv/p.so; and so of 4 other files of processes"]
        );
    }
}
