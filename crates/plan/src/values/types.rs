//! Types, a step at a time.

use super::{
    entry::Entry,
    file::DebugFile,
    refusal::{Refusal, unsupported},
};
use gimli::{AttributeValue, DwAte};
use std::fmt::Write as _;

/// Names and qualifiers that a type may have around it.
const MAX_QUALIFIERS: usize = 32;
/// Types within types that a name is spelled out for, or a size computed.
const MAX_NESTING: u8 = 16;
/// Dimensions of an array.
const MAX_DIMENSIONS: usize = 8;

/// What an array is of.
pub(super) struct Array<'a> {
    pub element: Option<Entry<'a>>,
    /// Elements in each dimension, the outermost first.
    pub counts: Vec<u64>,
}

impl<'a> DebugFile<'a> {
    /// A type without its names and qualifiers.
    pub(super) fn stripped(&self, named: Option<Entry<'a>>) -> Result<Option<Entry<'a>>, Refusal> {
        let mut at = named;
        for _ in 0..MAX_QUALIFIERS {
            let Some(entry) = &at else { return Ok(None) };
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_immutable_type => at = self.type_of(entry)?,
                _ => return Ok(at),
            }
        }
        Err(Refusal::Damaged("a type refers to itself".into()))
    }

    /// A type's name as its users know it.
    pub(super) fn type_name(&self, entry: Option<&Entry<'a>>) -> String {
        self.spelled(entry, 0)
    }

    fn spelled(&self, entry: Option<&Entry<'a>>, nesting: u8) -> String {
        let Some(entry) = entry else { return "void".into() };
        if nesting == MAX_NESTING {
            return "…".into();
        }
        let inner = || match self.type_of(entry) {
            Ok(inner) => self.spelled(inner.as_ref(), nesting + 1),
            Err(_) => "?".into(),
        };
        if let Some(name) = self.name(entry) {
            return name;
        }
        match entry.tag() {
            gimli::DW_TAG_const_type => format!("const {}", inner()),
            gimli::DW_TAG_volatile_type => format!("volatile {}", inner()),
            gimli::DW_TAG_pointer_type => format!("{}*", inner()),
            gimli::DW_TAG_reference_type => format!("{}&", inner()),
            gimli::DW_TAG_rvalue_reference_type => format!("{}&&", inner()),
            gimli::DW_TAG_array_type => match self.array(entry) {
                Ok(array) => {
                    let mut name = self.spelled(array.element.as_ref(), nesting + 1);
                    for count in array.counts {
                        let _ = write!(name, "[{count}]");
                    }
                    name
                }
                Err(_) => format!("{}[]", inner()),
            },
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => "struct {…}".into(),
            gimli::DW_TAG_union_type => "union {…}".into(),
            gimli::DW_TAG_enumeration_type => "enum {…}".into(),
            gimli::DW_TAG_subroutine_type => "function".into(),
            gimli::DW_TAG_restrict_type | gimli::DW_TAG_atomic_type | gimli::DW_TAG_immutable_type => inner(),
            _ => "?".into(),
        }
    }

    /// A type's size in bytes.
    pub(super) fn size_of(&self, entry: Option<&Entry<'a>>) -> Result<u64, Refusal> {
        let mut counted = 1_u64;
        let mut at = self.stripped(entry.cloned())?;
        for _ in 0..MAX_NESTING {
            let Some(entry) = &at else {
                return unsupported("a value of type void");
            };
            let size = match entry.tag() {
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => {
                    Some(entry.number(gimli::DW_AT_byte_size).unwrap_or(8))
                }
                _ => entry.number(gimli::DW_AT_byte_size),
            };
            if let Some(size) = size {
                return counted
                    .checked_mul(size)
                    .ok_or_else(|| Refusal::Damaged("a type is larger than memory".into()));
            }
            if entry.tag() != gimli::DW_TAG_array_type {
                break;
            }
            let array = self.array(entry)?;
            for count in array.counts {
                counted = counted
                    .checked_mul(count)
                    .ok_or_else(|| Refusal::Damaged("a type is larger than memory".into()))?;
            }
            at = self.stripped(array.element)?;
        }
        let name = self.type_name(at.as_ref());
        if at.is_some_and(|entry| entry.flag(gimli::DW_AT_declaration)) {
            return unsupported(format!("{name} is only declared where the variable is"));
        }
        unsupported(format!("the size of {name} is not known"))
    }

    /// What an array is of.
    pub(super) fn array(&self, entry: &Entry<'a>) -> Result<Array<'a>, Refusal> {
        let mut counts = Vec::new();
        for dimension in entry.children()? {
            if dimension.tag() != gimli::DW_TAG_subrange_type {
                continue;
            }
            if counts.len() == MAX_DIMENSIONS {
                return unsupported("an array with too many dimensions");
            }
            let lower = dimension.number(gimli::DW_AT_lower_bound).unwrap_or(0);
            let count = if let Some(count) = dimension.number(gimli::DW_AT_count) {
                count
            } else if let Some(upper) = dimension.die.attr(gimli::DW_AT_upper_bound) {
                // -1 stands for an array without elements.
                let is_none = upper.sdata_value() == Some(-1) || is_all_ones(&upper.raw_value());
                match upper.udata_value() {
                    _ if is_none => 0,
                    Some(upper) => upper.wrapping_sub(lower).wrapping_add(1),
                    None => return unsupported("an array whose length is computed as the program runs"),
                }
            } else if dimension.die.has_attr(gimli::DW_AT_count) {
                return unsupported("an array whose length is computed as the program runs");
            } else {
                // A flexible array at the end of a structure.
                0
            };
            counts.push(count);
        }
        if counts.is_empty() {
            return unsupported("an array without a length");
        }
        Ok(Array {
            element: self.type_of(entry)?,
            counts,
        })
    }

    /// The encoding of a base type, and its size in bytes.
    pub(super) fn encoding(entry: &Entry<'a>) -> Option<(DwAte, u64)> {
        let Some(AttributeValue::Encoding(encoding)) = entry.value(gimli::DW_AT_encoding) else {
            return None;
        };
        Some((encoding, entry.number(gimli::DW_AT_byte_size)?))
    }

    /// Whether a type is a character of one byte of C and C++, and if so, whether it is an unsigned one.
    pub(super) fn character(&self, entry: Option<&Entry<'a>>) -> Option<bool> {
        let entry = self.stripped(entry.cloned()).ok()??;
        if entry.tag() != gimli::DW_TAG_base_type {
            return None;
        }
        match Self::encoding(&entry)? {
            (gimli::DW_ATE_signed_char, 1) => Some(false),
            (gimli::DW_ATE_unsigned_char, 1) => Some(true),
            _ => None,
        }
    }

    /// Whether numbers of a type have a sign.
    pub(super) fn is_signed(&self, entry: Option<&Entry<'a>>) -> bool {
        let Ok(Some(entry)) = self.stripped(entry.cloned()) else {
            return false;
        };
        match entry.tag() {
            gimli::DW_TAG_base_type => matches!(
                Self::encoding(&entry),
                Some((gimli::DW_ATE_signed | gimli::DW_ATE_signed_char, _))
            ),
            gimli::DW_TAG_enumeration_type => self.enumeration_is_signed(&entry),
            _ => false,
        }
    }

    fn enumeration_is_signed(&self, entry: &Entry<'a>) -> bool {
        match self.type_of(entry) {
            Ok(Some(of)) if of.tag() == gimli::DW_TAG_base_type => matches!(
                Self::encoding(&of),
                Some((gimli::DW_ATE_signed | gimli::DW_ATE_signed_char, _))
            ),
            Ok(Some(of)) => self.is_signed(Some(&of)),
            // Of C, which does not say: those with a negative one.
            _ => entry.children().is_ok_and(|names| {
                names.iter().any(|name| {
                    let value = name
                        .die
                        .attr(gimli::DW_AT_const_value)
                        .map(gimli::Attribute::raw_value);
                    matches!(value, Some(AttributeValue::Sdata(..0)))
                })
            }),
        }
    }
}

fn is_all_ones(value: &AttributeValue<super::file::Slice<'_>>) -> bool {
    matches!(
        value,
        AttributeValue::Data4(u32::MAX) | AttributeValue::Data8(u64::MAX) | AttributeValue::Udata(u64::MAX)
    )
}
