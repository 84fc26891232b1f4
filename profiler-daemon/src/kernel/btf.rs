//! Offsets of kernel structures, and parameters of its functions, from the running kernel's own BTF.
//!
//! Format: `Documentation/bpf/btf.rst` of the kernel. Only what finding a member needs is read; every
//! access is bounds-checked, though the kernel is trusted to give sound data.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use profiler_plan::values::Parameter;

use super::KernelError;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_INTEGER: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_ENUM: u32 = 6;
const KIND_FORWARD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNCTION: u32 = 12;
const KIND_PROTOTYPE: u32 = 13;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;
/// Of an integer: it is signed, or a `bool`.
const SIGNED: u32 = 1;
const BOOLEAN: u32 = 4;
/// Names and qualifiers in front of a type that are looked through.
const MAX_NAMES: u32 = 16;
/// Parameters that are handed over in registers.
const MAX_PARAMETERS: usize = 6;
/// Structures in structures that are looked into for a member.
const MAX_NESTING: u32 = 8;

/// A type whose values fit into a register.
struct Scalar {
    /// As C has it.
    name: String,
    /// In bytes.
    size: u64,
    signed: bool,
}

/// The running kernel's types.
pub struct Btf {
    data: Vec<u8>,
    types: Range<usize>,
    strings: Range<usize>,
    /// Where each type begins; type 1 is the first.
    offsets: Vec<usize>,
    /// Of the structures alone: where the name is among the strings, and where the type begins.
    structures: Vec<(u32, usize)>,
}

impl Btf {
    /// Reads them.
    ///
    /// # Errors
    /// Where the kernel has no BTF, or a kind of type that is not known.
    pub fn read() -> Result<Self, KernelError> {
        let data = std::fs::read(PATH).map_err(|error| KernelError::Btf(format!("{PATH}: {error}")))?;
        Self::parse(data).ok_or_else(|| KernelError::Btf(format!("{PATH} is not understood")))
    }

    fn parse(data: Vec<u8>) -> Option<Self> {
        if u16::from_le_bytes(data.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = word(&data, 4)? as usize;
        let section = |at: usize| {
            let start = header.checked_add(word(&data, at)? as usize)?;
            let range = start..start.checked_add(word(&data, at + 4)? as usize)?;
            data.get(range.clone()).map(|_| range)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let (mut offsets, mut structures) = (Vec::new(), Vec::new());
        let mut at = types.start;
        while at + 12 <= types.end {
            offsets.push(at);
            let info = word(&data, at + 4)?;
            let count = (info & 0xffff) as usize;
            let kind = info >> 24 & 0x1f;
            if kind == KIND_STRUCT {
                structures.push((word(&data, at)?, at));
            }
            // Bytes that follow the common part, by kind.
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,                                 // INT, VAR, DECL_TAG
                    3 => 12,                                          // ARRAY
                    KIND_STRUCT | KIND_UNION | 15 | 19 => count * 12, // DATASEC, ENUM64
                    6 | 13 => count * 8,                              // ENUM, FUNC_PROTO
                    2 | 7..=12 | 16 | 18 => 0,                        // PTR, FWD…FUNC, FLOAT, TYPE_TAG
                    _ => return None,
                };
        }
        Some(Self {
            data,
            types,
            strings,
            offsets,
            structures,
        })
    }

    /// Byte offset of a member of a structure, such as `uprobes_state.xol_area`; members of members without a name
    /// are found as well.
    ///
    /// # Errors
    /// Where there is no such structure or member.
    pub fn offset(&self, structure: &str, path: &str) -> Result<u32, KernelError> {
        self.named(structure)
            .and_then(|start| {
                path.split('.').try_fold((start, 0), |(at, offset), member| {
                    let (inner, of_member) = self.member(at, member, MAX_NESTING)?;
                    Some((inner.unwrap_or(at), offset + of_member))
                })
            })
            .map(|(_, offset)| offset)
            .ok_or_else(|| KernelError::Btf(format!("{PATH} has no struct {structure} with a member {path}")))
    }

    /// The parameters of functions, in the order of the registers that they are handed over in, up to the first that is in
    /// none; `None` of a name that several functions have that differ.
    #[must_use]
    pub fn parameters<'a>(&self, functions: &HashSet<&'a str>) -> HashMap<&'a str, Option<Vec<Parameter>>> {
        let mut found: HashMap<&str, Option<Vec<Parameter>>> = HashMap::new();
        for at in &self.offsets {
            let Some((function, parameters)) = self.function(*at, functions) else {
                continue;
            };
            let known = found.entry(function).or_insert_with(|| parameters.clone());
            if *known != parameters {
                *known = None;
            }
        }
        found
    }

    /// Name and parameters of a function, if one of these is described there.
    fn function<'a>(
        &self,
        at: usize,
        functions: &HashSet<&'a str>,
    ) -> Option<(&'a str, Option<Vec<Parameter>>)> {
        if self.kind(at)? != KIND_FUNCTION {
            return None;
        }
        let name = std::str::from_utf8(self.string(word(&self.data, at)?)?).ok()?;
        let function = functions.get(name)?;
        Some((function, self.of_prototype(word(&self.data, at + 8)?)))
    }

    fn of_prototype(&self, number: u32) -> Option<Vec<Parameter>> {
        let at = self.at(number)?;
        if self.kind(at)? != KIND_PROTOTYPE {
            return None;
        }
        let count = (word(&self.data, at + 4)? & 0xffff) as usize;
        let mut parameters = Vec::new();
        for index in 0..count.min(MAX_PARAMETERS) {
            let place = at + 12 + index * 8;
            let name = self.string(word(&self.data, place)?)?;
            let Some(scalar) = self.scalar(word(&self.data, place + 4)?) else {
                break;
            };
            parameters.push(Parameter {
                name: String::from_utf8_lossy(name).into_owned(),
                type_name: scalar.name,
                size: scalar.size,
                signed: scalar.signed,
            });
        }
        Some(parameters)
    }

    /// A type whose values fit into a register.
    fn scalar(&self, number: u32) -> Option<Scalar> {
        let scalar = |size, signed| Scalar {
            name: self.type_name(number, MAX_NAMES),
            size,
            signed,
        };
        let mut inner = number;
        for _ in 0..MAX_NAMES {
            let at = self.at(inner)?;
            let (info, size) = (word(&self.data, at + 4)?, word(&self.data, at + 8)?);
            let is_signed_enum = info >> 31 == 1;
            return match self.kind(at)? {
                KIND_INTEGER if size <= 8 => {
                    let encoding = word(&self.data, at + 12)? >> 24 & 0xf;
                    let is_boolean = encoding & BOOLEAN != 0;
                    let mut scalar = scalar(u64::from(size), encoding & SIGNED != 0);
                    if is_boolean {
                        "bool".clone_into(&mut scalar.name);
                    }
                    Some(scalar)
                }
                KIND_ENUM | KIND_ENUM64 => Some(scalar(u64::from(size), is_signed_enum)),
                KIND_POINTER => Some(scalar(8, false)),
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    inner = size;
                    continue;
                }
                _ => None,
            };
        }
        None
    }

    /// A type's name as C has it, but for what qualifies it.
    fn type_name(&self, number: u32, nesting: u32) -> String {
        let unknown = || "?".to_owned();
        if number == 0 {
            return "void".to_owned();
        }
        let (Some(at), 1..) = (self.at(number), nesting) else {
            return unknown();
        };
        let (Some(kind), Some(text), Some(next)) =
            (self.kind(at), word(&self.data, at), word(&self.data, at + 8))
        else {
            return unknown();
        };
        let name = String::from_utf8_lossy(self.string(text).unwrap_or_default()).into_owned();
        match kind {
            KIND_POINTER => {
                let pointee = self.type_name(next, nesting - 1);
                let space = if pointee.ends_with('*') { "" } else { " " };
                format!("{pointee}{space}*")
            }
            KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => self.type_name(next, nesting - 1),
            KIND_STRUCT | KIND_FORWARD => format!("struct {name}"),
            KIND_UNION => format!("union {name}"),
            KIND_ENUM | KIND_ENUM64 => format!("enum {name}"),
            KIND_PROTOTYPE => "function".to_owned(),
            _ if name.is_empty() => unknown(),
            _ => name,
        }
    }

    fn at(&self, number: u32) -> Option<usize> {
        self.offsets.get((number as usize).checked_sub(1)?).copied()
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(word(&self.data, at + 4)? >> 24 & 0x1f)
    }

    /// Where a structure of this name begins.
    fn named(&self, name: &str) -> Option<usize> {
        let strings = &self.data[self.strings.clone()];
        let is_named = |at: u32| {
            let rest = strings
                .get(at as usize..)
                .and_then(|rest| rest.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        let found = self.structures.iter().find(|(text, _)| is_named(*text));
        found.map(|(_, at)| *at)
    }

    /// A member's own structure, if it is one, and its offset.
    fn member(&self, at: usize, name: &str, nesting: u32) -> Option<(Option<usize>, u32)> {
        let info = word(&self.data, at + 4)?;
        let bitfields = info >> 31 == 1;
        for index in 0..(info & 0xffff) as usize {
            let member = at + 12 + index * 12;
            if member >= self.types.end {
                return None;
            }
            let text = self.string(word(&self.data, member)?)?;
            let bits = word(&self.data, member + 8)?;
            let offset = if bitfields { bits & 0x00ff_ffff } else { bits } / 8;
            let inner = self.structure(word(&self.data, member + 4)?);
            if text == name.as_bytes() {
                return Some((inner, offset));
            }
            if let (true, Some(inner), 1..) = (text.is_empty(), inner, nesting)
                && let Some((found, further)) = self.member(inner, name, nesting - 1)
            {
                return Some((found, offset + further));
            }
        }
        None
    }

    /// Where a type begins, if it is a structure or union.
    fn structure(&self, number: u32) -> Option<usize> {
        let at = *self.offsets.get((number as usize).checked_sub(1)?)?;
        let kind = word(&self.data, at + 4)? >> 24 & 0x1f;
        matches!(kind, KIND_STRUCT | KIND_UNION).then_some(at)
    }

    fn string(&self, at: u32) -> Option<&[u8]> {
        let rest = self.data[self.strings.clone()].get(at as usize..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        data.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Header, `struct outer { int a; struct { int b; }; struct inner c; }`, `struct inner { int d; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0b\0inner\0c\0d\0";
        let at = |name: &str| {
            let needle = [&[0], name.as_bytes(), &[0]].concat();
            let found = strings.windows(needle.len()).position(|window| window == needle);
            u32::try_from(found.unwrap() + 1).unwrap()
        };
        let structure = |count: u32| KIND_STRUCT << 24 | count;
        let types = [
            vec![0, 1 << 24, 4, 32],
            vec![
                at("outer"),
                structure(3),
                12,
                at("a"),
                1,
                0,
                0,
                3,
                32,
                at("c"),
                4,
                64,
            ],
            vec![0, structure(1), 4, at("b"), 1, 0],
            vec![at("inner"), structure(1), 4, at("d"), 1, 0],
        ]
        .concat();
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let header = [24, 0, length(&types), length(&types), length(strings)];
        let mut data = MAGIC.to_le_bytes().to_vec();
        data.extend([1, 0]);
        data.extend(header.into_iter().flat_map(u32::to_le_bytes));
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn members_are_found_in_structures_within_structures() {
        let btf = Btf::parse(sample()).unwrap();
        for (path, offset) in [("a", 0), ("b", 4), ("c", 8), ("c.d", 8)] {
            assert_eq!(btf.offset("outer", path).unwrap(), offset, "{path}");
        }
        let error = btf.offset("outer", "c.x").unwrap_err().to_string();
        assert!(error.contains("no struct outer with a member c.x"), "{error}");
        assert!(btf.offset("int", "a").is_err());
    }

    /// Some functions that every kernel has.
    #[test]
    fn parameters_have_names_and_types() {
        let Ok(btf) = Btf::read() else { return };
        let known = btf.parameters(&HashSet::from(["vfs_read", "no_such_function"]));
        let parameters = known["vfs_read"].clone().unwrap();
        let told: Vec<(&str, &str, u64)> = parameters
            .iter()
            .map(|parameter| {
                (
                    parameter.name.as_str(),
                    parameter.type_name.as_str(),
                    parameter.size,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("file", "struct file *", 8),
                ("buf", "char *", 8),
                ("count", "size_t", 8),
                ("pos", "loff_t *", 8),
            ]
        );
        assert_eq!(known.len(), 1);
    }

    proptest! {
        #[test]
        fn damaged_data_does_no_harm(at in 0_usize..200, byte: u8) {
            let mut data = sample();
            let at = at % data.len();
            data[at] = byte;
            if let Some(btf) = Btf::parse(data) {
                let _ = btf.offset("outer", "c.d");
                let _ = btf.offset("outer", "b");
                let _ = btf.parameters(&HashSet::from(["outer"]));
            }
        }
    }
}
