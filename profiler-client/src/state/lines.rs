//! Lines by the time in them, wherever they ran from.

use std::collections::HashMap;

use super::{times::activity, tree::Tree};

/// A line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LineKey {
    /// Path of its file.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

/// Time of threads while they were at a line, or in what it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTime {
    /// All of it, in nanoseconds; of an event, how many there were.
    pub all_ns: u64,
    /// What of it they were off the CPU, in nanoseconds.
    pub off_cpu_ns: u64,
}

/// A step of the way through the tree.
enum Way {
    Into { at: usize, is_off: bool },
    OutOf,
}

/// The lines of a call tree that tells lines apart. A line that is on a stack twice counts once.
#[must_use]
pub fn lines(tree: &Tree<'_>) -> HashMap<LineKey, LineTime> {
    let mut numbers: HashMap<(&str, u32), usize> = HashMap::new();
    let mut times: Vec<LineTime> = Vec::new();
    let into = |at: usize| Way::Into { at, is_off: false };
    let mut ahead: Vec<Way> = tree.roots.iter().copied().map(into).collect();
    // The line of each frame of the stack, where it has one and no frame further out has the same.
    let mut stack: Vec<Option<usize>> = Vec::new();
    let mut is_open: Vec<bool> = Vec::new();
    while let Some(way) = ahead.pop() {
        let Way::Into { at, is_off } = way else {
            if let Some(number) = stack.pop().flatten() {
                is_open[number] = false;
            }
            continue;
        };
        let node = &tree.nodes[at];
        let number = (node.frame.line > 0).then(|| {
            *numbers
                .entry((&node.frame.file, node.frame.line))
                .or_insert_with(|| {
                    times.push(LineTime::default());
                    is_open.push(false);
                    times.len() - 1
                })
        });
        let opened = number.filter(|number| !is_open[*number]);
        if let Some(number) = opened {
            is_open[number] = true;
            times[number].all_ns = times[number].all_ns.saturating_add(node.total.inside_ns);
        }
        // The outermost such frame says it for what is further in.
        let begins_off = !is_off && activity(node.frame).is_some();
        if begins_off {
            for number in stack.iter().flatten() {
                let off_cpu_ns = &mut times[*number].off_cpu_ns;
                *off_cpu_ns = off_cpu_ns.saturating_add(node.total.inside_ns);
            }
        }
        stack.push(opened);
        ahead.push(Way::OutOf);
        let is_off = is_off || begins_off;
        ahead.extend(node.children.iter().map(|&at| Way::Into { at, is_off }));
    }
    let key = |(file, line): (&str, u32)| LineKey {
        file: file.to_owned(),
        line,
    };
    numbers
        .into_iter()
        .map(|(line, number)| (key(line), times[number]))
        .collect()
}

#[cfg(test)]
mod tests {
    use profiler_proto::v1;

    use super::*;
    use crate::state::{
        flame::{FlameState, node},
        times::OFF_CPU,
    };

    #[test]
    fn a_line_has_the_time_of_what_it_calls_and_waits_for_once() {
        let frame = |id, line| v1::Frame {
            id,
            function: format!("f{line}"),
            file: "/src/f.c".into(),
            line,
            ..Default::default()
        };
        let sleeping = v1::Frame {
            id: 9,
            function: "[sleeping]".into(),
            module: OFF_CPU.into(),
            ..Default::default()
        };
        let weight = |node, inside_ns| v1::NodeWeight {
            node,
            inside_ns,
            inside_samples: 1,
            ..Default::default()
        };
        let mut state = FlameState::default();
        state
            .apply(v1::WatchFlameResponse {
                snapshot: true,
                by: v1::Grouping::Line.into(),
                frames: vec![frame(1, 10), frame(2, 20), sleeping],
                // 10 → 20 → 10, which sleeps; 10 → 20.
                nodes: vec![node(1, 0, 1), node(2, 1, 2), node(3, 2, 1), node(4, 3, 9)],
                weights: vec![weight(1, 1), weight(2, 10), weight(3, 100), weight(4, 1_000)],
                ..Default::default()
            })
            .unwrap();
        let lines = lines(&Tree::of(&state));
        let of = |line| {
            let key = LineKey {
                file: "/src/f.c".into(),
                line,
            };
            (lines[&key].all_ns, lines[&key].off_cpu_ns)
        };
        assert_eq!((of(10), of(20)), ((1_111, 1_000), (1_110, 1_000)));
        assert_eq!(lines.len(), 2);
    }
}
