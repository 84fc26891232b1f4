//! Numbers for people: three digits and a unit.

/// A duration: `847 ns`, `12.3 ms`, `1.20 s`, `2 m 05 s`.
#[must_use]
pub fn duration(ns: f64) -> String {
    if !ns.is_finite() || ns < 0.0 {
        return "-".to_owned();
    }
    // Limits lie where three digits would round up to the next unit.
    if ns < 999.5 {
        format!("{ns:.0} ns")
    } else if ns < 999_500.0 {
        three_digits(ns / 1e3, "µs")
    } else if ns < 999_500_000.0 {
        three_digits(ns / 1e6, "ms")
    } else if ns < 99.95e9 {
        three_digits(ns / 1e9, "s")
    } else {
        let seconds = ns / 1e9;
        format!(
            "{:.0} m {:02.0} s",
            (seconds / 60.0).floor(),
            (seconds % 60.0).floor()
        )
    }
}

/// A duration as narrow columns have it, in six characters up to an hour and a half: `847ns`, `12.3ms`, `2m05s`.
#[must_use]
pub fn narrow_duration(ns: f64) -> String {
    duration(ns).replace(' ', "")
}

/// A number of so many columns, where it can be had by a unit: `12345`, `123k`, `1.23M`.
#[must_use]
pub fn narrow_number(value: f64, columns: usize) -> String {
    let whole = number(value).replace(',', "");
    if whole.len() <= columns {
        return whole;
    }
    let mut scaled = value;
    for unit in ["k", "M", "G", "T", "P"] {
        scaled /= 1e3;
        // What would be rounded to four digits is one of the next unit.
        if scaled >= 999.5 {
            continue;
        }
        let shown = (0..=2).rev().map(|decimals| format!("{scaled:.decimals$}{unit}"));
        return shown
            .into_iter()
            .find(|text| text.len() <= columns)
            .unwrap_or_else(|| format!("{scaled:.0}{unit}"));
    }
    whole
}

/// Whether weights of this unit are drawn as times.
#[must_use]
pub fn is_time(unit: &str) -> bool {
    matches!(unit, "" | "ns")
}

/// A weight: a duration in nanoseconds, or where they have another unit so many: `12,288 faults`.
#[must_use]
pub fn weight(value: u64, unit: &str) -> String {
    if is_time(unit) {
        duration(value as f64)
    } else {
        format!("{} {unit}", count(value))
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    let digits = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.digits$} {unit}")
}

/// A whole number with thousands separated: `1,234,567`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number that need not be whole (a decayed count, a rate): whole from 100 on.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        "-".to_owned()
    } else if value >= 99.95 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; beyond 2^64 it saturates"
        )]
        count(value.round() as u64)
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// A share as a percentage: `0.4%`, `12.3%`, `100%`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        "-".to_owned()
    } else if percent == 0.0 {
        "0%".to_owned()
    } else if percent.abs() < 0.1 {
        format!("{percent:.2}%")
    } else if percent >= 99.95 {
        "100%".to_owned()
    } else {
        format!("{percent:.1}%")
    }
}

/// A share of one total that must not be shown as 0 where it is not: a part of `whole`.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Bytes in MiB, as memory limits are given.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (847.0, "847 ns"),
            (999.6, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (999_600.0, "1.00 ms"),
            (12_345_678.0, "12.3 ms"),
            (345_000_000.0, "345 ms"),
            (1_203_000_000.0, "1.20 s"),
            (125e9, "2 m 05 s"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn narrow_columns_are_kept_by_a_unit() {
        for (value, columns, text) in [
            (0.0, 5, "0"),
            (0.7, 5, "0.7"),
            (1_234.0, 5, "1234"),
            (99_999.0, 5, "99999"),
            (99_999.7, 5, "100k"),
            (123_456.0, 5, "123k"),
            (999_600.0, 5, "1.00M"),
            (12_345_678.0, 5, "12.3M"),
            (9_999.0, 4, "9999"),
            (12_345.0, 4, "12k"),
            (1_234_567.0, 4, "1.2M"),
            (f64::NAN, 4, "-"),
        ] {
            assert_eq!(narrow_number(value, columns), text, "{value}");
        }
        assert_eq!(narrow_number(1e30, 5), format!("{}", u64::MAX));
        assert_eq!(narrow_duration(12_345_678.0), "12.3ms");
        assert_eq!(narrow_duration(125e9), "2m05s");
    }

    #[test]
    fn weights_are_times_or_have_a_unit() {
        assert_eq!(weight(1_500, ""), "1.50 µs");
        assert_eq!(weight(12_288, "faults"), "12,288 faults");
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(12_345.6), "12,346");
        assert_eq!(number(3.0), "3");
        assert_eq!(percent(0.1234), "12.3%");
        assert_eq!(percent(0.0004), "0.04%");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(mebibytes(21 << 20), "21.0 MiB");
    }
}
