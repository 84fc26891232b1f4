//! The calls of lines, against objdump and readelf.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use profiler_plan::{
    KernelAbility,
    calls::{self, CallError, FoundCalls, Reason},
    lines::LineError,
    source::CallKind,
};
use profiler_scope::Name;
use profiler_testkit::has_program;

use support::{
    Fixture, compile,
    listing::{Listed, drop_without_line, listing, slots},
    source as path_of,
};

/// Compiler, source, flags.
const BUILDS: [(&str, &str, &[&str]); 16] = [
    ("gcc", "calls.c", &["-O0", "-g"]),
    ("gcc", "calls.c", &["-O2", "-g"]),
    (
        "gcc",
        "calls.c",
        &["-O2", "-g", "-gdwarf-4", "-gz", "-no-pie", "-fno-plt"],
    ),
    (
        "gcc",
        "calls.c",
        &["-O1", "-g", "-fcf-protection=full", "-Wl,-z,ibtplt"],
    ),
    ("clang-14", "calls.c", &["-O0", "-g"]),
    ("clang-14", "calls.c", &["-O2", "-g", "-gdwarf-5"]),
    ("gcc", "shapes.c", &["-O2", "-g"]),
    ("g++", "source.cc", &["-O0", "-g"]),
    ("g++", "shapes.cc", &["-O0", "-g"]),
    ("g++", "shapes.cc", &["-O2", "-g"]),
    ("clang++-14", "shapes.cc", &["-O2", "-g"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=0"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=2"]),
    ("rustc", "calls.rs", &["--edition=2024", "-g", "-Copt-level=0"]),
    ("rustc", "calls.rs", &["--edition=2024", "-g", "-Copt-level=2"]),
    ("rustc", "shapes.rs", &["--edition=2021", "-g", "-Copt-level=2"]),
];

fn exact(name: &str) -> Name {
    Name::Exact(name.to_owned())
}

fn any() -> Name {
    Name::Glob("*".to_owned())
}

/// The line of a source with a word.
fn line_with(file: &str, word: &str) -> u64 {
    let text = std::fs::read_to_string(path_of(file)).unwrap();
    text.lines().position(|line| line.contains(word)).unwrap() as u64 + 1
}

/// The addresses of the calls of a line; none where there is nothing to find.
fn addresses(fixture: &Fixture, file: &str, line: u64, callee: &Name) -> BTreeSet<u64> {
    match calls::find(&fixture.index, file, line, callee) {
        Ok(found) => found.sites.iter().map(|site| site.call.address).collect(),
        Err(
            CallError::Line(LineError::NoCode { .. })
            | CallError::NotCalled { .. }
            | CallError::Inlined { .. }
            | CallError::Unusable { .. },
        ) => BTreeSet::new(),
        Err(error) => panic!("{file}:{line}: {error}"),
    }
}

/// The linkage name of what a call reaches, by the tools; `None` where they do not know.
fn callee_of(
    instruction: &Listed,
    slots: &BTreeMap<u64, Result<String, u64>>,
    symbols: &BTreeMap<u64, String>,
) -> Option<String> {
    let (_, label) = instruction.operands.split_once('<')?;
    if instruction.operands.starts_with("QWORD PTR [rip") {
        // `QWORD PTR [rip+0x2fe2] # 3fe8 <puts@GLIBC_2.2.5>`
        let slot = instruction.operands.split("# ").nth(1)?.split(' ').next()?;
        return match slots.get(&u64::from_str_radix(slot, 16).unwrap())? {
            Ok(name) => Some(name.clone()),
            Err(address) => symbols.get(address).cloned(),
        };
    }
    let label = label.trim_end_matches('>');
    (!label.contains('+')).then(|| label.split('@').next().unwrap().to_owned())
}

#[test]
fn calls_of_lines_are_those_of_objdump() {
    for (compiler, file, flags) in BUILDS.into_iter().filter(|(compiler, ..)| has_program(compiler)) {
        let build = format!("{compiler} {flags:?} {file}");
        let fixture = compile(compiler, file, flags);
        let listed = listing(&fixture.path);
        let slots = slots(&fixture.path);
        let mut symbols: BTreeMap<u64, String> = BTreeMap::new();
        for (address, instruction) in &listed {
            let known = symbols.last_key_value();
            if known.is_none_or(|(_, name)| *name != instruction.symbol) {
                symbols.insert(*address, instruction.symbol.clone());
            }
        }
        let end = format!("/{file}");
        let count = std::fs::read_to_string(path_of(file)).unwrap().lines().count() as u64;
        let (mut total, mut by_name, mut ends, mut of_no_line) = (0, 0, 0, 0);
        let mut names_used = BTreeSet::new();
        for line in 1..=count {
            let mut theirs: BTreeMap<u64, &Listed> = listed
                .iter()
                .filter(|(_, listed)| {
                    listed.mnemonic == "call" && listed.line == line && listed.file.ends_with(&end)
                })
                .map(|(address, listed)| (*address, listed))
                .collect();
            let ours = addresses(&fixture, file, line, &any());
            of_no_line += drop_without_line(&fixture.path, &mut theirs, |address| ours.contains(&address));
            assert!(
                ours.iter().eq(theirs.keys()),
                "{build}:{line}: {ours:x?}, objdump {:x?}",
                theirs.keys()
            );
            total += ours.len();
            let mut by_callee: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
            for (address, instruction) in &theirs {
                if let Some(name) = callee_of(instruction, &slots, &symbols) {
                    by_callee.entry(name).or_default().insert(*address);
                }
            }
            for (name, expected) in by_callee {
                let ours = addresses(&fixture, file, line, &exact(&name));
                assert_eq!(ours, expected, "{build}:{line} {name}");
                by_name += ours.len();
                names_used.insert(name);
            }
            if let Ok(FoundCalls { sites, .. }) = calls::find(&fixture.index, file, line, &any()) {
                for site in sites {
                    let (next, listed_next) = listed.range(site.call.address + 1..).next().unwrap();
                    let in_function = listed_next.symbol == listed[&site.call.address].symbol;
                    let fills = ["nop", "xchg", "int3"].contains(&&*listed_next.mnemonic);
                    if let Some(behind) = site.behind {
                        assert_eq!((behind.address, in_function), (*next, true), "{build}:{line}");
                        assert_eq!(site.call.end(), *next);
                    } else {
                        ends += 1;
                        // Between functions there is what fills the gap.
                        assert!(!in_function || fills, "{build}:{line}: {:#x}", site.call.address);
                    }
                }
            }
        }
        println!(
            "{build}: {total} calls, {by_name} by {} names, {ends} at the end of a function, {of_no_line} of no line",
            names_used.len()
        );
        assert!(total >= 3 && by_name >= 2, "{build}: {total} {by_name}");
    }
}

#[test]
fn calls_are_found_in_each_instance() {
    let file = "calls.c";
    for compiler in ["gcc", "clang-14"].into_iter().filter(|name| has_program(name)) {
        let fixture = compile(compiler, file, &["-O2", "-g", "-fno-optimize-sibling-calls"]);
        let found = calls::find(
            &fixture.index,
            file,
            line_with(file, "/* inlined call */"),
            &exact("leaf"),
        )
        .unwrap();
        assert_eq!(found.sites.len(), 2, "{compiler}: {found:?}");
        for site in &found.sites {
            assert_eq!((&*site.function, &*site.callee), ("twice", "leaf"));
            assert_eq!((&*site.call.mnemonic, site.call.length), ("call", 5));
            assert!(!site.call.is_single_stepped(KernelAbility::default()));
            assert_eq!(site.kind, CallKind::Direct);
            let index = &fixture.index;
            assert_eq!(Some(site.call.file_offset), index.offset_of(site.call.address));
            assert_eq!(site.behind.as_ref().unwrap().address, site.call.end());
        }
        assert!(found.file.ends_with("/calls.c") && found.missing.is_empty());
        // One name of several on the line, and all of them.
        let three = line_with(file, "/* three calls */");
        assert_eq!(addresses(&fixture, file, three, &exact("leaf")).len(), 2);
        assert_eq!(addresses(&fixture, file, three, &exact("other")).len(), 1);
        assert_eq!(addresses(&fixture, file, three, &any()).len(), 3);
        assert_eq!(
            addresses(&fixture, file, three, &Name::Glob("?eaf".to_owned())).len(),
            2
        );
    }
}

#[test]
fn callees_of_the_linkage_table_are_found_by_name() {
    let file = "calls.c";
    for flags in [
        &["-O1", "-g"][..],
        &["-O1", "-g", "-fno-plt"],
        &["-O1", "-g", "-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-O1", "-g", "-fcf-protection=full", "-Wl,-z,ibtplt,-z,now"],
    ] {
        let fixture = compile("gcc", file, flags);
        for (name, word) in [("strtol", "/* linkage */"), ("puts", "/* linkage again */")] {
            let found = calls::find(&fixture.index, file, line_with(file, word), &exact(name)).unwrap();
            let [site] = &*found.sites else {
                panic!("{found:?}")
            };
            assert_eq!((&*site.callee, site.kind), (name, CallKind::Linkage), "{flags:?}");
            assert_eq!(site.callee_address, None);
            let direct = !flags.contains(&"-fno-plt");
            assert_eq!(site.call.length, if direct { 5 } else { 6 });
            assert_eq!(site.call.is_single_stepped(KernelAbility::default()), !direct);
        }
    }
}

#[test]
fn a_call_of_an_ifunc_has_its_name_and_no_address() {
    let file = "ifunc.c";
    let line = line_with(file, "/* through a resolver */");
    for flags in [
        &["-O1", "-g"][..],
        &["-O1", "-g", "-no-pie"],
        &["-O1", "-g", "-fno-plt"],
    ] {
        let fixture = compile("gcc", file, flags);
        let found = calls::find(&fixture.index, file, line, &exact("dispatched")).unwrap();
        let [site] = &*found.sites else {
            panic!("{found:?}")
        };
        assert_eq!(
            (&*site.callee, site.callee_address),
            ("dispatched", None),
            "{flags:?}"
        );
        let resolver = calls::find(&fixture.index, file, line, &exact("resolver"));
        assert!(
            matches!(resolver, Err(CallError::NotCalled { .. })),
            "{flags:?}: {resolver:?}"
        );
    }
}

#[test]
fn reports_calls_that_cannot_be_probed() {
    let file = "calls.c";
    let fixture = compile("gcc", file, &["-O2", "-g"]);
    let find = |word: &str, name: &Name| calls::find(&fixture.index, file, line_with(file, word), name);

    let tail = find("/* tail call */", &exact("leaf")).unwrap_err();
    assert!(
        matches!(&tail, CallError::Unusable { function, reason: Reason::TailCall(callee), .. }
            if function == "tail" && callee == "leaf"),
        "{tail:?}"
    );
    assert!(tail.to_string().contains("tail call: leaf"), "{tail}");

    let register = "/* through a register */";
    let unknown = find(register, &exact("leaf")).unwrap_err();
    assert!(
        matches!(&unknown, CallError::NotCalled { others, indirect: 1, .. } if others.is_empty()),
        "{unknown:?}"
    );
    assert!(unknown.to_string().contains("\"*\""), "{unknown}");
    let found = find(register, &any()).unwrap();
    assert_eq!((found.sites.len(), found.sites[0].kind), (1, CallKind::Indirect));
    assert!(found.sites[0].call.is_single_stepped(KernelAbility::default()));

    let never = find("/* never returns */", &exact("abort")).unwrap();
    assert_eq!(never.sites[0].behind, None);

    let others = find("/* linkage */", &exact("puts")).unwrap_err();
    let again = line_with(file, "/* linkage again */");
    assert!(
        matches!(&others, CallError::NotCalled { others, indirect: 0, nearest, .. }
            if others == &["strtol"] && nearest == &[again]),
        "{others:?}"
    );
    assert!(
        others.to_string().contains("does not call puts, but strtol"),
        "{others}"
    );

    let nothing = find("return first * second", &exact("leaf")).unwrap_err();
    assert!(
        matches!(&nothing, CallError::NotCalled { others, indirect: 0, nearest, .. }
            if others.is_empty() && nearest.contains(&line_with(file, "/* inlined with a call */"))),
        "{nothing:?}"
    );
    assert!(nothing.to_string().contains("makes no calls"), "{nothing}");

    let no_code = calls::find(&fixture.index, file, 1, &any()).unwrap_err();
    assert!(
        matches!(&no_code, CallError::Line(LineError::NoCode { nearest, .. }) if nearest.len() == 1),
        "{no_code:?}"
    );
    let stripped = compile("gcc", file, &["-O2"]);
    assert_eq!(
        calls::find(&stripped.index, file, 20, &any()),
        Err(CallError::Line(LineError::NoLines))
    );
}

#[test]
fn reports_calls_that_are_inlined() {
    let file = "calls.c";
    for compiler in ["gcc", "clang-14"].into_iter().filter(|name| has_program(name)) {
        let fixture = compile(compiler, file, &["-O2", "-g"]);
        let find = |word: &str, name: &Name| calls::find(&fixture.index, file, line_with(file, word), name);
        let inlined = find("/* inlined here */", &exact("checked")).unwrap_err();
        let CallError::Inlined {
            callee,
            function,
            declared,
            ..
        } = &inlined
        else {
            panic!("{inlined:?}")
        };
        assert_eq!((&**callee, &**function), ("checked", "twice"));
        let (declared_in, declared_at) = declared.as_ref().unwrap();
        assert!(declared_in.ends_with("/calls.c"));
        assert_eq!(*declared_at, line_with(file, "int checked("));

        // Where one is inlined and another is called, only the one that was asked for counts.
        let both = "/* inlined with a call */";
        assert_eq!(find(both, &exact("leaf")).unwrap().sites.len(), 1);
        assert!(matches!(
            find(both, &exact("checked")),
            Err(CallError::Inlined { .. })
        ));
    }
}

#[test]
fn leaves_out_calls_that_the_kernel_refuses_to_probe() {
    let file = "calls.c";
    let flags = ["-O1", "-g", "-fPIC", "-shared"];
    let fixture = compile("gcc", file, &flags);
    let line = line_with(file, "/* linkage */");
    // Behind two prefixes of operand size, so that the linker can put something shorter there.
    let refused = calls::find(&fixture.index, file, line, &exact("__tls_get_addr")).unwrap_err();
    assert!(
        matches!(
            refused,
            CallError::Unusable {
                reason: Reason::Obstacle(_),
                ..
            }
        ),
        "{refused:?}"
    );
    let all = calls::find(&fixture.index, file, line, &any()).unwrap();
    assert_eq!((all.sites.len(), all.left_out.len()), (1, 1), "{all:?}");
}

#[test]
fn names_are_those_that_users_know() {
    let file = "shapes.cc";
    for flags in ["-O0", "-O2"] {
        let fixture = compile("g++", file, &[flags, "-g"]);
        let line = line_with(file, "return connection.handle_request(");
        for (name, count) in [
            ("handle_request", 2),
            ("server::Connection::handle_request", 2),
            ("server::Connection::handle_request(int)", 1),
            ("_ZN6server10Connection14handle_requestEi", 1),
        ] {
            let found = addresses(&fixture, file, line, &exact(name));
            assert_eq!(found.len(), count, "{flags} {name}: {found:x?}");
        }
        let shift = addresses(
            &fixture,
            file,
            line_with(file, "connection << 3"),
            &exact("operator<<"),
        );
        assert_eq!(shift.len(), 1);
    }
    for level in ["-Copt-level=0", "-Copt-level=2"] {
        let fixture = compile("rustc", "source.rs", &["--edition=2024", "-g", level]);
        let line = line_with("source.rs", "// awaited");
        let slots = compile("rustc", "calls.rs", &["--edition=2024", "-g", level]);
        let puts = calls::find(
            &slots.index,
            "calls.rs",
            line_with("calls.rs", "// linkage"),
            &exact("puts"),
        )
        .unwrap();
        assert_eq!((puts.sites.len(), puts.sites[0].kind), (1, CallKind::Linkage));
        for (name, count) in [("leaf", 1), ("source::leaf", 1), ("other::leaf", 0)] {
            let found = addresses(&fixture, "source.rs", line, &exact(name));
            assert_eq!(found.len(), count, "{level} {name}: {found:x?}");
        }
    }
}
