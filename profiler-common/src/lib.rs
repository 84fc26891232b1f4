//! What the eBPF programs and the daemon agree on, byte for byte.
//!
//! Everything here is `no_std`, free of padding, and asserts its size and field offsets beside its
//! definition, because the two sides are built by different compilers.
#![no_std]

pub mod admission;
pub mod allocation;
pub mod condition;
pub mod counter;
pub mod event;
pub mod hit;
pub mod instruction;
pub mod layout;
pub mod limits;
pub mod probe;
pub mod record;
pub mod settings;
pub mod system_call;
pub mod thread;
pub mod unwind;
pub mod values;

/// Asserts at compile time the size of a type and the offsets of its fields.
#[macro_export]
macro_rules! assert_layout {
    ($type:ty, size $size:expr, $($field:ident at $offset:expr),+ $(,)?) => {
        const _: () = {
            assert!(core::mem::size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)+
        };
    };
}
