//! What the kernel's numbers are called. Pure.
//!
//! | file | idea |
//! |---|---|
//! | `system_calls` | system calls |
//! | `errors` | errors that they return |

mod errors;
mod system_calls;

pub use errors::error;
pub use system_calls::{system_call, system_call_names, system_call_number};
