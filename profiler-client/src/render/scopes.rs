//! Scopes as they are told where what they ask does not matter.

use profiler_scope::parse;

/// The scope without what its steps ask of durations: for what is counted before a call has ended.
#[must_use]
pub fn without_thresholds(text: &str) -> String {
    let Ok(mut scope) = parse(text) else {
        return text.to_owned();
    };
    scope.steps.iter_mut().for_each(|step| step.predicates.clear());
    scope.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_conditions_stay() {
        assert_eq!(without_thresholds("f[>= p95][n == 3]/g[< 1ms]"), "f[n == 3]/g");
        assert_eq!(without_thresholds("f["), "f[");
    }
}
