//! The shapes of DWARF expressions that compilers, linkers and assembly really use.

use gimli::{Encoding, Format, Operation, UnwindExpression, UnwindSection};
use profiler_common::unwind::register::{RIP, RSP};

use super::collect::Slice;

/// The longest recognised expression has this many operations; no more are read.
const MAX_OPERATIONS: usize = 9;

/// What an expression computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// `register + offset`.
    Register { register: u16, offset: i64 },
    /// `*(register + offset) + extra`.
    Dereference { register: u16, offset: i64, extra: u64 },
    /// `rsp + offset + ((rip & 15) >= threshold) * 8`: what linkers write for procedure linkage tables.
    LinkageTable { offset: i64, threshold: u64 },
}

/// The shape of an expression, if it is one of them.
pub(super) fn shape<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    expression: &UnwindExpression<usize>,
) -> Option<Shape> {
    let encoding = Encoding {
        address_size: 8,
        format: Format::Dwarf32,
        version: 4,
    };
    let mut operations = expression.get(section).ok()?.operations(encoding);
    let mut read = Vec::with_capacity(MAX_OPERATIONS);
    while let Some(operation) = operations.next().ok()? {
        if read.len() == MAX_OPERATIONS {
            return None;
        }
        read.push(operation);
    }
    let Some((Operation::RegisterOffset { register, offset, .. }, rest)) = read.split_first() else {
        return None;
    };
    let (register, offset) = (register.0, *offset);
    match rest {
        [] => Some(Shape::Register { register, offset }),
        [Operation::PlusConstant { value }] => Some(Shape::Register {
            register,
            offset: offset.checked_add_unsigned(*value)?,
        }),
        [
            Operation::Deref {
                size: 8,
                space: false,
                ..
            },
        ] => Some(Shape::Dereference {
            register,
            offset,
            extra: 0,
        }),
        [
            Operation::Deref {
                size: 8,
                space: false,
                ..
            },
            Operation::PlusConstant { value },
        ] => Some(Shape::Dereference {
            register,
            offset,
            extra: *value,
        }),
        [
            Operation::RegisterOffset {
                register: ip,
                offset: 0,
                ..
            },
            Operation::UnsignedConstant { value: 15 },
            Operation::And,
            Operation::UnsignedConstant { value: threshold },
            Operation::Ge,
            Operation::UnsignedConstant { value: 3 },
            Operation::Shl,
            Operation::Plus,
        ] if register == u16::from(RSP) && ip.0 == u16::from(RIP) => Some(Shape::LinkageTable {
            offset,
            threshold: *threshold,
        }),
        _ => None,
    }
}
