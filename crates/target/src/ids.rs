//! What the kernel says of processes and threads by their numbers alone. No file below `/proc` is looked up or read, so that no process
//! can keep whoever asks waiting.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Whether a process of this number runs; of one that has ended and was not waited for, it does not. As far as is known: where
/// there is no descriptor left to ask with, it runs.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(descriptor) => !has_ended(descriptor.as_fd()),
        Err(error) => [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&error),
    }
}

/// Whether a process has a thread of this number.
#[must_use]
pub fn has_thread(pid: u32, tid: u32) -> bool {
    let (Ok(pid), Ok(tid)) = (i32::try_from(pid), i32::try_from(tid)) else {
        return false;
    };
    // SAFETY: the call takes three numbers. Signal 0 is none: the kernel only says whether the thread is there.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    // Where another signal would be forbidden, it is there.
    asked == 0 || ![Some(libc::ESRCH), Some(libc::EINVAL)].contains(&last_errno())
}

/// CPU time of all threads of a process so far, the ended ones too, in nanoseconds; `None` where there is no process of this number.
pub(crate) fn cpu_ns(pid: u32) -> Option<u64> {
    let pid = i32::try_from(pid).ok()?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the call writes one number.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes the time, and the time is read only where it says that it did.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    let (s, ns) = (
        u64::try_from(time.tv_sec).ok()?,
        u64::try_from(time.tv_nsec).ok()?,
    );
    Some(s.saturating_mul(1_000_000_000).saturating_add(ns))
}

/// Whether the process of a descriptor has ended.
pub(crate) fn has_ended(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Readable means ended. An interrupted poll says nothing: not ended as far as is known.
    matches!(poll(&mut descriptors, Some(&now)), Ok(1..))
}

fn last_errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::mpsc};

    use super::*;

    #[test]
    fn who_runs_is_told_from_who_has_ended() {
        assert!(is_running(std::process::id()));
        // No process has such numbers.
        assert!(!is_running(0) && !is_running(1 << 30) && !is_running(u32::MAX));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(is_running(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }

    #[test]
    fn threads_are_those_of_their_process() {
        let own = std::process::id();
        let (say, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
                .unwrap();
            // Until it is let go.
            let _ = ends.recv();
        });
        let tid = told.recv().unwrap();
        assert!(has_thread(own, own) && has_thread(own, tid));
        assert!(!has_thread(1, tid), "it is not that one's");
        assert!(!has_thread(own, 1), "that one is not its");
        assert!(!has_thread(0, 0) && !has_thread(own, 1 << 30) && !has_thread(own, u32::MAX));
        drop(end);
        thread.join().unwrap();
        // The kernel wakes who joins a moment before it forgets the thread.
        while has_thread(own, tid) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn cpu_time_is_of_processes_that_there_are() {
        assert!(cpu_ns(std::process::id()).is_some_and(|time_ns| time_ns > 0));
        // No process has so high a number.
        assert_eq!(cpu_ns(5_000_000), None);
    }
}
