//! The calls and branches of a line.

use std::{sync::Arc, time::Instant};

use profiler_plan::{
    ModuleIndex,
    branches::{self, BranchError},
    calls::{self, CallError},
    lines::LineError,
};
use profiler_scope::Name;

use super::{
    dwarf::{INSTANCE, Info, MAY_BE_INLINED, OUTER, Unit, two_lines},
    elf_file::TEXT,
};

/// What looking takes at most, in seconds, on a slow machine without optimisation that does other things besides. Without
/// a budget it takes hours.
const MAX_SECONDS: u64 = 40;
/// What begins the code, so that it is found in the file.
const MARK: &[u8] = b"\x90\x48\x90\x49\x90\x4a\x90\x4b\x90";

/// A file with some code, and a unit that is made for where the code is.
fn with_code(code: &[u8], pairs: usize, unit: impl Fn(u64) -> Unit) -> Vec<u8> {
    let code = [MARK, code].concat();
    let build = |first: u64| {
        let mut info = Info::default();
        info.add(&unit(first));
        let lines = two_lines(first, pairs);
        info.file(&[(".text", &code), (".debug_str", b"f\0"), (".debug_line", &lines)])
    };
    // Where it is does not depend on what is said of it.
    let draft = build(TEXT);
    let at = draft.windows(MARK.len()).position(|bytes| bytes == MARK).unwrap();
    build(TEXT + at as u64)
}

fn entry(unit: &mut Unit, number: u8, first: u64, end: u64) {
    let length = u32::try_from(end - first).unwrap();
    unit.entry(number, &[&first.to_le_bytes(), &length.to_le_bytes(), &[0; 4]]);
}

fn in_time<T>(what: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = what();
    assert!(
        started.elapsed().as_secs() < MAX_SECONDS,
        "{:?}",
        started.elapsed()
    );
    result
}

/// Looks for the calls of line 2.
fn calls_in(file: Vec<u8>, callee: &Name) -> Result<calls::FoundCalls, CallError> {
    let index = ModuleIndex::new(Arc::new(file)).unwrap();
    in_time(|| calls::find(&index, "a.c", 2, callee))
}

/// Looks for the branches of line 2.
fn branches_in(file: Vec<u8>) -> Result<branches::FoundBranches, BranchError> {
    let index = ModuleIndex::new(Arc::new(file)).unwrap();
    in_time(|| branches::find(&index, "a.c", 2))
}

fn any() -> Name {
    Name::Glob("*".to_owned())
}

/// Functions of which each begins a byte after the one before, and that end together.
fn nested(functions: u64, length: u64) -> impl Fn(u64) -> Unit {
    move |first| {
        let mut unit = Unit::new(first, u32::try_from(length).unwrap());
        for number in 0..functions {
            entry(&mut unit, OUTER, first + number, first + length);
            unit.end();
        }
        unit
    }
}

#[test]
fn functions_that_share_their_code() {
    // Each byte of it begins instructions that go on to the end.
    let code = [0xe8, 0, 0, 0, 0].repeat(200_000);
    let length = (MARK.len() + code.len()) as u64;
    let file = with_code(&code, 5_000, nested(10_000, length));
    let found = calls_in(file.clone(), &any()).unwrap();
    assert!(
        found
            .missing
            .iter()
            .any(|missing| missing.contains("too much code"))
    );
    // Nothing can be said of calls that were not read.
    let none = calls_in(file, &Name::Exact("f".to_owned()));
    assert!(matches!(none, Err(CallError::Unread { .. })), "{none:?}");
}

#[test]
fn functions_that_share_their_branches() {
    // Each goes to the one before.
    let code = [0x75, 0xfc].repeat(500_000);
    let length = (MARK.len() + code.len()) as u64;
    let found = branches_in(with_code(&code, 5_000, nested(10_000, length))).unwrap();
    assert!(!found.sites.is_empty());
    assert!(
        found
            .missing
            .iter()
            .any(|missing| missing.contains("too much code"))
    );
}

#[test]
fn a_line_of_many_places() {
    let code = [0xe8, 0, 0, 0, 0].repeat(100_000);
    let length = (MARK.len() + code.len()) as u64;
    let file = with_code(&code, 250_000, nested(1, length));
    let calls = calls_in(file.clone(), &any());
    assert!(
        matches!(calls, Err(CallError::Line(LineError::TooMany { .. }))),
        "{calls:?}"
    );
    let branches = branches_in(file);
    assert!(
        matches!(branches, Err(BranchError::Line(LineError::TooMany { .. }))),
        "{branches:?}"
    );
}

#[test]
fn instances_in_a_function_with_many_branches() {
    let code = [0x75, 0xfc].repeat(10_000);
    let length = (MARK.len() + code.len()) as u64;
    let file = with_code(&code, 10_000, |first| {
        let mut unit = Unit::new(first, u32::try_from(length).unwrap());
        let inlined = unit.next_entry();
        unit.entry(MAY_BE_INLINED, &[&[0; 4]]);
        entry(&mut unit, OUTER, first, first + length);
        for number in 0..19_000 {
            let (first, end) = (first + number, first + length);
            let length = u32::try_from(end - first).unwrap();
            unit.entry(
                INSTANCE,
                &[
                    &inlined.to_le_bytes(),
                    &first.to_le_bytes(),
                    &length.to_le_bytes(),
                ],
            );
        }
        unit.end();
        unit
    });
    let found = branches_in(file).unwrap();
    assert!(!found.sites.is_empty() && !found.missing.is_empty());
}
