//! Programs at functions of the kernel: one link for all of a step, which sees both ends of a call; or two perf events a
//! function, where the kernel has no such links, or a function cannot be traced but is probed by a breakpoint.
//!
//! See `docs/internals/kernel-places.md` for how the kernel's own places are seen.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use aya::maps::{Array, MapData};
use aya_obj::generated::perf_event_attr;

use super::{
    AttachKind, Engine, KernelError, closing,
    events::{self, EventLink},
    kernel_symbols::KernelSymbols,
    syscall,
};

/// Where the kernel says how events at its functions are asked for.
pub(super) const EVENT_SOURCE: &str = "/sys/bus/event_source/devices/kprobe";

/// The programs' names by role.
const BOTH: &str = "kernel_call";
const ENTRY: &str = "kernel_entry";
const EXIT: &str = "kernel_return";
const HIT: &str = "kernel_hit";

/// Where the programs find what says whether a CPU is in an interrupt.
const CPU_STATE: &str = "CPU_STATE";

/// What is seen of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Calls, from entry to return.
    Calls,
    /// That it is entered.
    Entries,
}

/// A function that a program is attached to.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelFunction {
    pub(super) address: u64,
    /// What the program is told there.
    pub(super) cookie: u64,
}

/// Programs at functions. Dropped, they are detached, entries before returns.
#[derive(Default)]
pub(super) struct FunctionLinks {
    entries: Vec<EventLink>,
    exits: Vec<EventLink>,
    both: Vec<OwnedFd>,
}

impl FunctionLinks {
    /// What is to be closed first, and what then.
    pub(super) fn by_order(self) -> [Vec<closing::Link>; 2] {
        let Self { entries, exits, both } = self;
        let mut first = closing::links(entries);
        first.extend(closing::links(both));
        [first, closing::links(exits)]
    }
}

/// Programs, loaded as they are needed: by name, for links or for events.
#[derive(Default)]
pub(super) struct FunctionPrograms {
    loaded: HashMap<(&'static str, bool), OwnedFd>,
    is_ready: bool,
}

impl FunctionPrograms {
    pub(super) fn programs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.loaded.values().map(OwnedFd::as_fd)
    }
}

impl Engine {
    /// Attaches to functions of the kernel. When this returns, every call counts that begins.
    ///
    /// # Errors
    /// Where the kernel refuses one; those before are attached.
    pub(super) fn attach_functions(
        &mut self,
        functions: &[KernelFunction],
        seen: Seen,
        links: &mut FunctionLinks,
    ) -> Result<(), KernelError> {
        if functions.is_empty() {
            return Ok(());
        }
        self.ready_functions()?;
        if self.ability.attach == AttachKind::Multi {
            match self.link_functions(functions, seen) {
                Ok(link) => {
                    links.both.push(link);
                    return Ok(());
                }
                Err(error) => tracing::debug!(%error, "no link for these functions of the kernel"),
            }
        }
        self.attach_function_events(functions, seen, links)
    }

    /// Loads the programs, which is otherwise done when the first function is attached to.
    ///
    /// # Errors
    /// Where the kernel refuses one.
    pub fn load_function_programs(&mut self) -> Result<(), KernelError> {
        if self.ability.attach == AttachKind::Multi {
            self.function_program(BOTH, true)?;
            self.function_program(HIT, true)?;
        }
        for name in [ENTRY, EXIT, HIT] {
            self.function_program(name, false)?;
        }
        Ok(())
    }

    /// One link for all.
    fn link_functions(&mut self, functions: &[KernelFunction], seen: Seen) -> Result<OwnedFd, KernelError> {
        let addresses: Vec<u64> = functions.iter().map(|function| function.address).collect();
        let cookies: Vec<u64> = functions.iter().map(|function| function.cookie).collect();
        let program = self.function_program(if seen == Seen::Calls { BOTH } else { HIT }, true)?;
        syscall::create_function_link(program, &addresses, &cookies).map_err(|error| {
            KernelError::system(format!("attaching to {} functions", functions.len()), error)
        })
    }

    /// Events for each.
    fn attach_function_events(
        &mut self,
        functions: &[KernelFunction],
        seen: Seen,
        links: &mut FunctionLinks,
    ) -> Result<(), KernelError> {
        let _none_is_closed = closing::hold_events()
            .map_err(|error| KernelError::system("attaching to functions of the kernel", error))?;
        let source = events::source(EVENT_SOURCE)?;
        for function in functions {
            if seen == Seen::Calls {
                let exit = self.attach_function_event(source, *function, EXIT, events::AT_RETURN)?;
                links.exits.push(exit);
            }
        }
        for function in functions {
            let program = if seen == Seen::Calls { ENTRY } else { HIT };
            let entry = self.attach_function_event(source, *function, program, 0)?;
            links.entries.push(entry);
        }
        Ok(())
    }

    fn attach_function_event(
        &mut self,
        source: u32,
        KernelFunction { address, cookie }: KernelFunction,
        program: &'static str,
        configuration: u64,
    ) -> Result<EventLink, KernelError> {
        // SAFETY: the structure is plain numbers, all of which may be 0.
        let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
        attributes.type_ = source;
        attributes.config = configuration;
        attributes.__bindgen_anon_4.config2 = address;
        let event = events::open(attributes, None).map_err(|source| refused(address, source))?;
        let program = self.function_program(program, false)?;
        let link = syscall::create_perf_link(program, event.as_fd(), cookie)
            .map_err(|error| refused(address, error))?;
        Ok(EventLink::new(link, event))
    }

    fn function_program(
        &mut self,
        name: &'static str,
        by_links: bool,
    ) -> Result<BorrowedFd<'_>, KernelError> {
        let key = (name, by_links);
        if !self.function_programs.loaded.contains_key(&key) {
            let program = self.multi.load_for_functions(name, by_links)?;
            self.function_programs.loaded.insert(key, program);
        }
        Ok(self.function_programs.loaded[&key].as_fd())
    }

    /// Says where the kernel counts interrupts.
    fn ready_functions(&mut self) -> Result<(), KernelError> {
        if self.function_programs.is_ready {
            return Ok(());
        }
        let state = cpu_state(&KernelSymbols::read()?);
        let map = self
            .ebpf
            .map_mut(CPU_STATE)
            .ok_or(KernelError::Missing(CPU_STATE))?;
        let mut map: Array<&mut MapData, [u64; 2]> = Array::try_from(map)?;
        map.set(0, state, 0)?;
        self.function_programs.is_ready = true;
        Ok(())
    }
}

/// The fields of `profiler_common::settings::CpuState`. From Linux 6.2 to 6.14 the count is in a structure.
fn cpu_state(symbols: &KernelSymbols) -> [u64; 2] {
    let offsets = symbols.address("__per_cpu_offset");
    let count = symbols.address("__preempt_count").or_else(|| {
        let within = super::btf::Btf::read().ok()?.offset("pcpu_hot", "preempt_count");
        Some(symbols.address("pcpu_hot")? + u64::from(within.ok()?))
    });
    if let (Some(offsets), Some(count)) = (offsets, count) {
        return [offsets, count];
    }
    tracing::warn!(
        "this kernel does not say where it counts interrupts: what they call while the target is interrupted counts too"
    );
    [0; 2]
}

/// Why there is no probe at a function.
fn refused(address: u64, source: io::Error) -> KernelError {
    let function =
        KernelSymbols::read().map_or_else(|_| format!("{address:#x}"), |symbols| symbols.name_at(address));
    KernelError::KernelFunction { function, source }
}
