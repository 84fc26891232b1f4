//! How a frame's caller is found from it: the meaning of one distinct row of `.eh_frame`.

use super::register::{RBP, RSP};
use crate::assert_layout;

/// How the canonical frame address is had: the stack pointer of the caller, after the return.
/// Numbers are the wire format between daemon and programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cfa {
    /// The text has no unwind information here.
    None = 0,
    /// It has, but not in a form that a [`Rule`] can say.
    Unsupported = 1,
    /// `register + cfa_offset`.
    Register = 2,
    /// `*(register + cfa_offset) + extra`.
    Dereference = 3,
    /// In a procedure linkage table: `rsp + cfa_offset`, and 8 more from byte `extra` of each 16-byte
    /// entry on, where the entry has pushed.
    LinkageTable = 4,
    /// The kernel's signal frame: every register is in the context that lies on the stack.
    Signal = 5,
    /// What its unwind information tells of was overwritten by the code itself: nothing is to be guessed either.
    Overwritten = 6,
}

/// Where a register's value in the caller is. Numbers are the wire format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Saved {
    /// Still in the register.
    Same = 0,
    /// In memory at `CFA + offset`.
    AtCfa = 1,
    /// In memory at `rbp + offset`, by this frame's `rbp`; not of the return address.
    AtFramePointer = 2,
    /// In memory at `rsp + offset`, by this frame's `rsp`.
    AtStackPointer = 3,
    /// In the register numbered `offset`.
    InRegister = 4,
    /// Nowhere, or nowhere that a [`Rule`] can say. Of the return address: the frame has no caller.
    Lost = 5,
}

/// One distinct way from a frame to its caller.
///
/// Beside the stack pointer, `rbp` and `rbx` are followed from frame to frame, because the rules of
/// functions that make calls need no others. Rules by any further register hold for
/// interrupted frames, whose registers are all known.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// A [`Cfa`] as a number.
    pub cfa: u8,
    /// The register that the CFA comes from, as DWARF counts them.
    pub cfa_register: u8,
    /// A [`Saved`] as a number, for the return address. Its offset is `extra` with [`Cfa::Register`], else -8.
    pub return_address: u8,
    /// [`Saved`] of `rbp` in the low and of `rbx` in the high half.
    pub saved: u8,
    /// Offset of the CFA from its register.
    pub cfa_offset: i32,
    /// Offset that belongs to `rbp`'s [`Saved`].
    pub rbp_offset: i32,
    /// Offset that belongs to `rbx`'s [`Saved`].
    pub rbx_offset: i16,
    /// What [`Self::cfa`] or [`Self::return_address`] says.
    pub extra: i16,
}

assert_layout!(Rule, size 16,
    cfa at 0, cfa_register at 1, return_address at 2, saved at 3, cfa_offset at 4, rbp_offset at 8,
    rbx_offset at 12, extra at 14);

impl Rule {
    /// Index of [`Self::NONE`] in every rule table.
    pub const NONE_INDEX: u16 = 0;
    /// Index of [`Self::UNSUPPORTED`] in every rule table.
    pub const UNSUPPORTED_INDEX: u16 = 1;
    /// Rules that a table can hold: what [`super::Row::rule`] can number.
    pub const MAX: usize = 1 << 16;

    /// No unwind information.
    pub const NONE: Self = Self::bare(Cfa::None);
    /// Unwind information beyond what a rule can say.
    pub const UNSUPPORTED: Self = Self::bare(Cfa::Unsupported);
    /// The kernel's signal frame.
    pub const SIGNAL: Self = Self::bare(Cfa::Signal);
    /// A frame that is about to be left for another than its caller.
    pub const OVERWRITTEN: Self = Self::bare(Cfa::Overwritten);
    /// A frame without a caller.
    pub const ROOT: Self = Self {
        return_address: Saved::Lost as u8,
        ..Self::bare(Cfa::Register)
    };
    /// The x86-64 ABI at a function's first byte.
    pub const ENTRY: Self = Self {
        cfa_register: RSP,
        cfa_offset: 8,
        return_address: Saved::AtCfa as u8,
        extra: -8,
        ..Self::bare(Cfa::Register)
    };
    /// After `push rbp; mov rbp, rsp`.
    pub const FRAME_POINTER: Self = Self {
        cfa_register: RBP,
        cfa_offset: 16,
        saved: Saved::AtCfa as u8,
        rbp_offset: -16,
        ..Self::ENTRY
    };

    /// A rule of which only the kind of CFA is set.
    #[must_use]
    pub const fn bare(cfa: Cfa) -> Self {
        Self {
            cfa: cfa as u8,
            cfa_register: 0,
            return_address: Saved::Same as u8,
            saved: 0,
            cfa_offset: 0,
            rbp_offset: 0,
            rbx_offset: 0,
            extra: 0,
        }
    }

    /// The rule of a frame whose saved registers are overwritten, and whose return address is also to be had at an offset
    /// from `rbp`; `None` where the CFA comes from another register, or a rule cannot say so.
    #[must_use]
    pub fn without_saved(&self, return_address: i64) -> Option<Self> {
        let from_cfa = return_address.checked_sub(self.cfa_offset.into())?;
        let by_rbp = self.cfa == Cfa::Register as u8 && self.cfa_register == RBP;
        by_rbp.then_some(Self {
            return_address: Saved::AtCfa as u8,
            saved: Saved::Lost as u8 | (Saved::Lost as u8) << 4,
            rbp_offset: 0,
            rbx_offset: 0,
            extra: i16::try_from(from_cfa).ok()?,
            ..*self
        })
    }

    /// Whether it is like nearly all rules of functions that make calls: a CFA from the stack or frame pointer, the
    /// return address right below it, and `rbp` and `rbx` untouched or saved in the frame.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn is_plain(&self) -> bool {
        const SAME_OR_AT_CFA: u8 = !(Saved::Same as u8 | Saved::AtCfa as u8 | (Saved::AtCfa as u8) << 4);
        self.cfa == Cfa::Register as u8
            && self.return_address == Saved::AtCfa as u8
            && self.extra == -8
            && self.saved & SAME_OR_AT_CFA == 0
            && (self.cfa_register == RSP || self.cfa_register == RBP)
    }

    /// `rbp`'s [`Saved`] as a number.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn rbp_saved(&self) -> u8 {
        self.saved & 15
    }

    /// `rbx`'s [`Saved`] as a number.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn rbx_saved(&self) -> u8 {
        self.saved >> 4
    }
}
