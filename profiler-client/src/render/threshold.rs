//! What divides the two sides of a scope, in words.

use profiler_proto::v1;

use super::{escape::terminal, units};

/// `>= 12.3 ms (p95 of 10,234 calls, 512 inside)`; empty where the scope has no predicate.
#[must_use]
pub fn describe(scope: &str, summary: &v1::FlameSummary) -> String {
    let Some(predicate) = last_predicate(scope) else {
        return String::new();
    };
    let comparison: String = predicate
        .trim_start()
        .chars()
        .take_while(|c| matches!(c, '<' | '>' | '=' | '!'))
        .collect();
    let operand = predicate.trim_start()[comparison.len()..].trim();
    let percentile = operand
        .strip_prefix('p')
        .is_some_and(|digits| digits.parse::<f64>().is_ok());
    let limit = if summary.threshold_ns > 0 {
        units::duration(summary.threshold_ns as f64)
    } else {
        terminal(operand).into_owned()
    };
    let calls = units::number(summary.calls);
    let inside = units::number(summary.calls_inside);
    let share = units::percent(if summary.calls > 0.0 {
        summary.calls_inside / summary.calls
    } else {
        0.0
    });
    let mut text = if percentile {
        format!(
            "{comparison} {limit} ({} of {calls} calls; {inside} inside, {share})",
            terminal(operand)
        )
    } else {
        format!("{comparison} {limit} ({inside} of {calls} calls, {share})")
    };
    if summary.warming {
        text.push_str(&format!(
            ", warming: {} calls needed",
            units::count(summary.calls_needed)
        ));
    }
    text
}

/// What the last pair of brackets outside of quotes holds.
fn last_predicate(scope: &str) -> Option<&str> {
    let mut quoted = false;
    let mut escaped = false;
    let mut open = None;
    let mut last = None;
    for (at, c) in scope.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' if !quoted => open = Some(at + 1),
            ']' if !quoted => last = open.take().map(|start| &scope[start..at]).or(last),
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summary() -> v1::FlameSummary {
        v1::FlameSummary {
            threshold_ns: 12_300_000,
            calls: 10_234.0,
            calls_inside: 512.0,
            calls_needed: 400,
            ..Default::default()
        }
    }

    #[test]
    fn a_percentile_comes_with_its_time() {
        assert_eq!(
            describe("handle[>= p95]", &summary()),
            ">= 12.3 ms (p95 of 10,234 calls; 512 inside, 5.0%)"
        );
        assert_eq!(
            describe("handle[> 5ms]", &summary()),
            "> 12.3 ms (512 of 10,234 calls, 5.0%)"
        );
        assert_eq!(
            describe("a[> 1ms]/b", &summary()),
            "> 12.3 ms (512 of 10,234 calls, 5.0%)"
        );
        assert_eq!(describe("handle", &summary()), "");
        let warming = v1::FlameSummary {
            warming: true,
            ..summary()
        };
        assert!(describe("f[>= p95]", &warming).ends_with(", warming: 400 calls needed"));
    }

    proptest! {
        #[test]
        fn any_scope_is_survived(scope in ".*") {
            let _ = describe(&scope, &summary());
        }
    }
}
