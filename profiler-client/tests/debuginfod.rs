//! Functions that the daemon has no name for, and a debuginfod server that has.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see")]

#[expect(dead_code, reason = "other tests use the rest")]
mod fake;
#[expect(dead_code, reason = "other tests use the rest")]
mod web;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use fake::{Fake, Script};
use object::{Object as _, ObjectSymbol as _};
use web::{Answer, Web};

/// A program with debug information.
struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
    build_id: Vec<u8>,
    /// In `outer`, where other functions are inlined.
    address: u64,
}

fn program(source: &str, function: &str) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/symbolize/tests/fixtures");
    let is_c = Path::new(source).extension().is_some_and(|ending| ending == "c");
    let compiler = if is_c { "gcc" } else { "g++" };
    run(Command::new(compiler)
        .args(["-g", "-O2", "-o"])
        .args([&path, &sources.join(source)]));
    let bytes = fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file
        .symbols()
        .find(|symbol| symbol.name().is_ok_and(|name| name.contains(function)));
    Program {
        build_id: file.build_id().unwrap().unwrap().to_vec(),
        address: found.unwrap().address() + 8,
        _folder: folder,
        path,
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success());
}

/// Runs `flame`, with a folder for files, against a daemon that cannot name one function.
fn flame(program: &Program, urls: Option<&str>, cache: &Path, arguments: &[&str]) -> Output {
    let fake = Fake::start(Script {
        nameless: Some((program.build_id.clone(), program.address)),
        ..Script::default()
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_profiler"));
    command
        .args(["flame", "-p", "7", "--duration", "0.3", "--host"])
        .arg(format!("unix:{}", fake.socket().display()))
        .args(arguments)
        .env("DEBUGINFOD_CACHE_PATH", cache)
        .env_remove("DEBUGINFOD_URLS");
    if let Some(urls) = urls {
        command.env("DEBUGINFOD_URLS", urls);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn functions_without_names_get_them() {
    let program = program("inlined.c", "outer");
    let bytes = fs::read(&program.path).unwrap();
    let web = Web::start(move |_| Answer::Bytes(bytes.clone()));
    let cache = tempfile::tempdir().unwrap();
    let without = flame(&program, None, cache.path(), &["-f"]);
    let unknown = format!("main;handle;server+{:#x} (no symbols);read ", program.address);
    assert!(
        text(&without.stdout).contains(&unknown),
        "{}",
        text(&without.stdout)
    );
    assert!(text(&without.stderr).contains("functions that are not known"));
    assert_eq!(web.asked().len(), 0);

    for arguments in [&["-f"][..], &["-f", "--by", "line"]] {
        let with = flame(&program, Some(&web.url), cache.path(), arguments);
        let (stdout, stderr) = (text(&with.stdout), text(&with.stderr));
        assert!(
            stdout.contains("main;handle;outer;") && !stdout.contains("no symbols"),
            "{stdout}"
        );
        assert!(!stderr.contains("not known"), "{stderr}");
    }
    // The second run has it from the folder, and says nothing.
    assert_eq!(web.asked().len(), 1);
    let folder = cache.path().join(hex(&program.build_id));
    assert!(folder.join("debuginfo").exists());
}

#[test]
fn a_supplementary_file_is_got_as_well() {
    let program = program("templates.cc", "shapes");
    let folder = program.path.parent().unwrap();
    let (other, common) = (folder.join("other"), folder.join("common"));
    fs::copy(&program.path, &other).unwrap();
    run(Command::new("dwz")
        .arg("-m")
        .args([&common, &program.path, &other]));
    let bytes = fs::read(&common).unwrap();
    let id = object::File::parse(&*bytes)
        .unwrap()
        .build_id()
        .unwrap()
        .unwrap()
        .to_vec();
    let files = [
        (hex(&program.build_id), fs::read(&program.path).unwrap()),
        (hex(&id), bytes),
    ];
    fs::remove_file(&common).unwrap();
    let web = Web::start(move |path| {
        let file = files.iter().find(|(id, _)| path.contains(id));
        file.map_or(Answer::Status(404), |(_, bytes)| Answer::Bytes(bytes.clone()))
    });
    let cache = tempfile::tempdir().unwrap();
    let output = flame(&program, Some(&web.url), cache.path(), &["--json"]);
    assert_eq!(web.asked().len(), 2, "{:?}", web.asked());
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("templates.cc") && !stdout.contains("no "),
        "{stdout}"
    );
    for id in [&program.build_id, &id] {
        assert!(cache.path().join(hex(id)).join("debuginfo").exists());
    }
}

#[test]
fn servers_are_named_once_and_may_have_nothing() {
    let program = program("inlined.c", "outer");
    let web = Web::start(|_| Answer::Status(404));
    let cache = tempfile::tempdir().unwrap();
    let urls = format!("http://127.0.0.1:1 {}", web.url);
    let output = flame(&program, Some(&urls), cache.path(), &["-f"]);
    let stderr = text(&output.stderr);
    assert!(text(&output.stdout).contains("no symbols"));
    assert_eq!(
        stderr.matches("getting debug information from").count(),
        1,
        "{stderr}"
    );
    assert_eq!(
        stderr.matches("warning: http://127.0.0.1:1: ").count(),
        1,
        "{stderr}"
    );
    assert_eq!(web.asked().len(), 1);
}
