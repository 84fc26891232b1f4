//! Pieces of a thread's time, in the place of spans where there is no step.
//!
//! Samples of a thread that follow on each other are alike, as those of one span are: what is compared needs observations
//! that are less so. A piece of time is one, with all samples that the thread had in it.

use std::collections::HashMap;

use super::{calltree::NodeId, join::Sample, reservoir::SampledSpan, thread::ThreadId};

/// Threads whose piece is open; then all are ended early.
const MAX_THREADS: usize = 1 << 14;

/// The pieces that are open.
pub struct Blocks {
    length_ns: u64,
    open: HashMap<ThreadId, Block>,
}

struct Block {
    number: u64,
    last_ns: u64,
    samples: u64,
    leaves: Vec<(NodeId, u64)>,
}

impl Blocks {
    /// None yet.
    pub fn new(length_ns: u64) -> Self {
        Self {
            length_ns: length_ns.max(1),
            open: HashMap::new(),
        }
    }

    /// Takes a sample; gives the pieces that have ended.
    pub fn sample(&mut self, sample: &Sample<'_>) -> Vec<SampledSpan> {
        let number = sample.ts_ns / self.length_ns;
        let thread = ThreadId {
            tgid: sample.tgid,
            tid: sample.tid,
        };
        let mut ended = Vec::new();
        if self.open.len() >= MAX_THREADS && !self.open.contains_key(&thread) {
            ended = self.end();
        } else if let Some(block) = self.open.remove(&thread) {
            // A sample that comes late is counted with those that it comes with.
            if block.number < number {
                ended.push(block.ended());
            } else {
                self.open.insert(thread, block);
            }
        }
        let block = self.open.entry(thread).or_insert(Block {
            number,
            last_ns: 0,
            samples: 0,
            leaves: Vec::new(),
        });
        block.last_ns = block.last_ns.max(sample.ts_ns);
        block.samples += sample.count;
        match block.leaves.iter_mut().find(|(node, _)| *node == sample.node) {
            Some((_, weight_ns)) => *weight_ns = weight_ns.saturating_add(sample.weight_ns),
            None => block.leaves.push((sample.node, sample.weight_ns)),
        }
        ended
    }

    /// Ends all, in the order of the threads.
    pub fn end(&mut self) -> Vec<SampledSpan> {
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(thread, _)| *thread);
        open.into_iter().map(|(_, block)| block.ended()).collect()
    }
}

impl Block {
    fn ended(self) -> SampledSpan {
        SampledSpan {
            end_ns: self.last_ns,
            bucket: 0,
            samples: self.samples,
            leaves: self.leaves.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tid: u32, ts_ns: u64, node: u32) -> Sample<'static> {
        Sample {
            tgid: 1,
            tid,
            ts_ns,
            weight_ns: 10,
            count: 1,
            node: NodeId(node),
            spans: &[],
        }
    }

    #[test]
    fn a_piece_has_the_samples_of_one_thread_and_time() {
        let mut blocks = Blocks::new(100);
        for (tid, ts_ns, node) in [(1, 100, 3), (2, 150, 4), (1, 160, 3), (1, 199, 5)] {
            assert_eq!(blocks.sample(&sample(tid, ts_ns, node)), []);
        }
        let ended = blocks.sample(&sample(1, 200, 3));
        let first = SampledSpan {
            end_ns: 199,
            bucket: 0,
            samples: 3,
            leaves: [(NodeId(3), 20), (NodeId(5), 10)].into(),
        };
        assert_eq!(ended, [first]);
        let samples: Vec<u64> = blocks.end().iter().map(|block| block.samples).collect();
        assert_eq!(samples, [1, 1]);
        assert_eq!(blocks.end(), []);
    }
}
