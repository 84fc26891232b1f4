//! What bytes mean: types described in full, and owned.

use super::{
    entry::Entry,
    file::DebugFile,
    refusal::{Refusal, unsupported},
};
use gimli::AttributeValue;
use std::ops::RangeInclusive;

/// Structures within structures that are described.
pub(super) const MAX_NESTING: u8 = 10;
/// Members and elements' types of one value that are described.
pub(super) const MAX_PARTS: usize = 1024;
/// Names of all enumerations of one value.
const MAX_NAMES: usize = 8192;

/// What a value's bytes mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The type's name.
    pub type_name: String,
    /// Its size in bytes.
    pub size: u64,
    /// What is in them.
    pub form: Form,
}

/// What is in a value's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// A number.
    Integer {
        /// Whether it has a sign.
        signed: bool,
    },
    /// A `bool`.
    Boolean,
    /// A Unicode character.
    Character,
    /// An IEEE number of 4 or 8 bytes.
    Float,
    /// An address.
    Pointer,
    /// A number that has names.
    Enumeration {
        /// Whether numbers have a sign.
        signed: bool,
        /// The names.
        names: Vec<(i128, String)>,
    },
    /// Members, each at its own place; those of a union overlap.
    Structure(Vec<Member>),
    /// One of several members, told apart by a number.
    Variants(Box<Variants>),
    /// Equal elements, one after another.
    Array {
        /// What each is.
        element: Box<Shape>,
        /// How many there are.
        count: u64,
        /// They are calculated with at once, and live in vector registers.
        is_vector: bool,
    },
    /// Characters of one byte, one after another: text up to the first NUL.
    Characters {
        /// How many there are.
        count: u64,
        /// They are `unsigned char`, which may as well be bytes of any meaning.
        may_be_bytes: bool,
    },
    /// Some bits of the bytes.
    Bits {
        /// Bits before it.
        shift: u32,
        /// How many.
        bits: u32,
        /// What they are; its size does not count.
        of: Box<Shape>,
    },
    /// Nothing that can be shown, and why.
    Unsupported(String),
}

/// A member of a structure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name; that of its type where it is a base class, empty where it has none.
    pub name: String,
    /// Where it begins in the structure, in bytes.
    pub offset: u64,
    /// What it is.
    pub shape: Shape,
}

/// The variants of an enum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variants {
    /// The number that tells them apart; `None` where there is only one.
    pub discriminant: Option<Member>,
    /// Each with the numbers that stand for it, none for the one that all others stand for.
    pub variants: Vec<(Vec<RangeInclusive<u128>>, Member)>,
}

/// How much is left to describe.
pub(super) struct Budget {
    pub parts: usize,
    pub names: usize,
    pub nesting: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            parts: MAX_PARTS,
            names: MAX_NAMES,
            nesting: MAX_NESTING,
        }
    }
}

impl Shape {
    /// The shape of a word of the machine.
    pub(super) fn word(type_name: &str) -> Self {
        Self {
            type_name: type_name.into(),
            size: 8,
            form: Form::Integer { signed: false },
        }
    }

    /// The shape of so many of them, one after another.
    pub(super) fn repeated(self, count: u64) -> Self {
        Self {
            type_name: format!("{}[{count}]", self.type_name),
            size: self.size.saturating_mul(count),
            form: Form::Array {
                element: Box::new(self),
                count,
                is_vector: false,
            },
        }
    }
}

impl<'a> DebugFile<'a> {
    /// The shape of a type. What cannot be described is [`Form::Unsupported`].
    pub(super) fn shape(&self, entry: Option<&Entry<'a>>, budget: &mut Budget) -> Shape {
        let type_name = self.type_name(entry);
        let size = self.size_of(entry);
        let form = if budget.parts == 0 || budget.nesting == 0 {
            unsupported("a type with too many parts")
        } else {
            budget.parts -= 1;
            budget.nesting -= 1;
            let form = size.clone().and_then(|size| self.form(entry, size, budget));
            budget.nesting += 1;
            form
        };
        Shape {
            type_name,
            size: size.unwrap_or(0),
            form: form.unwrap_or_else(|refusal| {
                Form::Unsupported(match refusal {
                    Refusal::Unsupported(reason) => reason,
                    other => other.to_string(),
                })
            }),
        }
    }

    fn form(&self, entry: Option<&Entry<'a>>, size: u64, budget: &mut Budget) -> Result<Form, Refusal> {
        let Some(entry) = self.stripped(entry.cloned())? else {
            return unsupported("a value of type void");
        };
        if entry.flag(gimli::DW_AT_declaration) {
            return unsupported("its type is only declared where the variable is");
        }
        Ok(match entry.tag() {
            gimli::DW_TAG_base_type => Self::base(&entry)?,
            gimli::DW_TAG_unspecified_type => Form::Pointer,
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
                if size == 8 =>
            {
                Form::Pointer
            }
            gimli::DW_TAG_enumeration_type => self.enumeration(&entry, size, budget)?,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.structure(&entry, budget)?
            }
            gimli::DW_TAG_array_type => {
                let array = self.array(&entry)?;
                let mut shape = self.shape(array.element.as_ref(), budget);
                let mut counts = array.counts.iter().rev();
                let of_vector = entry.flag(gimli::DW_AT_GNU_vector);
                if let Some(may_be_bytes) = self.character(array.element.as_ref())
                    && !of_vector
                    && let Some(&count) = counts.next()
                {
                    shape = shape.repeated(count);
                    shape.form = Form::Characters { count, may_be_bytes };
                }
                for count in counts {
                    shape = shape.repeated(*count);
                }
                if let Form::Array { is_vector, .. } = &mut shape.form {
                    *is_vector = of_vector;
                }
                shape.form
            }
            gimli::DW_TAG_ptr_to_member_type => return unsupported("a pointer to a member"),
            other => return unsupported(format!("a type described by {other}")),
        })
    }

    fn base(entry: &Entry<'a>) -> Result<Form, Refusal> {
        let Some((encoding, size)) = Self::encoding(entry) else {
            return unsupported("a base type without an encoding");
        };
        if !matches!(
            entry.value(gimli::DW_AT_endianity),
            None | Some(AttributeValue::Endianity(
                gimli::DW_END_default | gimli::DW_END_little
            ))
        ) {
            return unsupported("numbers in big-endian order");
        }
        Ok(match (encoding, size) {
            (gimli::DW_ATE_signed | gimli::DW_ATE_signed_char, 1..=16) => Form::Integer { signed: true },
            (gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char, 0..=16) => Form::Integer { signed: false },
            (gimli::DW_ATE_boolean, 1..=8) => Form::Boolean,
            (gimli::DW_ATE_UTF, 1 | 2 | 4) => Form::Character,
            (gimli::DW_ATE_float, 4 | 8) => Form::Float,
            (gimli::DW_ATE_float, size) => {
                return unsupported(format!("a floating-point number of {size} bytes"));
            }
            (gimli::DW_ATE_complex_float, _) => return unsupported("a complex number"),
            (gimli::DW_ATE_address, 8) => Form::Pointer,
            (other, size) => return unsupported(format!("a number of {size} bytes encoded as {other}")),
        })
    }

    fn enumeration(&self, entry: &Entry<'a>, size: u64, budget: &mut Budget) -> Result<Form, Refusal> {
        let signed = self.is_signed(Some(entry));
        let bits = u32::try_from(size.saturating_mul(8)).unwrap_or(u32::MAX);
        let mut names = Vec::new();
        for name in entry.children()? {
            if name.tag() != gimli::DW_TAG_enumerator || budget.names == 0 {
                continue;
            }
            let attribute = name.die.attr(gimli::DW_AT_const_value);
            let number = match attribute.map(gimli::Attribute::raw_value) {
                Some(AttributeValue::Sdata(number)) => i128::from(number),
                Some(AttributeValue::Udata(number) | AttributeValue::Data8(number)) => i128::from(number),
                Some(AttributeValue::Data4(number)) => i128::from(number),
                Some(AttributeValue::Data2(number)) => i128::from(number),
                Some(AttributeValue::Data1(number)) => i128::from(number),
                _ => continue,
            };
            let number = wrapped(number, bits, signed);
            if let Some(name) = self.name(&name) {
                names.push((number, name));
                budget.names -= 1;
            }
        }
        Ok(Form::Enumeration { signed, names })
    }
}

/// A number as so many bits hold it.
pub(super) fn wrapped(number: i128, bits: u32, signed: bool) -> i128 {
    let unused = 128_u32.saturating_sub(bits);
    if bits == 0 || unused == 0 {
        return number;
    }
    let moved = number << unused;
    if signed {
        moved >> unused
    } else {
        (moved.cast_unsigned() >> unused).cast_signed()
    }
}
