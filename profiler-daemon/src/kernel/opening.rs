//! Links are opened on threads of their own: the kernel puts a probe into the memory of each process that has mapped the file, whoever's
//! it is, and waits for one that keeps its memory from being changed (`register_for_each_vma` in `kernel/events/uprobes.c`). The engine
//! has others to serve.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

/// How long a link is waited for while the kernel has not yet opened another that was given up: it opens one at a time.
const PATIENCE_BEHIND_LATE: Duration = Duration::from_millis(100);

/// Links that were given up, and which the kernel has not opened yet.
static LATE: AtomicUsize = AtomicUsize::new(0);

/// A link, which is closed when this is dropped.
pub(super) enum MultiLink {
    Open { _descriptor: OwnedFd },
    Late { _link: LateLink },
}

/// A link that is still being opened. Dropping it waits for that, and closes it.
pub(super) struct LateLink(Receiver<io::Result<OwnedFd>>);

impl LateLink {
    fn new(opened: Receiver<io::Result<OwnedFd>>) -> Self {
        LATE.fetch_add(1, Ordering::SeqCst);
        Self(opened)
    }
}

impl Drop for LateLink {
    fn drop(&mut self) {
        drop(self.0.recv());
        LATE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Opens a link, which then is among the others: also where it takes longer than the patience, and is to be closed with them.
///
/// # Errors
/// That of opening it; `TimedOut` where it takes longer.
pub(super) fn open(
    patience: Duration,
    links: &mut Vec<MultiLink>,
    open: impl FnOnce() -> io::Result<OwnedFd> + Send + 'static,
) -> io::Result<()> {
    let is_any_late = LATE.load(Ordering::SeqCst) > 0;
    let patience = if is_any_late {
        patience.min(PATIENCE_BEHIND_LATE)
    } else {
        patience
    };
    let (sender, opened) = mpsc::channel();
    thread::Builder::new().name("opener".to_owned()).spawn(move || {
        // Where nobody waits any more, that closes it.
        let _ = sender.send(open());
    })?;
    match opened.recv_timeout(patience) {
        Ok(link) => {
            links.push(MultiLink::Open { _descriptor: link? });
            Ok(())
        }
        Err(RecvTimeoutError::Timeout) => {
            links.push(MultiLink::Late {
                _link: LateLink::new(opened),
            });
            Err(kept_waiting())
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("opening a link has failed: please report it"))
        }
    }
}

fn kept_waiting() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "some process that has mapped the file keeps the kernel from placing the probe: it is starting a program, or waits for its own \
         file system with its memory locked. Try again, or end that process",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    fn descriptor() -> io::Result<OwnedFd> {
        Ok(File::open("/dev/null")?.into())
    }

    /// In one test, as those that are late are counted for all.
    #[test]
    fn a_link_that_takes_too_long_is_refused_and_closed_once_it_is_open() {
        let mut links = Vec::new();
        open(PATIENCE, &mut links, descriptor).unwrap();
        let refused = open(PATIENCE, &mut links, || {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        });
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(matches!(links[..], [MultiLink::Open { .. }]));
        let (go_on, held) = mpsc::channel::<()>();
        let (read, mut write) = io::pipe().unwrap();
        let late = open(Duration::ZERO, &mut links, move || {
            // Until the test lets it go on.
            let _ = held.recv();
            Ok(read.into())
        });
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(matches!(links[..], [_, MultiLink::Late { .. }]));
        // Another that is as long in coming is not waited for as long.
        let (hold, held) = mpsc::channel::<()>();
        let other = open(PATIENCE, &mut links, move || {
            let _ = held.recv();
            descriptor()
        });
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop((go_on, hold));
        drop(links);
        assert_eq!(LATE.load(Ordering::SeqCst), 0);
        let closed = io::Write::write(&mut write, &[0]).unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
    }
}
