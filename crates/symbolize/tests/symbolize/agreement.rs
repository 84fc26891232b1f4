//! Random addresses of large files against what llvm-symbolizer says of them: function, file and line of the
//! declaration, inlining.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use memmap2::{Mmap, MmapOptions};
use object::{Object as _, ObjectSection as _};
use profiler_symbolize::{Frame, Symbolizer};
use profiler_testkit::skipped;
use serde_json::Value;

use super::support::{build, resolve};

/// A function: its linkage name, and where it is declared.
#[derive(Debug, Clone)]
struct Expected {
    function: String,
    file: String,
    line: u64,
}

/// How an address's frames compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Agree,
    /// The same, but for how a demangler spells numbers among template arguments, and names a compiler's clone.
    Spelling,
    /// The same, by another of the names that a C library has for a function.
    Alias,
    /// The same functions, where one side does not say where some are declared.
    NoDeclaration,
    /// The same functions, declared elsewhere.
    OtherDeclaration,
    /// As many frames, and as many declarations, with other names.
    OtherName,
    /// The other side has a name, and we have none.
    OnlyTheirs,
    /// We have a name, and the other side has none.
    OnlyOurs,
    /// More or fewer frames, or other functions.
    OtherFunctions,
}

pub fn symbolizer_program() -> Option<&'static str> {
    ["llvm-symbolizer-22", "llvm-symbolizer"]
        .into_iter()
        .find(|program| {
            Command::new(program)
                .arg("--version")
                .output()
                .is_ok_and(|output| output.status.success())
        })
}

/// A file as it would lie in a program, mapped by this one to be resolved, never to be run.
pub struct Mapped {
    path: PathBuf,
    bytes: Mmap,
    code: std::ops::Range<u64>,
    bias: u64,
}

impl Mapped {
    pub fn new(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        // SAFETY: the mapping is private and only read, and nothing writes to the file during the test.
        let bytes = unsafe { MmapOptions::new().map_exec(&file).unwrap() };
        let parsed = object::File::parse(&*bytes).unwrap();
        let text = parsed.section_by_name(".text").unwrap();
        let (offset, _) = text.file_range().unwrap();
        let code = text.address()..text.address() + text.size();
        let bias = (bytes.as_ptr().addr() as u64 + offset).wrapping_sub(text.address());
        Self {
            path: path.to_path_buf(),
            bytes,
            code,
            bias,
        }
    }

    /// Addresses in the file's own numbering: always the same ones, spread over all of the code.
    fn random(&self, count: usize) -> Vec<u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
        };
        let length = self.code.end - self.code.start;
        (0..count).map(|_| self.code.start + next() % length).collect()
    }

    pub fn ours(&self, symbolizer: &mut Symbolizer, address: u64) -> Vec<Frame> {
        assert!(!self.bytes.is_empty());
        resolve(symbolizer, std::process::id(), address.wrapping_add(self.bias))
    }
}

fn theirs(program: &str, path: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let mut child = Command::new(program)
        .args([
            "--functions=linkage",
            "--no-demangle",
            "--inlines",
            "--output-style=JSON",
            "-e",
        ])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let text = lines.concat();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = lines
        .map(|line| {
            let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let frames = answer["Symbol"].as_array().cloned().unwrap_or_default();
            let text = |frame: &Value, key: &str| frame[key].as_str().unwrap_or("").to_owned();
            frames
                .iter()
                .map(|frame| Expected {
                    function: text(frame, "FunctionName"),
                    file: text(frame, "StartFileName"),
                    line: frame["StartLine"].as_u64().unwrap_or(0),
                })
                .collect()
        })
        .collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    answers
}

/// Names without parameters, by `c++filt` or Rust's own demangler.
fn plain(names: &BTreeSet<String>) -> HashMap<String, String> {
    let mut child = Command::new("c++filt")
        .arg("-p")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = names.iter().map(|name| format!("{name}\n")).collect();
    let text = lines.concat();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let plain = |(name, filtered): (&String, std::io::Result<String>)| {
        let rust = rustc_demangle::try_demangle(name).map(|rust| format!("{rust:#}"));
        (name.clone(), rust.unwrap_or_else(|_| filtered.unwrap()))
    };
    let plain = names.iter().zip(lines).map(plain).collect();
    writer.join().unwrap();
    child.wait().unwrap();
    plain
}

fn compare(ours: &[Frame], theirs: &[Expected], plain: &HashMap<String, String>) -> Verdict {
    let unknown = |theirs: &[Expected]| theirs.iter().all(|frame| matches!(&*frame.function, "" | "??"));
    match (ours[0].unresolved.is_some(), unknown(theirs)) {
        (true, true) => return Verdict::Agree,
        (true, false) => return Verdict::OnlyTheirs,
        (false, true) => return Verdict::OnlyOurs,
        (false, false) => {}
    }
    if ours.len() != theirs.len() {
        return Verdict::OtherFunctions;
    }
    let pairs = || ours.iter().zip(theirs);
    // llvm-symbolizer does not follow two references to find the file, but does for the line.
    let unsaid = |(our, their): (&Frame, &Expected)| {
        (our.line == 0) != (their.line == 0) || (their.file.is_empty() && u64::from(our.line) == their.line)
    };
    let same_place = |(our, their): (&Frame, &Expected)| {
        u64::from(our.line) == their.line && (their.line == 0 || normal(&our.file) == normal(&their.file))
    };
    let same_name = |(our, their): (&Frame, &Expected)| *our.function == plain[&their.function];
    let same_spelling = |(our, their): (&Frame, &Expected)| {
        without_spelling(&our.function) == without_spelling(&plain[&their.function])
    };
    let same_alias = |(our, their): (&Frame, &Expected)| {
        let base = |name: &str| {
            name.trim_start_matches("__GI_")
                .trim_start_matches('_')
                .to_owned()
        };
        same_spelling((our, their)) || base(&our.function) == base(&plain[&their.function])
    };
    let said = pairs().all(|pair| same_place(pair) || unsaid(pair));
    let (named, places) = (pairs().all(same_alias), pairs().all(same_place));
    match (named, places) {
        (true, true) if pairs().all(same_name) => Verdict::Agree,
        (true, true) if pairs().all(same_spelling) => Verdict::Spelling,
        (true, true) => Verdict::Alias,
        (true, false) if said => Verdict::NoDeclaration,
        (true, false) => Verdict::OtherDeclaration,
        (false, _) if said => Verdict::OtherName,
        (false, _) => Verdict::OtherFunctions,
    }
}

/// `7ul` and `(unsigned long)7` as `7`; without `[clone .constprop.0]`.
fn without_spelling(name: &str) -> String {
    let mut name = name.split(" [clone ").next().unwrap().to_owned();
    for cast in [
        "(unsigned long)",
        "(unsigned int)",
        "(unsigned char)",
        "(long)",
        "(char)",
        "(short)",
    ] {
        name = name.replace(cast, "");
    }
    // An empty pack of arguments, and a function type's space.
    name = name.replace(", >", ">").replace(" >", ">").replace(" (", "(");
    let mut plain = String::new();
    let mut number = false;
    for c in name.chars() {
        let begins = c.is_ascii_digit() && !plain.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        number = begins || number && (c.is_ascii_digit() || matches!(c, 'u' | 'l'));
        if !(number && matches!(c, 'u' | 'l')) {
            plain.push(c);
        }
    }
    plain
}

/// A path without `.` and `..`, as far as can be told without the file system.
fn normal(path: &str) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

/// The share of the addresses that agree, in all that both sides say; differences are counted and shown.
fn agreement(program: &str, path: &Path, count: usize, shown: usize) -> f64 {
    agreement_with(program, path, path, count, shown)
}

/// The same of a file whose debug information was moved: they are asked about what it was before.
pub fn agreement_with(program: &str, path: &Path, whole: &Path, count: usize, shown: usize) -> f64 {
    let mapped = Mapped::new(path);
    let addresses = mapped.random(count);
    let theirs = theirs(program, whole, &addresses);
    assert_eq!(theirs.len(), count);
    let names: BTreeSet<String> = theirs
        .iter()
        .flatten()
        .map(|frame| frame.function.clone())
        .collect();
    let plain = plain(&names);
    let mut symbolizer = Symbolizer::new();
    let mut verdicts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut inlined = 0;
    for (&address, theirs) in addresses.iter().zip(&theirs) {
        let ours = mapped.ours(&mut symbolizer, address);
        inlined += usize::from(ours.len() > 1);
        let verdict = compare(&ours, theirs, &plain);
        let seen = verdicts.entry(verdict).or_default();
        *seen += 1;
        if verdict != Verdict::Agree && *seen <= shown {
            println!("{verdict:?} at {address:#x}:");
            for frame in &ours {
                println!("  ours   {} {}:{}", frame.function, frame.file, frame.line);
            }
            for frame in theirs {
                let name = &plain[&frame.function];
                println!("  theirs {name} {}:{}", frame.file, frame.line);
            }
        }
    }
    let of = |verdict| verdicts.get(&verdict).copied().unwrap_or(0);
    let agree = of(Verdict::Agree) + of(Verdict::Spelling) + of(Verdict::Alias) + of(Verdict::NoDeclaration);
    println!(
        "{}: {agree} of {count} agree, {inlined} inlined; {verdicts:?}",
        mapped.path.display()
    );
    agree as f64 / count as f64
}

#[test]
fn five_hundred_addresses_of_a_cpp_program() {
    let Some(program) = symbolizer_program() else {
        return skipped("llvm-symbolizer is not installed");
    };
    for flags in [&["-O2", "-g"][..], &["-O2", "-gdwarf-4"]] {
        let built = build("g++", &[flags, &["-std=c++17", "-pthread"]].concat(), "large.cc");
        assert!(agreement(program, &built.path, 500, 3) >= 0.98);
    }
}

/// Not a check: prints how many of 10,000 addresses agree, and the differences. `PROFILER_AGREEMENT` names
/// further files, separated by colons.
#[test]
#[ignore = "prints shares"]
fn ten_thousand_addresses_of_large_files() {
    let program = symbolizer_program().unwrap();
    let built = build("g++", &["-O2", "-g", "-std=c++17", "-pthread"], "large.cc");
    let mut paths = vec![built.path.clone(), std::env::current_exe().unwrap()];
    let further = std::env::var("PROFILER_AGREEMENT").unwrap_or_default();
    paths.extend(
        further
            .split(':')
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
    );
    for path in paths {
        agreement(program, &std::fs::canonicalize(path).unwrap(), 10_000, 3);
    }
}

/// Not a check: prints how long it takes from nothing to the first function's name, and to those of a hundred further
/// addresses, in the files that `PROFILER_TIMINGS` names, separated by colons.
#[test]
#[ignore = "prints timings"]
fn first_names_of_large_files() {
    let named = std::env::var("PROFILER_TIMINGS").unwrap_or_default();
    let own = std::env::current_exe().unwrap();
    let named = named
        .split(':')
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    for path in named.chain([own]) {
        let path = std::fs::canonicalize(path).unwrap();
        let mapped = Mapped::new(&path);
        let addresses = mapped.random(101);
        let debug: u64 = {
            let parsed = object::File::parse(&*mapped.bytes).unwrap();
            let sections = parsed.sections();
            let debug =
                sections.filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
            debug.map(|section| section.size()).sum()
        };
        // The second time, the file is in memory: what is left is our own.
        for round in ["cold", "again"] {
            let mut symbolizer = Symbolizer::new();
            let began = Instant::now();
            let mut used = 0;
            for &address in &addresses {
                used += 1;
                if mapped.ours(&mut symbolizer, address)[0].unresolved.is_none() {
                    break;
                }
            }
            let first = began.elapsed();
            for &address in &addresses[used..] {
                mapped.ours(&mut symbolizer, address);
            }
            println!(
                "{}, {} MB, {} MB of DWARF, {round}: first name {first:?} ({used} addresses), {} further {:?}",
                path.display(),
                mapped.bytes.len() >> 20,
                debug >> 20,
                addresses.len() - used,
                began.elapsed().saturating_sub(first)
            );
        }
    }
}
