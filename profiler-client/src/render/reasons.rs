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
            meaning: cells.next()?.replace('`', ""),
            advice: cells.next()?.replace('`', ""),
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
        assert!(of("replay_full").contains("(--time)"));
        assert_eq!(explained("of_the_future"), None);
    }
}
