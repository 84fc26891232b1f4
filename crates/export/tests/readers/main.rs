//! Each format through its own reader, of those that `cargo xtask setup --programs` installs: what they read is what was written,
//! stack by stack and event by event. Where one is not installed, its tests are skipped.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "readers count in floating-point numbers, and the numbers here are small"
)]

mod firefox;
mod interval_log;
#[path = "../events/made.rs"]
mod made;
mod otlp;
mod perfetto;
#[path = "../events/seen.rs"]
mod seen;
mod speedscope;
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_export::{Profile, Unit};
use profiler_testkit::{npm_package, python};
use serde_json::Value;
use tempfile::TempDir;

use support::{by_stack, perf_script_of};

/// Weights of a stack, the outermost function first.
type Stacks = BTreeMap<Vec<String>, u64>;

/// A file that a reader reads, in a folder of its own.
struct Written {
    path: PathBuf,
    /// Removed with it.
    _directory: TempDir,
}

impl Written {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self {
            path,
            _directory: directory,
        }
    }
}

/// A script beside this file.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/readers")
        .join(name)
}

/// What a reader prints. It has to end well.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of JSON that a script for Python prints of a file; `None` where Python has not the module it needs.
fn read_by_python(module: &str, name: &str, bytes: &[u8]) -> Option<Vec<Value>> {
    let mut command = python(module)?;
    let written = Written::new("data", bytes);
    let text = printed(command.arg(script(name)).arg(&written.path));
    Some(lines(&text))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What is in a profile: the stacks of each of its measures and sides, by `cpu, side inside`.
fn by_measure_and_side(profile: &Profile) -> BTreeMap<String, Stacks> {
    let mut of_all: BTreeMap<String, Stacks> = BTreeMap::new();
    for ((stack, side), weights) in by_stack(profile) {
        for (measure, weight) in profile.measures.iter().zip(weights) {
            let of = of_all
                .entry(format!("{}, side {side}", measure.name))
                .or_default();
            of.insert(stack.clone(), weight);
        }
    }
    of_all
}

fn is_time(profile: &Profile, of: &str) -> bool {
    let measure = profile
        .measures
        .iter()
        .find(|measure| of.starts_with(&measure.name));
    measure.unwrap().unit == Unit::Nanoseconds
}
