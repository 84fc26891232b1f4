//! The service within this process: for where no daemon is, and for recordings. A client that is built without it (feature `in-process`)
//! needs a daemon, and links no part of one.

#[cfg(not(feature = "in-process"))]
mod left_out;
#[cfg(feature = "in-process")]
mod linked;

#[cfg(not(feature = "in-process"))]
pub use left_out::{left_out, of_comparison, of_recording, start};
#[cfg(feature = "in-process")]
pub use linked::{of_comparison, of_recording, start};
