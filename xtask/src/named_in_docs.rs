//! What the pages on bounds and losses name is in the code: each constant, and each reason.

use std::{collections::BTreeSet, fs, io, path::Path};

/// Folders with the product's code.
const CODE: [&str; 6] = [
    "crates",
    "proto/src",
    "profiler-client/src",
    "profiler-common/src",
    "profiler-daemon/src",
    "profiler-ebpf/src",
];

/// All code below a folder, as one text.
fn code(folder: &Path, all: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            code(&path, all)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&fs::read_to_string(path)?);
        }
    }
    Ok(())
}

/// What stands in backquotes in the first cell of each row of a page's tables.
fn first_cells(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// `a::{B,C}` as `a::B` and `a::C`.
fn unfolded(text: &str) -> Vec<String> {
    let folded = text
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (inside, behind))) = folded else {
        return vec![text.to_owned()];
    };
    let parts = inside.split(',');
    parts
        .flat_map(|part| unfolded(&format!("{before}{}{behind}", part.trim())))
        .collect()
}

/// Constants that a page names.
fn constants(page: &str) -> BTreeSet<String> {
    let paths = first_cells(page).flat_map(unfolded);
    let names = paths.filter_map(|path| path.rsplit("::").next().map(ToOwned::to_owned));
    let is_constant = |name: &String| {
        name.contains('_')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    names.filter(is_constant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn all_code() -> String {
        let mut all = String::new();
        for folder in CODE {
            let folder = workspace::root().join(folder);
            if folder.exists() {
                code(&folder, &mut all).unwrap();
            }
        }
        all
    }

    fn page(name: &str) -> String {
        fs::read_to_string(workspace::root().join("docs/internals").join(name)).unwrap()
    }

    #[test]
    fn each_constant_on_the_page_of_bounds_is_in_the_code() {
        let code = all_code();
        let named = constants(&page("bounds.md"));
        assert!(named.len() > 100, "{named:?}");
        let is_missing = |name: &&String| !code.contains(&format!("const {name}:"));
        let missing: Vec<&String> = named.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn each_reason_on_the_page_of_losses_is_in_the_code() {
        let code = all_code();
        let page = page("losses.md");
        let named: BTreeSet<&str> = first_cells(&page).collect();
        assert!(named.len() > 50, "{named:?}");
        // As a key, or as a field of what is said as JSON.
        let is_named = |reason: &str| {
            code.contains(&format!("\"{reason}\"")) || code.contains(&format!("pub {reason}: u64"))
        };
        let is_missing = |reason: &&&str| !is_named(reason);
        let missing: Vec<&&str> = named.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn names_in_tables_are_unfolded() {
        let page = "| constant | bound |\n|---|---|\n| `a::{MAX_B, MAX_C}`, `MAX_{D,E}_F` | 4 `MAX_G` |\n| `c::d` | 5 |\n";
        let expected = ["MAX_B", "MAX_C", "MAX_D_F", "MAX_E_F"].map(ToOwned::to_owned);
        assert_eq!(constants(page), BTreeSet::from(expected));
        assert_eq!(first_cells(page).count(), 3);
    }
}
