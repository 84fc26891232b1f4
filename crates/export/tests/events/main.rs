//! Events over time in both formats, read back as their readers do.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod chrome;
mod made;
mod perfetto;
mod seen;
