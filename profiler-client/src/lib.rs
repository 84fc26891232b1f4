//! The profiler's client as a library.
