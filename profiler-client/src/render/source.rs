//! A function's source for people: its lines, each with what can be probed there in a few characters.

use std::fmt::Write as _;

use profiler_proto::v1;

use super::{
    escape::terminal,
    source_names::{cut, short},
};
use crate::{
    live::line::{Line, Style},
    render::units,
};

/// Columns of a tab.
const TAB: usize = 4;
/// Where notes begin if the text leaves the room.
const NOTES_AT: usize = 64;
/// Columns that a note may take of a terminal's line, as a divisor.
const NOTES_SHARE: usize = 2;
/// Instances of a function, or places of its code in other files, that are listed.
const LISTED: usize = 20;
/// Columns of a type's name.
const TYPE_COLUMNS: usize = 36;

/// The marks that have been used, for the legend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a mark each")]
pub struct Marks {
    site: bool,
    branch: bool,
    back: bool,
    call: bool,
    tail: bool,
    inlined: bool,
    counted: bool,
}

/// A function's lines. `width` is that of the terminal, where there is one.
#[must_use]
pub fn function(source: &v1::SourceFunction, width: Option<usize>, marks: &mut Marks) -> Vec<Line> {
    let function = source.function.clone().unwrap_or_default();
    let mut lines = heading(source, &function);
    let (own, others): (Vec<_>, Vec<_>) = source
        .lines
        .iter()
        .partition(|line| line.file.is_empty() && line.line != 0);
    let digits = source.last_line.max(999).to_string().len();
    let texts: Vec<String> = own.iter().map(|line| text_of(&line.text)).collect();
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let mut before = None;
    for (line, text) in own.iter().zip(&texts) {
        if before.is_some_and(|before| before + 1 < line.line) {
            lines.push(Line::of(
                Style::Faint,
                format!("{:>width$}", "⋮", width = digits + 2),
            ));
        }
        before = Some(line.line);
        let row = Row {
            number: format!("{:>digits$}", line.line),
            text,
            column: longest.min(NOTES_AT),
            marked: line.marked,
        };
        lines.push(row.line(line, width, marks));
    }
    lines.extend(elsewhere(&others, &function, width, marks));
    lines.extend(variables(source, width));
    lines.extend(
        source.missing.iter().map(|missing| {
            Line::of(Style::Warning, "  ! ").and(Style::Plain, terminal(missing).into_owned())
        }),
    );
    lines
}

/// What the marks mean that were used.
#[must_use]
pub fn legend(marks: Marks, width: Option<usize>) -> Vec<Line> {
    let entries = [
        (marks.site, "● begins here (2…9, *: in so many places)"),
        (marks.branch, "? branch, to the line it takes"),
        (marks.back, "↺ loop, back to"),
        (marks.call, "→ call (→* indirect)"),
        (marks.tail, "⇒ call in place of a return"),
        (marks.inlined, "+ inlined"),
        (marks.counted, "# times, since a running session probes it"),
    ];
    let used: Vec<&str> = entries
        .into_iter()
        .filter_map(|(used, text)| used.then_some(text))
        .collect();
    let mut rows: Vec<String> = Vec::new();
    for entry in used {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 3 + entry.chars().count() <= width.unwrap_or(110) => {
                row.push_str("   ");
                row.push_str(entry);
            }
            _ => rows.push(format!("  {entry}")),
        }
    }
    let mut lines: Vec<Line> = rows.into_iter().map(|row| Line::of(Style::Faint, row)).collect();
    if !lines.is_empty() {
        lines.insert(0, Line::default());
    }
    lines
}

fn heading(source: &v1::SourceFunction, function: &v1::Function) -> Vec<Line> {
    let mut place = String::new();
    if !function.file.is_empty() {
        let _ = write!(place, "  {}:{}", terminal(&function.file), function.line);
        if source.last_line > function.line {
            let _ = write!(place, "–{}", source.last_line);
        }
    }
    let module = terminal(&function.module);
    let code = if function.address == 0 {
        match source.instances.len() {
            1 => format!("  {module}, inlined in one place"),
            count => format!("  {module}, inlined in {count} places"),
        }
    } else {
        format!("  {module}+{:#x}, {} bytes", function.address, function.size)
    };
    let mut lines = vec![
        Line::of(Style::Strong, terminal(&function.name).into_owned()).and(Style::Plain, place),
        Line::of(Style::Faint, code),
    ];
    for instance in source.instances.iter().take(LISTED) {
        let own = instance.call_file.is_empty();
        let file = if own { &function.file } else { &instance.call_file };
        let place = format!(
            "  in {}  {}:{}",
            terminal(&instance.function),
            terminal(file),
            instance.call_line
        );
        lines.push(Line::of(Style::Faint, place));
    }
    if source.instances.len() > LISTED {
        let more = source.instances.len() - LISTED;
        lines.push(Line::of(Style::Faint, format!("  in {more} more places")));
    }
    lines
}

/// A line as it is laid out.
struct Row<'a> {
    number: String,
    text: &'a str,
    /// Where the notes begin, if the text is short enough.
    column: usize,
    marked: bool,
}

impl Row<'_> {
    fn line(&self, line: &v1::SourceLine, width: Option<usize>, marks: &mut Marks) -> Line {
        let gutter = gutter(line, marks);
        let pointer = if self.marked { "▶ " } else { "  " };
        let style = if self.marked { Style::Strong } else { Style::Plain };
        let before = pointer.chars().count() + self.number.chars().count() + 1 + gutter.chars().count() + 1;
        let mut notes = notes(line, marks).join(" ");
        let mut text = self.text.to_owned();
        let mut column = self.column;
        if let Some(width) = width {
            let room = width.saturating_sub(before);
            let taken = text.chars().count() + 2 + notes.chars().count();
            if !notes.is_empty() && taken > room {
                notes = cut(
                    &notes,
                    (room / NOTES_SHARE).max(room.saturating_sub(text.chars().count() + 2)),
                );
            }
            let left = room.saturating_sub(if notes.is_empty() {
                0
            } else {
                notes.chars().count() + 2
            });
            text = cut(&text, left);
            column = column.min(left);
        }
        let shown = Line::of(Style::Strong, pointer);
        if text.is_empty() && gutter.trim().is_empty() {
            return shown.and(Style::Faint, self.number.clone());
        }
        let shown = shown
            .and(Style::Faint, format!("{} ", self.number))
            .and(Style::Bar, format!("{gutter} "));
        if notes.is_empty() {
            return shown.and(style, text.trim_end().to_owned());
        }
        shown
            .and(style, format!("{text:<column$}  "))
            .and(Style::SlowBar, notes)
    }
}

/// Four columns: where it begins, branches, calls, what is inlined.
pub(crate) fn gutter(line: &v1::SourceLine, marks: &mut Marks) -> String {
    let site = match line.sites.len() {
        0 => ' ',
        1 => '●',
        count @ 2..=9 => char::from(b'0' + u8::try_from(count).unwrap_or(0)),
        _ => '*',
    };
    marks.site |= !line.sites.is_empty();
    let branch = if line.branches.iter().any(|branch| branch.is_loop) {
        '↺'
    } else if line.branches.is_empty() {
        ' '
    } else {
        '?'
    };
    let call = if line.calls.is_empty() { ' ' } else { '→' };
    let inlined = if line.inlined.is_empty() { ' ' } else { '+' };
    [site, branch, call, inlined].iter().collect()
}

/// What is there, a few words each; what is there several times once.
pub(crate) fn notes(line: &v1::SourceLine, marks: &mut Marks) -> Vec<String> {
    let mut notes: Vec<(String, usize)> = Vec::new();
    let mut add = |note: String| match notes.iter_mut().find(|(known, _)| *known == note) {
        Some((_, times)) => *times += 1,
        None => notes.push((note, 1)),
    };
    for branch in &line.branches {
        let back = branch.is_loop;
        marks.back |= back;
        marks.branch |= !back;
        let mark = if back { '↺' } else { '?' };
        let to = branch.taken.as_ref().filter(|taken| taken.line > 0);
        let to = to.map(|taken| taken.line.to_string()).unwrap_or_default();
        add(format!("{mark}{to}"));
    }
    for call in &line.calls {
        let tail = call.return_address == 0;
        marks.tail |= tail;
        marks.call |= !tail;
        let mark = if tail { '⇒' } else { '→' };
        add(format!("{mark}{}", callee(call)));
    }
    for instance in &line.inlined {
        marks.inlined = true;
        add(format!("+{}", terminal(&short(&instance.function))));
    }
    for counted in &line.counts {
        marks.counted = true;
        let of = match counted.kind() {
            v1::SourceCountKind::Taken => " taken",
            v1::SourceCountKind::Else => " else",
            v1::SourceCountKind::Calls => " calls",
            v1::SourceCountKind::Reached | v1::SourceCountKind::Unspecified => "",
        };
        add(format!("#{}{of}", units::count(counted.count)));
    }
    let times = |(note, times): (String, usize)| match times {
        1 => note,
        times => format!("{note}×{times}"),
    };
    notes.into_iter().map(times).collect()
}

fn callee(call: &v1::SourceCall) -> String {
    match (&*call.callee, call.callee_address) {
        ("", 0) => "*".to_owned(),
        ("", address) => format!("{address:#x}"),
        (name, _) => terminal(&short(name)).into_owned(),
    }
}

/// What the function's code has of other files, and of no line.
fn elsewhere(
    lines: &[&v1::SourceLine],
    function: &v1::Function,
    width: Option<usize>,
    marks: &mut Marks,
) -> Vec<Line> {
    let mut shown = Vec::new();
    let (of_files, of_none): (Vec<&v1::SourceLine>, Vec<&v1::SourceLine>) =
        lines.iter().partition(|line| line.line != 0);
    if !of_files.is_empty() {
        shown.push(Line::of(Style::Faint, "  of other files"));
    }
    // What was asked for is shown, wherever it comes.
    let (first, rest) = of_files.split_at(of_files.len().min(LISTED));
    let marked = rest.iter().filter(|line| line.marked);
    for line in first.iter().chain(marked) {
        let name = line.file.rsplit('/').next().unwrap_or_default();
        let row = Row {
            number: String::new(),
            text: &format!("{}:{}", terminal(name), line.line),
            column: 24,
            marked: line.marked,
        };
        shown.push(row.line(line, width, marks));
    }
    let more = rest.iter().filter(|line| !line.marked).count();
    if more > 0 {
        shown.push(Line::of(
            Style::Faint,
            format!("  {more} more lines of other files"),
        ));
    }
    for line in of_none {
        shown.extend(by_address(line, function, marks));
    }
    shown
}

/// Branches and calls of no line, by address.
fn by_address(line: &v1::SourceLine, function: &v1::Function, marks: &mut Marks) -> Vec<Line> {
    let at = |address: u64| format!("+{:#x}", address.wrapping_sub(function.address));
    let mut rows: Vec<(u64, String)> = Vec::new();
    for branch in &line.branches {
        let back = branch.is_loop;
        marks.back |= back;
        marks.branch |= !back;
        let mark = if back { '↺' } else { '?' };
        let taken = branch.taken.as_ref().map_or(0, |taken| taken.address);
        let mnemonic = terminal(&branch.mnemonic);
        rows.push((branch.address, format!("{mark} {mnemonic} {}", at(taken))));
    }
    for call in &line.calls {
        let tail = call.return_address == 0;
        marks.tail |= tail;
        marks.call |= !tail;
        let mark = if tail { '⇒' } else { '→' };
        rows.push((call.address, format!("{mark} {}", callee(call))));
    }
    rows.sort();
    let heading = (!rows.is_empty()).then(|| Line::of(Style::Faint, "  code of no known line"));
    let rows = rows.into_iter().map(|(address, what)| {
        Line::of(Style::Faint, format!("  {:>8}  ", at(address))).and(Style::SlowBar, what)
    });
    heading.into_iter().chain(rows).collect()
}

/// The lines at which each variable can be read, at some of their places at least.
#[must_use]
pub fn lines_of_variables(source: &v1::SourceFunction) -> Vec<Vec<u32>> {
    let mut lines = vec![Vec::new(); source.variables.len()];
    for line in source
        .lines
        .iter()
        .filter(|line| line.file.is_empty() && line.line != 0)
    {
        for &variable in line.variables.iter().chain(&line.variables_in_part) {
            if let Some(lines) = lines.get_mut(variable as usize) {
                lines.push(line.line);
            }
        }
    }
    lines
}

/// The function's own variables, and how many there are of what is inlined.
fn variables(source: &v1::SourceFunction, width: Option<usize>) -> Vec<Line> {
    let with_sites: Vec<u32> = source
        .lines
        .iter()
        .filter(|line| line.file.is_empty() && line.line != 0 && !line.sites.is_empty())
        .map(|line| line.line)
        .collect();
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut inlined = 0;
    for (variable, lines) in source.variables.iter().zip(lines_of_variables(source)) {
        if !variable.inlined_from.is_empty() {
            inlined += 1;
            continue;
        }
        let lines = if variable.ranges.is_empty() {
            "optimised out".to_owned()
        } else if lines.is_empty() {
            "where no line begins".to_owned()
        } else {
            spans(&lines, &with_sites)
        };
        let type_name = cut(&terminal(&variable.r#type), TYPE_COLUMNS);
        rows.push([terminal(&variable.name).into_owned(), type_name, lines]);
    }
    let mut shown = Vec::new();
    if !rows.is_empty() {
        shown.push(Line::of(
            Style::Faint,
            "  variables, and the lines at which they can be read",
        ));
    }
    let longest = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (names, types) = (longest(0), longest(1));
    for [name, type_name, lines] in &rows {
        let line = Line::of(Style::Plain, format!("    {name:<names$}  "))
            .and(Style::Faint, format!("{type_name:<types$}  "))
            .and(Style::Plain, lines.clone());
        shown.push(width.map_or(line.clone(), |width| line.cut(width)));
    }
    if inlined > 0 {
        shown.push(Line::of(
            Style::Faint,
            format!("    {inlined} more of what is inlined (--json has them)"),
        ));
    }
    shown
}

/// Lines in short: `3–7, 9`. Those that have nothing to begin at do not interrupt.
fn spans(lines: &[u32], all: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    let mut next = None;
    for line in lines {
        match spans.last_mut() {
            Some((_, last)) if next == Some(*line) => *last = *line,
            _ => spans.push((*line, *line)),
        }
        next = all.get(all.partition_point(|other| other <= line)).copied();
    }
    let shown: Vec<String> = spans
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}–{last}")
            }
        })
        .collect();
    shown.join(", ")
}

/// A line's text, harmless, its tabs as spaces.
pub(crate) fn text_of(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut column = 0;
    for c in line.chars() {
        if c == '\t' {
            let spaces = TAB - column % TAB;
            plain.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        } else {
            plain.push(c);
            column += 1;
        }
    }
    terminal(plain.trim_end()).into_owned()
}

#[cfg(test)]
mod tests;
