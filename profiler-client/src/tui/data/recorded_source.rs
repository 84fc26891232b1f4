//! The source of a function as a recording has it: the lines that samples were taken at.

use std::collections::{BTreeMap, HashMap};

use profiler_plan::names::Matcher;
use profiler_proto::v1;
use profiler_scope::{Name, Place, parse};

use super::is_called;
use crate::{
    render::{escape::terminal, explain::is_file},
    state::{
        flame::FlameState,
        lines::{LineKey, LineTime},
    },
};

/// The source that is wanted, and of which recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSource {
    /// A function or a line, as the service takes it.
    pub place: String,
    /// The recording's file.
    pub recording: String,
}

/// Which function a frame is of. Inlined or not, its lines are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FunctionKey<'a> {
    module: &'a str,
    function: &'a str,
}

/// What source is asked for.
enum Asked {
    /// A function, as scopes have its name.
    Exact(String),
    /// A function of a name with `*` or `?` in it, as scopes have them.
    Glob(Name),
    /// The function that has a line.
    Line(LineKey),
}

impl Asked {
    /// Reads a place; `None` where it is neither a function nor a line.
    fn read(place: &str) -> Option<Self> {
        match parse(place).ok()?.last()?.place.clone() {
            Place::Function(name)
            | Place::Inlined(name)
            | Place::KernelFunction(name)
            | Place::Call { callee: name, .. } => Some(match name {
                Name::Exact(text) => Self::Exact(text),
                name @ Name::Glob(_) => Self::Glob(name),
            }),
            Place::Line { file, line } | Place::Branch { file, line, .. } => {
                Some(Self::Line(LineKey { file, line }))
            }
            _ => None,
        }
    }

    /// Whether it may be a function of this name.
    fn may_be(&self, function: &str) -> bool {
        match self {
            Self::Exact(name) => is_called(function, name),
            Self::Glob(name) => Matcher::new(name).matches_readable(function),
            Self::Line(_) => true,
        }
    }
}

/// A function with its lines.
struct Sampled<'a> {
    key: FunctionKey<'a>,
    lines: BTreeMap<(&'a str, u32), LineTime>,
}

impl Sampled<'_> {
    fn longest_ns(&self) -> u64 {
        self.lines.values().map(|time| time.all_ns).max().unwrap_or(0)
    }

    /// The file and the line in which, or in what is called from there, the most time is.
    fn hottest(&self) -> Option<(&str, u32)> {
        // Of equally long ones the first.
        let lines = self.lines.iter().rev();
        let (place, _) = lines.max_by_key(|(_, time)| time.all_ns)?;
        Some(*place)
    }

    /// Whether a line is one of the function's, or between two of them.
    fn has(&self, file: &str, line: u32) -> bool {
        let lines = self.lines.keys().filter(|(path, _)| is_file(path, file));
        let lines: Vec<u32> = lines.map(|(_, line)| *line).collect();
        lines.first().is_some_and(|first| *first <= line) && lines.last().is_some_and(|last| line <= *last)
    }
}

/// The function that a place means, with the lines that samples were taken at: where its code begins and ends was not recorded, nor
/// what can be probed. Of several of its name, the one with the longest line. The lines have no text: that is in files.
///
/// # Errors
///
/// Says why there is none.
pub fn recorded_source(
    view: &FlameState,
    times: &HashMap<LineKey, LineTime>,
    place: &str,
) -> Result<v1::SourceFunction, String> {
    if view.grouping() != v1::Grouping::Line {
        return Err(
            "Samples are told apart by thread, and not by line: Esc shows those of all threads.".to_owned(),
        );
    }
    let Some(asked) = Asked::read(place) else {
        return Err(format!("`{}` is neither a function nor a line.", terminal(place)));
    };
    let mut functions = sampled(view, times, &asked);
    let line = match &asked {
        Asked::Line(line) => Some(line),
        _ => None,
    };
    if let Some(LineKey { file, line }) = line {
        functions.retain(|function| function.has(file, *line));
    }
    functions.sort_by_key(|function| std::cmp::Reverse(function.longest_ns()));
    let others = functions.len().saturating_sub(1);
    let Some(function) = functions.into_iter().next() else {
        return Err(format!(
            "No sample was taken at a line of `{}`: its source is known where samples were, and the program has debug information.",
            terminal(place)
        ));
    };
    Ok(in_message(&function, line, others))
}

/// Functions that have lines with time.
fn sampled<'a>(view: &'a FlameState, times: &HashMap<LineKey, LineTime>, asked: &Asked) -> Vec<Sampled<'a>> {
    let mut functions: BTreeMap<FunctionKey<'a>, BTreeMap<(&'a str, u32), LineTime>> = BTreeMap::new();
    let frames = view.frames.values().filter(|frame| frame.line > 0);
    for frame in frames.filter(|frame| asked.may_be(&frame.function)) {
        let key = LineKey {
            file: frame.file.clone(),
            line: frame.line,
        };
        let Some(time) = times.get(&key).filter(|time| time.all_ns > 0) else {
            continue;
        };
        let function = FunctionKey {
            module: &frame.module,
            function: &frame.function,
        };
        let lines = functions.entry(function).or_default();
        lines.insert((&frame.file, frame.line), *time);
    }
    let functions = functions.into_iter();
    functions.map(|(key, lines)| Sampled { key, lines }).collect()
}

fn in_message(function: &Sampled<'_>, asked: Option<&LineKey>, others: usize) -> v1::SourceFunction {
    let hottest = function.hottest().unwrap_or_default();
    let own = hottest.0;
    let is_marked = |path: &str, line: u32| match asked {
        Some(asked) => line == asked.line && is_file(path, &asked.file),
        None => (path, line) == hottest,
    };
    let (of_own, of_others): (Vec<_>, Vec<_>) =
        function.lines.keys().copied().partition(|(file, _)| *file == own);
    let first = of_own.first().map_or(0, |(_, line)| *line);
    let last = of_own.last().map_or(0, |(_, line)| *line);
    let lines = of_own.into_iter().chain(of_others);
    let lines = lines.map(|(file, line)| v1::SourceLine {
        file: if file == own {
            String::new()
        } else {
            file.to_owned()
        },
        line,
        marked: is_marked(file, line),
        ..v1::SourceLine::default()
    });
    let warning = match others {
        0 => None,
        1 => {
            Some("another function is called so and has less time: its lines are not among these".to_owned())
        }
        others => Some(format!(
            "{others} other functions are called so and have less time: their lines are not among these"
        )),
    };
    v1::SourceFunction {
        function: Some(v1::Function {
            name: function.key.function.to_owned(),
            file: own.to_owned(),
            line: first,
            module: function.key.module.to_owned(),
            ..v1::Function::default()
        }),
        last_line: last,
        marked_line: asked.map_or(0, |asked| asked.line),
        lines: lines.collect(),
        warnings: warning.filter(|_| asked.is_none()).into_iter().collect(),
        ..v1::SourceFunction::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{flame::node, lines::lines, tree::Tree};

    fn frame(id: u32, function: &str, module: &str, file: &str, line: u32) -> v1::Frame {
        v1::Frame {
            id,
            function: function.to_owned(),
            module: module.to_owned(),
            file: file.to_owned(),
            line,
            ..v1::Frame::default()
        }
    }

    fn view() -> FlameState {
        let weight = |node, inside_ns| v1::NodeWeight {
            node,
            inside_ns,
            inside_samples: 1,
            ..v1::NodeWeight::default()
        };
        let mut view = FlameState::default();
        let message = v1::WatchFlameResponse {
            snapshot: true,
            by: v1::Grouping::Line.into(),
            frames: vec![
                frame(1, "main", "/bin/a", "/src/a.c", 40),
                frame(2, "a::f", "/bin/a", "/src/a.c", 12),
                frame(3, "a::f", "/bin/a", "/src/a.c", 17),
                frame(4, "a::f", "/bin/a", "/src/part.inc", 3),
                frame(5, "b::f", "/lib/b.so", "/src/b.c", 5),
            ],
            nodes: vec![
                node(1, 0, 1),
                node(2, 1, 2),
                node(3, 1, 3),
                node(4, 1, 4),
                node(5, 1, 5),
            ],
            weights: vec![weight(2, 10), weight(3, 100), weight(4, 5), weight(5, 7)],
            ..v1::WatchFlameResponse::default()
        };
        view.apply(message).unwrap();
        view
    }

    fn of(view: &FlameState, place: &str) -> Result<v1::SourceFunction, String> {
        recorded_source(view, &lines(&Tree::of(view)), place)
    }

    #[test]
    fn a_function_has_the_lines_that_samples_were_taken_at() {
        let view = view();
        let found = of(&view, "\"a::f\"").unwrap();
        let shown: Vec<_> = found
            .lines
            .iter()
            .map(|line| (line.file.as_str(), line.line, line.marked))
            .collect();
        assert_eq!(
            shown,
            [("", 12, false), ("", 17, true), ("/src/part.inc", 3, false)]
        );
        let function = found.function.unwrap();
        assert_eq!(
            (function.file.as_str(), function.line, found.last_line),
            ("/src/a.c", 12, 17)
        );
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        // By the last part of its name it is one of two.
        let found = of(&view, "f").unwrap();
        assert_eq!(found.function.unwrap().name, "a::f");
        assert!(
            found.warnings[0].starts_with("another function"),
            "{:?}",
            found.warnings
        );
    }

    #[test]
    fn globs_mean_what_they_mean_in_scopes() {
        let view = view();
        for (place, function) in [
            ("a::*", "a::f"),
            ("b::?", "b::f"),
            ("?", "a::f"),
            ("ma?n", "main"),
        ] {
            let found = of(&view, place).unwrap();
            assert_eq!(found.function.unwrap().name, function, "{place}");
        }
        // Without a path, of the last part of one alone.
        for place in ["a*", "ma?", "\"a::*\""] {
            assert!(of(&view, place).is_err(), "{place}");
        }
    }

    #[test]
    fn a_line_leads_to_the_function_that_has_it_or_has_lines_around_it() {
        let view = view();
        for (place, function) in [("a.c:12", "a::f"), ("a.c:14", "a::f"), ("b.c:5", "b::f")] {
            assert_eq!(
                of(&view, place).unwrap().function.unwrap().name,
                function,
                "{place}"
            );
        }
        let found = of(&view, "a.c:12").unwrap();
        assert!(found.lines[0].marked && !found.lines[1].marked);
        for place in ["a.c:20", "c.c:5", "g", "syscall:read", "[", ""] {
            assert!(of(&view, place).is_err(), "{place}");
        }
    }

    #[test]
    fn nothing_is_known_of_lines_where_samples_are_told_apart_by_thread() {
        let mut view = view();
        view.by = v1::Grouping::Thread;
        assert!(of(&view, "f").unwrap_err().contains("Esc"));
    }
}
