//! The tests that are known to fail now and then. Each has a fault, or its subject has, that is still to be found: the
//! list says what is known of it and since when, and is to become shorter.

use std::fs;

use serde_json::Value;

use crate::{
    error::{Error, Result},
    workspace,
};

/// Where the list is, from the repository's root.
pub const LIST: &str = "xtask/unsteady.json";

/// A test that may pass only when it is run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsteady {
    /// Its name, as the harness prints it.
    pub test: String,
    /// What is known of the fault.
    pub reason: String,
    /// The day on which it was listed: `2026-11-24`.
    pub since: String,
}

/// Reads the list.
pub fn list() -> Result<Vec<Unsteady>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    parse(&text).map_err(|error| Error::told(format!("{LIST}: {error}")))
}

fn parse(text: &str) -> std::result::Result<Vec<Unsteady>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    value
        .as_array()
        .ok_or("not a list")?
        .iter()
        .map(parse_one)
        .collect()
}

fn parse_one(entry: &Value) -> std::result::Result<Unsteady, String> {
    let field = |name: &str| {
        let text = entry[name].as_str().unwrap_or_default().trim();
        if text.is_empty() {
            return Err(format!("`{name}` is missing, empty or not a string in {entry}"));
        }
        Ok(text.to_owned())
    };
    let since = field("since")?;
    if !is_day(&since) {
        return Err(format!("`{since}` is no day such as 2026-11-24, in {entry}"));
    }
    Ok(Unsteady {
        test: field("test")?,
        reason: field("reason")?,
        since,
    })
}

fn is_day(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2] && text.chars().all(|c| c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_reads() {
        list().unwrap();
        let text = r#"[{"test": "waits::a", "reason": "a timer of the emulator", "since": "2026-11-24"}]"#;
        let expected = Unsteady {
            test: "waits::a".to_owned(),
            reason: "a timer of the emulator".to_owned(),
            since: "2026-11-24".to_owned(),
        };
        assert_eq!(parse(text).unwrap(), [expected]);
    }

    #[test]
    fn an_entry_needs_a_reason_and_a_day() {
        let broken = |entry: &str| parse(&format!("[{entry}]")).unwrap_err();
        assert!(broken(r#"{"test": "a", "since": "2026-11-24"}"#).contains("`reason` is missing"));
        assert!(
            broken(r#"{"test": "a", "reason": " ", "since": "2026-11-24"}"#).contains("`reason` is missing")
        );
        assert!(broken(r#"{"test": "a", "reason": "b", "since": "lately"}"#).contains("no day"));
        assert_eq!(parse("{}").unwrap_err(), "not a list");
    }
}
