//! What the mouse does: the same as keys, to what it points at.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::{
    data::Data,
    keys,
    lens::{Action, Item, Lens, Mouse, Spot},
    view::Spots,
};

/// What an event of the mouse does on the screen that was drawn last; `None` where it does nothing. The wheel does what arrow
/// keys do. While text is typed, nothing is pointed at.
#[must_use]
pub fn action(event: MouseEvent, spots: &Spots, lens: &Lens, data: &Data) -> Option<Action> {
    // What was on its way when it was switched off.
    if lens.mouse == Mouse::OfTerminal {
        return None;
    }
    let arrow = |code| keys::action(&KeyEvent::new(code, KeyModifiers::NONE), lens);
    match event.kind {
        MouseEventKind::ScrollUp => arrow(KeyCode::Up),
        MouseEventKind::ScrollDown => arrow(KeyCode::Down),
        MouseEventKind::ScrollLeft => arrow(KeyCode::Left),
        MouseEventKind::ScrollRight => arrow(KeyCode::Right),
        MouseEventKind::Down(MouseButton::Left) if lens.input.is_none() => {
            let at = Position::new(event.column, event.row);
            // It takes away what is drawn over the screen, as a key does.
            Some(
                spots
                    .at(at, data)
                    .map_or(Action::Nothing, |spot| Action::Point { spot, row: event.row }),
            )
        }
        MouseEventKind::Drag(MouseButton::Left) if lens.input.is_none() => {
            let spot = spots.at(Position::new(event.column, event.row), data)?;
            let is_bar = matches!(spot, Spot::Item(Item::Bar(_)));
            is_bar.then_some(Action::Drag { spot, row: event.row })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::v1;
    use ratatui::{
        buffer::{Buffer, Cell},
        layout::Rect,
        style::Modifier,
    };

    use super::*;
    use crate::tui::{
        lens::{Effect, Move, Overlay, Pane, Target, Typing, update},
        sample,
        view::{
            self,
            theme::{Depth, Theme},
        },
    };

    const AREA: Rect = Rect::new(0, 0, 80, 24);

    struct Frame {
        cells: Buffer,
        spots: Spots,
    }

    impl Frame {
        fn draw(lens: &mut Lens, data: &Data) -> Self {
            update(lens, Action::Drawn, data);
            let mut cells = Buffer::empty(AREA);
            let spots = view::draw(&mut cells, lens, data, Theme { depth: Depth::None });
            Self { cells, spots }
        }

        fn row(&self, y: u16) -> String {
            (0..AREA.width).map(|x| self.cells[(x, y)].symbol()).collect()
        }

        fn is_highlighted(&self, at: Position) -> bool {
            self.cells[at].modifier.contains(Modifier::REVERSED)
        }

        /// A click there, as an action.
        fn click(&self, at: Position, lens: &Lens, data: &Data) -> Option<Action> {
            action(
                event(MouseEventKind::Down(MouseButton::Left), at),
                &self.spots,
                lens,
                data,
            )
        }
    }

    const fn event(kind: MouseEventKind, at: Position) -> MouseEvent {
        MouseEvent {
            kind,
            column: at.x,
            row: at.y,
            modifiers: KeyModifiers::NONE,
        }
    }

    fn session(name: &str) -> v1::Session {
        v1::Session {
            name: name.to_owned(),
            ..v1::Session::default()
        }
    }

    /// A pane with all that it can have.
    fn pane(pane: Pane) -> (Lens, Data) {
        let mut lens = Lens::on(Some(Target::Pid(4211)));
        lens.pane = pane;
        lens.scope = "handle[>= p95]".to_owned();
        lens.source = Some("handle".to_owned());
        let mut data = sample::busy();
        if pane == Pane::Threads {
            data.flame = sample::by_thread().flame;
            data.stale = true;
        }
        data.sessions = ["web", "batch"].map(session).to_vec();
        data.settle(&lens);
        (lens, data)
    }

    /// Clicks everything that can be selected on a screen. Says how many different things there were.
    fn click_all(lens: &Lens, data: &Data) -> usize {
        let mut clicked: Vec<Spot> = Vec::new();
        let mut shown = lens.clone();
        let before = Frame::draw(&mut shown, data);
        for at in AREA.positions() {
            let mut lens = shown.clone();
            let Some(spot) = before
                .spots
                .at(at, data)
                .filter(|spot| !matches!(spot, Spot::Pane(_)))
            else {
                continue;
            };
            if clicked.contains(&spot) {
                continue;
            }
            let click = before.click(at, &lens, data).unwrap();
            assert_eq!(update(&mut lens, click, data), Vec::<Effect>::new());
            let item = match &spot {
                Spot::Item(item) => item.clone(),
                Spot::Value { hit, expression } => {
                    assert_eq!(lens.value.as_ref(), Some(expression));
                    Item::Hit(*hit)
                }
                Spot::Pane(_) => unreachable!(),
            };
            assert_eq!(lens.selection(), Some(&item));

            // What is seen under the pointer is as before, and is what is highlighted now.
            let after = Frame::draw(&mut lens, data);
            assert_eq!(lens.selection(), Some(&item), "it is there, and stays selected");
            let text = |frame: &Frame| frame.row(at.y).replace('▸', " ");
            assert_eq!(text(&before), text(&after), "{spot:?}");
            let is_marked = matches!(item, Item::Hit(_)) && after.row(at.y).starts_with('▸');
            assert!(after.is_highlighted(at) || is_marked, "{spot:?} at {at}");

            // Again, it does what Enter does.
            let again = after.click(at, &lens, data).unwrap();
            let mut entered = lens.clone();
            let by_key = update(&mut entered, Action::Enter, data);
            assert_eq!(update(&mut lens, again, data), by_key, "{spot:?}");
            assert_eq!(lens, entered);
            clicked.push(spot);
        }
        clicked.len()
    }

    #[test]
    fn a_click_selects_what_is_drawn_there_and_a_second_one_enters_it() {
        for shown in Pane::ALL {
            let (lens, data) = pane(shown);
            let least = match shown {
                Pane::Losses | Pane::Explain => 1,
                _ => 2,
            };
            let count = click_all(&lens, &data);
            assert!(count >= least, "{count} of {shown:?}");
        }
        assert!(
            click_all(&Lens::default(), &sample::busy()) >= 2,
            "of the processes"
        );
    }

    #[test]
    fn a_row_is_the_function_that_is_named_there() {
        let (mut lens, data) = pane(Pane::Top);
        let frame = Frame::draw(&mut lens, &data);
        let y = AREA
            .rows()
            .find(|row| frame.row(row.y).contains(" compress "))
            .unwrap()
            .y;
        let click = frame.click(Position::new(60, y), &lens, &data).unwrap();
        update(&mut lens, click, &data);
        let Some(Item::Function(function)) = lens.selection() else {
            panic!("{:?}", lens.selection());
        };
        assert_eq!(function.function, "compress");
    }

    #[test]
    fn a_box_is_the_stack_that_is_drawn_there() {
        let (mut lens, data) = pane(Pane::Graph);
        let frame = Frame::draw(&mut lens, &data);
        let is_begin = |at: &Position, name: &str| {
            let row: Vec<&str> = (at.x..AREA.width)
                .map(|x| frame.cells.cell((x, at.y)).map_or("", Cell::symbol))
                .collect();
            row.concat().starts_with(name)
        };
        let at = AREA.positions().find(|at| is_begin(at, "▏compress")).unwrap();
        let click = frame.click(at, &lens, &data).unwrap();
        update(&mut lens, click, &data);
        let Some(Item::Stack(stack)) = lens.selection() else {
            panic!("{:?}", lens.selection());
        };
        assert_eq!(stack.last().unwrap().function, "compress");
    }

    #[test]
    fn each_tab_leads_to_its_pane() {
        let (mut lens, data) = pane(Pane::Top);
        let frame = Frame::draw(&mut lens, &data);
        for pane in Pane::ALL {
            let spot = Spot::Pane(pane);
            let at = AREA
                .positions()
                .find(|at| frame.spots.at(*at, &data).as_ref() == Some(&spot))
                .unwrap();
            let key = keys::KEYS
                .iter()
                .find(|binding| binding.action == Action::Show(pane))
                .unwrap();
            assert_eq!(frame.cells[at].symbol(), key.keys[0].name());
            let (mut clicked, mut pressed) = (lens.clone(), lens.clone());
            let click = frame.click(at, &lens, &data).unwrap();
            assert_eq!(
                update(&mut clicked, click, &data),
                update(&mut pressed, Action::Show(pane), &data)
            );
            assert_eq!(clicked, pressed);
        }
    }

    #[test]
    fn a_click_on_the_first_row_or_after_a_key_only_selects() {
        let (mut lens, data) = pane(Pane::Top);
        let frame = Frame::draw(&mut lens, &data);
        let at = AREA
            .positions()
            .find(|at| matches!(frame.spots.at(*at, &data), Some(Spot::Item(_))));
        let at = at.unwrap();
        // It is selected from the beginning, as the first row is: nobody has clicked it.
        for _ in 0..2 {
            let click = frame.click(at, &lens, &data).unwrap();
            assert_eq!(update(&mut lens, click, &data), []);
            assert_eq!(lens.pane, Pane::Top);
            update(&mut lens, Action::Nothing, &data);
        }
    }

    #[test]
    fn the_wheel_does_what_arrows_do() {
        let (lens, data) = pane(Pane::Graph);
        let spots = Spots::default();
        for (kind, towards) in [
            (MouseEventKind::ScrollUp, Move::Up),
            (MouseEventKind::ScrollDown, Move::Down),
            (MouseEventKind::ScrollLeft, Move::Left),
            (MouseEventKind::ScrollRight, Move::Right),
        ] {
            let turned = action(event(kind, Position::ORIGIN), &spots, &lens, &data);
            assert_eq!(turned, Some(Action::Move(towards)));
        }
    }

    #[test]
    fn the_threshold_is_drawn_from_bar_to_bar_and_one_undo_takes_it_back() {
        let (mut lens, data) = pane(Pane::Latency);
        let before = lens.scope.clone();
        let frame = Frame::draw(&mut lens, &data);
        let bars: Vec<Position> = AREA
            .rows()
            .map(|row| Position::new(40, row.y))
            .filter(|at| matches!(frame.spots.at(*at, &data), Some(Spot::Item(Item::Bar(_)))))
            .collect();
        assert!(bars.len() >= 4, "{}", bars.len());
        let drag = |at, lens: &Lens| {
            let event = event(MouseEventKind::Drag(MouseButton::Left), at);
            action(event, &frame.spots, lens, &data)
        };
        let click = frame.click(bars[0], &lens, &data).unwrap();
        update(&mut lens, click, &data);
        // Trembling on it does nothing.
        let on_it = drag(bars[0], &lens).unwrap();
        assert_eq!(update(&mut lens, on_it, &data), []);
        let mut scopes = vec![before.clone()];
        for at in &bars[1..] {
            let drawn = drag(*at, &lens).unwrap();
            let effects = update(&mut lens, drawn, &data);
            assert_eq!(effects, [Effect::SetScope(lens.scope.clone())]);
            assert!(lens.scope.starts_with("handle[>= "), "{}", lens.scope);
            assert!(!scopes.contains(&lens.scope), "{}", lens.scope);
            scopes.push(lens.scope.clone());
        }
        // A click there is one that selects.
        let last = *bars.last().unwrap();
        let click = frame.click(last, &lens, &data).unwrap();
        assert_eq!(update(&mut lens, click, &data), []);
        let edits = u32::try_from(scopes.len() - 1).unwrap();
        assert_eq!(update(&mut lens, Action::Undo, &data), [Effect::Undo(edits)]);
        assert_eq!(lens.scope, before);
    }

    #[test]
    fn nothing_is_pointed_at_through_what_is_drawn_over_it() {
        let (mut lens, data) = pane(Pane::Top);
        let frame = Frame::draw(&mut lens, &data);
        let below = AREA
            .positions()
            .find(|at| at.y == 8 && at.x > 30 && matches!(frame.spots.at(*at, &data), Some(Spot::Item(_))));
        let below = below.unwrap();
        lens.overlay = Overlay::Help;
        let frame = Frame::draw(&mut lens, &data);
        assert_eq!(
            frame.click(below, &lens, &data),
            Some(Action::Nothing),
            "it closes the help"
        );
    }

    #[test]
    fn text_that_is_typed_and_the_terminals_mouse_are_left_alone() {
        let (mut lens, data) = pane(Pane::Top);
        let frame = Frame::draw(&mut lens, &data);
        let at = Position::new(10, 8);
        update(&mut lens, Action::Search, &data);
        assert_eq!(frame.click(at, &lens, &data), None);
        update(&mut lens, Action::Type(Typing::Cancel), &data);
        assert!(frame.click(at, &lens, &data).is_some());
        assert_eq!(
            update(&mut lens, Action::Mouse, &data),
            [Effect::Mouse(Mouse::OfTerminal)]
        );
        assert_eq!(frame.click(at, &lens, &data), None);
    }
}
