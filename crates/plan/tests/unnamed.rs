//! Functions of stripped files: those that unwind rows bound, against what the same file's symbols said.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{collections::BTreeMap, process::Command};

use profiler_plan::{
    KernelAbility, Limits, ModuleIndex, Plan, PlanError,
    hazards::{Decision, Method},
    ifuncs::Choices,
    plan,
};
use profiler_scope::{self as scope, Name, Place};

use support::{Fixture, compile, index, run};

/// The same program with symbols and without, where the first instruction of each function is a site of its own.
struct Both {
    named: Fixture,
    stripped: ModuleIndex,
}

fn both(compiler: &str, source: &str) -> Both {
    let named = compile(compiler, source, &["-O2", "-fno-inline"]);
    let path = named.directory.path().join("stripped");
    run(Command::new("strip").arg("-o").args([&path, &named.path]));
    let stripped = index(&path).mapped_by("/usr/bin/stripped");
    Both { named, stripped }
}

fn planned(module: &ModuleIndex, text: &str) -> Result<Plan, PlanError> {
    let Place::Function(name) = scope::parse(text).unwrap().steps.swap_remove(0).place else {
        panic!("{text} is no function");
    };
    let decision = Decision {
        method: Method::Ret,
        done_by_program: false,
        stacks_switch: false,
        reasons: vec![],
        warnings: vec![],
    };
    let ability = KernelAbility::default();
    plan(
        &name,
        &[module],
        &Choices::default(),
        &decision,
        ability,
        Limits::default(),
    )
}

#[test]
fn a_function_without_a_name_is_planned_like_the_one_that_it_is() {
    for (compiler, source) in [("gcc", "ends.c"), ("g++", "shapes.cc"), ("clang-14", "shapes.c")] {
        let Both { named, stripped } = both(compiler, source);
        let mut same = 0;
        for function in named.index.functions() {
            if stripped.function_at(function.address()).is_some() {
                continue;
            }
            let name = format!("\"stripped+{:#x}\"", function.address());
            let exact = format!("\"{}\"", function.linkage_name());
            let (Ok(with), Ok(without)) = (planned(&named.index, &exact), planned(&stripped, &name)) else {
                continue;
            };
            let ([with], [without]) = (&with.functions[..], &without.functions[..]) else {
                continue;
            };
            assert_eq!(format!("\"{}\"", without.name), name);
            assert_eq!(without.linkage_name, without.name);
            assert_eq!(
                (
                    without.address,
                    without.size,
                    without.entry_offset,
                    &without.entry,
                    &without.ends
                ),
                (
                    with.address,
                    with.size,
                    with.entry_offset,
                    &with.entry,
                    &with.ends
                ),
                "{source}: {exact} as {name}"
            );
            same += 1;
        }
        assert!(same >= 10, "{compiler} {source}: {same} functions compared");
    }
}

#[test]
fn each_function_that_lost_its_symbol_is_there_once_and_cold_parts_are_not() {
    let Both { named, stripped } = both("gcc", "ends.c");
    let functions: BTreeMap<u64, String> = named
        .index
        .functions()
        .map(|function| (function.address(), function.name().into_owned()))
        .collect();
    let unnamed: Vec<u64> = stripped.unnamed().iter().map(|range| range.start).collect();
    for address in &unnamed {
        assert!(functions.contains_key(address), "{address:#x} is no function");
    }
    let found = |name: &str| {
        let (address, _) = functions.iter().find(|(_, known)| *known == name).unwrap();
        unnamed.binary_search(address).is_ok()
    };
    assert!(found("late_cold") && found("main"));
    let numbers = stripped.len()..stripped.len() + unnamed.len();
    for (number, &address) in numbers.zip(&unnamed) {
        assert!(stripped.has_number(number));
        assert_eq!(stripped.number_at(address), Some(number));
        assert!(stripped.function(number).is_unnamed());
    }
    assert!(!stripped.has_number(stripped.len() + unnamed.len()));
    // Where nothing was stripped, the start-up code alone has lost its name.
    assert!(named.index.unnamed().len() <= 1, "{:x?}", named.index.unnamed());
}

#[test]
fn patterns_mean_functions_without_names_only_by_file_and_address() {
    let Both { stripped, .. } = both("gcc", "ends.c");
    let count = |pattern: &str| stripped.matching(&Name::Glob(pattern.to_owned())).len();
    assert_eq!(count("*"), stripped.len());
    assert_eq!(count("stripped*"), 0);
    assert_eq!(count("stripped+0x*"), stripped.unnamed().len());
    assert_eq!(count("other+0x*"), 0);
    let exact = |name: String| stripped.matching(&Name::Exact(name)).len();
    let first = stripped.unnamed()[0].start;
    for path in ["stripped", "bin/stripped", "/usr/bin/stripped"] {
        assert_eq!(exact(format!("{path}+{first:#x}")), 1, "{path}");
    }
    for path in ["tripped", "n/stripped", "other"] {
        assert_eq!(exact(format!("{path}+{first:#x}")), 0, "{path}");
    }
}

#[test]
fn an_address_inside_of_a_function_is_refused_by_its_beginning() {
    let Both { stripped, .. } = both("gcc", "ends.c");
    let first = stripped.unnamed()[0].start;
    let error = planned(&stripped, &format!("\"stripped+{:#x}\"", first + 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "neither a symbol nor unwind information say that a function begins at \"stripped+{:#x}\": it is inside of \
             stripped+{first:#x}",
            first + 1
        )
    );
    assert!(matches!(
        planned(&stripped, "\"stripped+0xffffff\""),
        Err(PlanError::NoFunctionAt { around: None, .. })
    ));
}

#[test]
fn a_named_function_may_be_meant_by_its_address_too() {
    let fixture = compile("gcc", "ends.c", &["-O2"]);
    let module = index(&fixture.path).mapped_by("/fixture");
    let main = module
        .functions()
        .find(|function| function.name() == "main")
        .unwrap();
    let plan = planned(&module, &format!("\"fixture+{:#x}\"", main.address())).unwrap();
    assert_eq!(plan.functions[0].name, "main");
}

/// A label of assembly without a size, behind which other code without a name follows, and unwind rows nowhere.
#[test]
fn a_name_without_a_size_ends_with_its_code() {
    const SOURCE: &str = ".globl main\n.text\n.globl first\nfirst: test %edi, %edi\nje 1f\nret\n1: xor %eax, %eax\nret\n\
                          .balign 16\n.fill 4096, 1, 0x90\nret\n.globl last\nlast: ret\nmain: ret\n\
                          .section .note.GNU-stack\n";
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("labels.s"), folder.path().join("labels"));
    std::fs::write(&source, SOURCE).unwrap();
    run(Command::new("gcc").arg(&source).arg("-o").arg(&program));
    let module = index(&program);
    let listed = run(Command::new("nm").arg(&program));
    let line = listed.lines().find(|line| line.ends_with(" first")).unwrap();
    let first = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    // test, je, ret, xor, ret: 2 + 2 + 1 + 2 + 1 bytes.
    assert_eq!(module.symbol_name_at(first).as_deref(), Some("first"));
    assert_eq!(module.symbol_name_at(first + 7).as_deref(), Some("first"));
    assert_eq!(module.symbol_name_at(first + 8), None);
    assert_eq!(module.symbol_name_at(first + 2000), None);
}
