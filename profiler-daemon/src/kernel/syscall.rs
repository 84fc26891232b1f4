//! The `bpf(2)` calls that aya 0.14 does not make. This file can go with aya 0.16.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya_obj::generated::{bpf_insn, bpf_prog_info};

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_BTF_LOAD: libc::c_long = 18;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const BPF_PERF_EVENT: u32 = 41;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_TRACE_KPROBE_SESSION: u32 = 56;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
/// A program may call helpers that wait.
const BPF_F_SLEEPABLE: u32 = 1 << 4;
/// The verifier says what a program took, and no more.
const BPF_LOG_STATS: u32 = 4;
const STATISTICS_BYTES: usize = 1 << 16;
/// The verifier says what it does.
const BPF_LOG_LEVEL1: u32 = 1;
const LOG_BYTES: usize = 1 << 20;
/// Lines of the verifier's log that are kept: its verdict comes last.
const LOG_LINES: usize = 20;

/// The part of `union bpf_attr` that `BPF_PROG_LOAD` reads (`include/uapi/linux/bpf.h`).
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    reserved: u32,
}

/// The part that the commands read that handle many elements of a map.
#[repr(C)]
#[derive(Default)]
struct Batch {
    /// Where reading goes on, and will: not for writing.
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

/// The part that `BPF_BTF_LOAD` reads.
#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    reserved: u32,
}

/// The part that `BPF_LINK_CREATE` reads for a `uprobe_multi` link.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    reserved: u32,
}

/// The part that `BPF_LINK_CREATE` reads for a `kprobe_multi` link.
#[repr(C)]
#[derive(Default)]
struct FunctionLinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    cnt: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

/// The part that `BPF_LINK_CREATE` reads for a perf event.
#[repr(C)]
#[derive(Default)]
struct PerfLinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// The part that `BPF_OBJ_GET_INFO_BY_FD` reads.
#[repr(C)]
#[derive(Default)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Makes one `bpf(2)` call, and gives what it returns.
fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attributes` is an initialised structure of the command's layout, its size is passed
    // along, and every address in it points to memory that the callers keep alive over the call.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(returned)
}

/// Makes one `bpf(2)` call that gives a descriptor.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    let fd = i32::try_from(fd).map_err(|_| io::Error::other("descriptor out of range"))?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How often a program was not run where it was reached, since it was loaded.
///
/// # Errors
/// Where it is no program.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: it consists of numbers, of which zero is one. Zero of something to be filled in asks for none of it.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut attributes = GetInfo {
        bpf_fd: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        info_len: u32::try_from(size_of_val(&info)).unwrap_or(0),
        info: (&raw mut info) as u64,
    };
    call(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info.recursion_misses)
}

/// Puts maps into a map of maps. One by one, the kernel would wait after each until no program sees what was there before.
pub fn set_inner_maps(outer: BorrowedFd<'_>, first: u32, inner: &[BorrowedFd<'_>]) -> io::Result<()> {
    let count = u32::try_from(inner.len()).unwrap_or(u32::MAX);
    let keys: Vec<u32> = (first..first.saturating_add(count)).collect();
    let values: Vec<i32> = inner.iter().map(AsRawFd::as_raw_fd).collect();
    let mut attributes = Batch {
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count,
        map_fd: u32::try_from(outer.as_raw_fd()).unwrap_or(u32::MAX),
        ..Batch::default()
    };
    call(BPF_MAP_UPDATE_BATCH, &mut attributes).map(|_| ())
}

/// Elements of a map that are read by one call.
const READ_AT_ONCE: usize = 1024;

/// An element of a map whose keys are numbers of processes.
#[derive(Clone, Copy)]
pub struct Element<const WORDS: usize> {
    pub pid: u32,
    pub words: [u64; WORDS],
}

/// All elements of a hash map of processes, by a few calls. One that is put in or taken out meanwhile may be among them or not.
pub fn elements<const WORDS: usize>(map: BorrowedFd<'_>) -> io::Result<Vec<Element<WORDS>>> {
    let mut read = Vec::new();
    let (mut pids, mut values) = ([0_u32; READ_AT_ONCE], vec![[0_u64; WORDS]; READ_AT_ONCE]);
    let mut place: Option<u32> = None;
    loop {
        let mut next = 0_u32;
        let mut attributes = Batch {
            from: place.as_ref().map_or(0, |place| std::ptr::from_ref(place) as u64),
            to: &raw mut next as u64,
            keys: pids.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: u32::try_from(READ_AT_ONCE).unwrap_or(u32::MAX),
            map_fd: u32::try_from(map.as_raw_fd()).unwrap_or(u32::MAX),
            ..Batch::default()
        };
        let is_last = match call(BPF_MAP_LOOKUP_BATCH, &mut attributes) {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        let elements = pids.iter().zip(&values).take(attributes.count as usize);
        read.extend(elements.map(|(pid, words)| Element {
            pid: *pid,
            words: *words,
        }));
        if is_last {
            return Ok(read);
        }
        place = Some(next);
    }
}

/// Loads type information, in the kernel's format.
pub fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes = BtfLoad {
        btf: types.as_ptr() as u64,
        size: u32::try_from(types.len()).unwrap_or(u32::MAX),
        ..BtfLoad::default()
    };
    bpf(BPF_BTF_LOAD, &mut attributes)
}

/// A relocated program.
pub struct Code<'a> {
    /// Its instructions.
    pub instructions: &'a [bpf_insn],
    /// Its licence.
    pub license: &'a CStr,
    /// The object's type information.
    pub btf: BorrowedFd<'a>,
    /// Which types its functions have: `struct bpf_func_info` each.
    pub functions: &'a [u8],
    /// Bytes of one of these.
    pub function_size: usize,
    /// Whether it may wait, for memory that is not there.
    pub may_wait: bool,
}

/// What a program is for.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `uprobe_multi` links.
    UprobeMulti,
    /// Tracepoints.
    Tracepoint,
    /// Entries and returns of the kernel's functions, by `kprobe_multi` links.
    FunctionSession,
    /// Perf events at the kernel's functions.
    FunctionEvent,
}

/// Loads a program, and says what the verifier counted. On failure, the end of the verifier's log comes with the error.
pub fn load_program(
    name: &str,
    kind: Kind,
    code: &Code<'_>,
) -> Result<(OwnedFd, String), (io::Error, String)> {
    let (prog_type, expected_attach_type) = match kind {
        Kind::UprobeMulti => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_MULTI),
        Kind::Tracepoint => (BPF_PROG_TYPE_TRACEPOINT, 0),
        Kind::FunctionSession => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_SESSION),
        Kind::FunctionEvent => (BPF_PROG_TYPE_KPROBE, 0),
    };
    let Code {
        instructions,
        license,
        btf,
        functions,
        function_size,
        may_wait,
    } = code;
    let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut attributes = ProgLoad {
        prog_btf_fd: u32::try_from(btf.as_raw_fd()).unwrap_or(u32::MAX),
        func_info_rec_size: count(*function_size),
        func_info: functions.as_ptr() as u64,
        func_info_cnt: count(functions.len() / (*function_size).max(1)),
        prog_type,
        insn_cnt: count(instructions.len()),
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        prog_flags: if *may_wait { BPF_F_SLEEPABLE } else { 0 },
        expected_attach_type,
        ..ProgLoad::default()
    };
    for (to, from) in attributes.prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let mut statistics = vec![0u8; STATISTICS_BYTES];
    attributes.log_level = BPF_LOG_STATS;
    attributes.log_size = count(statistics.len());
    attributes.log_buf = statistics.as_mut_ptr() as u64;
    let error = match bpf(BPF_PROG_LOAD, &mut attributes) {
        Ok(fd) => return Ok((fd, text(&statistics))),
        Err(error) => error,
    };
    let mut log = vec![0u8; LOG_BYTES];
    attributes.log_level = BPF_LOG_LEVEL1;
    attributes.log_size = count(log.len());
    attributes.log_buf = log.as_mut_ptr() as u64;
    if let Ok(fd) = bpf(BPF_PROG_LOAD, &mut attributes) {
        // The first attempt failed for a passing reason.
        return Ok((fd, text(&log)));
    }
    let log = text(&log);
    let tail: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
    Err((error, tail.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// What the kernel wrote into a buffer.
fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// Attaches a program at many offsets of one file, for one process. Dropping the link detaches it.
pub fn create_multi_link(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    pid: u32,
    at_return: bool,
) -> io::Result<OwnedFd> {
    debug_assert_eq!(offsets.len(), cookies.len());
    let mut attributes = LinkCreate {
        prog_fd: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        attach_type: BPF_TRACE_UPROBE_MULTI,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        cnt: u32::try_from(offsets.len()).unwrap_or(u32::MAX),
        multi_flags: if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
        pid,
        ..LinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &mut attributes)
}

/// Attaches a program at the entries and returns of many functions of the kernel. Dropping the link detaches it.
pub fn create_function_link(
    program: BorrowedFd<'_>,
    addresses: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    debug_assert_eq!(addresses.len(), cookies.len());
    let mut attributes = FunctionLinkCreate {
        prog_fd: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        attach_type: BPF_TRACE_KPROBE_SESSION,
        cnt: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
        addresses: addresses.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        ..FunctionLinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &mut attributes)
}

/// Attaches a program to a perf event. Dropping the link detaches it.
pub fn create_perf_link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut attributes = PerfLinkCreate {
        prog_fd: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        target_fd: u32::try_from(event.as_raw_fd()).unwrap_or(u32::MAX),
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        cookie,
    };
    bpf(BPF_LINK_CREATE, &mut attributes)
}
