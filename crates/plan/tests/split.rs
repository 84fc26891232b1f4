//! Planning with symbols and debug information that were split off, against the file that still has them.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use profiler_elf::Bytes;
use profiler_plan::{Function, ModuleFiles, ModuleIndex, lines, source};
use profiler_scope::Name;

use support::{Fixture, bytes, compile, run};

/// Compiler, source, flags.
const BUILDS: [(&str, &str, &[&str]); 4] = [
    ("gcc", "source.c", &["-O2", "-g"]),
    ("g++", "source.cc", &["-O2", "-g"]),
    ("clang++-14", "shapes.cc", &["-O2", "-g", "-gdwarf-5"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=2"]),
];

/// The file without and the one with what was split off, which is compressed as is asked.
fn split(fixture: &Fixture, compression: &str) -> (PathBuf, PathBuf) {
    let at = |name: &str| fixture.directory.path().join(name);
    let (program, debug) = (at("stripped"), at("split.debug"));
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(format!("--compress-debug-sections={compression}"))
        .args([&fixture.path, &debug]));
    run(Command::new("strip").arg("-o").args([&program, &fixture.path]));
    (program, debug)
}

fn with(program: &Path, split_off: Bytes) -> ModuleIndex {
    let files = ModuleFiles::whole(bytes(program)).with_symbols(split_off.clone());
    ModuleIndex::of(files.with_debug(split_off)).unwrap()
}

fn functions(index: &ModuleIndex) -> Vec<(u64, u64, Vec<String>)> {
    let names = |function: &Function<'_>| {
        let mut names: Vec<String> = function.linkage_names().map(Into::into).collect();
        names.sort();
        names.dedup();
        names
    };
    let functions = index.functions();
    functions
        .map(|function| (function.address(), function.size(), names(&function)))
        .collect()
}

#[test]
fn all_is_found_that_the_whole_file_has() {
    for (compiler, source, flags) in BUILDS {
        if Command::new(compiler).arg("--version").output().is_err() {
            continue;
        }
        let fixture = compile(compiler, source, flags);
        let whole = &fixture.index;
        for compression in ["none", "zlib"] {
            let what = format!("{compiler} {source} {compression}");
            let (program, debug) = split(&fixture, compression);
            let stripped = ModuleIndex::new(bytes(&program)).unwrap();
            assert!(stripped.is_stripped() && !stripped.has_debug_info());
            let parts = with(&program, bytes(&debug));
            assert!(!parts.is_stripped() && parts.has_debug_info());
            assert_eq!(functions(&parts), functions(whole), "{what}");
            let numbers: Vec<usize> = (0..whole.len()).collect();
            let described = source::functions(&parts, &numbers);
            assert_eq!(described, source::functions(whole, &numbers), "{what}");
            let with_lines = described.iter().filter(|function| function.line > 0).count();
            assert!(with_lines >= 3, "{what}: {with_lines}");
            for line in 1..100 {
                let found = lines::find(&parts, source, line);
                assert_eq!(found, lines::find(whole, source, line), "{what}: {line}");
            }
            let names = [Name::Exact("main".into()), Name::Glob("*to*".into())];
            for name in names {
                assert_eq!(parts.matching(&name), whole.matching(&name), "{what}: {name:?}");
            }
        }
    }
}

/// What only the dynamic table and a small table of its own tell together, as in `.gnu_debugdata`.
#[test]
fn symbols_alone_add_to_those_that_are_there() {
    let fixture = compile("gcc", "source.c", &["-O2", "-g", "-rdynamic"]);
    let (program, _) = split(&fixture, "none");
    let symbols = fixture.directory.path().join("symbols");
    run(Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .args([&symbols, &fixture.path]));
    let files = ModuleFiles::whole(bytes(&program)).with_symbols(bytes(&symbols));
    let parts = ModuleIndex::of(files).unwrap();
    assert!(!parts.is_stripped() && !parts.has_debug_info());
    assert_eq!(functions(&parts), functions(&fixture.index));
    let alone = ModuleIndex::new(bytes(&program)).unwrap();
    assert!(functions(&alone).len() < functions(&parts).len());
}

/// Of another build, everything may be anywhere.
#[test]
fn a_file_of_something_else_does_no_harm() {
    let fixture = compile("gcc", "source.c", &["-O2", "-g"]);
    let other = compile("g++", "source.cc", &["-O2", "-g"]);
    let (program, _) = split(&fixture, "none");
    let parts = with(&program, bytes(&split(&other, "zlib").1));
    let numbers: Vec<usize> = (0..parts.len()).collect();
    let _ = source::functions(&parts, &numbers);
    let nothing = with(&program, Arc::new(b"nothing".to_vec()));
    assert!(nothing.is_stripped() && !nothing.has_debug_info());
}
