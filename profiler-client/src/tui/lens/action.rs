//! What can happen to a lens.

use super::{CostOfEdit, Pane, Part, Size, Spot, path::Towards};
use crate::state::end::End;

/// Which way a selection moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To the row above, or the caller.
    Up,
    /// To the row below, or the widest callee.
    Down,
    /// To what is left of it.
    Left,
    /// To what is right of it.
    Right,
    /// Ten rows up.
    PageUp,
    /// Ten rows down.
    PageDown,
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// To the next place of interest: a match of the search, a branch.
    Next,
    /// To the one before.
    Previous,
}

/// Keys while text is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typing {
    /// A character.
    Insert(char),
    /// Takes the character before the cursor away.
    Erase,
    /// Takes the word before the cursor away.
    EraseWord,
    /// Takes everything away.
    EraseAll,
    /// The cursor to the left.
    Left,
    /// The cursor to the right.
    Right,
    /// The cursor to the beginning.
    Home,
    /// The cursor to the end.
    End,
    /// The suggestion above.
    Up,
    /// The suggestion below.
    Down,
    /// Takes a suggestion.
    Complete,
    /// Done.
    Confirm,
    /// Forget it.
    Cancel,
}

/// What the user asks for, or what the service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Another screen.
    Show(Pane),
    /// Another selection.
    Move(Move),
    /// What was clicked is selected; if it was clicked before too, it is entered.
    Point {
        /// What it is.
        spot: Spot,
        /// The row of the screen that it stands on, where it stays.
        row: u16,
    },
    /// The mouse was drawn there with its button down: from a bar to another one, the threshold goes along.
    Drag {
        /// What is there.
        spot: Spot,
        /// The row of the screen that it stands on.
        row: u16,
    },
    /// The mouse selects here, or text of the terminal.
    Mouse,
    /// What is selected, one step further in.
    Enter,
    /// What is selected, as a step, on the same screen.
    Inside,
    /// Values where the selection is.
    Values,
    /// Out of what was entered last, up to the last edit of the scope.
    Back,
    /// The last edit of the scope is taken back.
    Undo,
    /// To the scope and screen that the last undo left.
    Redo,
    /// The threshold at another percentile.
    Nudge(Towards),
    /// Another part of the recording.
    Part(Part),
    /// The part of the recording is typed.
    EditPart,
    /// The other end of the selected bars is here.
    Mark,
    /// Calls are slow from the selected bar on.
    Threshold,
    /// Bars, or durations over time.
    Picture,
    /// Functions, lines or libraries.
    By,
    /// Functions that are left out are typed.
    EditHide,
    /// Functions that are part of their callers are typed.
    EditFold,
    /// A function that calls itself is one call, or no longer.
    Collapse,
    /// What is narrower than another share is left out.
    AtLeast,
    /// All is seen from the selected function: what it calls; who calls it; no longer.
    Around,
    /// The order of functions.
    Sort,
    /// The scope is edited as text.
    EditScope,
    /// Text is searched for.
    Search,
    /// Expressions whose values are shown.
    EditPrint,
    /// Text is typed.
    Type(Typing),
    /// What is shown stands still, or goes on.
    Freeze,
    /// All keys, or no longer.
    Help,
    /// The command line of the screen is shown and copied.
    Copy,
    /// What comes is written into a file, or no longer.
    Record,
    /// Probes may cost whatever they cost.
    NoBudget,
    /// Other processes.
    Processes,
    /// The terminal's shell, until told to go on.
    Suspend,
    /// The end.
    Quit,
    /// A key that does nothing.
    Nothing,
    /// The terminal has so many columns and rows.
    Resized(Size),
    /// What came last is on the screen: selections are bound to it.
    Drawn,
    /// A session was made, or found, with this scope.
    Attached {
        /// Canonical text.
        scope: String,
    },
    /// The session's scope was edited.
    Edited {
        /// Canonical text.
        scope: String,
    },
    /// It was not: why, and what its scope still is.
    Refused {
        /// In sentences.
        message: String,
        /// Canonical text.
        scope: String,
    },
    /// It was not, as it would be costly: the user is asked.
    Costly {
        /// The scope that was asked for.
        wanted: String,
        /// What is costly about it.
        cost: CostOfEdit,
        /// What the scope still is, canonical text.
        scope: String,
    },
    /// There is no session: why.
    NotAttached {
        /// In sentences.
        message: String,
    },
    /// The session has ended: why.
    Ended(End),
    /// Steps were counted.
    Counted,
    /// Something to tell.
    Notice(String),
}

impl Action {
    /// Whether the user has pressed a key.
    #[must_use]
    pub const fn is_of_user(&self) -> bool {
        !matches!(
            self,
            Self::Drawn
                | Self::Resized(_)
                | Self::Counted
                | Self::Ended(_)
                | Self::Attached { .. }
                | Self::Edited { .. }
                | Self::Refused { .. }
                | Self::Costly { .. }
                | Self::NotAttached { .. }
                | Self::Notice(_)
        )
    }
}
