//! Bounds of numbers in requests: clients say at once what the daemon would refuse.

/// The longest period: a stack at one of so many events.
pub const MAX_PERIOD: u64 = 1_000_000_000;

/// The highest frequency of samples, in Hz.
pub const MAX_FREQUENCY_HZ: u32 = 10_000;
