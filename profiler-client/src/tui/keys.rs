//! The one table of keys. What a key does, the help, the footer and the page in `docs/` are made of it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::lens::{Action, Lens, Move, Pane, Part, Typing, path::Towards};

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    control: bool,
}

/// Where keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Every screen.
    Every,
    /// The list of processes.
    Processes,
    /// All others.
    Panes,
    /// These.
    These(&'static [Pane]),
}

impl On {
    /// Whether they are for a screen; `None` is the list of processes.
    #[must_use]
    pub fn is_for(self, screen: Option<Pane>) -> bool {
        match (self, screen) {
            (Self::Every, _) | (Self::Processes, None) | (Self::Panes, Some(_)) => true,
            (Self::These(panes), Some(pane)) => panes.contains(&pane),
            (Self::Processes, Some(_)) | (Self::Panes | Self::These(_), None) => false,
        }
    }

    /// Where, in a word or two.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Every => "everywhere".to_owned(),
            Self::Processes => "processes".to_owned(),
            Self::Panes => "every pane".to_owned(),
            Self::These(panes) => panes
                .iter()
                .map(|pane| pane.name())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

/// Keys that do the same.
#[derive(Debug)]
pub struct Binding {
    /// Any of them.
    pub keys: &'static [Key],
    /// Where.
    pub on: On,
    /// What they do.
    pub action: Action,
    /// What they do, in words.
    pub words: &'static str,
    /// The same in a word or two, for the footer; empty where it is not in there.
    pub short: &'static str,
}

impl Binding {
    /// Whether they do something on the screen.
    #[must_use]
    pub fn is_for(&self, lens: &Lens) -> bool {
        let is_there = match self.action {
            Action::Show(pane) => lens.has(pane),
            Action::Values => lens.has(Pane::Hits),
            // Which values a recording has was said when it was made.
            Action::Processes | Action::Record | Action::NoBudget | Action::EditPrint => {
                !lens.is_of_recording()
            }
            Action::Part(_) | Action::EditPart => lens.is_of_recording(),
            // A recording comes at once.
            Action::Picture => !lens.is_of_recording(),
            // Another tool has put them together already.
            Action::By => !lens.has_stacks_alone(),
            _ => true,
        };
        let asks_for_calls = match self.action {
            Action::Inside
            | Action::Nudge(_)
            | Action::Part(_)
            | Action::EditPart
            | Action::Undo
            | Action::Redo
            | Action::EditScope => true,
            Action::Enter => self.on.is_for(Some(Pane::Top)),
            _ => false,
        };
        is_there && !(lens.has_stacks_alone() && asks_for_calls) && self.on.is_for(lens.screen())
    }
}

/// Whether it is Ctrl-C.
#[must_use]
pub fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

const fn key(c: char) -> Key {
    of(KeyCode::Char(c))
}

const fn of(code: KeyCode) -> Key {
    Key { code, control: false }
}

const fn control(c: char) -> Key {
    Key {
        code: KeyCode::Char(c),
        control: true,
    }
}

const fn bind(
    keys: &'static [Key],
    on: On,
    action: Action,
    short: &'static str,
    words: &'static str,
) -> Binding {
    Binding {
        keys,
        on,
        action,
        words,
        short,
    }
}

const UP: &[Key] = &[of(KeyCode::Up), key('k')];
const DOWN: &[Key] = &[of(KeyCode::Down), key('j')];
const LEFT: &[Key] = &[of(KeyCode::Left), key('h')];
const RIGHT: &[Key] = &[of(KeyCode::Right), key('l')];
const ENTER: &[Key] = &[of(KeyCode::Enter)];
const GRAPHS: On = On::These(&[Pane::Graph, Pane::Difference]);
const LISTS: On = On::These(&[
    Pane::Top,
    Pane::Latency,
    Pane::Source,
    Pane::Hits,
    Pane::Explain,
    Pane::Waits,
    Pane::Syscalls,
    Pane::Spans,
    Pane::Threads,
    Pane::Timeline,
    Pane::Sessions,
    Pane::Losses,
]);
const STACKS: On = On::These(&[Pane::Top, Pane::Graph]);

/// All keys.
pub static KEYS: &[Binding] = &[
    bind(
        ENTER,
        On::Processes,
        Action::Enter,
        "attach",
        "attach to the selected process, or join the selected session",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Top]),
        Action::Enter,
        "time its calls",
        "look inside of the selected function: time its calls",
    ),
    bind(
        ENTER,
        GRAPHS,
        Action::Enter,
        "zoom",
        "the selected box fills the graph",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Latency]),
        Action::Enter,
        "next step",
        "only slow calls, or the selected bars; then, how they differ",
    ),
    bind(
        &[key('m')],
        On::These(&[Pane::Latency]),
        Action::Mark,
        "mark",
        "one end of several bars is here, the other is the selected one",
    ),
    bind(
        &[key('=')],
        On::These(&[Pane::Latency]),
        Action::Threshold,
        "",
        "calls are slow from the selected bar on",
    ),
    bind(
        &[key('o')],
        On::These(&[Pane::Latency]),
        Action::Picture,
        "over time",
        "durations over time, or bars of all",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Source]),
        Action::Enter,
        "next step",
        "the selected line, branch, loop or call is the next step",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Hits]),
        Action::Enter,
        "only such",
        "only hits with the selected value",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Explain]),
        Action::Enter,
        "next step",
        "look only at calls of which the selected finding is true",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Waits]),
        Action::Enter,
        "time it",
        "time the function in which the selected thread waits, or wakes",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Syscalls]),
        Action::Enter,
        "time it",
        "time the calls of the selected system call",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Spans]),
        Action::Enter,
        "as slow",
        "look only at calls as slow as the selected one, as a flame graph",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Threads]),
        Action::Enter,
        "these alone",
        "a step of these threads alone; without one, their flame graph",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Timeline]),
        Action::Enter,
        "where",
        "where the selected counter counts, as a flame graph",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Sessions]),
        Action::Enter,
        "join",
        "look at the selected session instead",
    ),
    bind(
        ENTER,
        On::These(&[Pane::Losses]),
        Action::Enter,
        "source",
        "the source of the selected function with probes",
    ),
    bind(
        &[key('f')],
        On::These(&[Pane::Top, Pane::Graph, Pane::Difference]),
        Action::Inside,
        "inside",
        "look inside of the selected function, on the same pane",
    ),
    bind(
        &[key('v')],
        On::Panes,
        Action::Values,
        "values",
        "hits with values: of the last step, or the selected line",
    ),
    bind(
        &[key('1'), key('t')],
        On::Panes,
        Action::Show(Pane::Top),
        "",
        "functions, those that take the most time first",
    ),
    bind(
        &[key('2'), key('g')],
        On::Panes,
        Action::Show(Pane::Graph),
        "",
        "the flame graph",
    ),
    bind(
        &[key('3'), key('c')],
        On::Panes,
        Action::Show(Pane::Latency),
        "",
        "how long calls take",
    ),
    bind(
        &[key('4'), key('d')],
        On::Panes,
        Action::Show(Pane::Difference),
        "",
        "how slow calls differ from the others (p95, if none is set)",
    ),
    bind(
        &[key('5'), key('s')],
        On::Panes,
        Action::Show(Pane::Source),
        "",
        "the source of the selected function, or of the scope's",
    ),
    bind(
        &[key('6')],
        On::Panes,
        Action::Show(Pane::Hits),
        "",
        "hits of the last step",
    ),
    bind(
        &[key('7'), key('x')],
        On::Panes,
        Action::Show(Pane::Explain),
        "",
        "what slow calls do that the others do not, in words",
    ),
    bind(
        &[key('8'), key('w')],
        On::Panes,
        Action::Show(Pane::Waits),
        "",
        "who threads wait for, in all of it or inside of calls",
    ),
    bind(
        &[key('9'), key('i')],
        On::Panes,
        Action::Show(Pane::Syscalls),
        "",
        "system calls, and who makes them",
    ),
    bind(
        &[key('0'), key('b')],
        On::Panes,
        Action::Show(Pane::Spans),
        "",
        "the slowest calls; what each did, from its beginning to its end",
    ),
    bind(
        &[key('T')],
        On::Panes,
        Action::Show(Pane::Threads),
        "",
        "threads, those that take the most time first",
    ),
    bind(
        &[key('C')],
        On::Panes,
        Action::Show(Pane::Timeline),
        "",
        "counters over time",
    ),
    bind(
        &[key('S')],
        On::Panes,
        Action::Show(Pane::Sessions),
        "",
        "the daemon's sessions",
    ),
    bind(
        &[key('L')],
        On::Panes,
        Action::Show(Pane::Losses),
        "",
        "what was lost, and what probes cost",
    ),
    bind(
        &[key('>'), key('+')],
        On::Panes,
        Action::Nudge(Towards::Slower),
        "slower",
        "the threshold at the next higher percentile, or time",
    ),
    bind(
        &[key('<'), key('-')],
        On::Panes,
        Action::Nudge(Towards::Faster),
        "",
        "the threshold at the next lower percentile, or time",
    ),
    bind(
        &[key(']')],
        On::Panes,
        Action::Part(Part::Later),
        "later",
        "of a recording: the part that is half of its length later",
    ),
    bind(
        &[key('[')],
        On::Panes,
        Action::Part(Part::Earlier),
        "",
        "of a recording: the part that is half of its length earlier",
    ),
    bind(
        &[key('{')],
        On::Panes,
        Action::Part(Part::Shorter),
        "shorter",
        "of a recording: the first half of the part",
    ),
    bind(
        &[key('}')],
        On::Panes,
        Action::Part(Part::Longer),
        "",
        "of a recording: twice the part",
    ),
    bind(
        &[key('@')],
        On::Panes,
        Action::EditPart,
        "part",
        "of a recording: type the part, as in 10s..20s, or 10s for its last",
    ),
    bind(
        &[key('e'), key(':')],
        On::Panes,
        Action::EditScope,
        "edit",
        "edit the scope as text; Tab completes functions, lines, values",
    ),
    bind(
        &[key('u')],
        On::Panes,
        Action::Undo,
        "undo",
        "take the last edit of the scope back",
    ),
    bind(
        &[key('U')],
        On::Panes,
        Action::Redo,
        "",
        "make the edit again that was taken back last",
    ),
    bind(
        &[of(KeyCode::Esc)],
        On::Every,
        Action::Back,
        "",
        "out of the search, bars, zoom, threads, event, or panes T C S L",
    ),
    bind(
        &[key('/')],
        On::Every,
        Action::Search,
        "search",
        "search; functions, hits, threads, sessions: only what matches",
    ),
    bind(
        &[key('n')],
        On::These(&[Pane::Graph, Pane::Difference, Pane::Source]),
        Action::Move(Move::Next),
        "",
        "the next match; in the source without a search, the next branch or loop; of a recording, line with samples",
    ),
    bind(
        &[key('N')],
        On::These(&[Pane::Graph, Pane::Difference, Pane::Source]),
        Action::Move(Move::Previous),
        "",
        "the previous match, branch, loop or line with samples",
    ),
    bind(
        &[key('o')],
        On::These(&[Pane::Top]),
        Action::Sort,
        "order",
        "order by the function's own time, or by that of all it calls",
    ),
    bind(
        &[key('a')],
        On::These(&[Pane::Top, Pane::Graph, Pane::Difference]),
        Action::By,
        "by line",
        "functions, lines that ran, or libraries",
    ),
    bind(
        &[key('m')],
        On::These(&[Pane::Top, Pane::Graph]),
        Action::Mark,
        "",
        "mark the function, or no longer: B takes all marked ones",
    ),
    bind(
        &[key('B')],
        On::These(&[Pane::Top, Pane::Graph]),
        Action::Around,
        "",
        "what the function, or marked ones, call; who calls them; all",
    ),
    bind(
        &[key('H')],
        STACKS,
        Action::EditHide,
        "hide",
        "leave functions out, with what they call: malloc|free|std::*",
    ),
    bind(
        &[key('F')],
        STACKS,
        Action::EditFold,
        "",
        "take functions as part of who calls them: wrap|std::*",
    ),
    bind(
        &[key('R')],
        STACKS,
        Action::Collapse,
        "",
        "a function that calls itself directly is one call",
    ),
    bind(
        &[key('%')],
        On::These(&[Pane::Top, Pane::Graph, Pane::Difference]),
        Action::AtLeast,
        "",
        "leave out what has less than 0.5%, 1%, 2%, 5%, 10% of all",
    ),
    bind(
        &[key('p')],
        On::These(&[Pane::Hits]),
        Action::EditPrint,
        "print",
        "expressions to print: n,req->len",
    ),
    bind(UP, On::Processes, Action::Move(Move::Up), "", "up"),
    bind(UP, LISTS, Action::Move(Move::Up), "", "up"),
    bind(UP, GRAPHS, Action::Move(Move::Up), "", "to the caller"),
    bind(DOWN, On::Processes, Action::Move(Move::Down), "", "down"),
    bind(DOWN, LISTS, Action::Move(Move::Down), "", "down"),
    bind(DOWN, GRAPHS, Action::Move(Move::Down), "", "to the widest callee"),
    bind(
        LEFT,
        GRAPHS,
        Action::Move(Move::Left),
        "",
        "to the box on the left",
    ),
    bind(
        RIGHT,
        GRAPHS,
        Action::Move(Move::Right),
        "",
        "to the box on the right",
    ),
    bind(
        LEFT,
        On::These(&[Pane::Source]),
        Action::Move(Move::Left),
        "",
        "what else the line can be: its branches, itself, its calls",
    ),
    bind(
        RIGHT,
        On::These(&[Pane::Source]),
        Action::Move(Move::Right),
        "",
        "the next of these",
    ),
    bind(
        LEFT,
        On::These(&[Pane::Hits]),
        Action::Move(Move::Left),
        "",
        "the value on the left",
    ),
    bind(
        RIGHT,
        On::These(&[Pane::Hits]),
        Action::Move(Move::Right),
        "",
        "the value on the right",
    ),
    bind(
        &[of(KeyCode::PageUp), control('u')],
        On::Every,
        Action::Move(Move::PageUp),
        "",
        "ten rows up",
    ),
    bind(
        &[of(KeyCode::PageDown), control('d')],
        On::Every,
        Action::Move(Move::PageDown),
        "",
        "ten rows down",
    ),
    bind(
        &[of(KeyCode::Home)],
        On::Every,
        Action::Move(Move::First),
        "",
        "to the first row",
    ),
    bind(
        &[of(KeyCode::End), key('G')],
        On::Every,
        Action::Move(Move::Last),
        "",
        "to the last row",
    ),
    bind(
        &[key('z')],
        On::Every,
        Action::Freeze,
        "freeze",
        "freeze the screen; data is still collected",
    ),
    bind(
        &[key('y')],
        On::Every,
        Action::Copy,
        "command",
        "copy this screen's command line; again: for scripts; as a URL",
    ),
    bind(
        &[key('r')],
        On::Panes,
        Action::Record,
        "record",
        "record into a file, or end that; tui --from FILE shows it",
    ),
    bind(
        &[key('K')],
        On::Panes,
        Action::NoBudget,
        "",
        "keep probes, whatever they cost the target (--budget 0)",
    ),
    bind(
        &[key('M')],
        On::Every,
        Action::Mouse,
        "",
        "the mouse selects here, or text of the terminal",
    ),
    bind(
        &[key('P')],
        On::Panes,
        Action::Processes,
        "",
        "leave the process, and choose another",
    ),
    bind(
        &[key('?'), of(KeyCode::F(1))],
        On::Every,
        Action::Help,
        "help",
        "all keys",
    ),
    bind(
        &[control('z')],
        On::Every,
        Action::Suspend,
        "",
        "suspend to the shell; fg resumes",
    ),
    bind(
        &[key('q'), control('c')],
        On::Every,
        Action::Quit,
        "quit",
        "end; what was attached is detached",
    ),
];

/// Keys while text is typed.
pub static TYPING: &[Binding] = &[
    typing(&[of(KeyCode::Enter)], Typing::Confirm, "done", "done"),
    typing(
        &[of(KeyCode::Esc), control('c')],
        Typing::Cancel,
        "cancel",
        "cancel",
    ),
    typing(
        &[of(KeyCode::Tab)],
        Typing::Complete,
        "complete",
        "take the suggestion",
    ),
    typing(&[of(KeyCode::Up)], Typing::Up, "", "the suggestion above"),
    typing(&[of(KeyCode::Down)], Typing::Down, "", "the suggestion below"),
    typing(&[of(KeyCode::Left)], Typing::Left, "", "left"),
    typing(&[of(KeyCode::Right)], Typing::Right, "", "right"),
    typing(
        &[of(KeyCode::Home), control('a')],
        Typing::Home,
        "",
        "to the beginning",
    ),
    typing(&[of(KeyCode::End), control('e')], Typing::End, "", "to the end"),
    typing(
        &[of(KeyCode::Backspace), control('h')],
        Typing::Erase,
        "",
        "erase a character",
    ),
    typing(&[control('w')], Typing::EraseWord, "", "erase a word"),
    typing(&[control('u')], Typing::EraseAll, "erase all", "erase all"),
];

const fn typing(keys: &'static [Key], typing: Typing, short: &'static str, words: &'static str) -> Binding {
    bind(keys, On::Every, Action::Type(typing), short, words)
}

/// What a key does; `None` where it does nothing.
#[must_use]
pub fn action(event: &KeyEvent, lens: &Lens) -> Option<Action> {
    let pressed = Key {
        code: event.code,
        control: event.modifiers.contains(KeyModifiers::CONTROL),
    };
    let has = |binding: &&Binding| binding.keys.contains(&pressed);
    if lens.input.is_none() {
        let found = KEYS
            .iter()
            .find(|binding| has(binding) && binding.on.is_for(lens.screen()));
        return found.map(|binding| binding.action.clone());
    }
    match TYPING.iter().find(has) {
        Some(binding) => Some(binding.action.clone()),
        None => match pressed {
            Key {
                code: KeyCode::Char(c),
                control: false,
            } if !event.modifiers.contains(KeyModifiers::ALT) => Some(Action::Type(Typing::Insert(c))),
            _ => None,
        },
    }
}

impl Key {
    /// What is printed on it.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self.code {
            KeyCode::Char(c) => c.to_string(),
            KeyCode::Up => "↑".to_owned(),
            KeyCode::Down => "↓".to_owned(),
            KeyCode::Left => "←".to_owned(),
            KeyCode::Right => "→".to_owned(),
            KeyCode::F(number) => format!("F{number}"),
            KeyCode::PageUp => "PgUp".to_owned(),
            KeyCode::PageDown => "PgDn".to_owned(),
            code => format!("{code:?}"),
        };
        if self.control {
            format!("Ctrl-{}", name.to_uppercase())
        } else {
            name
        }
    }
}

impl Binding {
    /// What is printed on its keys.
    #[must_use]
    pub fn names(&self) -> String {
        self.keys
            .iter()
            .map(|key| key.name())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_key_does_two_things_on_a_screen() {
        for screen in Pane::ALL.map(Some).into_iter().chain([None]) {
            let mut seen = HashSet::new();
            for binding in KEYS.iter().filter(|binding| binding.on.is_for(screen)) {
                for key in binding.keys {
                    assert!(seen.insert(*key), "{} on {screen:?}", key.name());
                }
            }
        }
        let mut seen = HashSet::new();
        assert!(
            TYPING
                .iter()
                .flat_map(|binding| binding.keys)
                .all(|key| seen.insert(*key))
        );
    }

    #[test]
    fn each_pane_has_a_key() {
        for pane in Pane::ALL {
            assert!(
                KEYS.iter().any(|binding| binding.action == Action::Show(pane)),
                "{pane:?}"
            );
        }
    }

    #[test]
    fn letters_are_text_while_text_is_typed() {
        let q = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        let mut lens = Lens::default();
        assert_eq!(action(&q, &lens), Some(Action::Quit));
        lens.input = Some(super::super::lens::Input::new(
            super::super::lens::Purpose::Search,
            "",
        ));
        assert_eq!(action(&q, &lens), Some(Action::Type(Typing::Insert('q'))));
    }

    /// The table of `docs/verbs/tui.md`.
    fn table() -> String {
        let cell = |text: &str| text.replace('|', "\\|");
        let rows = KEYS.iter().map(|binding| {
            let keys: Vec<String> = binding
                .keys
                .iter()
                .map(|key| format!("`{}`", cell(&key.name())))
                .collect();
            format!(
                "| {} | {} | {} |\n",
                keys.join(" "),
                binding.on.name(),
                cell(binding.words)
            )
        });
        "| keys | where | what they do |\n|---|---|---|\n".to_owned() + &rows.collect::<String>()
    }

    #[test]
    fn the_page_has_the_same_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verbs/tui.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page.contains(&table()),
            "docs/verbs/tui.md is to have this table:\n{}",
            table()
        );
    }
}
