//! System calls on their way to the wire: whole pictures, with the frames that their callers' stacks are made of.

use std::{cmp::Reverse, collections::BTreeSet};

use profiler_aggregate::system_calls::{CallTotal, Counted};
use profiler_proto::v1;
use profiler_symbolize::FrameId;

use super::{
    convert, flame_delta,
    stream_info::{self, Position},
};
use crate::{abi, kernel::CallNumber, session::SyscallsPicture};

/// The message of a picture.
pub fn picture(picture: &SyscallsPicture, at: Position) -> v1::WatchSyscallsResponse {
    let syscalls: Vec<v1::Syscall> = picture.calls.iter().map(message).collect();
    let callers = syscalls.iter().flat_map(|syscall| &syscall.callers);
    let used: BTreeSet<u32> = callers.flat_map(|caller| caller.stack.iter().copied()).collect();
    v1::WatchSyscallsResponse {
        info: Some(stream_info::of_picture(
            at,
            &picture.scope,
            picture.cost,
            &picture.lost,
            picture.ended.as_ref(),
        )),
        frames: flame_delta::frames(&used, &picture.frames),
        syscalls,
        begun_before: picture.begun_before,
        watched_ns: picture.watched_ns,
        lost: convert::losses(&picture.lost),
    }
}

fn message(total: &CallTotal<CallNumber, Vec<FrameId>>) -> v1::Syscall {
    let CallNumber { number, is_32_bit } = total.call;
    let Counted {
        calls,
        failed,
        time_ns,
        longest_ns,
    } = total.all;
    let named = |(number, calls): (&u32, &u64)| v1::SyscallError {
        name: abi::error(*number).map_or_else(|| number.to_string(), str::to_owned),
        calls: *calls,
    };
    let mut errors: Vec<v1::SyscallError> = total.errors.iter().map(named).collect();
    errors.sort_by_key(|error| Reverse(error.calls));
    v1::Syscall {
        name: abi::system_call(number, is_32_bit).unwrap_or_default().to_owned(),
        number,
        is_32_bit,
        calls,
        failed,
        time_ns,
        longest_ns,
        errors,
        open: total.open,
        callers: total.callers.iter().map(caller).collect(),
    }
}

fn caller((stack, counted): &(Vec<FrameId>, Counted)) -> v1::SyscallCaller {
    v1::SyscallCaller {
        stack: stack.iter().map(|frame| frame.0).collect(),
        calls: counted.calls,
        failed: counted.failed,
        time_ns: counted.time_ns,
        longest_ns: counted.longest_ns,
    }
}
