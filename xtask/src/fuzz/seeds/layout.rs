//! How inputs of sections are laid out; the targets, in `fuzz/src/run`, say what it means.

use object::{Object as _, ObjectSection as _};

/// The sections of `dwarf`, in the order of their numbers.
const DEBUG: [&str; 12] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_rnglists",
    ".debug_ranges",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_loc",
    ".debug_loclists",
    ".debug_aranges",
];
/// Every eighth byte of the text, from where it begins.
const LOOKUPS: [u8; 2] = [7, 0xf8];
/// Choices of `eh_frame`.
const DEBUG_FRAME: u8 = 1;
const INDEX: u8 = 2;
/// Text of 64 KiB: a power of two times 256 bytes.
const TEXT_SIZE: u8 = 8;

/// The inputs, by target, that a file's sections make.
pub fn parts(bytes: &[u8]) -> object::Result<Vec<(&'static str, Vec<u8>)>> {
    let file = object::File::parse(bytes)?;
    let mut parts = Vec::new();
    let mut debug = LOOKUPS.to_vec();
    for (number, name) in (0..).zip(DEBUG) {
        if let Some(section) = file.section_by_name(name) {
            let content = section.uncompressed_data()?;
            debug.push(number);
            debug.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_le_bytes());
            debug.extend(&*content);
        }
    }
    if debug != LOOKUPS {
        parts.push(("dwarf", debug));
    }
    let eh_frame = file.section_by_name(".eh_frame").map(|section| (0, section));
    let debug_frame = file
        .section_by_name(".debug_frame")
        .map(|section| (DEBUG_FRAME, section));
    if let Some((kind, section)) = eh_frame.or(debug_frame) {
        let index = file.section_by_name(".eh_frame_hdr");
        let (index_at, index) = match &index {
            Some(index) => (index.address(), index.data()?),
            None => (0, &[][..]),
        };
        let choices = kind | if index.is_empty() { 0 } else { INDEX };
        let eighth = |address: u64| u16::try_from(address / 8).unwrap_or(0).to_le_bytes();
        let mut input = vec![choices, TEXT_SIZE];
        input.extend([eighth(section.address()), eighth(index_at)].concat());
        input.extend(u16::try_from(index.len()).unwrap_or(u16::MAX).to_le_bytes());
        input.extend(index);
        input.extend(&*section.uncompressed_data()?);
        parts.push(("eh_frame", input));
    }
    Ok(parts)
}
