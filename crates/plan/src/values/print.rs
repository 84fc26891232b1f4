//! Values as text for people.

use std::fmt::{self, Display, Formatter};

use super::render::{Reading, Value};

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(number) | Self::Enumerator { number, name: None } => number.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
            Self::Register(number) => match self.as_negative_int() {
                Some(int) => write!(f, "{number} (as int: {int})"),
                None => number.fmt(f),
            },
            Self::Boolean(value) => value.fmt(f),
            Self::Character(character) => write!(f, "{character:?}"),
            Self::Float(number) => number.fmt(f),
            Self::Pointer(address) => write!(f, "{address:#x}"),
            Self::Enumerator { name: Some(name), .. } => f.write_str(name),
            Self::Text { bytes, length, .. } => {
                write!(f, "{:?}", String::from_utf8_lossy(bytes))?;
                let whole = length.is_some_and(|length| length <= bytes.len() as u64);
                f.write_str(if whole { "" } else { "…" })
            }
            Self::Structure(members) => {
                f.write_str("{")?;
                for (index, (name, reading)) in members.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}: {reading}")?;
                }
                f.write_str("}")
            }
            Self::Sequence { elements, count } => {
                f.write_str("[")?;
                for (index, reading) in elements.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{reading}")?;
                }
                let whole = *count <= elements.len() as u64;
                f.write_str(if whole { "]" } else { ", …]" })
            }
            Self::Variant { name, value } => write!(f, "{name}({value})"),
        }
    }
}

impl Display for Reading {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(value) => value.fmt(f),
            Self::OptimizedOut(_) => f.write_str("<optimized out>"),
            Self::Unreadable(_) => f.write_str("<unreadable>"),
            Self::Unsupported(_) => f.write_str("<unsupported>"),
        }
    }
}
