//! Strings and slices of the languages' libraries: a pointer, a length, and the memory that the pointer leads to.

use profiler_common::values::{Instruction, MAX_BYTES, Operation};

use super::{
    entry::Entry,
    file::DebugFile,
    place::Place,
    refusal::{Refusal, unsupported},
};

/// Bytes of a pointer or a length.
const WORD: u64 = 8;
/// Bytes that are left for what a pointer leads to, after the pointer or the length.
const MAX_CONTENT: u64 = MAX_BYTES as u64 - WORD;
/// Bytes behind text that say how many of it were read.
const TRIED_BYTES: u64 = 2;
/// Structures within structures that a pointer is looked for in.
const MAX_NESTING: u8 = 8;

/// What follows a pointer.
pub(super) enum Text<'a> {
    /// Characters up to a NUL.
    Terminated {
        /// They are not plain `char`, and may as well be bytes of any meaning.
        may_be_bytes: bool,
    },
    /// As many elements as a length says.
    Counted {
        /// Where the pointer is, in bytes from the start.
        pointer: u64,
        /// Where the length is.
        length: u64,
        /// Bytes of an element.
        size: u64,
        /// What the elements are, or that they are text.
        content: Content<'a>,
    },
}

/// What elements are.
pub(super) enum Content<'a> {
    /// Bytes of text.
    Characters,
    /// Values of a type.
    Elements(Entry<'a>),
}

impl<'a> DebugFile<'a> {
    /// What a type is beyond its own bytes, if it is one that is shown so.
    pub(super) fn text(&self, kind: &Entry<'a>) -> Result<Option<Text<'a>>, Refusal> {
        match kind.tag() {
            gimli::DW_TAG_pointer_type => {
                let Some(target) = self.stripped(self.type_of(kind)?)? else {
                    return Ok(None);
                };
                let is_text = target.tag() == gimli::DW_TAG_base_type
                    && matches!(
                        Self::encoding(&target),
                        Some((
                            gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF,
                            1
                        ))
                    );
                let may_be_bytes = !matches!(self.name(&target).as_deref(), Some("char" | "char8_t"));
                Ok(is_text.then_some(Text::Terminated { may_be_bytes }))
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                let Some(name) = self.name(kind) else {
                    return Ok(None);
                };
                if kind.is_rust() {
                    return self.of_rust(kind, &name);
                }
                let characters = |pointer, length| {
                    Some(Text::Counted {
                        pointer,
                        length,
                        size: 1,
                        content: Content::Characters,
                    })
                };
                if name.starts_with("basic_string<char,") {
                    let pointer = self.offset_of(kind, &["_M_dataplus", "_M_p"])?;
                    let length = self.offset_of(kind, &["_M_string_length"])?;
                    return Ok(pointer.zip(length).and_then(|(p, l)| characters(p, l)));
                }
                if name.starts_with("basic_string_view<char,") {
                    let pointer = self.offset_of(kind, &["_M_str"])?;
                    let length = self.offset_of(kind, &["_M_len"])?;
                    return Ok(pointer.zip(length).and_then(|(p, l)| characters(p, l)));
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn of_rust(&self, kind: &Entry<'a>, name: &str) -> Result<Option<Text<'a>>, Refusal> {
        if name == "String" {
            let Some(vector) = self.member(kind, "vec")? else {
                return Ok(None);
            };
            let (Some(inner), Ok(before)) = (self.stripped(vector.kind)?, vector.offset) else {
                return Ok(None);
            };
            return Ok(self
                .vector(&inner, before)?
                .map(|(pointer, length)| Text::Counted {
                    pointer,
                    length,
                    size: 1,
                    content: Content::Characters,
                }));
        }
        if name.starts_with("Vec<") {
            let Some((pointer, length)) = self.vector(kind, 0)? else {
                return Ok(None);
            };
            let element = kind.children()?.into_iter().find(|child| {
                child.tag() == gimli::DW_TAG_template_type_parameter
                    && self.name(child).as_deref() == Some("T")
            });
            let Some(element) = element.and_then(|element| self.type_of(&element).ok().flatten()) else {
                return Ok(None);
            };
            return self.counted(pointer, length, element);
        }
        if name.starts_with('&') || name.starts_with("*const [") || name.starts_with("*mut [") {
            let pointer = self.member(kind, "data_ptr")?;
            let length = self.offset_of(kind, &["length"])?;
            let (Some(pointer), Some(length)) = (pointer, length) else {
                return Ok(None);
            };
            let (Ok(at), Some(inner)) = (pointer.offset, self.stripped(pointer.kind)?) else {
                return Ok(None);
            };
            let Some(element) = self.type_of(&inner)? else {
                return Ok(None);
            };
            if name == "&str" || name == "&mut str" {
                return Ok(Some(Text::Counted {
                    pointer: at,
                    length,
                    size: 1,
                    content: Content::Characters,
                }));
            }
            return self.counted(at, length, element);
        }
        Ok(None)
    }

    fn counted(&self, pointer: u64, length: u64, element: Entry<'a>) -> Result<Option<Text<'a>>, Refusal> {
        let size = self.size_of(Some(&element))?;
        Ok((1..=MAX_CONTENT).contains(&size).then_some(Text::Counted {
            pointer,
            length,
            size,
            content: Content::Elements(element),
        }))
    }

    /// Where a `Vec`'s pointer and length are, `before` bytes being before it.
    fn vector(&self, kind: &Entry<'a>, before: u64) -> Result<Option<(u64, u64)>, Refusal> {
        let (Some(buffer), Some(length)) = (self.member(kind, "buf")?, self.offset_of(kind, &["len"])?)
        else {
            return Ok(None);
        };
        let (Ok(at), Some(inner)) = (buffer.offset, self.stripped(buffer.kind)?) else {
            return Ok(None);
        };
        let pointer = self.pointer_in(&inner, MAX_NESTING)?;
        Ok(pointer.map(|pointer| {
            let before_pointer = before.saturating_add(at).saturating_add(pointer);
            (before_pointer, before.saturating_add(length))
        }))
    }

    /// Where the only pointer in a structure is, by the names that wrap it.
    fn pointer_in(&self, kind: &Entry<'a>, nesting: u8) -> Result<Option<u64>, Refusal> {
        if nesting == 0 {
            return Ok(None);
        }
        for name in ["ptr", "inner", "pointer"] {
            let Some(field) = self.member(kind, name)? else {
                continue;
            };
            let (Ok(offset), Some(inner)) = (field.offset, self.stripped(field.kind)?) else {
                continue;
            };
            if inner.tag() == gimli::DW_TAG_pointer_type {
                return Ok(Some(offset));
            }
            if let Some(more) = self.pointer_in(&inner, nesting - 1)? {
                return Ok(Some(offset.saturating_add(more)));
            }
        }
        Ok(None)
    }

    fn offset_of(&self, kind: &Entry<'a>, names: &[&str]) -> Result<Option<u64>, Refusal> {
        let mut at = kind.clone();
        let mut sum = 0_u64;
        for name in names {
            let Some(field) = self.member(&at, name)? else {
                return Ok(None);
            };
            sum = sum.saturating_add(field.offset?);
            match self.stripped(field.kind)? {
                Some(inner) => at = inner,
                None => return Ok(None),
            }
        }
        Ok(Some(sum))
    }
}

/// Appends the pointer, and the text where it leads to unless it is null; the room for that.
pub(super) fn emit_terminated(place: &Place, into: &mut Vec<Instruction>) -> Result<usize, Refusal> {
    let pointer = place.value(WORD)?;
    let pointer = pointer.instructions();
    into.extend_from_slice(pointer);
    into.push(Instruction::new(Operation::Pick));
    into.push(Instruction::new(Operation::Store).size(8));
    into.push(Instruction::new(Operation::Pick));
    into.push(Instruction::new(Operation::JumpIfZero).length(1));
    into.push(Instruction::new(Operation::CopyString).length(content(0)));
    Ok(content(0) as usize)
}

/// Appends the pointer, the text where it leads to if there can be any, and how many bytes of it; the room for them.
pub(super) fn emit_tried(place: &Place, into: &mut Vec<Instruction>) -> Result<usize, Refusal> {
    let pointer = place.value(WORD)?;
    into.extend_from_slice(pointer.instructions());
    into.push(Instruction::new(Operation::Pick));
    into.push(Instruction::new(Operation::Store).size(8));
    into.push(Instruction::new(Operation::TryString).length(content(TRIED_BYTES)));
    into.push(Instruction::new(Operation::Store).size(2));
    Ok(content(TRIED_BYTES) as usize)
}

/// Where the parts of a text or a list with a length are.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    /// Offset of the pointer to its elements.
    pub pointer: u64,
    /// Offset of their number.
    pub length: u64,
    /// Bytes of an element.
    pub size: u64,
}

/// Appends the length, and the elements, as many as there is room for.
pub(super) fn emit_counted(
    place: &Place,
    Counted {
        pointer,
        length,
        size,
    }: Counted,
    into: &mut Vec<Instruction>,
) -> Result<(), Refusal> {
    let address = place.part(pointer, WORD).value(WORD)?;
    let count = place.part(length, WORD).value(WORD)?;
    if size == 0 {
        return unsupported("elements without a size");
    }
    let room = MAX_CONTENT / size;
    into.extend_from_slice(address.instructions());
    into.extend_from_slice(count.instructions());
    into.push(Instruction::new(Operation::Pick));
    into.push(Instruction::new(Operation::Store).size(8));
    if size > 1 {
        into.push(Instruction::new(Operation::Constant).immediate(size));
        into.push(Instruction::new(Operation::Multiply));
    }
    let bytes = u32::try_from(room * size).unwrap_or(0);
    into.push(Instruction::new(Operation::CopySlice).length(bytes));
    Ok(())
}

/// Bytes that are left for text, if so many follow it.
fn content(behind: u64) -> u32 {
    u32::try_from(MAX_CONTENT - behind).unwrap_or(0)
}
