//! What reasons of losses mean and what can be done, as `docs/internals/losses.md` has it: its tables are read here, so that
//! each reason is explained in one place.

use std::{collections::HashMap, sync::LazyLock};

/// The page with the tables.
const PAGE: &str = include_str!("../../../docs/internals/losses.md");

/// What is said of a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What was lost.
    pub meaning: String,
    /// What can be done.
    pub advice: String,
}

static REASONS: LazyLock<HashMap<&str, Explained>> = LazyLock::new(|| {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| {
        let mut cells = row.split(" | ");
        let names = cells.next()?;
        let explained = Explained {
            meaning: cells.next()?.to_owned(),
            advice: cells.next()?.to_owned(),
        };
        Some(
            names
                .split("`, `")
                .map(move |name| (name.trim_end_matches('`'), explained.clone())),
        )
    })
    .flatten()
    .collect()
});

/// What a reason means; `None` of one that a newer service has.
#[must_use]
pub fn explained(reason: &str) -> Option<&'static Explained> {
    REASONS.get(reason)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    #[test]
    fn every_reason_of_the_page_is_explained() {
        let rows = PAGE.lines().filter(|line| line.starts_with("| `")).count();
        assert!(REASONS.len() >= rows && rows > 40, "{} of {rows}", REASONS.len());
        for (reason, Explained { meaning, advice }) in &*REASONS {
            let is_name = reason.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(is_name && !meaning.is_empty() && !advice.is_empty(), "{reason}");
        }
        let of = |reason| explained(reason).unwrap().advice.as_str();
        assert_eq!(of("off_cpu_ring_full"), of("off_cpu_yielded"));
        assert_eq!(explained("of_the_future"), None);
    }

    #[test]
    fn what_is_typed_is_told_from_the_words_around_it() {
        let of = |reason| explained(reason).unwrap().advice.as_str();
        assert!(of("replay_full").contains("(`--time`)"));
        // The terminal's own limit is fixed: which command has another is said.
        assert!(of("rate_limit").contains("`profiler trace --limit`"));
    }

    /// Files of the daemon's own code.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    files.extend(sources(&path));
                }
            } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
                files.push(path);
            }
        }
        files
    }

    /// What is written where pairs of a reason and a count are, `("reason", count)` or `(REASON, count)`, and where one is
    /// counted, `add("reason", count)`.
    fn counted(code: &str) -> impl Iterator<Item = &str> {
        let opened = code.match_indices('(').filter(|(at, _)| {
            let before = code.get(..*at).unwrap_or_default();
            let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
            matches!(word, Some("" | "add" | "insert"))
        });
        opened.filter_map(|(at, _)| {
            let (text, count) = code.get(at + 1..)?.split_once(',')?;
            let count = count.trim_start();
            count
                .starts_with(|c: char| c.is_ascii_lowercase())
                .then_some(text.trim())
        })
    }

    /// Constants of text: each name with its text in quotes.
    fn constants(code: &str) -> impl Iterator<Item = (&str, &str)> {
        let behind = code.split("const ").skip(1);
        behind.filter_map(|code| code.split_once(';')?.0.split_once(": &str = "))
    }

    /// The text in quotes, where it can be a reason.
    fn unquoted(text: &str) -> Option<&str> {
        let text = text.strip_prefix('"')?.strip_suffix('"')?;
        let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        is_name.then_some(text)
    }

    #[test]
    fn every_reason_that_the_daemon_counts_is_explained() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler-daemon/src");
        let texts = sources(&folder)
            .into_iter()
            .map(|file| fs::read_to_string(file).unwrap());
        let codes: Vec<String> = texts
            .map(|text| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned())
            // Others name programs, counters and arguments so.
            .filter(|code| code.contains("Losses") || code.contains("lost"))
            .collect();
        let constants: HashMap<&str, &str> = codes.iter().flat_map(|code| constants(code)).collect();
        let mut reasons: BTreeSet<&str> = codes
            .iter()
            .flat_map(|code| counted(code))
            .filter_map(|text| unquoted(constants.get(text).copied().unwrap_or(text)))
            .collect();
        // Recordings have these; from them the others are made.
        let begins = ["hit_", "recorded_"];
        let is_recorded =
            |name: &str| begins.iter().any(|begin| name.starts_with(begin)) || name.ends_with("_attempted");
        reasons.retain(|name| !is_recorded(name));
        for constant in [
            "children_not_counted",
            "recording_behind",
            "newer_format",
            "not_recorded",
        ] {
            assert!(reasons.contains(constant), "{constant} is not found: {reasons:?}");
        }
        assert!(reasons.len() > 60, "{reasons:?}");
        let unknown: Vec<_> = reasons
            .iter()
            .filter(|reason| explained(reason).is_none())
            .collect();
        assert!(unknown.is_empty(), "not in docs/internals/losses.md: {unknown:?}");
    }
}
