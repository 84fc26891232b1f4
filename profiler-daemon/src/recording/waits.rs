//! Waits from messages, which somebody may have made up.

use std::sync::Arc;

use profiler_aggregate::{
    ThreadId,
    waits::{Lock, Place, Wait, Waiting, Waker},
};
use profiler_proto::v1;
use profiler_symbolize::FrameId;

use super::decode::{Damaged, Decoder, MAX_COUNT, span};
use crate::session::{MAX_OFF_CPU, OffAtFirst, RecordedWait};

/// Waits of a message: more than are told in one.
const MAX_WAITS: usize = 1 << 18;

/// Spans that are open in one another.
const MAX_SPANS: usize = 1024;

impl Decoder {
    /// Who was off the CPU.
    pub(super) fn off_cpu(&self, told: &v1::RecordedOffCpu) -> Result<OffAtFirst, Damaged> {
        if told.threads.len() > MAX_OFF_CPU {
            return Err(Damaged);
        }
        let threads = told.threads.iter().map(|number| self.thread_id(*number));
        Ok(OffAtFirst {
            since_ns: told.since_ns,
            threads: threads.collect::<Result<_, _>>()?,
        })
    }

    /// Takes the waits of a message of a time.
    pub(super) fn waits(
        &mut self,
        told: Vec<v1::RecordedWait>,
        from_ns: u64,
    ) -> Result<Vec<RecordedWait>, Damaged> {
        if told.len() > MAX_WAITS {
            return Err(Damaged);
        }
        let mut last_ns = from_ns;
        let waits = told.into_iter().map(|wait| self.wait(wait, &mut last_ns));
        waits.collect()
    }

    /// Takes a wait, by the time of the one before.
    fn wait(&mut self, told: v1::RecordedWait, last_ns: &mut u64) -> Result<RecordedWait, Damaged> {
        let waiting = match told.waiting() {
            v1::Waiting::Unspecified => None,
            v1::Waiting::Sleeping => Some(Waiting::Sleeping),
            v1::Waiting::Uninterruptible => Some(Waiting::Uninterruptible),
            v1::Waiting::Stopped => Some(Waiting::Stopped),
        };
        let v1::RecordedWait {
            thread,
            after_ns,
            waited_ns,
            runnable_ns,
            name_frame,
            node,
            lock,
            waker,
            still_ns,
            spans,
            ..
        } = told;
        // Of one that had not ended, no end of the time on no CPU is known: that may be any.
        let is_too_much = waited_ns > MAX_COUNT || runnable_ns > MAX_COUNT;
        if is_too_much || spans.len() > MAX_SPANS {
            return Err(Damaged);
        }
        let end_ns = last_ns.saturating_add_signed(after_ns);
        *last_ns = end_ns;
        let woken_ns = end_ns.checked_sub(runnable_ns).ok_or(Damaged)?;
        let left_ns = woken_ns.checked_sub(waited_ns).ok_or(Damaged)?;
        let waker = match waker {
            None => Waker::Unseen,
            Some(v1::recorded_wait::Waker::GoesOnFrame(holder)) => Waker::GoesOn(self.some_frame(holder)?),
            Some(v1::recorded_wait::Waker::InterruptFrame(function)) => {
                Waker::Interrupt(self.told_frame(function)?)
            }
            Some(v1::recorded_wait::Waker::Woken(woken)) => Waker::Thread {
                thread: self.thread_id(woken.thread)?,
                place: self.place(woken.name_frame, woken.node)?,
                // Who plays it knows the target's processes.
                is_own: false,
            },
        };
        let wait = Wait {
            thread: self.thread_id(thread)?,
            place: self.place(name_frame, node)?,
            waiting,
            lock: lock.map(|lock| self.lock(lock)).transpose()?,
            times: [left_ns, woken_ns, end_ns],
            waker,
            still_ns,
        };
        Ok(RecordedWait {
            wait,
            spans: spans.iter().map(|open| span(open, end_ns)).collect(),
        })
    }

    fn thread_id(&self, number: u32) -> Result<ThreadId, Damaged> {
        self.thread(number).map(|thread| ThreadId {
            tgid: thread.tgid,
            tid: thread.tid,
        })
    }

    fn lock(&self, lock: v1::RecordedLock) -> Result<Lock, Damaged> {
        Ok(Lock {
            process: lock.process,
            address: lock.address,
            name: self.some_frame(lock.name_frame)?,
            allocated: self.some_frame(lock.allocated_frame)?,
            memory: self.some_frame(lock.memory_frame)?,
        })
    }

    fn place(&mut self, name_frame: u32, node: u32) -> Result<Place, Damaged> {
        let thread = self.told_frame(name_frame)?;
        let stack: Arc<[FrameId]> = self.counted_stack(node)?.into();
        Ok(Place { thread, stack })
    }

    /// The frame of a number; none of 0.
    fn some_frame(&self, id: u32) -> Result<Option<FrameId>, Damaged> {
        match id {
            0 => Ok(None),
            id => self.told_frame(id).map(Some),
        }
    }
}
