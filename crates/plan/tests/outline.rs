//! What an outline of debug information leaves out: nothing that is asked for.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::Command};

use profiler_plan::{
    ModuleIndex,
    dwarf::DebugIndex,
    lines::{self, LineError},
    source,
};
use profiler_scope::Name;

use support::{index, run};

fn compile(compiler: &str, flags: &[&str], sources: &[(&str, &str)]) -> ModuleIndex {
    compile_and(compiler, flags, sources, |_| {})
}

/// The same with something done to the program.
fn compile_and(
    compiler: &str,
    flags: &[&str],
    sources: &[(&str, &str)],
    change: impl Fn(&Path),
) -> ModuleIndex {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in sources {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    run(Command::new(compiler)
        .current_dir(folder.path())
        .args(flags)
        .args(["-o", "fixture"])
        .args(sources.iter().map(|(name, _)| name)));
    let path = folder.path().join("fixture");
    change(&path);
    index(&path)
}

#[test]
fn a_file_whose_code_all_belongs_to_another_is_known_by_name() {
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

/// Inlined functions are found through the outline in whatever unit, and unit of whatever kind, they are described.
#[test]
fn finds_inlined_functions_by_name() {
    let header = "#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n\
                  struct Box { int n; int twice() const { return 2 * n; } };\n\
                  namespace deep { inline int thrice(const Box &box) { return box.twice() + box.n; } }\n\
                  int other(std::map<std::string, std::vector<int>> &, const Box &);\n";
    let one = format!(
        "{header}int main(int count, char **) {{\n  std::map<std::string, std::vector<int>> all;\n  \
         all[\"a\"].push_back(count);\n  return deep::thrice(Box{{count}}) + other(all, Box{{count}});\n}}\n"
    );
    let two = format!(
        "{header}int other(std::map<std::string, std::vector<int>> &all, const Box &box) {{\n  \
         auto &list = all[\"b\"];\n  list.push_back(deep::thrice(box));\n  std::sort(list.begin(), list.end());\n  \
         return list.front();\n}}\n"
    );
    for (compiler, flags, shrunk) in [
        ("g++", &["-O2", "-g", "-gdwarf-5"][..], false),
        ("g++", &["-O2", "-g", "-gdwarf-5"], true),
        ("g++", &["-O2", "-g", "-gdwarf-4"], true),
        ("g++", &["-O2", "-g", "-gdwarf-5", "-fdebug-types-section"], false),
        ("g++", &["-O2", "-g", "-flto"], false),
        ("g++", &["-O2", "-g", "-gz"], false),
        ("clang++-14", &["-O2", "-g"], false),
        ("clang++-14", &["-O2", "-g", "-flto"], false),
    ] {
        let sources = [("one.cc", one.as_str()), ("two.cc", two.as_str())];
        let index = if shrunk {
            compile_and(compiler, flags, &sources, |path| {
                run(Command::new("dwz").arg(path));
            })
        } else {
            compile(compiler, flags, &sources)
        };
        let debug = DebugIndex::new(index.files().program()).unwrap();
        let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
        for function in &debug.inlined_only {
            *by_name.entry(&function.name).or_default() += function.instances;
        }
        let (name, instances) = by_name.get_key_value("thrice").unwrap();
        let found = source::inlined_count(&index, &Name::Exact((*name).to_owned()));
        assert_eq!(
            found,
            Some(("thrice".to_owned(), *instances)),
            "{compiler} {flags:?} {shrunk}"
        );
        let all = index.functions();
        for function in all.filter(|function| debug.functions.contains_key(&function.address())) {
            let alone = source::debugged(&index, &[function.address()]);
            let (alone, among) = (&alone[&function.address()], &debug.functions[&function.address()]);
            assert_eq!(alone, among, "{compiler} {flags:?} {shrunk} {}", function.name());
        }
        println!(
            "{compiler} {flags:?} {shrunk}: {} names, {} functions",
            by_name.len(),
            index.len()
        );
    }
}
