//! What an instruction is.

use crate::assert_layout;

/// What to do. Numbers are the wire format between daemon and programs.
///
/// The stack holds words of 64 bits; arithmetic wraps. `top` is its topmost word and `below` the one under it.
/// Operations on two words pop both and push one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// The value is read.
    End = 0,
    /// Push `immediate`.
    Constant = 1,
    /// Push general register `register` by its DWARF number, 16 being the instruction pointer, plus `immediate`; or what
    /// stands behind the registers, by the numbers of [`thread`].
    Register = 2,
    /// Push the thread pointer (the base of `fs`) plus `immediate`.
    ThreadPointer = 3,
    /// `top + immediate`.
    AddConstant = 4,
    /// `below + top`.
    Add = 5,
    /// `below - top`.
    Subtract = 6,
    /// `below * top`.
    Multiply = 7,
    /// `below / top`, signed, towards zero; by zero the value is [`super::Outcome::Invalid`].
    Divide = 8,
    /// `below % top`, unsigned; by zero the value is [`super::Outcome::Invalid`].
    Remainder = 9,
    /// `below & top`.
    And = 10,
    /// `below | top`.
    Or = 11,
    /// `below ^ top`.
    ExclusiveOr = 12,
    /// `below << top`; 0 from 64 on.
    ShiftLeft = 13,
    /// `below >> top`, filled with zeros; 0 from 64 on.
    ShiftRight = 14,
    /// `below >> top`, filled with the sign; from 64 on nothing but sign.
    ShiftRightSigned = 15,
    /// `-top`.
    Negate = 16,
    /// `!top`.
    Not = 17,
    /// `top` without its sign.
    Absolute = 18,
    /// `below == top` as 1 or 0.
    Equal = 19,
    /// `below < top`, signed, as 1 or 0.
    Less = 20,
    /// `below <= top`, signed, as 1 or 0.
    LessOrEqual = 21,
    /// The low `size` bits of `top`, sign-extended.
    SignExtend = 22,
    /// The low `size` bits of `top`.
    ZeroExtend = 23,
    /// Replace `top`, an address, by the `size` bytes (1, 2, 4 or 8) there, zero-extended.
    Load = 24,
    /// Push again the word that lies `length` words under `top`.
    Pick = 25,
    /// Exchange `top` and `below`.
    Swap = 26,
    /// Move `top` under the two words below it.
    Rotate = 27,
    /// Pop.
    Drop = 28,
    /// Pop, and append the low `size` bytes (1 to 8) to the output.
    Store = 29,
    /// Pop an address, and append the `length` bytes there to the output.
    Copy = 30,
    /// Pop an address, and append to the output the text there and the NUL that ends it, cut to `length` bytes.
    CopyString = 31,
    /// Pop a length in bytes, then an address; append that many bytes to the output, at most `length`.
    CopySlice = 32,
    /// Go on `length` instructions after the next one.
    Jump = 33,
    /// Pop; if it is 0, go on `length` instructions after the next one.
    JumpIfZero = 34,
    /// Stop: the value is optimized out for this call.
    OptimizedOut = 35,
    /// Pop `right`, then `left`; unless `left` compares to it as `comparison` says, by the kind of number in
    /// `size` ([`super::Kind`]), the hit is rejected.
    Require = 36,
    /// Unless the `size` bytes (1 to 8) of the output at `length` are the low ones of `immediate`, replace `top` by 0.
    Match = 37,
    /// Pop an address, and append to the output what [`Operation::CopyString`] does; push how many bytes that are, 0
    /// where the text cannot be read.
    TryString = 38,
    /// Stop: there is no such value at the moment; why is in `immediate`.
    Absent = 39,
}

/// Numbers of what is known of the thread, behind those of its registers.
pub mod thread {
    /// Its number, in the initial PID namespace.
    pub const NUMBER: u8 = 17;
    /// The halves of its name, which ends with a NUL.
    pub const NAME: [u8; 2] = [18, 19];
    /// Bytes of a name with its NUL.
    pub const NAME_BYTES: usize = 16;
}

/// One instruction. Fields that its operation does not name are 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instruction {
    /// An [`Operation`] as a number.
    pub operation: u8,
    /// Bytes, bits, or a kind of number.
    pub size: u8,
    /// Register by its DWARF number.
    pub register: u8,
    /// A [`super::Comparison`] as a number.
    pub comparison: u8,
    /// Bytes, instructions, or words of the stack.
    pub length: u32,
    /// A constant or an offset; negative ones in two's complement.
    pub immediate: u64,
}

assert_layout!(Instruction, size 16,
    operation at 0, size at 1, register at 2, comparison at 3, length at 4, immediate at 8);

impl Instruction {
    /// An operation without operands.
    #[must_use]
    pub const fn new(operation: Operation) -> Self {
        Self {
            operation: operation as u8,
            size: 0,
            register: 0,
            comparison: 0,
            length: 0,
            immediate: 0,
        }
    }

    /// With a size.
    #[must_use]
    pub const fn size(mut self, size: u8) -> Self {
        self.size = size;
        self
    }

    /// With a length.
    #[must_use]
    pub const fn length(mut self, length: u32) -> Self {
        self.length = length;
        self
    }

    /// With a constant or an offset.
    #[must_use]
    pub const fn immediate(mut self, immediate: u64) -> Self {
        self.immediate = immediate;
        self
    }

    /// With a register.
    #[must_use]
    pub const fn register(mut self, register: u8) -> Self {
        self.register = register;
        self
    }
}
