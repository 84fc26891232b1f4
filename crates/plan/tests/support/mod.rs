//! Fixtures compiled from source by the tests, and what other tools say of them.
#![allow(dead_code, reason = "each test uses a part")]

pub mod listing;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use profiler_elf::Bytes;
use profiler_plan::ModuleIndex;

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

pub struct Fixture {
    pub path: PathBuf,
    pub index: ModuleIndex,
    pub directory: tempfile::TempDir,
}

pub fn compile(compiler: &str, name: &str, flags: &[&str]) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixture");
    run(Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(source(name)));
    let index = index(&path);
    Fixture {
        path,
        index,
        directory,
    }
}

pub fn bytes(path: &Path) -> Bytes {
    Arc::new(std::fs::read(path).unwrap())
}

pub fn index(path: &Path) -> ModuleIndex {
    ModuleIndex::new(bytes(path)).unwrap()
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One disassembled instruction.
pub struct Line {
    pub mnemonic: String,
    pub operands: String,
}

/// objdump's view: the instructions of every symbol, by address.
pub fn disassemble(path: &Path) -> BTreeMap<u64, Line> {
    let text = run(Command::new("objdump")
        .args(["-d", "-w", "-M", "intel", "--no-show-raw-insn"])
        .arg(path));
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        let Some((address, rest)) = line.trim_start().split_once(":\t") else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        let mut words = rest
            .split_whitespace()
            .skip_while(|w| matches!(*w, "notrack" | "bnd" | "repz" | "rep" | "lock" | "cs" | "data16"));
        let mnemonic = words.next().unwrap_or_default().to_owned();
        lines.insert(
            address,
            Line {
                mnemonic,
                operands: words.collect::<Vec<_>>().join(" "),
            },
        );
    }
    lines
}
