//! The processes that the caller may see.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::stat::{Stat, Status};

/// Longest command line that is kept, in bytes.
const COMMAND_LINE_MAX: u64 = 4096;
/// Longest name of a thread, in bytes.
const COMM_MAX: usize = 15;
/// What the kernel writes behind the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// A process, as it was when it was listed. Nothing of that waits for the process: its command line does ([`command_line`]).
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
        Some(Self {
            pid,
            uid: status.users[0],
            threads: status.threads,
            name: String::from_utf8_lossy(&stat.name).into_owned(),
            executable: fs::read_link(format!("/proc/{pid}/exe")).ok().map(without_mark),
            life: Life {
                start_time_ticks: stat.start_time_ticks,
                layout: stat.layout,
            },
        })
    }

    /// Whether its name is this, as far as the kernel keeps it. It can change it.
    fn is_called(&self, name: &str) -> bool {
        let is_cut = self.name.len() == COMM_MAX && name.starts_with(&self.name);
        self.name == name || is_cut
    }

    /// Whether the text is its number or is part of its name, executable or command line.
    #[must_use]
    pub fn matches(&self, text: &str, command_line: &str) -> bool {
        let executable = self.executable.as_ref().map(|path| path.to_string_lossy());
        text == self.pid.to_string()
            || self.name.contains(text)
            || executable.is_some_and(|path| path.contains(text))
            || command_line.contains(text)
    }
}

/// The arguments of a process, joined by spaces; at most 4,096 bytes, and empty where they cannot be read. The process can change them.
///
/// They are in its memory. Who reads them waits for that to be unlocked, and for whoever gives a page that is not there: that may be
/// for ever, so whoever has others wait for them reads them on a thread of its own.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let mut arguments = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline"));
    // What was read before an error is kept.
    let _ = file.map(|file| file.take(COMMAND_LINE_MAX).read_to_end(&mut arguments));
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments);
    String::from_utf8_lossy(arguments).replace('\0', " ")
}

/// Whether a command line begins with this name, as that of a program does that was started by a link of the name.
fn begins_with(command_line: &str, name: &str) -> bool {
    let first = command_line.split([' ', ':']).next().unwrap_or_default();
    first.rsplit('/').next() == Some(name)
}

fn without_mark(path: PathBuf) -> PathBuf {
    let mut bytes = path.into_os_string().into_vec();
    if bytes.ends_with(DELETED) {
        bytes.truncate(bytes.len() - DELETED.len());
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The user processes that the caller may see, by number.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn list() -> io::Result<Vec<Listed>> {
    let mut found: Vec<Listed> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Listed::read)
        .collect();
    found.sort_unstable_by_key(|process| process.pid);
    Ok(found)
}

/// What is known of the children of a process.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Children {
    /// How many of them run, and the caller may see.
    pub running: usize,
    /// Others have ended, and it has waited for them.
    pub have_ended: bool,
}

/// The children of these processes, of those that have or had any.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn children(parents: &[u32]) -> io::Result<BTreeMap<u32, Children>> {
    let mut found = BTreeMap::<u32, Children>::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let text = pid.and_then(|pid| fs::read(format!("/proc/{pid}/stat")).ok());
        let (Some(pid), Some(stat)) = (pid, text.and_then(|text| Stat::parse(&text))) else {
            continue;
        };
        if !stat.ended() && parents.contains(&stat.parent) {
            found.entry(stat.parent).or_default().running += 1;
        }
        if stat.has_waited_for_children && parents.contains(&pid) {
            found.entry(pid).or_default().have_ended = true;
        }
    }
    Ok(found)
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Device and inode of the file, as `stat` gives them.
    file: (u64, u64),
    /// Its path without links.
    path: PathBuf,
}

impl Resolved {
    /// Follows a path with the rights that this thread has.
    ///
    /// # Errors
    /// Where there is nothing, or it may not be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            file: (file.dev(), file.ino()),
            path: fs::canonicalize(path)?,
        })
    }
}

/// The processes that run an executable, by number: of that file or path where the pattern has a `/`, of
/// that file name otherwise; if there is none, processes that were started by that name, as programs are by a link: both their name
/// and their first argument say so.
///
/// `resolve` says where a path leads, with the rights of who asks: that something is there is not to be told to all.
///
/// Of processes that are not `admitted` nothing is read but what anybody may read; `command_lines` reads those of some, as far as it
/// waits for them.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn find_executable(
    pattern: &Path,
    resolve: impl FnOnce(&Path) -> Option<Resolved>,
    admitted: impl Fn(u32) -> bool,
    command_lines: impl FnOnce(&[Listed]) -> HashMap<u32, String>,
) -> io::Result<Vec<u32>> {
    let whole_path = pattern.as_os_str().as_bytes().contains(&b'/');
    let resolved = if whole_path { resolve(pattern) } else { None };
    let wanted = resolved.as_ref().map(|resolved| resolved.file);
    let absolute = resolved.map_or_else(|| pattern.to_path_buf(), |resolved| resolved.path);
    let runs_it = |process: &Listed| {
        let Some(path) = &process.executable else {
            return false;
        };
        if !whole_path {
            return path.file_name() == Some(pattern.as_os_str()) && admitted(process.pid);
        }
        let is_it = || *path == absolute || wanted.is_some() && executable_file(process.pid) == wanted;
        admitted(process.pid) && is_it()
    };
    let mut processes = list()?;
    let found: Vec<u32> = processes
        .iter()
        .filter(|process| runs_it(process))
        .map(|process| process.pid)
        .collect();
    if !found.is_empty() || whole_path {
        return Ok(found);
    }
    let name = pattern.to_string_lossy();
    processes.retain(|process| process.is_called(&name) && admitted(process.pid));
    let lines = command_lines(&processes);
    let begins = |pid: &u32| lines.get(pid).is_some_and(|line| begins_with(line, &name));
    let pids = processes.iter().map(|process| process.pid);
    Ok(pids.filter(begins).collect())
}

/// The device and inode of a process's executable, as they are known: its file system, which may be the process's own, is not asked.
fn executable_file(pid: u32) -> Option<(u64, u64)> {
    let path = format!("/proc/{pid}/exe");
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    Some((device, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(processes: &[Listed]) -> HashMap<u32, String> {
        let line = |process: &Listed| (process.pid, command_line(process.pid));
        processes.iter().map(line).collect()
    }

    fn resolved(path: &Path) -> Option<Resolved> {
        Resolved::of(path).ok()
    }

    fn none_asked(processes: &[Listed]) -> HashMap<u32, String> {
        panic!("not needed of {processes:?}")
    }

    #[test]
    fn itself_is_listed_and_found() {
        let pid = std::process::id();
        let all = list().unwrap();
        let own = all.iter().find(|process| process.pid == pid).unwrap();
        let executable = std::env::current_exe().unwrap();
        assert_eq!(own.executable.as_deref(), Some(executable.as_path()));
        assert!(own.threads >= 1 && own.matches(executable.to_str().unwrap(), ""));
        assert!(own.matches(&pid.to_string(), "") && own.matches("some words", "with some words"));
        assert!(!own.matches("some words", "without any"));
        assert!(command_line(pid).starts_with(&std::env::args().next().unwrap()));
        let linked = tempfile::tempdir_in(executable.parent().unwrap()).unwrap();
        let link = linked.path().join("other name");
        fs::hard_link(&executable, &link).unwrap();
        for pattern in [
            executable.as_path(),
            Path::new(executable.file_name().unwrap()),
            &link,
        ] {
            let found = find_executable(pattern, resolved, |_| true, none_asked).unwrap();
            assert!(found.contains(&pid), "{}", pattern.display());
            let others = find_executable(pattern, resolved, |of| of != pid, lines).unwrap();
            assert!(!others.contains(&pid), "{}", pattern.display());
        }
        let found = find_executable(Path::new("no such program"), resolved, |_| true, lines);
        assert!(found.unwrap().is_empty());
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
        // The kernel lets the parent go on before the new program's command line is in place.
        while command_line(child.id()).is_empty() {
            std::thread::yield_now();
        }
        let asked = std::cell::Cell::new(0);
        let found = |pid| {
            let of_those = |processes: &[Listed]| {
                asked.set(asked.get() + processes.len());
                lines(processes)
            };
            find_executable(Path::new("a-link-to-sleep"), resolved, |of| of != pid, of_those).unwrap()
        };
        let (with, without) = (found(0), found(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((with, without), (vec![child.id()], vec![]));
        // Nobody else's command line was read, nor where it was not admitted.
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn kernel_threads_are_left_out() {
        assert!(
            list()
                .unwrap()
                .iter()
                .all(|process| process.name != "kthreadd" || process.pid != 2)
        );
    }
}
