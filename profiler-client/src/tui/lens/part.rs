//! The part of a recording that is looked at, moved by keys.

use std::time::Duration;

use crate::cli::{args::RecordedTime, duration};

/// The shortest part.
const SHORTEST: Duration = Duration::from_secs(1);

/// As much as a part has lost by being halved and rounded to milliseconds, at most.
const ROUNDED: Duration = Duration::from_millis(50);

/// Which way the part of a recording is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// By half of its length towards the beginning.
    Earlier,
    /// By half of its length towards the end.
    Later,
    /// To its first half.
    Shorter,
    /// To twice its length from where it begins: back from its first half.
    Longer,
}

/// How long a part is; `None` where it goes on to an end that is not known.
#[must_use]
pub fn length(time: RecordedTime, whole: Option<Duration>) -> Option<Duration> {
    let end = time.end.or(whole)?;
    Some(end.saturating_sub(time.begin.unwrap_or_default()))
}

/// How long all of the recording is, where a part shows its end: one that was asked for up to there, or is shorter than it
/// was asked for. Parts begin and end where records were written, four times a second.
#[must_use]
pub fn whole(time: RecordedTime, recorded: Duration) -> Option<Duration> {
    let begin = time.begin.unwrap_or_default();
    let is_to_end = match time.end {
        None => true,
        Some(end) => recorded.saturating_add(Duration::from_secs(1)) < end.saturating_sub(begin),
    };
    is_to_end.then(|| begin.saturating_add(recorded))
}

/// Where a part is that was at `time` and so long, of a recording of which all is as long as `whole`, where that is known;
/// `None` where there is no other that way.
#[must_use]
pub fn moved(
    time: RecordedTime,
    length: Duration,
    whole: Option<Duration>,
    part: Part,
) -> Option<RecordedTime> {
    let begin = time.begin.unwrap_or_default();
    let half = length / 2;
    let (begin, length) = match part {
        Part::Earlier => (begin.saturating_sub(half), length),
        Part::Later => (begin.saturating_add(half), length),
        Part::Shorter if half < SHORTEST => return None,
        Part::Shorter => (begin, half),
        Part::Longer => (begin, length.saturating_mul(2)),
    };
    let end = begin.saturating_add(length);
    let moved = match whole {
        // Halves are rounded.
        Some(whole) if length.saturating_add(ROUNDED) >= whole => RecordedTime::default(),
        Some(whole) if end.saturating_add(ROUNDED) >= whole => {
            // The last one is as long as the others.
            let begin = Some(in_ms(whole.saturating_sub(length)));
            RecordedTime { begin, end: None }
        }
        _ => RecordedTime {
            begin: Some(in_ms(begin)),
            end: Some(in_ms(end)),
        },
    };
    (moved != time).then_some(moved)
}

/// The part that was typed: a range as `--time` has it, or the end of a recording by its length, as in `10s`.
///
/// # Errors
/// What is wrong with it, in a clause.
pub fn typed(text: &str, whole: Option<Duration>) -> Result<RecordedTime, String> {
    let text = text.trim();
    if text.contains("..") {
        return text.parse();
    }
    let length = duration::parse(text)
        .map_err(|_| "a part is expected: 10s..20s, 5m.., ..30s, or 10s for the last ten seconds")?
        .0;
    let whole = whole.ok_or(
        "how long the recording is, is not known yet: type a part from its beginning, as in 10s..20s",
    )?;
    let begin = whole.saturating_sub(length);
    Ok(RecordedTime {
        begin: Some(in_ms(begin)).filter(|begin| !begin.is_zero()),
        end: None,
    })
}

/// Whole milliseconds, which can be read on a command line.
fn in_ms(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(begin: u64, end: Option<u64>) -> RecordedTime {
        RecordedTime {
            begin: Some(Duration::from_secs(begin)),
            end: end.map(Duration::from_secs),
        }
    }

    #[test]
    fn a_part_goes_through_a_recording_by_halves() {
        let (all, whole) = (RecordedTime::default(), Duration::from_secs(100));
        let go = |time, length, part| moved(time, Duration::from_secs(length), Some(whole), part);
        let half = seconds(0, Some(50));
        assert_eq!(go(all, 100, Part::Shorter), Some(half));
        assert_eq!(go(half, 50, Part::Later), Some(seconds(25, Some(75))));
        assert_eq!(
            go(seconds(25, Some(75)), 50, Part::Later),
            Some(seconds(50, None))
        );
        assert_eq!(go(seconds(50, None), 50, Part::Later), None);
        assert_eq!(
            go(seconds(50, None), 50, Part::Earlier),
            Some(seconds(25, Some(75)))
        );
        assert_eq!(go(half, 50, Part::Earlier), None);
        assert_eq!(go(half, 50, Part::Longer), Some(all));
        assert_eq!(go(all, 100, Part::Longer), None);
        assert_eq!(go(all, 100, Part::Later), None);
        assert_eq!(go(all, 100, Part::Earlier), None);
        assert_eq!(go(all, 1, Part::Shorter), None);
    }

    #[test]
    fn a_part_is_typed_as_a_range_or_as_the_last_seconds() {
        let whole = Some(Duration::from_secs(100));
        assert_eq!(typed("10s..20s", whole), Ok(seconds(10, Some(20))));
        assert_eq!(typed(" 10s ", whole), Ok(seconds(90, None)));
        assert_eq!(typed("200s", whole), Ok(RecordedTime::default()));
        assert_eq!(typed("..", None), Ok(RecordedTime::default()));
        for (text, whole) in [("10s", None), ("20s..10s", whole), ("ten", whole)] {
            assert!(typed(text, whole).is_err(), "{text}");
        }
    }

    #[test]
    fn the_end_is_known_from_a_part_that_shows_it() {
        let length = Duration::from_secs(25);
        assert_eq!(whole(RecordedTime::default(), length), Some(length));
        assert_eq!(whole(seconds(10, None), Duration::from_secs(15)), Some(length));
        assert_eq!(
            whole(seconds(10, Some(60)), Duration::from_secs(15)),
            Some(length)
        );
        assert_eq!(whole(seconds(10, Some(20)), Duration::from_millis(9_750)), None);
        assert_eq!(
            super::length(seconds(10, Some(20)), None),
            Some(Duration::from_secs(10))
        );
        assert_eq!(
            super::length(seconds(10, None), Some(length)),
            Some(Duration::from_secs(15))
        );
        assert_eq!(super::length(seconds(10, None), None), None);
    }

    proptest! {
        #[test]
        fn a_part_is_within_the_recording(
            whole_ms in 2_000u64..100_000_000,
            parts in prop::collection::vec(prop::sample::select(vec![
                Part::Earlier, Part::Later, Part::Shorter, Part::Longer,
            ]), 0..40),
        ) {
            let whole = Duration::from_millis(whole_ms);
            let mut time = RecordedTime::default();
            for part in parts {
                let length = time.end.unwrap_or(whole).saturating_sub(time.begin.unwrap_or_default());
                time = moved(time, length, Some(whole), part).unwrap_or(time);
                let (begin, end) = (time.begin.unwrap_or_default(), time.end.unwrap_or(whole));
                prop_assert!(begin < end && end <= whole, "{time:?}");
                prop_assert!(end.saturating_sub(begin) >= SHORTEST / 2, "{time:?}");
            }
        }
    }
}
