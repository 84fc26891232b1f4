//! Fixtures, programs that run, and what GNU addr2line says of them.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use profiler_symbolize::{Frame, FrameId, Symbolizer};
use profiler_target::{Module, executable_mappings, modules};
use tempfile::TempDir;

/// A fixture, built into a folder of its own.
pub struct Built {
    pub folder: TempDir,
    pub path: PathBuf,
}

pub fn build(compiler: &str, flags: &[&str], source: &str) -> Built {
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
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Built { folder, path }
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A running fixture; it ends when it is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts a program that reads its input.
    pub fn start(path: &Path) -> Self {
        Self(
            Command::new(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The file as it is mapped. `spawn` returns while the kernel is still putting the code in place.
    pub fn module(&self, path: &Path) -> Module {
        loop {
            let modules = modules(&executable_mappings(self.pid()).unwrap());
            if let Some(module) = modules.into_iter().find(|module| module.path == path) {
                return module;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

pub fn resolve(symbolizer: &mut Symbolizer, pid: u32, address: u64) -> Vec<Frame> {
    ids(symbolizer, pid, address)
        .iter()
        .map(|id| symbolizer.frames()[id.0 as usize].clone())
        .collect()
}

pub fn ids(symbolizer: &mut Symbolizer, pid: u32, address: u64) -> Vec<FrameId> {
    let mut out = Vec::new();
    symbolizer.resolve_user(pid, address, 0, &mut out);
    out
}

/// The functions, innermost first, that addr2line gives for addresses of a file.
pub fn truth(path: &Path, addresses: &[u64]) -> Vec<Vec<String>> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-f", "-i", "-e"])
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
    let mut answers: Vec<Vec<String>> = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
        } else {
            answers.last_mut().unwrap().push(line);
            lines.next().unwrap();
        }
    }
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    answers
}

/// What a mangled name is called: by `c++filt` without parameters, or by Rust's own demangler.
pub fn plain(mangled: &str) -> String {
    match rustc_demangle::try_demangle(mangled) {
        Ok(rust) => format!("{rust:#}"),
        Err(_) => run(Command::new("c++filt").args(["-p", mangled]))
            .trim_end()
            .to_owned(),
    }
}

/// Compares every byte of the functions whose names hold one of the words. Returns how many were inlined.
pub fn compare(path: &Path, words: &[&str]) -> usize {
    compare_split(path, path, words)
}

/// The same for a file that was split: `path` runs, and `whole` is what it was.
pub fn compare_split(path: &Path, whole: &Path, words: &[&str]) -> usize {
    let bytes = std::fs::read(whole).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut addresses: Vec<u64> = file
        .symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter(|symbol| words.iter().any(|word| symbol.name().unwrap().contains(word)))
        .flat_map(|symbol| symbol.address()..symbol.address() + symbol.size())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() > 50, "{} bytes of code", addresses.len());
    let running = Running::start(path);
    let module = running.module(path);
    let mut symbolizer = Symbolizer::new();
    let mut inlined = 0;
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (address, expected) in addresses.iter().zip(truth(whole, &addresses)) {
        let segment = file
            .segments()
            .find(|segment| (segment.address()..segment.address() + segment.size()).contains(address))
            .unwrap();
        let offset = address - segment.address() + segment.file_range().0;
        let live = module.addresses_of(offset).next().unwrap();
        let frames = resolve(&mut symbolizer, running.pid(), live);
        let functions: Vec<&str> = frames.iter().map(|frame| &*frame.function).collect();
        let expected: Vec<String> = expected
            .into_iter()
            .map(|name| names.entry(name.clone()).or_insert_with(|| plain(&name)).clone())
            .collect();
        assert_eq!(functions, expected, "at {address:#x}");
        assert!(
            frames
                .iter()
                .all(|frame| &*frame.module == "fixture" && !frame.kernel)
        );
        assert!(
            frames
                .iter()
                .all(|frame| frame.line > 0 && frame.file.starts_with('/')),
            "{frames:?}"
        );
        let (outermost, inner) = frames.split_last().unwrap();
        assert!(!outermost.inlined && inner.iter().all(|frame| frame.inlined));
        inlined += usize::from(!inner.is_empty());
    }
    inlined
}
