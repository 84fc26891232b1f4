//! Calls and branches, by the machine code.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{FlowControl, Instruction, OpKind, Register};

use super::{
    super::{
        code::{Code, direct_target, mnemonic},
        demangle::display_name,
        functions::ModuleIndex,
    },
    budget::Budget,
    linkage::{Slot, slot_of, slots},
    loops::Cycles,
    ranges::Ranges,
    units::Reader,
};

/// Calls, and branches, that are kept of one function.
const MAX_FOUND: usize = 50_000;

/// Bytes of code that are decoded of one function: as many as of one piece of code.
const MAX_DECODED: usize = 4 << 20;

/// How a call finds its callee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallKind {
    /// The address is in the instruction.
    Direct,
    /// Through the linkage table: by name, when the program is loaded.
    Linkage,
    /// The address is known only when it runs.
    Indirect,
}

/// A call, or a jump that ends the function with one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The address of the instruction.
    pub address: u64,
    /// Where it returns to; `None` of a jump.
    pub return_address: Option<u64>,
    /// The callee's name; empty where it is not known.
    pub callee: String,
    /// The linkage name that the loader looks it up by; empty where it is not called so.
    pub symbol: String,
    /// The callee's address in the same file, where it is there.
    pub callee_address: Option<u64>,
    /// How it finds its callee.
    pub kind: CallKind,
}

/// A jump within the function, as the instruction has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Jump {
    pub address: u64,
    pub mnemonic: String,
    pub target: u64,
    /// Where it goes on; `None` where it always jumps.
    pub next: Option<u64>,
    pub is_loop: bool,
}

impl Jump {
    fn is_back(&self) -> bool {
        self.target <= self.address
    }
}

/// What the machine code of some ranges does.
#[derive(Default)]
pub(crate) struct Flow {
    pub calls: Vec<Call>,
    /// Conditional jumps, and those back.
    pub jumps: Vec<Jump>,
    /// Where the jumps of `switch`es lead, in order.
    pub cases: Vec<u64>,
    /// What is wrong or left out.
    pub notes: Vec<String>,
}

/// What a call names: an address, or a slot of the linkage table.
enum Callee {
    At(u64),
    Slot(u64),
    Unknown,
}

/// Decodes some ranges. `whole` is all of the function that they are in: a jump out of it is a call.
pub(crate) fn flow(module: &ModuleIndex, reader: &Reader<'_, '_>, ranges: &Ranges, whole: &Ranges) -> Flow {
    let mut flow = Flow::default();
    let mut found: Vec<(Instruction, Callee)> = Vec::new();
    let mut wanted: BTreeSet<u64> = BTreeSet::new();
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut left = MAX_DECODED;
    'ranges: for range in ranges.iter() {
        let bytes = module.code(range.clone());
        let length = bytes.map_or(0, <[u8]>::len);
        left = match left.checked_sub(length) {
            Some(left) if reader.budget.work.take(1) && reader.budget.code.take(length) => left,
            _ => {
                flow.notes
                    .push("too much code: not all calls and branches were read".to_owned());
                break;
            }
        };
        let decoded = bytes
            .ok_or_else(|| "its code is not in the file".to_owned())
            .and_then(|bytes| Code::decode(bytes, range.start).map_err(|error| error.to_string()));
        let code = match decoded {
            Ok(code) => code,
            Err(error) => {
                flow.notes
                    .push(format!("no calls and branches at {:#x}: {error}", range.start));
                continue;
            }
        };
        for instruction in code.instructions() {
            let callee = callee(instruction, whole);
            let jump = if callee.is_none() { jump(instruction) } else { None };
            if callee.is_none() && jump.is_none() {
                continue;
            }
            if found.len() + flow.jumps.len() >= MAX_FOUND || !reader.budget.found.take(1) {
                flow.notes
                    .push("too many calls and branches: the others are left out".to_owned());
                break 'ranges;
            }
            if let Some(callee) = callee {
                let callee = through_table(module, callee);
                if let Callee::Slot(slot) = callee {
                    wanted.insert(slot);
                }
                found.push((*instruction, callee));
            }
            flow.jumps.extend(jump);
        }
        instructions.extend_from_slice(code.instructions());
    }
    let is_indirect = |instruction: &Instruction| instruction.flow_control() == FlowControl::IndirectBranch;
    if flow.jumps.iter().any(Jump::is_back) || instructions.iter().any(is_indirect) {
        let cycles = Cycles::of(&instructions, |range| module.code(range));
        for jump in &mut flow.jumps {
            jump.is_loop = jump.is_back() && cycles.join(jump.address, jump.target);
        }
        flow.cases = cycles.cases;
    }
    // What always jumps and does not loop is only the order of blocks.
    flow.jumps.retain(|jump| jump.is_loop || jump.next.is_some());
    let slots = if wanted.is_empty() {
        HashMap::new()
    } else {
        slots(reader.relocations(), module, &wanted)
    };
    let mut names = Names {
        module,
        budget: reader.budget,
        known: HashMap::new(),
    };
    for (instruction, callee) in found {
        let is_call = matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        if let Some(call) = named(&mut names, &instruction, &callee, &slots, is_call) {
            flow.calls.push(call);
        }
    }
    flow
}

/// Names of callees by address: many calls have the same, and a long one takes long to make readable.
struct Names<'m> {
    module: &'m ModuleIndex,
    budget: &'m Budget,
    known: HashMap<u64, String>,
}

impl Names<'_> {
    fn at(&mut self, address: u64) -> String {
        if !self.known.contains_key(&address) {
            let name = if self.budget.work.is_short() {
                String::new()
            } else {
                name_at(self.module, address)
            };
            self.budget.work.take(name.len());
            self.known.insert(address, name);
        }
        self.budget
            .text(self.known.get(&address).map_or("", String::as_str))
    }
}

/// What an instruction calls, or jumps to for good; `None` of all others.
fn callee(instruction: &Instruction, whole: &Ranges) -> Option<Callee> {
    match instruction.flow_control() {
        FlowControl::Call => Some(direct_target(instruction).map_or(Callee::Unknown, Callee::At)),
        FlowControl::IndirectCall => Some(slot(instruction).map_or(Callee::Unknown, Callee::Slot)),
        FlowControl::UnconditionalBranch => {
            let target = direct_target(instruction)?;
            (!whole.contains(target)).then_some(Callee::At(target))
        }
        // A jump through a register may as well be that of a `switch`.
        FlowControl::IndirectBranch => slot(instruction).map(Callee::Slot),
        _ => None,
    }
}

/// The address that the instruction reads the callee's from, where the instruction says it.
pub(in super::super) fn slot(instruction: &Instruction) -> Option<u64> {
    let constant = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RIP
        && instruction.memory_index() == Register::None;
    constant.then(|| instruction.memory_displacement64())
}

/// Follows a call into the linkage table.
fn through_table(module: &ModuleIndex, callee: Callee) -> Callee {
    match callee {
        Callee::At(address) if module.function_at(address).is_none() => {
            slot_of(module, address).map_or(callee, Callee::Slot)
        }
        callee => callee,
    }
}

fn named(
    names: &mut Names<'_>,
    instruction: &Instruction,
    callee: &Callee,
    slots: &HashMap<u64, Slot>,
    is_call: bool,
) -> Option<Call> {
    let mut symbol = String::new();
    let (name, address, kind) = match callee {
        Callee::At(address) => (names.at(*address), Some(*address), CallKind::Direct),
        Callee::Slot(slot) => match slots.get(slot) {
            Some(Slot::Symbol(name)) => {
                symbol = names.budget.text(name);
                (names.budget.text(&display_name(name)), None, CallKind::Linkage)
            }
            Some(Slot::Address(address)) => (names.at(*address), Some(*address), CallKind::Linkage),
            // A jump through memory that nothing names may be that of a `switch`.
            None if !is_call => return None,
            None => (String::new(), None, CallKind::Indirect),
        },
        Callee::Unknown => (String::new(), None, CallKind::Indirect),
    };
    Some(Call {
        address: instruction.ip(),
        return_address: is_call.then(|| instruction.next_ip()),
        callee: name,
        symbol,
        callee_address: address,
        kind,
    })
}

/// The name of what is at an address, and how far into it.
pub(crate) fn name_at(module: &ModuleIndex, address: u64) -> String {
    match module.function_around(address) {
        Some(function) if function.address() == address => function.name().into_owned(),
        Some(function) => format!("{}+{:#x}", function.name(), address - function.address()),
        None => module
            .symbol_name_at(address)
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default(),
    }
}

/// A branch, or a jump back.
fn jump(instruction: &Instruction) -> Option<Jump> {
    let target = direct_target(instruction)?;
    let next = match instruction.flow_control() {
        FlowControl::ConditionalBranch => Some(instruction.next_ip()),
        FlowControl::UnconditionalBranch if target <= instruction.ip() => None,
        _ => return None,
    };
    Some(Jump {
        address: instruction.ip(),
        mnemonic: mnemonic(instruction),
        target,
        next,
        is_loop: false,
    })
}
