//! One renderer a file: state in, bytes or text out. None of them does I/O.

pub mod escape;
pub mod folded;
pub mod json;
pub mod svg;
pub mod text;
pub mod threshold;
pub mod tree;
pub mod units;
