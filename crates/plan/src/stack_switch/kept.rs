//! Where a function keeps its own stack pointer.
//!
//! A function with arrays of variable length keeps it in a register or in its frame, and puts it back from there. A register counts
//! from where an address of the stack is put into it on any way that leads there, and until something else is.

use std::collections::HashSet;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::code::{direct_target, goes_on, jump_target};

/// How often a function is looked through: each time may find places in its frame that the one before took for others.
const MAX_PASSES: usize = 4;

/// Registers that a callee may change.
const CALLER_SAVED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// A set of general registers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Registers(u16);

impl Registers {
    /// A register alone; nothing of one that is no general register.
    fn of(register: Register) -> Self {
        if register.is_gpr() {
            Self(1 << register.full_register().number())
        } else {
            Self::default()
        }
    }

    fn contains(self, register: Register) -> bool {
        self.0 & Self::of(register).0 != 0
    }

    fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A place in the frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Slot {
    base: Register,
    displacement: u64,
}

impl Slot {
    /// The memory that an instruction uses, where no index tells it.
    fn of(instruction: &Instruction) -> Option<Self> {
        (instruction.memory_index() == Register::None).then(|| Self {
            base: instruction.memory_base(),
            displacement: instruction.memory_displacement64(),
        })
    }
}

/// What an instruction does with addresses of the stack.
enum Effect {
    /// Copies a register, or adds numbers to it.
    Copy { to: Register, from: Register },
    /// Reads memory.
    Read { to: Register, from: Option<Slot> },
    /// Writes a register to memory.
    Write {
        to: Option<Slot>,
        base: Register,
        from: Register,
    },
    /// Puts something else into registers, or nothing at all.
    Forget(Registers),
}

/// What of a function holds an address of its own stack.
pub(super) struct Kept {
    /// The registers before each instruction; `None` where no way to it is known.
    before: Vec<Option<Registers>>,
    /// The places in the frame.
    slots: HashSet<Slot>,
    /// It is written elsewhere as well.
    pub leaves: bool,
}

impl Kept {
    /// Looks through a function's instructions, which follow one another.
    pub fn by(instructions: &[Instruction]) -> Self {
        let mut info = InstructionInfoFactory::new();
        let effects: Vec<Effect> = instructions
            .iter()
            .map(|instruction| effect(instruction, &mut info))
            .collect();
        let mut kept = Self {
            before: Vec::new(),
            slots: HashSet::new(),
            leaves: false,
        };
        for _ in 0..MAX_PASSES {
            kept.before = vec![None; instructions.len()];
            kept.follow(instructions, &effects);
            if !kept.find_slots(&effects) {
                break;
            }
        }
        kept
    }

    /// Whether the stack pointer that an instruction loads was kept before, or is told by the frame.
    pub fn gives(&self, position: usize, load: &Instruction) -> bool {
        let before = self.before.get(position).copied().flatten().unwrap_or_default();
        match load.op1_kind() {
            OpKind::Register => load.op1_register() == Register::RBP || has(before, load.op1_register()),
            _ => load.memory_base() == Register::RSP || self.has_slot(before, Slot::of(load)),
        }
    }

    /// Finds the registers before each instruction, given the places in the frame.
    fn follow(&mut self, instructions: &[Instruction], effects: &[Effect]) {
        // Those at jumps through tables, which may lead to all that nothing else leads to.
        let mut at_tables = Registers::default();
        let mut unreached = Vec::new();
        self.flow(
            vec![(0, Registers::default())],
            instructions,
            effects,
            &mut at_tables,
        );
        for position in 0..instructions.len() {
            if self.before[position].is_none() {
                unreached.push(position);
                self.flow(vec![(position, at_tables)], instructions, effects, &mut at_tables);
            }
        }
        // Tables that were found last.
        let rest = unreached
            .into_iter()
            .map(|position| (position, at_tables))
            .collect();
        self.flow(rest, instructions, effects, &mut at_tables);
    }

    /// Each register is added before an instruction once, so this ends.
    fn flow(
        &mut self,
        mut pending: Vec<(usize, Registers)>,
        instructions: &[Instruction],
        effects: &[Effect],
        at_tables: &mut Registers,
    ) {
        while let Some((position, arriving)) = pending.pop() {
            let (Some(instruction), Some(effect)) = (instructions.get(position), effects.get(position))
            else {
                continue;
            };
            let before = match self.before[position] {
                Some(known) if known.with(arriving) == known => continue,
                Some(known) => known.with(arriving),
                None => arriving,
            };
            self.before[position] = Some(before);
            let after = self.after(before, effect);
            if instruction.flow_control() == FlowControl::IndirectBranch {
                *at_tables = at_tables.with(after);
            }
            if let Some(target) = jump_target(instruction)
                && let Ok(target) = instructions.binary_search_by_key(&target, Instruction::ip)
            {
                pending.push((target, after));
            }
            if goes_on(instruction) {
                pending.push((position + 1, after));
            }
        }
    }

    fn after(&self, before: Registers, effect: &Effect) -> Registers {
        let (to, keeps) = match *effect {
            Effect::Copy { to, from } => (to, has(before, from)),
            Effect::Read { to, from } => (to, self.has_slot(before, from)),
            Effect::Write { .. } => return before,
            Effect::Forget(registers) => return before.without(registers),
        };
        let to = Registers::of(to);
        if keeps {
            before.with(to)
        } else {
            before.without(to)
        }
    }

    /// Finds the places that an address of the stack is written to; whether some of the frame are new.
    fn find_slots(&mut self, effects: &[Effect]) -> bool {
        let mut grows = false;
        for (effect, before) in effects.iter().zip(&self.before) {
            let (&Effect::Write { to, base, from }, &Some(before)) = (effect, before) else {
                continue;
            };
            if !has(before, from) {
                continue;
            }
            if !is_own(before, base) {
                self.leaves = true;
            } else if let Some(slot) = to {
                grows |= self.slots.insert(slot);
            }
        }
        grows
    }

    fn has_slot(&self, before: Registers, slot: Option<Slot>) -> bool {
        slot.is_some_and(|slot| is_own(before, slot.base) && self.slots.contains(&slot))
    }
}

/// Whether a register holds an address of the function's own stack.
fn has(kept: Registers, register: Register) -> bool {
    register == Register::RSP || kept.contains(register)
}

/// Whether memory at a register is the function's own frame.
fn is_own(kept: Registers, base: Register) -> bool {
    base == Register::RBP || has(kept, base)
}

fn effect(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Effect {
    let is_whole = |operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand).is_gpr64()
    };
    let to = instruction.op0_register();
    match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory && is_whole(1) => Effect::Write {
            to: Slot::of(instruction),
            base: instruction.memory_base(),
            from: instruction.op1_register(),
        },
        Mnemonic::Mov if is_whole(0) && is_whole(1) => Effect::Copy {
            to,
            from: instruction.op1_register(),
        },
        Mnemonic::Mov if is_whole(0) && instruction.op1_kind() == OpKind::Memory => Effect::Read {
            to,
            from: Slot::of(instruction),
        },
        Mnemonic::Lea if is_whole(0) => Effect::Copy {
            to,
            from: instruction.memory_base(),
        },
        // An address of the stack, moved or aligned, is one still.
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And if is_whole(0) => Effect::Copy { to, from: to },
        // A compiler that sees the callee goes by what that changes; what it returns is another address.
        Mnemonic::Call if direct_target(instruction).is_some() => {
            Effect::Forget(Registers::of(Register::RAX))
        }
        Mnemonic::Call => {
            let registers = CALLER_SAVED.into_iter().map(Registers::of);
            Effect::Forget(registers.fold(Registers::default(), Registers::with))
        }
        _ => {
            let used = info.info(instruction).used_registers().iter();
            let written = used.filter(|used| {
                !matches!(
                    used.access(),
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                )
            });
            let registers = written.map(|used| Registers::of(used.register()));
            Effect::Forget(registers.fold(Registers::default(), Registers::with))
        }
    }
}
