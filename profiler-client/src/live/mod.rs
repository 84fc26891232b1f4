//! What is drawn in a terminal while a run goes on.

mod bars;
mod latency;
pub mod line;
mod redrawn;
pub mod screen;

pub use latency::Latency;
pub use redrawn::Redrawn;
