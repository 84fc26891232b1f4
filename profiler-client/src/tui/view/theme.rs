//! Colours, by how many the terminal has.

use std::env;

use profiler_proto::v1;
use ratatui::style::{Color, Modifier, Style};

use crate::{cli::args::Color as When, live::line, live::screen::is_coloured, render::svg::colour};

/// How many colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: bold, dim and reversed text alone.
    None,
    /// The sixteen that every terminal has.
    Sixteen,
    /// A cube of 216, and greys.
    Indexed,
    /// Red, green and blue.
    True,
}

/// How things look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// How many colours there are.
    pub depth: Depth,
}

impl Theme {
    /// As the terminal and the user have it.
    #[must_use]
    pub fn of_environment(when: When) -> Self {
        let variable = |name: &str| env::var(name).unwrap_or_default();
        let depth = if !is_coloured(when, true) {
            Depth::None
        } else if matches!(variable("COLORTERM").as_str(), "truecolor" | "24bit") {
            Depth::True
        } else if variable("TERM").contains("256color") {
            Depth::Indexed
        } else {
            Depth::Sixteen
        };
        Self { depth }
    }

    /// Text of a kind.
    #[must_use]
    pub fn of(self, style: line::Style) -> Style {
        match style {
            line::Style::Plain | line::Style::Name => Style::new(),
            line::Style::Strong => Style::new().add_modifier(Modifier::BOLD),
            line::Style::Faint => Style::new().add_modifier(Modifier::DIM),
            line::Style::Bar => self.fg(Color::Cyan),
            line::Style::SlowBar => self.fg(Color::Yellow),
            line::Style::Warning => self.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    /// What is selected.
    #[must_use]
    pub const fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A match of the search.
    #[must_use]
    pub fn matched(self) -> Style {
        self.fg(Color::Magenta)
            .add_modifier(Modifier::BOLD)
            .add_modifier(Modifier::UNDERLINED)
    }

    /// The box of a frame.
    #[must_use]
    pub fn frame(self, frame: &v1::Frame) -> Style {
        let (fill, class) = colour::frame(frame);
        self.block(fill.as_deref(), class)
    }

    /// The box of a node that is compared.
    #[must_use]
    pub fn difference(self, difference: Option<&v1::NodeDifference>) -> Style {
        let (fill, class) = colour::difference(difference);
        if self.depth == Depth::Sixteen {
            let background = match difference.map(colour::significance) {
                Some(colour::Significance::More) => Color::Red,
                Some(colour::Significance::Less) => Color::Blue,
                Some(colour::Significance::None) | None => Color::Gray,
            };
            return Style::new().bg(background).fg(Color::Black);
        }
        self.block(fill.as_deref(), class)
    }

    /// A box with the style sheet's grey.
    #[must_use]
    pub fn plain_block(self) -> Style {
        self.block(None, "n")
    }

    fn block(self, fill: Option<&str>, class: &str) -> Style {
        let rgb = fill.and_then(read).unwrap_or([0xcc, 0xcc, 0xcc]);
        let [red, green, blue] = rgb;
        let background = match self.depth {
            Depth::None => return Style::new(),
            Depth::True => Color::Rgb(red, green, blue),
            Depth::Indexed => Color::Indexed(nearest(rgb)),
            Depth::Sixteen => sixteen(fill, class),
        };
        let text = if class == "d" { Color::White } else { Color::Black };
        Style::new().bg(background).fg(text)
    }

    fn fg(self, colour: Color) -> Style {
        if self.depth == Depth::None {
            Style::new()
        } else {
            Style::new().fg(colour)
        }
    }
}

/// Reads `#rrggbb`.
fn read(text: &str) -> Option<[u8; 3]> {
    let channel = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    Some([channel(1)?, channel(3)?, channel(5)?])
}

/// The nearest of the 216 colours of the cube.
fn nearest(rgb: [u8; 3]) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |channel: u8| {
        let distance = |level: u8| level.abs_diff(channel);
        (0_u8..)
            .zip(LEVELS)
            .min_by_key(|(_, level)| distance(*level))
            .map_or(0, |(at, _)| at)
    };
    16 + 36 * level(rgb[0]) + 6 * level(rgb[1]) + level(rgb[2])
}

/// One of few colours; neighbours of a kind differ as far as they can.
fn sixteen(fill: Option<&str>, class: &str) -> Color {
    let odd = fill.is_some_and(|fill| fill.bytes().map(u32::from).sum::<u32>() % 2 == 1);
    match (class, odd) {
        ("k", true) => Color::LightBlue,
        ("k", false) => Color::LightCyan,
        ("n", _) => Color::Gray,
        (_, true) => Color::LightYellow,
        (_, false) => Color::Yellow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_as_many_as_there_are() {
        let frame = v1::Frame {
            function: "main".into(),
            ..Default::default()
        };
        let background = |depth| Theme { depth }.frame(&frame).bg;
        assert_eq!(background(Depth::None), None);
        assert!(matches!(background(Depth::True), Some(Color::Rgb(..))));
        assert!(matches!(
            background(Depth::Indexed),
            Some(Color::Indexed(16..=231))
        ));
        assert!(matches!(
            background(Depth::Sixteen),
            Some(Color::Yellow | Color::LightYellow)
        ));
        assert_eq!(nearest([255, 255, 255]), 231);
        assert_eq!(read("#0a1B2c"), Some([10, 27, 44]));
        assert_eq!(read("#ü"), None);
    }
}
