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
    #[value(name = "diff")]
    Difference,
    /// The lines of a function, with what can be probed there.
    Source,
    /// Hits of the last step as they happen, with values.
    Hits,
    /// What slow calls do that the others do not, the surest first.
    Explain,
    /// Who threads wait for.
    Waits,
    /// System calls, and who makes them.
    Syscalls,
    /// The slowest calls, one of them opened.
    Spans,
    /// Threads, those that take the most time first.
    Threads,
    /// Counters over time.
    Timeline,
    /// The daemon's sessions.
    Sessions,
    /// What was lost, and what it costs.
    Losses,
}

impl Pane {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 14] = [
        Self::Top,
        Self::Graph,
        Self::Latency,
        Self::Difference,
        Self::Source,
        Self::Hits,
        Self::Explain,
        Self::Waits,
        Self::Syscalls,
        Self::Spans,
        Self::Threads,
        Self::Timeline,
        Self::Sessions,
        Self::Losses,
    ];

    /// What it is called, on the screen and as `--pane`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::Graph => "graph",
            Self::Latency => "latency",
            Self::Difference => "diff",
            Self::Source => "source",
            Self::Hits => "hits",
            Self::Explain => "explain",
            Self::Waits => "waits",
            Self::Syscalls => "syscalls",
            Self::Spans => "spans",
            Self::Threads => "threads",
            Self::Timeline => "timeline",
            Self::Sessions => "sessions",
            Self::Losses => "losses",
        }
    }

    /// Whether it has a stream of its own, which is open as long as it is shown.
    #[must_use]
    pub const fn is_aside(self) -> bool {
        matches!(
            self,
            Self::Explain | Self::Waits | Self::Syscalls | Self::Spans | Self::Timeline | Self::Sessions
        )
    }

    /// Whether recordings hold what it shows.
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        !matches!(self, Self::Sessions)
    }

    /// Whether something can be searched for on it.
    #[must_use]
    pub const fn is_searched(self) -> bool {
        self.shares_search() || matches!(self, Self::Hits | Self::Threads | Self::Sessions)
    }

    /// Whether it shows what the other panes of functions and their source show too: a search goes along between them.
    #[must_use]
    pub const fn shares_search(self) -> bool {
        matches!(self, Self::Top | Self::Graph | Self::Difference | Self::Source)
    }

    /// Whether it is looked into from another pane, and left for that one.
    #[must_use]
    pub const fn is_visited(self) -> bool {
        matches!(
            self,
            Self::Threads | Self::Timeline | Self::Sessions | Self::Losses
        )
    }

    /// Whether it shows a flame graph.
    #[must_use]
    pub const fn is_graph(self) -> bool {
        matches!(self, Self::Graph | Self::Difference)
    }
}

/// How durations are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Picture {
    /// A bar for each range of durations, of all calls.
    #[default]
    Bars,
    /// The same over time.
    Heat,
}
