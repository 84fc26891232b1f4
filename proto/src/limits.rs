//! Bounds that clients know: of numbers in requests, so that they say at once what the daemon would refuse, and of what probes may
//! take.

/// The longest period: a stack at one of so many events.
pub const MAX_PERIOD: u64 = 1_000_000_000;

/// The highest frequency of samples, in Hz.
pub const MAX_FREQUENCY_HZ: u32 = 10_000;

/// Events that come with a weight of their own, so that each is recorded: they have no period.
pub const EVENTS_WITH_OWN_WEIGHT: [&str; 3] = ["block-bytes", "block-latency", "memory-growth"];

/// Subscriptions of one watch.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// Share of one CPU that probes may take whatever their budget is.
pub const ALWAYS_ALLOWED: f64 = 0.005;
