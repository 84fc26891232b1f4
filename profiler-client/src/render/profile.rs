//! A flame view as the stacks that other tools' formats are made of.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_export::{Frame, Label, Measure, Profile, Stack, Unit};
use profiler_proto::v1;

use super::{folded::INCOMPLETE, threshold};
use crate::{
    state::sides::Sides,
    state::{
        flame::FlameState,
        times::activity,
        tree::{Node, Tree, name},
    },
};

/// What is to be said of a profile beside its stacks.
pub struct About<'a> {
    /// What was profiled.
    pub target: &'a str,
    /// For how long.
    pub elapsed: Duration,
}

/// Makes the stacks of one side, or of both, which a label tells apart then.
///
/// They weigh samples; then, of time, that on the CPU, that off it and both, as far as they are drawn; else events.
#[must_use]
pub fn of(state: &FlameState, sides: Sides, about: &About<'_>) -> Profile {
    let tree = Tree::of(state);
    let measures = Measures::of(state);
    let mut frames = Frames::default();
    let mut stacks = Vec::new();
    let off_cpu = off_cpu(&tree);
    for (at, node) in tree.nodes.iter().enumerate() {
        for side in sides_of(sides) {
            let (samples, weight) = (node.own.samples(*side), node.own.ns(*side));
            if weight == 0 && samples == 0 {
                continue;
            }
            let mut numbers = Vec::new();
            if !node.complete {
                numbers.push(frames.number(&Frame {
                    name: INCOMPLETE.to_owned(),
                    ..Frame::default()
                }));
            }
            let stack = tree.stack(at);
            numbers.extend(
                stack
                    .iter()
                    .map(|frame| frames.number(&frame_of(frame, state.by))),
            );
            stacks.push(Stack {
                frames: numbers,
                weights: measures.weigh(samples, weight, off_cpu[at]),
                labels: labels(state, *side, stack.first().copied()),
            });
        }
    }
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut comments = Vec::new();
    if !state.scope.is_empty() {
        comments.push(format!("scope: {}", state.scope));
    }
    let threshold = threshold::describe(&state.scope, &state.summary);
    if !threshold.is_empty() {
        comments.push(threshold);
    }
    comments.extend(
        state
            .lost()
            .iter()
            .map(|(reason, count)| format!("lost: {reason} {count}")),
    );
    Profile {
        title: about.target.to_owned(),
        comments,
        measures: measures.list(),
        frames: frames.all,
        stacks,
        ended_ns: u64::try_from(ended.as_nanos()).unwrap_or(u64::MAX),
        duration_ns: u64::try_from(about.elapsed.as_nanos()).unwrap_or(u64::MAX),
    }
}

const fn sides_of(sides: Sides) -> &'static [Sides] {
    match sides {
        Sides::Inside => &[Sides::Inside],
        Sides::Outside => &[Sides::Outside],
        Sides::Difference => &[Sides::Outside, Sides::Inside],
    }
}

/// What stacks weigh.
enum Measures {
    /// Time on the CPU.
    OnCpu,
    /// Time off the CPU.
    OffCpu,
    /// Both.
    Times,
    /// An event, and what it is a number of.
    Event(String, Unit),
    /// Samples, of which nothing else is known: an imported profile.
    Samples,
}

impl Measures {
    fn of(state: &FlameState) -> Self {
        if state.event == SAMPLES {
            return Self::Samples;
        }
        if !state.unit.is_empty() {
            let unit = if state.unit == "bytes" {
                Unit::Bytes
            } else {
                Unit::Count
            };
            return Self::Event(state.event.clone(), unit);
        }
        match state.times {
            v1::Times::OnCpu | v1::Times::Unspecified => Self::OnCpu,
            v1::Times::OffCpu => Self::OffCpu,
            v1::Times::Both => Self::Times,
        }
    }

    fn list(&self) -> Vec<Measure> {
        let measure = |name: &str, unit| Measure {
            name: name.to_owned(),
            unit,
        };
        let time = |name| measure(name, Unit::Nanoseconds);
        let mut list = vec![measure(SAMPLES, Unit::Count)];
        match self {
            Self::Samples => {}
            Self::OnCpu => list.push(time("cpu")),
            Self::OffCpu => list.push(time("off_cpu")),
            Self::Times => list.extend([time("cpu"), time("off_cpu"), time("time")]),
            Self::Event(name, unit) => list.push(measure(name, *unit)),
        }
        list
    }

    /// In the order of the list.
    fn weigh(&self, samples: u64, weight: u64, is_off_cpu: bool) -> Vec<u64> {
        match self {
            Self::Samples => vec![weight],
            Self::OnCpu | Self::OffCpu | Self::Event(..) => vec![samples, weight],
            Self::Times if is_off_cpu => vec![samples, 0, weight, weight],
            Self::Times => vec![samples, weight, 0, weight],
        }
    }
}

/// The measure of how many samples there are.
const SAMPLES: &str = "samples";

/// Of each node, whether its time is off the CPU: it or one around it says what the thread did there.
fn off_cpu(tree: &Tree<'_>) -> Vec<bool> {
    let mut off_cpu: Vec<bool> = Vec::with_capacity(tree.nodes.len());
    for Node { frame, parent, .. } in &tree.nodes {
        // Parents come first.
        let outer = parent.is_some_and(|parent| off_cpu[parent]);
        off_cpu.push(outer || activity(frame).is_some());
    }
    off_cpu
}

/// What tells stacks apart that read alike.
fn labels(state: &FlameState, side: Sides, root: Option<&v1::Frame>) -> Vec<Label> {
    let label = |key: &str, value: &str| Label {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mut labels = Vec::new();
    if !state.scope.is_empty() || state.before.is_some() {
        let names = state.names();
        let side = if side == Sides::Outside {
            names.outside
        } else {
            names.inside
        };
        labels.push(label("side", side));
    }
    let key = match state.by {
        v1::Grouping::Thread => "thread",
        v1::Grouping::Process => "process",
        _ => return labels,
    };
    if let Some(root) = root {
        labels.push(label(key, name(root)));
    }
    labels
}

fn frame_of(frame: &v1::Frame, by: v1::Grouping) -> Frame {
    let by_line = by == v1::Grouping::Line;
    Frame {
        name: name(frame).to_owned(),
        file: frame.file.clone(),
        line: if by_line { frame.line } else { 0 },
        declared_line: if by_line { 0 } else { frame.line },
        module: frame.module.clone(),
        build_id: frame.build_id.clone(),
        address: frame.address,
        inlined: frame.inlined,
    }
}

/// Frames, each once.
#[derive(Default)]
struct Frames {
    all: Vec<Frame>,
    numbers: HashMap<Frame, u32>,
}

impl Frames {
    fn number(&mut self, frame: &Frame) -> u32 {
        if let Some(number) = self.numbers.get(frame) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(frame.clone());
        self.numbers.insert(frame.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fmt::Write as _};

    use super::*;
    use crate::{
        render::{escape, folded},
        state::tree::tests::sample,
    };

    const ABOUT: About<'_> = About {
        target: "server (7)",
        elapsed: Duration::from_secs(10),
    };

    /// Stacks as folded ones, with the weight of a measure.
    fn lines(profile: &Profile, measure: usize, side: &str) -> String {
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for stack in &profile.stacks {
            if stack
                .labels
                .iter()
                .any(|label| label.key == "side" && label.value == side)
            {
                let names: Vec<String> = profile
                    .frames_of(stack)
                    .map(|(_, frame)| escape::folded(&frame.name).into_owned())
                    .collect();
                *lines.entry(names.join(";")).or_default() += stack.weights[measure];
            }
        }
        lines
            .into_iter()
            .fold(String::new(), |mut text, (stack, weight)| {
                let _ = writeln!(text, "{stack} {weight}");
                text
            })
    }

    #[test]
    fn stacks_weigh_as_much_as_folded_ones() {
        let state = sample();
        for (sides, side) in [(Sides::Inside, "inside"), (Sides::Outside, "outside")] {
            let profile = of(&state, sides, &ABOUT);
            assert_eq!(lines(&profile, 1, side), folded::render(&state, sides));
        }
        let both = of(&state, Sides::Difference, &ABOUT);
        assert_eq!(lines(&both, 1, "inside"), folded::render(&state, Sides::Inside));
        assert_eq!(lines(&both, 1, "outside"), folded::render(&state, Sides::Outside));
        let samples: u64 = both.stacks.iter().map(|stack| stack.weights[0]).sum();
        assert_eq!(samples, 200, "inside and outside");
        assert!(
            both.comments.contains(&"lost: sample_ring_full 3".to_owned()),
            "{:?}",
            both.comments
        );
    }

    #[test]
    fn samples_of_which_nothing_else_is_known_are_one_measure() {
        let mut state = sample();
        (state.event, state.unit) = ("samples".to_owned(), "samples".to_owned());
        let profile = of(&state, Sides::Inside, &ABOUT);
        assert_eq!(profile.measures.len(), 1, "{:?}", profile.measures);
        assert_eq!(
            lines(&profile, 0, "inside"),
            folded::render(&state, Sides::Inside)
        );
    }

    #[test]
    fn time_off_the_cpu_is_a_measure_of_its_own() {
        let mut state = sample();
        state.times = v1::Times::Both;
        for frame in state
            .frames
            .values_mut()
            .filter(|frame| frame.function == "do_syscall_64")
        {
            (frame.function, frame.module) =
                ("[sleeping]".to_owned(), crate::state::times::OFF_CPU.to_owned());
        }
        let profile = of(&state, Sides::Inside, &ABOUT);
        let names: Vec<&str> = profile
            .measures
            .iter()
            .map(|measure| measure.name.as_str())
            .collect();
        assert_eq!(names, ["samples", "cpu", "off_cpu", "time"]);
        let sum = |at: usize| profile.stacks.iter().map(|stack| stack.weights[at]).sum::<u64>();
        assert_eq!((sum(0), sum(1), sum(2), sum(3)), (100, 500, 500, 1000));
    }
}
