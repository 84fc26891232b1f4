//! The tree of waits for people: who waited, who ended that, and what that one did meanwhile.

use std::time::Duration;

use profiler_proto::v1::{self, WaitKind};

use super::{escape::terminal, text, trace, units};
use crate::{
    live::line::{Line, Style},
    state::waits::WaitsState,
};

/// Nodes with a smaller share than this are summed up.
const SMALLEST: f64 = 0.01;

/// Functions of a stack that are shown.
const MOST_FRAMES: usize = 5;

/// Levels that are drawn further to the right than those before.
const MOST_INDENTED: usize = 20;

/// The tree, longest first.
#[must_use]
pub fn waits(state: &WaitsState) -> Vec<Line> {
    if state.waits == 0 {
        return vec![Line::of(Style::Faint, "  no wait has ended".to_owned())];
    }
    let mut lines = vec![Line::of(
        Style::Faint,
        "   share       time    times  thread: where".to_owned(),
    )];
    let mut pending = vec![Pending::Node(0, 0)];
    while let Some(next) = pending.pop() {
        match next {
            Pending::Line(line) => lines.push(line),
            Pending::Node(number, depth) => {
                if let Some(node) = state.node(number) {
                    lines.push(line(state, node, depth - 1));
                }
                let mut below = parts(state, number, depth);
                below.reverse();
                pending.append(&mut below);
            }
        }
    }
    lines
}

/// What is still to be drawn.
enum Pending {
    /// A node and all below it, at a depth.
    Node(usize, usize),
    Line(Line),
}

/// What is below a node, longest first, and the rest in a line.
fn parts(state: &WaitsState, number: usize, depth: usize) -> Vec<Pending> {
    let time_ns = |number: &usize| state.node(*number).map_or(0, |node| node.time_ns);
    let mut below = state.below(number).to_vec();
    below.sort_by_key(|number| std::cmp::Reverse(time_ns(number)));
    let is_large = |time_ns: u64| units::ratio(time_ns, state.waited_ns) >= SMALLEST;
    let shown = below.partition_point(|number| is_large(time_ns(number)));
    let (large, small) = below.split_at(shown);
    let mut parts: Vec<Pending> = large
        .iter()
        .map(|number| Pending::Node(*number, depth + 1))
        .collect();
    let rest_ns: u64 = small.iter().map(time_ns).sum();
    if is_large(rest_ns) {
        let more = format!("… {} more", units::count(small.len() as u64));
        let line = numbers(state, rest_ns, None, depth).and(Style::Faint, more);
        parts.push(Pending::Line(line));
    }
    // Of other processes nothing is known, which is said.
    let own = state.node(number).filter(|node| !node.outside);
    let unfollowed_ns = own.map_or_else(
        || if number == 0 { unplaced_ns(state) } else { 0 },
        |node| node.not_followed_ns,
    );
    if is_large(unfollowed_ns) {
        let line = numbers(state, unfollowed_ns, None, depth).and(Style::Faint, "[not followed]");
        parts.push(Pending::Line(line));
    }
    parts
}

/// Time of waits that the tree had no room for.
fn unplaced_ns(state: &WaitsState) -> u64 {
    let placed: u64 = state
        .below(0)
        .iter()
        .filter_map(|number| state.node(*number))
        .map(|node| node.time_ns)
        .sum();
    state.waited_ns.saturating_sub(placed)
}

fn numbers(state: &WaitsState, time_ns: u64, count: Option<u64>, depth: usize) -> Line {
    let text = format!(
        "{:>8} {:>10} {:>8}  {}",
        units::percent(units::ratio(time_ns, state.waited_ns)),
        units::duration(time_ns as f64),
        count.map_or_else(String::new, units::count),
        "  ".repeat(depth.min(MOST_INDENTED)),
    );
    Line::of(Style::Faint, text)
}

fn line(state: &WaitsState, node: &v1::WaitNode, depth: usize) -> Line {
    let line = numbers(state, node.time_ns, Some(node.count), depth);
    let who = || {
        let name = terminal(&node.thread).into_owned();
        match node.threads {
            0 | 1 => name,
            threads => format!("{name} ({threads} threads)"),
        }
    };
    match node.kind() {
        WaitKind::Waited => {
            let how = waiting(node.waiting());
            line.and(Style::Strong, who())
                .and(Style::Plain, format!(" [{how}] {}", place(state, node)))
        }
        WaitKind::Woken => {
            let whose = if node.outside { ", of another process" } else { "" };
            line.and(Style::Faint, "for ")
                .and(Style::Strong, who())
                .and(Style::Plain, format!("{whose}: woken at {}", place(state, node)))
        }
        WaitKind::Interrupt => line
            .and(Style::Faint, "for ")
            .and(Style::Plain, format!("[interrupt] {}", place(state, node))),
        WaitKind::Ran => line.and(Style::Plain, "[ran]"),
        WaitKind::Runnable => line.and(Style::Plain, "[runnable] waited for a CPU"),
        WaitKind::GoesOn => line.and(Style::Plain, "[goes on]"),
        WaitKind::Unseen | WaitKind::Unspecified => line.and(Style::Faint, "[not seen who ended it]"),
    }
}

/// How a thread waits, in a word.
#[must_use]
pub fn waiting(waiting: v1::Waiting) -> &'static str {
    match waiting {
        v1::Waiting::Sleeping => "sleeping",
        v1::Waiting::Uninterruptible => "uninterruptible",
        v1::Waiting::Stopped => "stopped",
        v1::Waiting::Unspecified => "waiting",
    }
}

fn place(state: &WaitsState, node: &v1::WaitNode) -> String {
    innermost(state.stack(node), |frame| terminal(&frame.function).into_owned())
}

/// The innermost functions of a stack that say something: the program's own, and what it called. Its frames are given root
/// first.
pub(super) fn innermost<'a>(
    stack: impl DoubleEndedIterator<Item = &'a v1::Frame>,
    name: impl Fn(&v1::Frame) -> String,
) -> String {
    let stack: Vec<&v1::Frame> = stack.rev().collect();
    let kernel = stack.iter().take_while(|frame| frame.kernel).count();
    // The kernel's way to the wait, where there is no other; else what was called of the C library.
    let from = if kernel == stack.len() {
        0
    } else {
        let library = stack[kernel..]
            .iter()
            .take_while(|frame| is_c_library(&frame.module))
            .count();
        let all = kernel + library == stack.len();
        kernel + if all { 0 } else { library.saturating_sub(1) }
    };
    let mut names: Vec<String> = stack[from..]
        .iter()
        .take(MOST_FRAMES)
        .map(|frame| name(frame))
        .collect();
    if stack.len() > from + MOST_FRAMES {
        names.push("…".to_owned());
    }
    names.join(" < ")
}

fn is_c_library(module: &str) -> bool {
    let file = module.rsplit('/').next().unwrap_or(module);
    ["libc.", "libc-", "libpthread", "ld-musl"]
        .iter()
        .any(|library| file.starts_with(library))
}

/// What is drawn in a terminal while the run goes on: as much as there is room for.
#[must_use]
pub fn screen(state: &WaitsState, target: &str, elapsed: Duration, rows: usize) -> Vec<Line> {
    let seconds = elapsed.as_secs();
    let scope = if state.scope.is_empty() {
        "waits".to_owned()
    } else {
        terminal(&state.scope).into_owned()
    };
    let mut lines = vec![Line::of(Style::Strong, scope).and(
        Style::Faint,
        format!("  {target}  {}:{:02}", seconds / 60, seconds % 60),
    )];
    let mut foot = vec![Line::of(Style::Faint, format!("  {}", totals(state)))];
    if let Some(reasons) = trace::reasons(&state.lost) {
        foot.push(Line::of(Style::Warning, format!("  left out: {reasons}")));
    }
    if let Some(cost) = &state.cost {
        foot.push(Line::of(Style::Faint, format!("  {}", text::cost(cost))));
    }
    let room = rows.saturating_sub(lines.len() + foot.len());
    lines.extend(waits(state).into_iter().take(room));
    lines.extend(foot);
    lines
}

fn totals(state: &WaitsState) -> String {
    format!(
        "{} wait{} of {} in all; {} more without a CPU",
        units::count(state.waits),
        if state.waits == 1 { "" } else { "s" },
        units::duration(state.waited_ns as f64),
        units::duration(state.runnable_ns as f64),
    )
}

/// The run in a line: how much was waited, and what was left out.
#[must_use]
pub fn summary(state: &WaitsState, elapsed: Duration) -> String {
    let mut text = format!("{:.1} s, {}", elapsed.as_secs_f64(), totals(state));
    if let Some(reasons) = trace::reasons(&state.lost) {
        text.push_str(&format!("; left out: {reasons}"));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chain of two, and a small wait.
    pub fn sample() -> WaitsState {
        let frame = |id, function: &str, module: &str, kernel| v1::Frame {
            id,
            function: function.into(),
            module: module.into(),
            kernel,
            ..Default::default()
        };
        let node = |parent, kind: WaitKind, thread: &str, stack: &[u32], time_ns| v1::WaitNode {
            parent,
            kind: kind.into(),
            thread: thread.into(),
            waiting: if kind == WaitKind::Waited {
                v1::Waiting::Sleeping.into()
            } else {
                0
            },
            stack: stack.to_vec(),
            time_ns,
            count: 20,
            longest_ns: time_ns / 10,
            threads: 1,
            ..Default::default()
        };
        let message = v1::WatchWaitsResponse {
            nodes: vec![
                v1::WaitNode {
                    threads: 20,
                    ..node(0, WaitKind::Waited, "clerk-*", &[1, 2, 3, 4, 5], 100_000_000)
                },
                v1::WaitNode {
                    not_followed_ns: 20_000_000,
                    ..node(1, WaitKind::Woken, "keeper\x1b[2J", &[6], 90_000_000)
                },
                node(2, WaitKind::Ran, "", &[], 69_500_000),
                node(2, WaitKind::Runnable, "", &[], 500_000),
                v1::WaitNode {
                    outside: true,
                    not_followed_ns: 10_000_000,
                    ..node(1, WaitKind::Woken, "sshd", &[5], 10_000_000)
                },
                node(0, WaitKind::Waited, "clerk-*", &[1], 50_000_000),
                node(6, WaitKind::Interrupt, "", &[7], 50_000_000),
            ],
            frames: vec![
                frame(1, "main", "server", false),
                frame(2, "enter", "server", false),
                frame(3, "pthread_mutex_lock", "/usr/lib/libc.so.6", false),
                frame(4, "__lll_lock_wait", "/usr/lib/libc.so.6", false),
                frame(5, "futex_wait", "[kernel]", true),
                frame(6, "leave", "server", false),
                frame(7, "hrtimer_wakeup", "[kernel]", true),
            ],
            waits: 40,
            waited_ns: 150_000_000,
            runnable_ns: 1_000_000,
            watched_ns: 2_000_000_000,
            lost: [("off_cpu_yielded".to_owned(), 7)].into(),
            ..Default::default()
        };
        let mut state = WaitsState::default();
        state.apply(message).unwrap();
        state
    }

    #[test]
    fn each_wait_is_above_what_it_was_for() {
        let lines: Vec<String> = waits(&sample()).iter().map(Line::text).collect();
        assert_eq!(
            lines,
            [
                "   share       time    times  thread: where",
                "   66.7%     100 ms       20  clerk-* (20 threads) [sleeping] pthread_mutex_lock < enter < main",
                "   60.0%    90.0 ms       20    for keeper\\u{1b}[2J: woken at leave",
                "   46.3%    69.5 ms       20      [ran]",
                "   13.3%    20.0 ms               [not followed]",
                "    6.7%    10.0 ms       20    for sshd, of another process: woken at futex_wait",
                "   33.3%    50.0 ms       20  clerk-* [sleeping] main",
                "   33.3%    50.0 ms       20    for [interrupt] hrtimer_wakeup",
            ]
        );
        assert_eq!(
            summary(&sample(), Duration::from_secs(2)),
            "2.0 s, 40 waits of 150 ms in all; 1.00 ms more without a CPU; left out: off_cpu_yielded 7"
        );
        let rows = screen(&sample(), "pid 7", Duration::from_secs(61), 6);
        assert_eq!((rows.len(), rows[0].text()), (6, "waits  pid 7  1:01".to_owned()));
        let none: Vec<String> = waits(&WaitsState::default()).iter().map(Line::text).collect();
        assert_eq!(none, ["  no wait has ended"]);
    }
}
