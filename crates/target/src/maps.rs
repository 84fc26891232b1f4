//! What a process has mapped, and opening it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    ops::ControlFlow,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    thread::{CapabilitySet, capabilities},
};

/// Most executable mappings that are kept of one process; the kernel's own limit is this by default.
pub const MAPPINGS_MAX: usize = 65_536;

/// Longest line of a process's mappings that is read: a path of a folder within others can be of any length.
const LINE_MAX: usize = 64 << 10;

/// Bytes of that text that are read for what is kept.
const MAPS_BYTES_MAX: u64 = 64 << 20;

/// What the code is called that the kernel maps into every process, and the most of it that is read; Linux's is two pages.
const VDSO: &str = "[vdso]";
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// What the kernel writes behind the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Where in the file `start` is, in bytes.
    pub file_offset: u64,
    /// Whether code can run there.
    pub executable: bool,
    /// Whether it can be written to.
    pub writable: bool,
    /// Major and minor number of the file's device, as the file system's superblock has it: on some file
    /// systems not what `stat` says.
    pub device: (u32, u32),
    /// The file's inode; 0 where no file is mapped.
    pub inode: u64,
    /// The file's path in the process's mount namespace, or a name in brackets such as `[vdso]`, or empty.
    ///
    /// The kernel writes a newline as `\012` and leaves backslashes, so a file whose name has those four
    /// characters cannot be told from one with a newline: it is taken for the latter.
    pub path: PathBuf,
    /// Whether the file has no name any more (or has one that ends in ` (deleted)`: the text is the same).
    pub deleted: bool,
}

/// A line that is not of the form.
#[derive(Debug, thiserror::Error)]
#[error("not a line of /proc/PID/maps: {0:?}")]
pub struct MapsError(String);

impl Mapping {
    /// Parses one line, without its newline.
    ///
    /// # Errors
    /// Where it is not of the form, or the range is empty.
    pub fn parse(line: &[u8]) -> Result<Self, MapsError> {
        Self::fields(line).ok_or_else(|| MapsError(String::from_utf8_lossy(line).into_owned()))
    }

    fn fields(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = |separator: u8| {
            let end = rest.iter().position(|&byte| byte == separator)?;
            let text = std::str::from_utf8(&rest[..end]).ok()?;
            rest = &rest[end + 1..];
            Some(text)
        };
        let start = u64::from_str_radix(field(b'-')?, 16).ok()?;
        let end = u64::from_str_radix(field(b' ')?, 16).ok()?;
        let permissions = field(b' ')?.as_bytes();
        let executable = *permissions.get(2)? == b'x';
        let writable = *permissions.get(1)? == b'w';
        let file_offset = u64::from_str_radix(field(b' ')?, 16).ok()?;
        let major = u32::from_str_radix(field(b':')?, 16).ok()?;
        let minor = u32::from_str_radix(field(b' ')?, 16).ok()?;
        // A space follows always; more of them pad to the path.
        let inode: u64 = field(b' ')?.parse().ok()?;
        let padding = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
        let path = &rest[padding..];
        let (path, deleted) = match path.strip_suffix(DELETED) {
            Some(path) if inode != 0 => (path, true),
            _ => (path, false),
        };
        (start < end).then(|| Self {
            start,
            end,
            file_offset,
            executable,
            writable,
            device: (major, minor),
            inode,
            path: unescape(path),
            deleted,
        })
    }

    /// Whether a file is mapped.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether it is the vDSO: an ELF image that the kernel maps into every process, and no file.
    #[must_use]
    pub fn is_vdso(&self) -> bool {
        !self.is_file() && self.path.as_os_str() == VDSO
    }

    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Where in the file an address lies, in bytes.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        if !self.contains(address) {
            return None;
        }
        (address - self.start).checked_add(self.file_offset)
    }

    /// Where a place of the file lies in the process.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let address = file_offset
            .checked_sub(self.file_offset)?
            .checked_add(self.start)?;
        self.contains(address).then_some(address)
    }

    /// The bytes of a vDSO, from the process's memory.
    ///
    /// # Errors
    /// Where it is too large for one, or the memory cannot be read.
    pub fn read_vdso(&self, pid: u32) -> io::Result<Vec<u8>> {
        let length = self.end - self.start;
        if length > VDSO_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its vDSO is too large",
            ));
        }
        let mut memory = File::open(format!("/proc/{pid}/mem"))?;
        memory.seek(SeekFrom::Start(self.start))?;
        let mut bytes = Vec::new();
        memory.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens the mapped file; see [`Module::open`].
    ///
    /// # Errors
    /// Where neither way leads to the file that is mapped.
    pub fn open(&self, pid: u32) -> io::Result<(File, PathBuf)> {
        // This one leads to the file itself, whatever became of its name, but takes a capability
        // (CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN).
        let direct = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end));
        let refused = match open_at_once(&direct) {
            Ok(file) if file.metadata()?.is_file() => return Ok((file, direct)),
            Ok(_) => io::Error::from(io::ErrorKind::InvalidInput),
            Err(error) => error,
        };
        // Only where that takes a capability which we have not is the name followed, with our own rights: whoever has mapped the file
        // chooses where its name leads, and their file system may refuse it in any way.
        if refused.raw_os_error() != Some(libc::EPERM) || may_follow_mappings() {
            return Err(refused);
        }
        if self.deleted || !self.path.is_absolute() {
            return Err(refused);
        }
        let mut named = PathBuf::from(format!("/proc/{pid}/root"));
        named.push(self.path.strip_prefix("/").unwrap_or(&self.path));
        // Looked at before it is opened: opening a named pipe would wait.
        let is_it = |file: &fs::Metadata| file.is_file() && file.ino() == self.inode;
        if !is_it(&fs::metadata(&named)?) {
            return Err(replaced(&named));
        }
        let file = open_at_once(&named)?;
        if is_it(&file.metadata()?) {
            Ok((file, named))
        } else {
            Err(replaced(&named))
        }
    }
}

/// Whether this thread has a capability by which the kernel leads from a mapping to its file.
fn may_follow_mappings() -> bool {
    let enough = CapabilitySet::SYS_ADMIN | CapabilitySet::CHECKPOINT_RESTORE;
    capabilities(None).is_ok_and(|own| own.effective.intersects(enough))
}

/// Opens a file of a target's to be read. Whoever holds a lease on it is waited for by nobody (`F_SETLEASE` of fcntl(2)): that could be as
/// long as they like, and others wait for who opens it.
///
/// # Errors
/// Where it cannot be opened at once.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn replaced(path: &Path) -> io::Error {
    let text = format!("{} is no longer the file that is mapped", path.display());
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn unescape(path: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

/// The executable mappings of a process, by address; at most [`MAPPINGS_MAX`], of the first 64 MiB of what the kernel says of them.
///
/// # Errors
/// Where the process is gone (`NotFound`) or the caller may not look at it.
pub fn executable_mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    let is_all = visit_mappings(pid, MAPS_BYTES_MAX, |mapping| {
        if mapping.executable {
            mappings.push(mapping);
        }
        if mappings.len() < MAPPINGS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    if !is_all {
        tracing::debug!(pid, "mappings left out");
    }
    Ok(mappings)
}

/// Shows the mappings of a process one after another, by address, as long as that goes on; those of so many bytes of text at most. Those
/// whose line is longer than 64 KiB are left out. Whether all were looked at.
///
/// # Errors
/// Where the process is gone (`NotFound`) or the caller may not look at it.
pub fn visit_mappings(
    pid: u32,
    most_bytes: u64,
    visit: impl FnMut(Mapping) -> ControlFlow<()>,
) -> io::Result<bool> {
    let text = File::open(format!("/proc/{pid}/maps"))?;
    visit_lines(BufReader::with_capacity(LINE_MAX, text), most_bytes, visit)
}

fn visit_lines(
    mut text: impl BufRead,
    most_bytes: u64,
    mut visit: impl FnMut(Mapping) -> ControlFlow<()>,
) -> io::Result<bool> {
    let (mut line, mut left, mut is_whole) = (Vec::new(), most_bytes, true);
    // Whether what comes is the rest of a line that was too long.
    let mut is_rest = false;
    while left > 0 {
        line.clear();
        let most = left.min(LINE_MAX as u64);
        // The process may end between two lines.
        let length = match text.by_ref().take(most).read_until(b'\n', &mut line) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => 0,
            other => other?,
        };
        if length == 0 {
            return Ok(is_whole);
        }
        left -= length as u64;
        let was_rest = is_rest;
        let ended = line.strip_suffix(b"\n");
        // The last may have no end of its own.
        is_rest = ended.is_none() && length as u64 == most;
        if was_rest || is_rest {
            is_whole = false;
            continue;
        }
        match Mapping::parse(ended.unwrap_or(&line)) {
            Ok(mapping) => {
                if visit(mapping).is_break() {
                    return Ok(is_whole);
                }
            }
            Err(error) => tracing::debug!(%error, "mapping left out"),
        }
    }
    Ok(false)
}

/// A file that a process has mapped to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// As in [`Mapping::path`].
    pub path: PathBuf,
    /// As in [`Mapping::device`].
    pub device: (u32, u32),
    /// As in [`Mapping::inode`].
    pub inode: u64,
    /// Its executable mappings, by address; never empty.
    pub mappings: Vec<Mapping>,
}

impl Module {
    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(OsStr::from_bytes(b"[unnamed]"))
    }

    /// Opens the file, also when it was deleted or is in another mount namespace. The path returned with it
    /// is one that the kernel resolves to the same file as long as the mapping stands.
    ///
    /// # Errors
    /// Where none of the mappings leads to the file.
    pub fn open(&self, pid: u32) -> io::Result<(File, PathBuf)> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for mapping in &self.mappings {
            match mapping.open(pid) {
                Ok(opened) => return Ok(opened),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Where a place of the file lies in the process: every address, as a file can be mapped twice.
    pub fn addresses_of(&self, file_offset: u64) -> impl Iterator<Item = u64> + '_ {
        self.mappings
            .iter()
            .filter_map(move |mapping| mapping.address_of(file_offset))
    }
}

/// Groups the mappings of files by file, in the order in which they first come.
#[must_use]
pub fn modules(mappings: &[Mapping]) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for mapping in mappings
        .iter()
        .filter(|mapping| mapping.is_file() && mapping.executable)
    {
        let Mapping {
            device,
            inode,
            ref path,
            ..
        } = *mapping;
        let at = *index.entry((device, inode)).or_insert_with(|| {
            modules.push(Module {
                path: path.clone(),
                device,
                inode,
                mappings: Vec::new(),
            });
            modules.len() - 1
        });
        modules[at].mappings.push(mapping.clone());
    }
    modules
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use profiler_testkit::skipped;
    use proptest::prelude::*;

    use super::*;
    use crate::executable_mappings;

    /// Maps a file of its own as code, takes a lease on it, says so, and lets nobody have it.
    const LEASEHOLDER: &str = "
import fcntl, mmap, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('ready', flush=True)
sys.stdin.read()
";

    #[test]
    fn a_file_that_somebody_holds_a_lease_on_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leased");
        fs::write(&path, [0_u8; 4096]).unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", LEASEHOLDER]).arg(&path);
        let holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut holder) = holder else {
            return skipped("python3 is not installed");
        };
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said, "ready\n");
        let pid = holder.id();
        let mappings = executable_mappings(pid).unwrap();
        let leased = mappings.iter().find(|mapping| mapping.path == path).unwrap();
        let refused = leased.open(pid).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
    }

    /// The line as the kernel writes it.
    fn line(mapping: &Mapping) -> Vec<u8> {
        let Mapping {
            start,
            end,
            file_offset,
            executable,
            writable,
            device: (major, minor),
            inode,
            path,
            deleted,
        } = mapping;
        let write = if *writable { 'w' } else { '-' };
        let execute = if *executable { 'x' } else { '-' };
        let head = format!(
            "{start:08x}-{end:08x} r{write}{execute}p {file_offset:08x} {major:02x}:{minor:02x} {inode} "
        );
        let mut line = format!("{head:<73}").into_bytes();
        for &byte in path.as_os_str().as_bytes() {
            if byte == b'\n' {
                line.extend(b"\\012");
            } else {
                line.push(byte);
            }
        }
        line.extend(if *deleted { DELETED } else { b"" });
        line
    }

    #[test]
    fn deleted_file_opens() {
        use std::{
            io::Write as _,
            process::{Command, Stdio},
        };
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("odd\nname \u{e9}");
        fs::copy("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The answer shows that it runs its own code and not the spawner's any more.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let inode = fs::metadata(&program).unwrap().ino();
        for deleted in [false, true] {
            let modules = modules(&executable_mappings(child.id()).unwrap());
            let module = modules.iter().find(|module| module.path == program).unwrap();
            assert_eq!((module.inode, module.mappings[0].deleted), (inode, deleted));
            let (file, path) = module.open(child.id()).unwrap();
            assert_eq!(file.metadata().unwrap().ino(), inode);
            assert_eq!(fs::metadata(path).unwrap().ino(), inode);
            if !deleted {
                fs::remove_file(&program).unwrap();
            }
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn own_mappings_are_read_and_open() {
        let mappings = executable_mappings(std::process::id()).unwrap();
        let here = own_mappings_are_read_and_open as *const () as u64;
        let modules = modules(&mappings);
        let own = modules
            .iter()
            .find(|module| module.mappings.iter().any(|one| one.contains(here)))
            .unwrap();
        assert_eq!(own.path, std::env::current_exe().unwrap());
        let mapping = own.mappings.iter().find(|one| one.contains(here)).unwrap();
        let offset = mapping.offset_of(here).unwrap();
        assert_eq!(own.addresses_of(offset).collect::<Vec<_>>(), [here]);
        let (file, path) = own.open(std::process::id()).unwrap();
        assert_eq!(file.metadata().unwrap().ino(), own.inode);
        assert_eq!(fs::metadata(path).unwrap().ino(), own.inode);
        assert!(mappings.iter().any(Mapping::is_vdso));
    }

    #[test]
    fn lines_of_any_length_are_passed_over_and_bytes_are_bounded() {
        let visited = |text: &[u8], most| {
            let mut paths = Vec::new();
            let longest = std::cell::Cell::new(0);
            let all = visit_lines(text, most, |mapping| {
                longest.set(longest.get().max(mapping.path.as_os_str().len()));
                paths.push(mapping.path.as_os_str().len());
                ControlFlow::Continue(())
            });
            assert!(longest.get() <= LINE_MAX);
            (paths, all.unwrap())
        };
        let of_path = |length: usize| {
            let mut line = b"1000-2000 r-xp 00000000 fd:01 42 /".to_vec();
            line.resize(line.len() + length - 1, b'x');
            line.push(b'\n');
            line
        };
        let short = of_path(10);
        let text = [short.clone(), of_path(5 * LINE_MAX), short.clone()].concat();
        assert_eq!(visited(&text, u64::MAX), (vec![10, 10], false));
        let text = short.repeat(100);
        assert_eq!(visited(&text, u64::MAX), (vec![10; 100], true));
        let most = u64::try_from(short.len()).unwrap() * 3;
        assert_eq!(visited(&text, most), (vec![10; 3], false));
        let unended = [short.clone(), short[..short.len() - 1].to_vec()].concat();
        assert_eq!(visited(&unended, u64::MAX), (vec![10; 2], true));
    }

    #[test]
    fn odd_lines() {
        let line = b"7f00-7f10 r-xp 00001000 fd:01 42                         /tmp/a b\\012c (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(mapping.path, Path::new("/tmp/a b\nc"));
        assert!(mapping.deleted && mapping.executable);
        assert_eq!((mapping.device, mapping.inode), ((0xfd, 1), 42));
        assert_eq!(mapping.offset_of(0x7f0f), Some(0x100f));
        assert_eq!(mapping.offset_of(0x7f10), None);
        let anonymous = Mapping::parse(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!anonymous.is_file() && anonymous.path.as_os_str().is_empty());
        assert!(Mapping::parse(b"2000-1000 rw-p 00000000 00:00 0 ").is_err());
        assert!(Mapping::parse(b"").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Mapping::parse(&line);
        }

        #[test]
        fn nearly_right_lines_are_parsed_or_refused(line in "[0-9a-f]{1,17}-[0-9a-f]{1,17} [r-][x-]{1,3} ?[0-9a-f: ]{0,40}[/ \\\\(a-z]{0,20}") {
            let _ = Mapping::parse(line.as_bytes());
        }

        #[test]
        fn parses_every_line_that_the_kernel_can_write(
            (start, length, file_offset) in (0..u64::MAX / 2, 1..u64::MAX / 2, any::<u64>()),
            (executable, writable, device, deleted) in (any::<bool>(), any::<bool>(), any::<(u32, u32)>(), any::<bool>()),
            inode in 1..=u64::MAX,
            rest in prop::collection::vec(1..=u8::MAX, 0..40),
        ) {
            let bytes: Vec<u8> = b"/".iter().copied().chain(rest).collect();
            prop_assume!(!bytes.ends_with(DELETED) && !bytes.windows(4).any(|four| four == b"\\012"));
            let end = start + length;
            let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
            let mapping = Mapping { start, end, file_offset, executable, writable, device, inode, path, deleted };
            prop_assert_eq!(Mapping::parse(&line(&mapping)).unwrap(), mapping);
        }
    }
}
