//! Aggregation: sums, histograms and trees of samples and counted calls.
//!
//! Everything here is pure. There is no I/O and no clock: time is the parameter `now_ns`
//! (`CLOCK_MONOTONIC`), and reading never changes anything. It depends on nothing but the layout
//! and the records that it shares with the programs.
//!
//! The way of a sample, from the top: [`view`] owns one scope; [`calltree`] gives the stack a
//! node; [`late`] holds one whose weight is not known yet; [`join`] holds the sample until its span has ended, [`path`] until those around it have; [`matrix`] keeps its weight under
//! (node, latency bucket); [`threshold`] turns predicates into the columns that are inside, using
//! the calls' histogram ([`histogram`], aged by [`window`] and [`ewma`]); [`difference`] compares
//! the two sides, [`compared`] two scopes that were looked at at different times. Calls that began with different values go apart into [`by_value`]; [`unique`]
//! counts what was touched once.

pub mod age;
mod blocks;
pub mod by_value;
pub mod calltree;
pub mod compared;
pub mod decay;
pub mod difference;
pub mod ewma;
pub mod explain;
pub mod gone;
pub mod histogram;
pub mod interval;
pub mod join;
pub mod late;
pub mod latency;
pub mod matrix;
pub mod matrix_age;
pub mod number;
pub mod pace;
pub mod path;
pub mod picture;
pub mod predicate;
pub mod reading;
pub mod reservoir;
pub mod slots;
pub mod slowest;
pub mod slowest_open;
pub mod summary;
pub mod system_calls;
pub mod tally;
pub mod thread;
pub mod threshold;
pub mod timeline;
pub mod unique;
pub mod view;
pub mod waits;
pub mod watched;
pub mod window;

pub use age::Over;
pub use thread::ThreadId;
pub use view::{Nesting, ScopeAggregate};
