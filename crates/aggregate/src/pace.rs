//! How often stacks are taken at an event.

use std::fmt;

/// Of which events a stack is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pace {
    /// Each so many of a thread.
    Period(u64),
    /// About so many a second of a thread.
    Frequency(u32),
}

impl Pace {
    /// In words, with the period written as a number is.
    pub fn words(self, number: impl FnOnce(u64) -> String) -> String {
        match self {
            Self::Period(1) => "a stack at each event".to_owned(),
            Self::Period(period) => {
                format!("a stack at one of {} events of each thread", number(period))
            }
            Self::Frequency(frequency_hz) => format!("{frequency_hz} stacks a second of each thread"),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(|period| period.to_string()))
    }
}
