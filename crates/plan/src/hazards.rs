//! What makes return probes unsafe in a process, and the exit method that follows.
//!
//! A return probe replaces the return address on the stack. Whatever walks, cuts or leaves the
//! stack other than by returning then aborts, loops, or runs the wrong code.

use std::borrow::Cow;

use object::elf;
use profiler_elf::{Elf, ElfError, RawSymbol};

use super::stack_switch::set_by_hand;

/// What kind of trouble a sign means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    Unwinding,
    /// Code looks at the return addresses on the stack, as for a backtrace.
    StackWalk,
    ThreadExit,
    StackSwitch,
    AlternateStack,
    Goroutines,
    /// An instruction sets the stack pointer, and nothing tells what for.
    StackPointer,
}

/// Symbols that tell.
const SYMBOLS: [(&str, Trouble); 16] = [
    ("_Unwind_RaiseException", Trouble::Unwinding),
    ("_Unwind_ForcedUnwind", Trouble::Unwinding),
    ("__cxa_throw", Trouble::Unwinding),
    ("_Unwind_Backtrace", Trouble::StackWalk),
    ("backtrace", Trouble::StackWalk),
    ("unw_step", Trouble::StackWalk),
    ("_ULx86_64_step", Trouble::StackWalk),
    ("pthread_exit", Trouble::ThreadExit),
    ("pthread_cancel", Trouble::ThreadExit),
    ("swapcontext", Trouble::StackSwitch),
    ("makecontext", Trouble::StackSwitch),
    ("setcontext", Trouble::StackSwitch),
    ("make_fcontext", Trouble::StackSwitch),
    ("jump_fcontext", Trouble::StackSwitch),
    ("ontop_fcontext", Trouble::StackSwitch),
    ("sigaltstack", Trouble::AlternateStack),
];

/// A sign that was found, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// Path of the mapped file.
    pub module: String,
    /// Name of the symbol, or the instruction with its address in the file.
    pub sign: String,
}

/// What was found in a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hazards {
    /// Exceptions or panics may unwind the stack.
    pub unwinding: Option<Evidence>,
    /// Code may read the stack: return addresses that are the kernel's would end its backtraces.
    pub stack_walk: Option<Evidence>,
    /// Threads may end inside calls.
    pub thread_exit: Option<Evidence>,
    /// Code may go on on another stack.
    pub stack_switch: Option<Evidence>,
    /// Signal handlers may run on another stack.
    pub alternate_stack: Option<Evidence>,
    /// Go's runtime walks and moves stacks.
    pub goroutines: Option<Evidence>,
    /// The stack pointer may be set by hand: code may leave its calls without a return.
    pub stack_pointer: Option<Evidence>,
}

/// A sign of trouble.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    sign: Cow<'static, str>,
    trouble: Trouble,
}

/// What was found in one file: independent of its path and process, so it can be kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleHazards {
    found: Vec<Found>,
}

impl ModuleHazards {
    /// What was found in this file, or in another of the same module.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for found in other.found {
            if !self.found.contains(&found) {
                self.found.push(found);
            }
        }
        self
    }

    /// Looks through a file's symbols and code. `path` tells the C library apart, which defines what it
    /// does not use.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn scan(path: &str, bytes: &[u8]) -> Result<Self, ElfError> {
        let elf = Elf::parse(bytes)?;
        let c_library = is_c_library(path);
        let mut found = Vec::new();
        if elf.has_go() {
            found.push(Found {
                sign: "Go's tables".into(),
                trouble: Trouble::Goroutines,
            });
        }
        for raw in elf.symbols() {
            // Imports have a type in some files and none in others.
            if !matches!(raw.kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE) {
                continue;
            }
            if c_library && !raw.undefined {
                continue;
            }
            if let Some(known) = known(bytes, &raw)
                && !found.contains(&known)
            {
                found.push(known);
            }
        }
        let tells_of_stacks =
            |found: &Found| matches!(found.trouble, Trouble::StackSwitch | Trouble::Goroutines);
        if !c_library && !found.iter().any(tells_of_stacks) {
            found.extend(in_code(&elf, bytes, !found.is_empty()));
        }
        Ok(Self { found })
    }
}

/// What the code itself says. `is_unsafe` says that return probes are unsafe in any case.
fn in_code(elf: &Elf<'_>, bytes: &[u8], is_unsafe: bool) -> Option<Found> {
    let set = set_by_hand(elf, bytes);
    let (address, trouble) = match (set.switch, set.other) {
        (Some(address), _) => (address, Trouble::StackSwitch),
        (None, Some(address)) if !is_unsafe => (address, Trouble::StackPointer),
        (None, _) => return None,
    };
    Some(Found {
        sign: format!("the load of rsp at {address:#x}").into(),
        trouble,
    })
}

fn known(bytes: &[u8], raw: &RawSymbol) -> Option<Found> {
    let start = usize::try_from(raw.name).ok()?;
    let limit = usize::try_from(raw.name_limit).ok()?;
    let text = bytes.get(start..limit)?;
    let (name, trouble) = SYMBOLS.into_iter().find(|(name, _)| {
        text.strip_prefix(name.as_bytes())
            .is_some_and(|rest| matches!(rest.first(), Some(0 | b'@')))
    })?;
    Some(Found {
        sign: name.into(),
        trouble,
    })
}

/// The C library and what belongs to it.
fn is_c_library(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let file = file.strip_suffix(" (deleted)").unwrap_or(file);
    [
        "libc.so",
        "libc-",
        "libc.musl",
        "libpthread.so",
        "libpthread-",
        "ld-linux",
        "ld-musl",
        "ld-2",
        "ld.so",
    ]
    .iter()
    .any(|name| file.starts_with(name))
}

impl Hazards {
    /// Joins what was found in the mapped files of a process.
    pub fn of<'a>(modules: impl IntoIterator<Item = (&'a str, &'a ModuleHazards)>) -> Self {
        let mut hazards = Self::default();
        for (path, module) in modules {
            for Found { sign, trouble } in &module.found {
                let slot = match trouble {
                    Trouble::Unwinding => &mut hazards.unwinding,
                    Trouble::StackWalk => &mut hazards.stack_walk,
                    Trouble::ThreadExit => &mut hazards.thread_exit,
                    Trouble::StackSwitch => &mut hazards.stack_switch,
                    Trouble::AlternateStack => &mut hazards.alternate_stack,
                    Trouble::Goroutines => &mut hazards.goroutines,
                    Trouble::StackPointer => &mut hazards.stack_pointer,
                };
                slot.get_or_insert_with(|| Evidence {
                    module: path.to_owned(),
                    sign: sign.clone().into_owned(),
                });
            }
        }
        hazards
    }

    /// What was found, in words.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let say = |what: &str, evidence: &Option<Evidence>| {
            evidence
                .as_ref()
                .map(|e| format!("{what} ({} in {})", e.sign, e.module))
        };
        [
            say("exceptions or panics may unwind the stack", &self.unwinding),
            say("the program may read its own stack", &self.stack_walk),
            say("threads may end inside a call", &self.thread_exit),
            say("stacks may be switched", &self.stack_switch),
            say("signal handlers may run on another stack", &self.alternate_stack),
            say("Go's runtime walks and moves stacks", &self.goroutines),
            say("the stack pointer may be set by hand", &self.stack_pointer),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What the running kernel and its uprobes can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelAbility {
    /// A uprobe program may write registers, and so do an instruction itself.
    pub write_context: bool,
    /// `nop`s of several bytes are emulated under a uprobe (Linux 6.18).
    pub long_nops: bool,
}

/// How a span's end is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// By the kernel's return probe.
    Return,
    /// By probes on each return and tail jump.
    Ret,
}

/// The method, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// How ends are seen.
    pub method: Method,
    /// The programs do the probed instructions themselves.
    pub done_by_program: bool,
    /// Open spans need not nest.
    pub stacks_switch: bool,
    /// Why this method.
    pub reasons: Vec<String>,
    /// What the user should know before anything is attached.
    pub warnings: Vec<String>,
}

/// Chooses how ends are seen. `shadow_stack` says that a thread has a user shadow stack, which a
/// return done by a program would leave out of step; `chosen` is the user's own choice.
#[must_use]
pub fn exit_method(
    hazards: &Hazards,
    ability: KernelAbility,
    shadow_stack: bool,
    chosen: Option<Method>,
) -> Decision {
    let found = hazards.reasons();
    let stacks_switch = hazards.stack_switch.is_some();
    let decision = |method, reasons, warnings| Decision {
        method,
        done_by_program: method == Method::Ret && ability.write_context && !shadow_stack,
        stacks_switch,
        reasons,
        warnings,
    };
    let stepped = "each return is single-stepped by the kernel: a call costs several times as much as with \
                   a return probe";
    match chosen {
        Some(Method::Return) => {
            let warnings = found
                .iter()
                .map(|hazard| format!("return probes may break the target: {hazard}"))
                .collect();
            return decision(
                Method::Return,
                vec!["return probes were requested (--exit return)".to_owned()],
                warnings,
            );
        }
        Some(Method::Ret) => {
            let warnings = if ability.write_context && !shadow_stack {
                vec![]
            } else {
                vec![stepped.to_owned()]
            };
            return decision(
                Method::Ret,
                vec!["probes on each return were requested (--exit ret)".to_owned()],
                warnings,
            );
        }
        None => {}
    }
    if ability.write_context && !shadow_stack {
        return decision(
            Method::Ret,
            vec!["this kernel lets the eBPF programs execute the return themselves".to_owned()],
            vec![],
        );
    }
    if found.is_empty() {
        let reason = "no mapped code unwinds, reads or switches stacks or ends threads";
        return decision(Method::Return, vec![reason.to_owned()], vec![]);
    }
    decision(Method::Ret, found, vec![stepped.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwinding() -> Hazards {
        let evidence = Evidence {
            module: "libstdc++.so.6".into(),
            sign: "__cxa_throw".into(),
        };
        Hazards {
            unwinding: Some(evidence),
            ..Hazards::default()
        }
    }

    #[test]
    fn methods() {
        let plain = KernelAbility::default();
        let writes = KernelAbility {
            write_context: true,
            ..plain
        };
        let method = |hazards: &Hazards, ability, shadow, chosen| {
            let decision = exit_method(hazards, ability, shadow, chosen);
            (decision.method, decision.done_by_program, decision.warnings.len())
        };
        let safe = Hazards::default();
        assert_eq!(method(&safe, plain, false, None), (Method::Return, false, 0));
        assert_eq!(method(&safe, writes, false, None), (Method::Ret, true, 0));
        assert_eq!(method(&unwinding(), plain, false, None), (Method::Ret, false, 1));
        assert_eq!(method(&unwinding(), writes, false, None), (Method::Ret, true, 0));
        assert_eq!(method(&unwinding(), writes, true, None), (Method::Ret, false, 1));
        assert_eq!(
            method(&unwinding(), writes, false, Some(Method::Return)),
            (Method::Return, false, 1)
        );
    }

    #[test]
    fn the_c_library_is_told_by_its_name() {
        assert!(is_c_library("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(is_c_library("/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_c_library("/usr/lib/libcurl.so.4"));
        assert!(!is_c_library("/opt/libc/app"));
    }
}
