//! Runs a program instruction by instruction (`ptrace(2)`), to hold what is said of its code against what it does.

use std::{
    fs,
    io::{Error, Read as _},
    mem::MaybeUninit,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    ptr::null_mut,
};

use libc::user_regs_struct;

/// A thread of the program, where it stands before its next instruction.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// Its number.
    pub thread: i32,
    /// Its registers.
    pub registers: user_regs_struct,
    /// A signal that its next step leads into the handler of, or ends it by.
    pub signal: Option<i32>,
    /// It is the first instruction of another program, which it has executed.
    pub is_another_program: bool,
}

/// A program of which all threads take single steps; its children run freely.
#[derive(Debug)]
pub struct Stepping {
    pid: i32,
    /// The program, where it was started for this: it ends with this.
    child: Option<Child>,
    /// The thread that stands still, and the signal that it is to get.
    stopped: Option<(i32, i32)>,
    /// What the kernel said of its end.
    ended: Option<i32>,
}

impl Stepping {
    /// Starts a program, which stands before its first instruction. All of its steps are to be asked for by the thread that calls
    /// this.
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: the child calls `ptrace` and nothing else before it executes the program; that allocates nothing and takes no lock.
        let command = unsafe { command.pre_exec(|| request(libc::PTRACE_TRACEME, 0, 0).map(drop)) };
        let child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut stepping = Self::of(pid, Some(child));
        assert_eq!(stepping.wait(), Some((pid, libc::SIGTRAP << 8 | 0x7f)));
        request(libc::PTRACE_SETOPTIONS, pid, options(libc::PTRACE_O_EXITKILL)).unwrap();
        stepping.stopped = Some((pid, 0));
        stepping
    }

    /// Takes hold of a process that runs, and lets it run on when this is dropped.
    pub fn attach(pid: u32) -> Self {
        for thread in threads(pid) {
            // One that has ended meanwhile takes no steps.
            if request(libc::PTRACE_SEIZE, thread, options(0)).is_ok() {
                let _ = request(libc::PTRACE_INTERRUPT, thread, 0);
            }
        }
        Self::of(pid.try_into().unwrap(), None)
    }

    fn of(pid: i32, child: Option<Child>) -> Self {
        Self {
            pid,
            child,
            stopped: None,
            ended: None,
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// The registers of the thread that stands still.
    pub fn registers(&self) -> Option<user_regs_struct> {
        registers(self.stopped?.0)
    }

    /// Sends a signal to the thread that stands still: its next step leads into the handler.
    pub fn send(&mut self, signal: i32) {
        if let Some((_, sent)) = &mut self.stopped {
            *sent = signal;
        }
    }

    /// Lets the thread that stands still take a step, and waits until one of all stands still again; `None` once the program has
    /// ended.
    pub fn step(&mut self) -> Option<Stop> {
        loop {
            if let Some((thread, signal)) = self.stopped.take() {
                // One that has been killed meanwhile is heard of below.
                let _ = request(libc::PTRACE_SINGLESTEP, thread, signal.try_into().unwrap());
            }
            let (thread, status) = self.wait()?;
            if !libc::WIFSTOPPED(status) {
                continue;
            }
            let signal = signal_of(status);
            self.stopped = Some((thread, signal));
            if let Some(registers) = registers(thread) {
                return Some(Stop {
                    thread,
                    registers,
                    signal: (signal != 0).then_some(signal),
                    is_another_program: status >> 16 == libc::PTRACE_EVENT_EXEC,
                });
            }
        }
    }

    /// Its exit status, once it has ended; `None` where a signal ended it too.
    pub fn exit_status(&self) -> Option<i32> {
        let ended = self.ended.filter(|&status| libc::WIFEXITED(status));
        ended.map(|status| libc::WEXITSTATUS(status))
    }

    /// The output of a program that was started with a pipe for it, to the end.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        let pipe = self.child.as_mut().and_then(|child| child.stdout.take());
        pipe.unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// The eight bytes at an address of its memory.
    pub fn word_at(&self, address: u64) -> Option<u64> {
        let (thread, _) = self.stopped?;
        // SAFETY: this sets the calling thread's `errno`, which belongs to it.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: it reads the memory of another process, and is given no address of this one.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, thread, address, 0_u64) };
        let failed = Error::last_os_error().raw_os_error() != Some(0);
        (word != -1 || !failed).then_some(word.cast_unsigned())
    }

    /// Waits for the next event of a thread; `None` at the end of the program. Children of other threads of the caller are left
    /// alone.
    fn wait(&mut self) -> Option<(i32, i32)> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is written to, and lives until it returns.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if thread > 0 {
                if !libc::WIFSTOPPED(status) && thread == self.pid {
                    self.ended = Some(status);
                    return None;
                }
                return Some((thread, status));
            }
            let error = Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{error}");
        }
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Some(child) = &mut self.child {
            // It may have ended by itself meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        // A step whose signal has not been waited for would end the process by it.
        let mut held = threads(self.pid());
        for &thread in &held {
            let _ = request(libc::PTRACE_INTERRUPT, thread, 0);
        }
        let mut next = self.stopped.take();
        while !held.is_empty() {
            let waited = |stepping: &mut Self| {
                stepping
                    .wait()
                    .map(|(thread, status)| (thread, signal_of(status)))
            };
            let Some((thread, signal)) = next.take().or_else(|| waited(self)) else {
                return;
            };
            let _ = request(libc::PTRACE_DETACH, thread, signal.try_into().unwrap());
            held.retain(|&other| other != thread);
        }
    }
}

/// The threads of a process.
fn threads(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.map(|task| task.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().parse().unwrap())
        .collect()
}

/// The signal that a thread which stands still is to get; 0 for none.
fn signal_of(status: i32) -> i32 {
    // A new thread begins with the one signal, each step ends with the other.
    match libc::WSTOPSIG(status) {
        libc::SIGTRAP | libc::SIGSTOP => 0,
        signal => signal,
    }
}

/// New threads are stepped too, and other programs are told.
fn options(more: i32) -> u64 {
    (libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC | more)
        .try_into()
        .unwrap()
}

/// A request that gets a number.
fn request(request: libc::c_uint, thread: i32, number: u64) -> Result<i64, Error> {
    // SAFETY: these requests take no address of this process.
    match unsafe { libc::ptrace(request, thread, null_mut::<u8>(), number) } {
        -1 => Err(Error::last_os_error()),
        answer => Ok(answer),
    }
}

fn registers(thread: i32) -> Option<user_regs_struct> {
    let mut registers = MaybeUninit::<user_regs_struct>::uninit();
    // SAFETY: `registers` has room for what the kernel writes there.
    let answer = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGS,
            thread,
            null_mut::<u8>(),
            registers.as_mut_ptr(),
        )
    };
    // SAFETY: the kernel has written all of it.
    (answer != -1).then(|| unsafe { registers.assume_init() })
}
