//! Whether the unwind table says that nothing called the code: where a thread begins, the return address is
//! marked undefined. This finds the beginnings that have no symbol left, such as a stripped libc's `clone3`.

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, RegisterRule, UnwindContext, UnwindSection as _, X86_64,
};
use object::{Object as _, ObjectSection as _};

use super::elf::Elf;

/// Whether the return address is undefined at an address of the file's numbering.
pub(super) fn is_root(elf: &Elf, address: u64) -> bool {
    rule_says_root(elf, address).unwrap_or(false)
}

fn rule_says_root(elf: &Elf, address: u64) -> Option<bool> {
    let parsed = elf.parse().ok()?;
    let header = parsed.section_by_name(".eh_frame_hdr")?;
    let frames = parsed.section_by_name(".eh_frame")?;
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(header.address())
        .set_eh_frame(frames.address());
    let index = EhFrameHdr::new(header.data().ok()?, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let frames = EhFrame::new(frames.data().ok()?, LittleEndian);
    let entry = index
        .table()?
        .fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)
        .ok()?;
    let mut context = UnwindContext::new();
    let row = entry
        .unwind_info_for_address(&frames, &bases, &mut context, address)
        .ok()?;
    Some(row.register(X86_64::RA) == Some(RegisterRule::Undefined))
}
