//! Debug information of which `dwz` has moved a part to a file that several share.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use profiler_debug_files::{Reader, SideLoaded};
use profiler_symbolize::{Reason, Symbolizer};
use profiler_testkit::skipped;
use tempfile::TempDir;

use super::{
    agreement::{Mapped, agreement_with, symbolizer_program},
    support::{build, run},
};

/// Two programs with much in common, and the file where that is.
struct Shared {
    folder: TempDir,
    /// One of the programs.
    path: PathBuf,
    /// What it was before.
    whole: PathBuf,
    common: PathBuf,
}

/// Much of the standard library, which is what the programs have in common: it takes long to compile.
static DWARF_4: LazyLock<Vec<u8>> = LazyLock::new(|| program("-gdwarf-4"));
static DWARF_5: LazyLock<Vec<u8>> = LazyLock::new(|| program("-gdwarf-5"));

fn program(version: &str) -> Vec<u8> {
    let built = build("g++", &["-O2", version, "-std=c++17", "-pthread"], "large.cc");
    fs::read(built.path).unwrap()
}

/// Makes it. The debug information is in the programs, or in debug files of theirs.
fn shared(program: &[u8], dwz: &[&str], split: bool) -> Shared {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut files = Vec::new();
    for name in ["fixture", "other"] {
        fs::write(at(name), program).unwrap();
        let whole = at(&format!("{name}.whole"));
        fs::write(&whole, program).unwrap();
        if split {
            let debug = at(&format!("{name}.debug"));
            run(Command::new("objcopy")
                .arg("--only-keep-debug")
                .args([&whole, &debug]));
            run(Command::new("strip").arg(at(name)));
            run(Command::new("objcopy")
                .arg(format!("--add-gnu-debuglink={}", debug.display()))
                .arg(at(name)));
            files.push(debug);
        } else {
            files.push(at(name));
        }
    }
    let common = at("common");
    run(Command::new("dwz")
        .current_dir(folder.path())
        .args(dwz)
        .arg("-m")
        .arg(&common)
        .args(&files));
    assert!(common.exists(), "there is nothing in common");
    let (path, whole) = (at("fixture"), at("fixture.whole"));
    Shared {
        folder,
        path,
        whole,
        common,
    }
}

#[test]
fn names_in_a_supplementary_file() {
    let Some(symbolizer) = symbolizer_program() else {
        return skipped("llvm-symbolizer is not installed");
    };
    for (program, dwz, split) in [
        (&DWARF_4, &["-r"][..], false),
        (&DWARF_5, &["-r"], true),
        (&DWARF_5, &["-5", "-r"], false),
        (&DWARF_5, &[], true),
    ] {
        let shared = shared(program, dwz, split);
        let agree = agreement_with(symbolizer, &shared.path, &shared.whole, 500, 3);
        assert!(agree >= 0.98, "{dwz:?} {split}: {agree}");
    }
}

/// The names of functions at addresses of the first program, and the reasons for those that are not known.
fn names(shared: &Shared, side_loaded: &[PathBuf]) -> (Vec<String>, Vec<Reason>) {
    let mapped = Mapped::new(&shared.path);
    let mut symbolizer = Symbolizer::new();
    if !side_loaded.is_empty() {
        symbolizer.side_load(SideLoaded::scan(side_loaded, &Reader::OWN).unwrap());
    }
    let (mut names, mut reasons) = (Vec::new(), Vec::new());
    let main = address_of(&shared.whole, "main");
    for inside in (0..800).step_by(3) {
        let frames = mapped.ours(&mut symbolizer, main + inside);
        names.extend(frames.iter().map(|frame| frame.function.to_string()));
        reasons.extend(frames.iter().filter_map(|frame| frame.unresolved));
    }
    (names, reasons)
}

#[test]
fn finds_supplementary_files_and_reports_missing_ones() {
    let shared = shared(&DWARF_5, &["-r"], false);
    let (expected, reasons) = names(&shared, &[]);
    assert_eq!(reasons, []);
    let move_to = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, &to).unwrap();
        to
    };
    let beside = move_to(&shared.common, shared.folder.path().join(".dwz/common"));
    assert_eq!(names(&shared, &[]).0, expected);
    let away = move_to(&beside, shared.folder.path().join("elsewhere/away"));
    let (without, reasons) = names(&shared, &[]);
    assert_eq!(without.len(), expected.len());
    assert!(reasons.len() > 10 && reasons.iter().all(|reason| *reason == Reason::NoSupplement));
    assert!(without.contains(&"main".to_owned()), "the symbol's name");
    assert_eq!(names(&shared, std::slice::from_ref(&away)).0, expected);
    // One of another build is not taken.
    let mut bytes = fs::read(&away).unwrap();
    let id = *build_id(&bytes).last().unwrap();
    let at = bytes
        .windows(20)
        .position(|part| part == build_id(&bytes))
        .unwrap();
    bytes[at + 19] = !id;
    fs::write(&shared.common, bytes).unwrap();
    assert_eq!(names(&shared, &[]), (without, reasons));
}

fn address_of(path: &Path, function: &str) -> u64 {
    use object::{Object as _, ObjectSymbol as _};
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function));
    symbol.unwrap().address()
}

fn build_id(bytes: &[u8]) -> Vec<u8> {
    use object::Object as _;
    let file = object::File::parse(bytes).unwrap();
    file.build_id().unwrap().unwrap().to_vec()
}

#[test]
fn a_supplementary_file_that_is_damaged_or_cut() {
    let shared = shared(&DWARF_5, &["-r"], false);
    let whole = fs::read(&shared.common).unwrap();
    // Past the build-id, all that the references lead to.
    for step in [7, 61, 1021] {
        let mut bytes = whole.clone();
        for at in (0x70..bytes.len()).step_by(step) {
            bytes[at] = bytes[at].wrapping_mul(31).wrapping_add(7);
        }
        fs::write(&shared.common, bytes).unwrap();
        names(&shared, &[]);
    }
    for length in [0, 64, 200, whole.len() / 2] {
        fs::write(&shared.common, &whole[..length]).unwrap();
        names(&shared, &[]);
    }
}
