//! What can be looked at: the sessions that the daemon has, and below them processes.

use profiler_proto::v1;
use ratatui::layout::Rect;

use super::{spots::Sign, text::Page};
use crate::{
    live::line,
    render::{escape::terminal, source_names::cut},
    tui::{
        data::{Data, ProcessRow},
        lens::{Item, Lens},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    sessions(page, lens, data);
    let rows: Vec<&ProcessRow> = data.processes_shown(lens).collect();
    let columns = Columns::in_width(page.width());
    selected_command(&mut page.foot(1), lens, &rows);
    page.heading(&columns.heading(), lens);
    if rows.is_empty() {
        let words = if data.processes.is_empty() {
            "looking …"
        } else {
            "no process matches"
        };
        page.line(&line::Line::of(line::Style::Faint, format!("  {words}")));
        return;
    }
    let selected = rows
        .iter()
        .position(|row| lens.selection() == Some(&Item::Process(row.pid)));
    let rows = rows.into_iter().map(|row| ListRow {
        item: Item::Process(row.pid),
        text: columns.row(row),
    });
    list(page, lens, rows.collect(), selected);
}

/// The whole command of the selected process: in its row, it may be without the program's folders, and cut.
fn selected_command(page: &mut Page<'_>, lens: &Lens, rows: &[&ProcessRow]) {
    let selected = rows
        .iter()
        .find(|row| lens.selection() == Some(&Item::Process(row.pid)));
    if let Some(row) = selected {
        page.line(&line::Line::of(line::Style::Faint, terminal(&row.command)));
    }
}

/// The daemon's sessions alone.
pub fn draw_sessions(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let own = data.session.as_ref().map(|session| session.name.as_str());
    let own = own.filter(|name| !name.is_empty()).unwrap_or("this one");
    let words = format!("Enter: look at the selected one instead of {}", terminal(own));
    let mut foot = page.foot(2);
    foot.line(&line::Line::of(line::Style::Faint, WATCHERS));
    foot.line(&line::Line::of(line::Style::Faint, words));
    let rows: Vec<&v1::Session> = data.sessions_shown(lens).collect();
    if rows.is_empty() {
        let words = if data.sessions.is_empty() {
            "looking …"
        } else {
            "no session matches"
        };
        page.line(&line::Line::of(line::Style::Faint, format!("  {words}")));
        return;
    }
    page.heading(SESSIONS_HEADING, lens);
    let selected = selected_session(lens, &rows);
    list(page, lens, rows.into_iter().map(session).collect(), selected);
}

fn selected_session(lens: &Lens, rows: &[&v1::Session]) -> Option<usize> {
    rows.iter()
        .position(|row| matches!(lens.selection(), Some(Item::Session(name)) if *name == row.name))
}

/// What is counted as watchers.
const WATCHERS: &str = "WATCHERS are the views that are open of a session: a screen has several at once";

/// Above sessions.
const SESSIONS_HEADING: &str = "  SESSION                    PIDS WATCHERS  SCOPE";

/// Sessions, where there are any; processes keep two thirds of the room.
fn sessions(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let rows: Vec<&v1::Session> = data.sessions_shown(lens).collect();
    if rows.is_empty() {
        return;
    }
    page.line(&line::Line::of(line::Style::Faint, SESSIONS_HEADING));
    let selected = selected_session(lens, &rows);
    let rows: Vec<ListRow> = rows.into_iter().map(session).collect();
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    let mut part = page.part(Rect {
        height: height.min((page.area.height / 3).max(1)).min(page.area.height),
        ..page.area
    });
    let taken = part.area.height;
    list(&mut part, lens, rows, selected);
    page.skip(taken);
}

/// What can be looked at, and its line.
struct ListRow {
    item: Item,
    text: String,
}

fn list(page: &mut Page<'_>, lens: &Lens, rows: Vec<ListRow>, selected: Option<usize>) {
    let room = page.rows();
    let begin = page.first(lens, selected.unwrap_or(0), rows.len());
    for (at, ListRow { item, text }) in rows.into_iter().enumerate().skip(begin).take(room) {
        page.sign(Sign::item(item));
        page.row(&line::Line::of(line::Style::Plain, text), Some(at) == selected);
    }
}

fn session(session: &v1::Session) -> ListRow {
    let pids: Vec<String> = session.pids.iter().map(u32::to_string).collect();
    let scope = if session.scope.is_empty() {
        "everything".into()
    } else {
        terminal(&session.scope)
    };
    let text = format!(
        "  {:<16} {:>14} {:>8}  {scope}",
        cut(&terminal(&session.name), 16),
        cut(&pids.join(","), 14),
        session.watchers,
    );
    ListRow {
        item: Item::Session(session.name.clone()),
        text,
    }
}

/// Fewest characters that commands keep.
const COMMAND: usize = 24;
/// With so many, commands have the folders of their programs where all of it fits.
const WHOLE_COMMAND: usize = 60;
/// Characters of a user's name.
const USER: usize = 8;

/// What is known of a process beside its number, user, threads and CPUs.
struct Column {
    heading: &'static str,
    width: usize,
    of: fn(&ProcessRow) -> &str,
    /// What stands for nothing.
    otherwise: &'static str,
}

/// In their order on the screen.
const KNOWN: [Column; 4] = [
    Column {
        heading: "SYMBOLS",
        width: 8,
        of: |row| &row.symbols,
        otherwise: "?",
    },
    Column {
        heading: "DEBUG",
        width: 8,
        of: |row| &row.debug_info,
        otherwise: "?",
    },
    Column {
        heading: "RUNTIME",
        width: 7,
        of: |row| &row.runtime,
        otherwise: "?",
    },
    Column {
        heading: "IN",
        width: 20,
        of: |row| &row.place,
        otherwise: "-",
    },
];

/// The columns that there is room for: those behind give way first.
struct Columns {
    known: &'static [Column],
    /// Characters that are left for commands.
    command: usize,
}

impl Columns {
    fn in_width(width: usize) -> Self {
        let rest = numbers("", "", "", "").chars().count() + COMMAND;
        let room = width.saturating_sub(rest);
        let taken = |count: usize| -> usize { KNOWN[..count].iter().map(|column| column.width + 1).sum() };
        let count = (0..=KNOWN.len()).rev().find(|count| taken(*count) <= room);
        let count = count.unwrap_or(0);
        Self {
            known: &KNOWN[..count],
            command: (COMMAND + room).saturating_sub(taken(count)),
        }
    }

    fn heading(&self) -> String {
        let before = numbers("PID", "USER", "THR", "CPU");
        self.line(before, |column| column.heading, "COMMAND")
    }

    fn row(&self, row: &ProcessRow) -> String {
        let cpus = row
            .cpus
            .map_or_else(|| "?".to_owned(), |cpus| format!("{:.0}%", cpus * 100.0));
        let before = numbers(
            &row.pid.to_string(),
            &cut(&terminal(&row.user), USER),
            &row.threads.to_string(),
            &cpus,
        );
        let known = |column: &Column| match (column.of)(row) {
            "" => column.otherwise,
            known => known,
        };
        let whole = terminal(&row.command);
        let fits = self.command >= WHOLE_COMMAND && whole.chars().count() <= self.command;
        let command = if fits {
            whole
        } else {
            terminal(&row.command_by_name)
        };
        self.line(before, known, &command)
    }

    fn line<'a>(&self, mut line: String, of: impl Fn(&Column) -> &'a str, command: &str) -> String {
        for column in self.known {
            let Column { width, .. } = *column;
            let text = cut(&terminal(of(column)), width);
            line += &format!("{text:<width$} ");
        }
        line + command
    }
}

/// What stands before what is known.
fn numbers(pid: &str, user: &str, threads: &str, cpus: &str) -> String {
    format!("{pid:>8} {user:<USER$} {threads:>4} {cpus:>5}  ")
}
