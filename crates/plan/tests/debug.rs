//! What DWARF says against gdb and readelf, and damaged files.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{process::Command, sync::Arc};

use profiler_elf::ElfError;
use profiler_plan::{
    ModuleIndex, PlanError, branches, calls,
    dwarf::DebugIndex,
    hazards::{Hazards, KernelAbility, ModuleHazards},
    ifuncs::Choices,
    only_inlined,
};
use profiler_scope::Name;
use proptest::prelude::*;

use support::{compile, run};

#[test]
fn declarations_agree_with_gdb() {
    for (compiler, source, flags) in [
        ("gcc", "shapes.c", &["-O0", "-g"][..]),
        ("gcc", "shapes.c", &["-O2", "-g", "-gz"]),
        ("clang-14", "shapes.c", &["-O2", "-g", "-gdwarf-4"]),
        ("g++", "shapes.cc", &["-O2", "-g"]),
        ("rustc", "shapes.rs", &["--edition=2021", "-g", "-Copt-level=0"]),
    ] {
        let fixture = compile(compiler, source, flags);
        let debug = DebugIndex::new(fixture.index.files().program()).unwrap();
        let mut compared = 0;
        for function in fixture.index.functions() {
            let Some(known) = debug.functions.get(&function.address()) else {
                continue;
            };
            if !known.source.file.ends_with(source) {
                continue;
            }
            // The line table says where its code begins, at or after where it is declared.
            let question = format!("info line *{:#x}", function.address());
            let answer = run(Command::new("gdb")
                .args(["-batch", "-ex", &question])
                .arg(&fixture.path));
            let Some(line) = answer
                .strip_prefix("Line ")
                .and_then(|a| a.split(' ').next()?.parse::<u64>().ok())
            else {
                continue;
            };
            let name = function.name();
            let here = answer.contains(&format!("/{source}\""));
            assert!(
                here && line.abs_diff(known.source.line) <= 2,
                "{name}: {known:?}, gdb: {answer}"
            );
            compared += 1;
        }
        assert!(compared >= 5, "{compared} functions of {source} compared");
        // Functions that are looked up by themselves are described as among all.
        for function in fixture.index.functions() {
            let address = function.address();
            let alone = profiler_plan::source::debugged(&fixture.index, &[address]);
            let among_all = debug.functions.get(&address).cloned();
            let name = function.name();
            assert_eq!(alone.get(&address).cloned(), among_all, "{name} of {source}");
        }
        assert_eq!(debug.skipped_units, 0);
    }
}

/// Async functions, more than are looked at one by one, and others that return such futures, which others have made.
fn many_async() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "pub struct Shop(u64);\nimpl Shop { #[inline(never)] pub async fn sell(&self) -> u64 { self.0 } }\n",
    );
    let mut calls = String::from("let shop = Shop(7); black_box(shop.sell());");
    for number in 0..300 {
        writeln!(
            text,
            "#[inline(never)] pub async fn fetch_{number}(n: u64) -> u64 {{ n + {number} }}
             #[inline(never)] pub fn begin_{number}(n: u64) -> impl Future<Output = u64> {{ fetch_{number}(n) }}
             #[inline(never)] pub fn plain_{number}(n: u64) -> u64 {{ n * {number} }}"
        )
        .unwrap();
        write!(
            calls,
            "black_box(fetch_{number}(n)); black_box(begin_{number}(n)); black_box(plain_{number}(n));"
        )
        .unwrap();
    }
    format!("use std::hint::black_box;\n{text}fn main() {{ let n = black_box(3); {calls} }}\n")
}

#[test]
fn all_async_functions_of_a_file_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["many.rs", "many"].map(|name| folder.path().join(name));
    std::fs::write(&source, many_async()).unwrap();
    for flags in [&[][..], &["-Ccodegen-units=1"], &["-Clto=fat"]] {
        let rustc = ["--edition=2024", "-g", "-Copt-level=1"];
        run(Command::new("rustc")
            .args(rustc)
            .args(flags)
            .arg("-o")
            .args([&program, &source]));
        let index = support::index(&program);
        let debug = DebugIndex::new(index.files().debug()).unwrap();
        let own = |name: &str| {
            ["::fetch_", "::begin_", "::plain_", "::sell"]
                .iter()
                .any(|of| name.contains(of))
        };
        let mut addresses = Vec::new();
        for function in index
            .functions()
            .filter(|function| own(&function.name()) && !function.name().contains("{{"))
        {
            let name = function.name();
            let is_async = name.contains("::fetch_") || name.contains("::sell");
            assert_eq!(
                debug.functions[&function.address()].is_async,
                is_async,
                "{name} {flags:?}"
            );
            addresses.push(function.address());
        }
        assert!(addresses.len() >= 901 - 300, "{}", addresses.len());
        for (address, alone) in profiler_plan::source::debugged(&index, &addresses) {
            assert_eq!(alone.is_async, debug.functions[&address].is_async, "{flags:?}");
        }
    }
}

#[test]
fn reports_functions_that_exist_only_inlined() {
    let fixture = compile("gcc", "shapes.c", &["-O2", "-g"]);
    let name = Name::Exact("always_inlined".into());
    let Some(PlanError::OnlyInlined { instances, .. }) = only_inlined(&name, &[&fixture.index]) else {
        panic!()
    };
    let text = run(Command::new("readelf")
        .args(["--debug-dump=info", "-W"])
        .arg(&fixture.path));
    let entries = text.matches("(DW_TAG_inlined_subroutine)").count() as u64;
    assert!((2..=entries).contains(&instances), "{instances} of {entries}");
    assert!(only_inlined(&Name::Exact("leaf".into()), &[&fixture.index]).is_none());
    // It is a scope that can be asked for.
    let name = "{async_fn#0}".to_owned();
    let said = PlanError::OnlyInlined { name, instances: 1 }.to_string();
    assert!(said.ends_with(": \"{async_fn#0}\"@inlined"), "{said}");
}

#[test]
fn hazards_of_real_programs() {
    let scan = |fixture: &support::Fixture| {
        ModuleHazards::scan("/fixture", fixture.index.files().program()).unwrap()
    };
    let c = scan(&compile("gcc", "shapes.c", &["-O2"]));
    assert_eq!(Hazards::of([("/fixture", &c)]), Hazards::default());
    let cpp = scan(&compile("g++", "shapes.cc", &["-O2"]));
    let found = Hazards::of([("/fixture", &cpp)]);
    assert!(
        found.unwinding.is_some() && found.stack_switch.is_none(),
        "{found:?}"
    );
    let rust = scan(&compile("rustc", "shapes.rs", &["--edition=2021"]));
    let found = Hazards::of([("/fixture", &rust)]);
    assert!(
        found.unwinding.is_some() && found.alternate_stack.is_some(),
        "{found:?}"
    );
    // The C library defines all of it and uses none.
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    let libc = ModuleHazards::scan(libc, &std::fs::read(libc).unwrap()).unwrap();
    assert_eq!(Hazards::of([("libc.so.6", &libc)]), Hazards::default());
}

/// Everything that is done with a file.
fn use_all(bytes: &[u8]) {
    let _ = DebugIndex::new(bytes);
    let _ = ModuleHazards::scan("/fixture", bytes);
    let Ok(index) = ModuleIndex::new(Arc::new(bytes.to_vec())) else {
        return;
    };
    let _ = index.matching(&Name::Glob("*a*".into()));
    let _ = index.nearest(&Name::Exact("mian".into()), 5);
    for function in index.functions().take(500) {
        let _ = (function.name(), function.code(), function.file_offset());
        let _ = index.symbol_name_at(function.address());
    }
    let decision =
        profiler_plan::hazards::exit_method(&Hazards::default(), KernelAbility::default(), false, None);
    let every = Name::Glob("*".into());
    let limits = profiler_plan::Limits { functions: 10_000 };
    let _ = profiler_plan::plan(
        &every,
        &[&index],
        &Choices::default(),
        &decision,
        KernelAbility::default(),
        limits,
    );
    for (file, line) in [
        ("shapes.c", 15),
        ("shapes.c", 46),
        ("shapes.cc", 11),
        ("shapes.cc", 27),
    ] {
        for name in [
            &every,
            &Name::Exact("leaf".into()),
            &Name::Exact("handle_request".into()),
        ] {
            let _ = calls::find(&index, file, line, name).map_err(|error| error.to_string());
        }
        let _ = branches::find(&index, file, line).map_err(|error| error.to_string());
    }
}

#[test]
fn files_that_are_something_else() {
    let new = |bytes: &[u8]| ModuleIndex::new(Arc::new(bytes.to_vec())).err();
    assert_eq!(new(b""), Some(ElfError::NotElf));
    assert_eq!(new(b"#!/bin/sh\n"), Some(ElfError::NotElf));
    assert_eq!(new(b"\x7fELF\x01\x01\x01"), Some(ElfError::Class32));
    assert!(matches!(new(b"\x7fELF\x02\x01\x01"), Some(ElfError::Damaged(_))));
    let mut other = vec![0; 64];
    other[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    other[18] = 183;
    assert_eq!(new(&other), Some(ElfError::OtherMachine(183)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn damaged_files_give_errors(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        near_front in any::<bool>(),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let file = FILE.get_or_init(|| {
            let fixture = compile("gcc", "shapes.c", &["-O1", "-g", "-gz"]);
            std::fs::read(&fixture.path).unwrap()
        });
        let mut bytes = file.clone();
        for (at, value) in changes {
            // Headers lie at both ends of the file.
            let at = if near_front { at.index(1024) } else { bytes.len() - 1 - at.index(4096) };
            bytes[at] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()));
        }
        use_all(&bytes);
    }

    #[test]
    fn damaged_dwarf_gives_errors(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60)) {
        static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let file = FILE.get_or_init(|| {
            let fixture = compile("g++", "shapes.cc", &["-O1", "-g"]);
            std::fs::read(&fixture.path).unwrap()
        });
        let mut bytes = file.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        use_all(&bytes);
    }
}
