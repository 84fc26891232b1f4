//! Which kernel is meant, and where its image is.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::apt::{self, Lists};
use crate::{
    error::{Error, Result},
    workspace,
};

/// The kernels that the project is held to, those whose part of the suite takes longest first.
pub const DEFAULT: [&str; 3] = ["6.1", "6.12-preempt", "7.2"];

/// A Debian suite that has the series; the machine's own lists come first.
const SUITES: [((u64, u64), &str); 3] = [((6, 1), "bookworm"), ((6, 12), "trixie"), ((7, 2), "forky")];

/// A kernel as asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    /// As it was written.
    pub name: String,
    /// Added to the kernel's command line.
    pub append: &'static str,
    series: (u64, u64),
    suite: &'static str,
}

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Kernel {
    /// The Debian package.
    pub package: String,
    /// Its compressed image.
    pub image: PathBuf,
}

impl Spec {
    /// Reads `6.12` or `6.12-preempt`.
    pub fn parse(name: &str) -> Result<Self> {
        let (series, append) = match name.strip_suffix("-preempt") {
            Some(series) => (series, "preempt=full"),
            None => (name, ""),
        };
        let known = SUITES
            .iter()
            .find(|((major, minor), _)| series == format!("{major}.{minor}"));
        let &(series, suite) = known.ok_or_else(|| {
            Error::told(format!(
                "unknown kernel `{name}`: 6.1, 6.12 and 7.2 are known, each also with `-preempt` (booted with preempt=full)"
            ))
        })?;
        Ok(Self {
            name: name.to_owned(),
            append,
            series,
            suite,
        })
    }

    /// Matches the names of the series' packages in a suite.
    fn pattern(&self) -> String {
        let (major, minor) = self.series;
        format!("^linux-(image|binary)-{major}[.]{minor}[.].*-cloud-amd64$")
    }
}

/// Finds the kernel's image among those unpacked before, or fetches its package.
pub fn fetch(spec: &Spec) -> Result<Kernel> {
    /// Machines that are booted at once may be of one kernel, and apt has its locks.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = workspace::target().join("vm");
    let (major, minor) = spec.series;
    let unpacked = directory.join(format!("kernels/{major}.{minor}"));
    if let Some(kernel) = cached(&unpacked) {
        return Ok(kernel);
    }
    let mut lists = Lists::System;
    let mut package = newest(&lists.search(&spec.pattern())?);
    if package.is_none() {
        lists = Lists::of_suite(spec.suite, &directory.join("apt"))?;
        package = newest(&lists.search(&spec.pattern())?);
    }
    let package = package.ok_or_else(|| {
        Error::told(format!(
            "no package matches {} in the machine's apt lists or in the suite {} of its mirror",
            spec.pattern(),
            spec.suite
        ))
    })?;
    // A half-unpacked package must not be taken for a whole one: it gets its name at the end.
    let partial = directory.join("kernels/partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::file("remove", &partial))?;
    }
    lists.unpack(&package, &partial)?;
    let image = find_image(&partial)
        .ok_or_else(|| Error::told(format!("{package} has no vmlinuz in boot/ or usr/lib/modules/*/")))?;
    fs::create_dir_all(&unpacked).map_err(Error::file("create", &unpacked))?;
    let kept = unpacked.join(&package);
    fs::rename(&image, &kept).map_err(Error::file("create", &kept))?;
    fs::remove_dir_all(&partial).map_err(Error::file("remove", &partial))?;
    Ok(Kernel { package, image: kept })
}

/// The image kept in a series' directory, named after its package.
fn cached(directory: &Path) -> Option<Kernel> {
    let names = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let package = newest(&names.collect::<Vec<_>>())?;
    Some(Kernel {
        image: directory.join(&package),
        package,
    })
}

/// The newest of the packages; where an image comes as two, the one that holds the kernel itself.
fn newest(packages: &[String]) -> Option<String> {
    let version = |package: &String| {
        let version = package
            .trim_start_matches("linux-")
            .trim_start_matches("image-")
            .trim_start_matches("binary-");
        version.to_owned()
    };
    packages
        .iter()
        .max_by(|one, other| {
            apt::compare_versions(&version(one), &version(other)).then_with(|| {
                one.starts_with("linux-binary-")
                    .cmp(&other.starts_with("linux-binary-"))
            })
        })
        .cloned()
}

/// `boot/vmlinuz-*`, or, in newer packages, `usr/lib/modules/*/vmlinuz`.
fn find_image(root: &Path) -> Option<PathBuf> {
    let list = |path: PathBuf| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
    };
    let boot = list(root.join("boot")).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    });
    boot.or_else(|| {
        list(root.join("usr/lib/modules"))
            .map(|modules| modules.join("vmlinuz"))
            .find(|path| path.exists())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn kernels_are_named_by_series() {
        let spec = Spec::parse("6.12-preempt").unwrap();
        assert_eq!(
            (spec.series, spec.append, spec.suite),
            ((6, 12), "preempt=full", "trixie")
        );
        assert_eq!(Spec::parse("7.2").unwrap().append, "");
        assert!(
            Spec::parse("6.2")
                .unwrap_err()
                .to_string()
                .starts_with("unknown kernel `6.2`: 6.1, 6.12")
        );
        for name in DEFAULT {
            Spec::parse(name).unwrap();
        }
    }

    #[test]
    fn the_newest_package_is_picked_by_number() {
        let packages = owned(&[
            "linux-image-6.12.99+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
        ]);
        assert_eq!(
            newest(&packages).unwrap(),
            "linux-image-6.12.117+deb12-cloud-amd64"
        );
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn of_two_parts_the_one_with_the_kernel_is_picked() {
        let packages = owned(&[
            "linux-binary-7.2.12+deb14-cloud-amd64",
            "linux-image-7.2.12+deb14-cloud-amd64",
        ]);
        assert_eq!(newest(&packages).unwrap(), packages[0]);
    }

    #[test]
    fn images_are_found_in_both_layouts() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find_image(root.path()), None);
        let modules = root.path().join("usr/lib/modules/7.2");
        fs::create_dir_all(&modules).unwrap();
        fs::write(modules.join("vmlinuz"), "").unwrap();
        assert_eq!(find_image(root.path()).unwrap(), modules.join("vmlinuz"));
        let boot = root.path().join("boot");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("config-6.1"), "").unwrap();
        fs::write(boot.join("vmlinuz-6.1"), "").unwrap();
        assert_eq!(find_image(root.path()).unwrap(), boot.join("vmlinuz-6.1"));
    }
}
