//! The package that a distribution has a file's debug information in: by its database of installed packages, or by the
//! build-id where its tools find packages by that.
//!
//! What is read is the target's: everything is bounded, links stay within its root, and only what everybody may read is read.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use profiler_target::file_systems;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};

use super::{
    companion::{DEBUG_FOLDER, build_id_path, hex},
    home::{Links, open_regular},
    reader::{Reader, Rights},
};

/// Where dpkg keeps, for each installed package, a list of the package's files.
const DPKG_LISTS: &str = "/var/lib/dpkg/info";
/// Longest list of one package's files that is read, in bytes: about 100,000 files.
const LIST_MAX: u64 = 16 << 20;
/// Longest name of a package, in bytes.
const NAME_MAX: usize = 128;
/// What tells which distribution it is.
const OS_RELEASE: &str = "/etc/os-release";
/// Bytes of it that are read.
const OS_RELEASE_MAX: u64 = 16 << 10;

/// What has a file's debug information.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DebugPackage {
    /// A package of this name, as Debian and its descendants call it by the package that the file is of.
    Named(String),
    /// What this command finds by the file's build-id.
    FoundBy(String),
}

/// What may be read to find packages, in all: whoever looks for those of several files has one for them together.
#[derive(Clone, Debug)]
pub struct PackageBudget {
    /// Names in folders of lists.
    names: usize,
    /// Lists that are opened.
    lists: usize,
    /// Bytes of lists.
    bytes: u64,
    /// Only a slow disk takes that long for the others.
    time: Duration,
}

impl Default for PackageBudget {
    /// Twice what the largest installations need, and about a second of computing.
    fn default() -> Self {
        Self {
            names: 1 << 18,
            lists: 1 << 15,
            bytes: 256 << 20,
            time: Duration::from_secs(3),
        }
    }
}

/// A package was looked for in a part of the installed ones only: they are too many, or too slow to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutOff;

/// A file that a process has mapped.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile<'a> {
    /// Its path in the process's root.
    pub path: &'a Path,
    /// Its number in its file system: another file at the path may be of another build.
    pub inode: u64,
    /// Its build-id, where it has one.
    pub build_id: Option<&'a [u8]>,
}

impl DebugPackage {
    /// The one of a file that this process has mapped; `None` where nothing says which it is.
    ///
    /// # Errors
    /// Where the budget was at its end before the installed packages were.
    pub fn of(pid: u32, file: MappedFile<'_>, budget: &mut PackageBudget) -> Result<Option<Self>, CutOff> {
        let root = open_folder(
            CWD,
            Path::new(&format!("/proc/{pid}/root")),
            ResolveFlags::empty(),
        );
        let Ok(root) = root else { return Ok(None) };
        let everybody = Reader::process(Rights::nobody());
        everybody
            .run(|| Ok(Self::below(root.as_fd(), file, budget)))
            .unwrap_or(Ok(None))
    }

    /// The one of a file in this root.
    fn below(
        root: BorrowedFd<'_>,
        file: MappedFile<'_>,
        budget: &mut PackageBudget,
    ) -> Result<Option<Self>, CutOff> {
        if !is_at(root, file) {
            return Ok(None);
        }
        if let Some(package) = package_of(root, file.path, budget)? {
            return Ok(Some(Self::Named(debug_package_of(&package))));
        }
        let command = Tool::of(root).and_then(|tool| tool.command(file));
        Ok(command.map(Self::FoundBy))
    }
}

/// Whether a file is what its path leads to in this root.
fn is_at(root: BorrowedFd<'_>, file: MappedFile<'_>) -> bool {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let there = openat2(root, file.path, flags, Mode::empty(), resolve);
    let there = there.ok().and_then(|there| File::from(there).metadata().ok());
    there.is_some_and(|there| there.ino() == file.inode)
}

/// The name of the package with the debug information of a Debian package's files.
fn debug_package_of(package: &str) -> String {
    // Some are older than the automatic ones.
    if package == "libc6" {
        return "libc6-dbg".to_owned();
    }
    python_of(package).map_or_else(|| format!("{package}-dbgsym"), |python| format!("{python}-dbg"))
}

/// The Python that a package is a part of, `python3.11`: the debug information of all its parts is in one package.
fn python_of(package: &str) -> Option<&str> {
    const PARTS: [&str; 4] = ["", "-minimal", "-stdlib", "t64"];
    let python = package.strip_prefix("lib").unwrap_or(package);
    let minor = python.strip_prefix("python3.")?;
    let part = minor.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (part.len() < minor.len() && PARTS.contains(&part)).then(|| &python[..python.len() - part.len()])
}

/// The Debian package that a file was installed by.
fn package_of(
    root: BorrowedFd<'_>,
    path: &Path,
    budget: &mut PackageBudget,
) -> Result<Option<String>, CutOff> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let folder = open_folder(root, Path::new(DPKG_LISTS), resolve);
    let names = folder.and_then(|folder| {
        let names = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
        Ok((folder, names))
    });
    let Ok((folder, names)) = names else {
        return Ok(None);
    };
    let begun = Instant::now();
    let mut look = Look {
        until: begun + budget.time,
        budget,
        is_cut_off: false,
    };
    let mut found = None;
    for name in names.flatten() {
        if look.is_over() {
            look.is_cut_off = true;
            break;
        }
        found = look.at(&folder, path, &name);
        if found.is_some() {
            break;
        }
    }
    look.budget.time = look.until.saturating_duration_since(Instant::now());
    if found.is_none() && look.is_cut_off {
        return Err(CutOff);
    }
    Ok(found)
}

/// A look through a folder of lists.
struct Look<'a> {
    budget: &'a mut PackageBudget,
    /// When the budget's time is over.
    until: Instant,
    /// Whether there was more to be read.
    is_cut_off: bool,
}

impl Look<'_> {
    /// The package, if this name in the folder is that of its list.
    fn at(&mut self, folder: &File, path: &Path, name: &fs::DirEntry) -> Option<String> {
        self.budget.names -= 1;
        let name = name.file_name();
        let package = name.to_str().and_then(|name| name.strip_suffix(".list"))?;
        // A package that is installed for several architectures is called `libc6:amd64`.
        let package = package.split_once(':').map_or(package, |(package, _)| package);
        let has_it = is_package_name(package)
            && self
                .lists(folder.as_fd(), Path::new(&name), path)
                .is_ok_and(|it| it);
        has_it.then(|| package.to_owned())
    }

    /// Whether a list has a file.
    fn lists(&mut self, folder: BorrowedFd<'_>, list: &Path, path: &Path) -> io::Result<bool> {
        self.budget.lists -= 1;
        let file = open_regular(folder, list, Links::Refused)?;
        let mut lines = BufReader::new(List {
            file,
            left: LIST_MAX,
            look: self,
        });
        let path = path.as_os_str().as_bytes();
        // Packages call it as it was before `/bin`, `/sbin` and `/lib` became links to `/usr`.
        let before_merge = path.strip_prefix(b"/usr").filter(|path| {
            [&b"/bin/"[..], b"/sbin/", b"/lib"]
                .iter()
                .any(|start| path.starts_with(start))
        });
        let mut line = Vec::new();
        let mut found = false;
        while !found && lines.read_until(b'\n', &mut line)? > 0 {
            // What was cut off may be the beginning of another.
            let listed = line.strip_suffix(b"\n");
            found = listed.is_some_and(|listed| listed == path || Some(listed) == before_merge);
            line.clear();
        }
        Ok(found)
    }

    /// Whether nothing more may be read.
    fn is_over(&self) -> bool {
        let PackageBudget {
            names, lists, bytes, ..
        } = *self.budget;
        names == 0 || lists == 0 || bytes == 0 || Instant::now() >= self.until
    }
}

/// A list that is read as far as its bound and the budget.
struct List<'a, 'b> {
    file: File,
    left: u64,
    look: &'a mut Look<'b>,
}

impl io::Read for List<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.left.min(self.look.budget.bytes);
        if bytes == 0 || Instant::now() >= self.look.until {
            self.look.is_cut_off = true;
            return Ok(0);
        }
        let most = usize::try_from(bytes).map_or(buffer.len(), |bytes| bytes.min(buffer.len()));
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        self.look.budget.bytes -= read as u64;
        Ok(read)
    }
}

/// Whether it is one that Debian's policy allows.
fn is_package_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|byte| is_plain(byte) || b"+-.".contains(&byte))
}

/// What installs packages by what they have, or give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    /// Of Fedora, Red Hat and their descendants.
    Dnf,
    /// Of SUSE.
    Zypper,
}

impl Tool {
    /// That of a distribution, by what it says of itself.
    fn of(root: BorrowedFd<'_>) -> Option<Self> {
        let file = open_regular(root, Path::new(OS_RELEASE), Links::Followed).ok()?;
        let mut text = String::new();
        file.take(OS_RELEASE_MAX).read_to_string(&mut text).ok()?;
        let names = text.lines().filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            matches!(name, "ID" | "ID_LIKE").then(|| value.trim_matches(['"', '\'']))
        });
        names.flat_map(str::split_whitespace).find_map(|name| match name {
            "fedora" | "rhel" | "centos" => Some(Self::Dnf),
            "suse" | "opensuse" => Some(Self::Zypper),
            _ => None,
        })
    }

    /// The command that installs a file's debug information; `None` of one that no package has installed.
    fn command(self, file: MappedFile<'_>) -> Option<String> {
        let build_id = file.build_id.filter(|id| profiler_elf::is_plain_build_id(id))?;
        let path = file.path;
        if !path.starts_with("/usr") || path.starts_with("/usr/local") {
            return None;
        }
        Some(match self {
            Self::Dnf => format!(
                "dnf --enablerepo='*debug*' install {}",
                installed_path(build_id).display()
            ),
            Self::Zypper => format!(
                "zypper --plus-content debug install -C 'debuginfo(build-id)={}'",
                hex(build_id)
            ),
        })
    }
}

/// Where the debug information of a build is installed.
#[must_use]
pub fn installed_path(build_id: &[u8]) -> PathBuf {
    Path::new(DEBUG_FOLDER).join(build_id_path(build_id))
}

/// A folder, to open what is in it; not one of a file system that may never answer.
fn open_folder(from: BorrowedFd<'_>, path: &Path, resolve: ResolveFlags) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = if resolve.is_empty() {
        openat(from, path, flags, Mode::empty())?
    } else {
        openat2(from, path, flags, Mode::empty(), resolve)?
    };
    if !file_systems::is_read(fstatfs(&folder)?.f_type) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(folder.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD_ID: [u8; 20] = [0xab; 20];

    /// A root that tests write files into.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(root.at(DPKG_LISTS)).unwrap();
            root
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path.trim_start_matches('/'))
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            let at = self.at(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }

        fn list(&self, package: &str, files: &[&str]) {
            let lines: Vec<String> = files.iter().map(|file| format!("{file}\n")).collect();
            self.write(&format!("{DPKG_LISTS}/{package}.list"), lines.concat());
        }

        fn package_of(&self, path: &str) -> Option<DebugPackage> {
            self.within(path, &mut PackageBudget::default()).unwrap()
        }

        fn within(&self, path: &str, budget: &mut PackageBudget) -> Result<Option<DebugPackage>, CutOff> {
            let inode = fs::metadata(self.at(path)).unwrap().ino();
            self.at_inode(path, inode, budget)
        }

        fn package_at(&self, path: &str, inode: u64) -> Option<DebugPackage> {
            self.at_inode(path, inode, &mut PackageBudget::default()).unwrap()
        }

        fn at_inode(
            &self,
            path: &str,
            inode: u64,
            budget: &mut PackageBudget,
        ) -> Result<Option<DebugPackage>, CutOff> {
            let root = open_folder(CWD, self.0.path(), ResolveFlags::empty()).unwrap();
            let file = MappedFile {
                path: Path::new(path),
                inode,
                build_id: Some(&BUILD_ID),
            };
            DebugPackage::below(root.as_fd(), file, budget)
        }
    }

    fn named(name: &str) -> DebugPackage {
        DebugPackage::Named(name.to_owned())
    }

    #[test]
    fn a_debian_package_is_found_by_its_list_of_files() {
        let root = Root::new();
        root.list("nginx-common", &["/.", "/etc", "/usr/sbin/nginx.conf"]);
        root.list("nginx", &["/.", "/usr", "/usr/sbin", "/usr/sbin/nginx"]);
        root.list("libc6:amd64", &["/lib/x86_64-linux-gnu/libc.so.6"]);
        root.list("libssl3:amd64", &["/usr/lib/x86_64-linux-gnu/libssl.so.3"]);
        for path in [
            "/usr/sbin/nginx",
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/x86_64-linux-gnu/libssl.so.3",
            "/usr/sbin/ngin",
            "/opt/own",
        ] {
            root.write(path, "");
        }
        assert_eq!(root.package_of("/usr/sbin/nginx"), Some(named("nginx-dbgsym")));
        assert_eq!(
            root.package_of("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            Some(named("libc6-dbg")),
            "which is listed as it was before /lib became a link"
        );
        assert_eq!(
            root.package_of("/usr/lib/x86_64-linux-gnu/libssl.so.3"),
            Some(named("libssl3-dbgsym"))
        );
        assert_eq!(root.package_of("/opt/own"), None);
        assert_eq!(root.package_of("/usr/sbin/ngin"), None, "a part of a listed path");
    }

    #[test]
    fn a_package_is_not_named_for_another_file_than_the_mapped_one() {
        let root = Root::new();
        root.list("nginx", &["/usr/sbin/nginx"]);
        root.write("/usr/sbin/nginx", "of a newer package");
        let inode = fs::metadata(root.at("/usr/sbin/nginx")).unwrap().ino();
        assert_eq!(
            root.package_at("/usr/sbin/nginx", inode),
            Some(named("nginx-dbgsym"))
        );
        assert_eq!(root.package_at("/usr/sbin/nginx", inode + 1), None);
        fs::remove_file(root.at("/usr/sbin/nginx")).unwrap();
        assert_eq!(root.package_at("/usr/sbin/nginx", inode), None);
    }

    #[test]
    fn lists_that_no_package_manager_writes_are_not_believed() {
        let root = Root::new();
        root.write("/usr/bin/x", "");
        root.write("outside", "/usr/bin/x\n");
        let listed = ["/usr/bin/x"];
        for name in [
            "; rm -rf ~",
            "-o",
            "\u{1b}[31m",
            "Nginx",
            "",
            &"x".repeat(NAME_MAX + 1),
        ] {
            root.list(name, &listed);
        }
        std::os::unix::fs::symlink("/outside", root.at(&format!("{DPKG_LISTS}/linked.list"))).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(root.at(&format!("{DPKG_LISTS}/pipe.list")))
            .status();
        assert!(pipe.unwrap().success());
        assert_eq!(root.package_of("/usr/bin/x"), None);
        root.list("plain", &listed);
        assert_eq!(root.package_of("/usr/bin/x"), Some(named("plain-dbgsym")));
    }

    #[test]
    fn a_list_is_read_as_far_as_its_bound() {
        let root = Root::new();
        root.write("/usr/bin/x", "");
        let list = root.at(&format!("{DPKG_LISTS}/large.list"));
        let write = |before: u64| {
            let mut text = vec![b'a'; usize::try_from(before).unwrap() - 1];
            text.extend(b"\n/usr/bin/x\n");
            fs::write(&list, text).unwrap();
        };
        write(LIST_MAX - 20);
        assert_eq!(root.package_of("/usr/bin/x"), Some(named("large-dbgsym")));
        for length in [LIST_MAX, LIST_MAX - 5] {
            write(length);
            let found = root.within("/usr/bin/x", &mut PackageBudget::default());
            assert_eq!(found, Err(CutOff));
        }
    }

    #[test]
    fn what_is_read_for_several_files_is_bounded_together_and_an_end_before_all_is_read_is_told() {
        let root = Root::new();
        root.write("/usr/bin/x", "");
        root.write("/usr/bin/own", "");
        let lists = 20;
        for number in 0..lists {
            root.list(&format!("p{number}"), &["/.", "/usr/bin/x-", "/usr/bin/xy"]);
        }
        let bytes = 27 * lists as u64;
        let enough = || PackageBudget {
            names: lists + 1,
            lists: lists + 1,
            bytes: bytes + 1,
            ..PackageBudget::default()
        };
        let mut budget = enough();
        assert_eq!(root.within("/usr/bin/own", &mut budget), Ok(None));
        assert_eq!((budget.names, budget.lists, budget.bytes), (1, 1, 1));
        assert_eq!(root.within("/usr/bin/own", &mut budget), Err(CutOff));
        for too_little in [
            PackageBudget {
                names: lists - 1,
                ..enough()
            },
            PackageBudget {
                lists: lists - 1,
                ..enough()
            },
            PackageBudget {
                bytes: bytes - 2,
                ..enough()
            },
            PackageBudget {
                time: Duration::ZERO,
                ..enough()
            },
        ] {
            // Its last line would be `/usr/bin/x`.
            let found = root.within("/usr/bin/x", &mut too_little.clone());
            assert_eq!(found, Err(CutOff), "{too_little:?}");
        }
    }

    #[test]
    fn the_debug_information_of_all_parts_of_python_is_in_one_package() {
        for (package, expected) in [
            ("python3.11-minimal", "python3.11-dbg"),
            ("python3.13", "python3.13-dbg"),
            ("libpython3.11", "python3.11-dbg"),
            ("libpython3.12t64", "python3.12-dbg"),
            ("libpython3.11-stdlib", "python3.11-dbg"),
            ("python3.-minimal", "python3.-minimal-dbgsym"),
            ("python3.11-numpy", "python3.11-numpy-dbgsym"),
            ("python3-yaml", "python3-yaml-dbgsym"),
            ("libc6", "libc6-dbg"),
        ] {
            assert_eq!(debug_package_of(package), expected);
        }
    }

    #[test]
    fn a_folder_of_lists_outside_of_the_root_is_not_read() {
        let root = Root::new();
        root.write("/usr/bin/x", "");
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("other.list"), "/usr/bin/x\n").unwrap();
        fs::remove_dir(root.at(DPKG_LISTS)).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.at(DPKG_LISTS)).unwrap();
        assert_eq!(root.package_of("/usr/bin/x"), None);
    }

    #[test]
    fn other_distributions_find_packages_by_the_build_id() {
        let root = Root::new();
        for path in ["/usr/sbin/nginx", "/usr/local/bin/own", "/opt/own"] {
            root.write(path, "");
        }
        let hex = "ab".repeat(20);
        let by_dnf = Some(DebugPackage::FoundBy(format!(
            "dnf --enablerepo='*debug*' install /usr/lib/debug/.build-id/ab/{}.debug",
            &hex[2..]
        )));
        let by_zypper = Some(DebugPackage::FoundBy(format!(
            "zypper --plus-content debug install -C 'debuginfo(build-id)={hex}'"
        )));
        for (release, expected) in [
            ("ID=fedora\n", &by_dnf),
            (
                "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                &by_dnf,
            ),
            ("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", &by_zypper),
            ("ID=arch\n", &None),
            ("PRETTY_NAME=\"fedora\"\n", &None),
            ("", &None),
        ] {
            root.write(OS_RELEASE, release);
            assert_eq!(&root.package_of("/usr/sbin/nginx"), expected, "{release}");
            assert_eq!(root.package_of("/usr/local/bin/own"), None, "{release}");
            assert_eq!(root.package_of("/opt/own"), None, "{release}");
        }
    }
}
