//! A process that is starting a program, or has its memory locked, for as long as a test likes.
//!
//! A file that it has open for itself is of a file system that does not answer when the kernel closes it, amid the `execve`, or reads a
//! page of it. The file system is a single file, and the test serves it (`include/uapi/linux/fuse.h`).

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, PipeWriter, Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use tempfile::NamedTempFile;

use super::fixture;

/// Who reads for longer than this is kept waiting.
const LONGEST_READ: Duration = Duration::from_secs(2);

/// The process.
pub struct Starting {
    pid: u32,
    go: PipeWriter,
    closing: Receiver<()>,
    answer: Option<Sender<()>>,
    spawned: Option<JoinHandle<Child>>,
    _mounted: Mounted,
}

/// A file system that is mounted over a file.
struct Mounted(NamedTempFile);

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = c_path(self.0.path());
        // SAFETY: the path ends in a zero, and lives through the call.
        let unmounted = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        assert_eq!(unmounted, 0, "{}", io::Error::last_os_error());
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

impl Starting {
    /// One of root's that has not begun to; `None` where the kernel has no such file systems.
    pub fn begin() -> Option<Self> {
        Self::begin_as(0)
    }

    /// The same of a user's, who has the file system.
    pub fn begin_as(uid: u32) -> Option<Self> {
        Self::begin_held(uid, Held::ByStart)
    }

    /// One of root's whose memory will be locked, before it starts the program.
    pub fn begin_locked() -> Option<Self> {
        Self::begin_held(0, Held::ByMemory)
    }

    fn begin_held(uid: u32, held: Held) -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let file = NamedTempFile::new().unwrap();
        let path = c_path(file.path());
        let options = format!(
            "fd={},rootmode=100000,user_id={uid},group_id={uid}",
            device.as_raw_fd()
        );
        let options = CString::new(options).unwrap();
        // SAFETY: all texts end in a zero, and live through the call.
        let mounted = unsafe {
            libc::mount(
                c"test".as_ptr(),
                path.as_ptr(),
                c"fuse".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                options.as_ptr().cast(),
            )
        };
        assert_eq!(mounted, 0, "{}", io::Error::last_os_error());
        let mounted = Mounted(file);
        let (closes, closing) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || serve(device, &closes, &answers));
        let (mut told, tell) = io::pipe().unwrap();
        let (waits, go) = io::pipe().unwrap();
        // Whatever folder it lies in, anybody may start an open file.
        let program = File::open(fixture::directory().join("idle")).unwrap();
        let spawned = thread::spawn(move || {
            let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
            command.uid(uid).gid(uid);
            // The program runs until its input ends.
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let prepare = move || hold(&path, held, &tell, &waits);
            // SAFETY: it makes system calls and nothing else.
            unsafe { command.pre_exec(prepare) };
            command.spawn().unwrap()
        });
        let mut pid = [0; 4];
        told.read_exact(&mut pid).unwrap();
        Some(Self {
            pid: u32::from_ne_bytes(pid),
            go,
            closing,
            answer: Some(answer),
            spawned: Some(spawned),
            _mounted: mounted,
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it start the program, or touch its memory: amid that when this returns.
    pub fn go(&mut self) {
        self.go.write_all(&[0]).unwrap();
        self.closing.recv().unwrap();
    }

    /// The same. Whether who reads what it has mapped waits for it meanwhile: not where the kernel closes files before it takes
    /// `exec_update_lock`.
    pub fn go_silent(&mut self) -> bool {
        self.go();
        let maps = format!("/proc/{}/maps", self.pid);
        let (done, read) = mpsc::channel();
        // It may be read once the process goes on.
        thread::spawn(move || done.send(fs::read(maps)));
        match read.recv_timeout(LONGEST_READ) {
            Ok(maps) => {
                maps.unwrap();
                false
            }
            Err(_) => true,
        }
    }

    /// Lets it go on.
    pub fn answer(&mut self) {
        self.answer = None;
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Where it has not begun, that ends it all the same.
        let _ = self.go.write_all(&[0]);
        self.answer();
        if let Some(Ok(mut child)) = self.spawned.take().map(JoinHandle::join) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// By what a process is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    ByStart,
    ByMemory,
}

/// In the process, before it starts the program.
fn hold(path: &CString, held: Held, tell: &PipeWriter, waits: &io::PipeReader) -> io::Result<()> {
    // SAFETY: the path ends in a zero, all buffers are as long as is said, and what is mapped is read within its page.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel has asked how long it is.
        let mut status: libc::stat = std::mem::zeroed();
        libc::fstat(file, &raw mut status);
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file,
            0,
        );
        let pid = libc::getpid();
        libc::write(tell.as_raw_fd(), (&raw const pid).cast(), size_of_val(&pid));
        let mut byte = 0_u8;
        libc::read(waits.as_raw_fd(), (&raw mut byte).cast(), 1);
        if held == Held::ByMemory && page != libc::MAP_FAILED {
            page.cast::<u8>().read_volatile();
        }
    }
    Ok(())
}

/// What the kernel asks a file system for.
mod asked {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const RELEASE: u32 = 18;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
}

/// Bytes of the file.
const PAGE: usize = 4096;

/// Longest request: what is written at once, and a page for its head.
const MAX_REQUEST: usize = 1 << 17;

/// Serves the file system until it is unmounted. Says when its file is being closed, and lets that happen once nobody holds it up.
fn serve(mut device: File, closes: &Sender<()>, answers: &Receiver<()>) {
    let mut request = vec![0; MAX_REQUEST];
    let mut reads = 0;
    while device.read(&mut request).is_ok() {
        // The head: length, what is asked for, the request's number.
        let [what, number] = [4..8, 8..16].map(|bytes| request[bytes].to_vec());
        let (mut error, mut body) = (0_i32, Vec::new());
        match u32::from_ne_bytes(what.try_into().unwrap()) {
            asked::INIT => body = ability(),
            // A number of its own, no flags.
            asked::OPEN => body = vec![0; 16],
            asked::FLUSH => {
                let _ = closes.send(());
                // Until the other end is gone.
                let _ = answers.recv();
            }
            asked::GETATTR => body = attributes(),
            // The first time, the memory is not locked meanwhile. When that has failed, it is the next time.
            asked::READ if reads == 0 => {
                reads += 1;
                error = -libc::EIO;
            }
            asked::READ => {
                let _ = closes.send(());
                let _ = answers.recv();
                body = vec![0; PAGE];
            }
            asked::RELEASE => {}
            asked::FORGET | asked::BATCH_FORGET | asked::INTERRUPT => continue,
            _ => error = -libc::ENOSYS,
        }
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut answer = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        answer.extend(number);
        answer.extend(body);
        // Who asked may have been interrupted.
        let _ = device.write(&answer);
    }
}

/// What the file is like (`fuse_attr_out`): anybody may read it.
fn attributes() -> Vec<u8> {
    // How long this holds; the file's number, size and blocks.
    let numbers = [0_u64, 0, 1, PAGE as u64, 8, 0, 0, 0];
    let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    // Parts of times, mode, links, owner, group, device, size of blocks, flags.
    let rest = [0, 0, 0, libc::S_IFREG | 0o444, 1, 0, 0, 0, 4096, 0];
    body.extend(rest.iter().flat_map(|number| number.to_ne_bytes()));
    body
}

/// What it can do: nothing beyond version 7.31 of the protocol.
fn ability() -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect::<Vec<_>>()
    };
    // The version, what is read ahead, flags; how much is asked for at once; how much is written at once, the grain of times.
    let mut body = words(&[7, 31, 0, 0]);
    body.extend([16_u16, 12].iter().flat_map(|number| number.to_ne_bytes()));
    body.extend(words(&[4096, 1]));
    body.resize(64, 0);
    body
}
