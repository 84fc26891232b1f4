//! Hits for people: a line each, and the stack below it where there is one.

use std::collections::BTreeMap;

use profiler_proto::v1;

use super::{escape::terminal, units};
use crate::{
    live::line::{Line, Style},
    state::trace::TraceState,
};

/// Columns that places are aligned in, at most: one long name must not push the values of all others away.
const MAX_PLACE_COLUMNS: usize = 48;

/// Columns of a duration.
const DURATION_COLUMNS: usize = 8;

/// A line for each hit, and one for each frame of its stack, innermost first. `origin_ns` is the time that theirs are counted from.
#[must_use]
pub fn hits(state: &TraceState, hits: &[v1::Hit], origin_ns: u64) -> Vec<Line> {
    let places: Vec<String> = state.places.iter().map(place).collect();
    let columns = places
        .iter()
        .map(|place| place.chars().count())
        .filter(|&columns| columns <= MAX_PLACE_COLUMNS)
        .max()
        .unwrap_or(0);
    let named = |hit: &v1::Hit| places.get(usize::try_from(hit.place).ok()?);
    let mut lines = Vec::new();
    for hit in hits {
        if let Some(place) = named(hit) {
            lines.push(line(hit, place, columns, origin_ns));
            if let Some(stack) = &hit.stack {
                lines.extend(state.frames(stack).rev().map(frame));
                if !stack.complete {
                    lines.push(Line::of(Style::Warning, "        … incomplete"));
                }
            }
        }
    }
    lines
}

/// A frame of a stack.
#[must_use]
pub(super) fn frame(frame: &v1::Frame) -> Line {
    let line = Line::of(Style::Plain, "        ").and(Style::Name, terminal(&frame.function));
    if frame.file.is_empty() {
        return line;
    }
    let file = terminal(last(&frame.file));
    line.and(
        Style::Faint,
        match frame.line {
            0 => format!("  {file}"),
            number => format!("  {file}:{number}"),
        },
    )
}

fn line(hit: &v1::Hit, place: &str, columns: usize, origin_ns: u64) -> Line {
    // A call may have begun before the run.
    let since_ns = i128::from(hit.ts_ns) - i128::from(origin_ns);
    let head = format!("{:11.6} s  {:>7}  ", since_ns as f64 / 1e9, hit.tid);
    let mut line = Line::of(Style::Faint, head).and(Style::Strong, place);
    if hit.duration_ns.is_some() || !hit.values.is_empty() {
        let padding = columns.saturating_sub(place.chars().count());
        line = line.and(Style::Plain, " ".repeat(padding + 1));
    }
    if let Some(duration_ns) = hit.duration_ns {
        let duration = units::duration(duration_ns as f64);
        let gap = if hit.values.is_empty() { "" } else { " " };
        line = line.and(Style::Plain, format!(" {duration:>DURATION_COLUMNS$}{gap}"));
    }
    for value in &hit.values {
        line = with_value(line, value, " ");
    }
    line
}

/// Adds a value to a line, behind a gap.
#[must_use]
pub fn with_value(line: Line, value: &v1::HitValue, gap: &str) -> Line {
    let line = line.and(Style::Faint, format!("{gap}{}=", terminal(&value.expression)));
    match shown(value) {
        Ok(text) => line.and(Style::Plain, text),
        Err(why_not) => line.and(Style::Warning, why_not),
    }
}

/// A value's text; why there is none, in angle brackets.
pub(crate) fn shown(value: &v1::HitValue) -> Result<String, String> {
    let why_not = |state: &str| match value.reason.as_str() {
        "" => format!("<{state}>"),
        reason => format!("<{state}: {}>", terminal(reason)),
    };
    match value.state() {
        v1::ValueState::Ok if value.text.is_empty() => Ok(terminal(&value.json).into_owned()),
        v1::ValueState::Ok => Ok(terminal(&value.text).into_owned()),
        // The reason is for those who ask for JSON: it is the same at each hit.
        v1::ValueState::OptimizedOut => Err("<optimized out>".to_owned()),
        v1::ValueState::Unreadable => Err(why_not("unreadable")),
        v1::ValueState::Unsupported | v1::ValueState::Unspecified => Err(why_not("unsupported")),
    }
}

/// A place by its function, and by its line or address where it is no call of that.
pub(crate) fn place(place: &v1::TracedPlace) -> String {
    let function = terminal(&place.function);
    let within = if place.file.is_empty() {
        format!("{}+{:#x}", terminal(last(&place.module)), place.address)
    } else {
        format!("{}:{}", terminal(last(&place.file)), place.line)
    };
    match (place.function.as_str(), place.site == place.function) {
        ("", _) => within,
        (_, true) => function.into_owned(),
        (_, false) => format!("{function} {within}"),
    }
}

/// The last component of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Reasons of what was not seen that are counted of all processes of the machine.
const UNSEEN_OF_ALL: [&str; 2] = ["place_missed", "syscall_missed"];

/// The run in a line: how long it was, what was shown of what happened, and why not all.
#[must_use]
pub fn summary(state: &TraceState, elapsed: std::time::Duration) -> String {
    let TraceState {
        shown,
        reached,
        rejected,
        lost,
        unseen,
        ..
    } = state;
    let mut text = format!(
        "{:.1} s, {} {} shown of {} ({} rejected)",
        elapsed.as_secs_f64(),
        units::count(*shown),
        if *shown == 1 { "hit" } else { "hits" },
        units::count(*reached),
        units::count(*rejected),
    );
    if let Some(reasons) = reasons(lost) {
        text.push_str(&format!("; not shown: {reasons}"));
    }
    let (of_all, own): (BTreeMap<_, _>, BTreeMap<_, _>) = unseen
        .clone()
        .into_iter()
        .partition(|(reason, _)| UNSEEN_OF_ALL.contains(&reason.as_str()));
    for (unseen, whose) in [(own, ""), (of_all, ", of all processes")] {
        if let Some(reasons) = reasons(&unseen) {
            text.push_str(&format!("; not seen{whose}: {reasons}"));
        }
    }
    text
}

/// Counts by reason; `None` where all are zero.
#[must_use]
pub fn reasons(lost: &BTreeMap<String, u64>) -> Option<String> {
    let reasons: Vec<String> = lost
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{} {}", terminal(reason), units::count(*count)))
        .collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    pub fn value(expression: &str, state: v1::ValueState, json: &str, text: &str) -> v1::HitValue {
        let ok = state == v1::ValueState::Ok;
        v1::HitValue {
            expression: expression.into(),
            state: state.into(),
            json: json.into(),
            text: text.into(),
            r#type: "int".into(),
            reason: if ok { String::new() } else { "why\x1b[2J".into() },
            as_int: None,
        }
    }

    /// A line with a value of each state, and a call.
    pub fn sample() -> (TraceState, Vec<v1::Hit>) {
        use v1::ValueState::{Ok, OptimizedOut, Unreadable, Unspecified, Unsupported};
        let mut state = TraceState::default();
        let message = v1::WatchTraceResponse {
            places: vec![
                v1::TracedPlace {
                    site: "/src/main.cc:1310".into(),
                    function: "parse".into(),
                    file: "/src/main.cc".into(),
                    line: 1310,
                    module: "/usr/bin/server".into(),
                    address: 0x1234,
                },
                v1::TracedPlace {
                    site: "handle_request".into(),
                    function: "handle_request".into(),
                    module: "/usr/bin/server".into(),
                    address: 0x2000,
                    ..Default::default()
                },
            ],
            hits: vec![
                v1::Hit {
                    ts_ns: 5_000_001_000,
                    pid: 7,
                    tid: 4631,
                    place: 0,
                    duration_ns: None,
                    values: vec![
                        value("n", Ok, "7", "7"),
                        value("s", Ok, "\"a\\u001b[2Jb\"", "\"a\x1b[2Jb\""),
                        value("m", OptimizedOut, "", ""),
                        value("p", Unreadable, "", ""),
                        value("q", Unsupported, "", ""),
                        value("r", Unspecified, "8", "8"),
                    ],
                    stack: None,
                },
                v1::Hit {
                    ts_ns: 2_000_000_000,
                    pid: 7,
                    tid: 4632,
                    place: 1,
                    duration_ns: Some(165_000),
                    values: Vec::new(),
                    stack: Some(v1::Stack {
                        frames: vec![9, 4],
                        complete: false,
                    }),
                },
            ],
            frames: vec![
                v1::Frame {
                    id: 4,
                    function: "handle_request".into(),
                    file: "/src/main.cc".into(),
                    line: 40,
                    module: "/usr/bin/server".into(),
                    inlined: true,
                    ..Default::default()
                },
                v1::Frame {
                    id: 9,
                    function: "serve\x1b[2J".into(),
                    ..Default::default()
                },
            ],
            reached: 56_789,
            lost: [("rate_limit".to_owned(), 56_787), ("ring_full".to_owned(), 0)].into(),
            ..Default::default()
        };
        let hits = state.apply(message).unwrap();
        (state, hits)
    }

    #[test]
    fn names_longer_than_a_line_fit_one() {
        let name = format!("shop::Cart<{}>::add", "std::vector<long>, ".repeat(15));
        let (mut state, mut seen) = sample();
        for place in &mut state.places {
            place.function.clone_from(&name);
            place.site.clone_from(&name);
        }
        for hit in &mut seen {
            hit.values.clear();
        }
        let lines = hits(&state, &seen, 0);
        assert!(lines.iter().any(|line| line.text().contains(&name)));
        let of_stack = frame(&v1::Frame {
            function: name.clone(),
            file: "/src/cart.cc".into(),
            line: 7,
            ..Default::default()
        });
        for line in lines.into_iter().chain([of_stack]) {
            let shown = line.with_short_name(80).text();
            assert!(shown.chars().count() <= 80, "{shown}");
        }
    }

    #[test]
    fn a_hit_is_a_line() {
        let (state, seen) = sample();
        let lines: Vec<String> = hits(&state, &seen, 3_000_000_000)
            .iter()
            .map(Line::text)
            .collect();
        assert_eq!(
            lines,
            [
                "   2.000001 s     4631  parse main.cc:1310  n=7 s=\"a\\u{1b}[2Jb\" m=<optimized out> \
                 p=<unreadable: why\\u{1b}[2J> q=<unsupported: why\\u{1b}[2J> r=<unsupported: why\\u{1b}[2J>",
                "  -1.000000 s     4632  handle_request        165 µs",
                "        handle_request  main.cc:40",
                "        serve\\u{1b}[2J",
                "        … incomplete",
            ]
        );
    }

    #[test]
    fn an_address_has_the_function_that_it_is_in() {
        let mut address = v1::TracedPlace {
            site: "/usr/lib/libfoo.so+0x1a2b".into(),
            module: "/usr/lib/libfoo.so".into(),
            address: 0x1a2b,
            ..Default::default()
        };
        assert_eq!(place(&address), "libfoo.so+0x1a2b");
        address.function = "parse".into();
        assert_eq!(place(&address), "parse libfoo.so+0x1a2b");
    }

    #[test]
    fn the_summary_says_what_is_missing() {
        let (mut state, _) = sample();
        assert_eq!(
            summary(&state, Duration::from_secs(3)),
            "3.0 s, 2 hits shown of 56,789 (0 rejected); not shown: rate_limit 56,787"
        );
        (state.shown, state.reached, state.rejected) = (1, 11, 10);
        state.lost.clear();
        assert_eq!(
            summary(&state, Duration::from_millis(1250)),
            "1.2 s, 1 hit shown of 11 (10 rejected)"
        );
        state.unseen.insert("place_missed".to_owned(), 3);
        assert_eq!(
            summary(&state, Duration::from_millis(1250)),
            "1.2 s, 1 hit shown of 11 (10 rejected); not seen, of all processes: place_missed 3"
        );
    }

    proptest! {
        #[test]
        fn hostile_text_moves_no_cursor(text in any::<String>(), state in -1..6_i32) {
            let (mut trace, mut seen) = sample();
            for place in &mut trace.places {
                (place.function, place.file, place.site) = (text.clone(), text.clone(), text.clone());
            }
            seen[0].values = vec![v1::HitValue {
                expression: text.clone(),
                state,
                json: text.clone(),
                text: text.clone(),
                r#type: text.clone(),
                reason: text.clone(),
                as_int: None,
            }];
            for line in hits(&trace, &seen, 0) {
                prop_assert!(!line.text().contains(char::is_control));
            }
        }
    }
}
