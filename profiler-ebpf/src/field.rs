//! Fields of the kernel's structures, by their offsets.
//!
//! The structure is one that the verifier knows the type of, as a helper or another field gave it: it checks that there is such a field at
//! the offset, and a read through a pointer that leads nowhere gives 0.

use core::ffi::c_void;

/// A field that leads to another structure.
///
/// # Safety
/// The structure is the kernel's, and the offset this kernel's.
#[inline(always)]
pub unsafe fn pointer(structure: *mut c_void, offset: u32) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { *structure.cast::<u8>().add(offset as usize).cast::<*mut c_void>() }
}

/// A number of 8 bytes.
///
/// # Safety
/// As of [`pointer`].
#[inline(always)]
pub unsafe fn long(structure: *mut c_void, offset: u32) -> u64 {
    // SAFETY: the caller's.
    unsafe { *structure.cast::<u8>().add(offset as usize).cast::<u64>() }
}

/// A number of 4 bytes.
///
/// # Safety
/// As of [`pointer`].
#[inline(always)]
pub unsafe fn word(structure: *mut c_void, offset: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { *structure.cast::<u8>().add(offset as usize).cast::<u32>() }
}
