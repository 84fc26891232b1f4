//! How everything ends: the main thread learns of it here, the others are told through a [`Stop`].

use std::{
    mem::MaybeUninit,
    ptr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::error::Error;

/// Why the wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// SIGINT or SIGTERM.
    Signal,
    /// The time of `--duration` has passed.
    Time,
    /// A child ended.
    Child,
}

/// The signals that end the demo, blocked in every thread and waited for in one: no handler ever runs.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals for the calling thread and all that it starts; to be called before there are others.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses the mask.
    pub fn block() -> Result<Self, Error> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset makes its argument a valid set and, given a valid pointer, does not fail.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD] {
            // SAFETY: the set is valid and the signal number is one of libc's.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is valid; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
            0 => Ok(Self { set }),
            error => Err(Error::System {
                call: "pthread_sigmask",
                source: std::io::Error::from_raw_os_error(error),
            }),
        }
    }

    /// Waits until `deadline`, or without end where there is none, for one of the signals.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel cannot wait.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Reason, Error> {
        loop {
            // Without a deadline the wait is cut into hours: the loop makes them endless.
            let left = deadline.map_or(Duration::from_hours(1), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(Reason::Time);
            }
            let timeout = libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: both pointers are to live values of their types; the information is not asked for.
            let signal =
                unsafe { libc::sigtimedwait(&raw const self.set, ptr::null_mut(), &raw const timeout) };
            match signal {
                libc::SIGINT | libc::SIGTERM => return Ok(Reason::Signal),
                libc::SIGCHLD => return Ok(Reason::Child),
                _ => match std::io::Error::last_os_error() {
                    error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
                    source => {
                        return Err(Error::System {
                            call: "sigtimedwait",
                            source,
                        });
                    }
                },
            }
        }
    }
}

/// Tells threads to end, also those that sleep.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks everybody to end.
    pub fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Sleeps until `due`, or less where the end is asked for; tells which it was.
    pub fn asked_before(&self, due: Instant) -> bool {
        let left = due.saturating_duration_since(Instant::now());
        let mut asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !*asked && !left.is_zero() {
            let waited = self.0.1.wait_timeout_while(asked, left, |asked| !*asked);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken() {
        let stop = Stop::default();
        let sleeper = std::thread::spawn({
            let stop = stop.clone();
            move || stop.asked_before(Instant::now() + Duration::from_mins(10))
        });
        stop.set();
        assert!(sleeper.join().unwrap());
        assert!(stop.asked_before(Instant::now()));
    }

    #[test]
    fn time_passes_where_nobody_asks() {
        assert!(!Stop::default().asked_before(Instant::now() + Duration::from_millis(2)));
    }
}
