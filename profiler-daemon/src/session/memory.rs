//! Freed memory goes back to the kernel: the allocator keeps it for each thread's own use, for good.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Time from the first wish until memory is given back.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// Somebody waits for that already.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Gives memory back in a while, once for everything that is freed by then. Costs the caller nothing but a thread's start.
pub fn give_back_soon() {
    if IS_UNDER_WAY.swap(true, Ordering::Relaxed) {
        return;
    }
    let started = thread::Builder::new().name("memory".to_owned()).spawn(|| {
        thread::sleep(GIVE_BACK_AFTER);
        IS_UNDER_WAY.store(false, Ordering::Relaxed);
        give_back();
    });
    if started.is_err() {
        // Whoever frees memory next tries again.
        IS_UNDER_WAY.store(false, Ordering::Relaxed);
    }
}

fn give_back() {
    // SAFETY: the call takes a number, and may be made at any time from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}
