//! A process that is single-stepped.

use std::{
    fs::File,
    io::Read as _,
    mem::zeroed,
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    ptr::null_mut,
};

use libc::{c_int, c_void, pid_t, user_regs_struct};
use profiler_common::unwind::register::COUNT;
use profiler_unwind::Memory;

/// Why it stopped.
pub enum Stop {
    /// After an instruction, or at a handler's first.
    Stepped,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// It is gone, with this status.
    Exited(c_int),
}

/// Traced by the thread that started it.
pub struct Tracee {
    child: Child,
    memory: File,
    pub registers: user_regs_struct,
}

impl Tracee {
    /// Starts a program and stops it at its first instruction.
    pub fn start(path: &Path) -> Self {
        let mut command = Command::new(path);
        command.stdout(Stdio::piped()).env("LANG", "C");
        // SAFETY: the closure makes one system call, which is safe after a fork.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let child = command.spawn().unwrap();
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        // SAFETY: a structure of integers.
        let registers = unsafe { zeroed() };
        let mut tracee = Self {
            child,
            memory,
            registers,
        };
        assert!(matches!(tracee.wait(), Stop::Stepped));
        tracee.request(
            libc::PTRACE_SETOPTIONS,
            libc::PTRACE_O_EXITKILL as usize as *mut c_void,
        );
        // The memory as it was opened may be that of before the exec.
        tracee.memory = File::open(format!("/proc/{}/mem", tracee.child.id())).unwrap();
        tracee
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Goes on by one instruction, or into the handler of `signal`.
    pub fn step(&mut self, signal: Option<c_int>) -> Stop {
        self.request(
            libc::PTRACE_SINGLESTEP,
            std::ptr::without_provenance_mut(signal.unwrap_or(0).unsigned_abs() as usize),
        );
        self.wait()
    }

    /// What it wrote.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    fn wait(&mut self) -> Stop {
        let mut status = 0;
        // SAFETY: the status is written to a variable of ours.
        let waited = unsafe { libc::waitpid(self.pid_t(), &raw mut status, 0) };
        assert_eq!(waited, self.pid_t());
        if libc::WIFEXITED(status) {
            return Stop::Exited(libc::WEXITSTATUS(status));
        }
        assert!(libc::WIFSTOPPED(status), "it was killed: status {status:#x}");
        let registers = &raw mut self.registers;
        self.request(libc::PTRACE_GETREGS, registers.cast());
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Stop::Stepped,
            signal => Stop::Signal(signal),
        }
    }

    fn request(&self, request: libc::c_uint, data: *mut c_void) {
        // SAFETY: the requests made are those of this file: the data is a number, or a register structure of ours
        // that is alive.
        let done = unsafe { libc::ptrace(request, self.pid_t(), null_mut::<c_void>(), data) };
        assert_ne!(done, -1, "{}", std::io::Error::last_os_error());
    }

    fn pid_t(&self) -> pid_t {
        self.child.id().try_into().unwrap()
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It may be gone already, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Memory for Tracee {
    fn read(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn register(&self, number: u8) -> Option<u64> {
        let r = &self.registers;
        let all: [u64; COUNT as usize] = [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ];
        all.get(usize::from(number)).copied()
    }
}
