//! What a request does: the functions that a profiler is pointed at.
//!
//! They are never inlined and keep their plain names (`handle_request`, not a mangled path), and each does some
//! work after the calls it makes, so that no call becomes a tail jump and every caller stays on the stack.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    args::Work,
    journal::{Journal, append_entry},
    rebuild::{Index, rebuild_index},
    request::{REPLY_LEN, REQUEST_LEN, Reply, Request, digest, mix},
};

/// What one connection works on. Nothing in it is shared but the journal, so that without that handling a request never
/// waits.
#[derive(Debug)]
pub struct Workspace {
    work: Work,
    journal: Option<Arc<Journal>>,
    memory: Vec<u8>,
    index: Index,
}

/// How one request went.
#[derive(Debug)]
pub struct Handled {
    pub reply: Reply,
    /// By the server's own clock, from the first to the last statement of [`handle_request`].
    pub elapsed: Duration,
    pub slow: bool,
}

/// A request understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    id: u64,
    digest: u64,
    slow: bool,
}

/// What workspaces are made from.
#[derive(Debug)]
pub struct Workspaces {
    pub work: Work,
    /// The one that all append to.
    pub journal: Option<Arc<Journal>>,
}

impl Workspaces {
    /// Memory for one connection, touched here so that no request takes a page fault for it.
    pub fn make(&self) -> Workspace {
        Workspace {
            work: self.work,
            journal: self.journal.clone(),
            memory: vec![1; self.work.size_bytes],
            index: Index::new(),
        }
    }
}

/// Answers one request: the span that the README profiles.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn handle_request(workspace: &mut Workspace, request: &Request) -> Handled {
    let start = Instant::now();
    let parsed = parse_request(request, workspace.work.slow_per_million);
    let mut found = lookup(&mut workspace.memory, workspace.work.stride_bytes, parsed.id);
    if parsed.slow {
        found ^= match &workspace.journal {
            Some(journal) => append_entry(journal, parsed.id),
            None => rebuild_index(&mut workspace.index, parsed.id),
        };
    }
    let reply = render_reply(request, parsed, found);
    Handled {
        reply,
        elapsed: start.elapsed(),
        slow: parsed.slow,
    }
}

/// Reads the id, digests the payload, and decides by the id alone which path the request takes.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn parse_request(request: &Request, slow_per_million: u32) -> Parsed {
    let (head, payload) = request.split_at(8);
    let id = head.iter().rev().fold(0, |id, byte| (id << 8) | u64::from(*byte));
    Parsed {
        id,
        digest: digest(payload),
        slow: mix(id) % 1_000_000 < u64::from(slow_per_million),
    }
}

/// Touches the whole working set, one byte every `stride`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn lookup(memory: &mut [u8], stride: usize, id: u64) -> u64 {
    let mut found = id;
    for byte in memory.iter_mut().step_by(stride) {
        *byte = byte.wrapping_add(1);
        found = found.rotate_left(5) ^ u64::from(*byte);
    }
    black_box(found)
}

/// Writes the echo and the digest.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn render_reply(request: &Request, parsed: Parsed, found: u64) -> Reply {
    black_box(found);
    let mut reply = [0; REPLY_LEN];
    reply[..REQUEST_LEN].copy_from_slice(request);
    reply[REQUEST_LEN..].copy_from_slice(&parsed.digest.to_le_bytes());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{expected_reply, request};

    const WORK: Work = Work {
        size_bytes: 1024,
        stride_bytes: 64,
        slow_per_million: 40_000,
    };

    #[test]
    fn replies_are_the_echo_on_both_paths() {
        let mut workspace = Workspaces {
            work: WORK,
            journal: None,
        }
        .make();
        let mut paths = [0; 2];
        for id in 0..200 {
            let handled = handle_request(&mut workspace, &request(id));
            assert_eq!(handled.reply, expected_reply(&request(id)));
            paths[usize::from(handled.slow)] += 1;
        }
        assert!(paths[0] > 0 && paths[1] > 0, "{paths:?}");
    }

    #[test]
    fn the_share_of_slow_requests_is_the_one_asked_for() {
        for (per_million, low, high) in [(0, 0, 0), (40_000, 3_600, 4_400), (1_000_000, 100_000, 100_000)] {
            let slow = (0..100_000)
                .filter(|id| parse_request(&request(*id), per_million).slow)
                .count();
            assert!(
                (low..=high).contains(&slow),
                "{slow} of 100,000 at {per_million} in a million"
            );
        }
    }

    #[test]
    fn a_lookup_touches_every_stride_once() {
        let mut memory = vec![0; 1000];
        lookup(&mut memory, 64, 7);
        for (offset, byte) in memory.iter().enumerate() {
            assert_eq!(*byte, u8::from(offset % 64 == 0), "{offset}");
        }
    }
}
