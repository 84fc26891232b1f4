//! What brings the debug information that a file lacks: refusals and warnings name it.

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    sync::{Arc, Mutex, PoisonError},
};

use profiler_debug_files::{CutOff, DebugPackage, MappedFile, PackageBudget, hex};
use profiler_elf::Elf;

use super::{error::SessionError, files::TargetFile};

/// What all files of a request may read of databases of packages: whoever plans has others wait.
pub type SharedBudget = Arc<Mutex<PackageBudget>>;

/// What brings the debug information that a file lacks; in words, what is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remedy {
    /// What has it, where that is known.
    package: Result<Option<DebugPackage>, CutOff>,
    /// Whether the file's process has another root folder than this one, as in a container.
    is_in_container: bool,
    /// By which it is told from that of other builds; empty where the file has none.
    build_id: String,
}

impl Remedy {
    /// That of a file that a process has mapped. Reads the target's database of packages.
    pub fn of(pid: u32, file: &TargetFile, budget: &Mutex<PackageBudget>) -> Self {
        let program = file.known.index.files().program();
        let build_id = Elf::parse(program).ok().and_then(|elf| elf.build_id());
        let mapped = MappedFile {
            path: &file.module.path,
            inode: file.module.inode,
            build_id,
        };
        let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            package: DebugPackage::of(pid, mapped, &mut budget),
            is_in_container: has_other_root(pid).unwrap_or(false),
            build_id: build_id.map(hex).unwrap_or_default(),
        }
    }

    /// Adds to a refusal what is to be done, and what has it for programs.
    pub fn add_to(&self, mut error: SessionError) -> SessionError {
        error.message = format!("{}; {self}", error.message);
        self.with_details(error)
    }

    /// Adds what has it to a refusal, for programs.
    pub fn with_details(&self, mut error: SessionError) -> SessionError {
        if let Ok(Some(DebugPackage::Named(package))) = &self.package {
            error = error.with("debug_package", package.clone());
        }
        if !self.build_id.is_empty() {
            error = error.with("build_id", self.build_id.clone());
        }
        error
    }
}

/// Whether a process has another root folder than this one.
fn has_other_root(pid: u32) -> io::Result<bool> {
    let (its, own) = (fs::metadata(format!("/proc/{pid}/root"))?, fs::metadata("/")?);
    Ok((its.dev(), its.ino()) != (own.dev(), own.ino()))
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("install its debug package")?;
        let mut known = Vec::new();
        if !self.build_id.is_empty() {
            known.push(format!("build-id {}", self.build_id));
        }
        match &self.package {
            Ok(Some(DebugPackage::Named(package))) => write!(f, " {package}")?,
            Ok(Some(DebugPackage::FoundBy(command))) => {
                write!(f, " by `{command}`")?;
                // The command has it.
                known.clear();
            }
            Ok(None) => {}
            Err(CutOff) => known.push("which it is, was not looked for in all installed packages".to_owned()),
        }
        if self.is_in_container && matches!(self.package, Ok(Some(_))) {
            f.write_str(" in its container")?;
        }
        if !known.is_empty() {
            write!(f, " ({})", known.join("; "))?;
        }
        f.write_str(", or build it with `-g`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::error::Reason;

    fn remedy(package: Option<DebugPackage>, build_id: &str) -> Remedy {
        Remedy {
            package: Ok(package),
            is_in_container: false,
            build_id: build_id.to_owned(),
        }
    }

    #[test]
    fn no_package_is_named_that_is_not_known() {
        let named = |name: &str| Some(DebugPackage::Named(name.to_owned()));
        let found_by = |command: &str| Some(DebugPackage::FoundBy(command.to_owned()));
        for (remedy, expected) in [
            (
                remedy(named("nginx-dbgsym"), "ab01"),
                "install its debug package nginx-dbgsym (build-id ab01), or build it with `-g`",
            ),
            (
                remedy(named("nginx-dbgsym"), ""),
                "install its debug package nginx-dbgsym, or build it with `-g`",
            ),
            (
                remedy(found_by("dnf install ab/01.debug"), "ab01"),
                "install its debug package by `dnf install ab/01.debug`, or build it with `-g`",
            ),
            (
                remedy(None, "ab01"),
                "install its debug package (build-id ab01), or build it with `-g`",
            ),
            (
                remedy(None, ""),
                "install its debug package, or build it with `-g`",
            ),
        ] {
            assert_eq!(remedy.to_string(), expected);
        }
    }

    #[test]
    fn where_a_package_is_to_be_installed_and_that_not_all_were_looked_through_is_said() {
        let named = Some(DebugPackage::Named("nginx-dbgsym".to_owned()));
        let in_container = |remedy| Remedy {
            is_in_container: true,
            ..remedy
        };
        let cut_off = |build_id| Remedy {
            package: Err(CutOff),
            ..remedy(None, build_id)
        };
        for (remedy, expected) in [
            (
                in_container(remedy(named, "ab01")),
                "install its debug package nginx-dbgsym in its container (build-id ab01), or build it with `-g`",
            ),
            (
                in_container(remedy(None, "ab01")),
                "install its debug package (build-id ab01), or build it with `-g`",
            ),
            (
                cut_off("ab01"),
                "install its debug package (build-id ab01; which it is, was not looked for in all installed packages), \
                 or build it with `-g`",
            ),
            (
                cut_off(""),
                "install its debug package (which it is, was not looked for in all installed packages), or build it \
                 with `-g`",
            ),
        ] {
            assert_eq!(remedy.to_string(), expected);
        }
        assert!(!has_other_root(std::process::id()).unwrap());
    }

    #[test]
    fn programs_are_told_the_package_and_the_build() {
        let error = SessionError::new(Reason::LineNotFound, "there is none");
        let known = remedy(Some(DebugPackage::Named("nginx-dbgsym".to_owned())), "ab01");
        let told = known.add_to(error.clone());
        assert!(told.message.starts_with("there is none; install "), "{told}");
        let details = [
            ("debug_package", "nginx-dbgsym".to_owned()),
            ("build_id", "ab01".to_owned()),
        ];
        assert_eq!(told.metadata, details);
        assert_eq!(remedy(None, "").add_to(error).metadata, []);
    }
}
