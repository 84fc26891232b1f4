//! The first inputs of the corpus: small files that the system's compilers make of the repository's own fixtures, what
//! is in them, and some lines of text.

mod layout;

use std::{fs, path::Path, process::Command};

use profiler_recording::{Chunk, Kind, Reader};

use crate::{
    error::{Error, Result},
    sh, workspace,
};

/// Largest input that is written, in bytes.
const BYTES_MAX: usize = 10 << 10;
/// Where the crates are whose fixtures are compiled, from the repository's root.
const CRATES: &str = "crates";
/// All is linked without a library, its text where the targets' own files have it.
const LINK: [&str; 4] = [
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-Wl,-Ttext=0xc00,-z,noseparate-code,-z,norelro,--hash-style=gnu",
];

/// Compilers, their flags, and what is compiled.
const FILES: [(&str, &str, &str); 16] = [
    ("gcc", "-O2 -g", "symbolize/tests/fixtures/inlined.c"),
    (
        "gcc",
        "-O2 -g -gdwarf-4 -ffunction-sections",
        "symbolize/tests/fixtures/inlined.c",
    ),
    ("gcc", "-O2 -g -gz=zlib", "symbolize/tests/fixtures/inlined.c"),
    ("gcc", "-O2 -g -gz=zlib-gnu", "symbolize/tests/fixtures/inlined.c"),
    ("gcc", "-O0 -s", "symbolize/tests/fixtures/inlined.c"),
    ("clang", "-O2 -g", "symbolize/tests/fixtures/inlined.c"),
    (
        "clang",
        "-O2 -gdwarf-5 -ffunction-sections",
        "symbolize/tests/fixtures/inlined.c",
    ),
    ("clang", "-O1 -gdwarf-3", "plan/tests/fixtures/shapes.c"),
    (
        "gcc",
        "-O2 -g -gsplit-dwarf",
        "symbolize/tests/fixtures/inlined.c",
    ),
    ("g++", "-O2 -g", "symbolize/tests/fixtures/templates.cc"),
    ("g++", "-O2 -s", "unwind/tests/fixtures/throws.cc"),
    ("gcc", "-O2", "plan/tests/fixtures/shapes.c"),
    ("g++", "-O2", "plan/tests/fixtures/shapes.cc"),
    (
        "gcc",
        "-O2 -fno-asynchronous-unwind-tables -g",
        "plan/tests/fixtures/shapes.c",
    ),
    ("gcc", "-O0", "unwind/tests/fixtures/stacks.c"),
    (
        "gcc",
        "-O2 -fomit-frame-pointer",
        "unwind/tests/fixtures/stacks.c",
    ),
];

/// Inputs of text, by their target.
const TEXTS: [(&str, &[u8]); 22] = [
    (
        "perf_map",
        b"\x08401000 20 fib\n401020 10 fact\x00401010 8 LazyCompile:~f /a.js:1\n\0\x00401000 40 again\n",
    ),
    (
        "perf_map",
        b"\x010x7f0000001000 0x100 py::f:/a.py\n7f0000001080 10 in\n1 1 a\n2 1 b\n3 1 c\n4 1 d\n5 1 e\n",
    ),
    (
        "perf_map",
        b"\x0fffffffffffffff00 ff end\nffffffffffffffff 1 beyond\n0 ffffffffffffffff all\n",
    ),
    (
        "maps",
        b"7f00-7f10 r-xp 00001000 fd:01 42                         /tmp/a b\\012c (deleted)",
    ),
    (
        "maps",
        b"1000-2000 rw-p 00000000 00:00 0 \n7ffd0000-7ffe0000 r-xp 00000000 00:00 0    [vdso]\n",
    ),
    (
        "maps",
        b"400000-401000 r-xp 00000000 08:01 7 /bin/a\n401000-402000 r-xp 00001000 08:01 7 /bin/a\n",
    ),
    ("scope", b"handle_request[>= p95]"),
    ("scope", b"\"ns::Type<int>::method\"[> 2ms][< 1s]"),
    ("scope", b"parse_*[< p50]"),
    ("scope", b"ns::f[>= 1.5us][<= p99.9]"),
    ("scope", b"\"a\\\"b\\\\\""),
    ("name", b"_ZN2ns4Type6methodEv"),
    ("name", b"_ZNSt8functionIFviEEclEi.part.0"),
    ("name", b"_ZZ4mainENKUliE_clEi.cold"),
    ("name", b"_ZN4core3ptr13drop_in_place17h0123456789abcdefE"),
    ("name", b"_RNvMs_NtC3foo3barINtB2_3BazlE4quux"),
    ("name", b"_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE"),
    ("name", b"_ZN2ns3addIiEET_S1_S1_.constprop.0.isra.1@@VERSION_1"),
    ("name", b"_ZN12_GLOBAL__N_13fooEPFvRKSsOiz"),
    ("name", b"_ZTv0_n24_N4BaseD1Ev"),
    ("name", b"_Z1fIJidEEvDpT_"),
    ("name", b"_ZngILi42EEvN1AIXplT_Li2EEE1TE"),
];

/// An unwind table as it is kept on disk, behind what is compared: two pages, rules to begin a function with and for none.
const KEPT_TABLE: [&[u8]; 7] = [
    // Its base, four counts, and how many pages, rows and rules there are.
    &0x1_0000_u64.to_le_bytes(),
    b"\x02\0\0\0\0\0\0\0\x04\0\0\0\x01\0\0\0",
    b"\x02\0\0\0\x04\0\0\0\x04\0\0\0",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x02\x07\x01\0\x08\0\0\0\0\0\0\0\0\0\xf8\xff\x02\x06\x01\x01\x10\0\0\0\xf0\xff\xff\xff\0\0\xf8\xff",
    // Where the pages' rows begin, and the rows.
    b"\0\0\0\0\x03\0\0\0\x04\0\0\0",
    b"\0\0\x02\0\x04\0\x03\0\x30\0\x01\0\0\0\0\0",
];

/// Two chunks of a recording, their payloads Zstandard frames of one block: one as it is, and one of 64 equal bytes.
const CHUNKS: [&[u8]; 4] = [
    b"\x01\0\x0c\0",
    b"\x28\xb5\x2f\xfd\x20\x03\x19\0\0abc",
    b"\x02\x01\x0a\0",
    b"\x28\xb5\x2f\xfd\x20\x40\x03\x02\0z",
];

/// A recording whose chunks are inputs: samples and calls of three minutes, with their summaries.
const RECORDING: &str = "profiler-daemon/src/recording/tests/released/0.1.0.profrec";

/// Adds them to a corpus.
pub fn write(corpus: &Path) -> Result<()> {
    let work = workspace::target().join("fuzz/seeds");
    fs::create_dir_all(&work).map_err(Error::file("create", &work))?;
    for (number, (compiler, flags, source)) in FILES.iter().enumerate() {
        let name = format!("seed-{number:02}");
        let output = work.join(&name);
        let mut command = Command::new(compiler);
        command.current_dir(&work).args(flags.split(' ')).args(LINK);
        // The same wherever they are made.
        command
            .arg(format!(
                "-ffile-prefix-map={}/=/src/",
                workspace::root().display()
            ))
            .arg(format!("-ffile-prefix-map={}=/build", work.display()));
        command
            .args(["-o", &name])
            .arg(workspace::root().join(CRATES).join(source));
        sh::run(&mut command)?;
        if number == 0 {
            stripped(corpus, &output)?;
        }
        let bytes = fs::read(&output).map_err(Error::file("read", &output))?;
        add(corpus, "elf", &name, &bytes)?;
        let parts = layout::parts(&bytes).map_err(|error| Error::told(format!("{name}: {error}")))?;
        for (target, input) in parts {
            add(corpus, target, &name, &input)?;
        }
    }
    add(corpus, "kept", "seed-table", &KEPT_TABLE.concat())?;
    add(corpus, "recording", "seed-chunks", &CHUNKS.concat())?;
    for (number, input) in recorded()?.iter().enumerate() {
        add(corpus, "recorded", &format!("seed-{number:02}"), input)?;
    }
    for (number, (target, text)) in TEXTS.iter().enumerate() {
        add(corpus, target, &format!("seed-{number:02}"), text)?;
    }
    Ok(())
}

/// Chunks of [`RECORDING`], each with its kind, flags and length before it: the first ones, and each summary of its first minute
/// with the records that begin where it does.
fn recorded() -> Result<Vec<Vec<u8>>> {
    let path = workspace::root().join(RECORDING);
    let told = |error: &dyn std::fmt::Display| Error::told(format!("{}: {error}", path.display()));
    let file = fs::File::open(&path).map_err(Error::file("open", &path))?;
    let mut reader = Reader::open(file).map_err(|error| told(&error))?;
    let chunks: Vec<Chunk> = reader.chunks().copied().collect();
    let mut first = Vec::new();
    let mut summaries = Vec::new();
    let mut records: Option<(Chunk, Vec<u8>)> = None;
    for (number, chunk) in chunks.iter().enumerate() {
        let content = reader.read(number).map_err(|error| told(&error))?;
        let kind = match chunk.kind {
            Kind::Records => 2,
            Kind::Samples => 3,
            Kind::Calls => 4,
            Kind::About | Kind::Other(_) => continue,
        };
        let mut part = vec![kind, u8::from(chunk.begins_anew)];
        let length = u16::try_from(content.len()).map_err(|error| told(&error))?;
        part.extend(length.to_le_bytes());
        part.extend(content);
        if chunk.kind == Kind::Records {
            if summaries.is_empty() {
                first.extend_from_slice(&part);
            }
            if chunk.begins_anew && chunk.from_ns < chunk.to_ns && records.is_none() {
                records = Some((*chunk, part));
            }
        } else if let Some((of, records)) = &records
            && of.from_ns == chunk.from_ns
        {
            summaries.push([records.as_slice(), &part].concat());
        }
    }
    Ok([vec![first], summaries].concat())
}

fn add(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
    if bytes.len() > BYTES_MAX {
        println!("left out: {target}/{name}, {} bytes", bytes.len());
        return Ok(());
    }
    let folder = corpus.join(target);
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(Error::file("write", path))
}

/// A file stripped: with a note that says where the rest is, and with packed symbols.
fn stripped(corpus: &Path, path: &Path) -> Result<()> {
    let beside = |extension: &str| path.with_extension(extension);
    let (debug, stripped) = (beside("debug"), beside("stripped"));
    sh::run(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([path, &debug]),
    )?;
    sh::run(Command::new("strip").arg("-g").arg(&debug))?;
    sh::run(Command::new("xz").args(["--force", "--keep"]).arg(&debug))?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let packed = format!("--add-section=.gnu_debugdata={}.xz", debug.display());
    for (name, option) in [("seed-linked", link), ("seed-packed", packed)] {
        let mut command = Command::new("objcopy");
        sh::run(command.args(["--strip-all", &option]).args([path, &stripped]))?;
        let bytes = fs::read(&stripped).map_err(Error::file("read", &stripped))?;
        add(corpus, "elf", name, &bytes)?;
    }
    Ok(())
}
