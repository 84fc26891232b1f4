//! Kernel packages: picked from what apt lists, downloaded and unpacked, never installed.

use std::{
    cmp::Ordering,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, Result},
    sh,
};

/// Package lists to look in.
pub enum Lists {
    /// The machine's own.
    System,
    /// Those of another suite of the machine's mirror, kept in a directory of ours.
    Private(PathBuf),
}

impl Lists {
    /// Lists of a suite from the machine's mirror; the machine's own apt configuration stays as it is.
    pub fn of_suite(suite: &str, directory: &Path) -> Result<Self> {
        let directory = directory.join(suite);
        let partial = directory.join("lists/partial");
        fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
        let mirror = mirror()?;
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let source = directory.join("source.list");
        fs::write(&source, format!("deb [signed-by={keys}] {mirror} {suite} main\n"))
            .map_err(Error::file("write", &source))?;
        let lists = Self::Private(directory);
        sh::run(
            Command::new("apt-get")
                .args(lists.options())
                .args(["update", "--quiet=2"]),
        )?;
        Ok(lists)
    }

    /// Names of packages whose name matches a regular expression.
    pub fn search(&self, pattern: &str) -> Result<Vec<String>> {
        let output = sh::read(Command::new("apt-cache").args(self.options()).args([
            "search",
            "--names-only",
            pattern,
        ]))?;
        Ok(output
            .lines()
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect())
    }

    /// Downloads a package into a directory and unpacks it there.
    pub fn unpack(&self, package: &str, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
        let mut download = Command::new("apt-get");
        download
            .args(self.options())
            .args(["--quiet=2", "download", package])
            .current_dir(directory);
        sh::run(&mut download)?;
        let archive = fs::read_dir(directory)
            .map_err(Error::file("list", directory))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or_else(|| Error::told(format!("apt-get left no package in {}", directory.display())))?;
        sh::run(Command::new("dpkg").arg("-x").args([&archive, directory]))?;
        fs::remove_file(&archive).map_err(Error::file("remove", &archive))
    }

    fn options(&self) -> Vec<OsString> {
        // Our directories need not be readable for apt's own user.
        let mut options = vec![OsString::from("-oAPT::Sandbox::User=root")];
        if let Self::Private(directory) = self {
            let mut option = |name: &str, value: &Path| {
                let mut text = OsString::from(format!("-o{name}="));
                text.push(value);
                options.push(text);
            };
            option("Dir::Etc::sourcelist", &directory.join("source.list"));
            option("Dir::Etc::sourceparts", Path::new("/dev/null"));
            option("Dir::State::lists", &directory.join("lists"));
            option("Dir::Cache", &directory.join("cache"));
            // Only the package list itself is needed.
            option("Acquire::Languages", Path::new("none"));
            option(
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
                Path::new("false"),
            );
        }
        options
    }
}

/// The address of the machine's Debian mirror, from its own apt sources.
fn mirror() -> Result<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| mirror_in(&text)).ok_or_else(|| {
        Error::told("no Debian mirror in /etc/apt/sources.list or sources.list.d: kernel packages come from there")
    })
}

/// The first address of a Debian archive (not of its security archive) in apt sources of either format.
fn mirror_in(text: &str) -> Option<String> {
    text.lines().map(str::trim).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "deb" | "URIs:" => {}
            _ => return None,
        }
        // One-line options stand in brackets, with spaces or without.
        words
            .find(|word| word.contains(":/"))
            .filter(|address| address.trim_end_matches('/').ends_with("/debian"))
            .map(str::to_owned)
    })
}

/// Orders versions as Debian does where only numbers differ: 6.1.0-9 before 6.1.0-10.
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect()
    };
    numbers(one).cmp(&numbers(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let deb822 =
            "Types: deb\n# http://old.example/debian\nURIs: http://mirror.example/debian\nSuites: bookworm\n";
        assert_eq!(mirror_in(deb822).unwrap(), "http://mirror.example/debian");
        let one_line = "# deb http://no.example/debian a main\n\
                        deb [arch=amd64 signed-by=/k.gpg] https://packages.example/apt stable main\n\
                        deb [ arch=amd64 ] https://mirror.example/x/debian/ bookworm main\n";
        assert_eq!(mirror_in(one_line).unwrap(), "https://mirror.example/x/debian/");
        assert_eq!(
            mirror_in("URIs: http://mirror.example/debian-security\nURIs:\ndeb\n"),
            None
        );
    }

    #[test]
    fn versions_compare_by_number() {
        let mut versions = ["6.12.9+deb12", "6.12.117+deb12", "6.12.20", "6.1.0-56"];
        versions.sort_by(|one, other| compare_versions(one, other));
        assert_eq!(
            versions,
            ["6.1.0-56", "6.12.9+deb12", "6.12.20", "6.12.117+deb12"]
        );
    }
}
