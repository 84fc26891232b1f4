//! How the service is looked at: a value without a terminal, a clock or a connection. [`update`] is all that changes it.

mod action;
mod attaching;
mod command_line;
mod effect;
mod enter;
mod input;
mod item;
pub mod message;
mod pane;
mod part;
pub mod path;
mod pointing;
mod shaping;
#[cfg(test)]
mod tests;
mod typing;
mod update;
pub mod url;

use std::{collections::HashMap, time::Duration};

use profiler_scope::Place;

pub use self::{
    action::{Action, Move, Typing},
    command_line::{BETWEEN_FRAMES, of_screen, of_url, of_verb, quoted},
    effect::{Effect, FlameView, Recorded, Target},
    enter::sampled_function,
    input::{Input, Purpose, Suggestion, Wanted},
    item::{Band, Item, LineId, LossId, MomentId, Mouse, Spot},
    pane::{Pane, Picture},
    part::Part,
    update::update,
};
pub use crate::state::functions::FrameId;
use crate::{
    cli::args::By,
    render::escape::terminal,
    state::{
        functions::Sort,
        shape::{Around, Shape},
    },
};

/// Edits that can be taken back on the screen too.
const MAX_TRAIL: usize = 256;
/// Most functions that are marked.
const MAX_MARKED: usize = 32;
/// Why a scope of what another tool wrote is refused.
pub const NO_SCOPE: &str =
    "A profile of another tool has stacks alone, neither calls nor threads: it has no scope.";

/// Most edits that are under way: as many as the service keeps.
const MAX_EDITS: u32 = 64;

/// What is drawn over the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys of the pane.
    Help,
    /// The keys of all panes.
    MoreHelp,
    /// What scopes are made of.
    Scopes,
    /// The command line of the screen, which has been copied.
    Screen,
    /// That of the same without a screen, which has been copied.
    Verb,
    /// The screen as a URL, which has been copied.
    Url,
}

/// What a terminal has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a row.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

impl Default for Size {
    /// As terminals have been since there are any.
    fn default() -> Self {
        Self {
            columns: 80,
            rows: 24,
        }
    }
}

/// Where the user was before an edit of the scope.
#[derive(Clone, Debug, PartialEq)]
struct Before {
    scope: String,
    /// Edits that led on from there and are taken back together; none of those in a session before this one.
    edits: u32,
    pane: Pane,
    zoom: Vec<FrameId>,
    source: Option<String>,
    place: Option<Place>,
    search: String,
    selected: HashMap<Option<Pane>, Item>,
}

/// An edit of the scope that is done once the user has said so.
#[derive(Clone, Debug, PartialEq)]
pub struct Costly {
    /// Where it leads to.
    next: Before,
    /// What is costly about it.
    cost: CostOfEdit,
}

/// What is costly about an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostOfEdit {
    /// In a clause.
    pub words: String,
    /// The probes would take more of the target's CPU time than they may.
    pub over_budget: bool,
}

impl CostOfEdit {
    /// The same, without what would do something to a terminal.
    #[must_use]
    pub fn escaped(self) -> Self {
        Self {
            words: terminal(&self.words).into_owned(),
            ..self
        }
    }
}

impl Costly {
    /// The scope that it makes.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.next.scope
    }

    /// What is costly about it.
    #[must_use]
    pub const fn cost(&self) -> &CostOfEdit {
        &self.cost
    }
}

/// The pane that `Esc` leads back to, as it was.
#[derive(Clone, Debug, Default, PartialEq)]
struct CameFrom {
    pane: Pane,
    search: String,
}

/// A scope whose session ended because its probes cost too much.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftScope {
    /// The scope.
    pub scope: String,
    /// What its probes cost, in a clause.
    pub why: String,
}

/// The lens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lens {
    /// What is looked at; `None` while that is chosen.
    pub target: Option<Target>,
    /// The daemon that was given; `None` for the usual one.
    pub host: Option<String>,
    /// Flags that sessions are made with, as they were given.
    pub making: Vec<String>,
    /// A session was asked for, and has not come.
    pub attaching: bool,
    /// There is none: what was asked for was refused.
    unattached: bool,
    /// The scope that was left because its probes cost too much, and why.
    left: Option<LeftScope>,
    /// How long all of the recording is, once that is known.
    whole: Option<Duration>,
    /// The part of the recording that was looked at before, until the next one has come.
    part_before: Option<Recorded>,
    /// The scope, as it will be once the service has done what it was asked.
    pub scope: String,
    /// The screen.
    pub pane: Pane,
    /// What was left for a pane that is only looked into.
    came_from: CameFrom,
    /// By screen; `None` is that of the processes.
    selected: HashMap<Option<Pane>, Item>,
    /// What frames stand for.
    pub by: By,
    /// The event that is drawn; empty for time.
    pub event: String,
    /// What is made of stacks.
    pub shape: Shape,
    /// Boxes and functions that have less of all are left out, in tenths of a percent.
    pub at_least: u16,
    /// The frames from the root to the box that fills the flame graph; none for all of it.
    pub zoom: Vec<FrameId>,
    /// The other end of the selected bars of the histogram.
    pub mark: Option<Band>,
    /// Names of functions that are marked, in the order in which they were: all is seen from them together.
    pub marked: Vec<String>,
    /// How durations are drawn.
    pub picture: Picture,
    /// What there is room for: a histogram has as many bars as fit.
    pub size: Size,
    /// What is searched for; empty for nothing.
    pub search: String,
    /// The order of functions.
    pub sort: Sort,
    /// The function or line whose source is shown.
    pub source: Option<String>,
    /// What of the selected line, where there is more than one thing.
    pub place: Option<Place>,
    /// The selected expression of hits.
    pub value: Option<String>,
    /// Expressions whose values are shown; none for those that are known at the place.
    pub print: Vec<String>,
    /// Nothing new is drawn.
    pub frozen: bool,
    /// Who has the mouse.
    pub mouse: Mouse,
    /// What was clicked, until anything else is done.
    pointed: Option<Pointed>,
    /// Text that is being typed.
    pub input: Option<Input>,
    /// What is drawn over the screen.
    pub overlay: Overlay,
    /// What went wrong, until the next key.
    pub notice: Option<String>,
    /// What the next key decides on: an edit that would be costly.
    pub costly: Option<Costly>,
    /// The scope that was typed last, until the service has answered.
    typed: Option<Input>,
    /// Edits that the service has not answered.
    edits: u32,
    trail: Vec<Before>,
    /// What was left by taking edits back, until another one is made.
    ahead: Vec<Before>,
    /// The trail when all edits were answered.
    settled: Vec<Before>,
    /// What was asked for last, of what follows from the screen.
    asked: Asked,
}

/// What was clicked.
#[derive(Clone, Debug, PartialEq)]
struct Pointed {
    spot: Spot,
    /// The row of the screen that it stood on.
    row: u16,
    /// The threshold was drawn there.
    is_threshold: bool,
}

impl Pointed {
    const fn at(spot: Spot, row: u16) -> Self {
        Self {
            spot,
            row,
            is_threshold: false,
        }
    }
}

/// What follows from the screen, and so is asked for when that changes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Asked {
    flame: FlameView,
    source: Option<String>,
    hits: Option<Hits>,
    aside: Option<(Pane, String)>,
}

/// Hits of a scope with values.
#[derive(Clone, Debug, PartialEq)]
struct Hits {
    scope: String,
    print: Vec<String>,
}

impl Lens {
    /// All of a target; without one, the choice of a process.
    #[must_use]
    pub fn on(target: Option<Target>) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// What is selected on the screen.
    #[must_use]
    pub fn selection(&self) -> Option<&Item> {
        self.selected.get(&self.screen())
    }

    /// The screen, or `None` while a process is chosen.
    #[must_use]
    pub fn screen(&self) -> Option<Pane> {
        self.target.as_ref().map(|_| self.pane)
    }

    /// Whether a recording is looked at, or what another tool wrote.
    #[must_use]
    pub const fn is_of_recording(&self) -> bool {
        matches!(self.target, Some(Target::Recording(_) | Target::Profile(_)))
    }

    /// Whether threads that are chosen become a condition of the scope: it has a step in the program, which can be probed anew.
    #[must_use]
    pub fn takes_threads(&self) -> bool {
        !self.is_of_recording() && path::takes_threads(&self.scope)
    }

    /// Whether what is looked at has stacks and nothing else: another tool wrote it.
    #[must_use]
    pub const fn has_stacks_alone(&self) -> bool {
        matches!(self.target, Some(Target::Profile(_)))
    }

    /// The scope that was left because its probes cost too much, as long as no other is looked at.
    #[must_use]
    pub fn left_scope(&self) -> Option<&LeftScope> {
        self.left.as_ref().filter(|_| self.scope.is_empty())
    }

    /// Whether a recording has nothing to show for what was asked: it was refused.
    #[must_use]
    pub const fn is_unattached(&self) -> bool {
        self.unattached
    }

    /// Whether there is such a screen of the target.
    #[must_use]
    pub const fn has(&self, pane: Pane) -> bool {
        match (self.is_of_recording(), self.has_stacks_alone()) {
            (_, true) => matches!(pane, Pane::Top | Pane::Graph),
            (true, false) => pane.is_recorded(),
            (false, false) => true,
        }
    }

    /// The scope that a pane with a stream of its own is of.
    #[must_use]
    pub fn scope_aside(&self, pane: Pane) -> String {
        match pane {
            // They end before the duration of their call is known.
            Pane::Waits | Pane::Syscalls => path::without_thresholds(&self.scope),
            _ => self.scope.clone(),
        }
    }

    /// Whether there are edits that can be taken back; of a session that others edit too, there may be.
    #[must_use]
    pub fn has_edits(&self) -> bool {
        !self.trail.is_empty() || matches!(self.target, Some(Target::Session(_)))
    }

    /// Whether edits of the scope are under way.
    #[must_use]
    pub const fn is_editing(&self) -> bool {
        self.edits > 0
    }

    /// Whether taking the last edit back leaves the scope without its last step, and else as it is.
    #[must_use]
    pub fn last_edit_added_a_step(&self) -> bool {
        let steps = path::steps(&self.scope);
        let without_last = steps.split_last().map(|(_, before)| before);
        self.trail
            .last()
            .is_some_and(|before| without_last == Some(path::steps(&before.scope).as_slice()))
    }

    /// Another look from this place: at the same terminal, with the same daemon.
    #[must_use]
    fn anew(&self) -> Self {
        Self {
            host: self.host.clone(),
            making: self.making.clone(),
            mouse: self.mouse,
            size: self.size,
            ..Self::default()
        }
    }

    /// The flame view that the screen is made of. Threads are told apart by one of its own.
    #[must_use]
    pub fn flame_view(&self) -> FlameView {
        let by_thread = self.pane == Pane::Threads || !self.shape.threads.is_empty();
        let by = match self.pane {
            _ if by_thread => By::Thread,
            // Lines have their samples beside them.
            Pane::Source => By::Line,
            _ => self.by,
        };
        FlameView {
            difference: self.pane == Pane::Difference,
            by,
            event: self.event.clone(),
        }
    }

    /// What the screen makes of stacks. Those that are compared are compared whole; only threads can be left out.
    #[must_use]
    pub fn shape_shown(&self) -> Shape {
        match self.pane {
            Pane::Difference | Pane::Threads => Shape::default(),
            Pane::Graph => self.shape.clone(),
            _ => Shape {
                around: None,
                ..self.shape.clone()
            },
        }
    }

    /// The share below which boxes and functions are left out.
    #[must_use]
    pub fn least_share(&self) -> f64 {
        f64::from(self.at_least) / 1000.0
    }

    /// What the screen shows of the stacks, in words; empty where it is all.
    #[must_use]
    pub fn shape_in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.event.is_empty() {
            words.push(format!("of {}", self.event));
        }
        words.extend(in_words(&self.shape_shown()));
        if self.at_least > 0 {
            words.push(format!("at least {}%", f64::from(self.at_least) / 10.0));
        }
        words
    }

    /// What of the stacks other panes leave out or put together, and a difference does not, in words.
    #[must_use]
    pub fn shape_not_compared(&self) -> Vec<String> {
        if self.pane == Pane::Difference {
            in_words(&self.shape)
        } else {
            Vec::new()
        }
    }

    /// Bars of the histogram at most, next to what else its pane shows.
    #[must_use]
    pub fn most_bars(&self) -> usize {
        const OTHER_LINES: usize = 15;
        usize::from(self.size.rows)
            .saturating_sub(OTHER_LINES)
            .clamp(3, 24)
    }

    /// A scope that was refused goes on being typed, as one that is none does; unless it was another one that was, or the user does
    /// something else by now.
    fn type_again(&mut self, is_it: bool) {
        let typed = self.typed.take().filter(|_| is_it);
        self.input = self.input.take().or(typed);
    }

    /// Selects nothing on the screen.
    fn unselect(&mut self) {
        self.selected.remove(&self.screen());
    }

    /// Selects something else on the screen.
    pub fn select(&mut self, item: Item) {
        self.selected.insert(self.screen(), item);
    }

    fn here(&self) -> Before {
        Before {
            scope: self.scope.clone(),
            edits: 1,
            pane: self.pane,
            zoom: self.zoom.clone(),
            source: self.source.clone(),
            place: self.place.clone(),
            search: self.search.clone(),
            selected: self.selected.clone(),
        }
    }

    fn go_back(&mut self, before: Before) {
        let Before {
            scope,
            edits: _,
            pane,
            zoom,
            source,
            place,
            search,
            selected,
        } = before;
        self.scope = scope;
        self.pane = pane;
        self.zoom = zoom;
        self.source = source;
        self.place = place;
        self.search = search;
        self.selected = selected;
    }
}

/// What is made of stacks, in words.
fn in_words(shape: &Shape) -> Vec<String> {
    let mut words = Vec::new();
    if !shape.threads.is_empty() {
        words.push(format!("threads {}", shape.threads.text()));
    }
    match &shape.around {
        Some(Around::Callees(functions)) => words.push(format!("what {} calls", functions.text())),
        Some(Around::Callers(functions)) => words.push(format!("who calls {}", functions.text())),
        None => {}
    }
    if !shape.hide.is_empty() {
        words.push(format!("without {}", shape.hide.text()));
    }
    if !shape.fold.is_empty() {
        words.push(format!("{} folded", shape.fold.text()));
    }
    if shape.collapse {
        words.push("recursion as one call".to_owned());
    }
    words
}
