//! One process, pinned by a descriptor so that its number cannot come to mean another.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, makedev, statx},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    TargetError, ids,
    maps::open_at_once,
    standing::Standing,
    stat::{Stat, Status},
};

/// `EM_X86_64` of the ELF header.
const MACHINE_X86_64: u16 = 62;
/// `ELFCLASS64` of the ELF header.
const CLASS_64: u8 = 2;

/// What an exec replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image {
    device: u64,
    inode: u64,
    /// Where code and stack begin: tells an exec of the same file, as both are placed at random.
    layout: (u64, u64),
}

/// A user process that can be looked at.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    asked: u32,
    descriptor: OwnedFd,
    start_time_ticks: u64,
    name: String,
    executable: PathBuf,
    image: Image,
}

impl Process {
    /// Pins the process that has this number, or whose thread has it, and checks that it can be a
    /// target: a living user process with an x86-64 executable.
    ///
    /// # Errors
    /// See [`TargetError`]: each says why it cannot.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let asked = pid;
        let pid = read_status(asked)?.leader;
        let descriptor = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(TargetError::NotFound(asked))
            .and_then(|raw| {
                pidfd_open(raw, PidfdFlags::empty())
                    .map_err(|error| TargetError::of(pid, "take a descriptor", error.into()))
            })?;
        // All that is read from here on is this process's if it still lives at the end.
        let stat = read_stat(pid)?;
        let name = String::from_utf8_lossy(&stat.name).into_owned();
        if stat.kernel_thread {
            return Err(TargetError::KernelThread { pid, name });
        }
        if stat.ended() {
            return Err(TargetError::Ended(pid));
        }
        let image = read_image(pid, &stat)?;
        check_machine(pid)?;
        let executable = fs::read_link(proc(pid, "exe"))
            .map_err(|error| TargetError::of(pid, "read the executable's path", error))?;
        let process = Self {
            pid,
            asked,
            descriptor,
            start_time_ticks: stat.start_time_ticks,
            name,
            executable,
            image,
        };
        if process.is_alive() {
            Ok(process)
        } else {
            Err(TargetError::Ended(pid))
        }
    }

    /// The process: the number of its first thread.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The number that was asked for, where it was that of another thread of the process.
    #[must_use]
    pub fn asked_for_thread(&self) -> Option<u32> {
        (self.asked != self.pid).then_some(self.asked)
    }

    /// Clock ticks since boot; with the number, unique until the next boot.
    #[must_use]
    pub fn start_time_ticks(&self) -> u64 {
        self.start_time_ticks
    }

    /// Whose it is and what it may do now: what an attach is to be checked against.
    ///
    /// # Errors
    /// [`TargetError::Ended`] where it is gone.
    pub fn standing_now(&self) -> Result<Standing, TargetError> {
        let standing = Standing::of(self.pid);
        if self.is_alive() {
            standing.map_err(|error| TargetError::of(self.pid, "read whose it is", error))
        } else {
            Err(TargetError::Ended(self.pid))
        }
    }

    /// The name of its first thread, at most 15 bytes; chosen by the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The executable's path in the process's own mount namespace; ends in ` (deleted)` where it was.
    #[must_use]
    pub fn executable(&self) -> &Path {
        &self.executable
    }

    /// Device and inode of the executable, as `stat` gives them.
    #[must_use]
    pub fn executable_file(&self) -> (u64, u64) {
        (self.image.device, self.image.inode)
    }

    /// CPU time of all its threads so far, the ended ones too, in nanoseconds; `None` where it is gone. None of its files is read.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        let time_ns = ids::cpu_ns(self.pid)?;
        // Else the number may be another's by now.
        self.is_alive().then_some(time_ns)
    }

    /// Whether it still runs. It is not reaped, and none of its files is read.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !ids::has_ended(self.descriptor.as_fd())
    }

    /// Whether it runs another file than when it was opened, as far as that can be seen; one that ran the same file again does not.
    ///
    /// No file system is waited for. `false` where the process is gone: ask [`Process::is_alive`] for that.
    #[must_use]
    pub fn runs_another_file(&self) -> bool {
        let path = proc(self.pid, "exe");
        let file = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
        file.is_ok_and(|file| {
            let device = makedev(file.stx_dev_major, file.stx_dev_minor);
            (device, file.stx_ino) != self.executable_file()
        }) && self.is_alive()
    }

    /// Whether it has exec'd since it was opened, be it the same file again.
    ///
    /// `false` where the process is gone: ask [`Process::is_alive`] for that.
    #[must_use]
    pub fn executable_changed(&self) -> bool {
        let image = read_stat(self.pid).and_then(|stat| read_image(self.pid, &stat));
        image.is_ok_and(|image| image != self.image) && self.is_alive()
    }
}

/// How much code each of some processes has mapped, in bytes; without those that are gone.
#[must_use]
pub fn mapped_code_bytes(pids: &[u32]) -> BTreeMap<u32, u64> {
    let of = |pid: &u32| Some((*pid, read_status(*pid).ok()?.code_kib * 1024));
    pids.iter().filter_map(of).collect()
}

/// Readable once the process has ended.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn read_stat(pid: u32) -> Result<Stat, TargetError> {
    let what = "read the state";
    let text = fs::read(proc(pid, "stat")).map_err(|error| TargetError::of(pid, what, error))?;
    Stat::parse(&text).ok_or_else(|| malformed(pid, what))
}

fn read_status(pid: u32) -> Result<Status, TargetError> {
    let what = "read the status";
    let text = fs::read(proc(pid, "status")).map_err(|error| TargetError::of(pid, what, error))?;
    Status::parse(&text).ok_or_else(|| malformed(pid, what))
}

fn malformed(pid: u32, what: &'static str) -> TargetError {
    TargetError::System {
        pid,
        what,
        source: io::Error::new(io::ErrorKind::InvalidData, "unknown format"),
    }
}

fn read_image(pid: u32, stat: &Stat) -> Result<Image, TargetError> {
    let file = fs::metadata(proc(pid, "exe"))
        .map_err(|error| TargetError::of(pid, "look at the executable", error))?;
    Ok(Image {
        device: file.dev(),
        inode: file.ino(),
        layout: stat.layout,
    })
}

/// Checks the head of the executable, opened through the process so that a deleted one, or one in
/// another mount namespace, is the right one.
fn check_machine(pid: u32) -> Result<(), TargetError> {
    let mut head = [0; 20];
    open_at_once(&proc(pid, "exe"))
        .and_then(|mut file| file.read_exact(&mut head))
        .map_err(|error| TargetError::of(pid, "read the executable", error))?;
    let machine = u16::from_le_bytes([head[18], head[19]]);
    match (&head[..4], head[4], machine) {
        (b"\x7fELF", CLASS_64, MACHINE_X86_64) => Ok(()),
        (b"\x7fELF", CLASS_64, machine) => Err(TargetError::OtherMachine { pid, machine }),
        (b"\x7fELF", ..) => Err(TargetError::Is32Bit(pid)),
        _ => Err(TargetError::OtherMachine { pid, machine: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::{Child, Command, Stdio},
    };

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// A shell that waits for lines to run.
    fn shell() -> Child {
        Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn answer(child: &mut Child, command: &str) -> String {
        writeln!(child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line
    }

    #[test]
    fn itself() {
        let process = Process::open(std::process::id()).unwrap();
        assert_eq!(process.executable(), std::env::current_exe().unwrap());
        assert!(process.is_alive() && !process.executable_changed());
        let standing = process.standing_now().unwrap();
        assert_eq!(
            standing.users.other_than(rustix::process::getuid().as_raw()),
            None
        );
        assert_eq!(
            standing.groups.other_than(rustix::process::getgid().as_raw()),
            None
        );
        assert!(standing.dumpable && standing.namespace == crate::Namespace::Own);
        assert_eq!(process.asked_for_thread(), None);
    }

    #[test]
    fn its_cpu_time_is_told_to_the_nanosecond() {
        let own_ns = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
        };
        let process = Process::open(std::process::id()).unwrap();
        let before_ns = own_ns();
        let told_ns = process.cpu_ns().unwrap();
        assert!((before_ns..=own_ns()).contains(&told_ns), "{told_ns}");
        let mut child = shell();
        let process = Process::open(child.id()).unwrap();
        assert!(process.cpu_ns().is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(process.cpu_ns(), None);
    }

    #[test]
    fn thread_stands_for_its_process() {
        let thread = std::thread::spawn(|| {
            let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            Process::open(id).map(|process| (id, process.pid(), process.asked_for_thread()))
        });
        let (id, pid, asked) = thread.join().unwrap().unwrap();
        assert_eq!((pid, asked), (std::process::id(), Some(id)));
    }

    #[test]
    fn end_and_exec_are_seen() {
        let mut child = shell();
        assert_eq!(answer(&mut child, "echo ready"), "ready\n");
        let process = Process::open(child.id()).unwrap();
        assert!(process.is_alive() && !process.executable_changed());
        assert_eq!(
            answer(&mut child, "exec bash -c 'echo again; read line; exec cat'"),
            "again\n"
        );
        assert!(process.executable_changed(), "the same file again");
        assert!(
            Process::open(child.id()).is_ok_and(|now| now.executable_file() == process.executable_file())
        );
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!process.is_alive() && !process.executable_changed());
        assert!(matches!(Process::open(child.id()), Err(TargetError::NotFound(_))));
    }

    #[test]
    fn unreaped_process_has_ended() {
        let mut child = shell();
        let process = Process::open(child.id()).unwrap();
        drop(child.stdin.take());
        let mut descriptors = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut descriptors, None).unwrap();
        assert!(!process.is_alive() && !crate::is_running(child.id()));
        assert!(matches!(Process::open(child.id()), Err(TargetError::Ended(_))));
        child.wait().unwrap();
    }

    #[test]
    fn others_are_refused() {
        assert!(matches!(Process::open(0), Err(TargetError::NotFound(0))));
        assert!(matches!(Process::open(u32::MAX), Err(TargetError::NotFound(_))));
        // Number 2 is the parent of the kernel's threads, except inside a PID namespace.
        if fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n") {
            assert!(matches!(
                Process::open(2),
                Err(TargetError::KernelThread { pid: 2, .. })
            ));
        }
    }
}
