//! Threads by the time in them, those of one name together.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use profiler_proto::v1;
use profiler_scope::Constant;

use crate::state::{
    flame::FlameState,
    shape::{Patterns, thread_name},
    times::OFF_CPU,
};

/// A thread, or all of one name but for the number at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRow {
    /// What it is called, with its number; of several, with a star for it.
    pub name: String,
    /// Patterns that mean it and no other.
    pub patterns: String,
    /// How many there are; 0 of one that stands by itself.
    pub threads: usize,
    /// It is one of those above.
    pub is_of_group: bool,
    /// Of several, another thread that a condition on their name is met by too.
    pub not_told_from: Option<String>,
    /// Its time.
    pub times: ThreadTimes,
}

/// Time of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// On a CPU, in nanoseconds; of an event, how many there were.
    pub on: u64,
    /// Off the CPU, in nanoseconds.
    pub off: u64,
    /// Samples.
    pub samples: u64,
}

impl ThreadRow {
    /// What calls by these threads meet and no others: an expression and the text of a value. `None` of a thread of which no
    /// number is known.
    #[must_use]
    pub fn condition(&self) -> Option<Condition> {
        if self.threads > 0 {
            return Some(Condition {
                expression: "$comm",
                value: Constant::Text(self.name.clone()).to_string(),
            });
        }
        let (_, number) = self.name.strip_suffix(')')?.rsplit_once(" (")?;
        let tid: u32 = number.parse().ok()?;
        Some(Condition {
            expression: "$tid",
            value: tid.to_string(),
        })
    }
}

/// A condition of the scope: an expression is equal to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is compared.
    pub expression: &'static str,
    /// With what, as it is written.
    pub value: String,
}

impl ThreadTimes {
    fn add(&mut self, other: Self) {
        self.on = self.on.saturating_add(other.on);
        self.off = self.off.saturating_add(other.off);
        self.samples = self.samples.saturating_add(other.samples);
    }

    /// All of it.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.on.saturating_add(self.off)
    }
}

/// The threads of a view that tells them apart: groups by their time, each before its threads by theirs.
#[must_use]
pub fn threads(view: &FlameState) -> Vec<ThreadRow> {
    if view.by != v1::Grouping::Thread {
        return Vec::new();
    }
    // The root that each node is below.
    let mut roots: std::collections::HashMap<u32, u32> =
        std::collections::HashMap::with_capacity(view.order.len());
    let mut times: BTreeMap<u32, ThreadTimes> = BTreeMap::new();
    for node in view.order.iter().filter_map(|id| view.nodes.get(id)) {
        let root = roots.get(&node.parent).copied().unwrap_or(node.frame);
        roots.insert(node.id, root);
        let Some(weight) = view.weights.get(&node.id) else {
            continue;
        };
        let is_off = view
            .frames
            .get(&node.frame)
            .is_some_and(|frame| frame.module == OFF_CPU);
        let (on, off) = if is_off {
            (0, weight.inside_ns)
        } else {
            (weight.inside_ns, 0)
        };
        times.entry(root).or_default().add(ThreadTimes {
            on,
            off,
            samples: weight.inside_samples,
        });
    }
    let mut groups: BTreeMap<String, Vec<ThreadRow>> = BTreeMap::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (root, times) in times {
        let Some(frame) = view.frames.get(&root) else {
            continue;
        };
        let row = ThreadRow {
            name: frame.function.clone(),
            patterns: Patterns::name(&frame.function),
            threads: 0,
            is_of_group: false,
            not_told_from: None,
            times,
        };
        names.insert(thread_name(frame));
        groups
            .entry(group(thread_name(frame)).to_owned())
            .or_default()
            .push(row);
    }
    let mut groups: Vec<Vec<ThreadRow>> = groups
        .into_iter()
        .map(|(word, threads)| rows(&word, threads, &names))
        .collect();
    groups.sort_by_key(|rows| std::cmp::Reverse(rows.first().map_or(0, |row| row.times.all())));
    groups.into_iter().flatten().collect()
}

/// A group's row and those of its threads; of one thread, its own. `names` are those of all threads.
fn rows(word: &str, mut threads: Vec<ThreadRow>, names: &BTreeSet<&str>) -> Vec<ThreadRow> {
    threads.sort_by(|a, b| {
        b.times
            .all()
            .cmp(&a.times.all())
            .then_with(|| a.name.cmp(&b.name))
    });
    if threads.len() < 2 {
        return threads;
    }
    let mut times = ThreadTimes::default();
    for thread in &mut threads {
        thread.is_of_group = true;
        times.add(thread.times);
    }
    let all_alike = threads
        .iter()
        .all(|thread| thread.name.starts_with(&format!("{word} (")));
    let end = if all_alike { "" } else { "*" };
    let name = format!("{word}{end}");
    let group = ThreadRow {
        not_told_from: not_told_from(word, &name, names),
        name,
        patterns: format!("{}{end}", Patterns::name(word)),
        threads: threads.len(),
        is_of_group: false,
        times,
    };
    std::iter::once(group).chain(threads).collect()
}

/// A thread outside of a group that meets a condition on the group's name: a name with a star at its end is met by all that begin so.
fn not_told_from(word: &str, name: &str, names: &BTreeSet<&str>) -> Option<String> {
    let beginning = name.strip_suffix('*')?;
    let names = names.range::<str, _>((Bound::Included(beginning), Bound::Unbounded));
    let mut names = names.take_while(|name| name.starts_with(beginning));
    names
        .find(|name| group(name) != word)
        .map(|&name| name.to_owned())
}

/// The name without a number at its end that counts: `clerk-` of `clerk-7`, but `python3.11` of itself.
fn group(name: &str) -> &str {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let counts = word.ends_with(|last: char| !last.is_alphanumeric() && last != '.');
    if counts && word.len() < name.len() {
        word
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(threads: &[(&str, u64, u64)]) -> FlameState {
        let mut message = v1::WatchFlameResponse {
            snapshot: true,
            by: v1::Grouping::Thread.into(),
            ..v1::WatchFlameResponse::default()
        };
        let mut frame = |function: &str, module: &str| {
            let id = u32::try_from(message.frames.len()).unwrap() + 1;
            message.frames.push(v1::Frame {
                id,
                function: function.to_owned(),
                module: module.to_owned(),
                ..v1::Frame::default()
            });
            id
        };
        let (f, waits) = (frame("f", ""), frame("[sleeping]", OFF_CPU));
        let frames: Vec<u32> = threads.iter().map(|(name, ..)| frame(name, "[thread]")).collect();
        for (at, (_, on, off)) in threads.iter().enumerate() {
            let id = u32::try_from(3 * at).unwrap() + 1;
            for (id, parent, frame, ns) in [
                (id, 0, frames[at], 0),
                (id + 1, id, f, *on),
                (id + 2, id, waits, *off),
            ] {
                message.nodes.push(v1::FlameNode {
                    id,
                    parent,
                    frame,
                    complete: true,
                });
                message.weights.push(v1::NodeWeight {
                    node: id,
                    inside_ns: ns,
                    ..v1::NodeWeight::default()
                });
            }
        }
        let mut view = FlameState::default();
        view.apply(message).unwrap();
        view
    }

    #[test]
    fn threads_of_one_name_stand_below_their_sum() {
        let view = view(&[
            ("main (1)", 50, 0),
            ("clerk-1 (7)", 10, 100),
            ("clerk-2 (8)", 30, 200),
            ("w (9)", 1, 0),
            ("w (10)", 2, 0),
        ]);
        let rows = threads(&view);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.name.as_str(),
                    row.threads,
                    row.times.on,
                    row.times.off,
                    row.is_of_group,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("clerk-*", 2, 40, 300, false),
                ("clerk-2 (8)", 0, 30, 200, true),
                ("clerk-1 (7)", 0, 10, 100, true),
                ("main (1)", 0, 50, 0, false),
                ("w", 2, 3, 0, false),
                ("w (10)", 0, 2, 0, true),
                ("w (9)", 0, 1, 0, true),
            ]
        );
        assert!(Patterns::read(&rows[0].patterns).matches("clerk-77"));
    }

    #[test]
    fn of_a_group_is_known_which_thread_a_condition_on_its_name_takes_too() {
        let of_group = |others: &[(&str, u64, u64)], group: &str| {
            let rows = threads(&view(others));
            let row = rows.into_iter().find(|row| row.name == group && row.threads > 0);
            row.unwrap().not_told_from
        };
        let pool = [("pool-1 (7)", 10, 0), ("pool-2 (8)", 10, 0)];
        let with = |name| [&pool[..], &[(name, 1, 0)]].concat();
        assert_eq!(of_group(&with("main (1)"), "pool-*"), None);
        assert_eq!(of_group(&with("pool (1)"), "pool-*"), None);
        let other = Some("pool-main".to_owned());
        assert_eq!(of_group(&with("pool-main (1)"), "pool-*"), other);
        // Whole names end with a star too.
        let stars = [("w* (7)", 10, 0), ("w* (8)", 10, 0), ("writer (9)", 1, 0)];
        assert_eq!(of_group(&stars, "w*"), Some("writer".to_owned()));
        let alike = [("w (7)", 10, 0), ("w (8)", 10, 0), ("writer (9)", 1, 0)];
        assert_eq!(of_group(&alike, "w"), None);
    }
}
