//! A process that is single-stepped.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Command, Stdio},
};

use libc::{c_int, user_regs_struct};
use profiler_common::unwind::register::COUNT;
use profiler_testkit::stepping::Stepping;
use profiler_unwind::Memory;

/// Why it stopped.
pub enum Stop {
    /// After an instruction, or at a handler's first.
    Stepped,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// It is gone, with this status; none where a signal ended it.
    Exited(Option<c_int>),
}

/// Traced by the thread that started it.
pub struct Tracee {
    stepping: Stepping,
    memory: File,
    pub registers: user_regs_struct,
}

impl Tracee {
    /// Starts a program and stops it at its first instruction.
    pub fn start(path: &Path) -> Self {
        let mut command = Command::new(path);
        command.stdout(Stdio::piped()).env("LANG", "C");
        let stepping = Stepping::start(&mut command);
        Self {
            memory: File::open(format!("/proc/{}/mem", stepping.pid())).unwrap(),
            registers: stepping.registers().unwrap(),
            stepping,
        }
    }

    pub fn pid(&self) -> u32 {
        self.stepping.pid()
    }

    /// Goes on by one instruction, or into the handler of `signal`.
    pub fn step(&mut self, signal: Option<c_int>) -> Stop {
        if let Some(signal) = signal {
            self.stepping.send(signal);
        }
        let Some(stop) = self.stepping.step() else {
            return Stop::Exited(self.stepping.exit_status());
        };
        self.registers = stop.registers;
        stop.signal.map_or(Stop::Stepped, Stop::Signal)
    }

    /// What it wrote.
    pub fn output(&mut self) -> String {
        self.stepping.output()
    }

    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
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
