//! How much stack the functions of an eBPF object use.
//!
//! From 64 bytes, Linux 6.13 and later give a function of a program a stack per CPU, and a uprobe program can be
//! preempted by another thread's: the two would overwrite each other's. The daemon's loader refuses such a program by
//! the verifier's figures, on those kernels; this finds it when the object is built.

use std::collections::{BTreeMap, HashMap, HashSet};

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex, SectionKind,
    SymbolKind,
};

use crate::error::{Error, Result};

/// `BPF_PRIV_STACK_MIN_SIZE` in `include/linux/bpf_verifier.h`.
const SHARED_BYTES: u64 = 64;

/// The verifier rounds the stack of a function up to this before it compares: `round_up_stack_depth` in
/// `kernel/bpf/verifier.c`.
const ROUNDED_TO: u64 = 16;

/// Sections whose programs can be preempted by others of their kind.
const PREEMPTIBLE: [&str; 2] = ["uprobe", "uretprobe"];

/// The number of the helper `bpf_loop`, which the kernel expands in place where it can, and the registers that this
/// saves: `optimize_bpf_loop` in `kernel/bpf/verifier.c`.
const BPF_LOOP: i32 = 181;
const BPF_LOOP_BYTES: u64 = 3 * 8;

// Source of the encoding: RFC 9669, "BPF Instruction Set Architecture".
const INSTRUCTION_BYTES: usize = 8;
const DISTANCE_BYTES: i64 = 8;
const FRAME_POINTER: u8 = 10;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE_64: u8 = 0xbf;
const ADD_IMMEDIATE_64: u8 = 0x07;
const CALL: u8 = 0x85;
const CALL_OF_FUNCTION: u8 = 1;

/// The functions that programs which can be preempted run, and that use so much stack that it would be shared: names
/// and bytes.
///
/// # Errors
/// When the object does not parse, or calls something that is not one of its functions.
pub fn shared(object: &[u8]) -> Result<Vec<(String, u64)>> {
    let functions = functions(object)?;
    let mut reached: Vec<&Function> = functions
        .values()
        .filter(|function| function.is_preemptible)
        .collect();
    let mut seen: HashSet<Place> = HashSet::new();
    let mut next = 0;
    while let Some(&function) = reached.get(next) {
        for callee in &function.callees {
            let callee_function = functions
                .get(callee)
                .ok_or_else(|| Error::told(format!("{} calls something unknown", function.name)))?;
            if seen.insert(*callee) {
                reached.push(callee_function);
            }
        }
        next += 1;
    }
    let mut shared: Vec<(String, u64)> = reached
        .iter()
        .filter(|function| function.stack_bytes >= SHARED_BYTES)
        .map(|function| (function.name.clone(), function.stack_bytes))
        .collect();
    shared.sort();
    Ok(shared)
}

/// Section and offset.
type Place = (SectionIndex, u64);

#[derive(Debug)]
struct Function {
    name: String,
    is_preemptible: bool,
    stack_bytes: u64,
    callees: Vec<Place>,
}

fn functions(object: &[u8]) -> Result<HashMap<Place, Function>> {
    let parse = |error: object::Error| Error::told(format!("parsing the eBPF object: {error}"));
    let file = object::File::parse(object).map_err(parse)?;
    let mut functions = HashMap::new();
    for section in file.sections() {
        let mut targets = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            if let RelocationTarget::Symbol(index) = relocation.target() {
                let symbol = file.symbol_by_index(index).map_err(parse)?;
                let section = symbol.section_index();
                // Of constants, only the address is taken.
                let is_code = |section| {
                    let section = file.section_by_index(section);
                    section.is_ok_and(|section| section.kind() == SectionKind::Text)
                };
                if let Some(section) = section.filter(|section| is_code(*section)) {
                    targets.insert(offset, (section, symbol.address(), symbol.kind()));
                }
            }
        }
        let of_section = file.symbols().filter(|symbol| {
            symbol.section_index() == Some(section.index()) && symbol.kind() == SymbolKind::Text
        });
        for symbol in of_section {
            let mut function = Function {
                name: symbol.name().map_err(parse)?.to_owned(),
                is_preemptible: section.name().is_ok_and(|name| PREEMPTIBLE.contains(&name)),
                stack_bytes: 0,
                callees: Vec::new(),
            };
            let code = section
                .data_range(symbol.address(), symbol.size())
                .map_err(parse)?
                .ok_or_else(|| Error::told(format!("{} lies outside its section", function.name)))?;
            read(&mut function, section.index(), symbol.address(), code, &targets);
            functions.insert((section.index(), symbol.address()), function);
        }
    }
    Ok(functions)
}

/// Reads what a function uses and calls from its instructions.
fn read(
    function: &mut Function,
    section: SectionIndex,
    address: u64,
    code: &[u8],
    targets: &BTreeMap<u64, (SectionIndex, u64, SymbolKind)>,
) {
    let mut calls_loop = false;
    // The register that holds the frame pointer since the instruction before.
    let mut copied_to = None;
    let instructions = code.as_chunks::<INSTRUCTION_BYTES>().0;
    for (index, &[opcode, registers, low, high, i0, i1, i2, i3]) in instructions.iter().enumerate() {
        let (target, source) = (registers & 0xf, registers >> 4);
        let offset = i16::from_le_bytes([low, high]);
        let immediate = i32::from_le_bytes([i0, i1, i2, i3]);
        let at = address + (index * INSTRUCTION_BYTES) as u64;
        let base = match opcode & 0x7 {
            1 => Some(source),
            2 | 3 => Some(target),
            _ => None,
        };
        let mut uses =
            |bytes: i64| function.stack_bytes = function.stack_bytes.max(bytes.min(0).unsigned_abs());
        if base == Some(FRAME_POINTER) {
            uses(i64::from(offset));
        }
        if opcode == ADD_IMMEDIATE_64 && copied_to == Some(target) {
            uses(i64::from(immediate));
        }
        copied_to = (opcode == MOVE_64 && source == FRAME_POINTER).then_some(target);
        match (opcode, targets.get(&at)) {
            (CALL, None) if source == CALL_OF_FUNCTION => {
                let callee = (at + INSTRUCTION_BYTES as u64)
                    .wrapping_add_signed(i64::from(immediate) * DISTANCE_BYTES);
                function.callees.push((section, callee));
            }
            (CALL, None) => calls_loop |= immediate == BPF_LOOP,
            // Of a function in a section without symbols of its own: the place in the section, less one.
            (CALL, Some((section, start, SymbolKind::Section))) => function.callees.push((
                *section,
                start.wrapping_add_signed((i64::from(immediate) + 1) * DISTANCE_BYTES),
            )),
            (CALL, Some((section, start, _))) => function.callees.push((*section, *start)),
            // A callback.
            (LOAD_IMMEDIATE_64, Some((section, start, SymbolKind::Section))) => {
                function
                    .callees
                    .push((*section, start.wrapping_add_signed(i64::from(immediate))));
            }
            (LOAD_IMMEDIATE_64, Some((section, start, SymbolKind::Text))) => {
                function.callees.push((*section, *start));
            }
            _ => (),
        }
    }
    function.stack_bytes = function.stack_bytes.next_multiple_of(ROUNDED_TO);
    if calls_loop {
        function.stack_bytes += BPF_LOOP_BYTES;
    }
}
