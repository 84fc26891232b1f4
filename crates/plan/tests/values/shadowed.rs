//! Which of several variables of one name is meant.

use std::{path::Path, process::Command, sync::Arc};

use profiler_plan::{
    ModuleIndex, lines,
    values::{DebugFile, DebugSections, Lowered, Refusal, Site, lower},
};
use profiler_scope::expression::parse;
use profiler_testkit::has_program;

/// Compilers leave out the block of a variable that is optimized out where they inline it, but not the blocks within.
#[test]
fn a_variable_that_is_left_out_still_shadows_others() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/values/shadowed.rs");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixture");
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition=2021", "-g", "-Copt-level=3", "-o"]);
    assert!(compiler.arg(&path).arg(&source).status().unwrap().success());
    let bytes = std::fs::read(&path).unwrap();
    let sections = DebugSections::load(&bytes, &bytes).unwrap();
    let file = DebugFile::new(&sections);
    let module = ModuleIndex::new(Arc::new(bytes.clone())).unwrap();
    let text = std::fs::read_to_string(&source).unwrap();
    // What a name comes to at each place of the line that has the mark.
    let at = |mark: &str, name: &str| -> Vec<Result<Lowered, Refusal>> {
        let line = 1 + text.lines().position(|line| line.ends_with(mark)).unwrap();
        let sites = lines::find(&module, "shadowed.rs", line as u64).unwrap().sites;
        let places = sites.iter().map(|site| Site {
            address: site.address,
            bias: 0,
        });
        places
            .map(|site| lower(&file, site, &parse(name).unwrap()))
            .collect()
    };
    for (mark, name) in [
        ("// before", "count"),
        ("// behind", "twice"),
        ("// first", "count"),
    ] {
        let found = at(mark, name);
        assert!(found.iter().any(Result::is_ok), "{name} {mark}: {found:?}");
    }
    // Of the caller, and of the function that is inlined.
    let found = at("// before", "twice");
    assert!(
        found
            .iter()
            .all(|found| matches!(found, Err(Refusal::Ambiguous { .. }))),
        "{found:?}"
    );
    let found = at("// before", "callers");
    assert!(found.iter().any(Result::is_ok), "{found:?}");
    for mark in ["// behind", "// last"] {
        let found = at(mark, "count");
        assert!(
            found
                .iter()
                .all(|found| matches!(found, Err(Refusal::OptimizedOut(_)))),
            "{mark}: {found:?}"
        );
    }
}

/// Of a local variable whose name `dwz` has moved to another file, a global one of the same name is not taken.
#[test]
fn a_name_that_is_in_another_file_hides_others_too() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let header = "static volatile long sink;\n\
        __attribute__((noinline)) static long use(int number_of_things) {\n\
        long twice_the_number = number_of_things * 2;\n\
        sink += twice_the_number; /* here */\n\
        return sink;\n}\n";
    std::fs::write(at("use.h"), header).unwrap();
    for (program, global) in [("one", "long twice_the_number = 7;"), ("other", "")] {
        let text = format!("#include \"use.h\"\n{global}\nint main(void) {{ return (int)use(4); }}\n");
        let source = at(program).with_extension("c");
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-O0", "-g", "-o"]).arg(at(program)).arg(&source);
        assert!(compiler.status().unwrap().success());
    }
    let lowered = |bytes: &[u8]| {
        let sections = DebugSections::load(bytes, bytes).unwrap();
        let file = DebugFile::new(&sections);
        let module = ModuleIndex::new(Arc::new(bytes.to_vec())).unwrap();
        let sites = lines::find(&module, "use.h", 4).unwrap().sites;
        let address = sites[0].address;
        lower(
            &file,
            Site { address, bias: 0 },
            &parse("twice_the_number").unwrap(),
        )
    };
    let whole = std::fs::read(at("one")).unwrap();
    let local = lowered(&whole).unwrap();
    let mut dwz = Command::new("dwz");
    dwz.current_dir(directory.path())
        .args(["-m", "common", "one", "other"]);
    assert!(dwz.status().unwrap().success());
    let moved = std::fs::read(at("one")).unwrap();
    match lowered(&moved) {
        // It may have left the name where it is.
        Ok(found) => assert_eq!(found.plan, local.plan),
        Err(refusal) => assert!(matches!(refusal, Refusal::Unsupported(_)), "{refusal:?}"),
    }
}

/// Whether a name is a member of a class that is only declared is not known: what is outside of the class is not taken.
#[test]
fn a_class_that_is_only_declared_may_have_any_member() {
    if !has_program("clang++-14") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, object) = (
        directory.path().join("declared.cc"),
        directory.path().join("declared.so"),
    );
    // What defines the virtual function has the class; clang leaves it out elsewhere.
    let text = "struct V { virtual void key(); void m(int by); int count; };\n\
        int count = 9;\nvoid V::m(int by) {\n    count += by;\n}\n";
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("clang++-14");
    compiler
        .args(["-g", "-O0", "-fPIC", "-shared", "-o"])
        .arg(&object)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    let bytes = std::fs::read(&object).unwrap();
    let sections = DebugSections::load(&bytes, &bytes).unwrap();
    let file = DebugFile::new(&sections);
    let module = ModuleIndex::new(Arc::new(bytes.clone())).unwrap();
    let address = lines::find(&module, "declared.cc", 4).unwrap().sites[0].address;
    let lowered = |name: &str| lower(&file, Site { address, bias: 0 }, &parse(name).unwrap());
    match lowered("count") {
        Err(Refusal::Unsupported(reason)) => assert!(reason.contains("write ::count"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(lowered("::count").is_ok() && lowered("by").is_ok());
}
