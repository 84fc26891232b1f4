//! What the process on the other end of a Unix socket may do, beside whose it is.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::standing::{Namespace, Standing};

/// Whether a process on the other end of a Unix socket, of this number, has all that this process has: it is in the same user
/// namespace, and has each of this one's capabilities.
///
/// The number of a user says nothing of that: a container's root is user 0 too, with a few capabilities left or with none.
/// A process that has ended by now has nothing. Before Linux 6.5 another one may have got its number in between.
#[must_use]
pub fn has_own_rights(socket: impl AsFd, pid: u32) -> bool {
    let process = process_of(&socket);
    let (Ok(peer), Ok(own)) = (Standing::of(pid), Standing::of(std::process::id())) else {
        return false;
    };
    let has_all = peer.namespace == Namespace::Own && peer.permitted & own.permitted == own.permitted;
    // What was read is that process's if it still lives.
    has_all && process.is_none_or(|process| is_alive(&process))
}

/// The process that connected; `None` where the kernel does not say.
fn process_of(socket: &impl AsFd) -> Option<OwnedFd> {
    /// `asm-generic/socket.h`, from Linux 6.5 on.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(mem::size_of_val(&descriptor)).ok()?;
    // SAFETY: the socket is open, and both pointers are to live values of the sizes that the kernel is told.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if status != 0 || descriptor < 0 {
        return None;
    }
    // SAFETY: the kernel has just opened it for this call, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Whether a process has not ended: the descriptor of one that has can be read from.
fn is_alive(process: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready: Result<usize, io::Error> = poll(&mut waiting, Some(&at_once)).map_err(Into::into);
    matches!(ready, Ok(0))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn this_process_has_its_own_rights_and_one_that_is_gone_has_none() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(has_own_rights(&ours, std::process::id()));
        assert!(!has_own_rights(&ours, u32::MAX));
    }

    #[test]
    fn a_process_is_alive_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        assert!(is_alive(&process));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_alive(&process));
    }
}
