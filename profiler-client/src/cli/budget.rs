//! How much of the target's CPU time probes may take, on the command line: a percentage.

use std::env;

use crate::failure::Failure;

/// What `--budget` is where it is left out.
const VARIABLE: &str = "PROFILER_BUDGET";

/// A share of the target's CPU time: 0 for any, else as a fraction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget(pub f64);

/// Reads `3`, `0.5`, `10%`; 0 for no bound.
///
/// # Errors
///
/// What is wrong with the text, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<Budget, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number
        .parse()
        .map_err(|_| "a percentage is expected: 3, 0.5%, or 0 for no limit".to_owned())?;
    if (0.0..=100.0).contains(&percent) {
        Ok(Budget(percent / 100.0))
    } else {
        Err(format!("{text} is not in 0..=100"))
    }
}

/// What was typed, else what the environment says; `None` where neither says anything.
///
/// # Errors
///
/// Where the environment has something else.
pub fn or_environment(typed: Option<Budget>) -> Result<Option<Budget>, Failure> {
    let found = match typed {
        Some(_) => return Ok(typed),
        None => env::var_os(VARIABLE).filter(|text| !text.is_empty()),
    };
    let Some(text) = found else { return Ok(None) };
    let text = text.to_string_lossy();
    match parse(&text) {
        Ok(budget) => Ok(Some(budget)),
        Err(error) => Err(Failure::usage(format!(
            "${VARIABLE}: {}.",
            crate::render::escape::terminal(&error)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_percentage() {
        assert_eq!(parse("3"), Ok(Budget(0.03)));
        assert_eq!(parse("50%"), Ok(Budget(0.5)));
        assert_eq!(parse("0"), Ok(Budget(0.0)));
        for wrong in ["", "%", "-1", "101", "nan", "inf", "three"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
