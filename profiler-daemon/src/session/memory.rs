//! Freed memory goes back to the kernel: the allocator keeps it for each thread's own use, for good.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// Time without a wish until memory is given back.
const QUIET: Duration = Duration::from_secs(1);

/// After so many of these, it is given back while wishes go on.
const QUIET_MAX: usize = 10;

/// Free bytes that the allocator keeps at the end of each thread's part, and the size from which a piece of memory has pages of its
/// own. Left to itself, it raises both to multiples of the largest piece ever freed: tens of megabytes for a file's line table, which
/// no thread gives back.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 1 << 20;

/// Times that it was wished for.
static WISHES: AtomicU64 = AtomicU64::new(0);

/// A thread waits to do it.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Bounds what the allocator keeps for each thread, for as long as the process runs.
pub fn bound_kept() {
    // SAFETY: the calls take numbers. Threads that allocate meanwhile go by either threshold.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BYTES);
    }
}

/// Gives memory back when nobody has wished for it for a while: once for everything that is freed until then. Costs the caller nothing
/// but a thread's start.
pub fn give_back_soon() {
    WISHES.fetch_add(1, Ordering::SeqCst);
    if IS_UNDER_WAY.swap(true, Ordering::SeqCst) {
        return;
    }
    let started = thread::Builder::new()
        .name("memory".to_owned())
        .spawn(give_back_once_quiet);
    if started.is_err() {
        // Whoever frees memory next tries again.
        IS_UNDER_WAY.store(false, Ordering::SeqCst);
    }
}

fn give_back_once_quiet() {
    loop {
        let mut wishes = WISHES.load(Ordering::SeqCst);
        for _ in 0..QUIET_MAX {
            thread::sleep(QUIET);
            let before = std::mem::replace(&mut wishes, WISHES.load(Ordering::SeqCst));
            if before == wishes {
                break;
            }
        }
        give_back();
        IS_UNDER_WAY.store(false, Ordering::SeqCst);
        // Who has wished for it since relies on this thread, unless there is another by now.
        if WISHES.load(Ordering::SeqCst) == wishes || IS_UNDER_WAY.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

fn give_back() {
    // SAFETY: the call takes a number, and may be made at any time from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}
