//! The memory of this process.

/// Allocated, over all arenas; what is resident also tells how the heap happens to be cut up.
pub fn allocated_kib() -> usize {
    // SAFETY: the call takes no pointers and returns a value.
    let heap = unsafe { libc::mallinfo2() };
    (heap.uordblks + heap.hblkhd) / 1024
}

/// Resident, files that are mapped left aside.
pub fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    anonymous
        .and_then(|kib| kib.trim().trim_end_matches(" kB").parse().ok())
        .unwrap()
}
