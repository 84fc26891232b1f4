//! Functions, lines and values, as they are asked for.

use profiler_proto::v1;
use profiler_scope::{Place, parse};

use crate::{
    connect::Connection,
    failure::Failure,
    render::escape::terminal,
    tui::{
        data::source::{expressions, lines, places},
        lens::{Suggestion, Wanted, path},
    },
    verb::source::sources,
};

/// Functions that are looked at for suggestions, and those that are made of them.
const LOOKED_AT: usize = 2000;
const SUGGESTED: usize = 50;
/// With fewer, those are looked for that have the letters of what is typed.
const FEW: usize = 10;
/// Lines that stand before functions.
const FIRST_LINES: usize = 5;
/// Most letters of which that is looked for.
const MOST_LETTERS: usize = 16;

/// The source of the first function that a place means.
pub async fn source(
    connection: &Connection,
    target: v1::Target,
    place: &str,
) -> Result<v1::SourceFunction, Failure> {
    sources(connection, target, place)
        .await?
        .into_iter()
        .next()
        .ok_or_else(|| Failure::not_found(format!("No function or line matches `{}`.", terminal(place))))
}

/// The values that can be read at the last step of a scope, so many at most.
pub async fn known(connection: &Connection, target: v1::Target, scope: &str, most: usize) -> Vec<String> {
    let steps = parse(scope).map(|scope| scope.steps).unwrap_or_default();
    let (place, at_line) = match steps.last().map(|step| &step.place) {
        Some(Place::Function(name)) => (path::quoted(name.text()), None),
        Some(
            Place::Line { file, line } | Place::Branch { file, line, .. } | Place::Call { file, line, .. },
        ) => {
            let place = Place::Line {
                file: file.clone(),
                line: *line,
            };
            (place.to_string(), Some(*line))
        }
        _ => return Vec::new(),
    };
    let found = match steps.iter().rev().nth(1).map(|step| &step.place) {
        // A line may be inlined in many functions: the one that it is looked at in has its own variables.
        Some(Place::Function(name)) if at_line.is_some() => {
            let outer = source(connection, target.clone(), &path::quoted(name.text())).await;
            let has_line = |source: &v1::SourceFunction| lines(source).any(|line| Some(line.line) == at_line);
            outer.ok().filter(has_line)
        }
        _ => None,
    };
    let found = match found {
        Some(found) => Some(found),
        None => source(connection, target, &place).await.ok(),
    };
    found.map_or_else(Vec::new, |source| {
        let line = at_line.and_then(|number| lines(&source).find(|line| line.line == number));
        expressions(&source, line, most)
    })
}

/// Suggestions for what is typed; none where they cannot be had.
pub async fn suggestions(connection: &Connection, target: v1::Target, wanted: Wanted) -> Vec<Suggestion> {
    match wanted {
        Wanted::Nothing => Vec::new(),
        Wanted::Value { step, fragment } => {
            let known = known(connection, target, &step, SUGGESTED).await;
            let has_spans =
                parse(&step).is_ok_and(|scope| scope.last().is_some_and(|last| last.place.has_spans()));
            let mut found = conditions(&known, has_spans);
            found.extend(of_thread().into_iter().filter(|_| path::takes_threads(&step)));
            ranked(found, &fragment)
        }
        Wanted::Step { before, fragment } => {
            let outer = path::function(&before);
            let lines = match outer {
                Some(outer) => source(connection, target.clone(), &path::quoted(&outer)).await,
                None => Err(Failure::failed("nothing is before it")),
            };
            let lines = lines
                .map(|source| ranked(lines_of(&source), &fragment))
                .unwrap_or_default();
            let functions = functions(connection, target, &fragment).await.unwrap_or_default();
            together(lines, functions, &fragment)
        }
    }
}

/// What a condition can be of: the values that are known there, or else registers; of calls, how long they take too.
fn conditions(known: &[String], has_spans: bool) -> Vec<Suggestion> {
    let suggestion = |text: &str, about: &str| Suggestion {
        text: text.to_owned(),
        about: about.to_owned(),
    };
    let durations = [
        suggestion(">= p95]", "the slowest 5% of its calls"),
        suggestion(">= p99]", "the slowest 1% of its calls"),
        suggestion(">= 1ms]", "calls of a millisecond and more"),
    ];
    let registers = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];
    let registers = registers.map(|register| suggestion(register, "by the calling convention"));
    let values: Vec<Suggestion> = if known.is_empty() {
        registers.into_iter().filter(|_| has_spans).collect()
    } else {
        known.iter().map(|text| suggestion(text, "")).collect()
    };
    let durations = durations.into_iter().filter(|_| has_spans);
    values.into_iter().chain(durations).collect()
}

/// What a condition can be of at each place in the program.
fn of_thread() -> [Suggestion; 2] {
    [
        ("$comm == \"", "the thread's name, or its beginning and *"),
        ("$tid == ", "the thread's number"),
    ]
    .map(|(text, about)| Suggestion {
        text: text.to_owned(),
        about: about.to_owned(),
    })
}

/// Lines and functions: some lines that have what is typed as a whole stand first, as they are in what is looked at.
fn together(lines: Vec<Suggestion>, functions: Vec<Suggestion>, fragment: &str) -> Vec<Suggestion> {
    let fragment = fragment.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&fragment);
    let (mut first, mut others): (Vec<Suggestion>, Vec<Suggestion>) = lines
        .into_iter()
        .partition(|line| has(&line.text) || has(&line.about));
    let more = first.split_off(first.len().min(FIRST_LINES));
    others.splice(0..0, more);
    let mut all = [first, functions, others].concat();
    all.truncate(SUGGESTED);
    all
}

/// The lines of a function that can be a step, with their text.
fn lines_of(function: &v1::SourceFunction) -> Vec<Suggestion> {
    let places = lines(function).filter_map(|line| {
        let place = places(function, line)
            .into_iter()
            .find(|place| matches!(place, Place::Line { .. }))?;
        Some(Suggestion {
            text: place.to_string(),
            about: line.text.trim().to_owned(),
        })
    });
    places.collect()
}

/// Functions that have all words of a fragment in their names, in this order; where they are few, those that have its letters.
async fn functions(
    connection: &Connection,
    target: v1::Target,
    fragment: &str,
) -> Result<Vec<Suggestion>, Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':');
    let words: Vec<&str> = fragment
        .split(|c| !is_plain(c))
        .filter(|word| !word.is_empty())
        .collect();
    let letters: Vec<String> = words.concat().chars().map(String::from).collect();
    if letters.len() < 2 {
        return Ok(Vec::new());
    }
    // The service refuses patterns that nothing matches.
    let mut names = matching(connection, target.clone(), &words.join("*"))
        .await
        .unwrap_or_default();
    if names.len() < FEW && letters.len() <= MOST_LETTERS {
        names.extend(matching(connection, target, &letters.join("*")).await?);
    }
    let names = names.into_iter().map(|name| Suggestion {
        text: path::quoted(&name),
        about: String::new(),
    });
    Ok(ranked(names.collect(), fragment))
}

/// Names of functions that a pattern matches somewhere.
async fn matching(
    connection: &Connection,
    target: v1::Target,
    pattern: &str,
) -> Result<Vec<String>, Failure> {
    let request = v1::ListFunctionsRequest {
        target: Some(target),
        pattern: format!("*{pattern}*"),
    };
    let mut stream = connection.targets().list_functions(request).await?.into_inner();
    let mut names: Vec<String> = Vec::new();
    while let Some(message) = stream.message().await? {
        names.extend(message.functions.into_iter().map(|function| function.name));
        if names.len() >= LOOKED_AT {
            break;
        }
    }
    Ok(names)
}

/// Those that have the letters of a fragment in their order, in what they are or what is beside them: those that begin so first,
/// then those of which a part does, then those that have it as a whole, short ones before long ones.
#[must_use]
pub fn ranked(mut suggestions: Vec<Suggestion>, fragment: &str) -> Vec<Suggestion> {
    let lower = |text: &str| text.to_lowercase();
    let letters: String = lower(fragment).split_whitespace().collect();
    let has_letters = |text: &str| {
        let mut chars = text.chars();
        letters.chars().all(|letter| chars.any(|c| c == letter))
    };
    suggestions
        .retain(|suggestion| has_letters(&lower(&suggestion.text)) || has_letters(&lower(&suggestion.about)));
    suggestions.sort_by_cached_key(|suggestion| {
        let text = lower(suggestion.text.trim_matches('"'));
        let last = text.rsplit("::").next().unwrap_or(&text).to_owned();
        let begins = !text.starts_with(&letters);
        let is_whole = !text.contains(&letters) && !lower(&suggestion.about).contains(&letters);
        // Lines stay in their order.
        let length = if suggestion.about.is_empty() {
            text.len()
        } else {
            0
        };
        let name = if suggestion.about.is_empty() {
            text
        } else {
            String::new()
        };
        (begins, !last.starts_with(&letters), is_whole, length, name)
    });
    suggestions.dedup();
    suggestions.truncate(SUGGESTED);
    suggestions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str], fragment: &str) -> Vec<String> {
        let suggestion = |name: &&str| Suggestion {
            text: (*name).to_owned(),
            about: String::new(),
        };
        let found = ranked(names.iter().map(suggestion).collect(), fragment);
        found.into_iter().map(|suggestion| suggestion.text).collect()
    }

    #[test]
    fn what_begins_so_comes_first_and_short_names_before_long_ones() {
        let names = [
            "re::handle",
            "unhandle",
            "handle_all",
            "handle",
            "handle",
            "other",
        ];
        assert_eq!(
            texts(&names, "handle"),
            ["handle", "handle_all", "re::handle", "unhandle"]
        );
    }

    #[test]
    fn letters_in_their_order_are_enough_whatever_the_case() {
        let names = ["handle_request", "hard", "rq", "HandleReq"];
        assert_eq!(texts(&names, "hrq"), ["HandleReq", "handle_request"]);
        assert_eq!(texts(&names, ""), ["rq", "hard", "HandleReq", "handle_request"]);
        assert!(texts(&names, "xyz").is_empty());
    }

    #[test]
    fn some_lines_stand_before_functions_and_the_others_behind() {
        let of = |text: &str, about: &str| Suggestion {
            text: text.to_owned(),
            about: about.to_owned(),
        };
        let line = |number: u32, about| of(&format!("a.c:{number}"), about);
        let lines = (1..9)
            .map(|number| line(number, "Branch"))
            .chain([line(9, "bar and ch")]);
        let all = together(lines.collect(), vec![of("branch_to", "")], "branch");
        let texts: Vec<&str> = all.iter().map(|found| found.text.as_str()).collect();
        assert_eq!(texts[4..7], ["a.c:5", "branch_to", "a.c:6"]);
        assert_eq!((texts.len(), texts[9]), (10, "a.c:9"));
    }

    #[test]
    fn calls_without_known_values_have_registers_and_durations() {
        let texts = |known: &[&str], has_spans| {
            let known: Vec<String> = known.iter().map(|text| (*text).to_owned()).collect();
            let found = conditions(&known, has_spans);
            found
                .into_iter()
                .map(|found| found.text)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(texts(&["n"], true), "n >= p95] >= p99] >= 1ms]");
        assert_eq!(texts(&["n"], false), "n");
        assert!(texts(&[], true).starts_with("arg0 arg1 "));
        assert_eq!(texts(&[], false), "");
    }

    #[test]
    fn lines_are_found_by_their_text_and_stay_in_order() {
        let line = |line: u32, text: &str| Suggestion {
            text: format!("a.c:{line}"),
            about: text.to_owned(),
        };
        let lines = vec![
            line(14, "compress(n);"),
            line(9, "int n = count();"),
            line(15, "compress(m);"),
        ];
        let found: Vec<String> = ranked(lines, "compress")
            .into_iter()
            .map(|line| line.text)
            .collect();
        assert_eq!(found, ["a.c:14", "a.c:15"]);
    }
}
