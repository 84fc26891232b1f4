//! The scope as a path, above each screen: each step with how often it is reached, and how slow calls have to be.

use profiler_proto::v1;

use super::text::Page;
use crate::{
    attached::recorded_length,
    cli::args::RecordedTime,
    live::line::{Line, Style, cut_middle},
    render::{escape::terminal, units},
    tui::{
        data::Data,
        lens::{Input, Lens, Pane, Purpose, Recorded, Target, path},
    },
};

/// A step and what is known of it.
struct Cell {
    step: String,
    /// How many functions it is, where it is several.
    functions: String,
    counts: String,
}

/// Three lines: the target, the path, its counts.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    page.line(&heading(lens, data, page.width()));
    match lens
        .input
        .as_ref()
        .filter(|input| input.purpose == Purpose::Scope)
    {
        Some(input) => {
            for line in typed("scope ", input, page.width(), 2) {
                page.line(&line);
            }
        }
        None => path_lines(page, lens, data),
    }
}

/// What is typed, with its cursor, in exactly so many lines. Of what has no room there is shown what is around the cursor; marks say
/// where it goes on.
pub fn typed(label: &str, input: &Input, width: usize, lines: usize) -> Vec<Line> {
    const CURSOR: char = '▏';
    const MORE: char = '…';
    let label = format!("{label}▸ ");
    let before: Vec<char> = terminal(&input.before_cursor()).chars().collect();
    let cursor = before.len();
    let mut text = before;
    text.push(CURSOR);
    text.extend(terminal(&input.behind_cursor()).chars());
    let columns = width.saturating_sub(label.chars().count()).max(1);
    let room = columns * lines;
    if text.len() > room {
        // A line's half of what is behind the cursor stays in sight.
        let end = (cursor + 1 + columns / 2).clamp(room, text.len());
        let (begin, is_cut) = (end - room, end < text.len());
        text = text.drain(begin..end).collect();
        if begin > 0
            && let Some(first) = text.first_mut().filter(|first| **first != CURSOR)
        {
            *first = MORE;
        }
        if is_cut && let Some(last) = text.last_mut().filter(|last| **last != CURSOR) {
            *last = MORE;
        }
    }
    let rows = (0..lines).map(|row| {
        let rest = text.iter().skip(row * columns).take(columns);
        let margin = if row == 0 {
            label.clone()
        } else {
            " ".repeat(label.chars().count())
        };
        rest.fold(Line::of(Style::Strong, margin), |line, c| match *c {
            CURSOR => line.and(Style::Strong, CURSOR),
            c => line.and(Style::Plain, c),
        })
    });
    rows.collect()
}

fn heading(lens: &Lens, data: &Data, width: usize) -> Line {
    let target = match (&lens.target, data.target.as_str()) {
        (Some(Target::Pid(pid)), "") => format!("pid {pid}"),
        (Some(Target::Pids(pids)), "") => format!("{} processes", pids.len()),
        (Some(Target::Exe(exe)), "") => terminal(exe).into_owned(),
        (Some(Target::Session(name)), _) => format!("session {}  {}", terminal(name), data.target),
        (Some(Target::Profile(path)), _) => format!("profile {}", terminal(path)),
        (Some(Target::Recording(recorded)), _) => recording(recorded, data),
        (None, _) => String::new(),
        (_, label) => label.to_owned(),
    };
    let mut line = Line::of(Style::Strong, "profiler ").and(Style::Plain, target);
    let ended = data.ended.as_ref();
    // What a recording's part shows has come to its end as soon as it is there.
    if let Some(end) = ended.filter(|end| !end.is_of_recording()) {
        line = line.and(Style::Warning, format!("  ended: {}", terminal(&end.reason)));
    } else if data.is_connection_lost {
        line = line.and(Style::Warning, "  no connection: trying again …");
    } else if lens.attaching {
        line = line.and(Style::Warning, "  attaching …");
    } else if lens.is_editing() {
        line = line.and(Style::Warning, "  editing …");
    }
    if let Some(recording) = &data.recording {
        line = line.and(Style::Strong, format!("  ● recording {recording}"));
    }
    if lens.frozen {
        line = line.and(Style::Warning, "  frozen (z resumes)");
    }
    // What is costly or uncertain about the probes; `session list --json` has all of it.
    let warnings = data.session.as_ref().map_or(&[][..], |session| &session.warnings);
    if let Some(warning) = warnings.first() {
        let more = match warnings.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let words = format!("  ! {}{more}", terminal(warning));
        let shorter = match warnings.len() {
            1 => "  ! a warning: L shows it".to_owned(),
            count => format!("  ! {count} warnings: L shows them"),
        };
        let room = width.saturating_sub(line.width());
        let mut longest_first = [words, shorter].into_iter();
        let fits = longest_first.find(|words| words.chars().count() <= room);
        line = line.and(Style::Faint, fits.unwrap_or_else(|| "  ! L".to_owned()));
    }
    line
}

/// The recording, and how long the part of it is.
fn recording(recorded: &Recorded, data: &Data) -> String {
    let length = data.session.as_deref().and_then(recorded_length);
    let length = length.map(|length| format!("  {}", units::duration(length.as_nanos() as f64)));
    let time = match recorded.time {
        all if all == RecordedTime::default() => String::new(),
        part => format!("  {part}"),
    };
    let length = length.unwrap_or_default();
    format!("recording {}{time}{length}", terminal(&recorded.path))
}

fn path_lines(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let cells = cells(lens, data);
    // What is too long is left out at the beginning: the last step is what is looked at.
    let mut room = page.width();
    let mut shown: Vec<(String, String)> = Vec::new();
    for cell in cells.iter().rev() {
        // The end of a step is what it asks for.
        let beside = 4 + cell.functions.chars().count();
        let step = cut_middle(&cell.step, page.width().saturating_sub(beside)) + &cell.functions;
        let columns = step.chars().count().max(cell.counts.chars().count());
        if room < columns + 3 {
            shown.push(("…".to_owned(), String::new()));
            break;
        }
        room -= columns + 3;
        shown.push((format!("{step:<columns$}"), format!("{:<columns$}", cell.counts)));
    }
    let (mut steps, mut counts) = (Line::default(), Line::default());
    for (step, count) in shown.into_iter().rev() {
        let gap = " ".repeat(step.chars().count().saturating_sub(count.chars().count()));
        steps = steps.and(Style::Faint, " ▸ ").and(Style::Strong, step);
        counts = counts.and(Style::Faint, format!("   {count}{gap}"));
    }
    page.line(&steps);
    page.line(&counts);
}

fn cells(lens: &Lens, data: &Data) -> Vec<Cell> {
    if lens.scope.is_empty() {
        let samples = data.flame.summary.samples;
        return vec![Cell {
            step: "everything".to_owned(),
            functions: String::new(),
            counts: match (&lens.target, lens.has_stacks_alone()) {
                // Nothing says how many there are.
                (Some(_), true) if samples == 0 => String::new(),
                (Some(_), true) => format!("{} samples", units::count(samples)),
                (Some(_), false) => format!("{} samples on the CPU", units::count(samples)),
                (None, _) => String::new(),
            },
        }];
    }
    let steps = path::steps(&lens.scope);
    if steps.is_empty() {
        return vec![Cell {
            step: terminal(&lens.scope).into_owned(),
            functions: String::new(),
            counts: String::new(),
        }];
    }
    let divides = |step: &str| path::threshold(step).is_some();
    let divided = steps.iter().rposition(|step| divides(step));
    let last = steps.len() - 1;
    let cell = |(at, step): (usize, &String)| {
        let mut words = Vec::new();
        let calls = calls(lens, data, step, at == last);
        words.extend(calls);
        if Some(at) == divided {
            words.extend(threshold(&data.flame.summary));
        }
        Cell {
            step: terminal(step).into_owned(),
            functions: functions(lens, data, at == last),
            counts: words.join(", "),
        }
    };
    steps.iter().enumerate().map(cell).collect()
}

/// Whether the latency view is that of the scope on the screen, and has its functions.
fn has_functions(lens: &Lens, data: &Data) -> bool {
    data.latency.started && !data.latency.functions.is_empty() && data.latency.scope == lens.scope
}

/// How many functions the step is, as a pattern may be many; empty of one, and where that is not known.
fn functions(lens: &Lens, data: &Data, is_last: bool) -> String {
    let count = data.latency.functions.len();
    if is_last && count > 1 && has_functions(lens, data) {
        format!("  ({} functions)", units::count(count as u64))
    } else {
        String::new()
    }
}

/// How often a step is reached.
fn calls(lens: &Lens, data: &Data, step: &str, is_last: bool) -> Option<String> {
    let functions = || data.latency.functions.values();
    if is_last && has_functions(lens, data) {
        let calls: f64 = functions().map(|function| function.since_start.count).sum();
        // The rate of what was taken off falls to nothing, and says nothing of the calls.
        let mut on = functions()
            .filter(|function| function.taken_off.is_none())
            .peekable();
        if on.peek().is_none() {
            return Some(format!("{} calls, until taken off", units::number(calls)));
        }
        // The window of a recording is of its end alone.
        let rate: f64 = if lens.is_of_recording() {
            on.map(|function| function.since_start.rate_hz).sum()
        } else {
            on.map(|function| function.window.rate_hz).sum()
        };
        return Some(format!(
            "{} calls, {}/s",
            units::number(calls),
            units::number(rate)
        ));
    }
    if is_last && lens.pane == Pane::Hits && data.hits.state.started {
        let state = &data.hits.state;
        return Some(format!(
            "{} hits",
            units::count(state.reached.saturating_sub(state.rejected))
        ));
    }
    let counted = data.counts.get(step)?;
    let rate = counted.rate_hz.map(|rate| format!(", {}/s", units::number(rate)));
    Some(format!(
        "{}×{}",
        units::count(counted.count),
        rate.unwrap_or_default()
    ))
}

/// How slow calls have to be, and how many are.
fn threshold(summary: &v1::FlameSummary) -> Option<String> {
    if summary.warming {
        return Some(format!(
            "too few: it takes {} calls",
            units::count(summary.calls_needed)
        ));
    }
    (summary.threshold_ns > 0).then(|| {
        let limit = units::duration(summary.threshold_ns as f64);
        let [inside, all] = [summary.calls_inside, summary.calls].map(units::number);
        format!("{limit}: {inside} of {all} inside")
    })
}
