//! Which inlined instances can be timed, on what compilers write.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::BTreeSet;

use profiler_plan::inlined::{self, FoundInstances, Reason, When};
use profiler_scope::Name;
use profiler_testkit::has_program;

use support::{Fixture, compile, disassemble};

/// What is inlined in `inlines.c`, and into how many places.
const INLINED: [(&str, usize); 8] = [
    ("plain", 4),
    ("calling", 2),
    ("around", 2),
    ("within", 5),
    ("rare", 1),
    ("deep", 1),
    ("jumped", 1),
    ("timed", 1),
];

fn build(compiler: &str, level: &str) -> Fixture {
    compile(
        compiler,
        "../../../../profiler-daemon/tests/fixtures/engine/inlines.c",
        &[level, "-g", "-fcf-protection=none", "-w"],
    )
}

fn find(fixture: &Fixture, name: &str) -> FoundInstances {
    inlined::find(&fixture.index, &Name::Exact(name.to_owned()), true)
}

#[test]
fn instances_of_gcc_can_be_timed() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let fixture = build("gcc", level);
        for (name, count) in INLINED {
            let found = find(&fixture, name);
            assert_eq!(found.left_out, [], "{level}");
            assert_eq!(found.instances.len(), count, "{level} {name}: {found:#?}");
            let addresses: BTreeSet<u64> = found.instances.iter().map(|one| one.entry.address).collect();
            assert_eq!(addresses.len(), count, "each begins elsewhere");
        }
    }
}

#[test]
fn the_table_of_a_switch_is_read() {
    for (compiler, flag) in [("gcc", "-fPIE"), ("clang-14", "-fPIE")] {
        if !has_program(compiler) {
            continue;
        }
        for level in ["-O1", "-O2"] {
            let flags = [level, "-g", "-fcf-protection=none", "-w", flag];
            let fixture = compile(
                compiler,
                "../../../../profiler-daemon/tests/fixtures/engine/switched.c",
                &flags,
            );
            for (name, count) in [("chosen", 1), ("beside", 2)] {
                let found = find(&fixture, name);
                let by_table = found
                    .left_out
                    .iter()
                    .filter(|one| one.reason == Reason::JumpsByTable);
                println!("{compiler} {level} {name}: {:?}", found.left_out);
                assert_eq!(by_table.count(), 0, "{compiler} {level} {name}");
                if compiler == "gcc" {
                    assert_eq!(
                        found.instances.len(),
                        count,
                        "{level} {name}: {:?}",
                        found.left_out
                    );
                }
            }
        }
        // A form that is not known.
        let flags = ["-O2", "-g", "-fcf-protection=none", "-w", "-fno-pie", "-no-pie"];
        let fixture = compile(
            compiler,
            "../../../../profiler-daemon/tests/fixtures/engine/switched.c",
            &flags,
        );
        let found = find(&fixture, "chosen");
        assert_eq!(found.instances, [], "{compiler}");
        assert_eq!(found.left_out[0].reason, Reason::JumpsByTable, "{compiler}");
    }
}

#[test]
fn copies_of_an_unrolled_loop_are_one_instance_and_left_out() {
    let fixture = build("gcc", "-O3");
    let reasons: Vec<Reason> = find(&fixture, "unrolled")
        .left_out
        .into_iter()
        .map(|left_out| left_out.reason)
        .collect();
    assert_eq!(reasons, [Reason::Copied]);
    assert_eq!(find(&fixture, "unrolled").instances, []);
    // Where the loop is one.
    let fixture = build("gcc", "-O1");
    assert_eq!(find(&fixture, "unrolled").instances.len(), 1);
}

#[test]
fn every_inlined_instance_of_clang_is_found_or_left_out() {
    if !has_program("clang-14") {
        return;
    }
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let fixture = build("clang-14", level);
        let mut timed = 0;
        for (name, count) in INLINED {
            let found = find(&fixture, name);
            println!(
                "{level} {name}: {} of {count}: {:?}",
                found.instances.len(),
                found.left_out
            );
            assert_eq!(
                found.instances.len() + found.left_out.len(),
                count,
                "{level} {name}"
            );
            timed += found.instances.len();
        }
        assert!(timed >= 10, "{level}: {timed}");
    }
}

#[test]
fn instances_begin_and_end_at_instructions() {
    for (compiler, level) in [("gcc", "-O2"), ("gcc", "-O3"), ("clang-14", "-O2")] {
        if !has_program(compiler) {
            continue;
        }
        let fixture = build(compiler, level);
        let listed = disassemble(&fixture.path);
        let all = inlined::find(&fixture.index, &Name::Glob("*".to_owned()), true);
        assert!(all.instances.len() > 15, "{compiler} {level}");
        for one in &all.instances {
            let at = |address: u64| {
                listed
                    .get(&address)
                    .unwrap_or_else(|| panic!("{}: {address:#x}", one.name))
            };
            // objdump has a word of its own for a `mov` of eight bytes.
            let mnemonic = at(one.entry.address).mnemonic.replace("movabs", "mov");
            assert_eq!(mnemonic, one.entry.mnemonic);
            assert!(!one.exits.is_empty());
            for exit in &one.exits {
                let mnemonic = &at(exit.site.address).mnemonic;
                assert_ne!(exit.site.address, one.entry.address, "{}", one.name);
                if matches!(exit.when, When::If(_)) {
                    assert!(
                        mnemonic.starts_with('j') && mnemonic != "jmp",
                        "{}: {mnemonic}",
                        one.name
                    );
                }
            }
        }
    }
}

#[test]
fn instances_are_called_after_their_call() {
    let fixture = build("gcc", "-O1");
    let text = std::fs::read_to_string(support::source(
        "../../../../profiler-daemon/tests/fixtures/engine/inlines.c",
    ))
    .unwrap();
    let line = 1 + text.lines().position(|line| line.contains("= rare(x)")).unwrap();
    let found = find(&fixture, "rare");
    assert_eq!(
        found.instances[0].name,
        format!("rare@inlines.c:{line} in unlikely")
    );
    assert_eq!(find(&fixture, "nowhere"), FoundInstances::default());
}
