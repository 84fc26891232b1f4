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
                files.extend(sources(&path));
            } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
                files.push(path);
            }
        }
        files
    }

    /// Text that is written where pairs of a reason and a count are, `("reason", count)`, and where one is counted,
    /// `add("reason", count)`.
    fn counted(code: &str) -> impl Iterator<Item = &str> {
        let opened = code.match_indices('(').filter(|(at, _)| {
            let before = code.get(..*at).unwrap_or_default();
            let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
            matches!(word, Some("" | "add" | "insert"))
        });
        opened.filter_map(|(at, _)| {
            let behind = code.get(at + 1..)?.trim_start().strip_prefix('"')?;
            let (text, count) = behind.split_once('"')?;
            let count = count.strip_prefix(',')?.trim_start();
            let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (is_name && count.starts_with(|c: char| c.is_ascii_lowercase())).then_some(text)
        })
    }

    #[test]
    fn every_reason_that_the_daemon_counts_is_explained() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler-daemon/src");
        let mut reasons = BTreeSet::new();
        for file in sources(&folder) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            // Others name programs, counters and arguments so.
            if code.contains("Losses") || code.contains("lost") {
                reasons.extend(counted(code).map(str::to_owned));
            }
        }
        // Recordings have these; from them the others are made.
        reasons.retain(|name| !name.ends_with("_attempted") && !name.starts_with("hit_"));
        assert!(reasons.len() > 60, "{reasons:?}");
        let unknown: Vec<_> = reasons
            .iter()
            .filter(|reason| explained(reason).is_none())
            .collect();
        assert!(unknown.is_empty(), "not in docs/internals/losses.md: {unknown:?}");
    }
}
