//! What the scripted daemon sends of system calls.

use profiler_proto::v1;

use super::info;

/// The system calls after a number of updates, by a grouping; why it is the last message.
pub fn syscalls(by: v1::Grouping, update: usize, why: Option<&str>) -> v1::WatchSyscallsResponse {
    let calls = 40 * (update as u64 + 1);
    let module = by == v1::Grouping::Module;
    let frame = |id, name: &str, path: &str| v1::Frame {
        id,
        function: if module { path } else { name }.into(),
        module: path.into(),
        ..Default::default()
    };
    v1::WatchSyscallsResponse {
        info: Some(info(update as u64, "", why)),
        syscalls: vec![v1::Syscall {
            name: "openat".into(),
            number: 257,
            calls,
            failed: 20,
            time_ns: calls * 1_000,
            longest_ns: 2_000,
            errors: vec![v1::SyscallError {
                name: "ENOENT".into(),
                calls: 20,
            }],
            open: 1,
            callers: vec![v1::SyscallCaller {
                stack: vec![1, 2],
                calls,
                failed: 20,
                time_ns: calls * 1_000,
                longest_ns: 2_000,
            }],
            ..Default::default()
        }],
        frames: vec![
            frame(1, "main", "/opt/server"),
            frame(2, "look\x1b[31m", "/opt/libsearch.so"),
        ],
        begun_before: 2,
        watched_ns: 1_000_000_000,
        lost: [("syscall_limit".to_owned(), 5)].into(),
    }
}
