//! System calls for people: which, how long, with which errors, and who made them.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use profiler_proto::v1;

use super::{escape::terminal, text, trace, units, waits::innermost};
use crate::{
    live::line::{Line, Style, wrapped},
    state::syscalls::{SyscallsState, mean_ns, name},
};

/// Callers with smaller shares of their system call's time and calls than this are summed up.
const SMALLEST: f64 = 0.01;

/// Callers that are shown of a system call, at most.
const MOST_CALLERS: usize = 5;

/// Errors that are shown of one.
const MOST_ERRORS: usize = 3;

/// What callers without a stack are called.
const NOT_TAKEN: &str = "[stack not taken]";

/// A row of the table.
pub struct Row {
    /// As it is drawn.
    pub line: Line,
    /// The system call that it is of; a caller's row is of none.
    pub name: Option<String>,
}

/// Columns from which on there is room for all numbers.
const WIDE: usize = 100;

/// Which numbers a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// All of them.
    Fully,
    /// Without means, for names to have more room.
    Briefly,
}

impl Numbered {
    /// Those for which there is room in so many columns.
    #[must_use]
    pub fn in_width(width: Option<usize>) -> Self {
        if width.is_none_or(|width| width >= WIDE) {
            Self::Fully
        } else {
            Self::Briefly
        }
    }
}

/// The table, the most time first, below its heading; of so many columns at most where there is a width.
#[must_use]
pub fn syscalls(state: &SyscallsState, by: v1::Grouping, width: Option<usize>) -> Vec<Line> {
    if state.syscalls.is_empty() {
        return vec![Line::of(Style::Faint, "  no system call has returned")];
    }
    let numbered = Numbered::in_width(width);
    let rows = rows(state, by, numbered).into_iter().map(|row| match width {
        Some(width) => row.line.fitted(width),
        None => row.line,
    });
    std::iter::once(heading(numbered)).chain(rows).collect()
}

/// What stands above the table.
#[must_use]
pub fn heading(numbered: Numbered) -> Line {
    let words = match numbered {
        Numbered::Fully => "   share       time      calls       mean    longest   errors  system call: from",
        Numbered::Briefly => "  share     time     calls  longest  errors  system call: from",
    };
    Line::of(Style::Faint, words)
}

/// Each system call and those who made it, the most time first.
#[must_use]
pub fn rows(state: &SyscallsState, by: v1::Grouping, numbered: Numbered) -> Vec<Row> {
    let rows = state.syscalls.iter().flat_map(|syscall| {
        let of_call = Row {
            line: line(state, syscall, numbered),
            name: Some(name(syscall)),
        };
        let callers = callers(state, syscall, by, numbered).into_iter();
        std::iter::once(of_call).chain(callers.map(|line| Row { line, name: None }))
    });
    rows.collect()
}

/// Calls of one kind, or of a caller.
#[derive(Clone, Copy, Default)]
struct Numbers {
    calls: u64,
    failed: u64,
    time_ns: u64,
    longest_ns: u64,
}

impl Numbers {
    fn of(caller: &v1::SyscallCaller) -> Self {
        Self {
            calls: caller.calls,
            failed: caller.failed,
            time_ns: caller.time_ns,
            longest_ns: caller.longest_ns,
        }
    }

    fn add(&mut self, other: Self) {
        // Those of a recording may be made up.
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    fn line(self, state: &SyscallsState, style: Style, numbered: Numbered) -> Line {
        let duration = |ns: Option<f64>| ns.map_or_else(String::new, units::duration);
        let mean_ns = mean_ns(self.calls, self.time_ns);
        let count = |count: u64| {
            if count == 0 {
                String::new()
            } else {
                units::count(count)
            }
        };
        let share = units::percent(units::ratio(self.time_ns, state.time_ns));
        let (time, calls) = (duration(Some(self.time_ns as f64)), units::count(self.calls));
        let longest = duration(mean_ns.map(|_| self.longest_ns as f64));
        let (mean, failed) = (duration(mean_ns), count(self.failed));
        let text = match numbered {
            Numbered::Fully => {
                format!("{share:>8} {time:>10} {calls:>10} {mean:>10} {longest:>10} {failed:>8}  ")
            }
            Numbered::Briefly => format!("{share:>7} {time:>8} {calls:>9} {longest:>8} {failed:>7}  "),
        };
        Line::of(style, text)
    }
}

fn line(state: &SyscallsState, syscall: &v1::Syscall, numbered: Numbered) -> Line {
    let numbers = Numbers {
        calls: syscall.calls,
        failed: syscall.failed,
        time_ns: syscall.time_ns,
        longest_ns: syscall.longest_ns,
    };
    let mut line = numbers
        .line(state, Style::Plain, numbered)
        .and(Style::Strong, terminal(&name(syscall)).into_owned());
    if syscall.is_32_bit {
        line = line.and(Style::Plain, " (32-bit)");
    }
    let errors = errors(&syscall.errors);
    if !errors.is_empty() {
        line = line.and(Style::Warning, format!("  {errors}"));
    }
    if syscall.open > 0 {
        line = line.and(Style::Faint, format!("  {} open", units::count(syscall.open)));
    }
    line
}

/// The most frequent errors.
fn errors(errors: &[v1::SyscallError]) -> String {
    let named = |error: &v1::SyscallError| format!("{} {}", terminal(&error.name), units::count(error.calls));
    let mut names: Vec<String> = errors.iter().take(MOST_ERRORS).map(named).collect();
    if errors.len() > MOST_ERRORS {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Who made calls of a kind, the most time first, and the rest in a line.
fn callers(state: &SyscallsState, syscall: &v1::Syscall, by: v1::Grouping, numbered: Numbered) -> Vec<Line> {
    // Different stacks may look the same as far as they are shown.
    let mut of_place: HashMap<String, Numbers> = HashMap::new();
    for caller in &syscall.callers {
        let numbers = of_place.entry(place(state, caller, by)).or_default();
        numbers.add(Numbers::of(caller));
    }
    let mut places: Vec<(String, Numbers)> = of_place.into_iter().collect();
    places.sort_by(|(place, numbers), (other_place, other)| {
        let rank = |numbers: &Numbers| (Reverse(numbers.time_ns), Reverse(numbers.calls));
        rank(numbers)
            .cmp(&rank(other))
            .then_with(|| place.cmp(other_place))
    });
    let is_large = |numbers: &Numbers| {
        units::ratio(numbers.time_ns, syscall.time_ns) >= SMALLEST
            || units::ratio(numbers.calls, syscall.calls) >= SMALLEST
    };
    let mut shown = places
        .iter()
        .take(MOST_CALLERS)
        .take_while(|(_, numbers)| is_large(numbers))
        .count();
    // A line that says that there is one more takes as much room as it.
    if places.len() == shown + 1 {
        shown += 1;
    }
    let (shown, left_out) = places.split_at(shown);
    let mut lines: Vec<Line> = shown
        .iter()
        .map(|(place, numbers)| {
            let line = numbers.line(state, Style::Faint, numbered);
            line.and(Style::Plain, format!("  {place}"))
        })
        .collect();
    if !left_out.is_empty() {
        let mut rest = Numbers::default();
        for (_, numbers) in left_out {
            rest.add(*numbers);
        }
        let more = format!("  … {} more", units::count(left_out.len() as u64));
        lines.push(rest.line(state, Style::Faint, numbered).and(Style::Faint, more));
    }
    lines
}

/// Where calls were made, innermost first.
fn place(state: &SyscallsState, caller: &v1::SyscallCaller, by: v1::Grouping) -> String {
    if caller.stack.is_empty() {
        return NOT_TAKEN.to_owned();
    }
    innermost(state.stack(caller), |frame| {
        let file_name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let text = match by {
            v1::Grouping::Module => file_name(&frame.function),
            v1::Grouping::Line if frame.line > 0 && !frame.file.is_empty() => {
                format!("{} {}:{}", frame.function, file_name(&frame.file), frame.line)
            }
            _ => frame.function.clone(),
        };
        terminal(&text).into_owned()
    })
}

/// What is drawn in a terminal while the run goes on: as much as there is room for.
#[must_use]
pub fn screen(
    state: &SyscallsState,
    by: v1::Grouping,
    target: &str,
    elapsed: Duration,
    (columns, rows): (usize, usize),
) -> Vec<Line> {
    let seconds = elapsed.as_secs();
    let scope = if state.scope.is_empty() {
        "system calls".to_owned()
    } else {
        format!("system calls in {}", terminal(&state.scope))
    };
    let mut lines = vec![Line::of(Style::Strong, scope).and(
        Style::Faint,
        format!("  {target}  {}:{:02}", seconds / 60, seconds % 60),
    )];
    let mut foot = wrapped(Style::Faint, &format!("  {}", totals(state)), columns);
    if let Some(reasons) = trace::reasons(&state.lost) {
        foot.extend(wrapped(
            Style::Warning,
            &format!("  left out: {reasons}"),
            columns,
        ));
    }
    if let Some(cost) = &state.cost {
        foot.push(Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
    let room = rows.saturating_sub(lines.len() + foot.len());
    lines.extend(syscalls(state, by, Some(columns)).into_iter().take(room));
    lines.extend(foot);
    lines
}

fn totals(state: &SyscallsState) -> String {
    let mut text = format!(
        "{} system call{} of {} in all, {} failed",
        units::count(state.calls),
        if state.calls == 1 { "" } else { "s" },
        units::duration(state.time_ns as f64),
        units::count(state.failed),
    );
    for (count, what) in [(state.open, "open"), (state.begun_before, "begun before")] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", units::count(count)));
        }
    }
    text
}

/// The run in a line: how many calls, and what was left out.
#[must_use]
pub fn summary(state: &SyscallsState, elapsed: Duration) -> String {
    let mut text = format!("{:.1} s, {}", elapsed.as_secs_f64(), totals(state));
    if let Some(reasons) = trace::reasons(&state.lost) {
        text.push_str(&format!("; left out: {reasons}"));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two system calls: one of many callers, one that fails.
    pub fn sample() -> SyscallsState {
        let frame = |id, function: &str, module: &str, line| v1::Frame {
            id,
            function: function.into(),
            module: module.into(),
            file: "/src/worker.c".into(),
            line,
            ..Default::default()
        };
        let caller = |stack: &[u32], calls, failed, time_ns, longest_ns| v1::SyscallCaller {
            stack: stack.to_vec(),
            calls,
            failed,
            time_ns,
            longest_ns,
        };
        let error = |name: &str, calls| v1::SyscallError {
            name: name.into(),
            calls,
        };
        let message = v1::WatchSyscallsResponse {
            syscalls: vec![
                v1::Syscall {
                    name: "clock_nanosleep".into(),
                    number: 230,
                    calls: 400,
                    time_ns: 2_000_000_000,
                    longest_ns: 10_200_000,
                    open: 2,
                    callers: vec![
                        caller(&[1, 2, 3, 4], 300, 0, 1_600_000_000, 10_200_000),
                        caller(&[2, 3, 4], 50, 0, 300_000_000, 4_000_000),
                        caller(&[], 49, 0, 99_000_000, 4_000_000),
                        caller(&[1, 4], 1, 0, 1_000_000, 1_000_000),
                    ],
                    ..Default::default()
                },
                v1::Syscall {
                    name: String::new(),
                    number: 999,
                    is_32_bit: true,
                    calls: 1_205,
                    failed: 1_205,
                    time_ns: 8_000_000,
                    longest_ns: 91_000,
                    errors: vec![
                        error("ENOENT", 1_200),
                        error("EINTR", 3),
                        error("E1", 1),
                        error("E2", 1),
                    ],
                    callers: vec![caller(&[1, 5], 1_205, 1_205, 8_000_000, 91_000)],
                    ..Default::default()
                },
                v1::Syscall {
                    name: "exit".into(),
                    number: 60,
                    calls: 1,
                    callers: vec![caller(&[1], 1, 0, 0, 0)],
                    ..Default::default()
                },
            ],
            frames: vec![
                frame(1, "main", "/opt/server", 40),
                frame(2, "worker\x1b[2J", "/opt/server", 31),
                frame(3, "rest", "/opt/server", 7),
                frame(4, "nanosleep", "/usr/lib/libc.so.6", 0),
                frame(5, "look_for", "/opt/libsearch.so", 0),
            ],
            begun_before: 3,
            watched_ns: 2_000_000_000,
            lost: [("syscall_limit".to_owned(), 7)].into(),
            ..Default::default()
        };
        let mut state = SyscallsState::default();
        state.apply(message).unwrap();
        state
    }

    #[test]
    fn callers_are_below_their_system_call() {
        let state = sample();
        let lines: Vec<String> = syscalls(&state, v1::Grouping::Function, None)
            .iter()
            .map(Line::text)
            .collect();
        assert_eq!(
            lines,
            [
                "   share       time      calls       mean    longest   errors  system call: from",
                "   99.6%     2.00 s        400    5.00 ms    10.2 ms           clock_nanosleep  2 open",
                "   79.7%     1.60 s        300    5.33 ms    10.2 ms             nanosleep < rest < worker\\u{1b}[2J < main",
                "   14.9%     300 ms         50    6.00 ms    4.00 ms             nanosleep < rest < worker\\u{1b}[2J",
                "    4.9%    99.0 ms         49    2.02 ms    4.00 ms             [stack not taken]",
                "   0.05%    1.00 ms          1    1.00 ms    1.00 ms             nanosleep < main",
                "    0.4%    8.00 ms      1,205    6.64 µs    91.0 µs    1,205  syscall_999 (32-bit)  ENOENT 1,200, EINTR 3, E1 1, …",
                "    0.4%    8.00 ms      1,205    6.64 µs    91.0 µs    1,205    look_for < main",
                "      0%       0 ns          1                                 exit",
                "      0%       0 ns          1                                   main",
            ]
        );
        let by = |by| syscalls(&state, by, None)[2].text();
        assert!(
            by(v1::Grouping::Line)
                .ends_with("  nanosleep < rest worker.c:7 < worker\\u{1b}[2J worker.c:31 < main worker.c:40")
        );
        assert_eq!(
            summary(&state, Duration::from_secs(2)),
            "2.0 s, 1,606 system calls of 2.01 s in all, 1,205 failed, 2 open, 3 begun before; left out: syscall_limit 7"
        );
        let rows = screen(
            &state,
            v1::Grouping::Function,
            "pid 7",
            Duration::from_secs(61),
            (80, 6),
        );
        assert_eq!(
            (rows.len(), rows[0].text()),
            (6, "system calls  pid 7  1:01".to_owned())
        );
        let none = syscalls(&SyscallsState::default(), v1::Grouping::Function, None);
        assert_eq!(none[0].text(), "  no system call has returned");
    }

    #[test]
    fn rows_fit_the_terminal() {
        let frame = |id, function: &str| v1::Frame {
            id,
            function: function.into(),
            ..Default::default()
        };
        let mut message = v1::WatchSyscallsResponse {
            frames: vec![
                frame(1, "std::rt::lang_start::{{closure}}"),
                frame(2, "server::connection::Connection::write_all_buffers"),
            ],
            ..Default::default()
        };
        message.syscalls.push(v1::Syscall {
            name: "write".into(),
            calls: 1,
            callers: vec![v1::SyscallCaller {
                stack: vec![1, 2],
                calls: 1,
                ..Default::default()
            }],
            ..Default::default()
        });
        let mut state = SyscallsState::default();
        state.apply(message).unwrap();
        let by = v1::Grouping::Function;
        for state in [&state, &sample()] {
            for line in screen(state, by, "pid 7", Duration::from_secs(61), (80, 24)) {
                assert!(line.width() <= 80, "{}", line.text());
            }
        }
        let caller = syscalls(&state, by, Some(80)).swap_remove(2).text();
        assert!(
            caller.ends_with("  Connection::write_all_buffers < …"),
            "{caller}"
        );
    }

    #[test]
    fn modules_are_shown_by_the_names_of_their_files() {
        let message = v1::WatchSyscallsResponse {
            syscalls: vec![v1::Syscall {
                calls: 1,
                callers: vec![v1::SyscallCaller {
                    stack: vec![1, 2, 1],
                    calls: 1,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            frames: [(1, "/opt/server"), (2, "/opt/libsearch.so")]
                .map(|(id, path)| v1::Frame {
                    id,
                    function: path.into(),
                    module: path.into(),
                    ..Default::default()
                })
                .into(),
            ..Default::default()
        };
        let mut state = SyscallsState::default();
        state.apply(message).unwrap();
        let lines = syscalls(&state, v1::Grouping::Module, None);
        assert!(lines[2].text().ends_with("  server < libsearch.so < server"));
    }
}
