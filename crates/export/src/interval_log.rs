//! The interval log of `HdrHistogram`: text, a line for each time and what was counted in it.
//!
//! As `HistogramLogWriter` of the Java implementation writes version 1.3, which other implementations read: a line is a tag,
//! when the interval began and how long it was, in seconds, its longest value in milliseconds, and the histogram, compressed
//! (V2) in base64. The values of histograms are nanoseconds.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Serializer as _, V2DeflateSerializer},
};

use crate::{durations::Count, text::visible};

/// Significant digits of the histograms: their buckets are those that calls are counted in, so that no count moves.
pub const DIGITS: u8 = 2;

/// Nanoseconds in the unit of the third column.
const NS_PER_MS: f64 = 1e6;

/// A log that grows by intervals, in a bounded room.
#[derive(Clone, Debug)]
pub struct IntervalLog {
    text: String,
    highest: u64,
    most_bytes: usize,
    intervals: u64,
    left_out: u64,
}

/// What was counted in a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval<'a> {
    /// What it was counted of.
    pub tag: &'a str,
    /// When the time began, since the log's beginning.
    pub began: Duration,
    /// How long it was.
    pub length: Duration,
    /// Counts by value.
    pub counts: &'a [Count],
}

/// Why an interval was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCountable {
    /// In the words of the histogram.
    pub reason: String,
}

impl IntervalLog {
    /// A log that begins at a time, since 1970, and takes values up to `highest`; `comments` go to its head.
    #[must_use]
    pub fn new(began: Duration, highest: u64, comments: &[String]) -> Self {
        let began = began.as_secs_f64();
        let mut text = String::from("#[Histogram log format version 1.3]\n");
        for comment in comments {
            let _ = writeln!(text, "# {}", visible(comment));
        }
        let _ = write!(
            text,
            "#[StartTime: {began:.3} (seconds since epoch)]\n#[BaseTime: {began:.3} (seconds since epoch)]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
        );
        Self {
            text,
            highest,
            most_bytes: usize::MAX,
            intervals: 0,
            left_out: 0,
        }
    }

    /// Intervals that would make it larger than this are left out, and counted.
    #[must_use]
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Adds an interval. Those of the same time have different tags.
    ///
    /// # Errors
    ///
    /// Where the histogram cannot hold what was counted.
    pub fn add(&mut self, interval: &Interval<'_>) -> Result<(), NotCountable> {
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, self.highest, DIGITS).map_err(NotCountable::of)?;
        for Count { value_ns, count } in interval.counts {
            histogram.record_n(*value_ns, *count).map_err(NotCountable::of)?;
        }
        let mut packed = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&histogram, &mut packed)
            .map_err(NotCountable::of)?;
        let line = format!(
            "Tag={},{:.3},{:.3},{:.3},{}\n",
            tag(interval.tag),
            interval.began.as_secs_f64(),
            interval.length.as_secs_f64(),
            histogram.max() as f64 / NS_PER_MS,
            STANDARD.encode(&packed),
        );
        if self.text.len() + line.len() > self.most_bytes {
            self.left_out += 1;
        } else {
            self.text.push_str(&line);
            self.intervals += 1;
        }
        Ok(())
    }

    /// How many intervals it has.
    #[must_use]
    pub const fn intervals(&self) -> u64 {
        self.intervals
    }

    /// How many it has no room for.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All of it.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

impl NotCountable {
    fn of(error: impl std::fmt::Display) -> Self {
        Self {
            reason: error.to_string(),
        }
    }
}

/// A name as a tag, which has neither space nor comma: those, what is not seen, and `%` itself are bytes in hexadecimal
/// behind a `%`, as in URLs.
fn tag(name: &str) -> String {
    let mut tag = String::with_capacity(name.len());
    for c in name.chars() {
        if c == ',' || c == '%' || c.is_whitespace() || crate::text::is_unseen(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(tag, "%{byte:02X}");
            }
        } else {
            tag.push(c);
        }
    }
    tag
}
