//! Durations on the command line: a number of seconds, or a number with a unit.

use std::time::Duration;

/// A duration from the command line: more than zero, at most [`LONGEST`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span(pub Duration);

/// The longest duration that is accepted: ten years, which fits every clock's arithmetic.
pub const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// A duration as it is read on the command line, without rounding: `11.976s`.
#[must_use]
pub fn text(duration: Duration) -> String {
    let seconds = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    format!("{}s", seconds.trim_end_matches('0').trim_end_matches('.'))
}

/// Reads `10`, `0.5`, `500ms`, `2m`.
///
/// # Errors
///
/// What is wrong with the text, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<Span, String> {
    let number_ends = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let number: f64 = number
        .parse()
        .map_err(|_| "expected seconds (10, 0.5) or a time with a unit (500ms)".to_owned())?;
    let scale = match unit.trim() {
        "" => 1.0,
        unit => {
            UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(|| format!("unknown unit `{unit}`: ns, us, ms, s, m or h"))?
                .1
        }
    };
    let duration =
        Duration::try_from_secs_f64(number * scale).map_err(|_| "longer than ten years".to_owned())?;
    if duration.is_zero() {
        Err("must be more than zero".to_owned())
    } else if duration > LONGEST {
        Err("longer than ten years".to_owned())
    } else {
        Ok(Span(duration))
    }
}

/// As the protocol carries it.
#[must_use]
pub fn to_proto(duration: Duration) -> prost_types::Duration {
    let clamped = duration.min(LONGEST);
    prost_types::Duration {
        seconds: i64::try_from(clamped.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(clamped.subsec_nanos()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_seconds_and_units_scale() {
        for (text, ms) in [
            ("10", 10_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("2 s", 2000),
        ] {
            assert_eq!(parse(text), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, reason) in [
            ("0", "more than zero"),
            ("", "expected seconds"),
            ("-1", "expected seconds"),
            ("NaN", "expected seconds"),
            ("1e9", "unknown unit"),
            ("5 parsecs", "unknown unit"),
            ("99999999999999999999h", "ten years"),
            ("1.2.3", "expected seconds"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".*") {
            if let Ok(Span(duration)) = parse(&text) {
                prop_assert!(!duration.is_zero() && duration <= LONGEST);
            }
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for (milliseconds, written) in [
            (11_976, "11.976s"),
            (10_000, "10s"),
            (5, "0.005s"),
            (27_946, "27.946s"),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(text(duration), written);
            assert_eq!(parse(written).unwrap().0, duration);
        }
    }
}
