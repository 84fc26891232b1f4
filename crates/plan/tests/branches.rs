//! The branches of lines, against objdump and what is shown of the functions that they are in.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::condition::Condition;
use profiler_plan::{
    KernelAbility,
    branches::{self, BranchError, FoundBranches, Reason},
    lines::{self, LineError},
    source::{self, Branch, FunctionSource},
};
use profiler_testkit::has_program;

use support::{
    Fixture, compile,
    listing::{drop_without_line, listing},
    source as path_of,
};

/// Compiler, source, flags.
const BUILDS: [(&str, &str, &[&str]); 13] = [
    ("gcc", "calls.c", &["-O0", "-g"]),
    ("gcc", "calls.c", &["-O2", "-g"]),
    ("gcc", "calls.c", &["-O2", "-g", "-gdwarf-4", "-gz", "-no-pie"]),
    ("clang-14", "calls.c", &["-O0", "-g"]),
    ("clang-14", "calls.c", &["-O2", "-g"]),
    ("gcc", "shapes.c", &["-O2", "-g"]),
    ("gcc", "source.c", &["-O2", "-g"]),
    ("g++", "source.cc", &["-O0", "-g"]),
    ("g++", "source.cc", &["-O2", "-g"]),
    ("g++", "shapes.cc", &["-O2", "-g"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=0"]),
    ("rustc", "calls.rs", &["--edition=2024", "-g", "-Copt-level=0"]),
    ("rustc", "calls.rs", &["--edition=2024", "-g", "-Copt-level=2"]),
];

/// The line of a source with a word.
fn line_with(file: &str, word: &str) -> u64 {
    let text = std::fs::read_to_string(path_of(file)).unwrap();
    text.lines().position(|line| line.contains(word)).unwrap() as u64 + 1
}

/// What objdump calls a jump with a condition.
fn condition_of(mnemonic: &str) -> Option<Condition> {
    Some(match mnemonic {
        "jo" => Condition::OVERFLOW,
        "jno" => Condition::NO_OVERFLOW,
        "jb" => Condition::BELOW,
        "jae" => Condition::ABOVE_OR_EQUAL,
        "je" => Condition::EQUAL,
        "jne" => Condition::NOT_EQUAL,
        "jbe" => Condition::BELOW_OR_EQUAL,
        "ja" => Condition::ABOVE,
        "js" => Condition::SIGN,
        "jns" => Condition::NO_SIGN,
        "jp" => Condition::PARITY,
        "jnp" => Condition::NO_PARITY,
        "jl" => Condition::LESS,
        "jge" => Condition::GREATER_OR_EQUAL,
        "jle" => Condition::LESS_OR_EQUAL,
        "jg" => Condition::GREATER,
        _ => return None,
    })
}

/// The branches that are shown of the functions that hold a line, by address, each with its function.
fn shown(fixture: &Fixture, file: &str, line: u64) -> BTreeMap<u64, (FunctionSource, Branch)> {
    let Ok((_, found)) = source::line(&fixture.index, file, line, 100) else {
        return BTreeMap::new();
    };
    let mut branches = BTreeMap::new();
    for function in found.functions {
        for branch in function.lines.iter().flat_map(|line| &line.branches) {
            branches.insert(branch.address, (function.clone(), branch.clone()));
        }
    }
    branches
}

fn found(fixture: &Fixture, file: &str, line: u64) -> FoundBranches {
    branches::find(&fixture.index, file, line).unwrap_or_else(|error| match error {
        BranchError::Line(LineError::NoCode { .. })
        | BranchError::NoBranches { .. }
        | BranchError::Unusable { .. } => FoundBranches {
            file: String::new(),
            sites: Vec::new(),
            left_out: Vec::new(),
            missing: Vec::new(),
        },
        error => panic!("{file}:{line}: {error}"),
    })
}

#[test]
fn branches_of_lines_are_those_of_objdump() {
    for (compiler, file, flags) in BUILDS.into_iter().filter(|(compiler, ..)| has_program(compiler)) {
        let build = format!("{compiler} {flags:?} {file}");
        let fixture = compile(compiler, file, flags);
        let listed = listing(&fixture.path);
        let end = format!("/{file}");
        let count = std::fs::read_to_string(path_of(file)).unwrap().lines().count() as u64;
        let (mut total, mut targets, mut with_line, mut of_no_line) = (0, 0, 0, 0);
        let mut conditions = BTreeSet::new();
        for line in 1..=count {
            let mut theirs: BTreeMap<u64, Condition> = listed
                .iter()
                .filter(|(_, listed)| listed.line == line && listed.file.ends_with(&end))
                .filter_map(|(address, listed)| Some((*address, condition_of(&listed.mnemonic)?)))
                .collect();
            let ours = found(&fixture, file, line);
            let pairs: BTreeMap<u64, Condition> = ours
                .sites
                .iter()
                .map(|site| (site.jump.address, site.condition))
                .collect();
            of_no_line +=
                drop_without_line(&fixture.path, &mut theirs, |address| pairs.contains_key(&address));
            assert_eq!(pairs, theirs, "{build}:{line}");
            total += pairs.len();
            let shown = shown(&fixture, file, line);
            for site in &ours.sites {
                conditions.insert(site.condition.number());
                assert!(!site.jump.is_single_stepped(KernelAbility::default()), "{build}");
                let operands = &listed[&site.jump.address].operands;
                let target = u64::from_str_radix(operands.split(' ').next().unwrap(), 16).unwrap();
                let (next, _) = listed.range(site.jump.address + 1..).next().unwrap();
                assert_eq!(
                    (site.taken.address, site.otherwise.address),
                    (target, *next),
                    "{build}"
                );
                let Some((function, branch)) = shown.get(&site.jump.address) else {
                    panic!("{build}:{line}: {:#x} is not shown", site.jump.address)
                };
                let positions = [
                    (&site.taken, &branch.taken),
                    (&site.otherwise, branch.otherwise.as_ref().unwrap()),
                ];
                for (ours, theirs) in positions {
                    assert_eq!(ours.address, theirs.address);
                    // Where an instance is left, its own view ends, but not that of the function around.
                    if theirs.line != 0 {
                        let theirs_file = if theirs.file.is_empty() {
                            &function.file
                        } else {
                            &theirs.file
                        };
                        assert_eq!(
                            (&ours.file, ours.line),
                            (theirs_file, theirs.line),
                            "{build}:{line} {:#x} to {:#x}",
                            site.jump.address,
                            ours.address
                        );
                        targets += 1;
                    }
                    with_line += usize::from(ours.line != 0);
                }
            }
        }
        println!(
            "{build}: {total} branches with {} conditions, {with_line} of {} targets with a line, {targets} compared, \
             {of_no_line} of no line",
            conditions.len(),
            2 * total
        );
        assert!(total >= 1 && targets >= 1, "{build}");
    }
}

#[test]
fn branches_are_found_in_each_instance() {
    let file = "calls.c";
    let fixture = compile("gcc", file, &["-O2", "-g"]);
    let line = line_with(file, "/* inlined branch */");
    let found = branches::find(&fixture.index, file, line).unwrap();
    assert_eq!(found.sites.len(), 2, "{found:?}");
    for site in &found.sites {
        assert_eq!(site.function, "twice");
        let inside = [site.taken.line, site.otherwise.line].map(u64::from);
        assert!(
            inside.contains(&(line + 1)) && inside.contains(&(line + 2)),
            "{site:?}"
        );
        // n > 100: what is behind the branch is reached where it is not.
        let call = if site.taken.line == site.otherwise.line.min(site.taken.line) {
            site.condition
        } else {
            site.condition.opposite()
        };
        assert_eq!(call, Condition::GREATER);
    }
}

#[test]
fn a_line_without_branches_names_the_nearest_with_one() {
    let file = "calls.c";
    let fixture = compile("gcc", file, &["-O1", "-g"]);
    let find = |word: &str| branches::find(&fixture.index, file, line_with(file, word));
    let none = find("/* tail call */").unwrap_err();
    let nearest_line = line_with(file, "/* branch of the tail */");
    assert!(
        matches!(&none, BranchError::NoBranches { nearest, .. } if nearest == &[nearest_line]),
        "{none:?}"
    );
    assert!(
        none.to_string().ends_with(&format!(
            "has no conditional jump; the nearest lines with one: {nearest_line}"
        )),
        "{none}"
    );
    let register = find("/* by a register */").unwrap_err();
    assert!(
        matches!(&register, BranchError::Unusable { function, reason: Reason::NotByFlags(name), .. }
            if function == "repeated" && name == "loop"),
        "{register:?}"
    );
    assert!(matches!(
        branches::find(&fixture.index, file, 1),
        Err(BranchError::Line(LineError::NoCode { .. }))
    ));
    assert!(matches!(
        branches::find(&fixture.index, "no.c", 1),
        Err(BranchError::Line(LineError::NoSuchFile(_)))
    ));
}

#[test]
fn lines_alone_are_enough() {
    let file = "calls.rs";
    let fixture = compile(
        "rustc",
        file,
        &["--edition=2024", "-Cdebuginfo=line-tables-only", "-Copt-level=2"],
    );
    // Nothing is inlined into it, so that it is described nowhere.
    let line = line_with(file, "if sum == 12345");
    let found = branches::find(&fixture.index, file, line).unwrap();
    assert!(found.sites.iter().any(|site| site.taken.line != 0), "{found:?}");
    for line in 1..60 {
        for site in self::found(&fixture, file, line).sites {
            assert!(fixture.index.function_at(site.jump.address).is_some(), "{site:?}");
        }
    }
}

#[test]
fn code_that_was_dropped_is_not_found() {
    let file = "calls.rs";
    let fixture = compile("rustc", file, &["--edition=2024", "-g", "-Copt-level=0"]);
    // A line of the standard library with code in many functions, most of which are not called.
    let call =
        (245..256).filter_map(|line| lines::find(&fixture.index, "core/src/ops/function.rs", line).ok());
    let sites: Vec<u64> = call
        .flat_map(|found| found.sites)
        .map(|site| site.address)
        .collect();
    println!("{} places", sites.len());
    assert!(!sites.is_empty());
    for site in sites {
        assert!(fixture.index.function_at(site).is_some(), "{site:#x}");
    }
}
