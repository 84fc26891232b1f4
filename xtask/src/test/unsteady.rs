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

/// Where a test is unsteady.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the running kernel: `here`.
    Here,
    /// In emulated machines: `vm`.
    Machines,
}

/// A test, or a module's tests, that may pass only when they are run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsteady {
    /// Its name, as the harness prints it; a module's ends in `::`.
    pub test: String,
    /// Elsewhere it has to pass.
    pub place: Place,
    /// What is known of the fault.
    pub reason: String,
    /// The day on which it was listed: `2026-11-24`.
    pub since: String,
}

impl Unsteady {
    /// Whether a test of this name is meant.
    pub fn is_of(&self, name: &str) -> bool {
        self.test == name || self.test.ends_with("::") && name.starts_with(&self.test)
    }
}

/// Reads what is listed of a place.
pub fn list(place: Place) -> Result<Vec<Unsteady>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let mut listed = parse(&text).map_err(|error| Error::told(format!("{LIST}: {error}")))?;
    listed.retain(|unsteady| unsteady.place == place);
    Ok(listed)
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
    let place = match &*field("where")? {
        "here" => Place::Here,
        "vm" => Place::Machines,
        other => return Err(format!("`{other}` is no place: here or vm, in {entry}")),
    };
    Ok(Unsteady {
        test: field("test")?,
        place,
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
        list(Place::Here).unwrap();
        let text = r#"[{"test": "waits::a", "where": "vm", "reason": "a timer of the emulator", "since": "2026-11-24"}]"#;
        let expected = Unsteady {
            test: "waits::a".to_owned(),
            place: Place::Machines,
            reason: "a timer of the emulator".to_owned(),
            since: "2026-11-24".to_owned(),
        };
        assert_eq!(parse(text).unwrap(), [expected]);
    }

    #[test]
    fn an_entry_may_be_of_a_whole_module() {
        let unsteady = |test: &str| Unsteady {
            test: test.to_owned(),
            place: Place::Machines,
            reason: "a timer".to_owned(),
            since: "2026-11-24".to_owned(),
        };
        assert!(unsteady("waits::").is_of("waits::a") && !unsteady("waits::").is_of("flame_waits::a"));
        assert!(unsteady("waits::a").is_of("waits::a") && !unsteady("waits::a").is_of("waits::ab"));
    }

    #[test]
    fn an_entry_needs_a_reason_and_a_day() {
        let broken = |entry: &str| parse(&format!("[{entry}]")).unwrap_err();
        assert!(
            broken(r#"{"test": "a", "where": "vm", "since": "2026-11-24"}"#).contains("`reason` is missing")
        );
        assert!(
            broken(r#"{"test": "a", "where": "vm", "reason": " ", "since": "2026-11-24"}"#)
                .contains("`reason` is missing")
        );
        assert!(broken(r#"{"test": "a", "reason": "b", "since": "lately"}"#).contains("no day"));
        let elsewhere = r#"{"test": "a", "where": "x", "reason": "b", "since": "2026-11-24"}"#;
        assert!(broken(elsewhere).contains("no place"));
        assert_eq!(parse("{}").unwrap_err(), "not a list");
    }
}
