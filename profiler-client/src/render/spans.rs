//! The slowest calls for people: each a few lines.

use std::{borrow::Cow, time::Duration};

use profiler_proto::v1;

use super::{
    course::{self, Fitting},
    escape::terminal,
    text, trace, units, waits,
};
use crate::{
    live::line::{Line, Style, cut_middle},
    state::spans::{EndedBy, SpansState},
};

/// How much is said of each call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detail {
    /// Lines of what its thread did off the CPU, at most.
    pub course: usize,
    /// Lines of what is inside, at most.
    pub children: usize,
    /// Lines of its stack, at most.
    pub frames: usize,
}

impl Detail {
    /// Everything.
    pub const FULL: Self = Self {
        course: usize::MAX,
        children: usize::MAX,
        frames: usize::MAX,
    };

    /// What there is room for, in so many lines for so many calls.
    #[must_use]
    pub fn fitting(rows: usize, spans: usize) -> Self {
        let each = rows / spans.max(1);
        // A line for the call itself, one for what it did, one that the stack begins with.
        let room = each.saturating_sub(3);
        // Where there is room for the call as a whole, and three things that it did.
        let course = if room >= 16 { 4 } else { 0 };
        let room = room - 2 * course;
        Self {
            course,
            children: room / 2,
            frames: room - room / 2,
        }
    }
}

/// All of them. `origin_ns` is the time that theirs are counted from.
#[must_use]
pub fn spans(state: &SpansState, origin_ns: u64, detail: Detail) -> Vec<Line> {
    let mut lines = Vec::new();
    let last = state.spans.len().to_string().len();
    for (number, span) in state.spans.iter().enumerate() {
        let number = format!("#{}", number + 1);
        let number = format!("{number:<width$}", width = last + 1);
        lines.push(head(state, span, &number, origin_ns));
        if detail.frames > 0 {
            lines.extend(times(span));
        }
        lines.extend(course(span, detail.course));
        lines.extend(system_calls(span, detail.course));
        lines.extend(children(span, detail.children));
        lines.extend(places(state, span, detail.frames));
    }
    if state.spans.is_empty() {
        lines.push(none(state));
    }
    lines
}

/// Why there are none.
#[must_use]
pub fn none(state: &SpansState) -> Line {
    let why = if state.calls == 0 {
        "no call has ended in the window"
    } else {
        "no call in the window meets the conditions"
    };
    Line::of(Style::Faint, format!("  {why}"))
}

fn head(state: &SpansState, span: &v1::Span, number: &str, origin_ns: u64) -> Line {
    let since_ns = i128::from(span.ts_ns) - i128::from(origin_ns);
    let thread = thread(state.threads.of(span.pid, span.tid), span.tid);
    let name = span.function.as_ref().map_or("", |function| &function.name);
    let mut line = Line::of(Style::Faint, format!("{number} "))
        .and(
            Style::Strong,
            format!("{:>8}", units::duration(span.duration_ns as f64)),
        )
        .and(Style::Plain, "  ")
        .and(Style::Name, terminal(name))
        .and(
            Style::Faint,
            format!("  at {:.6} s  {thread}", since_ns as f64 / 1e9),
        );
    if span.values_missing {
        line = line.and(Style::Warning, "  <no values were read>");
    }
    for (at, value) in span.values.iter().enumerate() {
        line = trace::with_value(line, value, if at == 0 { "  " } else { " " });
    }
    line
}

/// What the thread did in a call, what took no time left out.
#[must_use]
pub fn times(span: &v1::Span) -> Vec<Line> {
    let Some(times) = &span.times else {
        return Vec::new();
    };
    let parts = [
        ("on the CPU", times.on_cpu_ns),
        ("sleeping", times.sleeping_ns),
        ("uninterruptible", times.uninterruptible_ns),
        ("stopped", times.stopped_ns),
        ("runnable", times.runnable_ns),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(what, ns)| format!("{} {what}", units::duration(ns as f64)))
        .collect();
    indented(vec![Line::of(Style::Plain, parts.join(", "))], "time:")
}

/// The system calls of a call, what took the most time first.
#[must_use]
pub fn system_calls(span: &v1::Span, most: usize) -> Vec<Line> {
    let Some(calls) = &span.system_calls else {
        return Vec::new();
    };
    if most == 0 {
        return Vec::new();
    }
    if calls.kinds.is_empty() {
        return indented(vec![Line::of(Style::Faint, "no system call")], "calls:");
    }
    let kinds = calls.kinds.len();
    let shown = if kinds > most { most - 1 } else { kinds };
    let line = |kind: &v1::SpanSystemCall| {
        let [time, longest] = [kind.time_ns, kind.longest_ns].map(|ns| units::duration(ns as f64));
        let line = Line::of(
            Style::Plain,
            format!("{:>8} {time:>8}  ", units::count(kind.calls)),
        )
        .and(Style::Plain, format!("{:<16}", terminal(&kind.name)))
        .and(Style::Faint, format!("  longest {longest}"));
        if kind.error.is_empty() {
            line
        } else {
            line.and(Style::Warning, format!("  {}", terminal(&kind.error)))
        }
    };
    let mut lines: Vec<Line> = calls.kinds.iter().take(shown).map(line).collect();
    let others = calls.kinds.iter().skip(shown).map(|kind| kind.calls);
    let others = others.fold(calls.left_out, u64::saturating_add);
    if others > 0 {
        let words = format!("… and {} system calls more", units::count(others));
        lines.push(Line::of(Style::Faint, words));
    }
    indented(lines, "calls:")
}

/// Columns of a call, from its beginning to its end.
const COURSE: usize = 32;

/// Columns of what a bar is of.
const LABEL: usize = 34;

/// A call from its beginning to its end: where its thread was on the CPU, and below what it did where it was not.
fn course(span: &v1::Span, most: usize) -> Vec<Line> {
    let Some(room) = most.checked_sub(1).filter(|_| !span.off_cpu.is_empty()) else {
        return Vec::new();
    };
    let line = |words: &str, style, bars: String| {
        Line::of(Style::Plain, format!("{:<LABEL$} ", cut_middle(words, LABEL))).and(style, bars)
    };
    let on_cpu = "█ on the CPU, ░ off it";
    let mut lines = vec![line(on_cpu, Style::Bar, course::whole(span, COURSE))];
    let Fitting { kinds, rest } = course::fitting(span, room);
    let kinds = kinds.iter();
    lines.extend(kinds.map(|kind| line(&kind.words(), Style::SlowBar, kind.bars(span.duration_ns, COURSE))));
    lines.extend(rest.into_iter().map(|words| Line::of(Style::Faint, words)));
    indented(lines, "course:")
}

/// Where a call waited longest, and where most samples of it are: what took longer comes first, and alone where there is no
/// room for both.
#[must_use]
pub fn places(state: &SpansState, span: &v1::Span, most: usize) -> Vec<Line> {
    let Some(wait) = &span.longest_wait else {
        return stack(state, span, most);
    };
    let ran_ns = span.times.as_ref().map_or(0, |times| times.on_cpu_ns);
    if wait.time_ns < ran_ns {
        if most < ROOM_FOR_BOTH {
            return stack(state, span, most);
        }
        let mut lines = stack(state, span, most - most / 2);
        lines.extend(longest_wait(state, span, wait, most / 2));
        return lines;
    }
    if most < ROOM_FOR_BOTH || span.samples == 0 {
        return longest_wait(state, span, wait, most);
    }
    let mut lines = longest_wait(state, span, wait, most - most / 2);
    lines.extend(stack(state, span, most / 2));
    lines
}

/// Lines of stacks from which on two are shown.
const ROOM_FOR_BOTH: usize = 6;

fn longest_wait(state: &SpansState, span: &v1::Span, wait: &v1::SpanWait, most: usize) -> Vec<Line> {
    let of = if span.waits > 1 {
        format!(", the longest of {}", units::count(span.waits))
    } else {
        String::new()
    };
    let [time, offset] = [wait.time_ns, wait.offset_ns].map(|ns| units::duration(ns as f64));
    let mut title = Line::of(Style::Faint, format!("{time} [{}]", terminal(&wait.activity)));
    if let Some(lock) = &wait.lock {
        let is_named = !(lock.name.is_empty() && lock.allocated.is_empty());
        let style = if is_named { Style::Name } else { Style::Faint };
        title = title.and(Style::Faint, " ").and(style, waits::of_memory(lock));
    }
    let title = title.and(Style::Faint, format!(" at +{offset}{of}"));
    let mut lines = indented(vec![title], "wait:");
    let mut most = most;
    if let Some(by) = state.ended_by(wait).filter(|_| most > 0) {
        lines.extend(indented(vec![ended_by(&by)], "ended:"));
        most -= 1;
    }
    with_frames(lines, span, &state.waited(wait).rev().collect::<Vec<_>>(), most)
}

/// Who ended a wait: a thread with the innermost functions that it ran outside of the kernel.
fn ended_by(by: &EndedBy<'_>) -> Line {
    let line = |by: String| Line::of(Style::Faint, format!("by {by}"));
    match by {
        EndedBy::Thread { tid, name, stack, .. } => {
            let own = stack.iter().rev().filter(|frame| !frame.kernel);
            let functions: Vec<Cow<'_, str>> = own
                .take(SHOWN_OF_WAKER)
                .map(|frame| terminal(&frame.function))
                .collect();
            let thread = thread(*name, *tid);
            if functions.is_empty() {
                line(thread)
            } else {
                line(format!("{thread} in ")).and(Style::Name, functions.join(" < "))
            }
        }
        EndedBy::Interrupt(function) => {
            line("an interrupt, ".to_owned()).and(Style::Name, terminal(&function.function))
        }
    }
}

/// Functions that are shown of a thread that ended a wait.
const SHOWN_OF_WAKER: usize = 3;

/// A thread by its name, where that is known, and number.
fn thread(name: Option<&str>, tid: u32) -> String {
    match name {
        Some(name) => format!("thread {} {tid}", terminal(name)),
        None => format!("thread {tid}"),
    }
}

fn children(span: &v1::Span, most: usize) -> Vec<Line> {
    let all = span.children.len() as u64 + span.children_left_out;
    if all == 0 || most == 0 {
        return Vec::new();
    }
    // The last line says how many there are more.
    let cut = most < usize::try_from(all).unwrap_or(usize::MAX);
    let shown = if cut { most - 1 } else { most };
    let mut lines: Vec<Line> = span
        .children
        .iter()
        .take(shown)
        .map(|child| {
            let offset = format!("+{}", units::duration(child.offset_ns as f64));
            let duration = child
                .duration_ns
                .map_or_else(String::new, |ns| format!("  {}", units::duration(ns as f64)));
            Line::of(Style::Faint, format!("{offset:>10}  "))
                .and(Style::Name, terminal(&child.place))
                .and(Style::Plain, duration)
        })
        .collect();
    let more = all - lines.len() as u64;
    if more > 0 {
        lines.push(Line::of(
            Style::Faint,
            format!("… and {} more", units::count(more)),
        ));
    }
    indented(lines, "inside:")
}

fn indented(lines: Vec<Line>, title: &str) -> Vec<Line> {
    let titled = |(at, line): (usize, Line)| {
        let title = if at == 0 { title } else { "" };
        let mut pieces = vec![(Style::Faint, format!("    {title:<8}"))];
        pieces.extend(line.0);
        Line(pieces)
    };
    lines.into_iter().enumerate().map(titled).collect()
}

fn stack(state: &SpansState, span: &v1::Span, most: usize) -> Vec<Line> {
    if span.samples == 0 {
        let none = Line::of(
            Style::Faint,
            if state.not_sampled {
                "the target is not sampled"
            } else if span.not_sampled {
                "it began before the target was sampled"
            } else {
                "no sample hit it"
            },
        );
        return if most == 0 {
            Vec::new()
        } else {
            indented(vec![none], "stack:")
        };
    }
    let of = format!(
        "{} of {} sample{}",
        units::count(span.stack_samples),
        units::count(span.samples),
        if span.samples == 1 { "" } else { "s" }
    );
    let lines = indented(vec![Line::of(Style::Faint, of)], "stack:");
    with_frames(lines, span, &state.stack(span).rev().collect::<Vec<_>>(), most)
}

/// Lines, and below them frames, innermost first, up to that of the call.
fn with_frames(mut lines: Vec<Line>, span: &v1::Span, frames: &[&v1::Frame], most: usize) -> Vec<Line> {
    // Who calls it is the same for most calls; JSON has it.
    let name = span.function.as_ref().map_or("", |function| &function.name);
    let own = frames.iter().rposition(|frame| frame.function == name);
    let within = own.map_or(frames.len(), |own| own + 1);
    let shown = if frames.len() > most {
        within.min(most.saturating_sub(1))
    } else {
        within
    };
    for frame in frames.iter().take(shown) {
        lines.push(trace::frame(frame));
    }
    if frames.len() > shown && most > 0 {
        let more = frames.len() - shown;
        let callers = match (shown == within, more) {
            (false, _) => "more",
            (true, 1) => "caller",
            (true, _) => "callers",
        };
        lines.push(Line::of(Style::Faint, format!("        … and {more} {callers}")));
    }
    lines
}

/// What is drawn in a terminal while the run goes on: as much as there is room for.
#[must_use]
pub fn screen(state: &SpansState, target: &str, origin_ns: u64, elapsed: Duration, rows: usize) -> Vec<Line> {
    let seconds = elapsed.as_secs();
    let mut lines = vec![Line::of(Style::Strong, terminal(&state.scope).into_owned()).and(
        Style::Faint,
        format!("  {target}  {}:{:02}", seconds / 60, seconds % 60),
    )];
    let mut foot = vec![Line::of(Style::Faint, format!("  {}", of_calls(state)))];
    if let Some(reasons) = trace::reasons(&state.lost) {
        foot.push(Line::of(Style::Warning, format!("  left out: {reasons}")));
    }
    if let Some(cost) = &state.cost {
        foot.push(Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
    let room = rows.saturating_sub(lines.len() + foot.len());
    let body = spans(state, origin_ns, Detail::fitting(room, state.spans.len()));
    lines.extend(body.into_iter().take(room));
    lines.extend(foot);
    lines
}

fn of_calls(state: &SpansState) -> String {
    format!("the {} slowest of {}", state.spans.len(), calls(state))
}

/// The number of calls, and in how long that was.
#[must_use]
pub fn calls(state: &SpansState) -> String {
    let calls = state.calls;
    let time = if state.is_recorded { "these" } else { "the last" };
    format!(
        "{} call{} in {time} {}",
        units::count(calls),
        if calls == 1 { "" } else { "s" },
        // What was before is not among them.
        if state.watched_ns < state.window_ns {
            units::duration(state.watched_ns as f64)
        } else {
            window(state.window_ns)
        },
    )
}

/// A window's length, which is a round number of seconds as a rule.
fn window(ns: u64) -> String {
    if ns.is_multiple_of(1_000_000_000) {
        format!("{} s", ns / 1_000_000_000)
    } else {
        units::duration(ns as f64)
    }
}

/// The run in a line: of how many calls these are the slowest, and what was left out.
#[must_use]
pub fn summary(state: &SpansState, elapsed: Duration) -> String {
    let mut text = format!("{:.1} s, {}", elapsed.as_secs_f64(), of_calls(state));
    if let Some(reasons) = trace::reasons(&state.lost) {
        text.push_str(&format!("; left out: {reasons}"));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::render::{course::tests::period, trace::tests::value};
    use proptest::prelude::*;

    fn system_call(
        name: &str,
        error: &str,
        calls: u64,
        (time_ns, longest_ns): (u64, u64),
    ) -> v1::SpanSystemCall {
        v1::SpanSystemCall {
            name: name.into(),
            error: error.into(),
            calls,
            time_ns,
            longest_ns,
        }
    }

    /// Twenty milliseconds for a lock, ended by another thread.
    fn longest_wait() -> v1::SpanWait {
        v1::SpanWait {
            activity: "sleeping".into(),
            offset_ns: 1_500_000,
            time_ns: 20_000_000,
            stack: vec![1, 3, 4],
            lock: Some(v1::Lock {
                address: 0x7f00,
                memory: "[heap]".into(),
                ..Default::default()
            }),
            end: Some(v1::WaitEnd {
                by: Some(v1::wait_end::By::Thread(v1::WakingThread {
                    pid: 7,
                    tid: 4640,
                    stack: vec![1, 5, 6],
                })),
            }),
        }
    }

    fn of_scope(scope: &str) -> v1::StreamInfo {
        v1::StreamInfo {
            scope: scope.to_owned(),
            ..Default::default()
        }
    }

    /// A call with all that can be known of one, and one without.
    pub fn sample() -> SpansState {
        let frame = |id, function: &str, file: &str, line| v1::Frame {
            id,
            function: function.into(),
            file: file.into(),
            line,
            module: "server".into(),
            ..Default::default()
        };
        let child = |place: &str, offset_ns, duration_ns| v1::SpanChild {
            place: place.into(),
            offset_ns,
            duration_ns,
        };
        let function = Some(v1::Function {
            name: "handle_request".into(),
            module: "/usr/bin/server".into(),
            address: 0x2000,
            ..Default::default()
        });
        let mut state = SpansState::default();
        let message = v1::WatchSpansResponse {
            info: Some(of_scope("handle_request/main.cc:1310/recv@main.cc:1312")),
            spans: vec![
                v1::Span {
                    ts_ns: 5_041_337_000,
                    pid: 7,
                    tid: 4631,
                    function: function.clone(),
                    duration_ns: 31_000_000,
                    values: vec![value("n", v1::ValueState::Ok, "7", "7")],
                    children: vec![
                        child("main.cc:1310", 12_000, None),
                        child("recv@main.cc:1312", 1_200_000, Some(3_100_000)),
                    ],
                    samples: 12,
                    stack_samples: 9,
                    stack: vec![1, 3, 2],
                    times: Some(v1::SpanTimes {
                        on_cpu_ns: 5_900_000,
                        sleeping_ns: 25_000_000,
                        runnable_ns: 100_000,
                        ..Default::default()
                    }),
                    waits: 3,
                    longest_wait: Some(longest_wait()),
                    off_cpu: vec![
                        period(v1::Activity::Sleeping, 1, 20, "futex"),
                        period(v1::Activity::Runnable, 21, 1, "futex"),
                        period(v1::Activity::Sleeping, 24, 5, ""),
                    ],
                    off_cpu_left_out: 2,
                    off_cpu_left_out_ns: 90_000,
                    system_calls: Some(v1::SpanSystemCalls {
                        kinds: vec![
                            system_call("read", "", 2, (5_000_000, 4_000_000)),
                            system_call("open", "ENOENT", 1200, (900_000, 1_000)),
                        ],
                        left_out: 0,
                    }),
                    ..Default::default()
                },
                v1::Span {
                    ts_ns: 2_000_000_000,
                    pid: 7,
                    tid: 4632,
                    function,
                    duration_ns: 900_000,
                    values_missing: true,
                    children_left_out: 3,
                    not_sampled: true,
                    ..Default::default()
                },
            ],
            frames: vec![
                frame(1, "main", "", 0),
                frame(2, "compress\x1b[2J", "/src/zlib.c", 210),
                frame(3, "handle_request", "/src/server.c", 55),
                frame(4, "read", "", 0),
                frame(5, "unlock", "", 0),
                v1::Frame {
                    kernel: true,
                    ..frame(6, "futex_wake", "", 0)
                },
            ],
            thread_names: [(4631, "worker-1"), (4640, "flusher")]
                .map(|(tid, name)| v1::ThreadName {
                    pid: 7,
                    tid,
                    name: name.into(),
                })
                .into(),
            calls: 12_345,
            window_ns: 10_000_000_000,
            watched_ns: 72_000_000_000,
            threshold_ns: 900_000,
            lost: [("slow_end_yielded".to_owned(), 1024)].into(),
            ..Default::default()
        };
        state.apply(message).unwrap();
        state
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn a_call_is_a_few_lines() {
        assert_eq!(
            texts(&spans(&sample(), 3_000_000_000, Detail::FULL)),
            [
                "#1  31.0 ms  handle_request  at 2.041337 s  thread worker-1 4631  n=7",
                "    time:   5.90 ms on the CPU, 25.0 ms sleeping, 100 µs runnable",
                "    course: █ on the CPU, ░ off it             █░░░░░░░░░░░░░░░░░░░░░░██░░░░░██",
                "            futex [sleeping]  20.0 ms           █████████████████████",
                "            [sleeping]  5.00 ms                                        ██████",
                "            [runnable]  1.00 ms                                     ██",
                "            … and 2 shorter times off the CPU, 90.0 µs in all",
                "    calls:         2  5.00 ms  read              longest 4.00 ms",
                "               1,200   900 µs  open              longest 1.00 µs  ENOENT",
                "    inside:   +12.0 µs  main.cc:1310",
                "              +1.20 ms  recv@main.cc:1312  3.10 ms",
                "    wait:   20.0 ms [sleeping] [lock 0x7f00 in [heap]] at +1.50 ms, the longest of 3",
                "    ended:  by thread flusher 4640 in unlock < main",
                "        read",
                "        handle_request  server.c:55",
                "        … and 1 caller",
                "    stack:  9 of 12 samples",
                "        compress\\u{1b}[2J  zlib.c:210",
                "        handle_request  server.c:55",
                "        … and 1 caller",
                "#2   900 µs  handle_request  at -1.000000 s  thread 4632  <no values were read>",
                "    inside: … and 3 more",
                "    stack:  it began before the target was sampled",
            ]
        );
    }

    #[test]
    fn a_screen_has_no_more_lines_than_there_are() {
        for rows in 4..40 {
            let lines = screen(&sample(), "pid 7 (server)", 0, Duration::from_secs(72), rows);
            assert!(lines.len() <= rows, "{rows}: {lines:?}");
            let text = texts(&lines).join("\n");
            assert!(text.contains("pid 7 (server)  1:12"), "{text}");
            assert!(
                text.contains("the 2 slowest of 12,345 calls in the last 10 s"),
                "{text}"
            );
            assert_eq!(rows >= 6, text.contains("#2 "), "{rows}\n{text}");
        }
    }

    #[test]
    fn the_summary_says_what_was_left_out() {
        let mut state = sample();
        assert_eq!(
            summary(&state, Duration::from_secs(3)),
            "3.0 s, the 2 slowest of 12,345 calls in the last 10 s; left out: slow_end_yielded 1,024"
        );
        state.lost.clear();
        (state.calls, state.window_ns) = (1, 1_500_000_000);
        state.spans.truncate(1);
        assert_eq!(
            summary(&state, Duration::from_secs(3)),
            "3.0 s, the 1 slowest of 1 call in the last 1.50 s"
        );
    }

    #[test]
    fn calls_are_those_that_were_watched() {
        let mut state = sample();
        state.watched_ns = 2_500_000_000;
        let text = summary(&state, Duration::from_secs(3));
        assert!(
            text.starts_with("3.0 s, the 2 slowest of 12,345 calls in the last 2.50 s;"),
            "{text}"
        );
    }

    #[test]
    fn names_longer_than_a_line_fit_one() {
        let name = format!("shop::Cart<{}>::add", "std::vector<long>, ".repeat(15));
        let mut state = sample();
        state.spans.truncate(1);
        let span = &mut state.spans[0];
        span.values.clear();
        span.function.as_mut().unwrap().name.clone_from(&name);
        for child in &mut span.children {
            child.place.clone_from(&name);
        }
        let wait = span.longest_wait.as_mut().unwrap();
        wait.lock.as_mut().unwrap().name.clone_from(&name);
        let lines = spans(&state, 0, Detail::FULL);
        assert!(lines.iter().filter(|line| line.text().contains(&name)).count() > 2);
        for line in lines {
            let shown = line.with_short_name(80).text();
            assert!(shown.chars().count() <= 80, "{shown}");
        }
    }

    #[test]
    fn a_target_that_is_not_sampled_is_said_to_be() {
        let mut state = sample();
        state.not_sampled = true;
        let lines = texts(&spans(&state, 0, Detail::FULL));
        assert!(
            lines.contains(&"    stack:  9 of 12 samples".to_owned()),
            "{lines:?}"
        );
        assert_eq!(lines.last().unwrap(), "    stack:  the target is not sampled");
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let mut state = SpansState::default();
        assert!(texts(&spans(&state, 0, Detail::FULL))[0].contains("no call has ended"));
        state.calls = 5;
        assert!(texts(&spans(&state, 0, Detail::FULL))[0].contains("meets the conditions"));
    }

    proptest! {
            #[test]
            fn hostile_text_moves_no_cursor(text in any::<String>()) {
                let mut state = sample();
                let message = v1::WatchSpansResponse {
     info: Some(v1::StreamInfo { scope: text.clone(), ..v1::StreamInfo::default() }),
     spans: vec![v1::Span {
                        function: Some(v1::Function { name: text.clone(), ..Default::default() }),
                        values: vec![value(&text, v1::ValueState::Ok, &text, &text)],
                        children: vec![v1::SpanChild { place: text.clone(), ..Default::default() }],
                        samples: 1,
                        stack: vec![0],
                        ..Default::default()
                    }],
     frames: vec![v1::Frame { function: text.clone(), file: text.clone(), line: 1, ..Default::default() }],
     lost: [(text.clone(), 1)].into(),
     ..Default::default()
    };
                state.apply(message).unwrap();
                for line in screen(&state, "", 0, Duration::ZERO, 40) {
                    prop_assert!(!line.text().contains(char::is_control));
                }
                prop_assert!(!summary(&state, Duration::ZERO).contains(char::is_control));
            }
        }
}
