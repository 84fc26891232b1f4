//! Plain text for pipes and for what is left on the screen when a run has ended.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use profiler_proto::v1;

use super::{by_value, escape::terminal, source_names, units};
use crate::{
    live::line::{Line, cut_middle},
    state::latency::{FunctionState, LatencyState},
};

/// The width that lines and tables keep to at usual numbers, in columns.
const WIDTH: usize = 80;

/// Columns of a function's name in a line; a longer one is cut in its middle.
const NAME: usize = 16;

/// Columns of the numbers of calls and of calls a second.
const CALLS: usize = 5;

/// Columns of a duration.
const TIME: usize = 6;

/// Columns of the numbers of open and of lost calls.
const FEW: usize = 4;

/// The lines of a run's updates, one update below the other.
#[derive(Default)]
pub struct Updates {
    /// Whether what is above all lines was written.
    headed: bool,
    /// The losses of no single function, as they were written last.
    lost: BTreeMap<String, u64>,
    /// Functions of which it was written that percentiles are of a part of their calls.
    partial: BTreeSet<u32>,
}

/// Functions of which that is written while a run goes on; the table at its end has all.
const MAX_PARTIAL: usize = 5;

impl Updates {
    /// The lines of the next update; those of losses that are of no single function only where these have changed.
    pub fn next(&mut self, state: &LatencyState, elapsed: Duration) -> String {
        let mut text = update(state, elapsed);
        if self.lost != state.lost {
            self.lost.clone_from(&state.lost);
            text.push_str(&lost_in_run(&format!("{:>TIME$} ", since(elapsed)), &state.lost));
        }
        for (id, function) in &state.functions {
            if let Some(share) = partial(function)
                && self.partial.len() < MAX_PARTIAL
                && self.partial.insert(*id)
            {
                let name = source_names::in_columns(&name(&function.function), NAME);
                text.push_str(&format!("{:>TIME$} {name}:{share}\n", since(elapsed)));
            }
        }
        if !std::mem::replace(&mut self.headed, true) {
            text.insert_str(0, &heading());
        }
        text
    }
}

/// What is above the lines of [`update`].
fn heading() -> String {
    let times = ["p50", "p90", "p99", "p99.9", "max"].map(|name| format!(" {name:>TIME$}"));
    format!(
        "{:>TIME$} {:<NAME$} {:>CALLS$} {:>CALLS$}{} {:>FEW$} {:>FEW$}\n",
        "time",
        "function",
        "calls",
        "/s",
        times.concat(),
        "open",
        "lost"
    )
}

/// A line for each function: its calls since the start, their rate and percentiles in the window, and what is open and
/// lost of its own; of several functions, for those that were called in the window.
fn update(state: &LatencyState, elapsed: Duration) -> String {
    let mut text = String::new();
    let several = state.functions.len() > 1;
    let time = since(elapsed);
    if several
        && state
            .functions
            .values()
            .all(|function| function.window.count == 0.0)
    {
        return format!(
            "{time:>TIME$} no call of the {} functions has ended in the window\n",
            units::count(state.functions.len() as u64)
        );
    }
    let names = distinct(state.functions.values().map(|function| &function.function), name);
    for (function, name) in state.functions.values().zip(short(names, NAME)) {
        let window = &function.window;
        let is_called = window.count > 0.0;
        if several && !is_called {
            continue;
        }
        let times = [
            window.p50_ns,
            window.p90_ns,
            window.p99_ns,
            window.p999_ns,
            window.max_ns,
        ]
        .map(|ns| {
            format!(
                " {:>TIME$}",
                if is_called { narrow_ns(ns) } else { "-".to_owned() }
            )
        });
        let lost = function
            .lost
            .values()
            .fold(0, |sum: u64, &n| sum.saturating_add(n));
        text.push_str(&format!(
            "{time:>TIME$} {name:<NAME$} {:>CALLS$} {:>CALLS$}{} {:>FEW$} {:>FEW$}\n",
            units::narrow_number(function.since_start.count, CALLS),
            units::narrow_number(if is_called { window.rate_hz } else { 0.0 }, CALLS),
            times.concat(),
            units::narrow_number(function.open as f64, FEW),
            units::narrow_number(lost as f64, FEW),
        ));
    }
    text
}

/// The time since a run began, without fractions where these would not fit.
fn since(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let decimals = usize::from(seconds < 999.95);
    format!("{seconds:.decimals$}s")
}

/// Names cut to so many columns: in their middle, or elsewhere where they would look alike then. Those that look alike
/// wherever they are cut stay whole, the others do not.
#[must_use]
pub fn short(names: Vec<String>, columns: usize) -> Vec<String> {
    let in_the_middle = |name: &String| cut_middle(name, columns);
    let mut cuts: Vec<Option<String>> = told_apart(&names, &HashSet::new(), in_the_middle);
    for head in (0..columns).rev() {
        if cuts.iter().all(Option::is_some) {
            break;
        }
        let taken: HashSet<&str> = cuts.iter().flatten().map(String::as_str).collect();
        let left: Vec<String> = names
            .iter()
            .zip(&cuts)
            .filter(|(_, cut)| cut.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        let mut more = told_apart(&left, &taken, |name| cut_behind(name, head, columns)).into_iter();
        for cut in cuts.iter_mut().filter(|cut| cut.is_none()) {
            *cut = more.next().flatten();
        }
    }
    names
        .into_iter()
        .zip(cuts)
        .map(|(name, cut)| cut.unwrap_or(name))
        .collect()
}

/// Names as they are cut, but for those that would look like another of them, or like one that is taken.
fn told_apart(
    names: &[String],
    taken: &HashSet<&str>,
    cut: impl Fn(&String) -> String,
) -> Vec<Option<String>> {
    let cuts: Vec<String> = names.iter().map(cut).collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for cut in &cuts {
        *times.entry(cut).or_default() += 1;
    }
    cuts.iter()
        .map(|cut| {
            (times.get(cut.as_str()) == Some(&1) && !taken.contains(cut.as_str())).then(|| cut.clone())
        })
        .collect()
}

/// A name cut to so many columns behind so many characters.
fn cut_behind(name: &str, head: usize, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    let tail = columns.saturating_sub(1 + head);
    let begin = name.chars().take(head);
    begin
        .chain(['…'])
        .chain(name.chars().skip(length - tail))
        .collect()
}

/// Functions that were not called and are named all the same.
const NOT_CALLED_NAMED: usize = 5;

/// The table of all histograms, as a run ends with it: what took the most time first, and what was not called in
/// a line.
#[must_use]
pub fn result(state: &LatencyState, elapsed: Duration) -> String {
    let mut text = format!(
        "\n{}  after {}\n",
        terminal(&state.scope),
        units::duration(elapsed.as_nanos() as f64)
    );
    let titles = distinct(state.functions.values().map(|function| &function.function), title);
    let (mut called, not_called): (Vec<_>, Vec<_>) = state
        .functions
        .values()
        .zip(titles)
        .partition(|(function, _)| state.functions.len() == 1 || was_called(function));
    let time = |function: &FunctionState| function.since_start.count * function.since_start.mean_ns;
    called.sort_by(|(a, _), (b, _)| time(b).total_cmp(&time(a)));
    for (function, title) in called {
        text.push('\n');
        text.push_str(&title);
        text.push('\n');
        for line in summaries(function, WIDTH) {
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str(&wrapped(&state_line(function, &function.lost)));
        for line in taken_off(function) {
            text.push_str(&line);
            text.push('\n');
        }
        if let Some(partial) = partial(function) {
            text.push_str(&partial);
            text.push('\n');
        }
        for line in slowest(function, 5) {
            text.push_str(&line);
            text.push('\n');
        }
        if let Some(by) = &function.by {
            let lines = by_value::lines(by, usize::MAX, usize::MAX);
            for line in lines.iter().map(Line::text).chain(by_value::reasons(by)) {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    let not_called: Vec<_> = not_called.iter().map(|(function, _)| *function).collect();
    if let Some(line) = not_called_line(&not_called) {
        text.push_str(&format!("\n{line}\n"));
    }
    let lost = lost_in_run("", &state.lost);
    if !lost.is_empty() {
        text.push('\n');
        text.push_str(&lost);
    }
    text
}

/// Functions that were not called, in a line: how many, and the first few by name. `None` where there are none.
#[must_use]
pub fn not_called_line(functions: &[&FunctionState]) -> Option<String> {
    let named = functions.iter().take(NOT_CALLED_NAMED);
    let names: Vec<_> = named.map(|function| name(&function.function)).collect();
    let more = if names.len() < functions.len() {
        ", …"
    } else {
        ""
    };
    (!names.is_empty()).then(|| {
        format!(
            "not called: {} ({}{more})",
            units::count(functions.len() as u64),
            names.join(", ")
        )
    })
}

/// Losses of a run that are of no single function, by reason; nothing where there are none.
fn lost_in_run(before: &str, lost: &BTreeMap<String, u64>) -> String {
    let reasons = reasons(lost);
    if reasons.is_empty() {
        return String::new();
    }
    wrapped(&format!("{before}lost in the whole run: {}", reasons.join(", ")))
}

/// A list in as many lines as it takes, each broken behind a comma.
fn wrapped(list: &str) -> String {
    const INDENT: &str = "         ";
    let mut lines = Vec::new();
    let mut line = String::new();
    for part in list.split_inclusive(", ") {
        let is_full = line.chars().count() + part.trim_end().chars().count() > WIDTH;
        if is_full && !line.trim_start().is_empty() {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        }
        line.push_str(part);
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Whether there is anything to say of a function.
#[must_use]
pub fn was_called(function: &FunctionState) -> bool {
    let lost = function.lost.values().any(|&count| count > 0);
    function.since_start.count > 0.0 || function.open > 0 || function.abandoned > 0 || lost
}

/// A function's name and where it is.
#[must_use]
pub fn title(function: &v1::Function) -> String {
    let mut text = terminal(&function.name).into_owned();
    if !function.file.is_empty() {
        text.push_str(&format!("  {}", terminal(&function.file)));
        if function.line > 0 {
            text.push_str(&format!(":{}", function.line));
        }
    }
    text
}

/// Where a function's code is: what tells it from others of its name.
fn place(function: &v1::Function) -> String {
    format!("  {}", terminal(&begins_at(function)))
}

/// The file and the address that a function can be called by.
fn begins_at(function: &v1::Function) -> String {
    let module = function.module.rsplit('/').next().unwrap_or_default();
    format!("{module}+{:#x}", function.address)
}

/// Whether no symbol names a function: it is called by where it is.
#[must_use]
pub fn is_unnamed(function: &v1::Function) -> bool {
    function.name == begins_at(function)
}

/// Where functions are that no symbol names, a line for each of a few files.
#[must_use]
pub fn unnamed_functions(files: &[v1::UnnamedFunctions]) -> Vec<String> {
    const SHOWN: usize = 3;
    let mut lines: Vec<String> = files
        .iter()
        .take(SHOWN)
        .map(|file| {
            let name = file.module.rsplit('/').next().unwrap_or_default();
            let name = terminal(name);
            let functions = if file.count == 1 {
                "function has"
            } else {
                "functions have"
            };
            format!(
                "{} more {functions} no symbol in {name}: `{name}+0x*` lists them",
                file.count
            )
        })
        .collect();
    if files.len() > SHOWN {
        let others = files.len() - SHOWN;
        let files = if others == 1 { "file" } else { "files" };
        lines.push(format!("{others} other {files} have such functions too"));
    }
    lines
}

/// What functions are called, each by `name`; those that would be called the same, with where their code is.
pub fn distinct<'a>(
    functions: impl IntoIterator<Item = &'a v1::Function>,
    name: impl Fn(&v1::Function) -> String,
) -> Vec<String> {
    let functions: Vec<&v1::Function> = functions.into_iter().collect();
    let mut names: Vec<String> = functions.iter().map(|function| name(function)).collect();
    let mut times: HashMap<String, usize> = HashMap::new();
    for name in &names {
        *times.entry(name.clone()).or_default() += 1;
    }
    for (name, function) in names.iter_mut().zip(functions) {
        if times.get(name).is_some_and(|times| *times > 1) {
            name.push_str(&place(function));
        }
    }
    names
}

/// A function's name alone, for people.
#[must_use]
pub fn name(function: &v1::Function) -> String {
    terminal(&function.name).into_owned()
}

/// The table of the three histograms: a heading and a line each. Where it would be wider than
/// `width`, it does without the columns that matter least.
#[must_use]
pub fn summaries(function: &FunctionState, width: usize) -> Vec<String> {
    let mut rows = summary_rows(function);
    for column in ["min", "mean", "p90", "p99.9"] {
        let lines = narrow(&rows, 1);
        if lines.iter().all(|line| line.chars().count() <= width) {
            return lines;
        }
        if let Some(at) = rows[0].iter().position(|heading| heading == column) {
            for row in &mut rows {
                row.remove(at);
            }
        }
    }
    narrow(&rows, 1)
}

/// As [`align`], with one space between numbers.
#[must_use]
pub fn narrow(rows: &[Vec<String>], left: usize) -> Vec<String> {
    columns(rows, |column| column < left, " ")
        .map(|line| format!("  {line}").trim_end().to_owned())
        .collect()
}

fn summary_rows(function: &FunctionState) -> Vec<Vec<String>> {
    let mut rows = vec![
        [
            "", "calls", "/s", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (name, summary) in [
        ("start", &function.since_start),
        ("window", &function.window),
        ("ewma", &function.ewma),
    ] {
        let mut row = vec![name.to_owned(), units::number(summary.count)];
        if summary.count > 0.0 {
            row.push(units::number(summary.rate_hz));
            row.push(units::narrow_duration(summary.mean_ns));
            row.extend(
                [
                    summary.min_ns,
                    summary.p50_ns,
                    summary.p90_ns,
                    summary.p95_ns,
                    summary.p99_ns,
                    summary.p999_ns,
                    summary.max_ns,
                ]
                .map(narrow_ns),
            );
        } else {
            row.push(units::number(0.0));
            row.extend(std::iter::repeat_n("-".to_owned(), 8));
        }
        rows.push(row);
    }
    rows
}

/// Columns of equal width, two spaces apart, indented: the first `left` of them to the left.
#[must_use]
pub fn align(rows: &[Vec<String>], left: usize) -> Vec<String> {
    columns(rows, |column| column < left, "  ")
        .map(|line| format!("  {line}").trim_end().to_owned())
        .collect()
}

/// A table on its own: columns two spaces apart, those in `left` to the left.
#[must_use]
pub fn table(rows: &[Vec<String>], left: &[usize]) -> String {
    columns(rows, |column| left.contains(&column), "  ")
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// How a table becomes as narrow as a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Narrowed<'a> {
    /// Columns whose cells may be cut in their middle, and what they keep.
    pub cut: &'a [(usize, usize)],
    /// Columns that are left out where that is not enough, the first first.
    pub left_out: &'a [usize],
}

/// The same as [`table`], but of so many columns at most where there is a width: first without columns in which nothing is known.
#[must_use]
pub fn narrowed_table(
    rows: &[Vec<String>],
    left: &[usize],
    narrowed: Narrowed<'_>,
    width: Option<usize>,
) -> String {
    let Some(width) = width else {
        return table(rows, left);
    };
    let widths = widths(rows);
    let whole = |column: &usize| widths.get(*column).copied().unwrap_or(0);
    let least = |column: &usize| {
        let cut = narrowed.cut.iter().find(|(cut, _)| cut == column);
        cut.map_or(usize::MAX, |(_, least)| *least).min(whole(column))
    };
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    if with_gaps(kept.iter().map(whole)) > width {
        kept.retain(|column| !is_unknown(rows, *column));
    }
    for left_out in narrowed.left_out {
        if with_gaps(kept.iter().map(least)) <= width {
            break;
        }
        kept.retain(|column| column != left_out);
    }
    let mut rooms: Vec<usize> = kept.iter().map(whole).collect();
    while with_gaps(rooms.iter().copied()) > width {
        let cut = kept.iter().zip(&mut rooms);
        let may_give = cut.filter(|(column, room)| **room > least(column));
        let Some((_, room)) = may_give.max_by_key(|(_, room)| **room) else {
            break;
        };
        *room -= 1;
    }
    let cells = |row: &Vec<String>| {
        let cells = kept.iter().zip(&rooms).filter_map(|(column, room)| {
            let cell = row.get(*column)?;
            Some(source_names::in_columns(cell, *room))
        });
        cells.collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    columns(
        &rows,
        |at| kept.get(at).is_some_and(|column| left.contains(column)),
        "  ",
    )
    .map(|line| line.trim_end().to_owned() + "\n")
    .collect()
}

/// The width of columns two spaces apart.
fn with_gaps(widths: impl ExactSizeIterator<Item = usize>) -> usize {
    2 * widths.len().saturating_sub(1) + widths.sum::<usize>()
}

/// Whether no row below the heading has anything in a column.
fn is_unknown(rows: &[Vec<String>], column: usize) -> bool {
    let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column));
    rows.len() > 1 && cells.all(|cell| cell == "-")
}

/// The width of each column: that of its widest cell.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..count).map(width).collect()
}

fn columns(
    rows: &[Vec<String>],
    left: impl Fn(usize) -> bool,
    between: &str,
) -> impl Iterator<Item = String> {
    let widths = widths(rows);
    rows.iter().map(move |row| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| {
                if left(column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        cells.join(between)
    })
}

/// Open and abandoned spans, the probes' own cost, losses.
#[must_use]
pub fn state_line(function: &FunctionState, lost: &BTreeMap<String, u64>) -> String {
    format!(
        "  open {}  abandoned {}  overhead {}  {}",
        units::count(function.open),
        units::count(function.abandoned),
        ns(function.overhead_ns),
        losses(lost),
    )
}

/// Least share of the calls that percentiles are of without its being said.
const WHOLE: f64 = 0.99;

/// Says of what part of the calls the percentiles are, where that is not nearly all.
#[must_use]
pub fn partial(function: &FunctionState) -> Option<String> {
    let share = function.timed_share();
    (share < WHOLE).then(|| {
        // Not rounded up to all of them.
        let percent = (share * 1000.0).floor() / 10.0;
        format!("  these are {percent:.1}% of the calls: the others were not seen to end")
    })
}

/// Says that its probes are not on the target any more, and why.
#[must_use]
pub fn taken_off(function: &FunctionState) -> Vec<String> {
    let Some(why) = &function.taken_off else {
        return Vec::new();
    };
    vec![
        "  taken off the target, its counts stand still:".to_owned(),
        format!("  {}", terminal(&why.reason)),
    ]
}

/// The reasons of losses with how many each; those that did not happen are left out.
fn reasons(lost: &BTreeMap<String, u64>) -> Vec<String> {
    let happened = lost.iter().filter(|(_, n)| **n > 0);
    happened
        .map(|(reason, &n)| format!("{} {}", terminal(reason), units::count(n)))
        .collect()
}

/// Losses by reason in a line.
#[must_use]
pub fn losses(lost: &BTreeMap<String, u64>) -> String {
    let reasons = reasons(lost);
    if reasons.is_empty() {
        "lost none".to_owned()
    } else {
        format!("lost: {}", reasons.join(", "))
    }
}

/// The slowest recent calls, where the scope has a threshold.
#[must_use]
pub fn slowest(function: &FunctionState, most: usize) -> Vec<String> {
    if function.slowest.is_empty() {
        return Vec::new();
    }
    let calls: Vec<String> = function
        .slowest
        .iter()
        .take(most)
        .map(|call| format!("{} (thread {})", ns(call.duration_ns), call.tid))
        .collect();
    vec![format!("  slowest  {}", calls.join("  "))]
}

/// What the daemon itself costs.
#[must_use]
pub fn cost(cost: &v1::Cost) -> String {
    let mut text = format!(
        "daemon {} of a core, {}",
        units::percent(cost.cpu_share),
        units::mebibytes(cost.rss_anon_bytes)
    );
    if cost.kernel_share > 0.0 {
        text.push_str(&format!(
            ", in the kernel {} of a core",
            units::percent(cost.kernel_share)
        ));
    }
    text
}

fn ns(value: u64) -> String {
    units::duration(value as f64)
}

fn narrow_ns(value: u64) -> String {
    units::narrow_duration(value as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_and_is_whole_elsewhere() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["STEP", "PLACE", "AT", "HITS/S", "A HIT"]),
            row([
                "serve",
                "server::connection::Connection::serve(int)",
                "server+0x1234",
                "-",
                "1.20 µs",
            ]),
            row(["serve", "main", "server+0x1200", "-", "800 ns"]),
        ];
        let narrowed = Narrowed {
            cut: &[(1, 12)],
            left_out: &[2],
        };
        let table_of = |width| narrowed_table(&rows, &[0, 1, 2], narrowed, width);
        assert_eq!(table_of(None), table(&rows, &[0, 1, 2]));
        assert_eq!(table_of(Some(200)), table(&rows, &[0, 1, 2]));
        let widest = |table: String| table.lines().map(|line| line.chars().count()).max();
        for width in 28..120 {
            assert!(
                widest(table_of(Some(width))) <= Some(width),
                "{}",
                table_of(Some(width))
            );
        }
        // What is not known goes first, then what matters least.
        assert_eq!(
            table_of(Some(55)),
            "STEP   PLACE              AT               A HIT\n\
             serve  Connection::serve  server+0x1234  1.20 µs\n\
             serve  main               server+0x1200   800 ns\n"
        );
        assert_eq!(
            table_of(Some(34)),
            "STEP   PLACE                A HIT\n\
             serve  Connection::serve  1.20 µs\n\
             serve  main                800 ns\n"
        );
    }

    /// A view of one function with two modes.
    pub(crate) fn sample() -> LatencyState {
        let summary = |count: f64| {
            Some(v1::Summary {
                count,
                rate_hz: 1234.0,
                mean_ns: 1_200_000.0,
                min_ns: 250_000,
                max_ns: 31_000_000,
                p50_ns: 900_000,
                p90_ns: 1_900_000,
                p95_ns: 12_300_000,
                p99_ns: 20_000_000,
                p999_ns: 30_000_000,
            })
        };
        let mut state = LatencyState::default();
        state
            .apply(v1::WatchLatencyResponse {
                info: Some(v1::StreamInfo {
                    scope: "handle[>= p95]".into(),
                    cost: Some(v1::Cost {
                        cpu_share: 0.004,
                        rss_anon_bytes: 21 << 20,
                        kernel_share: 0.0,
                        ..Default::default()
                    }),
                    ..v1::StreamInfo::default()
                }),
                snapshot: true,
                functions: vec![v1::FunctionLatency {
                    id: 1,
                    function: Some(v1::Function {
                        name: "handle".into(),
                        file: "src/server.rs".into(),
                        line: 12,
                        ..Default::default()
                    }),
                    since_start: summary(10_234.0),
                    window: summary(3_456.0),
                    since_start_counts: Some(v1::Histogram {
                        bucket_deltas: vec![1700, 100, 100, 300],
                        counts: vec![4000, 5000, 700, 534],
                    }),
                    window_counts: Some(v1::Histogram {
                        bucket_deltas: vec![1700, 100, 100, 300],
                        counts: vec![1400, 1700, 200, 156],
                    }),
                    open: 3,
                    overhead_ns: 800,
                    slowest: vec![v1::SlowCall {
                        ts_ns: 1,
                        tid: 77,
                        duration_ns: 31_000_000,
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            })
            .unwrap();
        state
    }

    #[test]
    fn an_update_is_a_line_of_eighty_columns() {
        let state = sample();
        assert_eq!(
            heading() + &update(&state, Duration::from_millis(2500)),
            "  time function         calls    /s    p50    p90    p99  p99.9    max open lost\n  \
             2.5s handle           10234  1234  900µs 1.90ms 20.0ms 30.0ms 31.0ms    3    0\n"
        );
        let mut idle = sample();
        idle.functions.get_mut(&1).unwrap().window = v1::Summary::default();
        assert_eq!(
            update(&idle, Duration::ZERO),
            "  0.0s handle           10234     0      -      -      -      -      -    3    0\n"
        );
    }

    #[test]
    fn an_update_keeps_its_columns() {
        let mut state = sample();
        let function = state.functions.get_mut(&1).unwrap();
        function.function.name = "std::collections::HashMap<alloc::string::String, u64>::insert".into();
        function.since_start.count = 1.234e9;
        function.window.rate_hz = 1_234_567.0;
        function.window.max_ns = 754_000_000_000;
        function.open = 12_345;
        function.lost.insert("too_deep".to_owned(), 1_234_567);
        let line = update(&state, Duration::from_secs(12_345));
        assert_eq!(
            line,
            "12345s std::co…::insert 1.23G 1.23M  900µs 1.90ms 20.0ms 30.0ms 12m34s  12k 1.2M\n"
        );
        for line in [heading(), line] {
            assert_eq!(line.trim_end().chars().count(), WIDTH, "{line}");
        }
    }

    #[test]
    fn what_is_lost_of_no_function_is_in_a_line_of_its_own_when_it_changes() {
        let mut state = sample();
        let mut other = state.functions[&1].clone();
        other.function.name = "parse".to_owned();
        other.lost.insert("too_deep".to_owned(), 7);
        state.functions.insert(2, other);
        let mut updates = Updates::default();
        let mut next = |state: &LatencyState| updates.next(state, Duration::from_secs(1));
        let lost = |text: &str| -> Vec<String> {
            let ends = text.lines().map(|line| line.split_whitespace().next_back());
            ends.flatten().map(str::to_owned).collect()
        };
        assert_eq!(lost(&next(&state)), ["lost", "0", "7"], "headed once");
        state.lost.insert("place_missed".to_owned(), 1200);
        let text = next(&state);
        assert_eq!(
            text.lines().next_back(),
            Some("  1.0s lost in the whole run: place_missed 1,200")
        );
        assert_eq!(lost(&text), ["0", "7", "1,200"], "no function's are more for it");
        assert_eq!(lost(&next(&state)), ["0", "7"]);
        for function in state.functions.values_mut() {
            function.window = v1::Summary::default();
        }
        state.lost.insert("place_missed".to_owned(), 1201);
        assert!(next(&state).ends_with("lost in the whole run: place_missed 1,201\n"));

        let text = result(&state, Duration::ZERO);
        assert_eq!(text.matches("place_missed").count(), 1, "{text}");
        assert!(
            text.contains("ns  lost none\n") && text.contains("ns  lost: too_deep 7\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n\nlost in the whole run: place_missed 1,201\n"),
            "{text}"
        );
    }

    #[test]
    fn losses_for_many_reasons_take_several_lines() {
        let mut state = sample();
        let many: BTreeMap<_, _> = (0..20).map(|n| (format!("a_reason_{n}"), 123_456)).collect();
        state.lost.clone_from(&many);
        state.functions.get_mut(&1).unwrap().lost = many;
        let text =
            Updates::default().next(&state, Duration::from_secs(999)) + &result(&state, Duration::ZERO);
        assert_eq!(text.matches(" 123,456").count(), 60, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn names_are_cut_so_that_they_are_told_apart() {
        let names = |names: &[&str]| short(names.iter().map(|&name| name.to_owned()).collect(), NAME);
        let (one, other) = (
            "demo::request::digest::{{closure}}",
            "demo::rebuild::digest::{{closure}}",
        );
        assert_eq!(names(&[one, "parse"]), ["demo::r…losure}}", "parse"]);
        assert_eq!(
            names(&[one, other, "demo::handler::serve", "parse"]),
            [
                "demo::request::…",
                "demo::rebuild::…",
                "demo::h…r::serve",
                "parse"
            ]
        );
        let (one, other) = ("server::connection::read", "server::connection::write");
        assert_eq!(names(&[one, other]), ["server:…on::read", "server:…n::write"]);
        let middle = |middle: &str| format!("server::connection::{middle}::{{{{closure}}}}::poll");
        let (one, other) = (middle("read"), middle("send"));
        assert_eq!(
            names(&[&one, "demo::handler::serve", &other]),
            [&one, "demo::h…r::serve", &other],
            "two differ where both are cut: the third does not grow for that"
        );
        let third = "server::socket::accept::{{closure}}::poll";
        assert_eq!(names(&[third, &one, &other]), ["server::socket:…", &one, &other]);
    }

    #[test]
    fn of_what_part_of_the_calls_the_percentiles_are_is_said_below_99_percent() {
        let mut state = sample();
        let mut said = |abandoned| {
            let function = state.functions.get_mut(&1).unwrap();
            function.abandoned = abandoned;
            partial(function)
        };
        assert_eq!(said(0), None);
        assert_eq!(said(102), None);
        assert!(said(150).unwrap().contains("98.5% of the calls"));
        assert!(said(92_106).unwrap().contains("10.0% of the calls"));
        assert!(result(&state, Duration::ZERO).contains("the others were not seen to end"));
        // While the run goes on, once.
        let mut updates = Updates::default();
        let mut next = || updates.next(&state, Duration::from_secs(3));
        assert!(next().contains("these are 10.0% of the calls"));
        assert!(!next().contains("of the calls"));
    }

    #[test]
    fn the_result_is_a_table() {
        let text = result(&sample(), Duration::from_secs(10));
        assert!(text.contains("handle[>= p95]  after 10.0 s"), "{text}");
        assert!(text.contains("handle  src/server.rs:12"), "{text}");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(
            lines,
            [
                "          calls    /s   mean   min   p50    p90    p95    p99  p99.9    max",
                "  start  10,234 1,234 1.20ms 250µs 900µs 1.90ms 12.3ms 20.0ms 30.0ms 31.0ms",
                "  window  3,456 1,234 1.20ms 250µs 900µs 1.90ms 12.3ms 20.0ms 30.0ms 31.0ms",
                "  ewma        0     0      -     -     -      -      -      -      -      -",
                "  open 3  abandoned 0  overhead 800 ns  lost none",
                "  slowest  31.0 ms (thread 77)",
            ]
        );
    }

    #[test]
    fn what_was_not_called_is_named_in_a_line() {
        let mut state = sample();
        for id in 2..12 {
            let mut idle = FunctionState::default();
            idle.function.name = format!("idle{id}");
            state.functions.insert(id, idle);
        }
        let text = result(&state, Duration::from_secs(10));
        assert!(
            text.ends_with("\nnot called: 10 (idle2, idle3, idle4, idle5, idle6, …)\n"),
            "{text}"
        );
        assert_eq!(update(&state, Duration::ZERO).lines().count(), 1);
        state.functions.remove(&1);
        assert_eq!(
            update(&state, Duration::ZERO),
            "  0.0s no call of the 10 functions has ended in the window\n"
        );
    }

    #[test]
    fn functions_of_one_name_are_told_apart() {
        let function = |name: &str, address| v1::Function {
            name: name.to_owned(),
            module: "/usr/lib/lib\x1b.so".to_owned(),
            address,
            ..Default::default()
        };
        let functions = [
            function("init", 0x10),
            function("run", 0x20),
            function("init", 0x30),
        ];
        assert_eq!(
            distinct(&functions, name),
            ["init  lib\\u{1b}.so+0x10", "run", "init  lib\\u{1b}.so+0x30"]
        );
    }

    #[test]
    fn a_narrow_table_does_without_the_least() {
        let state = sample();
        let lines = summaries(&state.functions[&1], 72);
        assert!(lines.iter().all(|line| line.chars().count() <= 72), "{lines:?}");
        assert!(!lines[0].contains("min") && lines[0].contains("p95") && lines[0].contains("max"));
    }

    #[test]
    fn names_cannot_draw() {
        let mut state = sample();
        state.functions.get_mut(&1).unwrap().function.name = "a\x1b[2J\nb".into();
        assert!(!update(&state, Duration::ZERO).contains('\x1b'));
        assert!(!result(&state, Duration::ZERO).contains('\x1b'));
    }

    #[test]
    fn losses_that_did_not_happen_are_not_named() {
        assert_eq!(losses(&[("a".to_owned(), 0)].into()), "lost none");
        assert_eq!(
            losses(&[("a".to_owned(), 0), ("b".to_owned(), 1200)].into()),
            "lost: b 1,200"
        );
    }
}
