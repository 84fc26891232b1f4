//! System calls as the client knows them: the last message of the stream, checked.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::v1;

use super::Malformed;

/// What a stream has said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyscallsState {
    /// Canonical text of the scope.
    pub scope: String,
    /// The most time first.
    pub syscalls: Vec<v1::Syscall>,
    /// The frames of their callers' stacks, by id.
    frames: HashMap<u32, v1::Frame>,
    /// Calls that returned, or that never do.
    pub calls: u64,
    /// Those that returned an error.
    pub failed: u64,
    /// The time of all.
    pub time_ns: u64,
    /// Calls that have not returned.
    pub open: u64,
    /// Calls that had begun before they were watched.
    pub begun_before: u64,
    /// How long they have been counted.
    pub watched_ns: u64,
    /// What was left out, by reason.
    pub lost: BTreeMap<String, u64>,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Updates that were missed.
    pub dropped: u64,
    /// A message has arrived.
    pub started: bool,
}

impl SyscallsState {
    /// Puts a message in the place of the one before.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchSyscallsResponse) -> Result<(), Malformed> {
        let v1::WatchSyscallsResponse {
            info,
            syscalls,
            frames,
            begun_before,
            watched_ns,
            lost,
        } = message;
        let v1::StreamInfo {
            dropped, scope, cost, ..
        } = info.unwrap_or_default();
        let frames: HashMap<u32, v1::Frame> = frames.into_iter().map(|frame| (frame.id, frame)).collect();
        let callers = syscalls.iter().flat_map(|syscall| &syscall.callers);
        if callers
            .flat_map(|caller| &caller.stack)
            .any(|id| !frames.contains_key(id))
        {
            return Err(Malformed("a stack with a frame that it has not named"));
        }
        let sum = |of: fn(&v1::Syscall) -> u64| syscalls.iter().map(of).fold(0, u64::saturating_add);
        *self = Self {
            scope,
            calls: sum(|syscall| syscall.calls),
            failed: sum(|syscall| syscall.failed),
            time_ns: sum(|syscall| syscall.time_ns),
            open: sum(|syscall| syscall.open),
            syscalls,
            frames,
            begun_before,
            watched_ns,
            lost: lost.into_iter().collect(),
            cost,
            dropped,
            started: true,
        };
        Ok(())
    }

    /// A caller's stack, root first.
    #[must_use]
    pub fn stack(&self, caller: &v1::SyscallCaller) -> impl DoubleEndedIterator<Item = &v1::Frame> {
        caller.stack.iter().filter_map(|id| self.frames.get(id))
    }
}

/// What a system call is called.
#[must_use]
pub fn name(syscall: &v1::Syscall) -> String {
    if syscall.name.is_empty() {
        format!("syscall_{}", syscall.number)
    } else {
        syscall.name.clone()
    }
}

/// The time of a call that returned, on average; `None` where none did. Calls that never return have no time.
#[must_use]
pub fn mean_ns(calls: u64, time_ns: u64) -> Option<f64> {
    (calls > 0 && time_ns > 0).then(|| time_ns as f64 / calls as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_and_frames_have_to_be_named() {
        let syscall = |calls, stack: &[u32]| v1::Syscall {
            calls,
            time_ns: 10 * calls,
            open: 1,
            callers: vec![v1::SyscallCaller {
                stack: stack.to_vec(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let message = |stack: &[u32]| v1::WatchSyscallsResponse {
            syscalls: vec![syscall(3, stack), syscall(4, &[])],
            frames: vec![v1::Frame {
                id: 3,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut state = SyscallsState::default();
        state.apply(message(&[3, 3])).unwrap();
        assert_eq!((state.calls, state.time_ns, state.open), (7, 70, 2));
        assert_eq!(state.stack(&state.syscalls[0].callers[0]).count(), 2);
        assert!(state.apply(message(&[4])).is_err());
        assert_eq!(state.calls, 7, "what came before stands");
    }

    #[test]
    fn what_never_returns_has_no_mean() {
        assert_eq!(
            (mean_ns(0, 0), mean_ns(3, 0), mean_ns(4, 10)),
            (None, None, Some(2.5))
        );
    }
}
