//! Events over time in each format, read back as their readers do.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod chrome;
mod firefox;
mod made;
mod perfetto;
mod seen;
