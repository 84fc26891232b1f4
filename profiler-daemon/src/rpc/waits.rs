//! Who is waited for, on its way to the wire: whole pictures, with the frames that their stacks are made of.

use std::collections::BTreeSet;

use profiler_aggregate::{
    calltree::FrameId,
    waits::{Kind, Lock, Locks, Node, Waiting},
};
use profiler_proto::v1;
use profiler_symbolize::FrameTable;

use super::{
    convert, flame_delta,
    stream_info::{self, Position},
};
use crate::session::WaitsPicture;

/// The message of a picture.
pub fn picture(picture: &WaitsPicture, at: Position) -> v1::WatchWaitsResponse {
    let nodes: Vec<v1::WaitNode> = picture
        .nodes
        .iter()
        .map(|node| message(node, &picture.frames))
        .collect();
    let used: BTreeSet<u32> = nodes.iter().flat_map(|node| node.stack.iter().copied()).collect();
    v1::WatchWaitsResponse {
        info: Some(stream_info::of_picture(
            at,
            &picture.scope,
            picture.cost,
            &picture.lost,
            picture.ended.as_ref(),
        )),
        frames: flame_delta::frames(&used, &picture.frames),
        nodes,
        waits: picture.total.waits,
        waited_ns: picture.total.waited_ns,
        runnable_ns: picture.total.runnable_ns,
        watched_ns: picture.watched_ns,
        lost: convert::losses(&picture.lost),
    }
}

/// What was waited for in memory.
pub(super) fn lock(lock: &Lock, frames: &FrameTable) -> v1::Lock {
    v1::Lock {
        address: lock.address,
        name: name(lock.name, frames),
        memory: name(lock.memory, frames),
        allocated: name(lock.allocated, frames),
    }
}

/// How a thread waits.
pub(super) fn waiting(waiting: Waiting) -> v1::Waiting {
    match waiting {
        Waiting::Sleeping => v1::Waiting::Sleeping,
        Waiting::Uninterruptible => v1::Waiting::Uninterruptible,
        Waiting::Stopped => v1::Waiting::Stopped,
    }
}

/// What a frame is called; nothing of none.
fn name(frame: Option<FrameId>, frames: &FrameTable) -> String {
    frame
        .and_then(|frame| frames.get(frame.0 as usize))
        .map_or_else(String::new, |frame| frame.function.to_string())
}

fn message(node: &Node, frames: &FrameTable) -> v1::WaitNode {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let name = |frame: FrameId| name(Some(frame), frames);
    let ids = |stack: &[FrameId]| stack.iter().map(|frame| frame.0).collect();
    let mut message = v1::WaitNode {
        parent: node.parent.map_or(0, |parent| number(parent + 1)),
        time_ns: node.time_ns,
        count: node.count,
        longest_ns: node.longest_ns,
        held_up_ns: node.held_up_ns,
        threads: number(node.threads),
        ..Default::default()
    };
    let kind = match &node.kind {
        Kind::Waited(place, waiting, locks) => {
            match locks {
                Locks::None => {}
                Locks::One(lock) => {
                    message.lock = Some(self::lock(lock, frames));
                }
                Locks::Others => message.other_locks = number(node.other_locks),
            }
            message.thread = name(place.thread);
            message.stack = ids(&place.stack);
            message.not_followed_ns = node.own_ns;
            message.set_waiting(self::waiting(*waiting));
            v1::WaitKind::Waited
        }
        Kind::Woken(place, is_own) => {
            message.thread = name(place.thread);
            message.stack = ids(&place.stack);
            message.not_followed_ns = node.own_ns;
            message.outside = !is_own;
            v1::WaitKind::Woken
        }
        Kind::Interrupt(function) => {
            message.stack = vec![function.0];
            v1::WaitKind::Interrupt
        }
        Kind::Unseen => v1::WaitKind::Unseen,
        Kind::GoesOn(held_by) => {
            message.thread = held_by.map_or_else(String::new, name);
            v1::WaitKind::GoesOn
        }
        Kind::Ran => v1::WaitKind::Ran,
        Kind::Runnable => v1::WaitKind::Runnable,
    };
    message.set_kind(kind);
    message
}
