//! Pages of the thread's memory that are not there, brought in by programs that may wait.
//!
//! The thread waits as if it had touched the page itself. Meanwhile no probe of the machine can be taken off: the kernel lets all
//! programs that may wait come to their end first. So only memory and block devices are waited for, not what other programs bring
//! in or the network does: areas with `userfaultfd`, files in FUSE, of other machines, of devices. What a block device is made of
//! is not looked at.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_copy_from_user, bpf_find_vma, bpf_get_current_task_btf},
};

use crate::maps;

/// File systems on block devices and in memory, by what `statfs` calls them (linux/magic.h). Huge pages are not among them: there
/// are but a few, and one may be promised to the target itself.
const LOCAL: [u64; 8] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs, and memory that is shared without a name
    0x8584_58f6, // ramfs
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
];

/// `S_IFMT` and `S_IFREG` of `stat`.
const KIND: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;

/// What is found of the area that an address lies in.
#[repr(C)]
struct Area {
    is_local: u64,
}

/// Brings in the page at an address, if the machine itself can; whether it is there now.
#[inline(always)]
pub fn bring_in(address: u64) -> bool {
    let mut area = Area { is_local: 0 };
    // SAFETY: the callback takes an `Area`, which outlives the call, as does the byte; the helper checks the address.
    unsafe {
        let found = bpf_find_vma(
            bpf_get_current_task_btf(),
            address,
            look as *mut c_void,
            (&raw mut area).cast(),
            0,
        );
        // The callback wrote it.
        if found != 0 || (&raw const area.is_local).read_volatile() == 0 {
            return false;
        }
        let mut byte = 0_u8;
        bpf_copy_from_user((&raw mut byte).cast(), 1, address as *const c_void) == 0
    }
}

/// Looks at an area, which the kernel keeps as it is meanwhile.
unsafe extern "C" fn look(_task: *mut c_void, area: *mut c_void, out: *mut c_void) -> i64 {
    // SAFETY: `bring_in` passes an `Area`.
    unsafe {
        (*out.cast::<Area>()).is_local = u64::from(is_local(area));
    }
    0
}

#[inline(always)]
fn is_local(area: *mut c_void) -> bool {
    let userfaultfd = maps::area_userfaultfd_offset();
    if userfaultfd == u32::MAX || userfaultfd != 0 && word(area as u64, userfaultfd) != Some(0) {
        return false;
    }
    match word(area as u64, maps::area_file_offset()) {
        None => false,
        // Memory of no file.
        Some(0) => true,
        Some(file) => is_local_file(file),
    }
}

#[inline(always)]
fn is_local_file(file: u64) -> bool {
    let Some(inode) = word(file, maps::file_inode_offset()) else {
        return false;
    };
    let mode = inode.wrapping_add(maps::inode_mode_offset().into());
    // SAFETY: the helper checks the address.
    let mode = unsafe { bpf_probe_read_kernel(mode as *const u16) };
    if mode.map(|mode| mode & KIND) != Ok(REGULAR) {
        return false;
    }
    let file_system = word(inode, maps::inode_file_system_offset());
    let magic = file_system.and_then(|at| word(at, maps::file_system_magic_offset()));
    let Some(magic) = magic else {
        return false;
    };
    let mut is_local = false;
    for known in LOCAL {
        is_local |= magic == known;
    }
    is_local
}

/// A word of the kernel's.
#[inline(always)]
fn word(address: u64, offset: u32) -> Option<u64> {
    let at = ptr::with_exposed_provenance::<u64>(address.wrapping_add(offset.into()) as usize);
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(at) }.ok()
}
