//! Casts: what bytes are to be taken for, where nothing else says it.

use std::fmt::{self, Display, Formatter};

/// A number's type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// A whole number.
    Integer {
        /// Its size.
        bytes: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A byte of text.
    Character,
    /// `true` or `false`, in a byte.
    Boolean,
    /// A floating-point number of 4 or 8 bytes.
    Float {
        /// Its size.
        bytes: u8,
    },
}

impl Number {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u8 {
        match self {
            Self::Integer { bytes, .. } | Self::Float { bytes } => bytes,
            Self::Character | Self::Boolean => 1,
        }
    }
}

/// The type that an expression is cast to: a number, or a pointer to numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cast {
    /// The number's name, one of those that can be written.
    name: &'static str,
    /// The number.
    number: Number,
    /// Pointers that lead to it, one to the next.
    pointers: u8,
}

/// Pointers to pointers that a type can have.
const MAX_POINTERS: u8 = 4;

const fn integer(bytes: u8, signed: bool) -> Number {
    Number::Integer { bytes, signed }
}

/// The names that can be written, as C on x86-64 and Rust have them.
const NUMBERS: [(&str, Number); 39] = [
    ("char", Number::Character),
    ("bool", Number::Boolean),
    ("float", Number::Float { bytes: 4 }),
    ("double", Number::Float { bytes: 8 }),
    ("signed char", integer(1, true)),
    ("unsigned char", integer(1, false)),
    ("short", integer(2, true)),
    ("unsigned short", integer(2, false)),
    ("int", integer(4, true)),
    ("unsigned", integer(4, false)),
    ("unsigned int", integer(4, false)),
    ("long", integer(8, true)),
    ("unsigned long", integer(8, false)),
    ("long long", integer(8, true)),
    ("unsigned long long", integer(8, false)),
    ("size_t", integer(8, false)),
    ("ssize_t", integer(8, true)),
    ("int8_t", integer(1, true)),
    ("int16_t", integer(2, true)),
    ("int32_t", integer(4, true)),
    ("int64_t", integer(8, true)),
    ("uint8_t", integer(1, false)),
    ("uint16_t", integer(2, false)),
    ("uint32_t", integer(4, false)),
    ("uint64_t", integer(8, false)),
    ("uintptr_t", integer(8, false)),
    ("i8", integer(1, true)),
    ("i16", integer(2, true)),
    ("i32", integer(4, true)),
    ("i64", integer(8, true)),
    ("isize", integer(8, true)),
    ("u8", integer(1, false)),
    ("u16", integer(2, false)),
    ("u32", integer(4, false)),
    ("u64", integer(8, false)),
    ("usize", integer(8, false)),
    ("f32", Number::Float { bytes: 4 }),
    ("f64", Number::Float { bytes: 8 }),
    ("void", integer(1, false)),
];

impl Cast {
    /// A machine's word as a number with a sign.
    pub const LONG: Self = Self {
        name: "long",
        number: integer(8, true),
        pointers: 0,
    };
    /// Where text is that a NUL ends.
    pub const TEXT: Self = Self {
        name: "char",
        number: Number::Character,
        pointers: 1,
    };

    /// The type of a name, of which there is one for each number, and pointers. `void` stands behind a pointer alone.
    pub(super) fn named(name: &str, pointers: usize) -> Option<Self> {
        let (name, number) = NUMBERS.iter().find(|(known, _)| *known == name)?;
        let pointers = u8::try_from(pointers)
            .ok()
            .filter(|pointers| *pointers <= MAX_POINTERS)?;
        (*name != "void" || pointers > 0).then_some(Self {
            name,
            number: *number,
            pointers,
        })
    }

    /// The number that it is; `None` of a pointer.
    #[must_use]
    pub fn number(self) -> Option<Number> {
        (self.pointers == 0).then_some(self.number)
    }

    /// Whether it is a pointer to characters, which are text.
    #[must_use]
    pub fn is_text(self) -> bool {
        self.pointers == 1 && self.number == Number::Character
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u8 {
        if self.pointers > 0 { 8 } else { self.number.bytes() }
    }

    /// What a pointer leads to; `None` of a number, and of a pointer to something unknown.
    #[must_use]
    pub fn target(self) -> Option<Self> {
        let pointers = self.pointers.checked_sub(1)?;
        (self.name != "void" || pointers > 0).then_some(Self { pointers, ..self })
    }
}

impl Display for Cast {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        (0..self.pointers).try_for_each(|_| f.write_str("*"))
    }
}
