//! What fills the space between functions.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// Functions are aligned to this at most by compilers; a longer gap is not looked into.
const MAX_PADDING_BYTES: usize = 64;

/// Whether `bytes` are nothing that runs, and need no row of their own: zeros, or instructions without effect.
///
/// Breakpoints are told apart from code, although no thread is ever there either: a thread that is interrupted right
/// behind one looks as if it had met a probe's, and only the rows say that it has not.
pub(super) fn is_padding(bytes: &[u8]) -> bool {
    if bytes.len() >= MAX_PADDING_BYTES {
        return false;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return true;
    }
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    while decoder.can_decode() {
        if decoder.decode().mnemonic() != Mnemonic::Nop {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_padding;

    #[test]
    fn fillers_and_code() {
        assert!(is_padding(&[]));
        assert!(is_padding(&[0; 15]));
        // data16 cs nopw 0x0(%rax,%rax,1); nopl (%rax)
        assert!(is_padding(&[
            0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0
        ]));
        assert!(is_padding(&[0x66, 0x90]));
        assert!(!is_padding(&[0xcc; 15]));
        assert!(!is_padding(&[0xc3]));
        assert!(!is_padding(&[0x90, 0xc3]));
        // cut in the middle of an instruction
        assert!(!is_padding(&[0x0f, 0x1f]));
        assert!(!is_padding(&[0x90; 64]));
    }
}
