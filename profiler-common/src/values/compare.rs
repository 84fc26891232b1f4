//! Comparisons. Those of floating point go by the bits: read as integers with sign and magnitude, floats are in
//! order, and a BPF program has nothing else to compare them by.

/// How two numbers compare. Numbers are the wire format between daemon and programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Comparison {
    /// `==`
    Equal = 0,
    /// `!=`
    NotEqual = 1,
    /// `<`
    Less = 2,
    /// `<=`
    LessOrEqual = 3,
    /// `>`
    Greater = 4,
    /// `>=`
    GreaterOrEqual = 5,
}

/// What a word on the stack stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A number without sign.
    Unsigned = 0,
    /// A number with sign, extended to 64 bits.
    Signed = 1,
    /// A `float`, in the low 32 bits.
    Float = 2,
    /// A `double`.
    Double = 3,
}

const SIGN: u64 = 1 << 63;

/// A word whose order without sign is the order of what `word` stands for, and whether it is a number at all.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
const fn ordered(kind: u8, word: u64) -> (u64, bool) {
    const SIGNED: u8 = Kind::Signed as u8;
    const FLOAT: u8 = Kind::Float as u8;
    const DOUBLE: u8 = Kind::Double as u8;
    match kind {
        SIGNED => (word ^ SIGN, true),
        // A float's bits moved up are in order as a double's are; the exponent is narrower, in both of a pair.
        FLOAT => by_magnitude(word << 32, 0xff << 55),
        DOUBLE => by_magnitude(word, 0x7ff << 52),
        _ => (word, true),
    }
}

/// For sign and magnitude, with -0 equal to 0. What lies above `infinity` is no number.
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
const fn by_magnitude(word: u64, infinity: u64) -> (u64, bool) {
    let magnitude = word & !SIGN;
    let ordered = if word & SIGN == 0 {
        SIGN + magnitude
    } else {
        SIGN - magnitude
    };
    (ordered, magnitude <= infinity)
}

/// Whether `left` compares to `right` as asked, given as numbers ([`Kind`], [`Comparison`]). What is no number is
/// only unequal.
#[inline(always)]
#[must_use]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub const fn holds(kind: u8, comparison: u8, left: u64, right: u64) -> bool {
    const EQUAL: u8 = Comparison::Equal as u8;
    const NOT_EQUAL: u8 = Comparison::NotEqual as u8;
    const LESS: u8 = Comparison::Less as u8;
    const LESS_OR_EQUAL: u8 = Comparison::LessOrEqual as u8;
    const GREATER: u8 = Comparison::Greater as u8;
    let (left, left_is_number) = ordered(kind, left);
    let (right, right_is_number) = ordered(kind, right);
    if !(left_is_number && right_is_number) {
        return comparison == NOT_EQUAL;
    }
    match comparison {
        EQUAL => left == right,
        NOT_EQUAL => left != right,
        LESS => left < right,
        LESS_OR_EQUAL => left <= right,
        GREATER => left > right,
        _ => left >= right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn truth<T: PartialOrd + Copy>(comparison: Comparison, left: T, right: T) -> bool {
        match comparison {
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
        }
    }

    fn as_the_language_does(left: u64, right: u64) {
        for comparison in ALL {
            let holds = |kind: Kind| holds(kind as u8, comparison as u8, left, right);
            assert_eq!(holds(Kind::Unsigned), truth(comparison, left, right));
            let signed = truth(comparison, left.cast_signed(), right.cast_signed());
            assert_eq!(holds(Kind::Signed), signed);
            let double = truth(comparison, f64::from_bits(left), f64::from_bits(right));
            assert_eq!(holds(Kind::Double), double, "{left:x} {comparison:?} {right:x}");
            #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
            let float = |word: u64| f32::from_bits(word as u32);
            assert_eq!(
                holds(Kind::Float),
                truth(comparison, float(left), float(right)),
                "{left:x} {comparison:?} {right:x}"
            );
        }
    }

    #[test]
    fn special_numbers() {
        let doubles = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            -f64::MAX,
        ];
        for left in doubles {
            for right in doubles {
                as_the_language_does(left.to_bits(), right.to_bits());
                #[expect(clippy::cast_possible_truncation, reason = "the nearest float is meant")]
                let float = |number: f64| u64::from((number as f32).to_bits());
                as_the_language_does(float(left), float(right));
            }
        }
    }

    proptest! {
        #[test]
        fn compare_as_the_language_does(left in any::<u64>(), right in any::<u64>(), near in any::<bool>()) {
            as_the_language_does(left, if near { left.wrapping_add(right & 1) } else { right });
        }
    }
}
