//! The machine's whole file system: one program, what it needs, and the process that starts it.
//!
//! Every file stands at the path that it has here, so that paths compiled into programs hold there too.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::BufWriter,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::cpio::Archive;
use crate::{
    error::{Error, Result},
    sh,
};

/// Loaded by the C library at run time, for thread cancellation, so that no program names it.
const LOADED_LATE: &str = "libgcc_s.so.1";

/// What the machine runs.
#[derive(Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
}

/// Writes an image that boots into `init`, which runs `program`; `files` are there as well.
pub fn write(image: &Path, init: &Path, program: &Program, files: &[PathBuf]) -> Result<()> {
    let mut paths: BTreeSet<PathBuf> = files.iter().cloned().collect();
    paths.insert(program.path.clone());
    for executable in files.iter().chain([&program.path, &init.to_owned()]) {
        paths.extend(libraries(executable)?);
    }
    paths.extend(late_libraries(&paths));
    let failed = |source| Error::File {
        action: "write",
        path: image.to_owned(),
        source,
    };
    let file = File::create(image).map_err(failed)?;
    let mut archive = Archive::new(BufWriter::new(file));
    for directory in directories(&paths) {
        archive.directory(&directory).map_err(failed)?;
    }
    archive.character_device("/dev/console", 5, 1).map_err(failed)?;
    let content = fs::read(init).map_err(Error::file("read", init))?;
    archive.file("/init", 0o755, &content).map_err(failed)?;
    archive
        .file("/vm-run", 0o644, run_file(program)?.as_bytes())
        .map_err(failed)?;
    for path in &paths {
        let content = fs::read(path).map_err(Error::file("read", path))?;
        let permissions = path
            .metadata()
            .map_err(Error::file("read", path))?
            .permissions()
            .mode();
        archive
            .file(&path.to_string_lossy(), permissions, &content)
            .map_err(failed)?;
    }
    archive.finish().map_err(failed)?;
    let size = image.metadata().map_err(failed)?.len();
    println!("{}: {} files, {} MiB", image.display(), paths.len(), size >> 20);
    Ok(())
}

/// What `/init` reads: see `vm-init`.
fn run_file(program: &Program) -> Result<String> {
    let Program {
        path,
        arguments,
        environment,
    } = program;
    let variables = environment
        .iter()
        .map(|(name, value)| format!("env {name}={value}"));
    let words = [path.to_string_lossy().into_owned()]
        .into_iter()
        .chain(arguments.iter().cloned());
    let lines: Vec<String> = variables.chain(words.map(|word| format!("arg {word}"))).collect();
    match lines.iter().find(|line| line.contains('\n')) {
        Some(line) => Err(Error::told(format!(
            "`{line}` has more than one line, which the machine cannot be told"
        ))),
        None => Ok(lines.join("\n") + "\n"),
    }
}

/// All parents of the files, outermost first, and the places where file systems are mounted.
fn directories(paths: &BTreeSet<PathBuf>) -> BTreeSet<String> {
    let mounted = ["/dev", "/proc", "/sys", "/tmp", "/run"].map(Path::new);
    paths
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .chain(mounted)
        .filter(|directory| directory.parent().is_some())
        .map(|directory| directory.to_string_lossy().into_owned())
        .collect()
}

/// The shared libraries that a file needs, the loader included; none for a static executable or other data.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    // ldd fails for what is not dynamic, and says so in words: whether there is an interpreter decides.
    if !is_dynamic(path)? {
        return Ok(Vec::new());
    }
    let output = sh::read(Command::new("ldd").arg(path))?;
    parse_ldd(&output)
        .map_err(|what| Error::told(format!("{} needs {what}, which is not installed", path.display())))
}

fn is_dynamic(path: &Path) -> Result<bool> {
    use object::read::elf::FileHeader;
    let bytes = fs::read(path).map_err(Error::file("read", path))?;
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(&*bytes) else {
        return Ok(false);
    };
    let segments = header
        .endian()
        .and_then(|endian| Ok((endian, header.program_headers(endian, &*bytes)?)));
    Ok(segments.is_ok_and(|(endian, segments)| {
        use object::read::elf::ProgramHeader;
        segments
            .iter()
            .any(|segment| segment.p_type(endian) == object::elf::PT_INTERP)
    }))
}

/// Paths in ldd's output; the error is the library that was not found.
fn parse_ldd(output: &str) -> std::result::Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in output.lines() {
        // `name => /path (0x…)`, `/loader (0x…)`, or `linux-vdso.so.1 (0x…)`, which the kernel provides.
        let (name, target) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
        if target.starts_with("not found") {
            return Err(name.to_owned());
        }
        paths.extend(
            target
                .split(" (")
                .next()
                .filter(|path| path.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    Ok(paths)
}

/// Where [`LOADED_LATE`] is: beside the C library.
fn late_libraries(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    paths
        .iter()
        .filter(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))
        .map(|path| path.with_file_name(LOADED_LATE))
        .filter(|path| path.exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_is_read() {
        let output = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(output).unwrap(), expected);
        assert_eq!(parse_ldd("\tlibx.so => not found\n").unwrap_err(), "libx.so");
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let directories: Vec<_> = directories(&[PathBuf::from("/a/b/c/file")].into())
            .into_iter()
            .collect();
        assert_eq!(
            directories,
            ["/a", "/a/b", "/a/b/c", "/dev", "/proc", "/run", "/sys", "/tmp"]
        );
    }

    #[test]
    fn the_run_file_names_program_arguments_and_environment() {
        let mut program = Program {
            path: "/suite".into(),
            arguments: vec!["--ignored".to_owned()],
            environment: vec![("A".to_owned(), "b=c".to_owned())],
        };
        assert_eq!(
            run_file(&program).unwrap(),
            "env A=b=c\narg /suite\narg --ignored\n"
        );
        program.arguments.push("two\nlines".to_owned());
        assert!(run_file(&program).is_err());
    }

    #[test]
    fn our_own_program_needs_the_c_library() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            libraries.iter().any(|path| path.ends_with("libc.so.6")),
            "{libraries:?}"
        );
        assert_eq!(libraries_of_text(), Vec::<PathBuf>::new());
    }

    fn libraries_of_text() -> Vec<PathBuf> {
        libraries(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))).unwrap()
    }
}
