//! When a conditional jump is taken, by the flags.
//!
//! The number of a condition is the low nibble of the jump's opcode (`70+cc`, `0f 80+cc`): the wire format between the
//! daemon, which decodes the jump, and the programs, which see the flags just before it.

/// One of the machine's sixteen conditions. An odd number is the opposite of the even one below it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Condition(u8);

const _: () = assert!(core::mem::size_of::<Condition>() == 1);

/// Bits of RFLAGS.
mod flag {
    pub const CARRY: u32 = 0;
    pub const PARITY: u32 = 2;
    pub const ZERO: u32 = 6;
    pub const SIGN: u32 = 7;
    pub const OVERFLOW: u32 = 11;
}

#[expect(
    clippy::inline_always,
    reason = "programs are verified as one function, and a call would cost more than this"
)]
impl Condition {
    /// `jo`.
    pub const OVERFLOW: Self = Self(0);
    /// `jno`.
    pub const NO_OVERFLOW: Self = Self(1);
    /// `jb`, `jc`, `jnae`: less, unsigned.
    pub const BELOW: Self = Self(2);
    /// `jae`, `jnc`, `jnb`: not less, unsigned.
    pub const ABOVE_OR_EQUAL: Self = Self(3);
    /// `je`, `jz`.
    pub const EQUAL: Self = Self(4);
    /// `jne`, `jnz`.
    pub const NOT_EQUAL: Self = Self(5);
    /// `jbe`, `jna`: not greater, unsigned.
    pub const BELOW_OR_EQUAL: Self = Self(6);
    /// `ja`, `jnbe`: greater, unsigned.
    pub const ABOVE: Self = Self(7);
    /// `js`: negative.
    pub const SIGN: Self = Self(8);
    /// `jns`: not negative.
    pub const NO_SIGN: Self = Self(9);
    /// `jp`, `jpe`: an even number of ones in the lowest byte; of floats, unordered.
    pub const PARITY: Self = Self(10);
    /// `jnp`, `jpo`.
    pub const NO_PARITY: Self = Self(11);
    /// `jl`, `jnge`: less, signed.
    pub const LESS: Self = Self(12);
    /// `jge`, `jnl`: not less, signed.
    pub const GREATER_OR_EQUAL: Self = Self(13);
    /// `jle`, `jng`: not greater, signed.
    pub const LESS_OR_EQUAL: Self = Self(14);
    /// `jg`, `jnle`: greater, signed.
    pub const GREATER: Self = Self(15);

    /// The condition of an opcode's low nibble; the other bits do not count.
    #[must_use]
    #[inline(always)]
    pub const fn from_number(number: u8) -> Self {
        Self(number & 15)
    }

    /// Its number, below 16.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// What holds exactly where this does not.
    #[must_use]
    #[inline(always)]
    pub const fn opposite(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Whether it holds with these flags, which are those of RFLAGS: whether the jump is taken.
    ///
    /// Without branches and tables: the verifier follows one path through it.
    #[must_use]
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        let carry = (flags >> flag::CARRY) & 1;
        let parity = (flags >> flag::PARITY) & 1;
        let zero = (flags >> flag::ZERO) & 1;
        let sign = (flags >> flag::SIGN) & 1;
        let overflow = (flags >> flag::OVERFLOW) & 1;
        let less = sign ^ overflow;
        // The even conditions, each at the bit of half its number.
        let even = overflow
            | (carry << 1)
            | (zero << 2)
            | ((carry | zero) << 3)
            | (sign << 4)
            | (parity << 5)
            | (less << 6)
            | ((zero | less) << 7);
        let number = self.0 as u64;
        (((even >> ((number >> 1) & 7)) ^ number) & 1) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The flags that comparisons set: carry, parity, adjust, zero, sign, overflow.
    const ARITHMETIC: u64 = 0x8d5;

    #[test]
    fn opposites_never_hold_together() {
        for number in 0..=u8::MAX {
            let condition = Condition::from_number(number);
            assert_eq!(condition.number(), number & 15);
            for flags in (0..0x1000).chain([u64::MAX]) {
                assert_ne!(condition.holds(flags), condition.opposite().holds(flags));
            }
        }
    }

    /// What the processor itself says, by `setcc`.
    #[cfg(target_arch = "x86_64")]
    fn by_processor(condition: Condition, flags: u64) -> bool {
        macro_rules! set {
            ($name:literal) => {{
                let result: u8;
                // SAFETY: the value that is pushed is popped again; of the flags only those change that comparisons
                // set, which the compiler expects of any assembly; nothing else is written but the result.
                unsafe {
                    core::arch::asm!(
                        "push {flags}",
                        "popfq",
                        concat!("set", $name, " {result}"),
                        flags = in(reg) (flags & ARITHMETIC) | 0x202,
                        result = out(reg_byte) result,
                    );
                }
                result != 0
            }};
        }
        match condition {
            Condition::OVERFLOW => set!("o"),
            Condition::NO_OVERFLOW => set!("no"),
            Condition::BELOW => set!("b"),
            Condition::ABOVE_OR_EQUAL => set!("ae"),
            Condition::EQUAL => set!("e"),
            Condition::NOT_EQUAL => set!("ne"),
            Condition::BELOW_OR_EQUAL => set!("be"),
            Condition::ABOVE => set!("a"),
            Condition::SIGN => set!("s"),
            Condition::NO_SIGN => set!("ns"),
            Condition::PARITY => set!("p"),
            Condition::NO_PARITY => set!("np"),
            Condition::LESS => set!("l"),
            Condition::GREATER_OR_EQUAL => set!("ge"),
            Condition::LESS_OR_EQUAL => set!("le"),
            _ => set!("g"),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn all_arithmetic_flags_are_as_the_processor_has_them() {
        for flags in (0..=ARITHMETIC).filter(|flags| flags & !ARITHMETIC == 0) {
            for condition in (0..16).map(Condition::from_number) {
                assert_eq!(
                    condition.holds(flags),
                    by_processor(condition, flags),
                    "{condition:?} {flags:#x}"
                );
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    proptest! {
        #[test]
        fn any_flags_are_as_the_processor_has_them(flags: u64, number: u8) {
            let condition = Condition::from_number(number);
            prop_assert_eq!(condition.holds(flags), by_processor(condition, flags));
        }

        #[test]
        fn comparisons_are_what_they_say(a: i64, b: i64) {
            let flags: u64;
            // SAFETY: what is pushed is popped into a register; nothing else is written.
            unsafe {
                core::arch::asm!("cmp {a}, {b}", "pushfq", "pop {flags}",
                    a = in(reg) a, b = in(reg) b, flags = out(reg) flags);
            }
            prop_assert_eq!(Condition::EQUAL.holds(flags), a == b);
            prop_assert_eq!(Condition::LESS.holds(flags), a < b);
            prop_assert_eq!(Condition::GREATER.holds(flags), a > b);
            prop_assert_eq!(Condition::BELOW.holds(flags), a.cast_unsigned() < b.cast_unsigned());
            prop_assert_eq!(Condition::ABOVE.holds(flags), a.cast_unsigned() > b.cast_unsigned());
        }
    }
}
