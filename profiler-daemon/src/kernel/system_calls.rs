//! System calls: who has them counted, and what the programs have counted.
//!
//! The programs count for the turn that it is. A turn's counts are taken once no program can be adding to them any more:
//! when the next turn has been on for a while, or the kernel has been waited for.
//!
//! See `docs/internals/system-calls.md` for how system calls are counted.

use std::{
    borrow::Cow,
    mem::offset_of,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use memmap2::MmapRaw;
use profiler_common::{
    record::{SYSTEM_CALL, SpanRef, SystemCallHeader},
    system_call::{BEGUN_BEFORE, COMPAT, CallCount, CallKey, CallWatch, NO_CALL, OpenCall},
};
use rustix::thread::{MembarrierCommand, membarrier};

use super::{
    Engine, Gate, KernelError, SharedStack,
    counts::{half, map, word},
    ring::Reader,
    tracepoints::{self, Place},
};
use crate::abi;

/// What is attached, in this order: no call is seen to begin whose end is not.
pub(super) const PLACES: [Place; 2] = [("syscall_exit", "sys_exit"), ("syscall_enter", "sys_enter")];

/// How long programs are waited for where the kernel has no way to do so.
const PATIENCE: Duration = Duration::from_millis(5);

/// A kind of system call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallNumber {
    /// As its interface has it.
    pub number: u32,
    /// The interface is the 32-bit one.
    pub is_32_bit: bool,
}

impl CallNumber {
    fn new(number: u32) -> Self {
        Self {
            number: number & !COMPAT,
            is_32_bit: number & COMPAT != 0,
        }
    }

    /// What a thread is in, as the programs say it.
    #[must_use]
    pub fn of_thread(number: u32) -> Option<Self> {
        (number != NO_CALL).then(|| Self::new(number))
    }

    /// As the programs say it.
    #[must_use]
    pub fn in_programs(self) -> u32 {
        self.number | if self.is_32_bit { COMPAT } else { 0 }
    }

    /// As recordings have it: 0 for none.
    #[must_use]
    pub fn recorded(call: Option<Self>) -> u32 {
        call.map_or(NO_CALL, Self::in_programs).wrapping_add(1)
    }

    /// What is recorded so.
    #[must_use]
    pub fn of_recorded(number: u32) -> Option<Self> {
        Self::of_thread(number.wrapping_sub(1))
    }

    /// Its name; of one that is newer than the tables its number.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match abi::system_call(self.number, self.is_32_bit) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("syscall_{}", self.number)),
        }
    }
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallResult {
    /// It succeeded, or does not return.
    Done,
    /// It returned this error.
    Failed(u32),
    /// It had begun before it was watched.
    BegunBefore,
}

/// Calls that were counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedCalls {
    /// The process.
    pub tgid: u32,
    /// Gates of those who count them.
    pub views: u32,
    /// Which call.
    pub call: CallNumber,
    /// What came of them.
    pub result: CallResult,
    /// [`SharedStack::id`] of who made them; 0 where that was not taken.
    pub stack: u64,
    /// Their number.
    pub calls: u64,
    /// The sum of their durations.
    pub time_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
}

/// A system call that has returned in open spans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReturnedCall {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Which call.
    pub call: CallNumber,
    /// The error that it returned; 0 for none.
    pub error: u32,
    /// `CLOCK_MONOTONIC`, when it began.
    pub start_ns: u64,
    /// When it was about to return.
    pub end_ns: u64,
    /// Spans that were open, outermost first.
    pub spans: Vec<SpanRef>,
}

impl ReturnedCall {
    /// Reads one; `None` where the bytes are something else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        // Field by field, in the order of `SystemCallHeader`, whose offsets are asserted.
        let (kind, spans, tgid, tid) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let (start_ns, end_ns, number, error) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u32()?);
        if kind != SYSTEM_CALL {
            return None;
        }
        Some(Self {
            tgid,
            tid,
            call: CallNumber::new(number),
            error,
            start_ns,
            // Clocks of two CPUs may differ by a little.
            end_ns: end_ns.max(start_ns),
            spans: (0..spans).map(|_| reader.span()).collect::<Option<_>>()?,
        })
    }
}

const _: () = assert!(size_of::<SystemCallHeader>() == 40);

/// A call that has not returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenSystemCall {
    /// The process.
    pub tgid: u32,
    /// Gates of those who count it.
    pub views: u32,
    /// Which call.
    pub call: CallNumber,
}

/// Who has calls counted, in memory that is shared with the programs.
pub(super) struct CallViews(MmapRaw);

impl CallViews {
    /// Maps it.
    ///
    /// # Errors
    /// Where that fails.
    pub fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        Ok(Self(map(ebpf, "CALL_WATCH", size_of::<CallWatch>())?))
    }

    fn add(&self, gate: Gate, in_spans: bool) {
        let (bits, since_ns) = (gate.bits(), gate.since_ns());
        let place = offset_of!(CallWatch, since_ns) + bits.trailing_zeros() as usize * 8;
        word(&self.0, place).store(since_ns, Ordering::Relaxed);
        // What began before is looked at one by one.
        word(&self.0, offset_of!(CallWatch, latest_ns)).fetch_max(since_ns, Ordering::Release);
        half(&self.0, offset_of!(CallWatch, live)).fetch_or(bits, Ordering::Release);
        if in_spans {
            half(&self.0, offset_of!(CallWatch, in_spans)).fetch_or(bits, Ordering::Release);
        }
    }

    fn remove(&self, gate: Gate) {
        for place in [offset_of!(CallWatch, in_spans), offset_of!(CallWatch, live)] {
            half(&self.0, place).fetch_and(!gate.bits(), Ordering::Release);
        }
    }

    fn turn(&self) -> u32 {
        half(&self.0, offset_of!(CallWatch, turn)).load(Ordering::Acquire)
    }
}

impl Engine {
    /// Has system calls counted for whom a gate stands: those in spans that open it, or else those of all threads of
    /// processes that [`Engine::sample`] is told of.
    pub fn add_call_view(&self, gate: Gate, in_spans: bool) {
        self.call_views.add(gate, in_spans);
    }

    /// No more. What has been counted for it may still come.
    pub fn remove_call_view(&self, gate: Gate) {
        self.call_views.remove(gate);
    }

    /// Begins another turn of counting; with `waits`, no program is counting for an earlier one any more when this
    /// returns.
    pub fn turn_calls(&self, waits: bool) {
        half(&self.call_views.0, offset_of!(CallWatch, turn)).fetch_add(1, Ordering::AcqRel);
        // Programs at tracepoints run in what the kernel waits for.
        if waits && membarrier(MembarrierCommand::Global).is_err() {
            std::thread::sleep(PATIENCE);
        }
    }

    /// Takes what was counted in earlier turns.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn take_calls(&mut self) -> Result<Vec<CountedCalls>, KernelError> {
        let turn = self.call_views.turn();
        let mut counts: HashMap<&mut MapData, [u64; KEY_WORDS], [u64; COUNT_WORDS]> = self
            .ebpf
            .map_mut(COUNTS)
            .ok_or(KernelError::Missing(COUNTS))?
            .try_into()?;
        let is_earlier = |key: &[u64; KEY_WORDS]| low(key[3]) != turn;
        let keys = counts.keys().filter(|key| key.as_ref().map_or(true, is_earlier));
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            let [calls, time_ns, longest_ns] = counts.get(&key, 0)?;
            counts.remove(&key)?;
            // Field by field, in the order of `CallKey`, whose offsets are asserted.
            let [stack, process, what, _] = key;
            let result = match high(what) {
                0 => CallResult::Done,
                BEGUN_BEFORE => CallResult::BegunBefore,
                error => CallResult::Failed(error),
            };
            taken.push(CountedCalls {
                tgid: low(process),
                views: high(process),
                call: CallNumber::new(low(what)),
                result,
                stack,
                calls,
                time_ns,
                longest_ns,
            });
        }
        Ok(taken)
    }

    /// Calls that have not returned.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn open_calls(&self) -> Result<Vec<OpenSystemCall>, KernelError> {
        let map = self.ebpf.map(OPEN).ok_or(KernelError::Missing(OPEN))?;
        let open: HashMap<&MapData, u64, [u64; OPEN_WORDS]> = map.try_into()?;
        let mut calls = Vec::new();
        for item in &open {
            // One that returns meanwhile is not open any more.
            let Ok((_, [_, _, process, what])) = item else {
                continue;
            };
            calls.push(OpenSystemCall {
                tgid: low(process),
                views: high(process),
                call: CallNumber::new(low(what)),
            });
        }
        Ok(calls)
    }

    /// The stack of a number that calls were counted by, once it has come.
    #[must_use]
    pub fn shared_stack(&self, id: u64) -> Option<Arc<SharedStack>> {
        self.shared_stacks.get(id)
    }
}

/// The lower half of a word, which holds the first of two fields.
#[expect(clippy::cast_possible_truncation, reason = "half of it is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

/// The upper half.
fn high(word: u64) -> u32 {
    low(word >> 32)
}

/// Forgets what was open or counted when calls were last watched.
pub(super) fn forget(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    tracepoints::clear::<u64, OPEN_WORDS>(ebpf, OPEN)?;
    tracepoints::clear::<[u64; KEY_WORDS], COUNT_WORDS>(ebpf, COUNTS)
}

const COUNTS: &str = "CALL_COUNTS";
const OPEN: &str = "OPEN_CALLS";

const KEY_WORDS: usize = size_of::<CallKey>() / 8;
const COUNT_WORDS: usize = size_of::<CallCount>() / 8;
const OPEN_WORDS: usize = size_of::<OpenCall>() / 8;

const _: () = assert!(KEY_WORDS == 4 && COUNT_WORDS == 3 && OPEN_WORDS == 4);
