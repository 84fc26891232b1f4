//! What can be probed in a function, against gdb and objdump.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use profiler_plan::{
    lines,
    source::{self, CallKind, FunctionSource, Line},
    values::{self, DebugFile, DebugSections, Refusal, Site},
};
use profiler_scope::Name;
use profiler_testkit::has_program;

use support::{Fixture, compile, disassemble, run, source as path_of};

/// Compiler, source, flags.
const BUILDS: [(&str, &str, &[&str]); 12] = [
    ("gcc", "source.c", &["-O0", "-g"]),
    ("gcc", "source.c", &["-O2", "-g"]),
    (
        "gcc",
        "source.c",
        &["-O2", "-g", "-gdwarf-4", "-gz", "-no-pie", "-fno-plt"],
    ),
    ("clang-14", "source.c", &["-O0", "-g"]),
    ("clang-14", "source.c", &["-O2", "-g", "-gdwarf-5"]),
    ("gcc", "shapes.c", &["-O2", "-g"]),
    ("g++", "source.cc", &["-O0", "-g"]),
    ("g++", "source.cc", &["-O2", "-g"]),
    ("clang++-14", "source.cc", &["-O2", "-g"]),
    ("g++", "shapes.cc", &["-O2", "-g"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=0"]),
    ("rustc", "source.rs", &["--edition=2024", "-g", "-Copt-level=2"]),
];

fn builds() -> impl Iterator<Item = (String, &'static str, Fixture)> {
    BUILDS
        .into_iter()
        .filter(|(compiler, ..)| has_program(compiler))
        .map(|(compiler, source, flags)| {
            (
                format!("{compiler} {flags:?} {source}"),
                source,
                compile(compiler, source, flags),
            )
        })
}

/// The functions of a fixture that its source file declares.
fn own_functions(fixture: &Fixture, file: &str) -> Vec<FunctionSource> {
    let numbers: Vec<usize> = (0..fixture.index.len()).collect();
    let all = source::functions(&fixture.index, &numbers);
    assert_eq!(all.len(), numbers.len());
    let end = format!("/{file}");
    all.into_iter()
        .filter(|function| function.file.ends_with(&end))
        .collect()
}

fn named(fixture: &Fixture, name: &str) -> FunctionSource {
    let name = Name::Exact(name.to_owned());
    let numbers: Vec<usize> = fixture
        .index
        .matching(&name)
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    let mut found = source::functions(&fixture.index, &numbers);
    assert!(!found.is_empty(), "{name}");
    found.swap_remove(0)
}

/// The line of a source with a word.
fn line_with(file: &str, word: &str) -> u32 {
    let text = std::fs::read_to_string(path_of(file)).unwrap();
    let at = text.lines().position(|line| line.contains(word)).unwrap();
    u32::try_from(at).unwrap() + 1
}

fn line(function: &FunctionSource, number: u32) -> &Line {
    function
        .lines
        .iter()
        .find(|line| line.file.is_empty() && line.line == number)
        .unwrap_or_else(|| {
            panic!(
                "{} has nothing at line {number}: {:#?}",
                function.name, function.lines
            )
        })
}

fn holds(function: &FunctionSource, address: u64) -> bool {
    function.ranges.iter().any(|range| range.contains(&address))
}

#[test]
fn lines_begin_where_they_do_in_the_whole_file() {
    for (build, file, fixture) in builds() {
        let mut places = 0;
        for function in own_functions(&fixture, file) {
            for number in function.line..=function.last_line {
                let all = match lines::find(&fixture.index, file, number.into()) {
                    Ok(found) => found.sites.iter().map(|site| site.address).collect(),
                    Err(lines::LineError::NoCode { .. }) => Vec::new(),
                    Err(error) => panic!("{build} {number}: {error}"),
                };
                let expected: Vec<u64> = all.into_iter().filter(|site| holds(&function, *site)).collect();
                let own = function
                    .lines
                    .iter()
                    .find(|line| line.file.is_empty() && line.line == number);
                let ours = own.map(|line| line.sites.clone()).unwrap_or_default();
                assert_eq!(ours, expected, "{build} {}:{number}", function.name);
                places += ours.len();
            }
        }
        println!("{build}: {places} places");
        assert!(places >= 10, "{build}: {places}");
    }
}

#[test]
fn calls_and_branches_are_those_of_objdump() {
    for (build, file, fixture) in builds() {
        let disassembled = disassemble(&fixture.path);
        let (mut call_count, mut branch_count, mut named_count) = (0, 0, 0);
        for function in own_functions(&fixture, file) {
            let inside: Vec<_> = function
                .ranges
                .iter()
                .flat_map(|range| disassembled.range(range.clone()))
                .collect();
            let theirs: BTreeMap<u64, &str> = inside
                .iter()
                .filter(|(_, line)| line.mnemonic == "call")
                .map(|(address, line)| (**address, line.operands.as_str()))
                .collect();
            let calls = function.lines.iter().flat_map(|line| &line.calls);
            let ours: BTreeMap<u64, _> = calls
                .filter(|call| call.return_address.is_some())
                .map(|call| (call.address, call))
                .collect();
            assert!(
                ours.keys().eq(theirs.keys()),
                "{build} {}: {ours:#x?} {theirs:#x?}",
                function.name
            );
            for (address, call) in ours {
                let operands = theirs[&address];
                let next = disassembled.range(address + 1..).next();
                assert_eq!(call.return_address, next.map(|(address, _)| *address));
                // `1234 <name@plt>`
                let label = operands
                    .split_once('<')
                    .map(|(_, rest)| rest.trim_end_matches('>'));
                match (call.kind, label.and_then(|label| label.strip_suffix("@plt"))) {
                    (CallKind::Linkage, Some(name)) => {
                        let shown = profiler_plan::demangle::display_name(name);
                        assert_eq!(call.callee, shown, "{build}: {operands}");
                        named_count += 1;
                    }
                    (CallKind::Direct, None) => {
                        let target = u64::from_str_radix(operands.split(' ').next().unwrap(), 16);
                        assert_eq!(call.callee_address, target.ok(), "{build}: {operands}");
                        named_count += usize::from(!call.callee.is_empty());
                    }
                    (CallKind::Linkage, None) => assert!(operands.contains("rip"), "{build}: {operands}"),
                    (CallKind::Indirect, None) => assert!(call.callee.is_empty()),
                    (kind, _) => panic!("{build}: {kind:?} of {operands}"),
                }
                call_count += 1;
            }
            let theirs: BTreeSet<u64> = inside
                .iter()
                .filter(|(_, line)| line.mnemonic.starts_with('j') && line.mnemonic != "jmp")
                .map(|(address, _)| **address)
                .collect();
            let branches = function.lines.iter().flat_map(|line| &line.branches);
            let ours: BTreeSet<u64> = branches
                .filter(|branch| branch.otherwise.is_some())
                .map(|branch| branch.address)
                .collect();
            assert_eq!(ours, theirs, "{build} {}", function.name);
            branch_count += ours.len();
        }
        println!(
            "{build}: {call_count} calls, {named_count} compared by name or address, {branch_count} branches"
        );
        assert!(
            call_count >= 4 && named_count >= 2 && branch_count >= 1,
            "{build}"
        );
    }
}

/// The variables that gdb has in scope at some addresses: their names, and types in C.
fn by_gdb(program: &Path, places: &[Vec<u64>]) -> Vec<BTreeSet<(String, String)>> {
    let script = format!(
        "import gdb\n\
         for number, pc in [(number, pc) for number, places in enumerate({places:?}) for pc in places]:\n\
         \x20   block = gdb.block_for_pc(pc)\n\
         \x20   while block and not block.is_static and not block.is_global:\n\
         \x20       for symbol in block:\n\
         \x20           if symbol.is_variable or symbol.is_argument: print('at', number, symbol.name, '|', symbol.type)\n\
         \x20       block = block.superblock\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scope.py");
    std::fs::write(&path, script).unwrap();
    let answer = run(Command::new("gdb")
        .args(["-batch", "-nx", "-x"])
        .arg(&path)
        .arg(program));
    let mut found = vec![BTreeSet::new(); places.len()];
    for line in answer.lines().filter_map(|line| line.strip_prefix("at ")) {
        let (number, rest) = line.split_once(' ').unwrap();
        let (name, kind) = rest.split_once(" | ").unwrap();
        found[number.parse::<usize>().unwrap()].insert((name.to_owned(), kind.to_owned()));
    }
    found
}

#[test]
fn code_of_lines_is_that_of_their_sites_calls_and_branches() {
    for (build, file, fixture) in builds() {
        let mut count = 0;
        for function in own_functions(&fixture, file) {
            for line in &function.lines {
                let has = |address: u64| line.code.iter().any(|range| range.contains(&address));
                let branches = line.branches.iter().map(|branch| branch.address);
                let calls = line.calls.iter().map(|call| call.address);
                for address in branches.chain(calls) {
                    assert!(
                        has(address),
                        "{build} {}:{}: {address:#x}",
                        function.name,
                        line.line
                    );
                    let others = function
                        .lines
                        .iter()
                        .filter(|other| other.code.iter().any(|range| range.contains(&address)));
                    assert_eq!(others.count(), 1, "{build} {}:{}", function.name, line.line);
                    count += 1;
                }
            }
        }
        println!("{build}: {count} addresses");
        assert!(count >= 4, "{build}: {count}");
    }
}

#[test]
fn variables_are_those_of_gdb() {
    for (build, file, fixture) in builds() {
        let is_c = Path::new(file)
            .extension()
            .is_some_and(|extension| extension == "c");
        let mut count = 0;
        let functions = own_functions(&fixture, file);
        let sites: Vec<Vec<u64>> = functions
            .iter()
            .map(|function| {
                function
                    .lines
                    .iter()
                    .flat_map(|line| line.sites.clone())
                    .collect()
            })
            .collect();
        for (function, theirs) in functions.iter().zip(by_gdb(&fixture.path, &sites)) {
            let ours: BTreeSet<(String, String)> = function
                .variables
                .iter()
                .map(|variable| (variable.name.clone(), variable.type_name.clone()))
                .collect();
            // What begins so is the compiler's; without a location it need not be there.
            for (name, kind) in theirs.into_iter().filter(|(name, _)| !name.starts_with("__")) {
                // gdb has those of the function around a lambda too.
                if function.name.contains("{lambda") {
                    continue;
                }
                let same = |(other, ours): &&(String, String)| *other == name && (!is_c || *ours == kind);
                assert!(
                    ours.iter().any(|own| same(&own)),
                    "{build} {}: gdb has {kind} {name}, ours {ours:?}",
                    function.name
                );
                count += 1;
            }
        }
        println!("{build}: {count} variables");
        assert!(count >= 8, "{build}: {count}");
    }
}

/// What gdb says of the locations of the variables in scope at an address: their ranges, where they have several.
fn located_by_gdb(program: &Path, address: u64) -> BTreeMap<String, Vec<(u64, u64)>> {
    let answer = run(Command::new("gdb")
        .args(["-batch", "-nx", "-ex", &format!("info scope *{address:#x}")])
        .arg(program));
    let mut located: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    let mut name = String::new();
    for line in answer.lines() {
        if let Some((_, rest)) = line.split_once("Symbol ")
            && line.contains(" is ")
        {
            rest.split(' ').next().unwrap().clone_into(&mut name);
        }
        let Some(range) = line.trim().strip_prefix("Range ") else {
            continue;
        };
        let (range, location) = range.split_once(": ").unwrap();
        let (begin, end) = range.split_once('-').unwrap();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        if !location.contains("optimized out") {
            located
                .entry(name.clone())
                .or_default()
                .push((hex(begin), hex(end)));
        }
    }
    located
}

#[test]
fn variables_are_located_where_gdb_has_them() {
    let mut compared = 0;
    for (build, file, fixture) in
        builds().filter(|(build, file, _)| build.contains("-O2") && matches!(*file, "source.c" | "shapes.c"))
    {
        for function in own_functions(&fixture, file) {
            for (name, ranges) in located_by_gdb(&fixture.path, function.address) {
                let ours: Vec<_> = function
                    .variables
                    .iter()
                    .filter(|variable| variable.name == name && variable.inlined_from.is_none())
                    .collect();
                let covered = |address: u64| {
                    ours.iter()
                        .any(|variable| variable.ranges.iter().any(|range| range.contains(&address)))
                };
                for (begin, end) in ranges {
                    assert!(
                        (begin..end).all(covered),
                        "{build} {} {name}: gdb {begin:#x}-{end:#x}, ours {ours:#x?}",
                        function.name
                    );
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} ranges");
    assert!(compared > 20, "{compared}");
}

#[test]
fn variables_listed_as_readable_can_be_read() {
    for (build, file, fixture) in builds() {
        let bytes = std::fs::read(&fixture.path).unwrap();
        let sections = DebugSections::load(&bytes, &bytes).unwrap();
        let debug = DebugFile::new(&sections);
        let mut count = 0;
        for function in own_functions(&fixture, file) {
            let own = function
                .variables
                .iter()
                .filter(|variable| variable.inlined_from.is_none());
            for variable in own {
                let Ok(expression) = profiler_scope::expression::parse(&variable.name) else {
                    continue;
                };
                for address in variable
                    .ranges
                    .iter()
                    .flat_map(|range| [range.start, range.end - 1])
                {
                    let site = Site { address, bias: 0 };
                    let lowered = values::lower(&debug, site, &expression);
                    assert!(
                        !matches!(lowered, Err(Refusal::NoVariable { .. })),
                        "{build} {} {} at {address:#x}: {lowered:?}",
                        function.name,
                        variable.name
                    );
                    count += 1;
                }
            }
        }
        println!("{build}: {count} places");
        assert!(count > 10, "{build}: {count}");
    }
}

/// What is the same in all instances of a function, compilers declare in none of them.
#[test]
fn static_variables_of_an_instance_are_read_where_they_are() {
    let fixture = compile("gcc", "statics.c", &["-O2", "-g", "-no-pie"]);
    let symbols = run(Command::new("nm").arg(&fixture.path));
    let address_of = |name: &str| {
        // The compiler numbers those of functions.
        let mut lines = symbols.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let found = lines.find(|line| line.len() == 3 && line[2].split('.').next() == Some(name));
        u64::from_str_radix(found.unwrap()[0], 16).unwrap()
    };
    let bytes = std::fs::read(&fixture.path).unwrap();
    let sections = DebugSections::load(&bytes, &bytes).unwrap();
    let debug = DebugFile::new(&sections);
    let site = Site {
        address: address_of("next"),
        bias: 0,
    };
    for name in ["total", "steps"] {
        let lowered = values::lower(&debug, site, &profiler_scope::expression::parse(name).unwrap());
        let lowered = lowered.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let address = address_of(name);
        let mut instructions = lowered.plan.instructions.iter();
        assert!(
            instructions.any(|instruction| instruction.immediate == address),
            "{name} is at {address:#x}: {:?}",
            lowered.plan
        );
    }
}

#[test]
fn finds_the_calls_branches_and_loops_of_each_line() {
    let file = "source.c";
    let at = |word: &str| line_with(file, word);
    for flags in [&["-O0", "-g"][..], &["-O1", "-g"]] {
        let fixture = compile("gcc", file, flags);
        let total = named(&fixture, "total");
        assert_eq!(
            (total.line, total.missing.len()),
            (line_with(file, "int total("), 0)
        );
        assert!(
            line(&total, at("/* loop */"))
                .branches
                .iter()
                .chain(&line(&total, at("/* inlined */")).branches)
                .any(|branch| branch.is_loop),
            "{flags:?}: {total:#?}"
        );
        assert!(!line(&total, at("/* branch */")).branches.is_empty());
        let callees = |word: &str| -> Vec<(String, CallKind)> {
            let calls = &line(&total, at(word)).calls;
            calls
                .iter()
                .map(|call| (call.callee.clone(), call.kind))
                .collect()
        };
        assert_eq!(callees("/* direct */"), [("weigh".to_owned(), CallKind::Direct)]);
        assert_eq!(callees("/* indirect */"), [(String::new(), CallKind::Indirect)]);
        assert_eq!(
            callees("/* linkage */"),
            [("printf".to_owned(), CallKind::Linkage)]
        );
        let inlined = &line(&total, at("/* inlined */")).inlined;
        assert_eq!(inlined.len(), 1, "{flags:?}: {inlined:?}");
        assert_eq!(
            (inlined[0].name.as_str(), inlined[0].call_line),
            ("clamp", at("/* inlined */"))
        );
        assert!(inlined[0].ranges.iter().all(|range| holds(&total, range.start)));
        let parameters: Vec<&str> = total
            .variables
            .iter()
            .filter(|variable| variable.parameter && variable.inlined_from.is_none())
            .map(|variable| variable.name.as_str())
            .collect();
        assert_eq!(parameters, ["items", "count", "extra"]);
        let extra = total
            .variables
            .iter()
            .find(|variable| variable.name == "extra")
            .unwrap();
        assert_eq!(extra.type_name, "int (*)(int)");
        let value = total
            .variables
            .iter()
            .find(|variable| variable.name == "value")
            .unwrap();
        assert_eq!(value.inlined_from.as_deref(), Some("clamp"));
    }
}

#[test]
fn a_function_that_exists_only_inlined_has_its_instances() {
    let file = "source.c";
    let fixture = compile("gcc", file, &["-O2", "-g"]);
    let clamp = Name::Exact("clamp".to_owned());
    assert!(fixture.index.matching(&clamp).is_empty());
    let found = source::inlined(&fixture.index, &clamp, 9).functions;
    let [clamp] = &*found else { panic!("{found:?}") };
    assert_eq!((clamp.address, clamp.instances.len()), (0, 1));
    assert_eq!(clamp.instances[0].name, "total");
    assert_eq!(clamp.instances[0].call_line, line_with(file, "/* inlined */"));
    assert_eq!(
        (clamp.line, clamp.last_line),
        (line_with(file, "int clamp("), line_with(file, "/* clamp */"))
    );
    // The line belongs to what is inlined, that of the call to what it is inlined into.
    let names = |word: &str| -> Vec<String> {
        let found = source::line(&fixture.index, file, line_with(file, word).into(), 9).unwrap();
        found
            .1
            .functions
            .into_iter()
            .map(|function| function.name)
            .collect()
    };
    assert_eq!(names("/* clamp */"), ["clamp"]);
    assert_eq!(names("/* inlined */"), ["total"]);
    assert!(
        source::inlined(&fixture.index, &Name::Exact("clmp".to_owned()), 9)
            .functions
            .is_empty()
    );
}

#[test]
fn names_are_those_that_users_know() {
    for flags in ["-O0", "-O2"] {
        let fixture = compile("g++", "source.cc", &[flags, "-g"]);
        let weigh = named(&fixture, "shop::Basket<int>::weigh");
        assert_eq!(weigh.line, line_with("source.cc", "weigh() const"));
        let mut branches = weigh.lines.iter().flat_map(|line| &line.branches);
        assert!(branches.any(|branch| branch.is_loop), "{flags}: {weigh:#?}");
        let all = fixture.index.matching(&Name::Exact("weigh".to_owned()));
        assert_eq!(all.len(), 2, "an instance for each type");
        let price = named(&fixture, "shop::price");
        let calls = &line(&price, line_with("source.cc", "// lambda")).calls;
        assert!(
            calls.iter().any(|call| call.callee.contains("{lambda(int)#1}")),
            "{calls:?}"
        );
    }
    for level in ["0", "2"] {
        let level = format!("-Copt-level={level}");
        let fixture = compile("rustc", "source.rs", &["--edition=2024", "-g", &level]);
        let largest = fixture.index.matching(&Name::Exact("largest".to_owned()));
        // At level 2 one of the two is computed by the compiler.
        assert!(!largest.is_empty(), "{level}");
        let body = source::line(
            &fixture.index,
            "source.rs",
            line_with("source.rs", "// awaited").into(),
            9,
        )
        .unwrap()
        .1
        .functions;
        assert!(
            body.iter()
                .any(|function| function.name.ends_with("fetch::{{closure}}")
                    || function.name.contains("async_fn")),
            "{level}: {:?}",
            body.iter().map(|function| &function.name).collect::<Vec<_>>()
        );
        let awaited = line_with("source.rs", "// awaited");
        let calls: Vec<&str> = body
            .iter()
            .flat_map(|function| &line(function, awaited).calls)
            .map(|call| call.callee.as_str())
            .collect();
        assert!(
            calls.iter().any(|callee| callee.ends_with("leaf")),
            "{level}: {calls:?}"
        );
    }
}

#[test]
fn without_debug_information_code_is_still_shown() {
    let fixture = compile("gcc", "source.c", &["-O2"]);
    let total = named(&fixture, "total");
    assert!(
        total
            .missing
            .iter()
            .any(|missing| missing.contains("no debug information")),
        "{:?}",
        total.missing
    );
    let [line] = &*total.lines else {
        panic!("{:?}", total.lines)
    };
    assert_eq!((line.line, line.file.as_str(), line.sites.len()), (0, "", 0));
    let callees: Vec<&str> = line.calls.iter().map(|call| call.callee.as_str()).collect();
    assert!(
        callees.contains(&"printf") && callees.contains(&"weigh"),
        "{callees:?}"
    );
    assert!(line.branches.iter().any(|branch| branch.is_loop));
    assert!(source::line(&fixture.index, "source.c", 20, 9).is_err());
}

/// No branch leads to the cases of a `switch` through a table: they are told by themselves.
#[test]
fn cases_are_the_lines_that_a_switch_leads_to() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("cases.c");
    let text = "volatile int sink;\n\
        int choose(int which) {\n\
        switch (which) {\n\
        case 0: sink = 5; break;\n\
        case 1: sink = 70; break;\n\
        case 2: sink += 3; break;\n\
        case 3: sink -= 9; break;\n\
        case 4: sink *= 2; break;\n\
        case 5: sink /= 3; break;\n\
        }\n\
        return sink;\n}\n\
        int main(int argc, char **argv) { (void)argv; return choose(argc); }\n";
    std::fs::write(&source, text).unwrap();
    for (compiler, level) in [("gcc", "-O1"), ("gcc", "-O2")] {
        if !has_program(compiler) {
            continue;
        }
        let program = directory.path().join("program");
        let mut command = Command::new(compiler);
        command.args(["-g", "-fno-inline", level, "-o"]).arg(&program);
        run(command.arg(&source));
        let index = support::index(&program);
        let numbers: Vec<usize> = (0..index.len()).collect();
        let all = source::functions(&index, &numbers);
        let choose = all.iter().find(|function| function.name == "choose").unwrap();
        let with_cases = choose.lines.iter().filter(|line| !line.cases.is_empty());
        let with_cases: BTreeSet<u32> = with_cases.map(|line| line.line).collect();
        assert!(
            with_cases.is_superset(&(4..=9).collect()),
            "{compiler} {level}: {with_cases:?}"
        );
        assert!(
            all.iter()
                .filter(|other| other.name == "main")
                .all(|main| { main.lines.iter().all(|line| line.cases.is_empty()) })
        );
    }
}

#[test]
fn functions_have_their_lines_where_the_debug_information_has_nothing_else() {
    let builds = [
        (
            "clang-14",
            "source.c",
            ["-O0", "-g"],
            ["-O0", "-gline-tables-only"],
        ),
        (
            "rustc",
            "source.rs",
            ["-Copt-level=0", "-g"],
            ["-Copt-level=0", "-Cdebuginfo=line-tables-only"],
        ),
    ];
    for (compiler, file, whole, lines) in builds.into_iter().filter(|build| has_program(build.0)) {
        let edition: &[&str] = if compiler == "rustc" {
            &["--edition=2024"]
        } else {
            &[]
        };
        let built = |flags: [&str; 2]| compile(compiler, file, &[edition, &flags].concat());
        let (whole, lines) = (built(whole), built(lines));
        let mut seen = 0;
        for function in own_functions(&whole, file) {
            let of_lines = named(&lines, &function.linkage_name);
            let places = |function: &FunctionSource| {
                let own = function
                    .lines
                    .iter()
                    .filter(|line| line.file.is_empty() && !line.sites.is_empty());
                own.map(|line| line.line).collect::<Vec<_>>()
            };
            assert_eq!(of_lines.file, function.file, "{compiler}: {}", function.name);
            assert_eq!(
                places(&of_lines),
                places(&function),
                "{compiler}: {}",
                function.name
            );
            assert_eq!(
                of_lines.last_line, function.last_line,
                "{compiler}: {}",
                function.name
            );
            assert!(of_lines.variables.is_empty() || !function.variables.is_empty());
            let says = |missing: &String| missing.contains("lines alone");
            seen += usize::from(of_lines.missing.iter().any(says));
        }
        assert!(seen > 2, "{compiler}: {seen}");
    }
}
