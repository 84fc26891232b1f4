//! What an outline of debug information leaves out: nothing that is asked for.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod plan_support;

use plan_support::{index, run};
use profiler_daemon::plan::{
    ModuleIndex,
    lines::{self, LineError},
};
use std::{fmt::Write as _, process::Command};

fn compile(compiler: &str, flags: &[&str], sources: &[(&str, &str)]) -> ModuleIndex {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in sources {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    run(Command::new(compiler)
        .current_dir(folder.path())
        .args(flags)
        .args(["-o", "fixture"])
        .args(sources.iter().map(|(name, _)| name)));
    index(&folder.path().join("fixture"))
}

#[test]
fn a_file_all_of_whose_code_is_of_another_has_a_name() {
    let text = "#line 1 \"grammar.y\"\nint main(void) {\n  return 3;\n}\n";
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let index = compile("clang-14", &["-g", version], &[("generated.c", text)]);
        assert!(lines::find(&index, "grammar.y", 2).is_ok());
        let refused = lines::find(&index, "generated.c", 2);
        assert!(
            matches!(refused, Err(LineError::NoCode { .. })),
            "{version}: {refused:?}"
        );
    }
}

/// Units of types name the line table of the unit that they were made from, which has the files of all of them.
#[test]
fn units_of_types_do_not_use_up_what_may_be_read() {
    let mut text = String::new();
    for number in 0..3_000 {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "#line 1 \"declares_{number}.h\"\nstruct T{number} {{ int a; int get() {{ return a; }} }} t{number};\n"
        );
    }
    let last = "int main() {\n  return 3;\n}\n";
    let flags = ["-g", "-gdwarf-5", "-fdebug-types-section"];
    let index = compile("g++", &flags, &[("types.cc", &text), ("last.cc", last)]);
    let found = lines::find(&index, "last.cc", 2);
    assert!(found.is_ok(), "{found:?}");
    let absent = lines::find(&index, "absent.cc", 2);
    assert_eq!(absent, Err(LineError::NoSuchFile("absent.cc".to_owned())));
}
