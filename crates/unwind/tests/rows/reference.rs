//! A row evaluated as DWARF says, expressions included, on a machine whose registers and memory are made up.

use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, EvaluationResult, Format, LittleEndian, Location, Register,
    RegisterRule, UnwindExpression, UnwindTableRow, Value,
};

pub type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What a machine has in its memory and registers: anything, as long as it differs from place to place.
#[derive(Clone, Copy)]
pub struct Machine {
    pub ip: u64,
}

impl Machine {
    pub fn read(address: u64) -> u64 {
        let mixed = (address ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    /// A register; 16 is the instruction pointer.
    pub fn register(self, number: u16) -> u64 {
        if number == 16 {
            self.ip
        } else {
            Self::read(u64::from(number) + 0xffff_0000_0000_0000) & 0x7fff_ffff_fff8
        }
    }
}

/// A register in the caller: its value, or that it has none.
pub type Caller = Option<u64>;

/// What a row says of the caller, registers it says nothing of being as they are.
pub struct Evaluated {
    pub ip: Caller,
    pub sp: Caller,
    pub rbp: Caller,
    pub rbx: Caller,
}

pub fn evaluate(section: &EhFrame<Slice<'_>>, row: &UnwindTableRow<usize>, machine: Machine) -> Evaluated {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            machine.register(register.0).wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => run(section, expression, machine, None),
    };
    let register = |number: u16| match row.register(Register(number)) {
        None | Some(RegisterRule::SameValue) => Some(machine.register(number)),
        Some(RegisterRule::Undefined) => None,
        Some(RegisterRule::Offset(offset)) => Some(Machine::read(cfa.wrapping_add_signed(offset))),
        Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
        Some(RegisterRule::Register(other)) => Some(machine.register(other.0)),
        Some(RegisterRule::Expression(e)) => Some(Machine::read(run(section, &e, machine, Some(cfa)))),
        Some(RegisterRule::ValExpression(e)) => Some(run(section, &e, machine, Some(cfa))),
        Some(rule) => panic!("{rule:?}"),
    };
    // Without a word about it, the caller's stack pointer is the CFA.
    let sp = row.register(Register(7)).map_or(Some(cfa), |_| register(7));
    Evaluated {
        sp,
        ip: register(16),
        rbp: register(6),
        rbx: register(3),
    }
}

fn run(
    section: &EhFrame<Slice<'_>>,
    expression: &UnwindExpression<usize>,
    machine: Machine,
    initial: Option<u64>,
) -> u64 {
    let encoding = Encoding {
        address_size: 8,
        format: Format::Dwarf32,
        version: 4,
    };
    let mut evaluation = expression.get(section).unwrap().evaluation(encoding);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().unwrap();
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => evaluation
                .resume_with_register(Value::Generic(machine.register(register.0)))
                .unwrap(),
            EvaluationResult::RequiresMemory { address, .. } => evaluation
                .resume_with_memory(Value::Generic(Machine::read(address)))
                .unwrap(),
            other => panic!("{other:?}"),
        };
    }
    let pieces = evaluation.result();
    let [piece] = pieces.as_slice() else {
        panic!("{pieces:?}")
    };
    let Location::Address { address } = piece.location else {
        panic!("{piece:?}")
    };
    address
}
