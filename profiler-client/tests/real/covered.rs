//! Lines and branches counted by `profiler trace`, against gcov in the same run, and against gdb.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use profiler_plan::{
    ModuleIndex,
    branches::{self, BranchError},
    lines::{self, LineError},
};
use serde_json::Value;

use super::{
    command::{Running, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

const SOURCE: &str = "covered.c";

/// A command of the compiler's, to its end.
#[track_caller]
fn output(command: &mut Command) -> Vec<u8> {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: run `cargo xtask setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}");
    output.stdout
}

/// gcc, in a directory.
fn gcc(directory: &Path, flags: &[&str]) -> Command {
    let mut gcc = Command::new("gcc");
    gcc.current_dir(directory).arg("-g").args(flags);
    gcc
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/real")
        .join(SOURCE)
}

/// What gcov has of a line.
struct Line {
    count: u64,
    /// How often it went each way at each branch, and whether that is the way on, without a jump.
    ways: Vec<(u64, bool)>,
}

/// What the program counted.
struct Counted {
    lines: BTreeMap<u64, Line>,
    /// Calls of each function, by the line that it ends with.
    calls: BTreeMap<u64, u64>,
}

/// Reads what the program counted.
fn counted(directory: &Path) -> Counted {
    let mut gcov = Command::new("gcov");
    gcov.current_dir(directory).args([
        "--json-format",
        "--branch-probabilities",
        "--stdout",
        "covered.gcda",
    ]);
    let read: Value = serde_json::from_slice(&output(&mut gcov)).unwrap();
    let number = |object: &Value, key: &str| object[key].as_u64().unwrap();
    let list = |object: &Value, key: &str| object[key].as_array().unwrap().clone();
    let of_source = |file: &Value| file["file"].as_str().unwrap().ends_with(SOURCE);
    let file = list(&read, "files").into_iter().find(of_source).unwrap();
    let lines = list(&file, "lines").into_iter().map(|line| {
        let ways = list(&line, "branches").into_iter();
        let ways = ways.map(|way| (number(&way, "count"), way["fallthrough"] == true));
        let counted = Line {
            count: number(&line, "count"),
            ways: ways.collect(),
        };
        (number(&line, "line_number"), counted)
    });
    let functions = list(&file, "functions").into_iter();
    Counted {
        lines: lines.collect(),
        calls: functions
            .map(|function| {
                (
                    number(&function, "end_line"),
                    number(&function, "execution_count"),
                )
            })
            .collect(),
    }
}

impl Counted {
    /// Compares every line and branch with how often its probes were reached.
    fn compare(&self, probed: &BTreeMap<u64, Probed>, reached: &BTreeMap<String, u64>) {
        let text: Vec<&str> = include_str!("covered.c").lines().collect();
        let text_of = |line: u64| text[usize::try_from(line).unwrap() - 1].trim();
        let marked = |mark: &str| {
            let found = text.iter().position(|line| line.contains(mark));
            found.unwrap() as u64 + 1
        };
        let before_probes = marked("int main")..marked("from here on there are probes");
        let (jumped_into, one_line) = (marked("jumps to its condition"), marked("a loop on one line"));
        let of_site = |line: u64| reached.get(&line.to_string()).copied();
        let of_way = |line: u64, way: &str| reached[&format!("{line}{way}")];
        let (mut equal_lines, mut equal_ways) = (0, 0);

        for (&line, Line { count, ways }) in &self.lines {
            let (text, ours) = (text_of(line), of_site(line));
            match ours {
                None => {
                    println!("{line}: gcov has {count} of what has no instructions: {text}");
                    assert!(text.starts_with("case ") || text == "default:", "{line}: {text}");
                }
                // The first lines of `main`.
                Some(ours) if before_probes.contains(&line) => {
                    println!("{line}: has run before it was probed: {text}");
                    assert_eq!(ours, 0, "{line}: {text}");
                }
                // It begins once before the loop and once in it, which the jump between them leads to.
                Some(ours) if line == jumped_into => {
                    println!("{line}: {ours} of two places, gcov {count} times through any: {text}");
                    assert_eq!(ours, count + self.lines[&(line - 1)].count, "{line}: {text}");
                }
                // The line is left when the loop is.
                Some(ours) if line == one_line => {
                    println!("{line}: begins {ours} times, gcov has {count} rounds: {text}");
                    let back = of_way(line, "!taken");
                    assert_eq!((ours, *count), (self.lines[&(line - 1)].count, ours + back));
                }
                Some(ours) => {
                    assert_eq!(ours, *count, "{line}: {text}");
                    equal_lines += 1;
                }
            }
            let conditional = probed.get(&line).map_or(0, |probed| probed.conditional);
            if conditional == 0 {
                assert_eq!(ways.len(), 0, "{line}: {text}");
                continue;
            }
            let (taken, other) = (of_way(line, "!taken"), of_way(line, "!else"));
            match *ways.as_slice() {
                [(on, true), (jump, false)] | [(jump, false), (on, true)] if conditional == 1 => {
                    if probed[&line].either_way && (taken, other) == (on, jump) {
                        println!("{line}: the other way is the jump: {taken} and {other}: {text}");
                    } else {
                        assert_eq!((taken, other), (jump, on), "{line}: {text}");
                    }
                    equal_ways += 2;
                }
                // A `switch` compares as the compiler likes.
                _ if text.starts_with("switch") => {
                    println!("{line}: {conditional} comparisons are not compared: {text}");
                }
                _ => {
                    println!("{line}: {conditional} branches, of which only the sum is compared: {text}");
                    let all: u64 = ways.iter().map(|(count, _)| count).sum();
                    assert_eq!(taken + other, all, "{line}: {text}");
                }
            }
        }
        for &line in probed.keys().filter(|line| !self.lines.contains_key(line)) {
            let text = text_of(line);
            println!("{line}: gcov has no count of where a function is left: {text}");
            assert_eq!(
                (text, of_site(line)),
                ("}", self.calls.get(&line).copied()),
                "{line}"
            );
        }
        println!("{equal_lines} lines and {equal_ways} ways of branches equal");
        assert!(
            equal_lines >= 50 && equal_ways >= 24,
            "{equal_lines} lines, {equal_ways} ways"
        );
    }
}

/// What can be probed on a line.
#[derive(Default)]
struct Probed {
    sites: usize,
    conditional: usize,
    /// A jump that is always taken is behind a conditional one: which of the two ways is the jump is the compiler's
    /// choice.
    either_way: bool,
}

/// What can be probed of the program, by line.
fn probed(pid: &str) -> BTreeMap<u64, Probed> {
    let functions = run(profiler(&["functions", "-p", pid, "--json"]))
        .status(0)
        .objects();
    let own = functions.iter().filter(|function| {
        function["file"]
            .as_str()
            .is_some_and(|file| file.ends_with(SOURCE))
    });
    let mut lines = BTreeMap::<u64, Probed>::new();
    for function in own {
        let name = function["name"].as_str().unwrap();
        let source = run(profiler(&["source", "-p", pid, name, "--json"]))
            .status(0)
            .objects();
        for line in source
            .iter()
            .filter(|object| object["type"] == "line" && object["line"].is_u64())
        {
            let branches = line["branches"].as_array().unwrap();
            let conditional = branches.iter().filter(|branch| !branch["else"].is_null()).count();
            let sites = line["sites"].as_array().unwrap().len();
            if sites + branches.len() > 0 {
                let probed = lines.entry(line["line"].as_u64().unwrap()).or_default();
                probed.sites += sites;
                probed.conditional += conditional;
                probed.either_way |= branches.len() > conditional;
            }
        }
    }
    lines
}

/// Traces of places, all at once.
struct Traces(Vec<(String, Running)>);

impl Traces {
    /// Returns once all of them are attached.
    fn start(daemon: &Daemon, pid: &str, places: Vec<String>) -> Self {
        let start = |place: String| {
            let scope = format!("{SOURCE}:{place}");
            // All hits are counted, whether they are shown or not.
            let arguments = ["trace", "-p", pid, &scope, "--limit", "1", "--json"];
            (place, Running::start(through(&daemon.socket, &arguments)))
        };
        let traces = Self(places.into_iter().map(start).collect());
        loop {
            let sessions = daemon.sessions();
            // A session that is watched is attached.
            if sessions.iter().filter(|session| session["watchers"] == 1).count() == traces.0.len() {
                return traces;
            }
        }
    }

    /// How often each place was reached, in the run that has ended.
    fn end(self) -> BTreeMap<String, u64> {
        let reached = |trace: Running| {
            let ended = trace.end().status(0).objects();
            let summary = ended.last().unwrap();
            assert_eq!(summary["type"], "summary");
            summary["reached"].as_u64().unwrap()
        };
        self.0
            .into_iter()
            .map(|(place, trace)| (place, reached(trace)))
            .collect()
    }
}

/// Runs the program to its end; how often each place was reached.
fn reached(mut target: Fixture, places: Vec<String>) -> BTreeMap<String, u64> {
    let most = places.len().to_string();
    let daemon = Daemon::with(&["--max-sessions", &most]);
    let traces = Traces::start(&daemon, &target.pid().to_string(), places);
    target.say("go");
    let ended = target.finish();
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (Some(0), "ready\n17 primes, 9868\n")
    );
    let reached = traces.end();
    assert_eq!(daemon.stop(), Some(0));
    reached
}

#[test]
#[ignore = "needs root"]
fn lines_and_branches_are_counted_as_the_program_counts_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let executable = directory.join("covered");
    let gcc = || gcc(directory, &["-O0", "--coverage"]);
    // In two steps, for the names of the files that the counters go to.
    output(gcc().args(["-c", "-o", "covered.o"]).arg(source()));
    output(gcc().arg("-o").arg(&executable).arg("covered.o"));
    let target = Fixture::start(executable.to_str().unwrap(), &[]);
    let lines = probed(&target.pid().to_string());
    let of_line = lines.iter().flat_map(|(line, probed)| {
        let ways = (probed.conditional > 0).then_some(["!taken", "!else"]);
        let ways = ways.into_iter().flatten().map(move |way| format!("{line}{way}"));
        let itself = (probed.sites > 0).then(|| line.to_string());
        itself.into_iter().chain(ways)
    });
    let reached = reached(target, of_line.collect());
    counted(directory).compare(&lines, &reached);
}

/// A breakpoint, and what its hits count for.
struct Breakpoint {
    address: u64,
    /// At a jump: when it is a hit.
    condition: Option<String>,
    place: String,
}

/// When a conditional jump is taken, in gdb's words, by its name.
fn taken_if(mnemonic: &str) -> String {
    let flag = |bit: u32| format!("(((int)$eflags >> {bit}) & 1)");
    let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    match mnemonic {
        "jo" => overflow,
        "jno" => format!("!{overflow}"),
        "jb" => carry,
        "jae" => format!("!{carry}"),
        "je" => zero,
        "jne" => format!("!{zero}"),
        "jbe" => format!("({carry} || {zero})"),
        "ja" => format!("!({carry} || {zero})"),
        "js" => sign,
        "jns" => format!("!{sign}"),
        "jp" => parity,
        "jnp" => format!("!{parity}"),
        "jl" => format!("{sign} != {overflow}"),
        "jge" => format!("{sign} == {overflow}"),
        "jle" => format!("({zero} || {sign} != {overflow})"),
        "jg" => format!("!({zero} || {sign} != {overflow})"),
        other => panic!("{other} is no conditional jump"),
    }
}

/// Where the program's lines begin to run, and where its branches go each way.
fn breakpoints(executable: &Path) -> Vec<Breakpoint> {
    let text = include_str!("covered.c");
    let bytes = fs::read(executable).unwrap();
    let module = ModuleIndex::new(Arc::new(bytes)).unwrap();
    let main = text.lines().position(|line| line.contains("int main")).unwrap() as u64;
    let mut breakpoints = Vec::new();
    // What is behind has run in part before there are probes.
    for line in 1..=main {
        let sites = match lines::find(&module, SOURCE, line) {
            Ok(found) => found.sites,
            Err(LineError::NoCode { .. }) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        breakpoints.extend(sites.into_iter().map(|site| Breakpoint {
            address: site.address,
            condition: None,
            place: line.to_string(),
        }));
        let sites = match branches::find(&module, SOURCE, line) {
            Ok(found) => {
                assert_eq!((found.left_out.len(), found.missing.len()), (0, 0), "{line}");
                found.sites
            }
            Err(BranchError::NoBranches { .. } | BranchError::Line(LineError::NoCode { .. })) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        breakpoints.extend(sites.into_iter().flat_map(|site| {
            let taken = taken_if(&site.jump.mnemonic);
            [("!taken", taken.clone()), ("!else", format!("!({taken})"))].map(|(way, condition)| Breakpoint {
                address: site.jump.address,
                condition: Some(condition),
                place: format!("{line}{way}"),
            })
        }));
    }
    breakpoints
}

/// How often gdb hits each place.
fn hit_by_gdb(directory: &Path, executable: &Path, breakpoints: &[Breakpoint]) -> BTreeMap<String, u64> {
    let mut script = String::from("import gdb\n");
    for breakpoint in breakpoints {
        let condition = breakpoint.condition.as_ref();
        let condition = condition.map_or(String::new(), |condition| format!(" if {condition}"));
        let address = breakpoint.address;
        // Writing to a String cannot fail.
        let _ = writeln!(script, "gdb.execute('break *{address:#x}{condition}')");
    }
    script += "for breakpoint in gdb.breakpoints(): breakpoint.ignore_count = 1 << 30\n\
        gdb.execute('run < input')\n\
        for breakpoint in gdb.breakpoints(): print('hit', breakpoint.number, breakpoint.hit_count)\n";
    fs::write(directory.join("count.py"), script).unwrap();
    fs::write(directory.join("input"), "go\n").unwrap();
    let mut gdb = Command::new("gdb");
    gdb.current_dir(directory)
        .args(["-batch", "-nx", "-iex", "set debuginfod enabled off"])
        .args(["-x", "count.py"])
        .arg(executable);
    let answer = String::from_utf8(output(&mut gdb)).unwrap();
    assert!(answer.contains("17 primes, 9868"), "{answer}");
    let mut hits = BTreeMap::new();
    for hit in answer.lines().filter_map(|line| line.strip_prefix("hit ")) {
        let (number, count) = hit.split_once(' ').unwrap();
        let place = &breakpoints[number.parse::<usize>().unwrap() - 1].place;
        *hits.entry(place.clone()).or_default() += count.parse::<u64>().unwrap();
    }
    hits
}

#[test]
#[ignore = "needs root"]
fn optimized_lines_and_branches_are_counted_as_gdb_counts_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let executable = directory.join("covered");
    // Addresses are those of the file.
    output(
        gcc(directory, &["-O2", "-no-pie", "-o"])
            .arg(&executable)
            .arg(source()),
    );
    let breakpoints = breakpoints(&executable);
    let theirs = hit_by_gdb(directory, &executable, &breakpoints);
    let target = Fixture::start(executable.to_str().unwrap(), &[]);
    let ours = reached(target, theirs.keys().cloned().collect());
    let (places, hits): (usize, u64) = (breakpoints.len(), theirs.values().sum());
    println!("{} lines and ways, {places} addresses, {hits} hits", theirs.len());
    assert_eq!(ours, theirs);
    assert!(theirs.len() > 60 && hits > 10_000);
}
