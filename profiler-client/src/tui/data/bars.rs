//! The bars of the histogram of calls, and which of them are selected.

use std::ops::RangeInclusive;

use super::{
    super::lens::{Band, Item, Lens, path},
    Data,
};
use crate::state::histogram::{Part, Row};

/// What of the histogram is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedBars {
    /// No bar.
    None,
    /// Bars that have no calls.
    WithoutCalls,
    /// Bars that have.
    Durations(Durations),
}

/// Durations of calls, open at an end that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// The shortest, in nanoseconds.
    pub from_ns: Option<u64>,
    /// They are shorter than this, in nanoseconds.
    pub below_ns: Option<u64>,
}

impl Data {
    /// The bars of the histogram, the fastest calls first; none of several functions, which are a table.
    #[must_use]
    pub fn bars(&self, lens: &Lens) -> Vec<Row> {
        let mut functions = self.latency.functions.values();
        match (functions.next(), functions.next()) {
            (Some(function), None) => function.since_start_counts.rows(lens.most_bars()),
            _ => Vec::new(),
        }
    }

    /// Places of the selected bars among all: from the selected one to the marked one.
    #[must_use]
    pub fn selected_places(&self, lens: &Lens, bars: &[Row]) -> Option<RangeInclusive<usize>> {
        let Some(Item::Bar(selected)) = lens.selection() else {
            return None;
        };
        let selected = place(selected, bars)?;
        let marked = lens.mark.as_ref().and_then(|mark| place(mark, bars));
        let marked = marked.unwrap_or(selected);
        Some(selected.min(marked)..=selected.max(marked))
    }

    /// The selected durations, from a bar that has calls to another that has: no threshold lies where there are none.
    #[must_use]
    pub fn selected_bars(&self, lens: &Lens) -> SelectedBars {
        let bars = self.bars(lens);
        let Some(places) = self.selected_places(lens, &bars) else {
            return SelectedBars::None;
        };
        let mut with_calls = places.filter(|place| bars[*place].count > 0);
        let Some(first) = with_calls.next() else {
            return SelectedBars::WithoutCalls;
        };
        let last = with_calls.next_back().unwrap_or(first);
        // The last goes on as slower calls come.
        let next = bars.get(last + 1);
        let below_ns = next.and_then(|next| self.edge_at(&bars, last + 1, band(next).from_ns));
        SelectedBars::Durations(Durations {
            from_ns: self.threshold_at(&bars, first),
            below_ns,
        })
    }

    /// The threshold from the selected bars on: at the first that has calls. `None` where none is selected.
    #[must_use]
    pub fn selected_threshold(&self, lens: &Lens) -> Option<Durations> {
        let bars = self.bars(lens);
        let first = *self.selected_places(lens, &bars)?.start();
        let first = (first..bars.len()).find(|place| bars[*place].count > 0)?;
        Some(Durations {
            from_ns: self.threshold_at(&bars, first),
            below_ns: None,
        })
    }

    /// The lower edge of a bar with calls, as a scope has it. What is slower than all other bars begins at its first call, which may be far from
    /// them. `None` of the first bar: there is nothing faster.
    fn threshold_at(&self, bars: &[Row], at: usize) -> Option<u64> {
        let bar = bars.get(at).filter(|_| at > 0)?;
        let edge_ns = if bar.part == Part::Slower {
            self.first_from(bars, at)?
        } else {
            band(bar).from_ns
        };
        self.edge_at(bars, at, edge_ns)
    }

    /// The shortest duration of calls from a bar on, in nanoseconds.
    fn first_from(&self, bars: &[Row], at: usize) -> Option<u64> {
        let function = self.latency.functions.values().next()?;
        let mut bars = bars.iter().skip(at);
        bars.find_map(|bar| function.since_start_counts.first_in(bar))
    }

    /// An edge below the calls from a bar on, as a scope has it at either end: rounded, but never beyond one of them. What is asked for of the
    /// bar before ends where this one begins.
    fn edge_at(&self, bars: &[Row], at: usize, edge_ns: u64) -> Option<u64> {
        let first_ns = self.first_from(bars, at)?;
        let rounded_ns = path::rounded_ns(edge_ns);
        Some(if rounded_ns > first_ns {
            path::rounded_down_ns(edge_ns)
        } else {
            rounded_ns
        })
    }
}

/// The durations of a bar.
#[must_use]
pub fn band(bar: &Row) -> Band {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "edges of the layout, below 2^44"
    )]
    let ns = |edge: f64| edge.round() as u64;
    Band {
        from_ns: ns(bar.low_ns),
        below_ns: ns(bar.high_ns),
    }
}

/// Where a band is among bars. They become wider as slower calls come: it is the one that has its middle.
#[must_use]
pub fn place(band: &Band, bars: &[Row]) -> Option<usize> {
    let middle_ns = (band.from_ns as f64 * band.below_ns as f64).sqrt();
    let place = bars.iter().position(|bar| middle_ns < bar.high_ns);
    place.or_else(|| bars.len().checked_sub(1))
}
