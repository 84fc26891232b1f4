//! Addresses of live processes against what GNU addr2line says of their files.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod agreement;
mod files;
mod supplement;
mod support;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use profiler_symbolize::Symbolizer;
use profiler_target::{Module, executable_mappings, modules};

use support::{Running, build, compare, ids, resolve, run};

#[test]
fn inlined_c_functions() {
    for flags in [
        &["-O2", "-g"][..],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-g", "-gz=zlib"],
        &["-O2", "-g", "-no-pie"],
    ] {
        let fixture = build("gcc", flags, "inlined.c");
        assert!(compare(&fixture.path, &["outer", "hidden", "plain", "main"]) > 20);
        let found = declared(&fixture.path, "outer");
        assert!(found.0.ends_with("tests/fixtures/inlined.c"), "{}", found.0);
        assert_eq!(found.1, 22);
    }
    let fixture = build("gcc", &["-O2", "-g"], "inlined.c");
    run(Command::new("objcopy")
        .arg("--compress-debug-sections=zstd")
        .arg(&fixture.path));
    assert!(compare(&fixture.path, &["outer", "hidden", "plain", "main"]) > 20);
}

/// Where in the file a function begins.
fn file_offset_of(path: &Path, function: &str) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap();
    let segment = file
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&symbol.address()));
    let segment = segment.unwrap();
    symbol.address() - segment.address() + segment.file_range().0
}

#[test]
fn functions_of_processes_that_were_looked_at_together_have_names_once_these_have_ended() {
    let fixture = build("gcc", &["-O2", "-g"], "inlined.c");
    let offset = file_offset_of(&fixture.path, "outer");
    let mut symbolizer = Symbolizer::new();
    let running = [(); 3].map(|()| Running::start(&fixture.path));
    let places = running.each_ref().map(|one| {
        let module = one.module(&fixture.path);
        (one.pid(), module.addresses_of(offset).next().unwrap())
    });
    symbolizer.meet_all(&places.map(|(pid, _)| pid), 0);
    drop(running);
    for (pid, address) in places {
        let frames = resolve(&mut symbolizer, pid, address);
        assert_eq!(&*frames.last().unwrap().function, "outer");
    }
}

/// Where a function is declared.
fn declared(path: &Path, function: &str) -> (String, u32) {
    let offset = file_offset_of(path, function);
    let running = Running::start(path);
    let live = running.module(path).addresses_of(offset).next().unwrap();
    let frames = resolve(&mut Symbolizer::new(), running.pid(), live);
    let frame = frames.last().unwrap();
    (frame.file.to_string(), frame.line)
}

#[test]
fn cpp_templates() {
    let fixture = build("g++", &["-O2", "-g"], "templates.cc");
    assert!(compare(&fixture.path, &["shapes", "hidden", "twice"]) > 10);
}

#[test]
fn rust_generics() {
    let fixture = build("rustc", &["-O", "-g", "--crate-name=generics"], "generics.rs");
    assert!(compare(&fixture.path, &["8generics", "generics.."]) > 50);
}

/// What the fixture `threads` printed: names and addresses.
fn printed(running: &mut Running) -> BTreeMap<String, Vec<u64>> {
    let lines = BufReader::new(running.0.stdout.as_mut().unwrap())
        .lines()
        .map(Result::unwrap);
    lines
        .take_while(|line| line != "end")
        .map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            let name = words.next().unwrap();
            (
                name,
                words
                    .map(|word| u64::from_str_radix(&word[2..], 16).unwrap())
                    .collect(),
            )
        })
        .collect()
}

#[test]
fn stripped_program_and_what_is_no_file() {
    let fixture = build("gcc", &["-O2", "-g", "-pthread", "-rdynamic"], "threads.c");
    run(Command::new("strip").arg(&fixture.path));
    let mut running = Running::start(&fixture.path);
    let printed = printed(&mut running);
    let pid = running.pid();
    let mut symbolizer = Symbolizer::new();
    let name =
        |symbolizer: &mut Symbolizer, address| resolve(symbolizer, pid, address)[0].function.to_string();

    assert_eq!(
        name(&mut symbolizer, printed["exported"][0]),
        "exported",
        "a dynamic symbol"
    );
    let anonymous = printed["anonymous"][0];
    assert_eq!(name(&mut symbolizer, anonymous + 0x20), "[anon] (no file)");
    assert_eq!(
        name(&mut symbolizer, printed["vdso"][0]),
        "[vdso]+0x10 (no symbols)"
    );
    // It has another name at the same address.
    let clock = name(&mut symbolizer, printed["clock"][0]);
    assert!(
        ["__vdso_clock_gettime", "clock_gettime"].contains(&&*clock),
        "{clock}"
    );
    assert_eq!(name(&mut symbolizer, 0x7fff_ffff_e000), "[uprobes]");
    assert_eq!(name(&mut symbolizer, 0x10), "[unknown]");

    // Code without symbols is called after where its function begins: one name for all of it.
    let file = fixture.path.file_name().unwrap().to_str().unwrap().to_owned();
    let unnamed: Vec<u64> = printed["main"]
        .iter()
        .map(|address| address - 1)
        .filter(|&address| name(&mut symbolizer, address).starts_with(&format!("{file}+0x")))
        .collect();
    assert!(!unnamed.is_empty());
    for address in unnamed {
        let here = name(&mut symbolizer, address);
        assert!(here.ends_with(" (no symbols)"), "{here}");
        assert_eq!(name(&mut symbolizer, address - 1), here);
    }

    // Both stacks end at a root and nowhere before, though neither libc nor the program has symbols for all.
    for stack in ["main", "thread"] {
        let stack = &printed[stack];
        let roots: Vec<bool> = stack
            .iter()
            .map(|&address| {
                let ids = ids(&mut symbolizer, pid, address - 1);
                symbolizer.is_root(*ids.last().unwrap())
            })
            .collect();
        let (last, before) = roots.split_last().unwrap();
        assert!(*last && before.iter().all(|root| !root), "{roots:?}");
    }
}

#[test]
fn equal_functions_are_equal_frames() {
    let fixture = build("gcc", &["-O2", "-g"], "inlined.c");
    let (first, second) = (Running::start(&fixture.path), Running::start(&fixture.path));
    let mut symbolizer = Symbolizer::new();
    let mut at = |running: &Running, inside| {
        let bytes = std::fs::read(&fixture.path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let hidden = file
            .symbols()
            .find(|symbol| symbol.name() == Ok("hidden"))
            .unwrap()
            .address();
        let live = running.module(&fixture.path).addresses_of(hidden).next().unwrap();
        ids(&mut symbolizer, running.pid(), live + inside)
    };
    assert_eq!(at(&first, 0), at(&first, 8));
    assert_eq!(at(&first, 0), at(&second, 3));
}

#[test]
fn exec_is_seen_after_forget() {
    let mut child = Command::new("bash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut symbolizer = Symbolizer::new();
    let mut ask = |command: &str| {
        writeln!(child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
    };
    ask("echo");
    let start = executable_mappings(pid).unwrap()[0].start;
    assert_eq!(&*resolve(&mut symbolizer, pid, start)[0].module, "bash");
    ask("exec cat\n");
    symbolizer.forget(pid);
    let start = executable_mappings(pid).unwrap()[0].start;
    assert_eq!(&*resolve(&mut symbolizer, pid, start)[0].module, "cat");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn kernel_functions() {
    let mut symbolizer = Symbolizer::new();
    let mut out = Vec::new();
    symbolizer.resolve_kernel(0xffff_ffff_ffff_f000, &mut out);
    let frame = &symbolizer.frames()[out[0].0 as usize];
    assert_eq!((&*frame.function, frame.kernel), ("[kernel]", true));
}

/// Not a check: `cargo test --release -- --ignored --nocapture` prints how long lookups take in a file of
/// more than 100 MB.
#[test]
#[ignore = "prints timings"]
fn timings() {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]));
    let library = std::fs::read_dir(Path::new(sysroot.trim()).join("lib"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("librustc_driver")
        })
        .unwrap();
    // `rustc -` reads its input and has the library mapped meanwhile.
    let rustc = Path::new(sysroot.trim()).join("bin/rustc");
    let mut child = Command::new(rustc)
        .args(["-", "--emit=metadata", "-o", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let module = loop {
        let modules = modules(&executable_mappings(child.id()).unwrap());
        if let Some(module) = modules.into_iter().find(|module| module.path == library) {
            break module;
        }
        std::thread::yield_now();
    };
    time_lookups(child.id(), &module);
    child.kill().unwrap();
    child.wait().unwrap();
    // This program itself: it has debug information.
    let own = modules(&executable_mappings(std::process::id()).unwrap());
    let executable = std::env::current_exe().unwrap();
    time_lookups(
        std::process::id(),
        own.iter().find(|module| module.path == executable).unwrap(),
    );
}

fn time_lookups(pid: u32, module: &Module) {
    let (start, end) = (module.mappings[0].start, module.mappings[0].end);
    let mut symbolizer = Symbolizer::new();
    let mut time = |address| {
        let begin = Instant::now();
        let found = ids(&mut symbolizer, pid, address);
        (begin.elapsed(), found)
    };
    println!(
        "{}: {} bytes",
        module.path.display(),
        std::fs::metadata(&module.path).unwrap().len()
    );
    println!("first: {:?}", time(start + (end - start) / 2).0);
    let count = 1000;
    let addresses =
        || (1..=count).map(|index| start + u64::from(index) * ((end - start) / u64::from(count + 1)));
    for what in ["other addresses", "again"] {
        let total: std::time::Duration = addresses().map(|address| time(address).0).sum();
        println!("{what}: {:?} each", total / count);
    }
    let frames = addresses().map(|address| resolve(&mut symbolizer, pid, address));
    let named = frames
        .filter(|frames| !frames[0].function.contains("+0x"))
        .count();
    println!("named: {named} of {count}");
}
