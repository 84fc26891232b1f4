//! The tree of waits for people: who waited, who ended that, and what that one did meanwhile.

use std::{collections::HashMap, time::Duration};

use profiler_proto::v1::{self, WaitKind};

use super::{escape::terminal, text, trace, units};
use crate::{
    live::line::{Line, Style, wrapped},
    state::waits::WaitsState,
};

/// Nodes with a smaller share than this are summed up.
const SMALLEST: f64 = 0.01;

/// Functions of a stack that are shown.
const MOST_FRAMES: usize = 5;

/// Columns of the numbers of a row.
const NUMBERS: usize = 30;

/// Levels that are drawn further to the right than those before.
const MOST_INDENTED: usize = 20;

/// A row of the tree.
pub struct Row {
    /// As it is drawn.
    pub line: Line,
    /// The number of the node that it is of; of several at one place, the longest one's.
    pub node: Option<usize>,
}

/// The tree, longest first, below its heading.
#[must_use]
pub fn waits(state: &WaitsState) -> Vec<Line> {
    if state.waits == 0 {
        return vec![Line::of(Style::Faint, "  no wait has ended".to_owned())];
    }
    let rows = rows(state).into_iter().map(|row| row.line);
    std::iter::once(heading()).chain(rows).collect()
}

/// Columns that what a row is of has, however far to the right it is drawn.
const LEAST_WORDS: usize = 40;

/// A row of the tree in so many columns: one that is drawn far to the right is drawn less far, and then it is cut.
#[must_use]
pub fn fitted(mut row: Line, width: usize) -> Line {
    if row.width() > width
        && let Some((_, numbers)) = row.0.first_mut()
    {
        let most = width.saturating_sub(LEAST_WORDS).max(NUMBERS);
        let drawn: String = numbers.chars().take(most).collect();
        if numbers.starts_with(&drawn) && numbers.trim_end().len() < drawn.len() {
            *numbers = drawn;
        }
    }
    row.fitted(width)
}

/// What stands above the tree.
#[must_use]
pub fn heading() -> Line {
    Line::of(Style::Faint, "   share       time    times  thread: where")
}

/// The rows of the tree, longest first.
#[must_use]
pub fn rows(state: &WaitsState) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut pending = vec![Pending::Node(0, 0)];
    while let Some(next) = pending.pop() {
        let mut add = |line: Option<Line>, number: usize| {
            let node = Some(number);
            rows.extend(line.map(|line| Row { line, node }));
        };
        let mut below = match next {
            Pending::Line(line) => {
                rows.push(Row { line, node: None });
                continue;
            }
            Pending::Node(number, depth) => {
                let node = state.node(number);
                add(node.map(|node| line(state, node, depth - 1)), number);
                parts(state, number, depth)
            }
            Pending::OfLock(number, depth) => {
                let node = state.node(number);
                add(node.map(|node| of_lock(state, node, depth - 1)), number);
                parts(state, number, depth)
            }
            Pending::Locks(nodes, depth) => {
                let first = nodes.first().copied().unwrap_or(0);
                add(of_locks(state, &nodes, depth - 1), first);
                locks(state, &nodes, depth)
            }
        };
        below.reverse();
        pending.append(&mut below);
    }
    rows
}

/// Where a thread waited, or ended another's wait: the innermost frame of the program itself, or else of what it called. `None`
/// where no frame has a name.
#[must_use]
pub fn own_frame<'a>(state: &'a WaitsState, node: &v1::WaitNode) -> Option<&'a v1::Frame> {
    let named = |frame: &&v1::Frame| !frame.kernel && !frame.function.is_empty();
    let frames: Vec<&v1::Frame> = state.stack(node).filter(named).collect();
    let own = frames.iter().rfind(|frame| !is_c_library(&frame.module));
    own.or(frames.last()).copied()
}

/// What is still to be drawn.
enum Pending {
    /// A node and all below it, at a depth.
    Node(usize, usize),
    /// The same, below a line that says where it was waited.
    OfLock(usize, usize),
    /// Waits at one place for several locks, longest first.
    Locks(Vec<usize>, usize),
    Line(Line),
}

impl Pending {
    /// Waits at one place.
    fn of(nodes: Vec<usize>, depth: usize) -> Self {
        match *nodes {
            [node] => Self::Node(node, depth),
            _ => Self::Locks(nodes, depth),
        }
    }
}

/// The nodes below one that are at the same place, but for the lock, together; longest first.
fn places(state: &WaitsState, number: usize) -> Vec<(u64, Vec<usize>)> {
    let mut at_place = HashMap::new();
    let mut places: Vec<(u64, Vec<usize>)> = Vec::new();
    for number in state.below(number) {
        let Some(node) = state.node(*number) else { continue };
        let place = (node.kind(), &node.thread, node.waiting, &node.stack);
        let is_for_lock = node.lock.is_some() || node.other_locks > 0;
        let at = if is_for_lock {
            *at_place.entry(place).or_insert(places.len())
        } else {
            places.len()
        };
        if at == places.len() {
            places.push((0, Vec::new()));
        }
        if let Some((time_ns, nodes)) = places.get_mut(at) {
            *time_ns += node.time_ns;
            nodes.push(*number);
        }
    }
    places.sort_by_key(|(time_ns, _)| std::cmp::Reverse(*time_ns));
    places
}

/// A line for each lock, and the rest in one.
fn locks(state: &WaitsState, nodes: &[usize], depth: usize) -> Vec<Pending> {
    let time_ns = |number: &usize| state.node(*number).map_or(0, |node| node.time_ns);
    let mut nodes = nodes.to_vec();
    nodes.sort_by_key(|number| std::cmp::Reverse(time_ns(number)));
    let shown = nodes.partition_point(|number| is_large(state, time_ns(number)));
    let (large, small) = nodes.split_at(shown);
    let mut lines: Vec<Pending> = large
        .iter()
        .map(|number| Pending::OfLock(*number, depth + 1))
        .collect();
    let rest_ns: u64 = small.iter().map(time_ns).sum();
    if is_large(state, rest_ns) {
        let others = small.iter().filter_map(|number| state.node(*number));
        let count: u64 = others.map(|node| u64::from(node.other_locks.max(1))).sum();
        let line = numbers(state, rest_ns, None, depth).and(Style::Faint, other_locks(count));
        lines.push(Pending::Line(line));
    }
    lines
}

fn other_locks(count: u64) -> String {
    match count {
        1 => "[1 other lock]".to_owned(),
        _ => format!("[{} other locks]", units::count(count)),
    }
}

fn is_large(state: &WaitsState, time_ns: u64) -> bool {
    units::ratio(time_ns, state.waited_ns) >= SMALLEST
}

/// What is below a node, longest first, and the rest in a line.
fn parts(state: &WaitsState, number: usize, depth: usize) -> Vec<Pending> {
    let mut large = places(state, number);
    let shown = large.partition_point(|(time_ns, _)| is_large(state, *time_ns));
    let small = large.split_off(shown);
    let rest_ns: u64 = small.iter().map(|(time_ns, _)| time_ns).sum();
    let mut parts: Vec<Pending> = large
        .into_iter()
        .map(|(_, nodes)| Pending::of(nodes, depth + 1))
        .collect();
    if is_large(state, rest_ns) {
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
    if is_large(state, unfollowed_ns) {
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

/// A line of waits at one place for several locks.
fn of_locks(state: &WaitsState, nodes: &[usize], depth: usize) -> Option<Line> {
    let nodes = || nodes.iter().filter_map(|number| state.node(*number));
    let first = nodes().next()?;
    let time_ns = nodes().map(|node| node.time_ns).sum();
    let count = nodes().map(|node| node.count).sum();
    let line =
        numbers(state, time_ns, Some(count), depth).and(Style::Strong, terminal(&first.thread).into_owned());
    let how = waiting(first.waiting());
    Some(line.and(Style::Plain, format!(" [{how}] {}", place(state, first))))
}

/// The line of one of these locks.
fn of_lock(state: &WaitsState, node: &v1::WaitNode, depth: usize) -> Line {
    let threads = match node.threads {
        0 | 1 => String::new(),
        threads => format!(" ({threads} threads)"),
    };
    numbers(state, node.time_ns, Some(node.count), depth)
        .and(Style::Strong, lock(node).unwrap_or_default())
        .and(Style::Plain, threads)
}

/// What is waited for in memory.
pub(super) fn of_memory(lock: &v1::Lock) -> String {
    match (&*lock.name, &*lock.memory) {
        ("", _) if !lock.allocated.is_empty() => {
            format!("[lock {:#x} {}]", lock.address, terminal(&lock.allocated))
        }
        ("", "") => format!("[lock {:#x}]", lock.address),
        ("", memory) => format!("[lock {:#x} in {}]", lock.address, terminal(memory)),
        (name, _) => format!("[lock {}]", terminal(name)),
    }
}

/// What a node is for in memory, where that is known.
fn lock(node: &v1::WaitNode) -> Option<String> {
    match &node.lock {
        Some(lock) => Some(of_memory(lock)),
        None if node.other_locks > 0 => Some(other_locks(node.other_locks.into())),
        None => None,
    }
}

/// What of uninterruptible waits held the process up, where that is known.
fn held_up(node: &v1::WaitNode) -> String {
    node.held_up_ns.map_or_else(String::new, |held_up_ns| {
        format!(
            "held up {} ",
            units::percent(units::ratio(held_up_ns, node.time_ns))
        )
    })
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
            let lock = lock(node).map_or_else(String::new, |lock| format!("{lock} "));
            line.and(Style::Strong, who())
                .and(Style::Plain, format!(" [{how}] {}", held_up(node)))
                .and(Style::Plain, lock)
                .and(Style::Plain, place(state, node))
        }
        WaitKind::Woken => {
            let whose = if node.outside { ", of another process" } else { "" };
            line.and(Style::Faint, "for ")
                .and(Style::Strong, who())
                .and(Style::Plain, format!("{whose}: woken at "))
                .and(Style::Plain, place(state, node))
        }
        WaitKind::Interrupt => line
            .and(Style::Faint, "for ")
            .and(Style::Plain, format!("[interrupt] {}", place(state, node))),
        WaitKind::Ran => line.and(Style::Plain, "[ran]"),
        WaitKind::Runnable => line.and(Style::Plain, "[runnable] waited for a CPU"),
        WaitKind::GoesOn if node.thread.is_empty() => line.and(Style::Plain, "[goes on]"),
        WaitKind::GoesOn => line
            .and(Style::Plain, "[goes on] held by ")
            .and(Style::Strong, terminal(&node.thread).into_owned()),
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
pub fn screen(
    state: &WaitsState,
    target: &str,
    elapsed: Duration,
    (columns, rows): (usize, usize),
) -> Vec<Line> {
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
    lines.extend(
        waits(state)
            .into_iter()
            .take(room)
            .map(|line| fitted(line, columns)),
    );
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
                    lock: Some(v1::Lock {
                        address: 0x7f00,
                        name: "till".into(),
                        ..Default::default()
                    }),
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
    fn what_held_the_process_up_is_a_share() {
        let node = |held_up_ns| v1::WaitNode {
            time_ns: 200,
            held_up_ns,
            ..Default::default()
        };
        assert_eq!(held_up(&node(None)), "");
        assert_eq!(held_up(&node(Some(24))), "held up 12.0% ");
    }

    #[test]
    fn a_lock_is_said_by_name_or_by_where_it_lies() {
        let said = |name: &str, memory: &str| {
            of_memory(&v1::Lock {
                address: 0x7f00,
                name: name.into(),
                memory: memory.into(),
                ..Default::default()
            })
        };
        let allocated = v1::Lock {
            address: 0x7f08,
            memory: "[heap]".into(),
            allocated: "+8 in 64 bytes of make < main".into(),
            ..Default::default()
        };
        assert_eq!(
            of_memory(&allocated),
            "[lock 0x7f08 +8 in 64 bytes of make < main]"
        );
        assert_eq!(said("till", ""), "[lock till]");
        assert_eq!(said("", ""), "[lock 0x7f00]");
        assert_eq!(said("", "[heap]"), "[lock 0x7f00 in [heap]]");
        assert_eq!(
            said("", "stack of \x1b[2J (7)"),
            "[lock 0x7f00 in stack of \\u{1b}[2J (7)]"
        );
    }

    #[test]
    fn waits_at_one_place_are_told_apart_by_the_lock() {
        let frame = v1::Frame {
            id: 1,
            function: "enter".into(),
            ..Default::default()
        };
        let waited = |name: &str, other_locks, time_ns| v1::WaitNode {
            kind: WaitKind::Waited.into(),
            thread: "clerk-*".into(),
            waiting: v1::Waiting::Sleeping.into(),
            stack: vec![1],
            time_ns,
            count: 10,
            threads: 3,
            lock: (other_locks == 0).then(|| v1::Lock {
                address: 0x7f00,
                name: name.into(),
                ..Default::default()
            }),
            other_locks,
            ..Default::default()
        };
        let below = |parent, kind: WaitKind, thread: &str, time_ns| v1::WaitNode {
            parent,
            kind: kind.into(),
            thread: thread.into(),
            time_ns,
            count: 1,
            ..Default::default()
        };
        let of = |nodes: Vec<v1::WaitNode>| {
            let mut state = WaitsState::default();
            let message = v1::WatchWaitsResponse {
                waits: 1,
                waited_ns: nodes
                    .iter()
                    .map(|node| if node.parent == 0 { node.time_ns } else { 0 })
                    .sum(),
                nodes,
                frames: vec![frame.clone()],
                ..Default::default()
            };
            state.apply(message).unwrap();
            let lines = waits(&state);
            let text = lines
                .iter()
                .skip(1)
                .map(|line| line.text().chars().skip(30).collect());
            text.collect::<Vec<String>>()
        };
        let one = of(vec![
            waited("rows+8", 0, 1000),
            below(1, WaitKind::GoesOn, "keeper (7)", 600),
            below(1, WaitKind::Unseen, "", 400),
        ]);
        assert_eq!(
            one,
            [
                "clerk-* (3 threads) [sleeping] [lock rows+8] enter",
                "  [goes on] held by keeper (7)",
                "  [not seen who ended it]",
            ]
        );
        let several = of(vec![
            waited("", 70, 100_000),
            waited("rows\x1b[2J", 0, 200_000),
            below(2, WaitKind::GoesOn, "", 200_000),
            waited("", 0, 100),
            waited("few", 0, 300),
        ]);
        assert_eq!(
            several,
            [
                "clerk-* [sleeping] enter",
                "  [lock rows\\u{1b}[2J] (3 threads)",
                "    [goes on]",
                "  [70 other locks] (3 threads)",
            ]
        );
    }

    #[test]
    fn rows_fit_the_terminal() {
        let fits = |state: &WaitsState| {
            for width in 40..140 {
                for line in waits(state) {
                    let line = fitted(line, width);
                    assert!(line.width() <= width, "{}", line.text());
                }
            }
        };
        fits(&sample());
        let first = fitted(waits(&sample()).swap_remove(1), 80).text();
        assert!(first.ends_with(" [sleeping] [lock till] pthre…x_l…"), "{first}");
        let mut deep = sample();
        let line = numbers(&deep, 1, Some(2), MOST_INDENTED).and(Style::Strong, "a_function_of_the_program");
        assert!(fitted(line, 80).text().ends_with("a_function_of_the_program"));
        deep.lost.clear();
        fits(&deep);
    }

    #[test]
    fn each_wait_is_above_what_it_was_for() {
        let lines: Vec<String> = waits(&sample()).iter().map(Line::text).collect();
        assert_eq!(
            lines,
            [
                "   share       time    times  thread: where",
                "   66.7%     100 ms       20  clerk-* (20 threads) [sleeping] [lock till] pthread_mutex_lock < enter < main",
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
        let rows = screen(&sample(), "pid 7", Duration::from_secs(61), (80, 6));
        assert_eq!((rows.len(), rows[0].text()), (6, "waits  pid 7  1:01".to_owned()));
        let none: Vec<String> = waits(&WaitsState::default()).iter().map(Line::text).collect();
        assert_eq!(none, ["  no wait has ended"]);
    }
}
