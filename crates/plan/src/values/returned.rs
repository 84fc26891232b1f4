//! What functions return, and in which registers.

use gimli::AttributeValue;
use profiler_common::values::{
    Comparison, Instruction, Kind, OUTPUT_BYTES, Operation, ReadPlan, State, Thread, run,
};

use super::{
    code::Code,
    context::{Location, Piece, Source},
    entry::Entry,
    file::DebugFile,
    lower::{Layout, Lowered, Returns, finish, plan},
    path::{Lowering, Reached, word},
    place::Place,
    refusal::{Refusal, unsupported},
    render::{Reading, render},
    shape::{Budget, Form, Shape},
};
use crate::functions::raw_names;

/// `rax` and `rdx` by their DWARF numbers.
const RAX: u8 = 0;
const RDX: u8 = 1;

/// Bytes of a register.
const WORD: u64 = 8;

impl<'a> Lowering<'_, 'a> {
    /// What is returned.
    pub fn returned(&self) -> Result<Reached<'a>, Refusal> {
        let address = match self.returns {
            Returns::OfCallee { address, .. } => address,
            Returns::AtInstruction | Returns::OfFunction => Some(self.site.address),
        };
        let function = match self.returns {
            Returns::OfCallee {
                name,
                symbol,
                address,
            } => match self.callee((name, symbol), address) {
                Err(Refusal::NoDebugInformation(_)) => return word(RAX, "rax"),
                callee => callee?,
            },
            Returns::AtInstruction if !self.file.is_return(self.site.address) => {
                return unsupported("`return` is known only at return instructions and of calls");
            }
            Returns::AtInstruction | Returns::OfFunction => match self.function {
                Some(function) => function.entry.clone(),
                None => return word(RAX, "rax"),
            },
        };
        let Some(kind) = self.file.type_of(&function)? else {
            return Err(Refusal::ReturnsNothing);
        };
        if self.file.may_return_less(&function, address) {
            return unsupported("its callers do not need the value, and the compiler may have dropped it");
        }
        let shape = self.file.shape(Some(&kind), &mut Budget::default());
        if let Form::Unsupported(reason) = &shape.form {
            return unsupported(reason.clone());
        }
        let location = place(&shape, self.file.passing(&kind)?)?;
        Ok(Reached {
            place: Place::new(location, shape.size)?,
            kind: Some(kind),
            bits: None,
            counts: Vec::new(),
            cast: None,
        })
    }

    /// The entry of a function that is called, by its name as it is shown and as it is linked.
    fn callee(&self, (name, symbol): (&str, &str), address: Option<u64>) -> Result<Entry<'a>, Refusal> {
        if let Some(function) = address.and_then(|address| self.file.function(address).ok()) {
            return Ok(function.entry);
        }
        let Some(caller) = self.function else {
            return Err(Refusal::NoDebugInformation(self.site.address));
        };
        // What is called is declared where it is called.
        let unit = Entry::first(&caller.entry.unit)?;
        let linked = |entry: &Entry<'a>| self.file.text_through(entry, gimli::DW_AT_linkage_name);
        let is_linked = |entry: &Entry<'a>| !symbol.is_empty() && linked(entry).as_deref() == Some(symbol);
        let mut declared = unit.children()?;
        declared.retain(|entry| {
            let is_named = || self.file.name(entry).as_deref() == Some(name);
            entry.tag() == gimli::DW_TAG_subprogram && (is_linked(entry) || is_named())
        });
        if let Some(entry) = declared.iter().find(|entry| is_linked(entry)) {
            return Ok(entry.clone());
        }
        // Overloads have one name, and return what they like.
        match declared.as_slice() {
            [first, others @ ..]
                if linked(first).is_none() && others.iter().all(|other| linked(other).is_none()) =>
            {
                Ok(first.clone())
            }
            [alone] if symbol.is_empty() => Ok(alone.clone()),
            [_, _, ..] if symbol.is_empty() => unsupported(format!(
                "several functions are called {name}, and which one is called is not known"
            )),
            _ => unsupported(format!("the debug information does not say what {name} returns")),
        }
    }
}

impl<'a> DebugFile<'a> {
    /// Whether a function is one of which the compiler knows all callers, and has changed what it returns: it says so in
    /// the symbol's name (gcc) or in the function's entry (clang from 19 on). Older clang and rustc do not say it.
    fn may_return_less(&self, function: &Entry<'a>, address: Option<u64>) -> bool {
        let is_changed = |name: &[u8]| {
            let marks = [&b".isra."[..], b".part."];
            marks
                .iter()
                .any(|mark| memchr::memmem::find(name, mark).is_some())
        };
        let symbols = address.and_then(|address| self.module?.function_at(address));
        symbols.is_some_and(|function| raw_names(&function).any(is_changed))
            || matches!(
                function.value(gimli::DW_AT_calling_convention),
                Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall))
            )
    }

    /// How a type is returned: those that C++ copies in a way of their own in memory, and Rust's structures as the
    /// compiler likes.
    fn passing(&self, kind: &Entry<'a>) -> Result<Passing, Refusal> {
        let Some(kind) = self.stripped(Some(kind.clone()))? else {
            return Ok(Passing::Unknown);
        };
        if kind.tag() == gimli::DW_TAG_array_type {
            // A vector of C, which is in a vector register; an array of Rust, which may be in memory.
            return Ok(Passing::Unknown);
        }
        if !matches!(
            kind.tag(),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
        ) {
            return Ok(Passing::ByValue);
        }
        let convention = match kind.value(gimli::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(convention)) => Some(convention),
            _ => None,
        };
        Ok(match kind.language() {
            Some(
                gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17,
            ) => Passing::ByValue,
            Some(gimli::DW_LANG_Rust) => Passing::Unknown,
            _ => match convention {
                Some(gimli::DW_CC_pass_by_value) => Passing::ByValue,
                Some(gimli::DW_CC_pass_by_reference) => Passing::ByReference,
                _ => Passing::Unknown,
            },
        })
    }
}

/// How a type is passed, by the System V ABI for x86-64, 3.2.3.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// As values of C are.
    ByValue,
    /// In memory, whatever it holds.
    ByReference,
    /// In a way that is not told.
    Unknown,
}

/// Where a value is that was returned, by the System V ABI for x86-64, 3.2.3: in registers of eight bytes each, or in
/// memory, whose address is in the first.
fn place(shape: &Shape, passing: Passing) -> Result<Location, Refusal> {
    let Shape {
        type_name,
        size,
        form,
    } = shape;
    let in_memory = || Ok(Location::Whole(Source::Memory(Code::register(RAX, 0))));
    match passing {
        Passing::ByReference => return in_memory(),
        Passing::ByValue if *size > 2 * WORD && !may_have_vectors(form) => return in_memory(),
        Passing::ByValue if (1..=2 * WORD).contains(size) => {}
        _ => {
            return unsupported(format!(
                "the debug information does not say how {type_name} is returned"
            ));
        }
    }
    let mut words = [None; 2];
    classify(form, 0, *size, &mut words)?;
    let used = usize::try_from(size.div_ceil(WORD)).unwrap_or(2);
    if words[..used].contains(&Some(Class::Vector)) {
        return unsupported(format!(
            "{type_name} is returned in a vector register, which is not kept"
        ));
    }
    if *size <= WORD {
        return Ok(Location::Whole(Source::Register(RAX)));
    }
    let piece = |register, bytes: u64| Piece {
        source: Source::Register(register),
        bits: bytes * 8,
        skipped_bits: 0,
    };
    Ok(Location::Pieces(vec![piece(RAX, WORD), piece(RDX, size - WORD)]))
}

/// Whether what is larger than two registers may be returned in one: where it has nothing but vectors.
fn may_have_vectors(form: &Form) -> bool {
    match form {
        Form::Array { is_vector: true, .. } | Form::Unsupported(_) => true,
        Form::Array { element, .. } => may_have_vectors(&element.form),
        Form::Structure(members) => members.iter().any(|member| may_have_vectors(&member.shape.form)),
        _ => false,
    }
}

/// What eight bytes hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Vector,
}

/// Says what the eight bytes hold that a part lies in.
fn classify(form: &Form, at: u64, size: u64, words: &mut [Option<Class>; 2]) -> Result<(), Refusal> {
    let class = match form {
        Form::Float | Form::Array { is_vector: true, .. } => Class::Vector,
        Form::Structure(members) => {
            return members.iter().try_for_each(|member| {
                classify(
                    &member.shape.form,
                    at.saturating_add(member.offset),
                    member.shape.size,
                    words,
                )
            });
        }
        Form::Array { element, count, .. } => {
            return (0..*count)
                .take_while(|index| index * element.size < 2 * WORD)
                .try_for_each(|index| {
                    classify(&element.form, at + index * element.size, element.size, words)
                });
        }
        Form::Unsupported(reason) => return unsupported(reason.clone()),
        Form::Variants(_) => {
            return unsupported("a type with variants, which is returned in a way of its own");
        }
        Form::Characters { count, .. } => {
            return (0..*count)
                .take_while(|index| *index < 2 * WORD)
                .try_for_each(|index| classify(&Form::Character, at + index, 1, words));
        }
        Form::Bits { .. }
        | Form::Integer { .. }
        | Form::Boolean
        | Form::Character
        | Form::Pointer
        | Form::Enumeration { .. } => Class::Integer,
    };
    let is_bits = matches!(form, Form::Bits { .. });
    if !is_bits && size > 0 && !at.is_multiple_of(size.min(WORD)) {
        return unsupported("a packed structure, which is returned in memory");
    }
    let last = at.saturating_add(size.max(1) - 1) / WORD;
    for word in at / WORD..=last {
        let known = usize::try_from(word).ok().and_then(|word| words.get_mut(word));
        let Some(known) = known else {
            return unsupported("a structure larger than its type says");
        };
        if *known != Some(Class::Integer) {
            *known = Some(class);
        }
    }
    Ok(())
}

/// What is left of a call that has returned.
struct Registers([u64; 2]);

impl Thread for Registers {
    fn register(&mut self, number: u8) -> u64 {
        match number {
            RAX => self.0[0],
            RDX => self.0[1],
            _ => 0,
        }
    }

    fn thread_pointer(&mut self) -> u64 {
        0
    }

    fn word(&mut self, _: u64, _: u8) -> Option<u64> {
        None
    }

    fn copy(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> bool {
        false
    }

    fn copy_string(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> Option<u32> {
        None
    }
}

fn evaluated(plan: &ReadPlan, registers: [u64; 2]) -> State {
    let mut state = State::START;
    run(plan, &mut state, &mut Registers(registers));
    state
}

/// What was returned in `rax` and `rdx`.
#[must_use]
pub fn render_returned(lowered: &Lowered, registers: [u64; 2]) -> Reading {
    render(lowered, &evaluated(&lowered.plan, registers))
}

/// How what a system call returns is read, once it is known.
///
/// # Errors
/// None that is known of.
pub fn of_system_call() -> Result<Lowered, Refusal> {
    let mut instructions = Code::register(RAX, 0).instructions().to_vec();
    instructions.push(Instruction::new(Operation::Store).size(8));
    finish(&instructions, long(), Layout::Object, Vec::new())
}

/// How what a function of the kernel returns is read: the register of results, whatever the function's type is.
///
/// # Errors
/// None that is known of.
pub fn of_kernel_function() -> Result<Lowered, Refusal> {
    let of_call = of_system_call()?;
    Ok(Lowered {
        layout: Layout::Register,
        ..of_call
    })
}

/// A plan that what a system call returns passes if it compares to a constant as asked.
///
/// # Errors
/// Where the constant is no such number.
pub fn require_of_system_call(
    comparison: Comparison,
    constant: impl FnOnce(&Shape, Kind) -> Result<u64, Refusal>,
) -> Result<ReadPlan, Refusal> {
    let mut code = Code::register(RAX, 0);
    let constant = constant(&long(), Kind::Signed)?;
    code.push(Instruction::new(Operation::Constant).immediate(constant));
    let mut require = Instruction::new(Operation::Require).size(Kind::Signed as u8);
    require.comparison = comparison as u8;
    code.push(require);
    plan(code.instructions())
}

/// What every system call returns.
fn long() -> Shape {
    Shape {
        type_name: "long".to_owned(),
        size: WORD,
        form: Form::Integer { signed: true },
    }
}
