//! Records of the ring buffer, parsed once into values that cannot be wrong.

use std::collections::HashMap;

use profiler_common::{
    hit::{HitHeader, ValueHeader},
    probe::ProbeId,
    record::{
        HIT, SAMPLE, SPAN_END, STACK, SYSTEM_CALL, SampleHeader, SpanEnd, SpanRef, StackHeader, WEIGHT,
        Weight,
    },
    values::{MAX_BYTES, MAX_VALUES},
};

use super::{off_cpu::Interval, system_calls::ReturnedCall};

/// What the programs have to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A tick of the sampler, or an event.
    Sample {
        /// The event, by [`super::SampledEvent::id`]; 0 at a tick.
        event: u32,
        /// Process and thread, in the initial PID namespace.
        tgid: u32,
        /// The thread.
        tid: u32,
        /// `CLOCK_MONOTONIC`.
        ts_ns: u64,
        /// What the sample stands for: time in nanoseconds, or a number of events.
        weight: u64,
        /// What it was about: [`SampleHeader::key`].
        key: Key,
        /// Spans that were open, outermost first.
        spans: Vec<SpanRef>,
        /// Kernel addresses, innermost first.
        kernel: Vec<u64>,
        /// User addresses, innermost first.
        user: Vec<u64>,
        /// [`SampleHeader`]'s flags.
        flags: u16,
    },
    /// What a sample before stands for.
    Weight(Weight),
    /// The end of a span that samples hit or that was slow.
    SpanEnd(SpanEnd),
    /// A line was reached.
    Hit(Hit),
    /// A thread was off the CPU.
    OffCpu(Interval),
    /// A system call has returned in open spans.
    SystemCall(ReturnedCall),
}

impl Record {
    /// The process in which the addresses of its stack are, if it has one.
    #[must_use]
    pub fn process_of_stack(&self) -> Option<u32> {
        match self {
            Self::Sample { tgid, .. } => Some(*tgid),
            Self::OffCpu(interval) => interval.stack.as_ref().map(|_| interval.tgid),
            Self::Hit(hit) => hit.stack.as_ref().map(|_| hit.tgid),
            Self::Weight(_) | Self::SpanEnd(_) | Self::SystemCall(_) => None,
        }
    }

    /// How much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let more = match self {
            Self::Sample {
                spans, kernel, user, ..
            } => {
                size_of_val(spans.as_slice()) + size_of_val(kernel.as_slice()) + size_of_val(user.as_slice())
            }
            Self::Hit(Hit { values, stack, .. }) => {
                let stack = stack.as_ref();
                let texts: usize = values.iter().map(|value| value.bytes.len()).sum();
                size_of_val(values.as_slice())
                    + texts
                    + stack.map_or(0, |stack| size_of_val(stack.addresses.as_slice()))
            }
            // Its stacks are kept once for all intervals with them.
            Self::OffCpu(interval) => size_of_val(interval.spans.as_slice()),
            Self::SystemCall(call) => size_of_val(call.spans.as_slice()),
            Self::Weight(_) | Self::SpanEnd(_) => 0,
        };
        size_of_val(self) + more
    }
}

/// What a sample was about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// Where it lies: the number of a device; 0 of what lies in the process.
    pub space: u64,
    /// Its place there: an address, or a sector.
    pub place: u64,
}

/// A line that was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The process, in the initial PID namespace.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Whose site it is.
    pub probe: ProbeId,
    /// `CLOCK_MONOTONIC`.
    pub ts_ns: u64,
    /// Number of the span that its step is observed inside of; 0 where there is none.
    pub parent: u64,
    /// It counts if its parent's duration is as asked.
    pub joined: bool,
    /// A span begins with it, whose number `parent` is.
    pub is_entry: bool,
    /// A span is about to end, whose number `parent` is: the values are found by what it returns.
    pub is_end: bool,
    /// What was read there, in the order of the plans; fewer where the record had no more room.
    pub values: Vec<ReadValue>,
    /// The thread's stack, where it was to be taken.
    pub stack: Option<UserStack>,
}

/// A stack in user space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserStack {
    /// Addresses with [`SampleHeader`]'s marks, innermost first.
    pub addresses: Vec<u64>,
    /// [`SampleHeader`]'s flags.
    pub flags: u16,
}

impl UserStack {
    /// One that did not arrive.
    pub(super) const MISSING: Self = Self {
        addresses: Vec::new(),
        flags: SampleHeader::USER_MISSING,
    };
}

/// Stacks that have come before their hits.
#[derive(Default)]
pub(super) struct HitStacks {
    /// By thread. A thread has one at most: its hit is the next that it sends, unless that was lost.
    by_thread: HashMap<u32, HitStack>,
}

/// The stack of a hit.
struct HitStack {
    tid: u32,
    /// When the hit was.
    ts_ns: u64,
    stack: UserStack,
}

/// Threads whose last stack is kept; its hit may have been lost. Those beyond are forgotten, all at once.
const MAX_STACKS: usize = 4096;

impl HitStacks {
    /// Keeps a stack until its hit comes; whether these bytes are one.
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        let Some(stack) = parse_stack(bytes) else {
            return false;
        };
        if self.by_thread.len() >= MAX_STACKS {
            self.by_thread.clear();
        }
        self.by_thread.insert(stack.tid, stack);
        true
    }

    /// Gives a hit its stack, where it has one.
    pub fn give(&mut self, hit: &mut Hit) {
        if hit.stack.is_some()
            && let Some(kept) = self.by_thread.remove(&hit.tid)
            && kept.ts_ns == hit.ts_ns
        {
            hit.stack = Some(kept.stack);
        }
    }
}

/// The stack of a hit; `None` where the record is damaged or another.
fn parse_stack(bytes: &[u8]) -> Option<HitStack> {
    let mut reader = Reader(bytes);
    if reader.u32()? != STACK {
        return None;
    }
    // Field by field, in the order of `StackHeader`, whose offsets are asserted.
    let (_tgid, tid) = (reader.u32()?, reader.u32()?);
    let (frames, flags, ts_ns) = (reader.u16()?, reader.u16()?, reader.u64()?);
    let addresses = reader.words(frames)?;
    Some(HitStack {
        tid,
        ts_ns,
        stack: UserStack { addresses, flags },
    })
}

/// What came of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadValue {
    /// A [`profiler_common::values::Outcome`] as a number.
    pub outcome: u32,
    /// The address that could not be read.
    pub fault: u64,
    /// What was read.
    pub bytes: Vec<u8>,
}

impl Record {
    /// Parses a record; `None` where it is damaged or of an unknown kind.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        match u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) {
            SAMPLE => {
                // Field by field, in the order of `SampleHeader`, whose offsets are asserted.
                let (_kind, event, tgid, tid) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
                let (ts_ns, weight) = (reader.u64()?, reader.u64()?);
                let (place, space) = (reader.u64()?, reader.u64()?);
                let (spans, kernel, user, flags) =
                    (reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?);
                let spans = (0..spans).map(|_| reader.span()).collect::<Option<_>>()?;
                let kernel = reader.words(kernel)?;
                let user = reader.words(user)?;
                Some(Self::Sample {
                    event,
                    tgid,
                    tid,
                    ts_ns,
                    weight,
                    key: Key { space, place },
                    spans,
                    kernel,
                    user,
                    flags,
                })
            }
            SYSTEM_CALL => ReturnedCall::parse(bytes).map(Self::SystemCall),
            WEIGHT => Some(Self::Weight(Weight {
                kind: reader.u32()?,
                event: reader.u32()?,
                tgid: reader.u32()?,
                tid: reader.u32()?,
                ts_ns: reader.u64()?,
                key: reader.u64()?,
                weight: reader.u64()?,
            })),
            SPAN_END => Some(Self::SpanEnd(SpanEnd {
                kind: reader.u32()?,
                flags: reader.u32()?,
                tgid: reader.u32()?,
                tid: reader.u32()?,
                probe: ProbeId(reader.u32()?),
                hits: reader.u32()?,
                sequence: reader.u64()?,
                start_ns: reader.u64()?,
                end_ns: reader.u64()?,
                parent: reader.u32()?,
                gates: reader.u32()?,
                returned: [reader.u64()?, reader.u64()?],
            })),
            HIT => {
                let (_kind, values) = (reader.u32()?, reader.u32()?);
                let (tgid, tid, probe) = (reader.u32()?, reader.u32()?, ProbeId(reader.u32()?));
                let (flags, ts_ns, parent) = (reader.u32()?, reader.u64()?, reader.u64()?);
                if values as usize > MAX_VALUES {
                    return None;
                }
                let values = (0..values).map(|_| reader.value()).collect::<Option<_>>()?;
                Some(Self::Hit(Hit {
                    tgid,
                    tid,
                    probe,
                    ts_ns,
                    parent,
                    joined: flags & HitHeader::JOINED != 0,
                    is_entry: flags & HitHeader::ENTRY != 0,
                    is_end: flags & HitHeader::END != 0,
                    values,
                    stack: (flags & HitHeader::STACK != 0).then_some(UserStack::MISSING),
                }))
            }
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<HitHeader>() == 40 && size_of::<ValueHeader>() == 16);
const _: () =
    assert!(size_of::<SampleHeader>() == 56 && size_of::<Weight>() == 40 && size_of::<SpanEnd>() == 72);
const _: () = assert!(size_of::<StackHeader>() == 24);

/// Reads a record field by field; `None` where it ends before.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn words(&mut self, count: u16) -> Option<Vec<u64>> {
        let (words, rest) = self.0.split_at_checked(usize::from(count) * 8)?;
        self.0 = rest;
        let (words, _) = words.as_chunks::<8>();
        Some(words.iter().copied().map(u64::from_ne_bytes).collect())
    }

    fn value(&mut self) -> Option<ReadValue> {
        let (outcome, length, fault) = (self.u32()?, self.u32()? as usize, self.u64()?);
        if length > MAX_BYTES {
            return None;
        }
        let (padded, rest) = self.0.split_at_checked(length.next_multiple_of(8))?;
        self.0 = rest;
        Some(ReadValue {
            outcome,
            fault,
            bytes: padded.get(..length)?.to_vec(),
        })
    }

    pub fn span(&mut self) -> Option<SpanRef> {
        Some(SpanRef {
            probe: ProbeId(self.u32()?),
            gates: self.u32()?,
            sequence: self.u64()?,
            start_ns: self.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(kind in 0u32..9, rest in proptest::collection::vec(any::<u8>(), 0..256)) {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend(rest);
            let _ = Record::parse(&bytes);
            prop_assert!(!HitStacks::default().keep(&bytes) || kind == STACK);
        }

        #[test]
        fn a_sample_cut_short_is_refused(cut in 1usize..8) {
            let mut bytes = vec![0u8; 56];
            bytes[..4].copy_from_slice(&SAMPLE.to_ne_bytes());
            bytes[52..54].copy_from_slice(&1u16.to_ne_bytes());
            bytes.extend(7u64.to_ne_bytes());
            let whole = matches!(Record::parse(&bytes), Some(Record::Sample { user, .. }) if user == [7]);
            prop_assert!(whole);
            bytes.truncate(64 - cut);
            prop_assert_eq!(Record::parse(&bytes), None);
        }
    }

    fn stack_of(tid: u32, ts_ns: u64, addresses: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for half in [STACK, 7, tid] {
            bytes.extend(half.to_ne_bytes());
        }
        for quarter in [
            u16::try_from(addresses.len()).unwrap(),
            SampleHeader::USER_COMPLETE,
        ] {
            bytes.extend(quarter.to_ne_bytes());
        }
        for word in [ts_ns].iter().chain(addresses) {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    fn hit_of(tid: u32, ts_ns: u64) -> Hit {
        let mut bytes = Vec::new();
        for half in [HIT, 0, 7, tid, 1, HitHeader::STACK] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes.extend(ts_ns.to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        match Record::parse(&bytes) {
            Some(Record::Hit(hit)) => hit,
            other => panic!("not a hit: {other:?}"),
        }
    }

    #[test]
    fn a_hit_has_its_own_stack_or_none() {
        let mut stacks = HitStacks::default();
        let mut given = |tid, ts_ns, sent: &[(u32, u64, &[u64])]| {
            for (tid, ts_ns, addresses) in sent {
                assert!(stacks.keep(&stack_of(*tid, *ts_ns, addresses)));
            }
            let mut hit = hit_of(tid, ts_ns);
            stacks.give(&mut hit);
            hit.stack.unwrap()
        };
        // Another thread's comes in between.
        let stack = given(1, 10, &[(1, 10, &[5, 6]), (2, 10, &[7])]);
        assert_eq!(
            (stack.addresses, stack.flags),
            (vec![5, 6], SampleHeader::USER_COMPLETE)
        );
        assert_eq!(given(2, 10, &[]).addresses, [7]);
        assert_eq!(given(2, 10, &[]), UserStack::MISSING, "each once");
        // The hit of the first was lost.
        assert_eq!(given(1, 12, &[(1, 11, &[5]), (1, 12, &[8])]).addresses, [8]);
        assert_eq!(given(1, 14, &[(1, 13, &[5])]), UserStack::MISSING);
    }

    #[test]
    fn a_stack_cut_short_is_none() {
        let bytes = stack_of(1, 2, &[3, 4]);
        for length in 0..bytes.len() {
            assert!(!HitStacks::default().keep(&bytes[..length]));
        }
    }
}
