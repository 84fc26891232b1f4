//! Where lines begin to run, against gdb.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    process::Command,
};

use profiler_plan::lines::{self, LineError};

use support::{compile, run};

/// What gdb takes each line of a file to be: the addresses at which it would put breakpoints.
fn by_gdb(program: &std::path::Path, file: &str, lines: u64) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut script = String::from("import gdb\n");
    // Writing to a String cannot fail.
    let _ = write!(
        script,
        "for line in range(1, {lines} + 1):\n\
         \x20   try: _, places = gdb.decode_line('{file}:%d' % line)\n\
         \x20   except gdb.error: continue\n\
         \x20   for place in places or ():\n\
         \x20       if place.line == line and place.is_valid(): print('at', line, place.pc)\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.py");
    std::fs::write(&path, script).unwrap();
    let answer = run(Command::new("gdb")
        .args(["-batch", "-nx", "-x"])
        .arg(&path)
        .arg(program));
    let mut places: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for line in answer.lines().filter_map(|line| line.strip_prefix("at ")) {
        let (line, pc) = line.split_once(' ').unwrap();
        let (line, pc) = (line.parse().unwrap(), pc.parse().unwrap());
        places.entry(line).or_default().insert(pc);
    }
    places
}

#[test]
fn lines_agree_with_gdb() {
    for (compiler, source, flags) in [
        ("gcc", "shapes.c", &["-O0", "-g"][..]),
        ("gcc", "shapes.c", &["-O2", "-g"]),
        ("gcc", "shapes.c", &["-O2", "-g", "-gdwarf-4", "-gz"]),
        ("clang-14", "shapes.c", &["-O2", "-g"]),
        ("g++", "shapes.cc", &["-O2", "-g"]),
        ("rustc", "shapes.rs", &["--edition=2021", "-g", "-Copt-level=0"]),
        ("rustc", "shapes.rs", &["--edition=2021", "-g", "-Copt-level=2"]),
    ] {
        let fixture = compile(compiler, source, flags);
        let text = std::fs::read_to_string(support::source(source)).unwrap();
        let count = text.lines().count() as u64;
        let gdb = by_gdb(&fixture.path, source, count);
        let (mut with_code, mut places) = (0, 0);
        for line in 1..=count {
            let theirs = gdb.get(&line).cloned().unwrap_or_default();
            let ours: BTreeSet<u64> = match lines::find(&fixture.index, source, line) {
                Ok(found) => found.sites.iter().map(|site| site.address).collect(),
                Err(LineError::NoCode { .. }) => BTreeSet::new(),
                Err(error) => panic!("{source}:{line}: {error}"),
            };
            // gdb takes one place of each block; a line that the compiler cut up has several.
            assert!(
                theirs.is_subset(&ours),
                "{compiler} {flags:?} {source}:{line}: gdb {theirs:x?}, ours {ours:x?}"
            );
            assert_eq!(
                ours.is_empty(),
                theirs.is_empty(),
                "{compiler} {flags:?} {source}:{line}"
            );
            with_code += u64::from(!ours.is_empty());
            places += ours.len();
        }
        println!("{compiler} {flags:?} {source}: {with_code} lines, {places} places");
        assert!(with_code >= 10, "{with_code} lines of {source} have code");
    }
}

#[test]
fn a_line_without_code_names_the_nearest_with_code() {
    let fixture = compile("gcc", "shapes.c", &["-O0", "-g"]);
    let Err(LineError::NoCode { file, nearest, .. }) = lines::find(&fixture.index, "shapes.c", 1) else {
        panic!()
    };
    assert!(file.ends_with("/shapes.c"), "{file}");
    assert_eq!(nearest.len(), 1, "{nearest:?}");
    assert!(lines::find(&fixture.index, "shapes.c", nearest[0]).is_ok());
    assert_eq!(
        lines::find(&fixture.index, "apes.c", 1),
        Err(LineError::NoSuchFile("apes.c".to_owned()))
    );
    let stripped = compile("gcc", "shapes.c", &["-O0"]);
    assert_eq!(
        lines::find(&stripped.index, "shapes.c", 1),
        Err(LineError::NoLines)
    );
}
