//! What slow calls do that others do not, for people: a line each.

use std::{collections::BTreeMap, time::Duration};

use profiler_proto::v1;
use profiler_scope::Place;

use super::{escape::terminal, trace::reasons, units};
use crate::live::line::{Line, Style, wrapped};

/// Something that is true of less than this share more, or less, of slow calls than of others explains little.
const WORTH_SAYING: f64 = 0.01;

/// Above findings: the shares of slow calls and of others of which they are true, and by how much these differ at least.
pub const HEADING: &str = "   slow  others difference ≥";

/// The difference that there is at least, whatever its sign.
#[must_use]
pub fn certain(finding: &v1::Finding) -> f64 {
    let v1::Interval { low, high, .. } = finding.difference.unwrap_or_default();
    low.max(-high).max(0.0)
}

/// The findings that say something, the surest first.
pub fn worth_saying(explained: &v1::WatchExplainResponse) -> impl Iterator<Item = &v1::Finding> {
    let findings = explained.findings.iter();
    findings.filter(|finding| certain(finding) >= WORTH_SAYING)
}

/// The text of the line that a finding is about, where that is one of a function's source.
fn text_of<'a>(finding: &v1::Finding, source: &'a v1::SourceFunction) -> Option<&'a str> {
    let scope = profiler_scope::parse(&finding.text).ok()?;
    let (Place::Line { file, line } | Place::Branch { file, line, .. } | Place::Call { file, line, .. }) =
        &scope.last()?.place
    else {
        return None;
    };
    let own = source.function.as_ref().map_or("", |function| &function.file);
    let is_it = |other: &&v1::SourceLine| {
        let of = if other.file.is_empty() { own } else { &other.file };
        other.line == *line && is_file(of, file)
    };
    let text = source.lines.iter().find(is_it)?.text.trim();
    Some(text).filter(|text| !text.is_empty())
}

/// Whether a path is that of a file by its last components, as scopes have it.
#[must_use]
pub fn is_file(path: &str, file: &str) -> bool {
    path.strip_suffix(file)
        .is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
}

/// A finding, and the text of its line.
#[must_use]
pub fn line_with_text(finding: &v1::Finding, source: Option<&v1::SourceFunction>) -> Line {
    let text = source.and_then(|source| text_of(finding, source));
    match text {
        Some(text) => line(finding).and(Style::Faint, format!("   {}", terminal(text))),
        None => line(finding),
    }
}

/// The table, with the text of lines that are in the function's source; `more` says how there would be more calls.
#[must_use]
pub fn explained(
    explained: &v1::WatchExplainResponse,
    source: Option<&v1::SourceFunction>,
    number: usize,
    more: &str,
) -> Vec<Line> {
    let (slow, other) = (
        explained.slow.unwrap_or_default(),
        explained.other.unwrap_or_default(),
    );
    if explained.warming || slow.calls == 0 || other.calls == 0 {
        let why = if explained.warming {
            "too few calls for the percentile"
        } else if explained.looked_at == 0 {
            "no call has ended"
        } else {
            "the calls that were looked at are all slow, or none is"
        };
        return vec![Line::of(
            Style::Warning,
            format!("nothing to compare: {why} ({more})"),
        )];
    }
    let from = match explained.threshold_ns {
        0 => String::new(),
        ns => format!(" (from {})", units::duration(ns as f64)),
    };
    let mut lines = vec![Line::of(
        Style::Strong,
        format!(
            "{} slow calls{from} of {} on average, {} others of {}",
            units::count(slow.calls),
            units::duration(slow.mean_ns),
            units::count(other.calls),
            units::duration(other.mean_ns),
        ),
    )];
    lines.extend(longer(explained).map(|text| Line::of(Style::Warning, text)));
    lines.extend(other_share(explained).map(|text| Line::of(Style::Warning, text)));
    lines.push(Line::default());
    let all = worth_saying(explained).count();
    if all == 0 {
        lines.push(Line::of(
            Style::Plain,
            format!(
                "none of {} branches, calls, values, waits and functions tells slow calls from others",
                explained.judged
            ),
        ));
        return lines;
    }
    lines.push(Line::of(Style::Faint, HEADING));
    for finding in worth_saying(explained).take(number) {
        lines.push(line_with_text(finding, source));
    }
    if all > number {
        let more = units::count((all - number) as u64);
        lines.push(Line::of(Style::Faint, format!("{more} more: -n shows them")));
    }
    if let Some(next) = worth_saying(explained).find(|finding| !finding.next.is_empty()) {
        lines.push(Line::default());
        let line = Line::of(Style::Faint, NEXT).and(Style::Plain, format!("'{}'", terminal(&next.next)));
        lines.push(match cost(next) {
            Some(cost) => line.and(Style::Faint, format!("   {cost}")),
            None => line,
        });
    }
    lines
}

/// What is before the scope of the next step.
const NEXT: &str = "look at those: ";

/// The lines of [`explained`] in so many columns: sentences are divided between words, and what stands beside a finding, or beside
/// the next step, stands below it where there is no room. The next step itself stays whole, to be typed.
#[must_use]
pub fn fitted(lines: Vec<Line>, width: usize) -> Vec<Line> {
    let fitted = |line: Line| match line.0.as_slice() {
        _ if line.width() <= width => vec![line],
        [(style, text)] => wrapped(*style, text, width),
        [head, shown, beside @ ..] => {
            let first = Line(vec![head.clone(), shown.clone()]);
            let is_next = head.1 == NEXT;
            let first = if is_next { first } else { first.fitted(width) };
            let below = beside.iter().map(|(style, text)| {
                let text = format!("{BELOW}{}", text.trim_start());
                Line::of(*style, text).cut(width)
            });
            std::iter::once(first).chain(below).collect()
        }
        [] => vec![line],
    };
    lines.into_iter().flat_map(fitted).collect()
}

/// Before what stands below a line.
const BELOW: &str = "      ";

/// Calls are so many times as long for being looked at that it is said.
const MUCH_LONGER: f64 = 1.5;

/// Says by how much calls that are looked at are longer than all, where it is much.
fn longer(explained: &v1::WatchExplainResponse) -> Option<String> {
    let (looked_at, of_all) = (
        explained.threshold_ns as f64,
        explained.threshold_of_all_ns as f64,
    );
    (of_all > 0.0 && looked_at > of_all * MUCH_LONGER).then(|| {
        format!(
            "what is looked at in calls makes these longer: of all calls, slow ones begin at {}",
            units::duration(of_all)
        )
    })
}

/// Calls of which a share is said.
const ENOUGH_CALLS: u64 = 100;

/// Says which share of the calls is slow, where it is far from the one that was asked for: many take equally long.
fn other_share(explained: &v1::WatchExplainResponse) -> Option<String> {
    let slow = explained.slow.unwrap_or_default().calls;
    let all = slow + explained.other.unwrap_or_default().calls;
    let scope = profiler_scope::parse(&explained.info.as_ref()?.scope).ok()?;
    let asked = scope.steps.last()?.share_of_calls()?;
    let share = units::ratio(slow, all);
    let is_far = share > 2.0 * asked || share < asked / 2.0;
    (all >= ENOUGH_CALLS && is_far).then(|| {
        format!(
            "{} of these calls count as slow, not {}: many take equally long",
            units::percent(share),
            units::percent(asked)
        )
    })
}

/// What the next step costs in addition.
fn cost(finding: &v1::Finding) -> Option<String> {
    let (hits_per_s, cpu_share) = (finding.next_hits_per_s?, finding.next_cpu_share?);
    let hits = units::number(hits_per_s);
    Some(if cpu_share < 1.0 {
        format!("{hits} hits/s, about {} of a core", units::percent(cpu_share))
    } else {
        format!("{hits} hits/s, about {} cores", units::number(cpu_share))
    })
}

/// A finding: its shares, what is certain, and what it is.
#[must_use]
pub fn line(finding: &v1::Finding) -> Line {
    let share = |share: Option<v1::CallShare>| {
        let share = share.unwrap_or_default();
        units::percent(units::ratio(share.have, share.of))
    };
    let more = finding.difference.unwrap_or_default().value >= 0.0;
    let sign = if more { '+' } else { '-' };
    let head = format!(
        "{:>7} {:>7} {:>9}   ",
        share(finding.slow),
        share(finding.other),
        format!("{sign}{}", units::percent(certain(finding))),
    );
    let line = Line::of(Style::Plain, head).and(Style::Strong, terminal(&finding.text));
    let (Some(slow), Some(other)) = (finding.slow_mean, finding.other_mean) else {
        return line;
    };
    let is_time = matches!(finding.kind(), v1::finding::Kind::Call | v1::finding::Kind::Wait);
    let (slow, other) = if is_time {
        (units::duration(slow), units::duration(other))
    } else {
        (mean(slow), mean(other))
    };
    line.and(Style::Faint, format!("   mean {slow}, of others {other}"))
}

/// A mean of values, which may be negative.
fn mean(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", units::number(value.abs()))
}

/// How far it is.
#[must_use]
pub fn progress(explained: &v1::WatchExplainResponse, elapsed: Duration) -> String {
    format!(
        "{:.0} s, looked at {} of {} calls, {} of them slow",
        elapsed.as_secs_f64(),
        units::count(explained.looked_at),
        units::count(explained.calls.max(explained.looked_at)),
        units::count(explained.slow.unwrap_or_default().calls),
    )
}

/// What was looked at, and what was not; `more` says how there would be more calls.
#[must_use]
pub fn summary(explained: &v1::WatchExplainResponse, elapsed: Duration, more: &str) -> String {
    let mut text = format!(
        "{:.1} s, looked at {} of {} calls and at {} branches, calls, values and waits in them",
        elapsed.as_secs_f64(),
        units::count(explained.looked_at),
        units::count(explained.calls.max(explained.looked_at)),
        explained.features,
    );
    if explained.judged < explained.features {
        text.push_str(&format!(
            "; {} of them in too few calls to be judged ({more})",
            explained.features - explained.judged
        ));
    }
    if let Some(unjudged) = unjudged(explained) {
        text.push_str(&format!("; {unjudged}"));
    }
    let lost: BTreeMap<String, u64> = explained.lost.clone().into_iter().collect();
    if let Some(reasons) = reasons(&lost) {
        text.push_str(&format!("; lost: {reasons}"));
    }
    text
}

/// What was not looked at, and why; `None` where there is nothing.
#[must_use]
pub fn unjudged(explained: &v1::WatchExplainResponse) -> Option<String> {
    let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for v1::NotLookedAt { what, reason } in &explained.not_looked_at {
        left_out.entry(reason).or_default().push(what);
    }
    let mut texts = Vec::new();
    for (reason, what) in left_out {
        let others = match what.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        texts.push(format!(
            "not looked at: {}{others} ({})",
            terminal(what.first().unwrap_or(&"")),
            terminal(reason)
        ));
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// How there would be more calls.
    const MORE: &str = "--duration makes it longer";

    pub(crate) fn finding(text: &str, slow: (u64, u64), low: f64) -> v1::Finding {
        v1::Finding {
            kind: v1::finding::Kind::Branch.into(),
            text: text.to_owned(),
            slow: Some(v1::CallShare {
                have: slow.0,
                of: slow.1,
            }),
            other: Some(v1::CallShare { have: 4, of: 800 }),
            difference: Some(v1::Interval {
                value: low + 0.05,
                low,
                high: low + 0.1,
            }),
            slow_mean: None,
            other_mean: None,
            next: format!("f[>= p95]/{text}"),
            next_hits_per_s: Some(1234.0),
            next_cpu_share: Some(0.0042),
        }
    }

    pub(crate) fn response() -> v1::WatchExplainResponse {
        v1::WatchExplainResponse {
            info: Some(v1::StreamInfo {
                scope: "f[>= p95]".to_owned(),
                ..v1::StreamInfo::default()
            }),
            threshold_ns: 4_710_000,
            calls: 900,
            looked_at: 842,
            slow: Some(v1::CallsOfSide {
                calls: 42,
                mean_ns: 12_100_000.0,
            }),
            other: Some(v1::CallsOfSide {
                calls: 800,
                mean_ns: 1_300_000.0,
            }),
            features: 12,
            judged: 12,
            findings: vec![
                finding("main.cc:1310!taken", (42, 42), 0.85),
                v1::Finding {
                    kind: v1::finding::Kind::Call.into(),
                    slow_mean: Some(3_920_000.0),
                    other_mean: Some(21_000.0),
                    ..finding("recv@main.cc:1312[> 3.2ms]", (20, 21), 0.7)
                },
                finding("main.cc:1400!taken", (3, 42), -0.04),
            ],
            ..v1::WatchExplainResponse::default()
        }
    }

    fn text(lines: &[Line]) -> String {
        let text = |line: &Line| line.0.iter().map(|(_, text)| text.as_str()).collect::<String>();
        lines.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_certain_is_shown_with_the_scope_that_looks_at_it() {
        assert_eq!(
            text(&explained(&response(), None, 10, MORE)),
            "42 slow calls (from 4.71 ms) of 12.1 ms on average, 800 others of 1.30 ms\n\
             \n\
             \x20  slow  others difference ≥\n\
             \x20  100%    0.5%    +85.0%   main.cc:1310!taken\n\
             \x20 95.2%    0.5%    +70.0%   recv@main.cc:1312[> 3.2ms]   mean 3.92 ms, of others 21.0 µs\n\
             \n\
             look at those: 'f[>= p95]/main.cc:1310!taken'   1,234 hits/s, about 0.4% of a core"
        );
    }

    #[test]
    fn what_has_no_room_beside_a_finding_is_below_it() {
        let lines = fitted(explained(&response(), None, 10, MORE), 80);
        assert!(lines.iter().all(|line| line.width() <= 80), "{}", text(&lines));
        let text = text(&lines);
        assert!(
            text.contains("recv@main.cc:1312[> 3.2ms]\n      mean 3.92 ms, of others 21.0 µs\n"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "look at those: 'f[>= p95]/main.cc:1310!taken'\n      1,234 hits/s, about 0.4% of a core"
            ),
            "{text}"
        );
    }

    #[test]
    fn findings_at_lines_have_their_text_beside_them() {
        let line = |line, file: &str, text: &str| v1::SourceLine {
            line,
            file: file.to_owned(),
            text: text.to_owned(),
            ..v1::SourceLine::default()
        };
        let source = v1::SourceFunction {
            function: Some(v1::Function {
                file: "/src/main.cc".to_owned(),
                ..v1::Function::default()
            }),
            lines: vec![
                line(1310, "/src/other.cc", "wrong();"),
                line(1310, "", "    if (n > 3) {\x1b"),
            ],
            ..v1::SourceFunction::default()
        };
        let text = text(&explained(&response(), Some(&source), 10, MORE));
        assert!(
            text.contains("main.cc:1310!taken   if (n > 3) {\\u{1b}\n"),
            "{text}"
        );
        assert!(text.contains("of others 21.0 µs\n"), "{text}");
    }

    #[test]
    fn another_share_than_asked_and_longer_calls_are_said() {
        let plain = text(&explained(&response(), None, 10, MORE));
        assert!(
            !plain.contains("longer") && !plain.contains("count as"),
            "{plain}"
        );
        let longer = text(&explained(
            &v1::WatchExplainResponse {
                threshold_of_all_ns: 1_200_000,
                ..response()
            },
            None,
            10,
            MORE,
        ));
        assert!(
            longer.contains("of all calls, slow ones begin at 1.20 ms"),
            "{longer}"
        );
        let far = text(&explained(
            &v1::WatchExplainResponse {
                info: Some(v1::StreamInfo {
                    scope: "f[>= p99]".to_owned(),
                    ..v1::StreamInfo::default()
                }),
                ..response()
            },
            None,
            10,
            MORE,
        ));
        assert!(
            far.contains("5.0% of these calls count as slow, not 1.0%: many take equally long"),
            "{far}"
        );
    }

    #[test]
    fn findings_beyond_the_number_are_counted() {
        let text = text(&explained(&response(), None, 1, MORE));
        assert!(text.contains("\n1 more: -n shows them\n"), "{text}");
        assert!(!text.contains("recv"), "{text}");
    }

    #[test]
    fn without_two_sides_there_is_nothing_to_compare() {
        for (change, why) in [
            (
                v1::WatchExplainResponse {
                    warming: true,
                    ..response()
                },
                "too few calls",
            ),
            (
                v1::WatchExplainResponse {
                    slow: None,
                    looked_at: 0,
                    ..response()
                },
                "no call has ended",
            ),
            (
                v1::WatchExplainResponse {
                    other: None,
                    ..response()
                },
                "all slow, or none is",
            ),
        ] {
            let text = text(&explained(&change, None, 10, MORE));
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn what_is_not_looked_at_is_said_by_reason() {
        let not = |what: &str| v1::NotLookedAt {
            what: what.to_owned(),
            reason: "in place of a return".to_owned(),
        };
        let mut response = response();
        response.not_looked_at = vec![not("g@f.c:3"), not("h@f.c:4")];
        let text = summary(&response, Duration::from_secs(10), MORE);
        assert_eq!(
            text,
            "10.0 s, looked at 842 of 900 calls and at 12 branches, calls, values and waits in them; \
             not looked at: g@f.c:3 and 1 more (in place of a return)"
        );
    }
}
