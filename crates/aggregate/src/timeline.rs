//! Counters in steps of time: the difference between two readings.

/// What an event of a thread has counted since it was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The count.
    pub count: u64,
    /// For how long its threads were on a CPU.
    pub enabled_ns: u64,
    /// For how long of that it counted: the rest of the time others had its place in the hardware.
    pub running_ns: u64,
}

/// What was counted in a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counted {
    /// The count; `None` where nothing counted although threads were on a CPU.
    pub count: Option<u64>,
    /// The part of the time on a CPU in which it counted: 1 but where counters take turns, and their count is scaled by it.
    pub share: f64,
}

/// A counter of some threads, as it was last read.
#[derive(Default)]
pub struct Series {
    before: Vec<Reading>,
}

impl Series {
    /// Takes a reading of each thread, in the same order each time; gives what was counted since the one before.
    pub fn take(&mut self, now: &[Reading]) -> Counted {
        self.before.resize(now.len(), Reading::default());
        let (mut count, mut enabled_ns, mut running_ns) = (0, 0, 0);
        let mut unknown_ns = 0;
        for (before, now) in self.before.iter_mut().zip(now) {
            let counted = now.count.saturating_sub(before.count);
            let enabled = now.enabled_ns.saturating_sub(before.enabled_ns);
            let running = now.running_ns.saturating_sub(before.running_ns).min(enabled);
            enabled_ns += enabled;
            running_ns += running;
            match running {
                0 if enabled > 0 && counted == 0 => unknown_ns += enabled,
                // What counts at events, and not as time goes by, can do so in no time.
                0 => count += counted,
                _ => count += scaled(counted, enabled, running),
            }
            *before = *now;
        }
        Counted {
            // Threads that had no turn are taken to be as the others.
            count: match enabled_ns - unknown_ns {
                0 if unknown_ns > 0 => None,
                known_ns if unknown_ns > 0 => Some(scaled(count, enabled_ns, known_ns)),
                _ => Some(count),
            },
            share: if enabled_ns == 0 {
                1.0
            } else {
                running_ns as f64 / enabled_ns as f64
            },
        }
    }
}

/// A count by the whole of the time, of one by a part of it.
fn scaled(count: u64, whole: u64, part: u64) -> u64 {
    if whole == part {
        return count;
    }
    let scaled = u128::from(count) * u128::from(whole) / u128::from(part.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(count: u64, enabled_ns: u64, running_ns: u64) -> Reading {
        Reading {
            count,
            enabled_ns,
            running_ns,
        }
    }

    #[test]
    fn a_multiplexed_counter_is_scaled_by_its_share_of_time() {
        let mut series = Series::default();
        let counted = series.take(&[reading(100, 1000, 250)]);
        assert_eq!((counted.count, counted.share), (Some(400), 0.25));
        let counted = series.take(&[reading(100, 2000, 250)]);
        assert_eq!((counted.count, counted.share), (None, 0.0));
        let counted = series.take(&[reading(150, 3000, 1250)]);
        assert_eq!((counted.count, counted.share), (Some(50), 1.0));
        // Nothing ran: nothing is missing.
        let counted = series.take(&[reading(150, 3000, 1250)]);
        assert_eq!((counted.count, counted.share), (Some(0), 1.0));
    }

    #[test]
    fn threads_without_a_turn_are_as_the_others() {
        let counted = Series::default().take(&[reading(10, 100, 100), reading(0, 300, 0)]);
        assert_eq!((counted.count, counted.share), (Some(40), 0.25));
    }

    proptest! {
        #[test]
        fn steps_add_up_to_the_last_reading(
            steps in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 40), 1..20)
        ) {
            let mut series = Series::default();
            let mut now = Reading::default();
            let mut sum = 0;
            for (count, ns) in steps {
                now = reading(now.count + count, now.enabled_ns + ns, now.running_ns + ns);
                let counted = series.take(&[now]);
                prop_assert!(counted.share >= 1.0);
                sum += counted.count.unwrap();
            }
            prop_assert_eq!(sum, now.count);
        }
    }
}
