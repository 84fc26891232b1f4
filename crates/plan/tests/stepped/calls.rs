//! The calls of a run.

use std::{
    collections::HashMap,
    fmt::{self, Display, Formatter},
    ops::Range,
    rc::Rc,
};

use profiler_testkit::{
    mapped,
    stepping::{Stepping, Stop},
};

use super::module::{Checked, Module, Planned};

/// A stack pointer that moves by more has moved to another stack.
const ONE_STACK: u64 = 1 << 16;

/// Bytes of arguments that a function may take off the stack as it returns.
const TAKEN_OFF: u64 = 256;

/// What a program did, and where that differs from the plan.
#[derive(Default)]
pub struct Run {
    /// Differences, as far as they are of different places.
    pub wrong: Vec<String>,
    /// Calls of planned functions that returned.
    pub ended: u64,
    /// Calls that exceptions, `longjmp` or switches of stacks have ended, that a signal interrupted, or that are of functions without
    /// a plan.
    left: u64,
    steps: u64,
    signals: u64,
    threads: HashMap<i32, Thread>,
    modules: Vec<Module>,
    mapped: Vec<Mapped>,
    /// Pages of code that is of no file.
    unknown: std::collections::HashSet<u64>,
    checked: Vec<(String, Checked)>,
}

struct Mapped {
    range: Range<u64>,
    bias: u64,
    module: usize,
}

#[derive(Default)]
struct Thread {
    last: Option<At>,
    calls: Vec<Call>,
}

/// Where a thread stands: at an instruction of a file.
#[derive(Clone, Copy)]
struct At {
    module: usize,
    address: u64,
    bias: u64,
    stack_pointer: u64,
}

struct Call {
    module: usize,
    of: Rc<Planned>,
    stack_pointer: u64,
    returns_to: u64,
    entered: u32,
    has_left: bool,
    /// A handler has run meanwhile: an instruction that it interrupts can be seen twice, or not at all.
    is_interrupted: bool,
}

impl Run {
    /// Takes in where a thread has come.
    pub fn step(&mut self, program: &Stepping, stop: Stop) {
        self.steps += 1;
        if stop.is_another_program {
            self.threads.clear();
            self.mapped.clear();
            self.unknown.clear();
        }
        let here = self.place(program, stop);
        let mut thread = self.threads.remove(&stop.thread).unwrap_or_default();
        if stop.signal.is_some() {
            self.signals += 1;
            for call in &mut thread.calls {
                call.is_interrupted = true;
            }
        }
        if let Some(last) = thread.last {
            self.leave(&mut thread, last, here, stop);
            if last.stack_pointer.abs_diff(stop.registers.rsp) > ONE_STACK {
                self.left += thread.calls.len() as u64;
                thread.calls.clear();
            }
        }
        self.unwind(&mut thread, stop);
        if let Some(here) = here {
            self.modules[here.module].executed.insert(here.address);
            self.enter(&mut thread, here, stop, program);
        }
        thread.last = here;
        self.threads.insert(stop.thread, thread);
    }

    /// The file and the address in it of an instruction.
    fn place(&mut self, program: &Stepping, stop: Stop) -> Option<At> {
        let find = |mapped: &[Mapped]| {
            mapped
                .iter()
                .position(|mapped| mapped.range.contains(&stop.registers.rip))
        };
        let mut found = find(&self.mapped);
        if found.is_none() {
            if !self.unknown.insert(stop.registers.rip >> 12) {
                return None;
            }
            self.map(program.pid());
            found = find(&self.mapped);
        }
        let at = found?;
        // What is executed mostly is looked at first.
        self.mapped.swap(0, at);
        let mapped = &self.mapped[0];
        Some(At {
            module: mapped.module,
            address: stop.registers.rip.wrapping_sub(mapped.bias),
            bias: mapped.bias,
            stack_pointer: stop.registers.rsp,
        })
    }

    /// Reads which files are mapped where.
    fn map(&mut self, pid: u32) {
        self.mapped.clear();
        for part in mapped::executable(pid) {
            if !part.path.starts_with('/') {
                continue;
            }
            let known = self.modules.iter().position(|module| module.path == part.path);
            let module = known.or_else(|| {
                self.modules.push(Module::of(&part.path)?);
                Some(self.modules.len() - 1)
            });
            let Some(module) = module else { continue };
            let Some(bias) = self.modules[module].bias(part.start, part.offset) else {
                continue;
            };
            self.mapped.push(Mapped {
                range: part.start..part.end,
                bias,
                module,
            });
        }
    }

    /// Notes the ends that an instruction is of, and the entries.
    fn leave(&mut self, thread: &mut Thread, last: At, here: Option<At>, stop: Stop) {
        let length = self.modules[last.module].length(last.address);
        let goes_on =
            Some(stop.registers.rip) == length.map(|length| last.address.wrapping_add(last.bias) + length);
        let is_same = here.is_some_and(|here| here.module == last.module && here.address == last.address);
        let count = thread.calls.len();
        for (at, call) in thread.calls.iter_mut().enumerate().rev() {
            if call.module != last.module || call.stack_pointer != last.stack_pointer {
                continue;
            }
            let Some(end) = call.of.ends.get(&last.address) else {
                continue;
            };
            let is_inside =
                here.is_some_and(|here| here.module == call.module && call.of.own.contains(&here.address));
            let stays = end.way.may_stay_inside() && is_inside;
            if (end.is_conditional && goes_on) || stays || is_same {
                continue;
            }
            call.has_left = true;
            if end.way.is_jump() && is_inside && stop.registers.rsp <= call.stack_pointer && at + 1 == count {
                let Planned { name, own, .. } = &*call.of;
                if here.is_some_and(|here| here.address != own.start) {
                    self.wrong.push(format!(
                        "{}: the jump at {:#x} is an end of {name} and leads into it",
                        self.modules[call.module].path, last.address
                    ));
                }
            }
        }
    }

    /// Ends the calls whose return address is no longer on the stack.
    fn unwind(&mut self, thread: &mut Thread, stop: Stop) {
        while let Some(call) = thread.calls.last() {
            if stop.registers.rsp <= call.stack_pointer {
                break;
            }
            let call = thread.calls.pop().unwrap();
            let taken_off = stop.registers.rsp - call.stack_pointer;
            if stop.registers.rip != call.returns_to || taken_off > 8 + TAKEN_OFF || call.is_interrupted {
                self.left += 1;
                continue;
            }
            self.ended += 1;
            let from = thread.last.map_or(0, |last| last.address);
            let Planned {
                name,
                entry,
                loops,
                never_ends,
                ..
            } = &*call.of;
            let path = &self.modules[call.module].path;
            let mut wrong = |text: &str| {
                let text = format!("{path}: {name} {text}, and returns at {from:#x}");
                if !self.wrong.contains(&text) {
                    self.wrong.push(text);
                }
            };
            if *never_ends {
                wrong("is planned to have no end");
            } else if !call.has_left {
                wrong("has no end planned there");
            }
            match call.entered {
                1 => {}
                0 => wrong(&format!("does not pass {entry:#x}, where its entry is planned")),
                2.. if *loops => {}
                2.. => wrong("passes several times where its entry is planned"),
            }
        }
    }

    /// Begins a call where a function begins, and notes that its entry is passed.
    fn enter(&mut self, thread: &mut Thread, here: At, stop: Stop, program: &Stepping) {
        let is_repeated = thread
            .last
            .is_some_and(|last| last.module == here.module && last.address == here.address);
        let module = &mut self.modules[here.module];
        if module.begins_at(here.address)
            && !is_repeated
            && let Some(returns_to) = program.word_at(stop.registers.rsp)
        {
            // Its own loops lead there too.
            let is_loop = thread.calls.last().is_some_and(|call| {
                call.module == here.module
                    && call.stack_pointer == stop.registers.rsp
                    && call.of.own.start == here.address
                    && thread.last.is_some_and(|last| {
                        last.module == here.module && last.stack_pointer == stop.registers.rsp
                    })
            });
            let is_code = self
                .mapped
                .iter()
                .any(|mapped| mapped.range.contains(&returns_to));
            if !is_loop && is_code {
                match self.modules[here.module].planned(here.address) {
                    Some(of) => thread.calls.push(Call {
                        module: here.module,
                        of,
                        stack_pointer: stop.registers.rsp,
                        returns_to,
                        entered: 0,
                        has_left: false,
                        is_interrupted: false,
                    }),
                    None => self.left += 1,
                }
            }
        }
        if let Some(call) = thread.calls.last_mut()
            && call.module == here.module
            && call.of.entry == here.address
            && !is_repeated
        {
            call.entered += 1;
        }
    }

    /// Holds the plans of all functions against all that was executed.
    pub fn end(&mut self) {
        for module in &self.modules {
            let checked = module.check(&mut self.wrong);
            self.checked.push((module.path.clone(), checked));
        }
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} steps, {} signals, {} threads, {} calls that ended, {} that were left",
            self.steps,
            self.signals,
            self.threads.len(),
            self.ended,
            self.left
        )?;
        for ((path, checked), module) in self.checked.iter().zip(&self.modules) {
            let (called, planned) = module.called();
            let Checked {
                functions,
                sites,
                executed,
                refused,
            } = checked;
            writeln!(
                f,
                "  {path}: {called} functions called, {planned} of them planned; {functions} planned in all, {sites} sites, \
                 {executed} of them executed"
            )?;
            for (reason, count) in refused {
                writeln!(f, "    {count} refused: {reason}")?;
            }
        }
        Ok(())
    }
}
