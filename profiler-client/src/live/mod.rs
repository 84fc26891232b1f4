//! What is drawn in a terminal while a run goes on.

pub(crate) mod bars;
mod latency;
pub mod line;
mod redrawn;
pub mod screen;

pub use latency::{Latency, View as LatencyView};
pub use redrawn::Redrawn;
