//! What is drawn in a terminal while a run goes on.

mod bars;
mod latency;
mod line;
mod screen;

pub use latency::Latency;
