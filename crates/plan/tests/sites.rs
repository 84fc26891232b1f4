//! Symbols against nm, entry and exit sites against objdump, on what compilers write.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use profiler_common::instruction::Operation;
use profiler_plan::{
    Ends, ExitSite, Limits, Plan, PlanError, PlannedFunction,
    hazards::{Decision, Hazards, KernelAbility, Method, ModuleHazards},
    ifuncs::Choices,
    plan,
};
use profiler_scope::{self as scope, Name, Place};

use support::{Fixture, Line, compile, disassemble, run};

const RET: Decision = decision(Method::Ret);
const RETURN: Decision = decision(Method::Return);

const fn decision(method: Method) -> Decision {
    Decision {
        method,
        done_by_program: false,
        stacks_switch: false,
        reasons: vec![],
        warnings: vec![],
    }
}

fn planned(fixture: &Fixture, text: &str) -> Result<Plan, PlanError> {
    plan_by(fixture, text, &RET)
}

fn plan_by(fixture: &Fixture, text: &str, decision: &Decision) -> Result<Plan, PlanError> {
    let Place::Function(name) = scope::parse(text).unwrap().steps.swap_remove(0).place else {
        panic!("{text} is no function");
    };
    plan(
        &name,
        &[&fixture.index],
        &Choices::default(),
        decision,
        KernelAbility::default(),
        Limits::default(),
    )
}

fn fixtures() -> Vec<Fixture> {
    let mut all = Vec::new();
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for compiler in ["gcc", "clang-14"] {
            all.push(compile(compiler, "shapes.c", &[level, "-g"]));
            all.push(compile(compiler, "ends.c", &[level, "-g"]));
        }
        all.push(compile("g++", "shapes.cc", &[level, "-g"]));
    }
    all.push(compile(
        "gcc",
        "shapes.c",
        &["-O2", "-fcf-protection=full", "-static"],
    ));
    all.push(compile(
        "gcc",
        "shapes.c",
        &["-O2", "-fno-omit-frame-pointer", "-fpatchable-function-entry=5"],
    ));
    for level in ["0", "2"] {
        all.push(compile(
            "rustc",
            "shapes.rs",
            &["--edition=2021", &format!("-Copt-level={level}")],
        ));
    }
    all
}

#[test]
fn symbols_agree_with_nm() {
    for fixture in fixtures() {
        let text = run(Command::new("nm").arg(&fixture.path));
        let mut expected = BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, "t" | "T" | "W" | "w" | "i", name] = words[..] else {
                continue;
            };
            if !name.contains(".cold") {
                expected.insert((
                    u64::from_str_radix(address, 16).unwrap(),
                    name.split('@').next().unwrap(),
                ));
            }
        }
        let mut seen = 0;
        for function in fixture.index.functions() {
            for name in function.linkage_names() {
                seen += 1;
                assert!(
                    expected.contains(&(function.address(), &*name)),
                    "{name} in {:?}",
                    fixture.path
                );
            }
            assert!(function.file_offset().is_some());
        }
        // The rest are labels of assembly without a type.
        assert!(seen * 10 >= expected.len() * 9, "{seen} of {}", expected.len());
    }
}

/// What objdump shows of a function, with its cold parts.
fn body<'a>(
    lines: &'a BTreeMap<u64, Line>,
    ranges: &'a [std::ops::Range<u64>],
) -> impl Iterator<Item = (&'a u64, &'a Line)> {
    ranges.iter().flat_map(|range| lines.range(range.clone()))
}

/// File offsets of instructions, and addresses that branches lead to.
fn landmarks(lines: &BTreeMap<u64, Line>, fixture: &Fixture) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let boundaries = lines
        .keys()
        .filter_map(|at| fixture.index.offset_of(*at))
        .collect();
    (boundaries, lines.values().filter_map(branch_target).collect())
}

fn branch_target(line: &Line) -> Option<u64> {
    if !line.mnemonic.starts_with('j') {
        return None;
    }
    u64::from_str_radix(
        line.operands.split_whitespace().next()?.trim_start_matches("0x"),
        16,
    )
    .ok()
}

fn check(
    function: &PlannedFunction,
    lines: &BTreeMap<u64, Line>,
    fixture: &Fixture,
    boundaries: &BTreeSet<u64>,
    targets: &BTreeSet<u64>,
) {
    let context = format!("{} in {}", function.name, fixture.path.display());
    let entry = function.address + function.entry.delta;
    assert!(lines.contains_key(&entry), "{context}: {entry:x} is no boundary");
    assert_eq!(fixture.index.offset_of(entry), Some(function.entry_offset));
    let range = function.address..function.address + function.size;
    // Nothing before the entry moves the stack pointer, branches, or is branched to.
    for (address, line) in lines.range(function.address..entry) {
        let moves = matches!(
            line.mnemonic.as_str(),
            "push" | "pop" | "leave" | "ret" | "call" | "syscall"
        );
        assert!(
            !moves && !line.mnemonic.starts_with('j'),
            "{context}: {address:x}"
        );
        assert!(
            !line.operands.starts_with("rsp,") || line.mnemonic == "cmp",
            "{context}: {address:x}"
        );
    }
    let emulated = lines[&entry].mnemonic.starts_with('j')
        || ["push", "nop", "call"].contains(&lines[&entry].mnemonic.as_str());
    assert_eq!(
        !function.entry.single_stepped, emulated,
        "{context}: {}",
        lines[&entry].mnemonic
    );
    if function.entry.delta > 0 {
        assert!(!targets.contains(&entry), "{context}");
    }
    // Every return is an exit, and every exit a return or a jump that leaves.
    let exits: BTreeMap<u64, _> = function
        .ends
        .sites()
        .iter()
        .map(|exit| (exit.file_offset, exit))
        .collect();
    let hot = [range.clone()];
    for (address, line) in body(lines, &hot) {
        let exit = exits.get(&fixture.index.offset_of(*address).unwrap());
        match line.mnemonic.as_str() {
            "ret" => {
                let exit = exit.unwrap_or_else(|| panic!("{context}: no exit at {address:x}"));
                assert_eq!(exit.action.operation, Operation::Return as u8);
            }
            "jmp" => match (branch_target(line), exit) {
                (Some(target), Some(_)) => assert!(!range.contains(&target), "{context}: {address:x}"),
                (None, Some(exit)) => assert!(exit.way.may_stay_inside(), "{context}: {address:x}"),
                _ => {}
            },
            jump if jump.starts_with('j') => {
                let leaves = branch_target(line).is_some_and(|target| !range.contains(&target));
                assert!(
                    exit.is_none_or(|exit| exit.condition.is_some() && leaves),
                    "{context}: {address:x}"
                );
            }
            _ => assert!(
                exit.is_none(),
                "{context}: an exit at {address:x}, {}",
                line.mnemonic
            ),
        }
    }
    for exit in function.ends.sites() {
        assert!(boundaries.contains(&exit.file_offset), "{context}");
    }
}

#[test]
fn sites_agree_with_objdump() {
    let (mut functions, mut skipped) = (0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for fixture in fixtures() {
        let lines = disassemble(&fixture.path);
        let (boundaries, targets) = landmarks(&lines, &fixture);
        let whole = plan(
            &Name::Glob("*".into()),
            &[&fixture.index],
            &Choices::default(),
            &RET,
            KernelAbility::default(),
            Limits {
                functions: usize::MAX,
            },
        )
        .unwrap();
        functions += whole.functions.len();
        skipped += whole.skipped.len();
        for one in &whole.skipped {
            assert!(
                !one.instead.is_empty(),
                "{one:?}: nothing is said of what still works"
            );
            *reasons.entry(one.reason.clone()).or_insert(0) += 1;
        }
        for function in &whole.functions {
            check(function, &lines, &fixture, &boundaries, &targets);
        }
    }
    println!("{functions} functions planned, {skipped} skipped: {reasons:#?}");
    assert!(
        functions > 1_000 && skipped * 5 < functions,
        "{functions} planned, {skipped} skipped"
    );
}

#[test]
fn tail_calls_tables_and_cold_parts() {
    let fixture = compile("gcc", "shapes.c", &["-O2", "-g", "-fcf-protection=none"]);
    let one = |name: &str| planned(&fixture, name).unwrap().functions.remove(0);
    // It lasts until what it jumps to returns.
    let (tail, framed) = (one("tail"), one("framed"));
    let returns = |function: &PlannedFunction| -> Vec<u64> {
        let sites = function.ends.sites().iter();
        sites.map(|exit| exit.file_offset).collect()
    };
    assert_eq!(returns(&tail), returns(&framed));
    assert!(
        tail.ends
            .sites()
            .iter()
            .all(|exit| exit.is_elsewhere && !exit.way.is_jump())
    );
    assert_eq!(
        (tail.tail_calls.followed, tail.tail_calls.cut),
        (vec!["framed".to_owned()], vec![])
    );
    let indirect = one("indirect");
    assert!(
        indirect
            .ends
            .sites()
            .iter()
            .any(|exit| exit.way.may_stay_inside())
    );
    assert_eq!(indirect.tail_calls.cut, ["where a pointer leads"]);
    // The switch jumps with a frame on the stack, so it needs no probe.
    let table = one("table");
    assert!(
        table.ends.sites().iter().all(|exit| !exit.way.may_stay_inside()),
        "{:?}",
        table.ends.sites()
    );
    // The jump to the cold part is no exit.
    let lines = disassemble(&fixture.path);
    let cold = one("with_cold");
    let (boundaries, targets) = landmarks(&lines, &fixture);
    check(&cold, &lines, &fixture, &boundaries, &targets);
    assert!(
        cold.ends
            .sites()
            .iter()
            .all(|exit| exit.action.operation == Operation::Return as u8)
    );
}

#[test]
fn functions_that_never_return_have_no_end() {
    for compiler in ["gcc", "clang-14"] {
        let fixture = compile(compiler, "ends.c", &["-O2", "-g"]);
        assert_eq!(
            planned(&fixture, "give_up").unwrap().functions[0].ends,
            Ends::Never
        );
        let by_return = plan_by(&fixture, "give_up", &RETURN).unwrap();
        assert_eq!(by_return.functions[0].ends, Ends::Never);
    }
}

#[test]
fn code_that_falls_through_is_refused_except_by_return_probe() {
    let fixture = compile("gcc", "ends.c", &["-O2", "-g"]);
    let refused = planned(&fixture, "falls").unwrap_err().to_string();
    assert!(
        refused.contains("falls through into the next function"),
        "{refused}"
    );
    let by_return = plan_by(&fixture, "falls", &RETURN).unwrap();
    assert_eq!(by_return.functions[0].ends, Ends::ReturnProbe);
}

#[test]
fn a_function_that_reads_its_return_address_gets_no_return_probe() {
    for (compiler, flags) in [
        ("gcc", &["-O2"][..]),
        ("gcc", &["-O0"]),
        ("gcc", &["-O1", "-fno-omit-frame-pointer"]),
        ("clang-14", &["-O2"]),
        ("clang-14", &["-O0"]),
    ] {
        let fixture = compile(compiler, "ends.c", flags);
        let ends = |name: &str| plan_by(&fixture, name, &RETURN).unwrap().functions.remove(0).ends;
        assert!(matches!(ends("returns_to"), Ends::At(_)), "{compiler} {flags:?}");
        for name in ["framed", "late_cold", "leaf", "recursive"] {
            assert_eq!(ends(name), Ends::ReturnProbe, "{compiler} {flags:?} {name}");
        }
    }
}

#[test]
fn jumps_with_a_frame_on_the_stack_are_no_exits() {
    for (compiler, flags) in [
        ("gcc", &["-O2", "-fcf-protection=none"][..]),
        ("gcc", &["-O2", "-fcf-protection=none", "-fno-omit-frame-pointer"]),
        ("gcc", &["-O0", "-fcf-protection=none"]),
        ("clang-14", &["-O2"]),
    ] {
        let fixture = compile(compiler, "ends.c", flags);
        let computed = planned(&fixture, "computed").unwrap().functions.remove(0);
        let exits = computed.ends.sites();
        assert!(
            !exits.is_empty() && exits.iter().all(|exit| !exit.way.is_jump()),
            "{compiler} {flags:?}: {exits:?}"
        );
    }
}

#[test]
fn a_jump_to_another_files_function_is_an_exit() {
    let fixture = compile("gcc", "ends.c", &["-O2"]);
    let planned = planned(&fixture, "hand_over").unwrap().functions.remove(0);
    assert!(matches!(planned.ends.sites(), [exit] if exit.way.is_jump()));
}

#[test]
fn a_cold_part_that_has_lost_its_symbol_is_found_by_its_unwind_rows() {
    let fixture = compile("gcc", "ends.c", &["-O2", "-rdynamic"]);
    let with_symbols = planned(&fixture, "late_cold").unwrap().functions.remove(0);
    run(Command::new("strip").arg(&fixture.path));
    let stripped = Fixture {
        index: support::index(&fixture.path),
        ..fixture
    };
    let without = planned(&stripped, "late_cold").unwrap().functions.remove(0);
    assert_eq!(without.ends, with_symbols.ends);
    let range = without.address..without.address + without.size;
    let in_hot =
        |exit: &&ExitSite| (range.clone()).any(|at| stripped.index.offset_of(at) == Some(exit.file_offset));
    let sites = without.ends.sites();
    let hot = sites.iter().filter(in_hot).count();
    assert!(hot > 0 && hot < sites.len(), "no exit in a cold part: {sites:?}");
}

#[test]
fn names_of_three_languages() {
    let cpp = compile("g++", "shapes.cc", &["-O0"]);
    let count = |fixture: &Fixture, name: &str| planned(fixture, name).map(|plan| plan.functions.len());
    assert_eq!(count(&cpp, "handle_request").unwrap(), 2);
    assert_eq!(
        count(&cpp, "\"server::Connection::handle_request(int)\"").unwrap(),
        1
    );
    assert_eq!(count(&cpp, "Connection::handle_*").unwrap(), 2);
    assert_eq!(count(&cpp, "server::twice").unwrap(), 2);
    assert_eq!(count(&cpp, "\"server::twice<double>\"").unwrap(), 1);
    assert_eq!(count(&cpp, "\"server::operator<<\"").unwrap(), 1);
    let rust = compile("rustc", "shapes.rs", &["--edition=2021", "-Copt-level=0"]);
    assert_eq!(count(&rust, "parse_line").unwrap(), 1);
    assert_eq!(count(&rust, "Server::new").unwrap(), 1);
    assert_eq!(
        count(&rust, "fixture::generic")
            .or_else(|_| count(&rust, "generic"))
            .unwrap(),
        2
    );
    assert!(count(&rust, "Server::handle").unwrap() >= 1);
    for mangling in ["legacy", "v0"] {
        let flags = [
            "--edition=2021",
            "-Copt-level=0",
            &format!("-Csymbol-mangling-version={mangling}"),
            "-Zunstable-options",
        ];
        let flags = if mangling == "v0" {
            &flags[..3]
        } else {
            &flags[..2]
        };
        let rust = compile("rustc", "shapes.rs", flags);
        assert_eq!(count(&rust, "Server::new").unwrap(), 1, "{mangling}");
        assert_eq!(count(&rust, "Server::handle").unwrap(), 1, "{mangling}");
    }
}

#[test]
fn refuses_unusable_names_with_the_reason() {
    let fixture = compile("gcc", "shapes.c", &["-O0"]);
    let Err(PlanError::NoSuchFunction {
        nearest,
        stripped: false,
        ..
    }) = planned(&fixture, "recursve")
    else {
        panic!()
    };
    assert_eq!(nearest[0], "recursive");
    let few = Limits { functions: 3 };
    let every = Name::Glob("*".into());
    let error = plan(
        &every,
        &[&fixture.index],
        &Choices::default(),
        &RET,
        KernelAbility::default(),
        few,
    )
    .unwrap_err();
    assert!(
        matches!(
            error,
            PlanError::TooMany {
                limit: 3,
                found: 10..,
                ..
            }
        ),
        "{error}"
    );
    run(Command::new("strip").arg(&fixture.path));
    let stripped = Fixture {
        index: support::index(&fixture.path),
        ..fixture
    };
    assert!(matches!(
        planned(&stripped, "recursive"),
        Err(PlanError::NoSuchFunction { stripped: true, .. })
    ));
}

#[test]
fn a_go_program_is_told_however_it_is_linked_and_stripped() {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../profiler-daemon/tests/fixtures/engine/goroutines.go"
    );
    let directory = tempfile::tempdir().unwrap();
    let builds: [&[&str]; 4] = [
        &[],
        &["-ldflags=-s -w"],
        &["-buildmode=pie", "-ldflags=-s -w"],
        &["-buildmode=c-shared", "-ldflags=-s -w"],
    ];
    for flags in builds {
        let path = directory.path().join("goroutines");
        run(Command::new("go")
            .args(["build", "-buildvcs=false"])
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(source));
        let mut bytes = std::fs::read(&path).unwrap();
        let reasons = |bytes: &[u8]| {
            let found = ModuleHazards::scan("goroutines", bytes).unwrap();
            Hazards::of([("goroutines", &found)]).goroutines
        };
        assert!(reasons(&bytes).is_some(), "{flags:?}");
        // e_shoff; e_shentsize, e_shnum and e_shstrndx.
        bytes[0x28..0x30].fill(0);
        bytes[0x3a..0x40].fill(0);
        assert!(reasons(&bytes).is_some(), "{flags:?} without section headers");
    }
    let other = compile("gcc", "shapes.c", &["-O2"]);
    let found = ModuleHazards::scan("shapes", &std::fs::read(&other.path).unwrap()).unwrap();
    assert_eq!(Hazards::of([("shapes", &found)]).goroutines, None);
}
