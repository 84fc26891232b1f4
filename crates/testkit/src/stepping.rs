//! Runs a program instruction by instruction (`ptrace(2)`), to hold what is said of its code against what it does.

use std::{
    io::Error,
    mem::MaybeUninit,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    ptr::null_mut,
};

/// A thread of the program, where it stands before its next instruction.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// Its number.
    pub thread: i32,
    /// Address of the instruction that it executes next.
    pub address: u64,
    /// Its stack pointer.
    pub stack_pointer: u64,
    /// It is the first instruction of another program, which it has executed.
    pub is_another_program: bool,
}

/// A program of which all threads take single steps; its children run freely. It ends with this.
#[derive(Debug)]
pub struct Stepping {
    child: Child,
    /// The thread that stands still, and the signal that it is to get.
    stopped: Option<(i32, i32)>,
}

impl Stepping {
    /// Starts a program, which stands before its first instruction. All of its steps are to be asked for by the thread that calls this.
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: the child calls `ptrace` and nothing else before it executes the program; that allocates nothing and takes no lock.
        let command = unsafe { command.pre_exec(|| request(libc::PTRACE_TRACEME, 0, 0).map(drop)) };
        let child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut stepping = Self { child, stopped: None };
        assert_eq!(stepping.wait(), Some((pid, libc::SIGTRAP << 8 | 0x7f)));
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
        request(libc::PTRACE_SETOPTIONS, pid, options.try_into().unwrap()).unwrap();
        stepping.stopped = Some((pid, 0));
        stepping
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the thread that stands still take a step, and waits until one of all stands still again; `None` once it has ended.
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
            let signal = libc::WSTOPSIG(status);
            // A new thread begins with the one signal, each step ends with the other.
            let own = signal == libc::SIGTRAP || signal == libc::SIGSTOP;
            self.stopped = Some((thread, if own { 0 } else { signal }));
            if let Some(registers) = registers(thread) {
                return Some(Stop {
                    thread,
                    address: registers.rip,
                    stack_pointer: registers.rsp,
                    is_another_program: status >> 16 == libc::PTRACE_EVENT_EXEC,
                });
            }
        }
    }

    /// The eight bytes at an address of its memory.
    pub fn word_at(&self, address: u64) -> Option<u64> {
        let (thread, _) = self.stopped?;
        // SAFETY: this sets the calling thread's `errno`, which belongs to it.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: it reads the memory of another process, which it is given no address of ours for.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, thread, address, 0_u64) };
        let failed = Error::last_os_error().raw_os_error() != Some(0);
        (word != -1 || !failed).then_some(word.cast_unsigned())
    }

    /// Waits for the next event of a thread: children of other threads of this program are left alone.
    fn wait(&self) -> Option<(i32, i32)> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is written to, and lives until it returns.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if thread > 0 {
                let is_end = !libc::WIFSTOPPED(status) && thread.cast_unsigned() == self.child.id();
                return (!is_end).then_some((thread, status));
            }
            let error = Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{error}");
        }
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        // Of one that has ended, nothing is left to kill or to wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request that gets a number.
fn request(request: libc::c_uint, thread: i32, number: u64) -> Result<i64, Error> {
    // SAFETY: these requests take no address of ours.
    match unsafe { libc::ptrace(request, thread, null_mut::<u8>(), number) } {
        -1 => Err(Error::last_os_error()),
        answer => Ok(answer),
    }
}

fn registers(thread: i32) -> Option<libc::user_regs_struct> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
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
