//! What to show, as it is written: a function's name, or a line of a file.

use profiler_scope::{self as scope, Name, ScopeError};

/// What to show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The functions of a name or glob.
    Function(Name),
    /// The functions that contain a line.
    Line {
        /// The last components of a path.
        file: String,
        /// Counted from 1.
        line: u32,
    },
}

/// Reads `FUNCTION` or `FILE:LINE`. A function's name is written as in a scope; a file's as it is, or in double quotes.
///
/// # Errors
/// Where it is neither.
pub fn parse(text: &str) -> Result<Place, ScopeError> {
    let error = |offset: usize, message: &str| ScopeError {
        message: message.to_owned(),
        offset,
        text: text.chars().take(scope::MAX_TEXT_BYTES / 4).collect(),
    };
    if let Some((file, line)) = text.rsplit_once(':').filter(|(file, line)| {
        let digits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        digits && !file.ends_with(':') && text.len() <= scope::MAX_TEXT_BYTES
    }) {
        let quoted = file.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let file = quoted.unwrap_or(file).trim();
        if file.is_empty() {
            return Err(error(0, "a file is missing before the line, as in main.cc:1310"));
        }
        let line = line.parse().ok().filter(|line| *line > 0);
        let Some(line) = line else {
            return Err(error(text.len() - 1, "lines are counted from 1"));
        };
        let file = file.to_owned();
        return Ok(Place::Line { file, line });
    }
    let scope = scope::parse(text)?;
    let [
        step @ scope::Step {
            place: scope::Place::Function(name),
            ..
        },
    ] = scope.steps.as_slice()
    else {
        return Err(error(0, "a function's name or FILE:LINE is expected"));
    };
    if !step.predicates.is_empty() || !step.conditions.is_empty() {
        let offset = text.rfind('[').unwrap_or(0);
        return Err(error(
            offset,
            "conditions are not supported here: the source is the same for all calls",
        ));
    }
    Ok(Place::Function(name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_lines() {
        let function = |name: &str| Ok(Place::Function(Name::Exact(name.to_owned())));
        assert_eq!(parse("main"), function("main"));
        assert_eq!(parse("a::b"), function("a::b"));
        assert_eq!(parse("\"a::{{closure}}\""), function("a::{{closure}}"));
        assert_eq!(
            parse("handle_*"),
            Ok(Place::Function(Name::Glob("handle_*".to_owned())))
        );
        let line = |file: &str, line| {
            Ok(Place::Line {
                file: file.to_owned(),
                line,
            })
        };
        assert_eq!(parse("main.cc:1310"), line("main.cc", 1310));
        assert_eq!(parse("src/a b.rs:7"), line("src/a b.rs", 7));
        assert_eq!(parse("\"src/a.rs\":7"), line("src/a.rs", 7));
        for text in ["", "f[>= p95]", ":3", "a.c:0", "a.c:99999999999", "\"\"", "f/g"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
