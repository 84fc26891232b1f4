//! Writing structures piece by piece. Of several fields at once the compiler makes calls of `memset` and `memcpy`, and the
//! verifier looks at those as functions of any length: it never comes to an end.

/// Writes one field, by itself.
macro_rules! set {
    ($place:expr, $value:expr) => {
        (&raw mut $place).write_volatile($value)
    };
}

pub(crate) use set;

/// Copies a value of so many words of 32 bits.
///
/// # Safety
/// Both are valid.
#[inline(always)]
pub unsafe fn copy<T, const WORDS: usize>(from: *const T, to: *mut T) {
    const { assert!(size_of::<T>() == WORDS * 4 && align_of::<T>() >= 4) };
    for word in 0..WORDS {
        // SAFETY: within the caller's values.
        unsafe {
            to.cast::<u32>()
                .add(word)
                .write_volatile(from.cast::<u32>().add(word).read_volatile())
        };
    }
}
