//! The lines that run at addresses of a live process against what GNU addr2line says of its file.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use profiler_symbolize::Symbolizer;
use profiler_target::{executable_mappings, modules};

/// File names and lines at addresses of a file, innermost first; `None` for what belongs to no line.
fn truth(path: &Path, addresses: &[u64]) -> Vec<Vec<Option<(String, u32)>>> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-s", "-e"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: Vec<String> = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let writer = std::thread::spawn(move || input.write_all(text.concat().as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let mut answers = Vec::new();
    for line in std::str::from_utf8(&output.stdout).unwrap().lines() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let line = line.split(" (discriminator").next().unwrap();
        let (file, number) = line.rsplit_once(':').unwrap();
        let place = number.parse().ok().map(|number| (file.to_owned(), number));
        answers.last_mut().unwrap().push(place);
    }
    answers
}

/// Compares everything in the functions of a file whose names contain one of the words; gives the number of addresses,
/// and of those that lie in inlined code.
fn compare(compiler: &str, flags: &[&str], source: &str, words: &[&str]) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixture");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(source);
    let built = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    compare_built(&path, &path, words)
}

/// The same for a program whose debug information is elsewhere; addr2line is asked about `whole`.
fn compare_built(path: &Path, whole: &Path, words: &[&str]) -> (usize, usize) {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let functions = file.symbols().filter(|symbol| {
        let name = symbol.name().unwrap_or_default();
        symbol.kind() == object::SymbolKind::Text && words.iter().any(|word| name.contains(word))
    });
    let addresses: Vec<u64> = functions
        .flat_map(|symbol| symbol.address()..symbol.address() + symbol.size())
        .collect();
    let expected = truth(whole, &addresses);
    assert_eq!(expected.len(), addresses.len());

    let mut child = Command::new(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let module = loop {
        // `spawn` returns while the kernel is still putting the code in place.
        let modules = modules(&executable_mappings(child.id()).unwrap());
        if let Some(module) = modules.into_iter().find(|module| module.path == path) {
            break module;
        }
        std::thread::yield_now();
    };
    let mut symbolizer = Symbolizer::new();
    let (mut inlined, mut wrong) = (0, Vec::new());
    for (address, expected) in addresses.iter().zip(&expected) {
        let segment = file
            .segments()
            .find(|segment| (segment.address()..segment.address() + segment.size()).contains(address))
            .unwrap();
        let offset = address - segment.address() + segment.file_range().0;
        let live = module.addresses_of(offset).next().unwrap();
        let (mut lines, mut functions) = (Vec::new(), Vec::new());
        symbolizer.resolve_user_lines(child.id(), live, 0, &mut lines);
        symbolizer.resolve_user(child.id(), live, 0, &mut functions);
        assert_eq!(lines.len(), functions.len());
        let found: Vec<_> = lines
            .iter()
            .zip(&functions)
            .map(|(line, function)| {
                let (line, function) = (
                    &symbolizer.frames()[line.0 as usize],
                    &symbolizer.frames()[function.0 as usize],
                );
                assert_eq!(
                    (&line.function, &line.module, line.inlined),
                    (&function.function, &function.module, function.inlined)
                );
                let file = line.file.rsplit('/').next().unwrap().to_owned();
                (line.line > 0).then_some((file, line.line))
            })
            .collect();
        inlined += usize::from(found.len() > 1);
        if found != *expected {
            wrong.push(format!("{address:#x}: {found:?}, not {expected:?}"));
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}: {}",
        wrong.len(),
        addresses.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
    println!("{} addresses, {inlined} of them in inlined code", addresses.len());
    (addresses.len(), inlined)
}

#[test]
fn c_lines() {
    let (all, inlined) = compare(
        "gcc",
        &["-O2", "-g"],
        "inlined.c",
        &["outer", "hidden", "plain", "main"],
    );
    assert!(all > 50 && inlined > 0);
}

#[test]
fn cpp_lines() {
    compare(
        "g++",
        &["-O2", "-g"],
        "templates.cc",
        &["shapes", "hidden", "twice", "main"],
    );
}

/// The same source, built in parts: whole, and with debug information beside the object.
#[test]
fn lines_of_split_units() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inlined.c");
    for (compiler, version) in [
        ("gcc", "-gdwarf-4"),
        ("gcc", "-gdwarf-5"),
        ("clang-14", "-gdwarf-5"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let build = |name: &str, flags: &[&str]| {
            let run = |arguments: &[&str]| {
                let done = Command::new(compiler)
                    .current_dir(folder.path())
                    .args(arguments)
                    .status();
                assert!(done.unwrap().success());
            };
            let object = format!("{name}.o");
            let source = source.to_str().unwrap();
            run(&[&["-O2", version, "-fPIE", "-c", "-o", &object, source], flags].concat());
            run(&["-pie", "-o", name, &object]);
            folder.path().join(name)
        };
        let (whole, split) = (build("whole", &[]), build("split", &["-gsplit-dwarf"]));
        assert!(folder.path().join("split.dwo").exists());
        let words = ["outer", "hidden", "plain", "main"];
        let (all, inlined) = compare_built(&split, &whole, &words);
        assert!(all > 50 && inlined > 0, "{compiler} {version}: {all}, {inlined}");
    }
}

#[test]
fn rust_lines() {
    let (all, inlined) = compare(
        "rustc",
        &["-O", "-g", "--crate-name=generics"],
        "generics.rs",
        &["8generics"],
    );
    assert!(all > 50 && inlined > 0);
}
