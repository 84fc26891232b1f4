//! Where names come from that the mapped file itself does not have.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use profiler_debug_files::{Reader, SideLoaded};
use profiler_symbolize::{Reason, Symbolizer};
use profiler_testkit::{has_program, skipped};

use super::support::{Built, Running, build, compare_split, ids, resolve, run};

/// What is looked up in `inlined.c`.
const WORDS: [&str; 4] = ["outer", "hidden", "plain", "main"];

/// A program whose debug information is in a file of its own.
struct Split {
    built: Built,
    whole: PathBuf,
    debug: PathBuf,
}

/// Builds a fixture and puts its debug information into `debug`, a path beside it.
fn split(flags: &[&str], debug: &str, keep: &[&str]) -> Split {
    let built = build("gcc", &[&["-O2", "-g"], flags].concat(), "inlined.c");
    let whole = built.folder.path().join("whole");
    fs::copy(&built.path, &whole).unwrap();
    let debug = built.folder.path().join(debug);
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args(keep)
        .args([&whole, &debug]));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(&built.path));
    Split { built, whole, debug }
}

impl Split {
    fn compare(&self) {
        assert!(compare_split(&self.built.path, &self.whole, &WORDS) > 20);
    }

    /// The innermost function's name at the beginning of `hidden`, which is in no dynamic table.
    fn hidden(&self) -> String {
        hidden(&self.built.path, &self.whole)
    }
}

fn hidden(path: &Path, whole: &Path) -> String {
    let running = Running::start(path);
    let address = running
        .module(path)
        .addresses_of(offset_of(whole, "hidden"))
        .next()
        .unwrap();
    let frames = resolve(&mut Symbolizer::new(), running.pid(), address);
    frames.last().unwrap().function.to_string()
}

/// Where a function is in a file.
fn offset_of(path: &Path, function: &str) -> u64 {
    use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let address = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap()
        .address();
    let segment = file
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&address))
        .unwrap();
    address - segment.address() + segment.file_range().0
}

#[test]
fn debug_file_beside_the_program() {
    for (debug, keep) in [
        ("fixture.debug", &[][..]),
        (".debug/fixture.debug", &[]),
        ("fixture.debug", &["--compress-debug-sections=zlib"]),
        ("fixture.debug", &["--compress-debug-sections=zstd"]),
        ("fixture.debug", &["--compress-debug-sections=zlib-gnu"]),
    ] {
        split(&[], debug, keep).compare();
    }
}

#[test]
fn checksum_where_there_is_no_build_id() {
    let split = split(&["-Wl,--build-id=none"], "fixture.debug", &[]);
    split.compare();
    let mut bytes = fs::read(&split.debug).unwrap();
    bytes.push(0);
    fs::write(&split.debug, bytes).unwrap();
    assert!(split.hidden().ends_with("(no symbols)"), "{}", split.hidden());
}

#[test]
fn debug_file_of_another_build() {
    let built = split(&[], "fixture.debug", &[]);
    assert_eq!(built.hidden(), "hidden");
    let other = split(&["-DOTHER", "-O1"], "fixture.debug", &[]);
    fs::copy(&other.debug, &built.debug).unwrap();
    assert!(built.hidden().ends_with("(no symbols)"), "{}", built.hidden());
}

/// The build-id, in hexadecimal.
fn build_id(path: &Path) -> String {
    use object::Object as _;
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let digits: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn debug_file_in_the_root_of_the_target() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can change a root");
    }
    let Split { built, whole, debug } = split(&["-static"], "fixture.debug", &[]);
    let id = build_id(&whole);
    let root = built.folder.path();
    let folder = root.join("usr/lib/debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&folder).unwrap();
    fs::rename(&debug, folder.join(format!("{}.debug", &id[2..]))).unwrap();
    let child = Command::new("chroot")
        .arg(root)
        .arg("/fixture")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let running = Running(child.unwrap());
    // In a root of its own, but not in a mount namespace, the path is seen from ours.
    let module = running.module(&built.path);
    let address = module.addresses_of(offset_of(&whole, "hidden")).next().unwrap();
    let frames = resolve(&mut Symbolizer::new(), running.pid(), address);
    let outermost = frames.last().unwrap();
    assert_eq!(&*outermost.function, "hidden");
    assert!(outermost.file.ends_with("inlined.c"), "{}", outermost.file);
}

#[test]
fn packed_symbols_within_a_stripped_program() {
    let built = build("gcc", &["-O2"], "inlined.c");
    let folder = built.folder.path();
    let (whole, symbols) = (folder.join("whole"), folder.join("symbols"));
    fs::copy(&built.path, &whole).unwrap();
    run(Command::new("objcopy")
        .args(["--only-keep-debug", "--remove-section=.comment"])
        .args([&whole, &symbols]));
    run(Command::new("strip").arg(&built.path));
    assert!(hidden(&built.path, &whole).ends_with("(no symbols)"));
    run(Command::new("xz").arg(&symbols));
    run(Command::new("objcopy")
        .arg(format!("--add-section=.gnu_debugdata={}.xz", symbols.display()))
        .arg(&built.path));
    assert_eq!(hidden(&built.path, &whole), "hidden");
}

#[test]
fn shortened_debug_file_is_let_go() {
    let split = split(&[], "fixture.debug", &[]);
    let running = Running::start(&split.built.path);
    let module = running.module(&split.built.path);
    let address = module
        .addresses_of(offset_of(&split.whole, "hidden"))
        .next()
        .unwrap();
    let mut symbolizer = Symbolizer::new();
    let name = |symbolizer: &mut Symbolizer, address| {
        let id = *ids(symbolizer, running.pid(), address).last().unwrap();
        symbolizer.frames()[id.0 as usize].function.to_string()
    };
    assert_eq!(name(&mut symbolizer, address), "hidden");
    let file = fs::File::options().write(true).open(&split.debug).unwrap();
    file.set_len(64).unwrap();
    assert!(name(&mut symbolizer, address + 4).ends_with("(no symbols)"));
}

#[test]
fn side_loaded_files_come_first() {
    let split = split(&[], "elsewhere/renamed", &[]);
    assert!(split.hidden().ends_with("(no symbols)"), "{}", split.hidden());
    let running = Running::start(&split.built.path);
    let module = running.module(&split.built.path);
    let offset = offset_of(&split.whole, "hidden");
    let address = module.addresses_of(offset).next().unwrap();
    let mut symbolizer = Symbolizer::new();
    for path in [&split.debug, split.debug.parent().unwrap()] {
        let unresolved = resolve(&mut symbolizer, running.pid(), address).remove(0);
        assert_eq!(unresolved.unresolved, Some(Reason::NoSymbols));
        symbolizer.side_load(SideLoaded::scan(&[path.to_path_buf()], &Reader::OWN).unwrap());
        let frames = resolve(&mut symbolizer, running.pid(), address);
        assert_eq!((&*frames[0].function, frames[0].unresolved), ("hidden", None));
        assert!(frames[0].file.ends_with("inlined.c"));
        symbolizer = Symbolizer::new();
    }
}

#[test]
fn debug_information_beside_the_objects() {
    for (compiler, version) in [
        ("gcc", "-gdwarf-4"),
        ("gcc", "-gdwarf-5"),
        ("clang-14", "-gdwarf-4"),
        ("clang-14", "-gdwarf-5"),
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/inlined.c");
        let folder = tempfile::tempdir().unwrap();
        let (object, program) = (folder.path().join("inlined.o"), folder.path().join("fixture"));
        run(Command::new(compiler)
            .current_dir(folder.path())
            .args(["-O2", "-gsplit-dwarf", version, "-fPIE", "-c", "-o"])
            .args([&object, &source]));
        run(Command::new(compiler)
            .args(["-pie", "-o"])
            .args([&program, &object]));
        assert!(folder.path().join("inlined.dwo").exists());
        let whole = build(compiler, &["-O2", "-g", "-fPIE", "-pie", version], "inlined.c");
        let differences = || differences(&program, &whole.path);
        assert_eq!(differences(), (0, 0));
        // Packed into one file, and then gone.
        // On what gcc 12 writes of DWARF 5, llvm-dwp 22 does not come to an end, and GNU's dwp 2.40 crashes.
        let packable = (compiler, version) != ("gcc", "-gdwarf-5");
        if packable && has_program("llvm-dwp-22") {
            run(Command::new("llvm-dwp-22")
                .arg("-e")
                .arg(&program)
                .arg("-o")
                .arg(folder.path().join("fixture.dwp")));
            fs::rename(folder.path().join("inlined.dwo"), folder.path().join("away")).unwrap();
            assert_eq!(differences(), (0, 0), "packed, {compiler} {version}");
            fs::remove_file(folder.path().join("fixture.dwp")).unwrap();
            assert!(differences().0 > 20);
        }
    }
}

/// How many addresses of `outer` have other names, and other places, in one program than in another.
fn differences(path: &Path, whole: &Path) -> (usize, usize) {
    let frames = |path: &Path| -> Vec<_> {
        let running = Running::start(path);
        let address = running
            .module(path)
            .addresses_of(offset_of(path, "outer"))
            .next()
            .unwrap();
        let mut symbolizer = Symbolizer::new();
        (0..60)
            .map(|inside| resolve(&mut symbolizer, running.pid(), address + inside))
            .collect()
    };
    let (mut names, mut places) = (0, 0);
    for (a, b) in frames(path).iter().zip(&frames(whole)) {
        let name = |frames: &[profiler_symbolize::Frame]| -> Vec<_> {
            frames
                .iter()
                .map(|frame| (frame.function.clone(), frame.inlined))
                .collect()
        };
        let place = |frames: &[profiler_symbolize::Frame]| -> Vec<_> {
            frames
                .iter()
                .map(|frame| (frame.file.clone(), frame.line))
                .collect()
        };
        names += usize::from(name(a) != name(b));
        places += usize::from(place(a) != place(b));
    }
    (names, places)
}
