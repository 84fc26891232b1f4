//! Which QEMU runs the machines.
//!
//! Each CPU of a machine is a thread. QEMU before 8.1 reads the instructions that it translates before it locks their page:
//! what another CPU writes there meanwhile passes it by, and the CPU goes on with code that is gone, or with half of an
//! instruction. The kernel rewrites its own code wherever a probe comes or goes, and the slots that single-stepped
//! instructions run in are written again and again. Under 7.2, seven kprobes switched on and off while three threads call
//! their functions bring 6.1 and 7.2 down within seconds, by a jump to address 0; under 10.0 both go on for minutes.
//!
//! What is left of it under 10.0: where the tracepoints of system calls and of the scheduler are switched on and off by tracefs
//! without a pause, beside three threads that call lseek, and with none of our programs loaded, 6.12 comes upon a breakpoint
//! of its own that it has taken away again (`int3` in `syscall_exit_to_user_mode_prepare`) after three minutes. A machine
//! that this happens to is booted again, and the report says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::apt::Lists;
use crate::{
    error::{Error, Result},
    sh, workspace,
};

/// The first version whose CPUs hardly ever run code that another CPU has written over.
const FIRST: Version = Version { major: 8, minor: 1 };

const PROGRAM: &str = "qemu-system-x86_64";

/// What makes up QEMU in a Debian suite, unpacked without what it links with: the installed package has brought that.
const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-data", "seabios"];

/// Where the packages put the firmware.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

/// A QEMU that can be trusted with several CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emulator {
    program: PathBuf,
    /// Where its firmware is, if not where it looks for it by itself.
    firmware: Vec<PathBuf>,
}

impl Emulator {
    /// The installed one; where that is too old, the one of this Debian release's backports, unpacked beside the kernels.
    pub fn find(directory: &Path) -> Result<Self> {
        let installed = Self {
            program: PathBuf::from(PROGRAM),
            firmware: Vec::new(),
        };
        let version = installed.version()?;
        if version >= FIRST {
            return Ok(installed);
        }
        let unpacked = directory.join("qemu");
        if !unpacked.exists() {
            fetch(version, directory, &unpacked)?;
        }
        let fetched = Self {
            program: unpacked.join("usr/bin").join(PROGRAM),
            firmware: FIRMWARE.map(|place| unpacked.join(place)).into(),
        };
        match fetched.version()? {
            version if version >= FIRST => Ok(fetched),
            version => Err(too_old(version, "that of the backports is no newer")),
        }
    }

    /// Its command line, to be continued.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for place in &self.firmware {
            command.arg("-L").arg(place);
        }
        command
    }

    fn version(&self) -> Result<Version> {
        let said = sh::read(Command::new(&self.program).arg("--version"))?;
        version_in(&said).ok_or_else(|| {
            Error::told(format!(
                "{} --version says no version: {said}",
                self.program.display()
            ))
        })
    }
}

/// Unpacks the packages of the backports.
fn fetch(installed: Version, directory: &Path, unpacked: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").map_err(Error::file("read", "/etc/os-release"))?;
    let codename = codename_in(&release).ok_or_else(|| {
        too_old(
            installed,
            "/etc/os-release names no Debian release to look for another",
        )
    })?;
    let suite = format!("{codename}-backports");
    let lists = Lists::of_suite(&suite, &directory.join("apt"))?;
    // What is half unpacked must not be taken for the whole: it gets its name at the end.
    let partial = workspace::target().join("vm/qemu-partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::file("remove", &partial))?;
    }
    for package in PACKAGES {
        lists.unpack(&format!("{package}/{suite}"), &partial)?;
    }
    fs::rename(&partial, unpacked).map_err(Error::file("create", unpacked))
}

fn too_old(version: Version, why: &str) -> Error {
    let Version { major, minor } = version;
    Error::told(format!(
        "{PROGRAM} {major}.{minor} runs code that other CPUs have written over, and {why}: install {}.{} or newer",
        FIRST.major, FIRST.minor
    ))
}

/// Reads `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)`.
fn version_in(said: &str) -> Option<Version> {
    let (_, version) = said.split_once("version ")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some(Version {
        major: numbers.next()?.parse().ok()?,
        minor: numbers.next()?.parse().ok()?,
    })
}

/// Reads `VERSION_CODENAME=bookworm`.
fn codename_in(release: &str) -> Option<&str> {
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let name = name.trim_matches('"');
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let version = |said| version_in(said).unwrap();
        let old = version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright");
        let new = version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)");
        assert_eq!((old.major, old.minor, new.major), (7, 2, 10));
        assert!(old < FIRST && version("version 8.0.5") < FIRST);
        assert!(new > FIRST && version("version 8.1") >= FIRST);
        assert_eq!(version_in("QEMU"), None);
    }

    #[test]
    fn the_release_is_named() {
        assert_eq!(
            codename_in("ID=debian\nVERSION_CODENAME=bookworm\n"),
            Some("bookworm")
        );
        assert_eq!(codename_in("VERSION_CODENAME=\"trixie\""), Some("trixie"));
        assert_eq!(codename_in("VERSION_CODENAME=\nID=debian"), None);
    }
}
