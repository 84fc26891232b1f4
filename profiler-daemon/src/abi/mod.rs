//! What the kernel's numbers are called. Pure.
//!
//! | file | idea |
//! |---|---|
//! | `system_calls` | system calls |
//! | `errors` | errors that they return |
//! | `signals` | signals |

mod errors;
mod signals;
mod system_calls;

pub use errors::error;
pub use signals::signal;
pub use system_calls::{system_call, system_call_names, system_call_number};
