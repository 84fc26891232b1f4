//! What the user types: flags, their validation, and how failures become exit statuses.

pub mod args;
pub mod duration;
pub mod exit;
mod help;
pub mod request;
