//! Stacks as they are read: equal ones become one.

use std::collections::HashMap;

use super::NotAProfile;
use crate::profile::{Frame, Measure, Profile, Stack};

/// Names of functions, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 28;

/// Frames of all samples together.
const MAX_FRAMES: usize = 1 << 26;

/// What stands for a sample without a stack, so that its weight is seen.
pub const NO_STACK: &str = "[no stack]";

/// A profile that is being read.
#[derive(Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    /// What these take, and they are kept twice.
    text_bytes: usize,
    frame_numbers: HashMap<Frame, u32>,
    /// Frames of the samples so far.
    sample_frames: usize,
    weights: HashMap<Vec<u32>, Vec<u64>>,
}

impl Stacks {
    /// The number of a frame.
    ///
    /// # Errors
    /// Where all names together are too long.
    pub fn frame(&mut self, frame: Frame) -> Result<u32, NotAProfile> {
        if let Some(number) = self.frame_numbers.get(&frame) {
            return Ok(*number);
        }
        self.text_bytes += frame.name.len() + frame.file.len() + frame.module.len() + size_of::<Frame>();
        if self.text_bytes > MAX_TEXT_BYTES {
            return Err(NotAProfile::new(
                "the names of its functions take more than 256 MiB",
            ));
        }
        let number = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.push(frame.clone());
        self.frame_numbers.insert(frame, number);
        Ok(number)
    }

    /// Whether there is room for one more sample, of so many frames. Asked before these are collected: a line can be all of a file.
    ///
    /// # Errors
    /// Where there is none.
    pub fn room_for(&self, frames: usize) -> Result<(), NotAProfile> {
        if self.sample_frames.saturating_add(frames) > MAX_FRAMES {
            return Err(NotAProfile::new(
                "its stacks have more than 67,108,864 frames in all",
            ));
        }
        Ok(())
    }

    /// Adds the weights of a stack, the outermost frame first.
    ///
    /// # Errors
    /// As of [`Self::frame`] and [`Self::room_for`].
    pub fn add(&mut self, mut frames: Vec<u32>, weights: &[u64]) -> Result<(), NotAProfile> {
        self.room_for(frames.len())?;
        self.sample_frames += frames.len();
        if frames.is_empty() {
            frames.push(self.frame(Frame {
                name: NO_STACK.to_owned(),
                ..Frame::default()
            })?);
        }
        let sums = self.weights.entry(frames).or_default();
        sums.resize(weights.len().max(sums.len()), 0);
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = sum.saturating_add(*weight);
        }
        Ok(())
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
