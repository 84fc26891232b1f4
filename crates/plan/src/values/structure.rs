//! The members of structures, and the variants of Rust's enums.

use super::scope::moved;
use super::{
    entry::Entry,
    file::{DebugFile, Slice},
    refusal::{Refusal, unsupported},
    shape::{Budget, Form, Member, Shape, Variants},
};
use gimli::{AttributeValue, Operation};
use std::{collections::VecDeque, ops::RangeInclusive};

/// Structures and base classes that a member is looked for in.
const MAX_SEARCHED: usize = 256;

/// A member as it is described.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub name: Option<String>,
    pub kind: Option<Entry<'a>>,
    /// Bytes before it; why that is not known otherwise.
    pub offset: Result<u64, Refusal>,
    /// Bits of its first byte before it, and its bits.
    pub bits: Option<(u32, u32)>,
    /// Whether its own members are found under the structure's name: a base class, or one without a name.
    pub is_open: bool,
}

/// A variant of an enum.
pub(super) struct Choice<'a> {
    pub name: String,
    /// What stands for it: none where it is what no other's number stands for.
    pub numbers: Vec<u64>,
    pub field: Field<'a>,
}

/// Whether a variant has a number for a name.
fn is_numbered(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

impl Field<'_> {
    /// Bytes that hold it, where it is a bit field.
    pub fn bit_bytes(&self) -> Option<u64> {
        self.bits.map(|(shift, bits)| u64::from(shift + bits).div_ceil(8))
    }
}

impl<'a> DebugFile<'a> {
    /// The members of a structure that are in each of its values, base classes first.
    pub(super) fn fields(&self, structure: &Entry<'a>) -> Result<Vec<Field<'a>>, Refusal> {
        let mut fields = Vec::new();
        for child in structure.children()? {
            if let Some(field) = self.field(&child) {
                fields.push(field);
            }
        }
        Ok(fields)
    }

    fn field(&self, child: &Entry<'a>) -> Option<Field<'a>> {
        let is_base = child.tag() == gimli::DW_TAG_inheritance;
        if !is_base && child.tag() != gimli::DW_TAG_member
            || child.flag(gimli::DW_AT_external)
            || child.flag(gimli::DW_AT_declaration)
        {
            return None;
        }
        let kind = self.type_of(child).ok().flatten();
        let name = if is_base {
            kind.as_ref().and_then(|kind| self.name(kind))
        } else {
            self.name(child)
        };
        let is_virtual = is_base
            && matches!(
                child.value(gimli::DW_AT_virtuality),
                Some(AttributeValue::Virtuality(v)) if v != gimli::DW_VIRTUALITY_none
            );
        let (offset, bits) = if is_virtual {
            (unsupported("a virtual base class"), None)
        } else {
            match self.field_place(child, kind.as_ref()) {
                Ok((offset, bits)) => (Ok(offset), bits),
                Err(refusal) => (Err(refusal), None),
            }
        };
        Some(Field {
            is_open: is_base || !child.die.has_attr(gimli::DW_AT_name),
            name,
            kind,
            offset,
            bits,
        })
    }

    /// Bytes before a member; and where it has some bits only, those before it and those of it.
    fn field_place(
        &self,
        child: &Entry<'a>,
        kind: Option<&Entry<'a>>,
    ) -> Result<(u64, Option<(u32, u32)>), Refusal> {
        let start = member_offset(child)?;
        let Some(bits) = child.number(gimli::DW_AT_bit_size) else {
            return Ok((start, None));
        };
        let (Ok(bits @ 1..=64), true) = (u32::try_from(bits), start < 1 << 32) else {
            return unsupported("a bit field of an unusual size");
        };
        let first = if let Some(offset) = child.number(gimli::DW_AT_data_bit_offset) {
            Some(offset)
        } else if let Some(from_top) = child.number(gimli::DW_AT_bit_offset) {
            // Before DWARF 4 bits are counted from the highest of the unit that holds them.
            let size = match child.number(gimli::DW_AT_byte_size) {
                Some(size) => size,
                None => self.size_of(kind)?,
            };
            (start * 8)
                .saturating_add(size.saturating_mul(8))
                .checked_sub(from_top)
                .and_then(|end| end.checked_sub(bits.into()))
        } else {
            Some(start * 8)
        };
        let Some(first) = first else {
            return unsupported("a bit field outside of its structure");
        };
        let shift = u32::try_from(first % 8).unwrap_or(0);
        Ok((first / 8, Some((shift, bits))))
    }

    /// The path of the static member of a name, of a class or one of its bases.
    pub(super) fn static_member(
        &self,
        class: &Entry<'a>,
        name: &str,
    ) -> Result<Option<Vec<String>>, Refusal> {
        // Breadth first: a class's own member hides those of its bases.
        let mut classes = VecDeque::from([class.clone()]);
        let mut searched = 0;
        while let Some(class) = classes.pop_front() {
            searched += 1;
            if searched > MAX_SEARCHED {
                return unsupported("a structure with too many parts");
            }
            for child in class.children()? {
                let is_static = child.flag(gimli::DW_AT_external) || child.flag(gimli::DW_AT_declaration);
                match child.tag() {
                    gimli::DW_TAG_inheritance => {
                        classes.extend(self.stripped(self.type_of(&child)?)?);
                    }
                    gimli::DW_TAG_member | gimli::DW_TAG_variable
                        if is_static && self.name(&child).as_deref() == Some(name) =>
                    {
                        let path = self.name(&class).into_iter().chain([name.to_owned()]);
                        return Ok(Some(path.collect()));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// The member of a name, in the structure or what is open in it, and the bytes before it.
    pub(super) fn member(&self, structure: &Entry<'a>, name: &str) -> Result<Option<Field<'a>>, Refusal> {
        // Breadth first: a class's own member hides those of its bases.
        let mut level = vec![(structure.clone(), 0_u64)];
        let mut searched = 0;
        let mut is_hidden = false;
        while !level.is_empty() {
            let mut next = Vec::new();
            let mut found: Vec<Field<'a>> = Vec::new();
            for (structure, before) in level {
                searched += 1;
                if searched > MAX_SEARCHED {
                    return unsupported("a structure with too many parts");
                }
                is_hidden |= structure
                    .children()?
                    .iter()
                    .any(|child| child.tag() == gimli::DW_TAG_member && self.is_named_elsewhere(child));
                for mut field in self.fields(&structure)? {
                    field.offset = field.offset.and_then(|offset| {
                        offset
                            .checked_add(before)
                            .ok_or_else(|| Refusal::Damaged("a member lies outside of memory".into()))
                    });
                    if field.name.as_deref() == Some(name) {
                        found.push(field);
                    } else if field.is_open
                        && let Ok(offset) = field.offset
                        && let Some(inner) = self.stripped(field.kind.clone())?
                    {
                        next.push((inner, offset));
                    }
                }
            }
            match found.len() {
                0 if is_hidden => return moved(name),
                0 => level = next,
                1 => return Ok(found.pop()),
                _ => {
                    return Err(Refusal::Ambiguous {
                        name: name.into(),
                        candidates: vec!["members of several bases".into()],
                    });
                }
            }
        }
        Ok(None)
    }

    /// Whether a structure has variants.
    pub(super) fn variant_part(structure: &Entry<'a>) -> Result<Option<Entry<'a>>, Refusal> {
        let children = structure.children()?;
        Ok(children
            .into_iter()
            .find(|child| child.tag() == gimli::DW_TAG_variant_part))
    }

    pub(super) fn structure(&self, entry: &Entry<'a>, budget: &mut Budget) -> Result<Form, Refusal> {
        if let Some(part) = Self::variant_part(entry)? {
            return self.variants(&part, budget);
        }
        let mut members = Vec::new();
        for field in self.fields(entry)? {
            members.push(self.described(&field, budget));
        }
        Ok(Form::Structure(members))
    }

    fn described(&self, field: &Field<'a>, budget: &mut Budget) -> Member {
        let name = field.name.clone().unwrap_or_default();
        let offset = match &field.offset {
            Ok(offset) => *offset,
            Err(refusal) => {
                return Member {
                    name,
                    offset: 0,
                    shape: Shape {
                        type_name: self.type_name(field.kind.as_ref()),
                        size: 0,
                        form: Form::Unsupported(refusal.to_string()),
                    },
                };
            }
        };
        let shape = self.shape(field.kind.as_ref(), budget);
        Member {
            name,
            offset,
            shape: in_bits(shape, field),
        }
    }

    /// What an enum can be.
    pub(super) fn choices(&self, part: &Entry<'a>) -> Result<Vec<Choice<'a>>, Refusal> {
        let bits = self
            .discriminant(part)?
            .map_or(0, |(_, width)| 8 * u64::from(width));
        let mut choices = Vec::new();
        for variant in part.children()? {
            if variant.tag() != gimli::DW_TAG_variant {
                continue;
            }
            let field = variant.children()?.iter().find_map(|child| self.field(child));
            let number = match variant.die.attr(gimli::DW_AT_discr_value) {
                Some(value) => cut(&value.raw_value(), bits).and_then(|number| u64::try_from(number).ok()),
                None => None,
            };
            let is_told = number.is_some() || !variant.die.has_attr(gimli::DW_AT_discr_value);
            let (Some(field), true, false) = (field, is_told, variant.die.has_attr(gimli::DW_AT_discr_list))
            else {
                return unsupported("a step into an enum whose variants are described in an unusual way");
            };
            let name = field.name.clone().unwrap_or_default();
            let name = if is_numbered(&name) {
                self.type_name(field.kind.as_ref())
            } else {
                name
            };
            choices.push(Choice {
                name,
                numbers: number.into_iter().collect(),
                field,
            });
        }
        let default = choices.iter().filter(|choice| choice.numbers.is_empty()).count();
        if default > 1 {
            return unsupported("an enum whose variants cannot be told apart");
        }
        Ok(choices)
    }

    /// Bytes before the number that tells an enum's variants apart, and its bytes; `None` where there is one only.
    pub(super) fn discriminant(&self, part: &Entry<'a>) -> Result<Option<(u64, u8)>, Refusal> {
        let Some(member) = self.referred(part, gimli::DW_AT_discr)? else {
            return Ok(None);
        };
        let Some(field) = self.field(&member) else {
            return unsupported("an enum whose discriminant is no member");
        };
        match u8::try_from(self.size_of(field.kind.as_ref())?) {
            Ok(width @ (1 | 2 | 4 | 8)) => Ok(Some((field.offset?, width))),
            _ => unsupported(
                "a step into an enum whose variants are told apart by a number of an unusual size",
            ),
        }
    }

    fn variants(&self, part: &Entry<'a>, budget: &mut Budget) -> Result<Form, Refusal> {
        let discriminant = match self.referred(part, gimli::DW_AT_discr)? {
            Some(member) => match self.field(&member) {
                Some(field) => Some(self.described(&field, budget)),
                None => return unsupported("an enum whose discriminant is no member"),
            },
            None => None,
        };
        let bits = discriminant
            .as_ref()
            .map_or(0, |member| member.shape.size.saturating_mul(8));
        let mut variants = Vec::new();
        for variant in part.children()? {
            if variant.tag() != gimli::DW_TAG_variant {
                continue;
            }
            let field = variant.children()?.iter().find_map(|child| self.field(child));
            let Some(field) = field else {
                return unsupported("an enum with a variant that is described in an unknown way");
            };
            let mut numbers = Vec::new();
            if let Some(value) = variant.die.attr(gimli::DW_AT_discr_value) {
                let Some(number) = cut(&value.raw_value(), bits) else {
                    return unsupported("an enum with a variant of an unknown number");
                };
                numbers.push(number..=number);
            } else if variant.die.has_attr(gimli::DW_AT_discr_list) {
                numbers = ranges(&variant, bits)?;
            }
            let mut member = self.described(&field, budget);
            // The states of an asynchronous function are numbered, and named by their types.
            if is_numbered(&member.name) {
                member.name.clone_from(&member.shape.type_name);
            }
            variants.push((numbers, member));
        }
        let default = variants.iter().filter(|(numbers, _)| numbers.is_empty()).count();
        if variants.is_empty() || default > 1 || (discriminant.is_none() && variants.len() > 1) {
            return unsupported("an enum whose variants cannot be told apart");
        }
        Ok(Form::Variants(Box::new(Variants {
            discriminant,
            variants,
        })))
    }
}

/// The shape of a member, by its bits where it has some only.
pub(super) fn in_bits(shape: Shape, field: &Field<'_>) -> Shape {
    match (field.bits, field.bit_bytes()) {
        (Some((shift, bits)), Some(size)) => Shape {
            type_name: shape.type_name.clone(),
            size,
            form: Form::Bits {
                shift,
                bits,
                of: Box::new(shape),
            },
        },
        _ => shape,
    }
}

fn member_offset(child: &Entry<'_>) -> Result<u64, Refusal> {
    match child.value(gimli::DW_AT_data_member_location) {
        // A union's members do not say it, nor do bit fields of DWARF 4.
        None => Ok(0),
        Some(AttributeValue::Exprloc(expression)) => {
            let mut operations = expression.operations(child.unit.encoding());
            match (operations.next()?, operations.next()?) {
                (Some(Operation::PlusConstant { value } | Operation::UnsignedConstant { value }), None) => {
                    Ok(value)
                }
                _ => unsupported("a member whose place is computed"),
            }
        }
        Some(AttributeValue::Block(block)) => {
            let mut operations = gimli::Expression(block).operations(child.unit.encoding());
            match (operations.next()?, operations.next()?) {
                (Some(Operation::PlusConstant { value }), None) => Ok(value),
                _ => unsupported("a member whose place is computed"),
            }
        }
        Some(value) => match value.udata_value() {
            Some(offset) => Ok(offset),
            None => unsupported("a member whose place is computed"),
        },
    }
}

/// A variant's number, cut to the bits of the discriminant.
fn cut(value: &AttributeValue<Slice<'_>>, bits: u64) -> Option<u128> {
    let number = match *value {
        AttributeValue::Data1(number) => u128::from(number),
        AttributeValue::Data2(number) => u128::from(number),
        AttributeValue::Data4(number) => u128::from(number),
        AttributeValue::Data8(number) | AttributeValue::Udata(number) => u128::from(number),
        AttributeValue::Data16(number) => number,
        AttributeValue::Sdata(number) => i128::from(number).cast_unsigned(),
        AttributeValue::Block(bytes) => {
            let mut word = [0; 16];
            word.get_mut(..bytes.len())?.copy_from_slice(bytes.slice());
            u128::from_le_bytes(word)
        }
        _ => return None,
    };
    Some(if bits < 128 {
        number & ((1 << bits) - 1)
    } else {
        number
    })
}

/// The numbers of a variant that has several: pairs of a kind and one or two numbers without sign.
fn ranges(variant: &Entry<'_>, bits: u64) -> Result<Vec<RangeInclusive<u128>>, Refusal> {
    use gimli::Reader as _;
    let Some(AttributeValue::Block(mut list)) = variant.value(gimli::DW_AT_discr_list) else {
        return unsupported("an enum with a variant of unknown numbers");
    };
    let mut found = Vec::new();
    while !list.is_empty() {
        let kind = list.read_u8()?;
        let from = u128::from(list.read_uleb128()?);
        let to = match kind {
            0 => from,
            1 => u128::from(list.read_uleb128()?),
            _ => return unsupported("an enum with a variant of unknown numbers"),
        };
        if bits < 128 && to >> bits != 0 {
            return unsupported("an enum with a variant of signed numbers");
        }
        found.push(from..=to);
    }
    Ok(found)
}
