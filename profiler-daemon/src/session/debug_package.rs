//! What brings the debug information that a file lacks: refusals and warnings name it.

use std::fmt;

use profiler_debug_files::{DebugPackage, MappedFile, hex};
use profiler_elf::Elf;

use super::{error::SessionError, files::TargetFile};

/// What brings the debug information that a file lacks; in words, what is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remedy {
    /// What has it, where that is known.
    package: Option<DebugPackage>,
    /// By which it is told from that of other builds; empty where the file has none.
    build_id: String,
}

impl Remedy {
    /// That of a file that a process has mapped. Reads the target's database of packages.
    pub fn of(pid: u32, file: &TargetFile) -> Self {
        let program = file.known.index.files().program();
        let build_id = Elf::parse(program).ok().and_then(|elf| elf.build_id());
        let mapped = MappedFile {
            path: &file.module.path,
            inode: file.module.inode,
            build_id,
        };
        Self {
            package: DebugPackage::of(pid, mapped),
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
        if let Some(DebugPackage::Named(package)) = &self.package {
            error = error.with("debug_package", package.clone());
        }
        if !self.build_id.is_empty() {
            error = error.with("build_id", self.build_id.clone());
        }
        error
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("install its debug package")?;
        match &self.package {
            Some(DebugPackage::Named(package)) => write!(f, " {package}")?,
            // The command has the build-id.
            Some(DebugPackage::FoundBy(command)) => write!(f, " by `{command}`")?,
            None => {}
        }
        if !self.build_id.is_empty() && !matches!(self.package, Some(DebugPackage::FoundBy(_))) {
            write!(f, " (build-id {})", self.build_id)?;
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
            package,
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
