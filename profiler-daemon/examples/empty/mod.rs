//! Programs that do nothing, which are what the benches call the floor: no tool that sees as much can cost less.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

// The kernel's include/uapi/linux/bpf.h.
const PROG_LOAD: libc::c_long = 5;

/// `r0 = 0; exit`
static CODE: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];

/// `union bpf_attr` of a load.
#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u32; 4],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    types: u32,
    function_record: u32,
    functions: u64,
    function_count: u32,
    line_record: u32,
    lines: u64,
    line_count: u32,
    attach_to: u32,
}

const _: () = assert!(size_of::<Load>() == 112);

/// Loads one of this type, which is attached in this way, to what has this number in the kernel's BTF; 0 for nothing there.
pub fn load(program_type: u32, expected_attach_type: u32, attach_to: u32) -> io::Result<OwnedFd> {
    bpf(
        PROG_LOAD,
        &Load {
            program_type,
            instructions: 2,
            code: CODE.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            name: *b"empty\0\0\0\0\0\0\0\0\0\0\0",
            expected_attach_type,
            attach_to,
            ..Load::default()
        },
    )
}

/// Makes one `bpf(2)` call that gives a descriptor. `attributes` are of the command's layout, and what they point to
/// outlives the call.
pub fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attributes` is an initialised structure of the command's layout, which the kernel only reads,
    // its size is passed along, and the addresses in it are of memory that outlives the call.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just made the descriptor, which nothing else owns.
        Ok(descriptor @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
