//! What is known of a frame while a stack is walked.

/// A frame of a stack that is being walked, innermost first.
///
/// `rbp` and `rbx` are had lazily: a walk notes where they were saved, and reads them only for a rule that
/// needs them, so that most frames cost a single read of user memory, that of the return address. The stack
/// does not change meanwhile: its thread is the one that is interrupted.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The instruction pointer: where an interrupted frame stands, where another will be returned to.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// `rbp`, where [`Self::rbp_at`] is [`Self::HERE`].
    pub rbp: u64,
    /// The address where `rbp` is saved, or [`Self::HERE`] or [`Self::LOST`].
    pub rbp_at: u64,
    /// `rbx`, where [`Self::rbx_at`] is [`Self::HERE`].
    pub rbx: u64,
    /// The address where `rbx` is saved, or [`Self::HERE`] or [`Self::LOST`].
    pub rbx_at: u64,
    /// The caller's, while `rbp` is still needed: see `restore_rbp`.
    pub caller_rbp: u64,
    /// The caller's, in the same way.
    pub caller_rbp_at: u64,
    /// The address of the `struct sigcontext` that holds the interrupted frame's registers; 0 where these
    /// are the interrupted thread's own.
    pub context: u64,
    /// Frames walked since the last interrupted one, which is 0, as are frames beneath a signal frame.
    pub age: u32,
    /// Frames of this stack that were found by [`super::frame_pointer_step`]: they are likely, not certain.
    pub by_frame_pointer: u32,
}

impl Frame {
    /// The register's value is in the frame.
    pub const HERE: u64 = 0;
    /// The register's value is not known.
    pub const LOST: u64 = u64::MAX;

    /// The frame of an interrupted thread.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn interrupted(ip: u64, sp: u64, rbp: u64, rbx: u64) -> Self {
        Self {
            ip,
            sp,
            rbp,
            rbp_at: Self::HERE,
            rbx,
            rbx_at: Self::HERE,
            caller_rbp: 0,
            caller_rbp_at: Self::HERE,
            context: 0,
            age: 0,
            by_frame_pointer: 0,
        }
    }

    /// Becomes the caller, whose other registers are restored.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub fn enter(&mut self, ip: u64, sp: u64) {
        self.ip = ip;
        self.sp = sp;
        self.rbp = self.caller_rbp;
        self.rbp_at = self.caller_rbp_at;
        self.age = self.age.saturating_add(1);
    }

    /// The address to look the rule up by. A return address may be the first byte after a function whose last
    /// instruction calls, so a byte of the call itself is taken.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn lookup_ip(&self) -> u64 {
        if self.age == 0 {
            self.ip
        } else {
            self.ip.wrapping_sub(1)
        }
    }
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Outcome {
    /// The frame is now the caller's. After a signal frame, its `age` is 0.
    Continue = 0,
    /// The frame has no caller, and the unwind information says so: the stack is complete.
    Root = 1,
    /// There is no unwind information here.
    NoRule = 2,
    /// The unwind information has a form, or needs a register, that is not supported.
    Unsupported = 3,
    /// User memory could not be read.
    Unreadable = 4,
    /// The caller would be the frame itself, or the frame pointer makes no sense.
    Stuck = 5,
    /// The frame is about to be left for another than its caller, and what led to that one is overwritten.
    Overwritten = 6,
}
