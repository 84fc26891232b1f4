//! Which files.

use std::{
    fs,
    path::{Path, PathBuf},
};

const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu"];

/// Beginnings of the names that are wanted whatever their size: signal frames, the dynamic linker's trampolines, assembly.
const ALWAYS: [&str; 5] = [
    "libc.so",
    "ld-linux-x86-64.so",
    "libcrypto.so",
    "libgcc_s.so",
    "libstdc++.so",
];

/// The largest of the others.
const MAX_BYTES: u64 = 200 << 10;

/// How many of the others. Some have no unwind information.
const WANTED: usize = 340;

/// A few hundred, the same ones on the same machine.
pub fn some() -> Vec<PathBuf> {
    let (always, others): (Vec<_>, Vec<_>) = all().into_iter().partition(|path| is_always(path));
    let small: Vec<PathBuf> = others
        .into_iter()
        .filter(|path| fs::metadata(path).is_ok_and(|m| m.len() <= MAX_BYTES))
        .collect();
    let stride = (small.len() / WANTED).max(1);
    always
        .into_iter()
        .chain(small.into_iter().step_by(stride))
        .collect()
}

/// All of them, in order of path.
pub fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        walk(Path::new(folder), 2, &mut found);
    }
    found.sort();
    found
}

fn is_always(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ALWAYS.iter().any(|always| name.starts_with(always))
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            walk(&path, depth - 1, found);
        } else if kind.is_file() && is_elf(&path) {
            found.push(path);
        }
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
        .is_ok()
        && magic == *b"\x7fELF"
}
