//! The model under all actions, in any order.

use std::{sync::Arc, time::Duration};

use clap::Parser as _;
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use profiler_proto::v1;
use proptest::prelude::*;
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    Action, CostOfEdit, Effect, Item, Lens, Move, Overlay, Pane, Part, Recorded, Size, Target, Typing,
    Wanted, of_screen, of_verb, path::Towards, quoted, update,
};
use crate::{
    cli::{
        args::{By, Cli, RecordedTime},
        request::Request,
        validate::validate,
    },
    state::{
        end::End,
        shape::{Around, Patterns, Shape},
    },
    tui::{
        mouse, sample,
        view::{
            self,
            theme::{Depth, Theme},
        },
    },
};

/// A service that does what it is asked, or refuses.
#[derive(Default)]
struct Service {
    scopes: Vec<String>,
    /// A scope with this is costly; empty where none is.
    costly: &'static str,
}

impl Service {
    fn now(&self) -> String {
        self.scopes.last().cloned().unwrap_or_default()
    }

    fn answer(&mut self, effect: &Effect) -> Option<Action> {
        match effect {
            Effect::Attach { scope, .. } => {
                self.scopes = vec![scope.clone()];
                Some(Action::Attached { scope: scope.clone() })
            }
            Effect::SetScope(scope) if scope.contains("refused") => Some(Action::Refused {
                message: "No.".to_owned(),
                scope: self.now(),
            }),
            Effect::SetScope(scope) if !self.costly.is_empty() && scope.contains(self.costly) => {
                Some(Action::Costly {
                    wanted: scope.clone(),
                    cost: CostOfEdit {
                        words: "4,096 places".to_owned(),
                        over_budget: false,
                    },
                    scope: self.now(),
                })
            }
            Effect::SetScope(scope) | Effect::SetCostlyScope(scope) => {
                self.scopes.push(scope.clone());
                Some(Action::Edited { scope: scope.clone() })
            }
            Effect::Undo(edits) if self.scopes.len() > *edits as usize => {
                self.scopes.truncate(self.scopes.len() - *edits as usize);
                Some(Action::Edited { scope: self.now() })
            }
            Effect::Undo(_) => Some(Action::Refused {
                message: "There is no edit.".to_owned(),
                scope: self.now(),
            }),
            _ => None,
        }
    }
}

fn do_all(lens: &mut Lens, service: &mut Service, action: Action) {
    let data = sample::busy();
    let mut waiting = update(lens, action, &data);
    while let Some(effect) = waiting.pop() {
        if let Some(answer) = service.answer(&effect) {
            waiting.extend(update(lens, answer, &data));
        }
    }
    update(lens, Action::Drawn, &data);
}

fn action() -> impl Strategy<Value = Action> {
    let typing = prop_oneof![
        any::<char>().prop_map(Typing::Insert),
        prop::sample::select(vec!['f', '/', '[', ']', '>', 'p', '9', '"', 'r']).prop_map(Typing::Insert),
        prop::sample::select(vec![
            Typing::Erase,
            Typing::EraseWord,
            Typing::EraseAll,
            Typing::Left,
            Typing::Right,
            Typing::Home,
            Typing::End,
            Typing::Up,
            Typing::Down,
            Typing::Complete,
            Typing::Confirm,
            Typing::Cancel,
        ]),
    ];
    prop_oneof![
        4 => prop::sample::select(Pane::ALL.to_vec()).prop_map(Action::Show),
        8 => prop::sample::select(vec![
            Move::Up, Move::Down, Move::Left, Move::Right, Move::PageUp, Move::PageDown, Move::First, Move::Last,
            Move::Next, Move::Previous,
        ]).prop_map(Action::Move),
        2 => prop::sample::select(vec![Towards::Slower, Towards::Faster]).prop_map(Action::Nudge),
        2 => prop::sample::select(vec![Part::Earlier, Part::Later, Part::Shorter, Part::Longer])
            .prop_map(Action::Part),
        6 => typing.prop_map(Action::Type),
        2 => (any::<u16>(), any::<u16>()).prop_map(|(columns, rows)| Action::Resized(Size { columns, rows })),
        12 => prop::sample::select(vec![
            Action::Enter, Action::Enter, Action::Inside, Action::Values, Action::Back, Action::Undo, Action::Redo, Action::Sort,
            Action::EditScope, Action::Search, Action::EditPrint, Action::Freeze, Action::Help, Action::Copy,
            Action::Processes, Action::Nothing, Action::Counted, Action::Notice("x".to_owned()),
            Action::Mark, Action::Threshold, Action::Picture, Action::By, Action::Collapse, Action::AtLeast,
            Action::Around, Action::EditHide, Action::EditFold, Action::EditPart, Action::Mouse,
            Action::Refused { message: "No.".to_owned(), scope: "handle".to_owned() },
            Action::NotAttached { message: "No.".to_owned() },
        ]),
    ]
}

/// What a user does, or what happens.
#[derive(Clone, Debug)]
enum Step {
    Do(Action),
    /// Something with the mouse, on the screen as it is drawn.
    Mouse(MouseEvent),
}

fn step() -> impl Strategy<Value = Step> {
    let left = MouseEventKind::Down(MouseButton::Left);
    let kinds = vec![
        left,
        left,
        left,
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
    ];
    let mouse = (prop::sample::select(kinds), 0..82_u16, 0..26_u16);
    prop_oneof![
        3 => action().prop_map(Step::Do),
        1 => mouse.prop_map(|(kind, column, row)| {
            Step::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        }),
    ]
}

fn take_step(lens: &mut Lens, service: &mut Service, step: Step) {
    let action = match step {
        Step::Do(action) => Some(action),
        Step::Mouse(event) => {
            let data = sample::busy();
            let mut cells = Buffer::empty(Rect::new(0, 0, 80, 24));
            let spots = view::draw(&mut cells, lens, &data, Theme { depth: Depth::None });
            mouse::action(event, &spots, lens, &data)
        }
    };
    if let Some(action) = action {
        do_all(lens, service, action);
    }
}

fn recording() -> Target {
    Target::Recording(Recorded {
        path: "incident.profrec".to_owned(),
        time: RecordedTime {
            begin: Some(Duration::from_millis(20_500)),
            end: None,
        },
        without_scope: false,
    })
}

fn attached() -> (Lens, Service) {
    let mut lens = Lens {
        target: Some(Target::Pid(4211)),
        ..Lens::default()
    };
    let mut service = Service::default();
    let attach = Effect::Attach {
        target: Target::Pid(4211),
        scope: String::new(),
    };
    let answer = service.answer(&attach).unwrap();
    do_all(&mut lens, &mut service, answer);
    (lens, service)
}

/// What a lens prints of itself on the command line.
fn printed(lens: &Lens) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (
            lens.target.clone(),
            lens.scope.clone(),
            lens.pane,
            lens.picture,
            lens.sort,
            lens.mouse,
        ),
        (
            lens.search.clone(),
            lens.print.clone(),
            lens.by,
            lens.event.clone(),
            lens.at_least,
        ),
        (
            lens.shape.clone(),
            if lens.pane.is_graph() {
                lens.zoom.clone()
            } else {
                Vec::new()
            },
        ),
    )
}

/// As it is after it was printed: frames are names there.
fn by_names(mut lens: Lens) -> Lens {
    let named = |frame: &super::FrameId| super::FrameId::named(&frame.function);
    lens.zoom = lens.zoom.iter().map(named).collect();
    lens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn the_printed_command_line_gives_what_was_on_screen(actions in prop::collection::vec(step(), 0..40)) {
        let (mut lens, mut service) = attached();
        for step in actions {
            take_step(&mut lens, &mut service, step);
        }
        prop_assume!(lens.target.is_some());
        // Names that would drive a terminal are printed harmlessly, and are others then.
        prop_assume!(lens.zoom.iter().all(|frame| frame.function != sample::HOSTILE));
        let again = parsed(&lens);
        prop_assert_eq!(printed(&again), printed(&by_names(lens.clone())));
        // And as a URL.
        let words = super::url::words(&super::url::of(&of_screen(&lens))).unwrap();
        let line = ["profiler", "tui"].map(str::to_owned).into_iter().chain(words);
        prop_assert_eq!(printed(&parsed_from(line.collect())), printed(&by_names(lens)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_message_gives_what_was_on_screen(actions in prop::collection::vec(step(), 0..40), of_recording: bool) {
        let (mut lens, mut service) = attached();
        for step in actions {
            take_step(&mut lens, &mut service, step);
        }
        if of_recording {
            lens.target = Some(recording());
        }
        // It is the terminal's.
        lens.mouse = super::Mouse::default();
        let message = super::message::of(&lens);
        let bytes = prost::Message::encode_to_vec(&message);
        let read: profiler_proto::v1::Lens = prost::Message::decode(bytes.as_slice()).unwrap();
        let again = super::message::look(lens.target.clone(), &read);
        prop_assert_eq!(printed(&again), printed(&lens));
        prop_assert_eq!(
            (&again.marked, again.mark, again.frozen, &again.source),
            (&lens.marked, lens.mark, lens.frozen, &lens.source)
        );
        prop_assert_eq!(super::message::of(&again), message);
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_each_screen_is_a_command(actions in prop::collection::vec(step(), 0..40)) {
        let (mut lens, mut service) = attached();
        service.costly = "parse";
        for step in actions {
            take_step(&mut lens, &mut service, step);
            let targets = [
                Target::Pid(4211),
                Target::Pids(vec![4211, 4212]),
                Target::Exe("demo".to_owned()),
                Target::Session("web".to_owned()),
                recording(),
            ];
            for target in targets {
                let lens = Lens {
                    target: lens.target.is_some().then_some(target),
                    ..lens.clone()
                };
                if !lens.has(lens.pane) {
                    continue;
                }
                for words in [of_screen(&lens), of_verb(&lens)] {
                    let cli = Cli::try_parse_from(&words);
                    prop_assert!(cli.is_ok(), "{words:?}: {}", cli.unwrap_err());
                }
            }
        }
    }

    #[test]
    fn undo_brings_back_the_scope_and_the_screen(actions in prop::collection::vec(step(), 0..20), scope in "[a-z]{1,8}") {
        let (mut lens, mut service) = attached();
        for step in actions {
            take_step(&mut lens, &mut service, step);
        }
        if lens.target.is_none() || lens.scope != service.now() {
            return Ok(());
        }
        (lens.input, lens.overlay) = (None, Overlay::None);
        let before = (lens.scope.clone(), lens.pane);
        do_all(&mut lens, &mut service, Action::EditScope);
        do_all(&mut lens, &mut service, Action::Type(Typing::EraseAll));
        for c in scope.chars() {
            do_all(&mut lens, &mut service, Action::Type(Typing::Insert(c)));
        }
        do_all(&mut lens, &mut service, Action::Type(Typing::Confirm));
        prop_assert_eq!(&lens.scope, &scope);
        if before.0 != scope {
            do_all(&mut lens, &mut service, Action::Undo);
        }
        prop_assert_eq!((lens.scope.clone(), lens.pane), before);
        prop_assert_eq!(service.now(), lens.scope);
    }
}

#[test]
fn the_four_steps_take_a_key_each() {
    let (mut lens, mut service) = attached();
    let data = sample::busy();
    let handle = data
        .functions
        .iter()
        .find(|row| row.frame.function == "handle")
        .unwrap();
    lens.select(Item::Function(super::FrameId::of(&handle.frame)));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!((lens.scope.as_str(), lens.pane), ("handle", Pane::Latency));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.scope, "handle[>= p95]");
    do_all(&mut lens, &mut service, Action::Show(Pane::Difference));
    assert_eq!(
        (lens.scope.as_str(), lens.pane),
        ("handle[>= p95]", Pane::Difference)
    );
    do_all(&mut lens, &mut service, Action::Show(Pane::Latency));
    do_all(&mut lens, &mut service, Action::Show(Pane::Source));
    do_all(&mut lens, &mut service, Action::Move(Move::Next));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.scope, "handle[>= p95]/server.cc:13!else");
    do_all(&mut lens, &mut service, Action::Values);
    assert_eq!(lens.pane, Pane::Hits);
    assert_eq!(service.now(), lens.scope);
    let end = (lens.scope.clone(), lens.pane);
    for scope in ["handle[>= p95]", "handle", ""] {
        do_all(&mut lens, &mut service, Action::Undo);
        assert_eq!(lens.scope, scope);
    }
    assert_eq!(lens.pane, Pane::Top, "where it began");
    // And forward again, to where it ended.
    for scope in ["handle", "handle[>= p95]", &end.0] {
        do_all(&mut lens, &mut service, Action::Redo);
        assert_eq!((lens.scope.as_str(), service.now().as_str()), (scope, scope));
    }
    assert_eq!((lens.scope.clone(), lens.pane), end);
    do_all(&mut lens, &mut service, Action::Undo);
    // Another edit leaves what was ahead.
    do_all(&mut lens, &mut service, Action::Nudge(Towards::Slower));
    let scope = lens.scope.clone();
    do_all(&mut lens, &mut service, Action::Redo);
    assert_eq!((lens.scope, lens.notice.is_some()), (scope, true));
}

#[test]
fn the_difference_is_one_key_away_from_a_function() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Show(Pane::Difference));
    assert_eq!(lens.pane, Pane::Difference);
    assert!(lens.scope.ends_with("[>= p95]"), "{}", lens.scope);
}

#[test]
fn bars_are_the_next_step() {
    let (mut lens, mut service) = attached();
    lens.scope = "handle".to_owned();
    service.scopes = vec!["handle".to_owned()];
    let bars = sample::busy().bars(&Lens::default()).len();
    assert!(bars > 3, "{bars}");
    do_all(&mut lens, &mut service, Action::Show(Pane::Latency));

    // The slowest bar is the first to be selected, and open at its end.
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(
        lens.scope,
        "handle[>= 2.05ms]".replace("2.05", &slowest_edge_ms())
    );
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.pane, Pane::Difference, "how these differ");
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((lens.scope.as_str(), lens.pane), ("handle", Pane::Latency));

    // Several: from the mark to the selected one, neither of them at an end.
    do_all(&mut lens, &mut service, Action::Move(Move::First));
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    do_all(&mut lens, &mut service, Action::Mark);
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    do_all(&mut lens, &mut service, Action::Enter);
    let band = lens.scope.clone();
    assert!(band.contains("[>= ") && band.contains("][< "), "{band}");
    assert_eq!(lens.mark, None);
    // They are no longer selected, so that the next Enter does not narrow them down again.
    assert_eq!(lens.selection(), None);

    // All of them are no condition; Esc lets them go.
    do_all(&mut lens, &mut service, Action::Move(Move::First));
    do_all(&mut lens, &mut service, Action::Mark);
    do_all(&mut lens, &mut service, Action::Move(Move::Last));
    do_all(&mut lens, &mut service, Action::Enter);
    assert!(
        lens.notice.clone().unwrap_or_default().contains("all calls"),
        "{lens:?}"
    );
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!(
        (lens.selection(), lens.mark, lens.scope.clone()),
        (None, None, band)
    );
}

#[test]
fn a_key_over_the_help_closes_it_and_shows_what_it_shows() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Help);
    do_all(&mut lens, &mut service, Action::EditScope);
    assert!(lens.input.is_some() && lens.overlay == Overlay::None);
    do_all(&mut lens, &mut service, Action::Type(Typing::Cancel));
    do_all(&mut lens, &mut service, Action::Help);
    do_all(&mut lens, &mut service, Action::Show(Pane::Threads));
    assert_eq!((lens.pane, lens.overlay), (Pane::Threads, Overlay::None));
    // Whoever closes it by another key does not leave, and changes nothing that is covered.
    for action in [
        Action::Back,
        Action::Quit,
        Action::Enter,
        Action::Move(Move::Down),
        Action::Record,
        Action::Processes,
    ] {
        do_all(&mut lens, &mut service, Action::Help);
        let before = lens.selection().cloned();
        assert_eq!(update(&mut lens, action, &sample::busy()), []);
        assert_eq!((lens.selection().cloned(), lens.overlay), (before, Overlay::None));
    }
}

/// The lower edge of the last bar of the sample.
fn slowest_edge_ms() -> String {
    let edge_ns = sample::busy().bars(&Lens::default()).last().unwrap().low_ns;
    format!("{:.2}", edge_ns / 1e6)
}

#[test]
fn the_threshold_is_set_at_a_bar_and_nudged() {
    let (mut lens, mut service) = attached();
    lens.scope = "handle[>= p95]".to_owned();
    service.scopes = vec![lens.scope.clone()];
    do_all(&mut lens, &mut service, Action::Show(Pane::Latency));
    do_all(&mut lens, &mut service, Action::Threshold);
    assert!(
        lens.notice
            .clone()
            .unwrap_or_default()
            .starts_with("Select a bar")
    );
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    do_all(&mut lens, &mut service, Action::Move(Move::Up));
    do_all(&mut lens, &mut service, Action::Threshold);
    assert!(
        lens.scope.starts_with("handle[>= ") && !lens.scope.contains("p95"),
        "{}",
        lens.scope
    );
    assert!(!lens.scope.contains('<'), "{}", lens.scope);
    let set = lens.scope.clone();
    do_all(&mut lens, &mut service, Action::Nudge(Towards::Slower));
    assert_ne!(lens.scope, set);
    assert_eq!(lens.pane, Pane::Latency);
}

#[test]
fn what_is_refused_leaves_the_scope_as_it_was() {
    let (mut lens, mut service) = attached();
    for scope in ["handle", "refused"] {
        do_all(&mut lens, &mut service, Action::EditScope);
        do_all(&mut lens, &mut service, Action::Type(Typing::EraseAll));
        for c in scope.chars() {
            do_all(&mut lens, &mut service, Action::Type(Typing::Insert(c)));
        }
        do_all(&mut lens, &mut service, Action::Type(Typing::Confirm));
    }
    assert_eq!(
        (lens.scope.as_str(), lens.notice.as_deref()),
        ("handle", Some("No."))
    );
    // It goes on being typed, and what follows is not taken for keys.
    let typed = lens.input.as_ref().map(crate::tui::lens::Input::text);
    assert_eq!(typed.as_deref(), Some("refused"));
    do_all(&mut lens, &mut service, Action::Type(Typing::Cancel));
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((lens.scope.as_str(), service.now().as_str()), ("", ""));
}

#[test]
fn a_refusal_that_comes_late_types_nothing_for_who_does_something_else() {
    for (meanwhile, is_typed) in [(Action::Counted, true), (Action::Move(Move::Down), false)] {
        let (mut lens, mut service) = attached();
        do_all(&mut lens, &mut service, Action::EditScope);
        for c in "refused".chars() {
            do_all(&mut lens, &mut service, Action::Type(Typing::Insert(c)));
        }
        let data = sample::busy();
        let asked = update(&mut lens, Action::Type(Typing::Confirm), &data);
        do_all(&mut lens, &mut service, meanwhile);
        let answers = asked.iter().filter_map(|effect| service.answer(effect));
        for answer in answers.collect::<Vec<_>>() {
            update(&mut lens, answer, &data);
        }
        assert_eq!(
            (lens.input.is_some(), lens.notice.as_deref()),
            (is_typed, Some("No."))
        );
    }
}

#[test]
fn a_function_above_the_scope_takes_its_place_and_one_below_comes_behind_it() {
    let (mut lens, mut service) = attached();
    lens.scope = "handle".to_owned();
    service.scopes = vec!["handle".to_owned()];
    let data = sample::busy();
    let of = |name: &str| {
        let row = data
            .functions
            .iter()
            .find(|row| row.frame.function == name)
            .unwrap();
        Item::Function(super::FrameId::of(&row.frame))
    };
    lens.select(of("parse"));
    do_all(&mut lens, &mut service, Action::Inside);
    assert_eq!(lens.scope, "handle/parse");
    do_all(&mut lens, &mut service, Action::Undo);
    lens.select(of("main"));
    do_all(&mut lens, &mut service, Action::Inside);
    assert_eq!(lens.scope, "main");
    // Slow calls are held against the others, as where the difference is shown first.
    do_all(&mut lens, &mut service, Action::Undo);
    do_all(&mut lens, &mut service, Action::Show(Pane::Difference));
    assert_eq!(lens.scope, "handle[>= p95]");
    lens.select(of("main"));
    do_all(&mut lens, &mut service, Action::Inside);
    assert_eq!((lens.pane, &*lens.scope), (Pane::Difference, "main[>= p95]"));
}

#[test]
fn a_selection_stays_with_what_is_selected() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    let selected = lens.selection().cloned();
    do_all(&mut lens, &mut service, Action::Drawn);
    assert_eq!(lens.selection().cloned(), selected, "drawn anew");
    do_all(&mut lens, &mut service, Action::Sort);
    assert_ne!(lens.selection().cloned(), selected, "the first of another order");
    lens.search = "nothing has this".to_owned();
    do_all(&mut lens, &mut service, Action::Nothing);
    assert_eq!(lens.selection(), None);
}

#[test]
fn a_screen_comes_back_from_its_command_line() {
    let (mut lens, _) = attached();
    lens.host = Some("/run/other.sock".to_owned());
    lens.making = [
        "--frequency=499",
        "--window=0.5s",
        "--half-life=30s",
        "--exit=ret",
    ]
    .map(str::to_owned)
    .to_vec();
    lens.scope = "a::b[>= p95]/\"it's\"".to_owned();
    lens.pane = Pane::Graph;
    lens.search = "-x".to_owned();
    lens.print = vec!["n".to_owned(), "a[0..4]".to_owned()];
    lens.zoom = vec![super::FrameId::named("main"), super::FrameId::named("f<int>")];
    let cli = Cli::try_parse_from(of_screen(&lens)).unwrap();
    let (_, Request::Tui(request)) = validate(cli).unwrap() else {
        panic!("another verb");
    };
    let again = request.lens;
    assert_eq!(
        (&again.scope, again.pane, &again.search, &again.print, &again.zoom),
        (&lens.scope, lens.pane, &lens.search, &lens.print, &lens.zoom)
    );
    assert_eq!(
        (again.target, again.host, again.making),
        (lens.target, lens.host, lens.making)
    );
}

#[test]
fn what_is_made_of_stacks_comes_back_from_the_command_line() {
    let (mut lens, _) = attached();
    lens.pane = Pane::Graph;
    lens.by = By::Line;
    lens.event = "page-faults".to_owned();
    lens.shape = Shape {
        hide: Patterns::read("malloc|free"),
        fold: Patterns::read("std::*"),
        collapse: true,
        around: Some(Around::Callers(Patterns::read("f<int>|std::*"))),
        ..Shape::default()
    };
    lens.at_least = 5;
    let again = parsed(&lens);
    assert_eq!(
        (again.by, &again.event, &again.shape, again.at_least),
        (lens.by, &lens.event, &lens.shape, lens.at_least)
    );
    assert_eq!(
        of_verb(&lens).join(" "),
        "profiler flame -p 4211 --by=line --event=page-faults --hide=malloc|free --fold=std::* --collapse --callers=f<int>|std::*"
    );
    lens.by = By::Function;
    lens.shape.threads = Patterns::read("clerk-*");
    assert_eq!(parsed(&lens).shape.threads, lens.shape.threads);
    assert!(Cli::try_parse_from(of_verb(&lens)).is_ok());
}

/// The lens of the command line that a lens prints.
fn parsed(lens: &Lens) -> Lens {
    parsed_from(of_screen(lens))
}

fn parsed_from(words: Vec<String>) -> Lens {
    let cli = Cli::try_parse_from(words).unwrap();
    let (_, Request::Tui(request)) = validate(cli).unwrap() else {
        panic!("another verb");
    };
    request.lens
}

#[test]
fn the_selected_function_is_seen_by_what_it_calls_and_who_calls_it() {
    let (mut lens, mut service) = attached();
    lens.pane = Pane::Graph;
    let name = |name: &str| super::FrameId {
        module: "/usr/bin/server".to_owned(),
        ..super::FrameId::named(name)
    };
    lens.select(Item::Stack(vec![name("main"), name("handle"), name("parse")]));
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(
        lens.shape.around,
        Some(Around::Callees(Patterns::read("::parse")))
    );
    let for_scripts = of_verb(&lens);
    assert_eq!(for_scripts.join(" "), "profiler flame -p 4211 --callees=::parse");
    let (_, Request::Flame(flame)) = validate(Cli::try_parse_from(for_scripts).unwrap()).unwrap() else {
        panic!("another verb");
    };
    assert_eq!(flame.shape, lens.shape, "scripts have the stacks of the screen");
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(
        lens.shape.around,
        Some(Around::Callers(Patterns::read("::parse")))
    );
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(lens.shape.around, None);
    do_all(&mut lens, &mut service, Action::Around);
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!(lens.shape.around, None, "Esc leaves it");
}

#[test]
fn marked_functions_are_seen_together() {
    let (mut lens, mut service) = attached();
    let data = sample::busy();
    for function in ["parse", "compress", "main", "main"] {
        let row = data.functions.iter().find(|row| row.frame.function == function);
        lens.select(Item::Function(super::FrameId::of(&row.unwrap().frame)));
        do_all(&mut lens, &mut service, Action::Mark);
    }
    assert_eq!(
        lens.marked,
        ["parse", "compress"],
        "main was marked and is no longer"
    );
    let both = || Patterns::read("::parse|::compress");
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(
        (lens.pane, &lens.shape.around),
        (Pane::Graph, &Some(Around::Callees(both())))
    );
    let root = Some(&Item::Stack(vec![super::FrameId::named("parse")]));
    assert_eq!(lens.selection(), root);
    assert_eq!(parsed(&lens).shape.around, lens.shape.around);
    let url = super::url::of(&of_screen(&lens));
    assert!(url.contains("callees=::parse%7C::compress"), "{url}");
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(lens.shape.around, Some(Around::Callers(both())));
    do_all(&mut lens, &mut service, Action::Around);
    assert_eq!(lens.shape.around, None);
    do_all(&mut lens, &mut service, Action::Back);
    assert!(lens.marked.is_empty(), "Esc takes the marks away");
}

#[test]
fn so_many_functions_are_marked_and_no_more() {
    let mut lens = Lens::on(Some(Target::Pid(1)));
    for number in 0..100 {
        lens.select(Item::Function(super::FrameId::named(&format!("f{number}"))));
        super::shaping::mark(&mut lens);
    }
    assert_eq!(lens.marked.len(), super::MAX_MARKED);
    assert!(lens.notice.unwrap().contains("no more"));
}

#[test]
fn threads_are_a_condition_of_a_step_in_the_program() {
    let (mut lens, _) = attached();
    let data = sample::by_thread();
    lens.scope = "handle[>= p95]".to_owned();
    lens.pane = Pane::Threads;
    update(&mut lens, Action::Drawn, &data);
    let effects = update(&mut lens, Action::Enter, &data);
    let of_group = r#"handle[>= p95][$comm == "clerk-*"]"#;
    assert_eq!((lens.scope.as_str(), lens.pane), (of_group, Pane::Latency));
    assert!(
        effects.contains(&Effect::SetScope(of_group.to_owned())),
        "{effects:?}"
    );
    assert!(lens.shape.threads.is_empty());
    // One thread is known by its number.
    lens.scope = "handle".to_owned();
    lens.pane = Pane::Threads;
    update(&mut lens, Action::Drawn, &data);
    update(&mut lens, Action::Move(Move::Down), &data);
    update(&mut lens, Action::Enter, &data);
    assert_eq!(lens.scope, "handle[$tid == 4212]");
    // A condition that others meet too is not one of these alone.
    let mut data = data;
    let rows = Arc::make_mut(&mut data.threads);
    let group = rows.iter_mut().find(|row| row.threads > 0).unwrap();
    group.not_told_from = Some("clerk-main".to_owned());
    lens.scope = "handle".to_owned();
    lens.pane = Pane::Threads;
    update(&mut lens, Action::Move(Move::First), &data);
    assert!(update(&mut lens, Action::Enter, &data).is_empty());
    let notice = lens.notice.clone().unwrap();
    assert!(notice.contains("`clerk-*` takes `clerk-main` too"), "{notice}");
    assert_eq!((lens.scope.as_str(), lens.pane), ("handle", Pane::Threads));
    // The kernel's places have fields alone.
    lens.scope = "syscall:read".to_owned();
    lens.pane = Pane::Threads;
    update(&mut lens, Action::Drawn, &data);
    update(&mut lens, Action::Enter, &data);
    assert_eq!((lens.scope.as_str(), lens.pane), ("syscall:read", Pane::Graph));
    assert!(!lens.shape.threads.is_empty());
}

#[test]
fn threads_and_counters_are_the_next_step() {
    let (mut lens, mut service) = attached();
    let data = sample::by_thread();
    lens.pane = Pane::Threads;
    update(&mut lens, Action::Drawn, &data);
    assert_eq!(lens.selection(), Some(&Item::Threads("clerk-*".to_owned())));
    let effects = update(&mut lens, Action::Enter, &data);
    assert_eq!((lens.pane, lens.shape.threads.text()), (Pane::Graph, "clerk-*"));
    let by_thread = super::FlameView {
        by: By::Thread,
        ..super::FlameView::default()
    };
    assert!(
        effects.is_empty() || effects == [Effect::Flame(by_thread)],
        "{effects:?}"
    );
    do_all(&mut lens, &mut service, Action::Back);
    assert!(lens.shape.threads.is_empty());

    lens.pane = Pane::Timeline;
    let data = sample::busy();
    update(&mut lens, Action::Drawn, &data);
    update(&mut lens, Action::Move(Move::Down), &data);
    update(&mut lens, Action::Enter, &data);
    assert_eq!((lens.pane, lens.event.as_str()), (Pane::Graph, "page-faults"));
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!(lens.event, "");
}

#[test]
fn suggestions_are_for_what_is_typed() {
    let wanted = |text: &str| super::Input::new(super::Purpose::Scope, text).wanted();
    let step = |before: &str, fragment: &str| Wanted::Step {
        before: before.to_owned(),
        fragment: fragment.to_owned(),
    };
    assert_eq!(wanted("hand"), step("", "hand"));
    assert_eq!(wanted("f[>= p95]/\"a::<b"), step("f[>= p95]", "a::<b"));
    assert_eq!(wanted("f/"), step("f", ""));
    let value = Wanted::Value {
        step: "f/a.c:3".to_owned(),
        fragment: "re".to_owned(),
    };
    assert_eq!(wanted("f/a.c:3[re"), value);
    assert_eq!(wanted("f[n == 3"), Wanted::Nothing);
    assert_eq!(wanted("f*"), Wanted::Nothing);

    // In a recording, of functions that it has samples of.
    let mut data = sample::busy();
    data.suggest(&step("", "hdl"));
    let texts: Vec<&str> = data.completions.iter().map(|found| found.text.as_str()).collect();
    assert_eq!(texts, ["handle"]);
}

#[test]
fn a_session_whose_probes_took_too_much_goes_on_without_them() {
    let (mut lens, _) = attached();
    lens.scope = "hot".to_owned();
    lens.making = vec!["--frequency=499".to_owned()];
    let data = sample::busy();
    let ended = Action::Ended(End::other("the target exited"));
    assert!(update(&mut lens, ended, &data).is_empty());
    let why = "the probes took 9%, over the budget of 3%".to_owned();
    let over = Action::Ended(End {
        cause: v1::EndCause::Budget,
        reason: why.clone(),
    });
    let effects = update(&mut lens, over.clone(), &data);
    let attach = Effect::Attach {
        target: Target::Pid(4211),
        scope: String::new(),
    };
    assert_eq!(effects, [attach]);
    let left = lens.left_scope().unwrap().clone();
    assert_eq!((left.scope.as_str(), left.why), ("hot", why.clone()));
    assert_eq!(lens.making, ["--frequency=499"]);
    assert!(
        update(&mut lens, over, &data).is_empty(),
        "the other view says so too"
    );
    // A key takes it again, without a limit.
    lens.attaching = false;
    let attach = Effect::Attach {
        target: Target::Pid(4211),
        scope: "hot".to_owned(),
    };
    assert_eq!(
        update(&mut lens, Action::NoBudget, &data),
        [Effect::NoBudget, attach]
    );
    assert_eq!(lens.making, ["--frequency=499", "--budget=0"]);
}

#[test]
fn waits_and_system_calls_lead_to_the_calls_in_which_they_happen() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Show(Pane::Waits));
    do_all(&mut lens, &mut service, Action::Drawn);
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!((lens.scope.as_str(), lens.pane), ("handle", Pane::Latency));
    // Another thread's function is not inside of that.
    do_all(&mut lens, &mut service, Action::Show(Pane::Waits));
    do_all(&mut lens, &mut service, Action::Move(Move::Down));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.scope, "main");
    do_all(&mut lens, &mut service, Action::Show(Pane::Syscalls));
    do_all(&mut lens, &mut service, Action::Drawn);
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(
        (lens.scope.as_str(), lens.pane),
        ("main/syscall:read", Pane::Latency)
    );
}

#[test]
fn a_scope_that_is_refused_keeps_the_process_and_says_why() {
    let (mut lens, _) = attached();
    (lens.scope, lens.attaching) = ("main.c:12".to_owned(), true);
    let refused = Action::NotAttached {
        message: "A line alone has no samples.".to_owned(),
    };
    let attach = Effect::Attach {
        target: Target::Pid(4211),
        scope: String::new(),
    };
    assert_eq!(update(&mut lens, refused.clone(), &sample::busy()), [attach]);
    let everything = Action::Attached { scope: String::new() };
    update(&mut lens, everything, &sample::busy());
    assert_eq!(lens.notice.as_deref(), Some("A line alone has no samples."));
    // Where the process is what is refused, there is nothing to keep.
    lens.attaching = true;
    assert!(update(&mut lens, refused, &sample::busy()).is_empty());
    assert_eq!(lens.target, None);
}

#[test]
fn another_session_is_joined_from_the_screen() {
    let (mut lens, _) = attached();
    lens.pane = Pane::Sessions;
    lens.host = Some("/run/other.sock".to_owned());
    let mut data = sample::busy();
    data.sessions = vec![v1::Session {
        name: "web".to_owned(),
        ..v1::Session::default()
    }];
    update(&mut lens, Action::Drawn, &data);
    let effects = update(&mut lens, Action::Enter, &data);
    let target = Target::Session("web".to_owned());
    assert!(
        effects.contains(&Effect::Attach {
            target: target.clone(),
            scope: String::new()
        }),
        "{effects:?}"
    );
    assert_eq!(
        (lens.target, lens.host.as_deref()),
        (Some(target), Some("/run/other.sock"))
    );
}

#[test]
fn lines_and_libraries_are_the_next_step() {
    let (mut lens, mut service) = attached();
    lens.by = By::Line;
    let data = sample::by(v1::Grouping::Line);
    let parse = data
        .functions
        .iter()
        .find(|row| row.frame.function == "parse")
        .unwrap();
    lens.select(Item::Function(data.id_of(&parse.frame)));
    let effects = update(&mut lens, Action::Enter, &data);
    assert_eq!(lens.scope, "parse/server.cc:3");
    assert!(
        effects.contains(&Effect::SetScope(lens.scope.clone())),
        "{effects:?}"
    );

    lens.by = By::Module;
    let data = sample::by(v1::Grouping::Module);
    let row = data
        .functions
        .iter()
        .find(|row| row.frame.function == "compress")
        .unwrap();
    lens.select(Item::Function(data.id_of(&row.frame)));
    do_all(&mut lens, &mut service, Action::Nothing);
    lens.select(Item::Function(data.id_of(&row.frame)));
    update(&mut lens, Action::Enter, &data);
    assert_eq!((lens.by, lens.search.as_str()), (By::Function, "compress"));
}

#[test]
fn a_name_in_full_is_found_first() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Search);
    for c in "main".chars() {
        do_all(&mut lens, &mut service, Action::Type(Typing::Insert(c)));
    }
    do_all(&mut lens, &mut service, Action::Type(Typing::Confirm));
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!((lens.scope.as_str(), lens.search.as_str()), ("main", ""));
}

#[test]
fn a_reason_is_the_next_step() {
    let (mut lens, mut service) = attached();
    lens.scope = "handle".to_owned();
    service.scopes = vec!["handle".to_owned()];
    do_all(&mut lens, &mut service, Action::Show(Pane::Explain));
    assert_eq!(
        (lens.scope.as_str(), lens.pane),
        ("handle[>= p95]", Pane::Explain)
    );
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.scope, "handle[>= p95]/server.cc:13!else");
}

#[test]
fn copying_again_copies_the_verb() {
    let (mut lens, _) = attached();
    lens.scope = "f[>= p95]".to_owned();
    lens.pane = Pane::Difference;
    let data = sample::busy();
    let copied = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::Copy(text) => Some(text),
            _ => None,
        })
    };
    let screen = copied(update(&mut lens, Action::Copy, &data));
    assert_eq!(
        screen.as_deref(),
        Some("profiler tui -p 4211 'f[>= p95]' --pane diff")
    );
    let verb = copied(update(&mut lens, Action::Copy, &data));
    assert_eq!(verb.as_deref(), Some("profiler flame -p 4211 'f[>= p95]' --diff"));
    let url = copied(update(&mut lens, Action::Copy, &data));
    assert_eq!(
        url.as_deref(),
        Some("profiler tui 'profiler:tui?pid=4211&scope=f%5B%3E%3D%20p95%5D&pane=diff'")
    );
    assert_eq!(lens.overlay, Overlay::Url);
    update(&mut lens, Action::Nothing, &data);
    assert_eq!(lens.overlay, Overlay::None);
}

#[test]
fn a_recording_has_what_was_recorded_and_says_so_of_the_rest() {
    let (mut lens, mut service) = attached();
    lens.target = Some(recording());
    lens.scope = "handle".to_owned();
    service.scopes = vec!["handle".to_owned()];
    do_all(&mut lens, &mut service, Action::Show(Pane::Difference));
    assert_eq!(
        (lens.scope.as_str(), lens.pane),
        ("handle[>= p95]", Pane::Difference)
    );
    do_all(&mut lens, &mut service, Action::Show(Pane::Sessions));
    let notice = lens.notice.clone().unwrap_or_default();
    assert!(notice.starts_with("Recordings have no sessions"), "{notice}");
    assert_eq!(lens.pane, Pane::Difference);
    for (pane, verb) in [
        (Pane::Source, "flame"),
        (Pane::Explain, "explain"),
        (Pane::Spans, "spans"),
    ] {
        do_all(&mut lens, &mut service, Action::Show(pane));
        assert_eq!(lens.pane, pane, "{:?}", lens.notice);
        assert_eq!(of_verb(&lens)[1], verb);
    }
    let hits = update(&mut lens, Action::Show(Pane::Hits), &sample::busy());
    let of_scope = Effect::Hits {
        scope: lens.scope.clone(),
        print: Vec::new(),
    };
    assert!(hits.contains(&of_scope), "{hits:?}");
    do_all(&mut lens, &mut service, Action::Show(Pane::Difference));
    do_all(&mut lens, &mut service, Action::Processes);
    assert_eq!(lens.target, Some(recording()), "it is all that there is");
    let words = of_screen(&lens).join(" ");
    assert_eq!(
        words,
        "profiler tui --from incident.profrec --time=20.5s.. handle[>= p95] --pane diff"
    );
    let cli = Cli::try_parse_from(of_screen(&lens)).unwrap();
    let (_, Request::Tui(request)) = validate(cli).unwrap() else {
        panic!("another verb");
    };
    assert_eq!(request.lens.target, lens.target);
    lens.pane = Pane::Top;
    assert_eq!(of_verb(&lens)[1], "flame");
}

#[test]
fn parts_of_a_recording_are_looked_at_with_the_same_scope() {
    let whole = Target::Recording(Recorded {
        path: "a.profrec".to_owned(),
        time: RecordedTime::default(),
        without_scope: false,
    });
    let mut lens = Lens::on(Some(whole.clone()));
    let mut data = sample::busy();
    data.session = Some(Arc::new(v1::Session {
        recorded: Some(prost_types::Duration {
            seconds: 100,
            nanos: 0,
        }),
        ..v1::Session::default()
    }));
    let attached = || Action::Attached {
        scope: "handle".to_owned(),
    };
    update(&mut lens, attached(), &data);
    let effects = update(&mut lens, Action::Part(Part::Shorter), &data);
    let [Effect::Attach { target, scope }] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(scope, "handle");
    let Target::Recording(Recorded { time, .. }) = target else {
        panic!("{target:?}")
    };
    assert_eq!(time.to_string(), "0s..50s");
    assert!(lens.attaching);
    // What is refused leaves the part that there was.
    let refused = Action::NotAttached {
        message: "No.".to_owned(),
    };
    let effects = update(&mut lens, refused, &data);
    assert_eq!(
        effects,
        [Effect::Attach {
            target: whole,
            scope: "handle".to_owned()
        }]
    );
    assert_eq!(lens.notice.as_deref(), Some("No."));
    update(&mut lens, attached(), &data);
    assert!(update(&mut lens, Action::Part(Part::Later), &data).is_empty());
    assert!(
        lens.notice
            .as_deref()
            .unwrap_or_default()
            .contains("no more of the recording")
    );
}

#[test]
fn a_recording_without_its_scope_is_looked_at_so_again() {
    let mut lens = Lens::on(Some(recording()));
    // Until it has come, its scope is not known.
    lens.attaching = true;
    let from = "--from incident.profrec --time=20.5s..";
    assert_eq!(
        of_screen(&lens).join(" "),
        format!("profiler tui {from} --pane top")
    );
    let data = sample::busy();
    update(&mut lens, Action::Attached { scope: String::new() }, &data);
    assert_eq!(quoted(&of_screen(&lens)), format!("profiler tui {from} ''"));
    assert_eq!(quoted(&of_verb(&lens)), format!("profiler flame {from} ''"));
    let words = super::url::words(&super::url::of(&of_screen(&lens))).unwrap();
    let of_url = ["profiler", "tui"].map(str::to_owned).into_iter().chain(words);
    for again in [parsed(&lens), parsed_from(of_url.collect())] {
        let Some(Target::Recording(again)) = again.target else {
            panic!("{again:?}")
        };
        assert!(again.without_scope);
    }
    // Nor has another part of it.
    let mut data = sample::busy();
    data.session = Some(Arc::new(v1::Session {
        recorded: Some(prost_types::Duration {
            seconds: 100,
            nanos: 0,
        }),
        ..v1::Session::default()
    }));
    let effects = update(&mut lens, Action::Part(Part::Shorter), &data);
    assert!(
        matches!(&effects[..], [Effect::Attach { target: Target::Recording(part), .. }] if part.without_scope),
        "{effects:?}"
    );
}

#[test]
fn a_costly_step_is_attached_once_the_user_says_so() {
    let (mut lens, mut service) = attached();
    service.costly = "handle";
    let select = |lens: &mut Lens| {
        lens.pane = Pane::Top;
        let data = sample::busy();
        let row = data.functions.iter().find(|row| row.frame.function == "handle");
        lens.select(Item::Function(data.id_of(&row.unwrap().frame)));
    };
    select(&mut lens);
    do_all(&mut lens, &mut service, Action::Enter);
    let costly = lens.costly.clone().unwrap();
    assert_eq!(
        (costly.scope(), costly.cost().words.as_str()),
        ("handle", "4,096 places")
    );
    assert_eq!(
        (
            lens.scope.as_str(),
            lens.pane,
            lens.is_editing(),
            lens.trail.len()
        ),
        ("", Pane::Top, false, 0),
        "nothing has changed yet"
    );

    // A look at the keys leaves it open.
    do_all(&mut lens, &mut service, Action::Help);
    assert!(lens.costly.is_some() && lens.overlay == Overlay::Help);
    do_all(&mut lens, &mut service, Action::Back);
    assert!(lens.costly.is_some() && lens.overlay == Overlay::None);

    // Esc leaves it, and so does any other key, which does what it does.
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!((lens.costly.as_ref(), service.now().as_str()), (None, ""));
    do_all(&mut lens, &mut service, Action::Enter);
    assert!(lens.costly.is_some());
    do_all(&mut lens, &mut service, Action::Show(Pane::Graph));
    assert_eq!((lens.costly.as_ref(), lens.pane), (None, Pane::Graph));

    // What it would have been can be edited.
    select(&mut lens);
    do_all(&mut lens, &mut service, Action::Enter);
    do_all(&mut lens, &mut service, Action::EditScope);
    assert_eq!(
        lens.input.take().map(|input| input.text()),
        Some("handle".to_owned())
    );

    // It stays while text is typed.
    select(&mut lens);
    do_all(&mut lens, &mut service, Action::Search);
    lens.costly = Some(costly);
    do_all(&mut lens, &mut service, Action::Type(Typing::Cancel));
    assert!(lens.costly.is_some());
    // Or what is drawn over it is read.
    lens.overlay = Overlay::Help;
    do_all(&mut lens, &mut service, Action::Enter);
    assert!(lens.costly.is_some() && lens.overlay == Overlay::None);

    // Enter leads to where the step would have, and undo back.
    do_all(&mut lens, &mut service, Action::Enter);
    assert_eq!(lens.costly, None);
    assert_eq!(
        (lens.scope.as_str(), lens.pane, service.now().as_str()),
        ("handle", Pane::Latency, "handle")
    );
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((lens.scope.as_str(), lens.pane), ("", Pane::Top));

    // K has it in a session without a limit.
    do_all(&mut lens, &mut service, Action::Enter);
    let effects = update(&mut lens, Action::NoBudget, &sample::busy());
    let attach = Effect::Attach {
        target: Target::Pid(4211),
        scope: "handle".to_owned(),
    };
    assert_eq!(effects[..2], [Effect::NoBudget, attach]);
    assert!(lens.attaching && lens.making == ["--budget=0"]);
}

#[test]
fn hits_of_a_step_are_recorded_once_it_is_attached() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Show(Pane::Top));
    lens.scope = "handle".to_owned();
    service.scopes.push(lens.scope.clone());
    lens.edits = 1;
    let is_of_hits = |effect: &Effect| matches!(effect, Effect::Hits { .. });
    let effects = update(&mut lens, Action::Show(Pane::Hits), &sample::busy());
    assert!(!effects.iter().any(is_of_hits), "{effects:?}");
    let edited = Action::Edited {
        scope: "handle".to_owned(),
    };
    let effects = update(&mut lens, edited, &sample::busy());
    assert!(effects.iter().any(is_of_hits), "{effects:?}");
}

#[test]
fn a_branch_is_looked_at_in_the_function_that_is_shown() {
    let mut data = sample::busy();
    let enter = |data: &crate::tui::data::Data| {
        let (mut lens, _) = attached();
        (lens.pane, lens.source) = (Pane::Source, Some("handle".to_owned()));
        update(&mut lens, Action::Move(Move::Next), data);
        update(&mut lens, Action::Enter, data);
        lens.scope
    };
    let source = Arc::make_mut(data.source.as_mut().unwrap());
    source.function.as_mut().unwrap().address = 0x1180;
    assert_eq!(enter(&data), "handle/server.cc:13!else");
    let source = Arc::make_mut(data.source.as_mut().unwrap());
    source.function.as_mut().unwrap().address = 0;
    assert_eq!(enter(&data), "handle@inlined/server.cc:13!else");
}

#[test]
fn the_source_begins_at_the_line_of_the_last_step() {
    let mut data = sample::busy();
    Arc::make_mut(data.session.as_mut().unwrap()).scope = "handle/server.cc:13!taken".to_owned();
    let selected = |data: &crate::tui::data::Data| {
        let (mut lens, _) = attached();
        (lens.pane, lens.source) = (Pane::Source, Some("handle".to_owned()));
        update(&mut lens, Action::Drawn, data);
        let line = data.selected_line(&lens).map(|(_, line)| line.line);
        (line.unwrap(), data.selected_place(&lens).unwrap().to_string())
    };
    assert_eq!(selected(&data), (13, "server.cc:13!taken".to_owned()));
    // A line that was asked for comes first.
    let source = Arc::make_mut(data.source.as_mut().unwrap());
    source.marked_line = 14;
    source.lines[2].marked = true;
    assert_eq!(selected(&data).0, 14);
}

#[test]
fn panes_that_are_looked_into_are_left_by_escape() {
    for pane in [Pane::Losses, Pane::Threads, Pane::Timeline, Pane::Sessions] {
        let (mut lens, mut service) = attached();
        do_all(&mut lens, &mut service, Action::Show(Pane::Graph));
        do_all(&mut lens, &mut service, Action::Show(pane));
        do_all(&mut lens, &mut service, Action::Show(Pane::Losses));
        do_all(&mut lens, &mut service, Action::Back);
        assert_eq!(lens.pane, Pane::Graph, "{pane:?}");
        do_all(&mut lens, &mut service, Action::Back);
        assert_eq!(lens.pane, Pane::Graph, "{pane:?}");
    }
}

#[test]
fn a_search_goes_along_only_to_panes_that_have_the_same() {
    let (mut lens, mut service) = attached();
    lens.search = "parse".to_owned();
    do_all(&mut lens, &mut service, Action::Show(Pane::Graph));
    assert_eq!(lens.search, "parse");
    do_all(&mut lens, &mut service, Action::Show(Pane::Threads));
    assert_eq!(lens.search, "");
    // Where nothing can be found, functions are searched.
    do_all(&mut lens, &mut service, Action::Show(Pane::Waits));
    do_all(&mut lens, &mut service, Action::Search);
    do_all(&mut lens, &mut service, Action::Type(Typing::Insert('q')));
    assert_eq!(
        (lens.pane, lens.search.as_str()),
        (Pane::Waits, ""),
        "nothing is left before Enter"
    );
    do_all(&mut lens, &mut service, Action::Type(Typing::Confirm));
    assert_eq!((lens.pane, lens.search.as_str()), (Pane::Top, "q"));
    // Who comes back to a pane has its search again.
    do_all(&mut lens, &mut service, Action::Show(Pane::Losses));
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!((lens.pane, lens.search.as_str()), (Pane::Top, "q"));
}

#[test]
fn the_part_of_a_recording_is_typed() {
    let mut lens = Lens::on(Some(recording()));
    lens.whole = Some(Duration::from_mins(1));
    let mut service = Service::default();
    let mut type_part = |lens: &mut Lens, text: &str| {
        do_all(lens, &mut service, Action::EditPart);
        do_all(lens, &mut service, Action::Type(Typing::EraseAll));
        for c in text.chars() {
            do_all(lens, &mut service, Action::Type(Typing::Insert(c)));
        }
        do_all(lens, &mut service, Action::Type(Typing::Confirm));
    };
    let time = |lens: &Lens| match &lens.target {
        Some(Target::Recording(recorded)) => recorded.time.to_string(),
        _ => panic!("it is of a recording"),
    };
    type_part(&mut lens, "10s..20s");
    assert_eq!(time(&lens), "10s..20s");
    type_part(&mut lens, "15s");
    assert_eq!(time(&lens), "45s..", "its last 15 s");
    type_part(&mut lens, "soon");
    assert!(
        lens.notice
            .take()
            .is_some_and(|notice| notice.contains("10s..20s"))
    );
    assert_eq!(
        lens.input.take().map(|input| input.text()),
        Some("soon".to_owned())
    );
    type_part(&mut lens, "");
    assert_eq!(time(&lens), "45s..", "nothing was typed");
    type_part(&mut lens, "..");
    assert_eq!(time(&lens), "..", "all of it");

    // Processes go on: they have no parts.
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::EditPart);
    assert_eq!(lens.input, None);
}

#[test]
fn a_scope_that_was_left_stays_named_while_edits_are_refused() {
    let (mut lens, mut service) = attached();
    lens.left = Some(super::LeftScope {
        scope: "handle".to_owned(),
        why: "it took 9%".to_owned(),
    });
    lens.scope = String::new();
    let edit = |lens: &mut Lens, service: &mut Service, scope: &str| {
        do_all(lens, service, Action::EditScope);
        for c in scope.chars() {
            do_all(lens, service, Action::Type(Typing::Insert(c)));
        }
        do_all(lens, service, Action::Type(Typing::Confirm));
    };
    edit(&mut lens, &mut service, "refused");
    assert_eq!(lens.left_scope().map(|left| left.scope.as_str()), Some("handle"));
    do_all(&mut lens, &mut service, Action::Type(Typing::Cancel));
    edit(&mut lens, &mut service, "parse");
    assert_eq!((lens.scope.as_str(), lens.left_scope()), ("parse", None));
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((lens.scope.as_str(), lens.left_scope()), ("", None));
}

#[test]
fn edits_of_a_session_before_can_be_taken_back() {
    let (mut lens, mut service) = attached();
    do_all(&mut lens, &mut service, Action::Show(Pane::Top));
    do_all(&mut lens, &mut service, Action::Enter);
    do_all(&mut lens, &mut service, Action::Nudge(Towards::Slower));
    let (narrow, wide) = (lens.scope.clone(), lens.trail.last().unwrap().scope.clone());
    let mut data = sample::busy();
    data.latency.functions.get_mut(&1).unwrap().taken_off = Some(v1::TakenOff {
        reason: "it took 9%, over the budget of 3%".to_owned(),
        over_budget: true,
    });
    let effects = update(&mut lens, Action::NoBudget, &data);
    assert!(matches!(&effects[..2], [Effect::NoBudget, Effect::Attach { scope, .. }] if *scope == narrow));
    service.scopes = vec![narrow.clone()];
    do_all(
        &mut lens,
        &mut service,
        Action::Attached {
            scope: narrow.clone(),
        },
    );
    // The session has no edit, and is given the scope of before.
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((&lens.scope, &service.now()), (&wide, &wide));
    do_all(&mut lens, &mut service, Action::Redo);
    assert_eq!((&lens.scope, &service.now()), (&narrow, &narrow));
    do_all(&mut lens, &mut service, Action::Undo);
    do_all(&mut lens, &mut service, Action::Undo);
    assert_eq!((lens.scope.as_str(), service.now().as_str()), ("", ""));
}

#[test]
fn what_is_explained_are_the_calls_of_the_step_with_the_threshold() {
    let (mut lens, mut service) = attached();
    for (scope, explained) in [
        ("handle[>= p99]/parse/server.cc:13", "handle[>= p99]"),
        ("handle[>= 0ns]/server.cc:13", "handle[>= p95]"),
        ("handle/parse", "handle/parse[>= p95]"),
        ("handle[>= 0ns]/parse[>= 3ms]", "handle/parse[>= 3ms]"),
        ("handle[>= 0ns][< 5ms]", "handle[>= 0ns][< 5ms]"),
    ] {
        lens.scope = scope.to_owned();
        service.scopes = vec![scope.to_owned()];
        do_all(&mut lens, &mut service, Action::Show(Pane::Explain));
        assert_eq!((lens.scope.as_str(), lens.pane), (explained, Pane::Explain));
    }
}

#[test]
fn a_finding_of_samples_without_a_step_is_found_in_the_flame_graph() {
    let (mut lens, _) = attached();
    lens.scope = "handle[>= p95]".to_owned();
    update(&mut lens, Action::Show(Pane::Explain), &sample::busy());
    let mut data = sample::busy();
    let finding = &mut data.aside.explained.as_mut().unwrap().findings[0];
    finding.kind = v1::finding::Kind::Frame.into();
    finding.text = "samples in compress".to_owned();
    finding.next = String::new();
    lens.select(Item::Finding("samples in compress".to_owned()));
    assert!(
        update(&mut lens, Action::Enter, &data)
            .iter()
            .all(|effect| !matches!(effect, Effect::SetScope(_)))
    );
    assert_eq!((lens.pane, lens.search.as_str()), (Pane::Graph, "compress"));
}

#[test]
fn escape_leads_back_to_the_source_that_was_shown_and_never_stays() {
    let (mut lens, mut service) = attached();
    lens.scope = "handle".to_owned();
    service.scopes = vec![lens.scope.clone()];
    (lens.pane, lens.source) = (Pane::Source, Some("compress".to_owned()));
    do_all(&mut lens, &mut service, Action::Show(Pane::Threads));
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!(
        (lens.pane, lens.source.as_deref()),
        (Pane::Source, Some("compress"))
    );
    // A pane that everything has not.
    do_all(&mut lens, &mut service, Action::Show(Pane::Latency));
    do_all(&mut lens, &mut service, Action::Show(Pane::Threads));
    lens.scope = String::new();
    service.scopes.push(String::new());
    do_all(&mut lens, &mut service, Action::Back);
    assert_eq!((lens.pane, lens.notice), (Pane::Top, None));
}
