//! A steady rate, kept by the clock: what was late is made up for, but not without bound.

use std::time::{Duration, Instant};

/// Lateness beyond this is forgotten, so that a stall is not followed by a burst as long.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// When the next of a series of equally spaced events is due.
#[derive(Debug)]
pub struct Pacer {
    interval: Duration,
    due: Instant,
}

impl Pacer {
    /// Events `interval` apart, the first one at `start`.
    pub fn new(interval: Duration, start: Instant) -> Self {
        Self { interval, due: start }
    }

    /// The time of the next event; in the past where the series is late.
    pub fn next(&mut self, now: Instant) -> Instant {
        let due = now
            .checked_sub(CATCH_UP_MAX)
            .map_or(self.due, |earliest| self.due.max(earliest));
        self.due = due + self.interval;
        due
    }
}

/// How many of `rate` events a second should have happened after `elapsed`.
pub fn events_due(rate: f64, elapsed: Duration) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no negative factor, and `as` saturates"
    )]
    let due = (rate * elapsed.as_secs_f64()) as u64;
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_late_event_does_not_move_the_ones_after_it() {
        let start = Instant::now();
        let mut pacer = Pacer::new(10 * MS, start);
        assert_eq!(pacer.next(start), start);
        assert_eq!(pacer.next(start + 35 * MS), start + 10 * MS);
        assert_eq!(pacer.next(start + 35 * MS), start + 20 * MS);
    }

    #[test]
    fn a_stall_is_made_up_for_up_to_its_bound() {
        let start = Instant::now();
        let mut pacer = Pacer::new(10 * MS, start);
        let late = start + Duration::from_mins(1);
        assert_eq!(pacer.next(late), late.checked_sub(CATCH_UP_MAX).unwrap());
    }

    #[test]
    fn events_due_keep_the_rate() {
        assert_eq!(events_due(50_000.0, 20 * MS), 1000);
        assert_eq!(events_due(0.5, Duration::from_secs(3)), 1);
    }
}
