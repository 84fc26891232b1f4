//! A stand-in for rustc that keeps the place of the checkout out of the object's symbol names.
//!
//! Cargo hashes the absolute path of a path dependency outside the workspace root (`profiler-common`, seen
//! from the eBPF crate) into `-C metadata`, and rustc hashes that into every symbol: the same sources would
//! give other bytes in another directory. Registry crates are not concerned.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::error::{Error, Result};

/// The environment variable that turns xtask into the stand-in; cargo runs it as `RUSTC_WRAPPER`.
pub const VARIABLE: &str = "XTASK_AS_RUSTC_WRAPPER";

/// The crates whose sources are in this repository.
const OWN_CRATES: [&str; 2] = ["profiler_ebpf", "profiler_common"];

/// Puts a copy of this program into a directory and returns its path.
///
/// Our own path will not do: a nested cargo may have replaced the file by now.
pub fn install(directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let path = directory.join("rustc-wrapper");
    // A running copy cannot be written to, but it can be replaced.
    let new = directory.join(format!("rustc-wrapper.{}", std::process::id()));
    fs::copy("/proc/self/exe", &new).map_err(Error::file("write", &new))?;
    fs::rename(&new, &path).map_err(Error::file("replace", &path))?;
    Ok(path)
}

/// Becomes rustc when cargo called us in its place; returns at once when not.
pub fn become_rustc_if_asked() -> Result<()> {
    if env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    let mut arguments = env::args_os().skip(1);
    let rustc = arguments
        .next()
        .ok_or_else(|| Error::told(format!("{VARIABLE} is set, but no compiler is named")))?;
    let source = Command::new(&rustc)
        .args(with_fixed_metadata(arguments.collect()))
        .exec();
    Err(Error::Start {
        command: rustc.to_string_lossy().into_owned(),
        directory: ".".into(),
        source,
    })
}

fn with_fixed_metadata(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments
        .iter()
        .skip_while(|argument| *argument != "--crate-name")
        .nth(1)
        .cloned();
    let Some(name) = name.filter(|name| OWN_CRATES.iter().any(|own| OsStr::new(own) == name)) else {
        return arguments;
    };
    for argument in &mut arguments {
        if argument.to_string_lossy().starts_with("metadata=") {
            *argument = OsString::from("metadata=");
            argument.push(&name);
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn fixed(line: &str) -> String {
        let arguments = with_fixed_metadata(line.split(' ').map(OsString::from).collect());
        arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_copy_can_be_replaced_and_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = install(directory.path()).unwrap();
        assert_eq!(install(directory.path()).unwrap(), path);
        let output = loop {
            match Command::new(&path).arg("--list").output() {
                // A child of another test had the copy open for writing as it began, until it is its own program.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                other => break other.unwrap(),
            }
        };
        assert!(output.status.success());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_own_crates_are_touched() {
        assert_eq!(
            fixed("--crate-name profiler_common -C metadata=12ab -C extra-filename=-12ab"),
            "--crate-name profiler_common -C metadata=profiler_common -C extra-filename=-12ab"
        );
        let other = "--crate-name aya_ebpf -C metadata=12ab";
        assert_eq!(fixed(other), other);
        assert_eq!(fixed("-vV"), "-vV");
    }
}
