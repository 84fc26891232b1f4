//! The fallback where there is no rule: the chain of frame pointers.

use super::frame::{Frame, Outcome};

/// Goes on to the caller of `frame` as if it had begun with `push rbp; mov rbp, rsp`.
///
/// For code without unwind information. It is a guess: [`Frame::by_frame_pointer`] counts how often it
/// was made. The guess is refused ([`Outcome::Stuck`]) where `rbp` is not an aligned address on the stack above
/// the frame. The frame is meaningless unless the outcome is [`Outcome::Continue`].
#[inline(always)]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub fn frame_pointer_step(frame: &mut Frame, read: impl Fn(u64) -> Option<u64>) -> Outcome {
    if frame.rbp_at == Frame::LOST {
        return Outcome::Unsupported;
    }
    if frame.rbp_at != Frame::HERE {
        let Some(rbp) = read(frame.rbp_at) else {
            return Outcome::Unreadable;
        };
        frame.rbp = rbp;
    }
    // `rbp` grows from frame to frame with the stack pointer, so that a chain of guesses comes to an end.
    let rbp = frame.rbp;
    if rbp < frame.sp || rbp & 7 != 0 {
        return Outcome::Stuck;
    }
    let Some(ip) = read(rbp.wrapping_add(8)) else {
        return Outcome::Unreadable;
    };
    if ip == 0 {
        return Outcome::Stuck;
    }
    frame.ip = ip;
    frame.sp = rbp.wrapping_add(16);
    frame.rbp = 0;
    frame.rbp_at = rbp;
    frame.rbx_at = Frame::LOST;
    frame.age = frame.age.saturating_add(1);
    frame.by_frame_pointer = frame.by_frame_pointer.saturating_add(1);
    Outcome::Continue
}
