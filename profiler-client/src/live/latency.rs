//! `latency` in a terminal.

use std::time::Duration;

use profiler_proto::v1;

use super::{
    bars,
    line::{Line, Style, wrapped},
    screen::{Screen, is_coloured},
};
use crate::{
    cli::args::{BarsOver, Color},
    failure::Failure,
    render::{by_value, escape::terminal, source_names, text, units},
    state::latency::{FunctionState, LatencyState},
};

/// Bars of a histogram, at most.
const MAX_BARS: usize = 24;

/// The live part of the screen.
#[derive(Debug)]
pub struct Latency {
    screen: Screen,
    session: v1::Session,
    target: String,
    bars: BarsOver,
}

impl Latency {
    /// Nothing drawn yet.
    #[must_use]
    pub fn new(session: &v1::Session, target: String, bars: BarsOver, color: Color) -> Self {
        let coloured = is_coloured(color, true);
        // The decision is made here; crossterm would look at NO_COLOR again.
        crossterm::style::force_color_output(coloured);
        Self {
            screen: Screen::new(coloured),
            session: session.clone(),
            target,
            bars,
        }
    }

    /// Draws the view over what was drawn before.
    ///
    /// # Errors
    ///
    /// Where the terminal cannot be written to.
    pub fn draw(&mut self, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
        let (columns, rows) = Screen::size();
        let lines = self.lines(state, elapsed, columns, rows);
        self.screen.draw(lines)
    }

    fn lines(&self, state: &LatencyState, elapsed: Duration, columns: usize, rows: usize) -> Vec<Line> {
        let seconds = elapsed.as_secs();
        let mut lines = vec![Line::of(Style::Strong, terminal(&state.scope).into_owned()).and(
            Style::Faint,
            format!("  {}  {}:{:02}", self.target, seconds / 60, seconds % 60),
        )];
        lines.extend(
            View {
                session: &self.session,
                bars: self.bars,
                threshold_ns: None,
            }
            .lines(state, columns, rows),
        );
        if let Some(cost) = &state.cost {
            lines.push(Line::of(Style::Faint, format!("  {}", text::cost(cost))));
        }
        lines
    }
}

/// What is shown of the view besides its heading and the daemon's cost.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The session.
    pub session: &'a v1::Session,
    /// Histogram that the bars show.
    pub bars: BarsOver,
    /// Duration from which on calls are slow, where there is one and it is to be marked, in nanoseconds.
    pub threshold_ns: Option<u64>,
}

impl View<'_> {
    /// Its lines: of one function the bars, of several a table.
    #[must_use]
    pub fn lines(self, state: &LatencyState, columns: usize, rows: usize) -> Vec<Line> {
        let mut functions = state.functions.values();
        match (functions.next(), functions.next()) {
            (Some(function), None) => self.one(state, function, columns, rows),
            (Some(_), Some(_)) => several(state, columns, rows),
            (None, _) => vec![Line::of(Style::Faint, "  no function yet")],
        }
    }

    /// The function, and how its calls are seen.
    #[must_use]
    pub fn title(self, function: &FunctionState) -> Line {
        let title = Line::of(Style::Plain, format!("  {}", text::title(&function.function)));
        match self.site(&function.function) {
            Some(site) => title.and(Style::Faint, format!("  {}", method(site))),
            None => title,
        }
    }

    /// The same in as many lines as it needs.
    fn title_lines(self, function: &FunctionState, columns: usize) -> Vec<Line> {
        let title = self.title(function);
        if title.width() <= columns {
            return vec![title];
        }
        let name = source_names::in_columns(&text::title(&function.function), columns.saturating_sub(2));
        let mut lines = vec![Line::of(Style::Plain, format!("  {name}"))];
        let how = self.site(&function.function).map(method);
        lines.extend(how.map(|how| Line::of(Style::Faint, format!("  {how}"))));
        lines
    }

    /// Numbers of a function's calls, losses, and the slowest of them.
    #[must_use]
    pub fn numbers(state: &LatencyState, function: &FunctionState, columns: usize) -> Vec<Line> {
        let mut below = Vec::new();
        for (at, line) in text::summaries(function, columns).into_iter().enumerate() {
            below.push(Line::of(if at == 0 { Style::Faint } else { Style::Plain }, line));
        }
        let lost = state.lost_of(function);
        let style = if lost.values().any(|&n| n > 0) {
            Style::Warning
        } else {
            Style::Faint
        };
        below.extend(wrapped(style, &text::state_line(function, &lost), columns));
        let taken_off = text::taken_off(function).into_iter();
        below.extend(taken_off.map(|line| Line::of(Style::Warning, line)));
        below.extend(text::partial(function).map(|line| Line::of(Style::Warning, line)));
        below.extend(
            text::slowest(function, 5)
                .into_iter()
                .map(|line| Line::of(Style::Plain, line)),
        );
        below
    }

    fn one(self, state: &LatencyState, function: &FunctionState, columns: usize, rows: usize) -> Vec<Line> {
        let title = self.title_lines(function, columns);
        let mut below = Self::numbers(state, function, columns);

        // The scope, what calls are shown, the daemon's cost and two empty lines besides the bars.
        let room = rows.saturating_sub(below.len() + title.len() + 5);
        if let Some(by) = &function.by {
            // At most half of the room, and what the bars cannot fill.
            let most = (room / 2).max(room.saturating_sub(MAX_BARS));
            let mut values = by_value::lines(by, columns, most.saturating_sub(1));
            values.push(Line::default());
            below.splice(0..0, values);
        }
        let room = rows
            .saturating_sub(below.len() + title.len() + 5)
            .clamp(3, MAX_BARS);
        let (counts, summary, of) = match self.bars {
            BarsOver::Window => (&function.window_counts, &function.window, "in the window"),
            BarsOver::Start => (
                &function.since_start_counts,
                &function.since_start,
                "since the start",
            ),
        };
        let mut lines = title;
        lines.push(Line::of(Style::Faint, format!("  calls {of}")));
        let histogram = bars::histogram(counts, summary, self.threshold_ns, columns, room);
        if histogram.is_empty() {
            lines.push(Line::of(Style::Faint, "  no call has ended yet"));
        }
        lines.extend(histogram);
        lines.push(Line::default());
        lines.extend(below);
        lines
    }

    fn site(&self, function: &v1::Function) -> Option<&v1::Site> {
        self.session.sites.iter().find(|site| {
            site.function
                .as_ref()
                .is_some_and(|other| (other.address, &other.module) == (function.address, &function.module))
        })
    }
}

/// How a site's span begins and ends, in words.
fn method(site: &v1::Site) -> String {
    let mut words = vec![match site.exit_method() {
        v1::ExitMethod::Return => "exit by return probe".to_owned(),
        v1::ExitMethod::Ret if site.exits == 1 => "exit by 1 ret probe".to_owned(),
        v1::ExitMethod::Ret => format!("exit by {} ret probes", site.exits),
        v1::ExitMethod::Never => "never returns: calls have no end".to_owned(),
        v1::ExitMethod::SystemCall => "exit by the kernel's tracepoint".to_owned(),
        v1::ExitMethod::KernelFunction => "exit by a probe of the kernel".to_owned(),
        v1::ExitMethod::Auto | v1::ExitMethod::Unspecified => "exit method not known".to_owned(),
    }];
    if site.exit_single_stepped {
        words.push("single-stepped".to_owned());
    }
    if site.entry_single_stepped {
        words.push(format!(
            "entry single-stepped ({})",
            terminal(&site.entry_instruction)
        ));
    }
    words.join(", ")
}

/// Lines that a function's calls by value need: its name, a heading, a value, and what is not shown.
const LEAST_LINES: usize = 5;

/// Columns that the names of several functions are given at least, where some are that long.
const NAMES: usize = 28;

/// What stands above names.
const NAMES_HEADING: &str = "in the window";

/// Columns of the histogram in a row, at least and at most.
const SPARK: (usize, usize) = (8, 16);

/// Columns of a table that give way to names, the first first.
const GIVING_WAY: [&str; 3] = ["mean", "open", "per s"];

/// A table of functions, those that take the most time first; those that were not called are a line.
fn several(state: &LatencyState, columns: usize, rows: usize) -> Vec<Line> {
    let (mut called, not_called): (Vec<_>, Vec<_>) = state
        .functions
        .values()
        .partition(|function| text::was_called(function));
    let time = |function: &FunctionState| function.window.rate_hz * function.window.mean_ns;
    called.sort_by(|a, b| time(b).total_cmp(&time(a)));
    let foot = foot(state, &not_called, columns);
    // Besides the rows: the title, the heading, what there is more, an empty line, and the daemon's cost.
    let room = rows.saturating_sub(foot.len() + 5).max(1);
    let shown = &called[..called.len().min(room)];
    let names = text::distinct(shown.iter().map(|function| &function.function), text::name);
    let mut lines = if shown.is_empty() {
        vec![Line::of(Style::Faint, "  no call has ended yet")]
    } else {
        table(shown, names.clone(), columns)
    };
    if called.len() > shown.len() {
        lines.push(Line::of(
            Style::Faint,
            format!("  … and {} more", called.len() - shown.len()),
        ));
    }
    lines.push(Line::default());
    lines.extend(foot);
    for (function, name) in shown.iter().zip(names) {
        let Some(by) = &function.by else { continue };
        // Of the screen, but for the title, the daemon's cost and the cursor's line.
        let room = rows.saturating_sub(lines.len() + 3);
        if room < LEAST_LINES || by.values.is_empty() {
            break;
        }
        lines.push(Line::of(Style::Strong, format!("  {name}")));
        lines.extend(by_value::lines(by, columns, room - 1));
    }
    lines
}

/// What stands below a table of functions: those that were not called, and what was lost of all of them.
fn foot(state: &LatencyState, not_called: &[&FunctionState], columns: usize) -> Vec<Line> {
    let functions = || state.functions.values();
    let abandoned = functions().map(|function| function.abandoned).sum::<u64>();
    let mut lost = state.lost.clone();
    for function in functions() {
        for (reason, &n) in &function.lost {
            *lost.entry(reason.clone()).or_default() += n;
        }
    }
    let style = if lost.values().any(|&n| n > 0) {
        Style::Warning
    } else {
        Style::Faint
    };
    let not_called = text::not_called_line(not_called).map(|line| format!("  {line}"));
    let mut lines: Vec<Line> = not_called
        .into_iter()
        .flat_map(|line| wrapped(Style::Faint, &line, columns))
        .collect();
    let words = format!("  abandoned {}  {}", units::count(abandoned), text::losses(&lost));
    lines.extend(wrapped(style, &words, columns));
    lines
}

/// A row for each function below a heading: as many numbers as leave room for the names.
fn table(functions: &[&FunctionState], names: Vec<String>, columns: usize) -> Vec<Line> {
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let wanted = longest.clamp(NAMES_HEADING.len(), NAMES);
    let table = numbers(functions, columns.saturating_sub(wanted + 2));
    let widest = table.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let room = columns.saturating_sub(widest + 2);
    let (least, most) = SPARK;
    let spark = Some(room.saturating_sub(longest.max(wanted) + 2).min(most)).filter(|spark| *spark >= least);
    let names = text::short(brief(names, room), room.max(1));
    let heading = format!("{:<widest$}  {NAMES_HEADING}", table[0]);
    let mut lines = vec![Line::of(Style::Faint, heading)];
    for ((function, numbers), name) in functions.iter().zip(&table[1..]).zip(names) {
        let mut line = Line::of(Style::Plain, format!("{numbers:<widest$}  "));
        if let Some(spark) = spark {
            let bars = bars::spark(&function.window_counts, spark);
            line = line.and(Style::Bar, format!("{bars:<spark$}  "));
        }
        lines.push(line.and(Style::Strong, name));
    }
    lines
}

/// Names that do not fit into so many columns, briefly; but for those that would look alike then.
fn brief(names: Vec<String>, columns: usize) -> Vec<String> {
    let fits = |name: &String| name.chars().count() <= columns;
    let brief: Vec<String> = names.iter().map(|name| source_names::brief(name)).collect();
    let is_only = |name: &String| brief.iter().filter(|other| *other == name).count() == 1;
    let chosen = names.into_iter().zip(&brief).map(|(name, brief)| {
        if fits(&name) || !is_only(brief) {
            name
        } else {
            brief.clone()
        }
    });
    chosen.collect()
}

/// The numbers of functions below their heading, in so many columns where they can be had in them: with less space between
/// them, and then without those that matter least.
fn numbers(functions: &[&FunctionState], columns: usize) -> Vec<String> {
    let fits = |lines: &Vec<String>| lines.iter().all(|line| line.chars().count() <= columns);
    let wide = text::align(&number_rows(functions, units::duration), 0);
    if fits(&wide) {
        return wide;
    }
    let mut rows = number_rows(functions, units::narrow_duration);
    for column in GIVING_WAY {
        let lines = text::narrow(&rows, 0);
        if fits(&lines) {
            return lines;
        }
        if let Some(at) = rows[0].iter().position(|heading| heading == column) {
            for row in &mut rows {
                row.remove(at);
            }
        }
    }
    text::narrow(&rows, 0)
}

/// The same by row and column, durations in some form.
fn number_rows(functions: &[&FunctionState], duration: impl Fn(f64) -> String) -> Vec<Vec<String>> {
    let titles = ["calls", "per s", "mean", "p50", "p95", "p99", "max", "open"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(functions.iter().map(|function| {
        let window = &function.window;
        let ns = |ns: f64| {
            if window.count > 0.0 {
                duration(ns)
            } else {
                "-".to_owned()
            }
        };
        vec![
            units::number(function.since_start.count),
            units::number(window.rate_hz),
            ns(window.mean_ns),
            ns(window.p50_ns as f64),
            ns(window.p95_ns as f64),
            ns(window.p99_ns as f64),
            ns(window.max_ns as f64),
            units::count(function.open),
        ]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        render::text::tests::sample,
        state::by_value::{ByValue, tests::sample as by_value_sample},
    };

    fn screen() -> Latency {
        let session = v1::Session {
            sites: vec![v1::Site {
                function: Some(v1::Function::default()),
                exit_method: v1::ExitMethod::Ret.into(),
                exits: 3,
                ..Default::default()
            }],
            ..Default::default()
        };
        Latency::new(&session, "pid 7 (server)".into(), BarsOver::Window, Color::Never)
    }

    fn drawn(state: &LatencyState, columns: usize, rows: usize) -> String {
        let lines = screen().lines(state, Duration::from_secs(72), columns, rows);
        assert!(lines.len() <= rows, "{} lines of {rows}", lines.len());
        lines.iter().map(|line| line.text() + "\n").collect()
    }

    #[test]
    fn one_function_has_bars_and_a_table() {
        let text = drawn(&sample(), 120, 40);
        for words in [
            "handle[>= p95]  pid 7 (server)  1:12",
            "exit by 3 ret probes",
            "█",
            "p99.9",
            "start",
            "ewma",
            "open 3",
            "slowest  31.0 ms",
            "daemon 0.4% of a core, 21.0 MiB",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }

    #[test]
    fn it_fits_a_small_terminal() {
        drawn(&sample(), 60, 20);
        drawn(&sample(), 200, 100);
    }

    /// The sample, its calls divided.
    fn divided() -> LatencyState {
        let mut state = sample();
        let by = ByValue::read(by_value_sample(1)).unwrap();
        state.functions.get_mut(&1).unwrap().by = Some(by);
        state
    }

    #[test]
    fn values_are_below_the_bars_and_fit() {
        let text = drawn(&divided(), 120, 40);
        let (bars, values, table) = (text.find('█'), text.find("by req->kind"), text.find("p99.9"));
        assert!(bars < values && values < table, "{text}");
        assert!(text.contains("RED") && text.contains("(other)"), "{text}");
        let mut many = divided();
        let by = many.functions.get_mut(&1).unwrap().by.as_mut().unwrap();
        by.values = vec![by.values[0].clone(); 64];
        for rows in 19..60 {
            assert!(drawn(&many, 100, rows).contains("more"));
        }
        many.functions.insert(2, many.functions[&1].clone());
        for rows in 8..60 {
            drawn(&many, 100, rows);
        }
        assert_eq!(drawn(&many, 100, 150).matches("by req->kind").count(), 2);
    }

    #[test]
    fn several_functions_are_a_table() {
        let mut state = sample();
        let mut other = state.functions[&1].clone();
        other.function.name = "parse".into();
        other.window.rate_hz = 9999.0;
        state.functions.insert(2, other);
        let text = drawn(&state, 140, 20);
        let (parse, handle) = (text.find("parse").unwrap(), text.rfind("handle").unwrap());
        assert!(parse < handle, "the one with the most time first\n{text}");
        assert!(text.contains("per s"));
        let mut many = state.clone();
        for id in 3..100 {
            many.functions.insert(id, state.functions[&1].clone());
        }
        assert!(drawn(&many, 140, 20).contains("… and 85 more"));
    }

    /// Functions of one glob, each called.
    fn of_a_glob(names: &[&str]) -> LatencyState {
        let mut state = sample();
        let one = state.functions[&1].clone();
        state.functions.clear();
        for (id, name) in (1..).zip(names) {
            let mut function = one.clone();
            function.function.name = (*name).to_owned();
            state.functions.insert(id, function);
        }
        state
    }

    #[test]
    fn names_of_functions_are_told_apart_at_80_columns() {
        let names = [
            "ngx_http_upstream_init_request",
            "ngx_http_upstream_init_request_body_filter",
            "ngx_http_upstream_send_request_body_filter",
            "ngx_http_core_run_phases",
        ];
        let text = drawn(&of_a_glob(&names), 80, 24);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for name in ["ngx_http_upstream_init_request", "ngx_http_core_run_phases"] {
            assert!(text.contains(&format!("{name}\n")), "{name}\n{text}");
        }
        let shown: HashSet<&str> = text
            .lines()
            .filter_map(|line| line.split("  ngx_").nth(1))
            .collect();
        assert_eq!(shown.len(), names.len(), "{text}");
        for column in ["calls", "per s", "p50", "p95", "p99", "max"] {
            assert!(text.contains(column), "{column}\n{text}");
        }
        for columns in 20..200 {
            let text = drawn(&of_a_glob(&names), columns, 24);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(columns < 60 || widest <= Some(columns), "{columns}\n{text}");
        }
        assert!(drawn(&of_a_glob(&names), 160, 24).contains('█'));
    }

    #[test]
    fn names_of_cpp_are_told_by_their_ends() {
        let names = [
            "server::net::Connection::write_all(std::map<std::string, int>&, int)",
            "server::net::Connection::read_all(std::map<std::string, int>&, int)",
        ];
        let text = drawn(&of_a_glob(&names), 80, 24);
        assert!(text.contains("  Connection::write_all\n"), "{text}");
        assert!(text.contains("  Connection::read_all\n"), "{text}");
    }

    #[test]
    fn functions_that_were_not_called_are_a_line() {
        let names: Vec<String> = (0..163).map(|n| format!("ngx_http_function_{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut state = of_a_glob(&names);
        for function in state.functions.values_mut() {
            function.since_start = v1::Summary::default();
            function.window = v1::Summary::default();
            function.open = 0;
            function.abandoned = 0;
            function.lost.clear();
        }
        let text = drawn(&state, 80, 24);
        assert!(
            text.contains("  not called: 163 (ngx_http_function_0, "),
            "{text}"
        );
        assert!(!text.contains("more") && !text.contains("per s"), "{text}");
        assert!(text.lines().count() < 9, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        state.functions.get_mut(&7).unwrap().open = 1;
        let text = drawn(&state, 80, 24);
        assert!(
            text.contains("not called: 162 (") && text.contains("  ngx_http_function_6\n"),
            "{text}"
        );
    }

    #[test]
    fn a_long_name_has_a_line_of_its_own() {
        let mut state = of_a_glob(&["server::net::Connection::write_all(std::map<std::string, int>&, int)"]);
        for function in state.functions.values_mut() {
            function.function.file = "/usr/src/server/net/connection.cc".to_owned();
        }
        let text = drawn(&state, 80, 24);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            text.contains(
                "  Connection::write_all  /usr/src/server/net/connection.cc:12\n  exit by 3 ret probes\n"
            ),
            "{text}"
        );
    }
}
