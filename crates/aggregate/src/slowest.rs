//! The slowest spans of a sliding window, with the data gathered for each.
//!
//! A span has to be kept for as long as fewer than are wanted end later and take longer: until then it comes among the
//! slowest when those that ended earlier have left the window. All others never will, and are let go at once. So what
//! is kept are the slowest of every window that is still to come, whatever the order that spans come in.

use profiler_common::layout::{BUCKETS, lowest_ns, width_ns};

use super::{histogram::Histogram, number::Number, threshold::Band};

/// Spans that are shown, at most.
pub const MAX_SHOWN: usize = 100;

/// Spans that are kept, at most. Of durations that come in no order it is `wanted` times the logarithm of the calls in
/// the window; only where each call is faster than the one before, it is all of them. Beyond it the fastest go, counted.
pub const MAX_KEPT: usize = 4096;

/// Calls of the window that are recorded for each that is shown. Where it is one, a burst of slow calls that leaves the
/// window leaves nothing behind to show in its place.
pub const RECORDED_PER_SHOWN: usize = 20;

/// What makes a span slow, and tells it from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// How long it took.
    pub duration_ns: u64,
    /// `CLOCK_MONOTONIC` at its end.
    pub end_ns: u64,
    /// Its thread.
    pub tid: u32,
    /// Its number within the thread.
    pub sequence: u64,
}

impl Rank {
    fn age(&self) -> (u64, u32, u64) {
        (self.end_ns, self.tid, self.sequence)
    }

    /// Slower, or as slow and later.
    fn is_before(&self, other: &Self) -> bool {
        (self.duration_ns, self.age()) > (other.duration_ns, other.age())
    }
}

#[derive(Clone, Debug)]
struct Kept<T> {
    rank: Rank,
    /// Spans that end later and come before it.
    beaten_by: usize,
    known: T,
}

/// The slowest spans of a window that slides.
#[derive(Clone, Debug)]
pub struct Slowest<T> {
    wanted: usize,
    window_ns: u64,
    max_kept: usize,
    /// The slowest first.
    kept: Vec<Kept<T>>,
    left_out: u64,
}

impl<T> Slowest<T> {
    /// None yet, of which so many are wanted, up to [`MAX_SHOWN`].
    #[must_use]
    pub fn new(wanted: usize, window_ns: u64) -> Self {
        Self::with_limit(wanted, window_ns, MAX_KEPT)
    }

    /// As [`Self::new`], with another bound than [`MAX_KEPT`].
    #[must_use]
    pub fn with_limit(wanted: usize, window_ns: u64, max_kept: usize) -> Self {
        Self {
            wanted: wanted.clamp(1, MAX_SHOWN),
            window_ns,
            max_kept,
            kept: Vec::new(),
            left_out: 0,
        }
    }

    /// Takes a span that has ended; what is known of it is asked for only if it is kept.
    pub fn take(&mut self, rank: Rank, known: impl FnOnce() -> T) {
        let at = self.kept.partition_point(|kept| kept.rank.is_before(&rank));
        let (before, _) = self.kept.split_at(at);
        let later = before.iter().filter(|kept| kept.rank.age() > rank.age());
        let beaten_by = later.count();
        if beaten_by >= self.wanted {
            return;
        }
        let wanted = self.wanted;
        let mut index = 0;
        self.kept.retain_mut(|kept| {
            let is_behind = index >= at;
            index += 1;
            if is_behind && kept.rank.age() < rank.age() {
                kept.beaten_by += 1;
            }
            kept.beaten_by < wanted
        });
        // Those before it have stayed where they are.
        if at >= self.max_kept {
            self.left_out += 1;
            return;
        }
        let known = known();
        self.kept.insert(
            at,
            Kept {
                rank,
                beaten_by,
                known,
            },
        );
        if self.kept.len() > self.max_kept {
            self.kept.pop();
            self.left_out += 1;
        }
    }

    /// Forgets what has left the window at `now_ns`.
    pub fn expire(&mut self, now_ns: u64) {
        let window_ns = self.window_ns;
        self.kept.retain(|kept| is_within(&kept.rank, now_ns, window_ns));
    }

    /// The slowest that ended in the window before `now_ns`, the slowest first.
    pub fn top(&self, now_ns: u64) -> impl Iterator<Item = (&Rank, &T)> {
        self.kept
            .iter()
            .filter(move |kept| is_within(&kept.rank, now_ns, self.window_ns))
            .take(self.wanted)
            .map(|kept| (&kept.rank, &kept.known))
    }

    /// Spans that were let go because too many had to be kept.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn is_within(rank: &Rank, now_ns: u64, window_ns: u64) -> bool {
    rank.end_ns.saturating_add(window_ns) > now_ns
}

/// The duration from which on calls have to be recorded, so that of those in the histogram and the band about so many
/// would have been. Within a bucket calls are taken to lie evenly. Where there are not so many, it is where the band
/// begins: what is faster is not wanted.
#[must_use]
pub fn record_from_ns<C: Number>(calls: &Histogram<C>, band: Band, recorded: f64) -> u64 {
    let buckets: Vec<(usize, f64)> = calls
        .iter()
        .filter(|(bucket, _)| band.contains(*bucket))
        .map(|(bucket, count)| (bucket, count.as_f64()))
        .collect();
    let mut above = 0.0;
    for (bucket, count) in buckets.into_iter().rev() {
        if above + count >= recorded {
            let share = ((recorded - above) / count.max(1.0)).clamp(0.0, 1.0);
            let (low, width) = (lowest_ns(bucket), width_ns(bucket));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of the width"
            )]
            let into = (width as f64 * (1.0 - share)) as u64;
            return low + into.min(width - 1);
        }
        above += count;
    }
    match band.from {
        0 => 0,
        from if from >= BUCKETS => u64::MAX,
        from => lowest_ns(from),
    }
}

#[cfg(test)]
mod tests;
