//! Bytes to a value. What the bytes do not say for certain is not said.

use std::ops::Range;

use profiler_common::values::{MAX_BYTES, OTHER_VARIANT, Outcome, State};

use super::{
    lower::{Layout, Lowered},
    refusal::Refusal,
    shape::{Form, Member, Shape, Variants, wrapped},
};

/// Elements of one array that are shown.
const MAX_ELEMENTS: u64 = 256;

/// What came of an expression at a hit.
#[derive(Clone, PartialEq, Debug)]
pub enum Reading {
    /// Its value.
    Ok(Value),
    /// The compiler left none there; and why it is known.
    OptimizedOut(String),
    /// The memory that it is in could not be read.
    Unreadable(String),
    /// It may have one, which is not understood.
    Unsupported(String),
}

impl Reading {
    /// Memory that it takes, in bytes, with what it points to.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let within = match self {
            Self::OptimizedOut(text) | Self::Unreadable(text) | Self::Unsupported(text) => text.len(),
            Self::Ok(value) => match value {
                Value::Enumerator { name, .. } => name.as_ref().map_or(0, String::len),
                Value::Text { bytes, .. } => bytes.len(),
                Value::Structure(members) => members
                    .iter()
                    .map(|(name, reading)| name.len() + reading.bytes())
                    .sum(),
                Value::Sequence { elements, .. } => elements.iter().map(Self::bytes).sum(),
                Value::Variant { name, value } => name.len() + value.bytes(),
                _ => 0,
            },
        };
        size_of::<Self>() + within
    }
}

impl From<Refusal> for Reading {
    /// What is shown at every hit of an expression that has no plan.
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::OptimizedOut(reason) => Self::OptimizedOut(reason),
            Refusal::Unsupported(reason) => Self::Unsupported(reason),
            other => Self::Unsupported(other.to_string()),
        }
    }
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A number with a sign.
    Signed(i128),
    /// A number without.
    Unsigned(u128),
    /// All of a register, as a number with a sign, of which nothing says how much of it is the value.
    Register(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// A Unicode character.
    Character(char),
    /// A floating-point number.
    Float(f64),
    /// An address.
    Pointer(u64),
    /// A number of an enumeration, with its name where it has one.
    Enumerator {
        /// The number.
        number: i128,
        /// The name.
        name: Option<String>,
    },
    /// Text, as bytes: nothing says that they are UTF-8.
    Text {
        /// The bytes, cut to what was read.
        bytes: Vec<u8>,
        /// The length; `None` where no end was seen.
        length: Option<u64>,
        /// Where the text is, if a pointer to it is the value.
        pointer: Option<u64>,
    },
    /// Members by their names.
    Structure(Vec<(String, Reading)>),
    /// Elements, cut to what was read.
    Sequence {
        /// The elements.
        elements: Vec<Reading>,
        /// How many there are.
        count: u64,
    },
    /// The variant that an enum has.
    Variant {
        /// Its name.
        name: String,
        /// What it holds.
        value: Box<Reading>,
    },
}

impl Value {
    /// What a register is as a C `int` below zero, where it can be one: as a `long` it is a large number then, as the upper half of a
    /// register that holds an `int` is 0 or anything.
    #[must_use]
    pub fn as_negative_int(&self) -> Option<i32> {
        let Self::Register(number) = self else { return None };
        let int = u32::try_from(*number).ok()?.cast_signed();
        (int < 0).then_some(int)
    }
}

/// The value that a plan has read.
#[must_use]
pub fn render(lowered: &Lowered, state: &State) -> Reading {
    const OK: u8 = Outcome::Ok as u8;
    const UNREADABLE: u8 = Outcome::Unreadable as u8;
    const OPTIMIZED_OUT: u8 = Outcome::OptimizedOut as u8;
    const ABSENT: u8 = Outcome::Absent as u8;
    match state.outcome {
        OK => {}
        UNREADABLE => {
            return Reading::Unreadable(format!("the memory at {:#x} could not be read", state.fault));
        }
        OPTIMIZED_OUT => {
            return Reading::OptimizedOut(
                "it is known for some calls of the function, not for this one".into(),
            );
        }
        ABSENT if state.fault == OTHER_VARIANT => {
            return Reading::Unreadable("it has another variant at this moment".into());
        }
        ABSENT => {
            return Reading::Unreadable(
                "the thread has not used the thread-local variables of that library yet".into(),
            );
        }
        _ => return Reading::Unsupported("its location divides by zero".into()),
    }
    let bytes = state.bytes();
    match &lowered.layout {
        Layout::Object => {
            let size = lowered.shape.size.min(MAX_BYTES as u64);
            if bytes.len() as u64 != size {
                return incomplete();
            }
            let view = View {
                bytes,
                missing: &lowered.missing,
                start: 0,
            };
            view.reading(&lowered.shape)
        }
        Layout::Register => match bytes.try_into() {
            Ok(bytes) => Reading::Ok(Value::Register(i64::from_le_bytes(bytes))),
            Err(_) => incomplete(),
        },
        Layout::Terminated(room) => terminated(bytes, *room),
        Layout::MayBeText(room) => match may_be_text(bytes, *room) {
            Some(value) => Reading::Ok(value),
            None => incomplete(),
        },
        Layout::Characters => match bytes.split_first_chunk() {
            Some((length, bytes)) => Reading::Ok(Value::Text {
                bytes: bytes.to_vec(),
                length: Some(u64::from_le_bytes(*length)),
                pointer: None,
            }),
            None => incomplete(),
        },
        Layout::Elements(element) => match bytes.split_first_chunk() {
            Some((count, bytes)) => {
                let view = View {
                    bytes,
                    missing: &[],
                    start: 0,
                };
                let count = u64::from_le_bytes(*count);
                let read = (bytes.len() as u64).checked_div(element.size).unwrap_or(0);
                Reading::Ok(view.sequence(element, count, read.min(count)))
            }
            None => incomplete(),
        },
    }
}

fn incomplete() -> Reading {
    Reading::Unsupported("less was read than planned".into())
}

fn terminated(bytes: &[u8], room: usize) -> Reading {
    let Some((pointer, text)) = bytes.split_first_chunk() else {
        return incomplete();
    };
    let pointer = u64::from_le_bytes(*pointer);
    if pointer == 0 {
        return Reading::Ok(Value::Pointer(0));
    }
    let length = text.iter().position(|byte| *byte == 0);
    let Some(length) = length else {
        return incomplete();
    };
    // Text that fills the room ends with a NUL that may not be its own.
    let ends = length + 1 < room;
    Reading::Ok(Value::Text {
        bytes: text[..length].to_vec(),
        length: ends.then_some(length as u64),
        pointer: Some(pointer),
    })
}

/// A pointer, and the text that it leads to if that cannot well be anything else.
fn may_be_text(bytes: &[u8], room: usize) -> Option<Value> {
    let (pointer, tried) = bytes.split_first_chunk()?;
    let (text, length) = tried.split_last_chunk()?;
    if text.len() != usize::from(u16::from_le_bytes(*length)) {
        return None;
    }
    let pointer = u64::from_le_bytes(*pointer);
    Some(match text.split_last() {
        Some((0, text)) if text.len() + 1 < room && is_printed(text) => Value::Text {
            bytes: text.to_vec(),
            length: Some(text.len() as u64),
            pointer: Some(pointer),
        },
        _ => Value::Pointer(pointer),
    })
}

/// Whether bytes can well be nothing but text.
fn is_printed(bytes: &[u8]) -> bool {
    let is_printed = |text: &str| !text.chars().any(char::is_control);
    !bytes.is_empty() && std::str::from_utf8(bytes).is_ok_and(is_printed)
}

/// Some bytes of a value.
#[derive(Clone, Copy)]
struct View<'a> {
    bytes: &'a [u8],
    missing: &'a [Range<u64>],
    /// Where it begins in what `missing` counts from.
    start: u64,
}

impl View<'_> {
    /// A part of it; why there is none otherwise.
    fn part(&self, offset: u64, size: u64) -> Result<Self, Reading> {
        let range = usize::try_from(offset)
            .ok()
            .zip(offset.checked_add(size).and_then(|end| usize::try_from(end).ok()));
        let bytes = range.and_then(|(from, to)| self.bytes.get(from..to));
        match bytes {
            Some(bytes) => Ok(Self {
                bytes,
                start: self.start + offset,
                ..*self
            }),
            None => Err(Reading::Unsupported(format!(
                "it lies beyond the first {MAX_BYTES} bytes, which are read"
            ))),
        }
    }

    fn reading(&self, shape: &Shape) -> Reading {
        match &shape.form {
            Form::Structure(members) => {
                let members = members
                    .iter()
                    .map(|member| (member.name.clone(), self.member(member)));
                return Reading::Ok(Value::Structure(members.collect()));
            }
            Form::Array { element, count, .. } => {
                let read = (self.bytes.len() as u64).checked_div(element.size);
                // Elements without a size have nothing to show.
                let read = read.unwrap_or(0).min(*count).min(MAX_ELEMENTS);
                return Reading::Ok(self.sequence(element, *count, read));
            }
            Form::Unsupported(reason) => return Reading::Unsupported(reason.clone()),
            _ => {}
        }
        let end = self.start + self.bytes.len() as u64;
        if self
            .missing
            .iter()
            .any(|range| range.start < end && self.start < range.end)
        {
            return Reading::OptimizedOut("the debug information has no place for it".into());
        }
        match &shape.form {
            Form::Variants(variants) => self.variant(variants),
            Form::Bits { shift, bits, of } => self.bits(*shift, *bits, of),
            Form::Characters { count, may_be_bytes } => {
                Reading::Ok(characters(self.bytes, *count, *may_be_bytes))
            }
            form => number(form, little_endian(self.bytes), shape.size),
        }
    }

    fn member(&self, member: &Member) -> Reading {
        if let Form::Unsupported(reason) = &member.shape.form {
            return Reading::Unsupported(reason.clone());
        }
        match self.part(member.offset, member.shape.size) {
            Ok(view) => view.reading(&member.shape),
            Err(reading) => reading,
        }
    }

    fn sequence(&self, element: &Shape, count: u64, read: u64) -> Value {
        let elements = (0..read).map(|index| match self.part(index * element.size, element.size) {
            Ok(view) => view.reading(element),
            Err(reading) => reading,
        });
        Value::Sequence {
            elements: elements.collect(),
            count,
        }
    }

    fn bits(&self, shift: u32, bits: u32, of: &Shape) -> Reading {
        let Some(word) = little_endian(self.bytes) else {
            return incomplete();
        };
        let word = wrapped((word >> shift).cast_signed(), bits, false).cast_unsigned();
        let word = match &of.form {
            Form::Integer { signed: true } | Form::Enumeration { signed: true, .. } => {
                wrapped(word.cast_signed(), bits, true).cast_unsigned()
            }
            Form::Integer { .. } | Form::Enumeration { .. } | Form::Boolean => word,
            _ => return Reading::Unsupported("a bit field of an unusual type".into()),
        };
        number(&of.form, Some(word), of.size)
    }

    fn variant(&self, variants: &Variants) -> Reading {
        let chosen = match &variants.discriminant {
            None => variants.variants.first(),
            Some(discriminant) => {
                let bytes = match self.part(discriminant.offset, discriminant.shape.size) {
                    Ok(view) => view.bytes,
                    Err(reading) => return reading,
                };
                let Some(number) = little_endian(bytes) else {
                    return incomplete();
                };
                let of = |number: u128| {
                    let mut all = variants.variants.iter();
                    all.find(|(numbers, _)| numbers.iter().any(|range| range.contains(&number)))
                };
                let default = || variants.variants.iter().find(|(numbers, _)| numbers.is_empty());
                of(number).or_else(default)
            }
        };
        match chosen {
            Some((_, member)) => Reading::Ok(Value::Variant {
                name: member.name.clone(),
                value: Box::new(self.member(member)),
            }),
            None => Reading::Unsupported("a number that stands for no variant".into()),
        }
    }
}

/// Text in an array of so many characters: up to the first NUL, or all of it. Of what may be bytes only what cannot well be
/// anything else is text: nothing is behind the NUL, and all before it is printed as it is.
fn characters(bytes: &[u8], count: u64, may_be_bytes: bool) -> Value {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    let is_text = rest.iter().all(|byte| *byte == 0) && is_printed(text);
    if may_be_bytes && !is_text {
        let number = |byte: &u8| Reading::Ok(Value::Unsigned((*byte).into()));
        return Value::Sequence {
            elements: bytes.iter().map(number).collect(),
            count,
        };
    }
    let is_whole = !rest.is_empty() || text.len() as u64 == count;
    Value::Text {
        bytes: text.to_vec(),
        length: is_whole.then_some(text.len() as u64),
        pointer: None,
    }
}

fn little_endian(bytes: &[u8]) -> Option<u128> {
    let mut word = [0; 16];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u128::from_le_bytes(word))
}

/// A number of `size` bytes as what its form says.
fn number(form: &Form, word: Option<u128>, size: u64) -> Reading {
    let (Some(word), Ok(bits)) = (word, u32::try_from(size.saturating_mul(8))) else {
        return incomplete();
    };
    let signed = wrapped(word.cast_signed(), bits, true);
    #[expect(clippy::cast_possible_truncation, reason = "checked by the size beside it")]
    Reading::Ok(match form {
        Form::Integer { signed: true } => Value::Signed(signed),
        Form::Integer { signed: false } => {
            Value::Unsigned(wrapped(word.cast_signed(), bits, false).cast_unsigned())
        }
        Form::Boolean if word <= 1 => Value::Boolean(word == 1),
        // What is not initialized may be neither true nor false.
        Form::Boolean => Value::Unsigned(word),
        Form::Character => match u32::try_from(word).ok().and_then(char::from_u32) {
            Some(character) => Value::Character(character),
            None => return Reading::Unsupported(format!("a number that is no character: {word:#x}")),
        },
        Form::Float if size == 4 => Value::Float(f32::from_bits(word as u32).into()),
        Form::Float if size == 8 => Value::Float(f64::from_bits(word as u64)),
        Form::Pointer if size == 8 => Value::Pointer(word as u64),
        Form::Pointer if size == 0 => Value::Structure(Vec::new()),
        Form::Enumeration {
            signed: is_signed,
            names,
        } => {
            let number = if *is_signed { signed } else { word.cast_signed() };
            let name = names.iter().find(|(of, _)| *of == number);
            Value::Enumerator {
                number,
                name: name.map(|(_, name)| name.clone()),
            }
        }
        _ => return Reading::Unsupported("a value of an unusual form".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::{Value, characters};

    #[test]
    fn a_register_that_may_be_a_negative_int_is_shown_as_both() {
        for (register, shown) in [
            (7, "7"),
            (-1, "-1"),
            (0x7fff_ffff, "2147483647"),
            (0x8000_0000, "2147483648 (as int: -2147483648)"),
            (0xffff_ffff, "4294967295 (as int: -1)"),
            (0x1_ffff_ffff, "8589934591"),
        ] {
            assert_eq!(Value::Register(register).to_string(), shown);
        }
        assert_eq!(Value::Signed(0xffff_ffff).as_negative_int(), None);
    }

    #[test]
    fn characters_are_text_up_to_the_first_nul() {
        let shown =
            |bytes: &[u8], may_be_bytes| characters(bytes, bytes.len() as u64, may_be_bytes).to_string();
        assert_eq!(shown(b"ab\0garbage", false), "\"ab\"");
        assert_eq!(shown(b"full", false), "\"full\"");
        assert_eq!(shown(b"\0\0", false), "\"\"");
        assert_eq!(shown(b"ab\0\0", true), "\"ab\"");
        // What may be anything is not cut off at a 0.
        assert_eq!(shown(b"ab\0c", true), "[97, 98, 0, 99]");
        assert_eq!(shown(&[0, 0, 192, 63], true), "[0, 0, 192, 63]");
        assert_eq!(shown(&[1, 2], true), "[1, 2]");
        // More than was read.
        assert_eq!(characters(b"abc", 300, false).to_string(), "\"abc\"…");
    }
}
