//! The hash over everything that the eBPF object is made from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Files and directories that decide the object's content, from the repository's root.
const SOURCES: [&str; 5] = [
    "profiler-common/Cargo.toml",
    "profiler-common/src",
    "profiler-ebpf/Cargo.lock",
    "profiler-ebpf/Cargo.toml",
    "profiler-ebpf/src",
];

/// SHA-256, in hexadecimal, over the names and contents of the object's sources.
pub fn sha256(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(root, Path::new(source), &mut files)?;
    }
    files.sort();
    let mut hasher = Sha256::new();
    for file in &files {
        let path = root.join(file);
        let content = fs::read(&path).map_err(Error::file("read", &path))?;
        // Name and length close each other off: no two trees give the same bytes.
        hasher.update(file.to_string_lossy().as_bytes());
        hasher.update([0]);
        hasher.update((content.len() as u64).to_le_bytes());
        hasher.update(&content);
    }
    Ok(hex(&hasher.finalize()))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}

fn collect(root: &Path, relative: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(relative);
    if !path.is_dir() {
        files.push(relative.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(&path).map_err(Error::file("list", &path))? {
        let entry = entry.map_err(Error::file("list", &path))?;
        collect(root, &relative.join(entry.file_name()), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (file, content) in [
            ("profiler-common/Cargo.toml", "a"),
            ("profiler-common/src/lib.rs", "b"),
            ("profiler-ebpf/Cargo.toml", "c"),
            ("profiler-ebpf/Cargo.lock", "d"),
            ("profiler-ebpf/src/main.rs", "e"),
            ("profiler-ebpf/src/deep/one.rs", "f"),
        ] {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        directory
    }

    #[test]
    fn the_hash_does_not_depend_on_where_the_tree_is() {
        let (one, other) = (tree(), tree());
        assert_eq!(sha256(one.path()).unwrap(), sha256(other.path()).unwrap());
        assert_eq!(sha256(one.path()).unwrap().len(), 64);
    }

    #[test]
    fn every_source_counts_by_name_and_content() {
        let tree = tree();
        let mut seen = vec![sha256(tree.path()).unwrap()];
        let mut changed = |name: &str| {
            let now = sha256(tree.path()).unwrap();
            assert!(!seen.contains(&now), "{name}");
            seen.push(now);
        };
        for file in [
            "profiler-common/Cargo.toml",
            "profiler-ebpf/Cargo.lock",
            "profiler-ebpf/src/deep/one.rs",
        ] {
            fs::write(tree.path().join(file), "changed").unwrap();
            changed(file);
        }
        let deep = tree.path().join("profiler-ebpf/src/deep");
        fs::rename(deep.join("one.rs"), deep.join("two.rs")).unwrap();
        changed("renamed");
        fs::write(tree.path().join("profiler-common/src/more.rs"), "").unwrap();
        changed("added, empty");
    }

    #[test]
    fn what_does_not_enter_the_object_does_not_count() {
        let tree = tree();
        let before = sha256(tree.path()).unwrap();
        fs::create_dir(tree.path().join("profiler-ebpf/object")).unwrap();
        fs::write(tree.path().join("profiler-ebpf/object/profiler.bpf.o"), "x").unwrap();
        assert_eq!(sha256(tree.path()).unwrap(), before);
    }

    #[test]
    fn a_missing_source_is_named() {
        let tree = tree();
        fs::remove_file(tree.path().join("profiler-ebpf/Cargo.lock")).unwrap();
        assert!(
            sha256(tree.path())
                .unwrap_err()
                .to_string()
                .contains("profiler-ebpf/Cargo.lock")
        );
    }
}
