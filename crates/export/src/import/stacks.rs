//! Stacks as they are read: equal ones become one.

use std::collections::HashMap;

use crate::profile::{Frame, Measure, Profile, Stack};

/// What stands for a sample without a stack, so that its weight is seen.
pub const NO_STACK: &str = "[no stack]";

/// A profile that is being read.
#[derive(Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    weights: HashMap<Vec<u32>, Vec<u64>>,
}

impl Stacks {
    /// The number of a frame.
    pub fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(number) = self.frame_numbers.get(&frame) {
            return *number;
        }
        let number = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.push(frame.clone());
        self.frame_numbers.insert(frame, number);
        number
    }

    /// Adds the weights of a stack, the outermost frame first.
    pub fn add(&mut self, mut frames: Vec<u32>, weights: &[u64]) {
        if frames.is_empty() {
            frames.push(self.frame(Frame {
                name: NO_STACK.to_owned(),
                ..Frame::default()
            }));
        }
        let sums = self.weights.entry(frames).or_default();
        sums.resize(weights.len().max(sums.len()), 0);
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = sum.saturating_add(*weight);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The profile; its stacks in the order of their frames.
    pub fn profile(self, measures: Vec<Measure>) -> Profile {
        let mut stacks: Vec<Stack> = self
            .weights
            .into_iter()
            .map(|(frames, mut weights)| {
                weights.resize(measures.len(), 0);
                Stack {
                    frames,
                    weights,
                    labels: Vec::new(),
                }
            })
            .collect();
        stacks.sort_by(|a, b| a.frames.cmp(&b.frames));
        Profile {
            measures,
            frames: self.frames,
            stacks,
            ..Profile::default()
        }
    }
}
