//! What is redrawn in a terminal while a run goes on, and printed in full at its end.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _},
};

use super::{
    line::Line,
    screen::{self, Screen},
};
use crate::{cli::args::Color, failure::Failure, watch::Message};

/// Standard output of such a run.
pub struct Redrawn {
    colour: bool,
    /// What is drawn, and the target's name; `None` where nothing is before the end.
    drawn: Option<(Screen, String)>,
}

impl Redrawn {
    /// Nothing yet. It is drawn where standard output is a terminal, unless objects are printed there; `target` is asked for
    /// the target's name then.
    pub async fn open(color: Color, json: bool, target: impl Future<Output = String>) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let colour = screen::is_coloured(color, is_terminal);
        let drawn = if is_terminal && !json {
            // The decision was made; crossterm would look at NO_COLOR again.
            crossterm::style::force_color_output(colour);
            Some((Screen::new(colour), target.await))
        } else {
            None
        };
        Self { colour, drawn }
    }

    /// Columns of the terminal that it is drawn in; `None` where it is not.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        self.drawn.is_some().then(|| Screen::size().0)
    }

    /// Draws other lines, made for the target's name and for so many columns and rows.
    ///
    /// # Errors
    ///
    /// Where standard output cannot be written.
    pub fn draw(&mut self, lines: impl FnOnce(&str, (usize, usize)) -> Vec<Line>) -> Result<(), Failure> {
        match &mut self.drawn {
            Some((screen, target)) => screen.draw(lines(target, Screen::size())),
            None => Ok(()),
        }
    }

    /// Takes a message of a view into its state, and draws that; but for the last, as what came of it is printed then.
    ///
    /// # Errors
    ///
    /// Where the message contradicts the protocol, and as [`Self::draw`].
    pub fn take<S, M: Message, E: Display>(
        &mut self,
        state: &mut S,
        message: M,
        apply: impl FnOnce(&mut S, M) -> Result<(), E>,
        lines: impl FnOnce(&S, &str, (usize, usize)) -> Vec<Line>,
    ) -> Result<(), Failure> {
        let is_last = message.is_final();
        apply(state, message).map_err(|error| Failure::failed(error.to_string()))?;
        if is_last {
            return Ok(());
        }
        self.draw(|target, size| lines(state, target, size))
    }

    /// Prints what there is in the end; what was drawn last gives way to it.
    ///
    /// # Errors
    ///
    /// As [`Self::draw`].
    pub fn print(mut self, lines: &[Line]) -> Result<(), Failure> {
        self.clear()?;
        screen::print(lines, self.colour)
    }

    /// Takes away what was drawn last.
    ///
    /// # Errors
    ///
    /// As [`Self::draw`].
    pub fn clear(&mut self) -> Result<(), Failure> {
        self.draw(|_, _| Vec::new())
    }
}
