//! Stacks as they are wanted: without some frames, recursion as one, only some threads, or all around some functions.

use std::collections::{HashMap, HashSet};

use profiler_proto::v1;

use super::{flame::FlameState, functions::FrameId};

/// The module of a thread's frame.
const THREAD: &str = "[thread]";

/// Names of functions or threads: patterns with `|` between them. `*` stands for any text, a backslash before a character for that
/// one. A pattern that begins with `::` is of whole names alone, others of the last parts of a path too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    text: String,
    patterns: Vec<Pattern>,
}

/// What begins a pattern of whole names.
const WHOLE: &str = "::";

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pattern {
    pieces: Vec<Piece>,
    /// The last parts of a path are not enough.
    is_whole: bool,
}

/// A piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Any,
    One(char),
}

impl Patterns {
    /// Reads them.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut patterns = Vec::new();
        let mut pattern = Pattern::beginning(text);
        let mut chars = pattern.behind_beginning(text).chars();
        while let Some(c) = chars.next() {
            let piece = match c {
                '|' => {
                    let next = Pattern::beginning(chars.as_str());
                    chars = next.behind_beginning(chars.as_str()).chars();
                    patterns.push(std::mem::replace(&mut pattern, next));
                    continue;
                }
                '*' => Piece::Any,
                '\\' => Piece::One(chars.next().unwrap_or('\\')),
                c => Piece::One(c),
            };
            pattern.pieces.push(piece);
        }
        patterns.push(pattern);
        patterns.retain(|pattern| !pattern.pieces.is_empty());
        Self {
            text: text.to_owned(),
            patterns,
        }
    }

    /// A name as a pattern: nothing in it stands for anything else.
    #[must_use]
    pub fn name(name: &str) -> String {
        let mut text = String::new();
        if name.starts_with(WHOLE) {
            text.push('\\');
        }
        for c in name.chars() {
            if matches!(c, '|' | '*' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
        text
    }

    /// Those that these names alone match, as a whole.
    #[must_use]
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(|name| WHOLE.to_owned() + &Self::name(name));
        let names: Vec<String> = names.collect();
        Self::read(&names.join("|"))
    }

    /// As they were read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether one of them is a name, or, unless it is of whole names, the last components of its path.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let parts = name.match_indices("::").map(|(at, _)| &name[at + 2..]);
        let candidates: Vec<Vec<char>> = std::iter::once(name)
            .chain(parts)
            .map(|part| part.chars().collect())
            .collect();
        let is_matched = |pattern: &Pattern| {
            let count = if pattern.is_whole { 1 } else { candidates.len() };
            let mut candidates = candidates.iter().take(count);
            candidates.any(|name| is_match(&pattern.pieces, name))
        };
        self.patterns.iter().any(is_matched)
    }
}

impl Pattern {
    /// One without pieces yet, of whole names where a text begins so.
    fn beginning(text: &str) -> Self {
        Self {
            pieces: Vec::new(),
            is_whole: text.starts_with(WHOLE),
        }
    }

    /// What of a text that it begins stands behind that.
    fn behind_beginning<'a>(&self, text: &'a str) -> &'a str {
        if self.is_whole { &text[WHOLE.len()..] } else { text }
    }
}

/// Whether a pattern is all of a text.
fn is_match(pattern: &[Piece], text: &[char]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last `*` is, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(Piece::One(c)) if *c == text[from] => (at, from) = (at + 1, from + 1),
            Some(Piece::Any) => {
                star = Some((at, from));
                at += 1;
            }
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (at, from) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|piece| *piece == Piece::Any)
}

/// Functions that all is seen from. Of one that another of them calls, what is in that one is the outer one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Around {
    /// What they call, wherever they are called from: a root for each.
    Callees(Patterns),
    /// Who calls them, the nearest first: a root for each.
    Callers(Patterns),
}

impl Around {
    /// Their names.
    #[must_use]
    pub const fn functions(&self) -> &Patterns {
        match self {
            Self::Callees(functions) | Self::Callers(functions) => functions,
        }
    }
}

/// What is done to stacks, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Only threads of these names; those of a view that tells threads apart.
    pub threads: Patterns,
    /// Without these functions, and what they call.
    pub hide: Patterns,
    /// These functions are part of who calls them.
    pub fold: Patterns,
    /// A function that calls itself is one call.
    pub collapse: bool,
    /// Seen from some functions.
    pub around: Option<Around>,
}

impl Shape {
    /// Whether stacks stay as they are.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.threads.is_empty()
            && self.hide.is_empty()
            && self.fold.is_empty()
            && !self.collapse
            && self.around.is_none()
    }

    /// A view with its stacks in this shape. It has no differences: they are of whole stacks.
    #[must_use]
    pub fn of(&self, view: &FlameState) -> FlameState {
        let mut shaped = self.without_frames(view);
        match &self.around {
            None => {}
            Some(Around::Callees(functions)) => {
                let functions = matching(&shaped, functions, |frame| &frame.function);
                shaped = callees(&shaped, &functions);
            }
            Some(Around::Callers(functions)) => {
                let functions = matching(&shaped, functions, |frame| &frame.function);
                shaped = callers(&shaped, &functions);
            }
        }
        shaped
    }

    fn without_frames(&self, view: &FlameState) -> FlameState {
        let mut into = Merged::like(view);
        let hidden = matching(view, &self.hide, |frame| &frame.function);
        let folded = matching(view, &self.fold, |frame| &frame.function);
        let threads = matching(view, &self.threads, thread_name);
        // Where each node's time goes; nowhere for what is left out.
        let mut places: HashMap<u32, Option<u32>> = HashMap::with_capacity(view.order.len());
        places.insert(0, Some(0));
        for node in view.order.iter().filter_map(|id| view.nodes.get(id)) {
            let parent = places.get(&node.parent).copied().flatten();
            let is_thread = view
                .frames
                .get(&node.frame)
                .is_some_and(|frame| frame.module == THREAD);
            let place = match parent {
                None => None,
                Some(_) if hidden.contains(&node.frame) => None,
                Some(parent) if is_thread && !self.threads.is_empty() => {
                    let is_named = threads.contains(&node.frame) || is_like(view, node.frame, &self.threads);
                    is_named.then_some(parent)
                }
                // A root has no caller to be part of.
                Some(parent) if parent != 0 && folded.contains(&node.frame) => Some(parent),
                Some(parent) if self.collapse && into.is_of(parent, node.frame) => Some(parent),
                Some(parent) => Some(into.node(parent, node.frame, node.complete)),
            };
            places.insert(node.id, place);
            if let (Some(place), Some(weight)) =
                (place.filter(|place| *place != 0), view.weights.get(&node.id))
            {
                into.add(place, weight);
            }
        }
        into.view
    }
}

/// The frames whose names patterns match.
fn matching(view: &FlameState, patterns: &Patterns, name: fn(&v1::Frame) -> &str) -> HashSet<u32> {
    let frames = view.frames.values();
    let found = frames.filter(|frame| !patterns.is_empty() && patterns.matches(name(frame)));
    found.map(|frame| frame.id).collect()
}

/// A thread's name, without its number.
#[must_use]
pub fn thread_name(frame: &v1::Frame) -> &str {
    let name = frame.function.as_str();
    name.rsplit_once(" (").map_or(name, |(name, _)| name)
}

/// Whether a thread is meant with its number.
fn is_like(view: &FlameState, frame: u32, patterns: &Patterns) -> bool {
    view.frames
        .get(&frame)
        .is_some_and(|frame| patterns.matches(&frame.function))
}

/// A view that is made of another's nodes.
struct Merged {
    view: FlameState,
    /// By parent, frame, and whether stacks are complete.
    known: HashMap<Key, u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    parent: u32,
    frame: u32,
    complete: bool,
}

impl Merged {
    fn like(view: &FlameState) -> Self {
        let view = FlameState {
            scope: view.scope.clone(),
            by: view.by,
            times: view.times,
            event: view.event.clone(),
            unit: view.unit.clone(),
            pace: view.pace,
            frames: view.frames.clone(),
            summary: view.summary.clone(),
            before: view.before.clone(),
            cost: view.cost,
            dropped: view.dropped,
            started: view.started,
            ..FlameState::default()
        };
        Self {
            view,
            known: HashMap::new(),
        }
    }

    fn node(&mut self, parent: u32, frame: u32, complete: bool) -> u32 {
        let key = Key {
            parent,
            frame,
            complete,
        };
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        // As many as there were at most.
        let id = u32::try_from(self.view.order.len()).map_or(u32::MAX, |count| count + 1);
        self.known.insert(key, id);
        self.view.order.push(id);
        let node = v1::FlameNode {
            id,
            parent,
            frame,
            complete,
        };
        self.view.nodes.insert(id, node);
        id
    }

    /// Whether a node is a call of the function that a frame is of.
    fn is_of(&self, node: u32, frame: u32) -> bool {
        let of = |frame| self.view.frames.get(&frame).map(FrameId::of);
        match self.view.nodes.get(&node) {
            Some(node) => node.frame == frame || of(node.frame) == of(frame),
            None => false,
        }
    }

    fn add(&mut self, node: u32, more: &v1::NodeWeight) {
        let weight = self.view.weights.entry(node).or_insert(v1::NodeWeight {
            node,
            ..v1::NodeWeight::default()
        });
        weight.inside_ns = weight.inside_ns.saturating_add(more.inside_ns);
        weight.inside_samples = weight.inside_samples.saturating_add(more.inside_samples);
        weight.outside_ns = weight.outside_ns.saturating_add(more.outside_ns);
        weight.outside_samples = weight.outside_samples.saturating_add(more.outside_samples);
    }
}

fn callees(view: &FlameState, functions: &HashSet<u32>) -> FlameState {
    let mut into = Merged::like(view);
    let mut places: HashMap<u32, u32> = HashMap::new();
    for node in view.order.iter().filter_map(|id| view.nodes.get(id)) {
        let is_it = functions.contains(&node.frame);
        let place = match places.get(&node.parent) {
            Some(parent) => into.node(*parent, node.frame, true),
            None if is_it => into.node(0, node.frame, true),
            None => continue,
        };
        places.insert(node.id, place);
        if let Some(weight) = view.weights.get(&node.id) {
            into.add(place, weight);
        }
    }
    into.view
}

fn callers(view: &FlameState, functions: &HashSet<u32>) -> FlameState {
    let mut into = Merged::like(view);
    // The outermost call of one of the functions that a node is in.
    let mut outermost: HashMap<u32, u32> = HashMap::new();
    let mut in_it: Vec<(u32, v1::NodeWeight)> = Vec::new();
    for node in view.order.iter().filter_map(|id| view.nodes.get(id)) {
        let is_it = functions.contains(&node.frame);
        let call = match outermost.get(&node.parent) {
            Some(call) => *call,
            None if is_it => node.id,
            None => continue,
        };
        outermost.insert(node.id, call);
        if let Some(weight) = view.weights.get(&node.id) {
            in_it.push((call, *weight));
        }
    }
    // Where the time of each of these calls goes: to the last of its callers.
    let mut ends: HashMap<u32, u32> = HashMap::new();
    for (call, weight) in in_it {
        let end = *ends.entry(call).or_insert_with(|| {
            let upwards = std::iter::successors(view.nodes.get(&call), |node| view.nodes.get(&node.parent));
            upwards.fold(0, |parent, node| into.node(parent, node.frame, node.complete))
        });
        into.add(end, &weight);
    }
    into.view
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::tree::{Tree, name, tests::sample};

    fn folded(view: &FlameState) -> Vec<String> {
        let tree = Tree::of(view);
        let mut lines: Vec<String> = (0..tree.nodes.len())
            .filter(|at| tree.nodes[*at].own.inside_ns > 0)
            .map(|at| {
                let names: Vec<&str> = tree.stack(at).iter().map(|frame| name(frame)).collect();
                format!("{} {}", names.join(";"), tree.nodes[at].own.inside_ns)
            })
            .collect();
        lines.sort();
        lines
    }

    fn view(stacks: &[(&str, u64)]) -> FlameState {
        let mut into = Merged::like(&FlameState::default());
        let mut ids: HashMap<String, u32> = HashMap::new();
        for (stack, ns) in stacks {
            let mut parent = 0;
            for function in stack.split(';') {
                let next = u32::try_from(ids.len()).unwrap() + 1;
                let id = *ids.entry(function.to_owned()).or_insert(next);
                let module = if function.contains(" (") { THREAD } else { "" };
                into.view.frames.insert(
                    id,
                    v1::Frame {
                        id,
                        function: function.to_owned(),
                        module: module.to_owned(),
                        ..v1::Frame::default()
                    },
                );
                parent = into.node(parent, id, true);
            }
            into.add(
                parent,
                &v1::NodeWeight {
                    inside_ns: *ns,
                    ..v1::NodeWeight::default()
                },
            );
        }
        into.view
    }

    fn shaped(shape: &Shape, stacks: &[(&str, u64)]) -> Vec<String> {
        folded(&shape.of(&view(stacks)))
    }

    #[test]
    fn patterns_are_names_parts_of_paths_or_globs() {
        let patterns = Patterns::read("malloc|std::*|free|a\\*b");
        for name in ["malloc", "std::vec::push", "alloc::free", "a*b"] {
            assert!(patterns.matches(name), "{name}");
        }
        for name in ["malloc_usable_size", "xfree", "", "aab"] {
            assert!(!patterns.matches(name), "{name}");
        }
        assert!(Patterns::read("").is_empty() && Patterns::read("|").is_empty());
        for odd in ["w|*\\", "::w"] {
            assert!(Patterns::read(&Patterns::name(odd)).matches(odd), "{odd}");
        }
    }

    #[test]
    fn patterns_of_whole_names_do_not_match_the_last_parts_of_a_path() {
        let names = Patterns::of_names(["read", "std::io::Read::read_exact", "::odd|*"]);
        assert_eq!(names.text(), "::read|::std::io::Read::read_exact|::\\::odd\\|\\*");
        for name in ["read", "std::io::Read::read_exact", "::odd|*"] {
            assert!(names.matches(name), "{name}");
        }
        for name in [
            "std::io::Read::read",
            "read_exact",
            "odd|*",
            "a::std::io::Read::read_exact",
            "",
        ] {
            assert!(!names.matches(name), "{name}");
        }
        // Beside others, and with `*`.
        let patterns = Patterns::read("write|::std::*");
        for (name, is_matched) in [("a::write", true), ("std::vec", true), ("a::std::vec", false)] {
            assert_eq!(patterns.matches(name), is_matched, "{name}");
        }
        assert!(Patterns::read("::").is_empty() && Patterns::of_names([""]).is_empty());
    }

    #[test]
    fn hidden_functions_are_gone_with_what_they_call_and_folded_ones_are_part_of_their_callers() {
        let stacks = [
            ("main;f;malloc;mmap", 3),
            ("main;f", 10),
            ("main;f;wrap;g", 5),
            ("wrap", 1),
        ];
        let hide = Shape {
            hide: Patterns::read("malloc|free"),
            ..Shape::default()
        };
        assert_eq!(shaped(&hide, &stacks), ["main;f 10", "main;f;wrap;g 5", "wrap 1"]);
        let fold = Shape {
            fold: Patterns::read("malloc|wrap"),
            ..Shape::default()
        };
        assert_eq!(
            shaped(&fold, &stacks),
            ["main;f 10", "main;f;g 5", "main;f;mmap 3", "wrap 1"],
            "a root has no caller"
        );
    }

    #[test]
    fn recursion_is_one_call() {
        let collapse = Shape {
            collapse: true,
            ..Shape::default()
        };
        let stacks = [("main;f;f;f;g", 3), ("main;f", 4), ("main;f;f", 5)];
        assert_eq!(shaped(&collapse, &stacks), ["main;f 9", "main;f;g 3"]);
    }

    #[test]
    fn threads_are_kept_by_name_or_number_and_their_stacks_put_together() {
        let stacks = [
            ("clerk-1 (7);main;f", 3),
            ("clerk-2 (8);main;f", 4),
            ("flusher (9);main;g", 5),
        ];
        let of = |text: &str| {
            let threads = Patterns::read(text);
            shaped(
                &Shape {
                    threads,
                    ..Shape::default()
                },
                &stacks,
            )
        };
        assert_eq!(of("clerk-*"), ["main;f 7"]);
        assert_eq!(of("clerk-2 (8)"), ["main;f 4"]);
        assert_eq!(of("flusher"), ["main;g 5"]);
    }

    #[test]
    fn callees_and_callers_are_put_together_wherever_a_function_is() {
        let stacks = [
            ("main;a;f;g", 3),
            ("main;b;f;g", 4),
            ("main;b;f;f;h", 5),
            ("main;b", 9),
        ];
        let around = |around| {
            shaped(
                &Shape {
                    around: Some(around),
                    ..Shape::default()
                },
                &stacks,
            )
        };
        let callees = |text: &str| around(Around::Callees(Patterns::read(text)));
        let callers = |text: &str| around(Around::Callers(Patterns::read(text)));
        assert_eq!(callees("f"), ["f;f;h 5", "f;g 7"]);
        assert_eq!(callers("f"), ["f;a;main 3", "f;b;main 9"]);
        assert!(callers("x").is_empty());
        // Several have a root each; the time of one inside of another is the outer one's, and counts once.
        assert_eq!(callees("f|b"), ["b 9", "b;f;f;h 5", "b;f;g 4", "f;g 3"]);
        assert_eq!(callees("[gh]|g|h"), ["g 7", "h 5"]);
        assert_eq!(callers("g|h"), ["g;f;a;main 3", "g;f;b;main 4", "h;f;f;b;main 5"]);
        assert_eq!(
            callees("*"),
            ["main;a;f;g 3", "main;b 9", "main;b;f;f;h 5", "main;b;f;g 4"]
        );
    }

    #[test]
    fn how_often_stacks_were_taken_stays_whatever_is_made_of_them() {
        let pace = Some(profiler_aggregate::pace::Pace::Period(16));
        let sampled = FlameState {
            pace,
            ..view(&[("main;f;g", 3)])
        };
        for around in [
            None,
            Some(Around::Callees(Patterns::read("f"))),
            Some(Around::Callers(Patterns::read("f"))),
        ] {
            let shape = Shape {
                around,
                hide: Patterns::read("g"),
                ..Shape::default()
            };
            assert_eq!(shape.of(&sampled).pace, pace, "{shape:?}");
        }
    }

    #[test]
    fn names_are_patterns_of_themselves_alone() {
        let patterns = Patterns::of_names(["operator*", "a|b"]);
        assert_eq!(patterns.text(), "::operator\\*|::a\\|b");
        assert!(patterns.matches("operator*") && patterns.matches("a|b"));
        assert!(!patterns.matches("operator+") && !patterns.matches("a"));
    }

    proptest! {
        #[test]
        fn no_time_is_lost_or_made_but_where_it_is_hidden(text in "[a-z_|*;]{0,12}", collapse: bool) {
            let whole = sample();
            let total = |view: &FlameState| Tree::of(view).total;
            let fold = Shape { fold: Patterns::read(&text), collapse, ..Shape::default() };
            prop_assert_eq!(total(&fold.of(&whole)), total(&whole));
            let hide = Shape { hide: Patterns::read(&text), ..Shape::default() };
            prop_assert!(total(&hide.of(&whole)).inside_ns <= total(&whole).inside_ns);
            let callees = Shape { around: Some(Around::Callees(Patterns::read(&text))), ..Shape::default() };
            let callers = Shape { around: Some(Around::Callers(Patterns::read(&text))), ..Shape::default() };
            let (callees, callers) = (total(&callees.of(&whole)), total(&callers.of(&whole)));
            prop_assert_eq!(callees, callers, "it is the time in these functions");
            prop_assert!(callees.inside_ns <= total(&whole).inside_ns);
        }
    }
}
