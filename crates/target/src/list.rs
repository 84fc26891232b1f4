//! The processes that the caller may see.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use super::stat::{Stat, Status};

/// Longest command line that is kept, in bytes.
const COMMAND_LINE_MAX: usize = 4096;
/// Longest name of a thread, in bytes.
const COMM_MAX: usize = 15;
/// What the kernel writes behind the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// A process, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub pid: u32,
    /// The real user.
    pub uid: u32,
    /// How many threads it has.
    pub threads: u32,
    /// The name of its first thread.
    pub name: String,
    /// The executable's path without a ` (deleted)`, where the caller may see it.
    pub executable: Option<PathBuf>,
    /// The arguments, joined by spaces; at most 4,096 bytes. The process can change them.
    pub command_line: String,
    /// Which process of its number it is, and which program it runs.
    pub life: Life,
}

/// What tells a process from another of its number, and from itself with another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    start_time_ticks: u64,
    layout: (u64, u64),
}

impl Listed {
    fn read(pid: u32) -> Option<Self> {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}"));
        let stat = Stat::parse(&read("stat").ok()?)?;
        if stat.kernel_thread || stat.ended() {
            return None;
        }
        let status = Status::parse(&read("status").ok()?)?;
        let arguments = read("cmdline").unwrap_or_default();
        let arguments = &arguments[..arguments.len().min(COMMAND_LINE_MAX)];
        let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
        Some(Self {
            pid,
            uid: status.users[0],
            threads: status.threads,
            name: String::from_utf8_lossy(&stat.name).into_owned(),
            executable: fs::read_link(format!("/proc/{pid}/exe")).ok().map(without_mark),
            command_line: String::from_utf8_lossy(arguments).replace('\0', " "),
            life: Life {
                start_time_ticks: stat.start_time_ticks,
                layout: stat.layout,
            },
        })
    }

    /// Whether it was started by this name, as programs are by a link to another: both its name and its first argument say so. It can
    /// change both.
    fn was_started_as(&self, name: &str) -> bool {
        let first = self.command_line.split([' ', ':']).next().unwrap_or_default();
        let first = first.rsplit('/').next().unwrap_or_default();
        // The kernel keeps so much of a name.
        let is_cut = self.name.len() == COMM_MAX && name.starts_with(&self.name);
        first == name && (self.name == name || is_cut)
    }

    /// Whether the text is its number or is part of its name, executable or command line.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let executable = self.executable.as_ref().map(|path| path.to_string_lossy());
        text == self.pid.to_string()
            || self.name.contains(text)
            || executable.is_some_and(|path| path.contains(text))
            || self.command_line.contains(text)
    }
}

fn without_mark(path: PathBuf) -> PathBuf {
    let mut bytes = path.into_os_string().into_vec();
    if bytes.ends_with(DELETED) {
        bytes.truncate(bytes.len() - DELETED.len());
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The user processes that the caller may see, by number; with a filter, those that it matches.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn list(filter: Option<&str>) -> io::Result<Vec<Listed>> {
    let mut found: Vec<Listed> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Listed::read)
        .filter(|process| filter.is_none_or(|text| process.matches(text)))
        .collect();
    found.sort_unstable_by_key(|process| process.pid);
    Ok(found)
}

/// How many of the processes that the caller may see have one of these as their parent, by that.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn children(parents: &[u32]) -> io::Result<BTreeMap<u32, usize>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let text = pid.and_then(|pid| fs::read(format!("/proc/{pid}/stat")).ok());
        if let Some(stat) = text.and_then(|text| Stat::parse(&text))
            && !stat.ended()
            && parents.contains(&stat.parent)
        {
            *found.entry(stat.parent).or_insert(0) += 1;
        }
    }
    Ok(found)
}

/// The processes that run an executable, by number: of that file or path where the pattern has a `/`, of
/// that file name otherwise; if there is none, processes that were started by that name, as programs are by a link.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn find_executable(pattern: &Path) -> io::Result<Vec<u32>> {
    let whole_path = pattern.as_os_str().as_bytes().contains(&b'/');
    let file = if whole_path {
        fs::metadata(pattern).ok()
    } else {
        None
    };
    let wanted = file.as_ref().map(|file| (file.dev(), file.ino()));
    let absolute = fs::canonicalize(pattern).unwrap_or_else(|_| pattern.to_path_buf());
    let runs_it = |process: &Listed| {
        let Some(path) = &process.executable else {
            return false;
        };
        if !whole_path {
            return path.file_name() == Some(pattern.as_os_str());
        }
        let same_file = || {
            let running = fs::metadata(format!("/proc/{}/exe", process.pid)).ok()?;
            Some(Some((running.dev(), running.ino())) == wanted)
        };
        *path == absolute || same_file().unwrap_or(false)
    };
    let processes = list(None)?;
    let pids = |is_meant: &dyn Fn(&&Listed) -> bool| -> Vec<u32> {
        let meant = processes.iter().filter(is_meant);
        meant.map(|process| process.pid).collect()
    };
    let found = pids(&|process| runs_it(process));
    if !found.is_empty() || whole_path {
        return Ok(found);
    }
    let name = pattern.to_string_lossy();
    Ok(pids(&|process| process.was_started_as(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn itself_is_listed_and_found() {
        let pid = std::process::id();
        let own = list(Some(&pid.to_string())).unwrap();
        let own = own.iter().find(|process| process.pid == pid).unwrap();
        let executable = std::env::current_exe().unwrap();
        assert_eq!(own.executable.as_deref(), Some(executable.as_path()));
        assert!(own.threads >= 1 && own.matches(executable.to_str().unwrap()));
        assert!(own.command_line.starts_with(&std::env::args().next().unwrap()));
        let linked = tempfile::tempdir_in(executable.parent().unwrap()).unwrap();
        let link = linked.path().join("other name");
        fs::hard_link(&executable, &link).unwrap();
        for pattern in [
            executable.as_path(),
            Path::new(executable.file_name().unwrap()),
            &link,
        ] {
            assert!(
                find_executable(pattern).unwrap().contains(&pid),
                "{}",
                pattern.display()
            );
        }
        assert!(find_executable(Path::new("no such program")).unwrap().is_empty());
    }

    #[test]
    fn a_program_that_is_a_link_is_found_by_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("a-link-to-sleep");
        let sleep = ["/usr/bin/sleep", "/bin/sleep"]
            .iter()
            .find(|path| Path::new(path).exists());
        std::os::unix::fs::symlink(sleep.unwrap(), &link).unwrap();
        let mut child = std::process::Command::new(&link).arg("100").spawn().unwrap();
        let found = find_executable(Path::new("a-link-to-sleep")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
    }

    #[test]
    fn kernel_threads_are_left_out() {
        assert!(
            list(None)
                .unwrap()
                .iter()
                .all(|process| process.name != "kthreadd" || process.pid != 2)
        );
    }
}
