//! What there is to look at, a screen each.

use clap::ValueEnum;

/// A screen of one scope.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pane {
    /// Functions, those that take the most time first.
    #[default]
    Top,
    /// The flame graph.
    Graph,
    /// How long calls take.
    Latency,
    /// What calls inside do differently from those outside, as a flame graph.
    Difference,
    /// The lines of a function, with what can be probed there.
    Source,
    /// Hits of the last step as they happen, with values.
    Hits,
}

impl Pane {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 6] = [
        Self::Top,
        Self::Graph,
        Self::Latency,
        Self::Difference,
        Self::Source,
        Self::Hits,
    ];

    /// What it is called, on the screen and as `--pane`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::Graph => "graph",
            Self::Latency => "latency",
            Self::Difference => "difference",
            Self::Source => "source",
            Self::Hits => "hits",
        }
    }

    /// Whether it shows a flame graph.
    #[must_use]
    pub const fn is_graph(self) -> bool {
        matches!(self, Self::Graph | Self::Difference)
    }
}
