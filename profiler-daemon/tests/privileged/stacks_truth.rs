//! Which stacks of a fixture can be true, and how many of those sampled were.
//!
//! A stack is a list of words, root first: a function of the fixture or its libraries by its name, `?` for code of theirs
//! that has none (linkage tables) and for code of no file, and `-` for any number of frames of other files. Spaces in names are
//! written `_`.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use profiler_daemon::session::FlamePicture;
use profiler_symbolize::Frame;

/// Frames of other files.
const OTHERS: &str = "-";
/// Code of the fixture without a name, and code of no file.
const NAMELESS: &str = "?";

/// The stacks of a fixture that can be true.
pub struct Truth {
    is_own: fn(&Frame) -> bool,
    /// Every stack without signals, from a root to any function.
    stacks: HashSet<Vec<String>>,
    /// Functions that signals call anywhere.
    handlers: &'static [&'static str],
}

impl Truth {
    /// `is_own` says which frames count; the others are those of other files. Of everything that can be below each of the roots, and of handlers with what is below them: names separated by
    /// spaces, `name*3` for a recursion.
    pub fn new(
        is_own: fn(&Frame) -> bool,
        roots: &[&str],
        chains: &[&str],
        handlers: &'static [&'static str],
        handler_chains: &[&str],
    ) -> Self {
        let mut stacks = HashSet::new();
        let mut add = |stack: Vec<String>| {
            for length in 1..=stack.len() {
                stacks.insert(stack[..length].to_vec());
            }
        };
        for root in roots {
            for chain in chains {
                add(words(root).chain(words(chain)).collect());
            }
        }
        for chain in handler_chains {
            add(words(chain).collect());
        }
        Self {
            is_own,
            stacks,
            handlers,
        }
    }

    fn is_true(&self, stack: &[String]) -> bool {
        let Some(handler) = self.innermost_handler(stack) else {
            // Threads begin in the C library.
            return stack == [OTHERS] || self.stacks.contains(without_end(stack));
        };
        let (interrupted, handling) = stack.split_at(handler);
        // The kernel's frame is code of the C library, which may have been what was interrupted.
        self.stacks.contains(without_end(handling))
            && interrupted.last().is_some_and(|word| word == OTHERS)
            && self.is_true(&interrupted[..interrupted.len() - 1])
    }

    /// Whether the stack is the inner part of one that is true.
    fn is_end_of_true(&self, stack: &[String]) -> bool {
        let is_end = |part: &[String]| self.stacks.iter().any(|stack| stack.ends_with(without_end(part)));
        let Some(handler) = self.innermost_handler(stack) else {
            return is_end(stack);
        };
        let (interrupted, handling) = stack.split_at(handler);
        let (frame, interrupted) = interrupted.split_last().unzip();
        is_end(handling)
            && frame.is_none_or(|word| word == OTHERS)
            && interrupted.is_none_or(|stack| self.is_end_of_true(stack))
    }

    fn innermost_handler(&self, stack: &[String]) -> Option<usize> {
        stack
            .iter()
            .rposition(|word| self.handlers.contains(&word.as_str()))
    }

    /// Judges everything in a picture.
    pub fn judge(&self, picture: &FlamePicture) -> Judged {
        let sampled = picture
            .picture
            .weights
            .iter()
            .filter(|weight| weight.inside_samples > 0);
        let stacks = sampled.map(|weight| {
            let mut sampled = self.stack(picture, weight.node.0);
            sampled.node = weight.node.0;
            sampled.samples = weight.inside_samples;
            sampled.right = if sampled.is_being_signalled() {
                true
            } else if sampled.complete {
                self.is_true(&sampled.words)
            } else {
                self.is_end_of_true(&sampled.words)
            };
            sampled
        });
        Judged {
            stacks: stacks.collect(),
        }
    }

    fn word(&self, frame: &Frame) -> String {
        let Frame { function, module, .. } = frame;
        if module.starts_with('[') && &**module != "[vdso]" {
            return NAMELESS.to_owned();
        }
        if !(self.is_own)(frame) {
            return OTHERS.to_owned();
        }
        let is_nameless = function
            .strip_prefix(&**module)
            .is_some_and(|rest| rest.starts_with('+'));
        if is_nameless {
            NAMELESS.to_owned()
        } else {
            // Compilers keep what they expect to be rare apart, and clone functions for the arguments that they see.
            let clone = [" [clone .", ".constprop.", ".isra.", ".part."];
            let end = clone.iter().filter_map(|mark| function.find(mark)).min();
            function[..end.unwrap_or(function.len())].replace(' ', "_")
        }
    }

    /// A node's stack.
    fn stack(&self, picture: &FlamePicture, node: u32) -> Sampled {
        let mut sampled = Sampled::default();
        let words = &mut sampled.words;
        let mut next = node;
        while let Some(Node {
            parent: NodeId(parent),
            frame: FrameId(frame),
            complete,
        }) = next.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            sampled.complete = complete;
            next = parent;
            let frame = &picture.frames[frame as usize];
            if frame.kernel {
                sampled.kernel.push(frame.function.to_string());
                continue;
            }
            let word = self.word(frame);
            if word != OTHERS || words.last().is_none_or(|last| last != OTHERS) {
                words.push(word);
            }
        }
        words.reverse();
        sampled
    }
}

/// What was sampled, some times.
#[derive(Default)]
pub struct Sampled {
    /// Number in the tree of all stacks.
    node: u32,
    /// Root first.
    pub words: Vec<String>,
    pub complete: bool,
    /// The kernel's functions, innermost first.
    kernel: Vec<String>,
    pub samples: u64,
    /// Whether it can be true.
    right: bool,
}

impl Sampled {
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// Whether the kernel was writing a signal's frame. It then sets the stack pointer and the instruction one after the
    /// other, and between the two they are of different frames.
    fn is_being_signalled(&self) -> bool {
        self.kernel
            .iter()
            .any(|function| function.contains("setup_rt_frame"))
    }

    /// Whether it cannot be true.
    pub fn is_wrong(&self) -> bool {
        !self.right
    }

    /// Whether something of it is not known.
    pub fn is_vague(&self) -> bool {
        !self.complete || self.has(NAMELESS)
    }
}

impl fmt::Display for Sampled {
    /// In one line, with recursions shortened.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.chunk_by(|one, next| one == next);
        let words = words.map(|same| match same.len() {
            1 => same[0].clone(),
            times => format!("{}*{times}", same[0]),
        });
        let words = words.collect::<Vec<_>>().join(" ");
        write!(out, "{words}; in the kernel: {}", self.kernel.join(" "))
    }
}

/// A stack without the frame of other files, or of a linkage table, that may be innermost anywhere; or both: the frame of
/// a signal that came in a linkage table, once its handler has returned.
fn without_end(stack: &[String]) -> &[String] {
    let without = |stack: &'_ [String], word: &str| {
        stack.len() - usize::from(stack.last().is_some_and(|last| last == word))
    };
    let stack = &stack[..without(stack, OTHERS)];
    &stack[..without(stack, NAMELESS)]
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_ascii_whitespace().flat_map(|word| {
        let (name, times) = word.split_once('*').unwrap_or((word, "1"));
        std::iter::repeat_n(name.to_owned(), times.parse().unwrap())
    })
}

/// What became of the samples of a picture.
#[derive(Default)]
pub struct Judged {
    pub stacks: Vec<Sampled>,
}

impl Judged {
    /// What came since an earlier picture of the same tree.
    pub fn since(mut self, earlier: &Self) -> Self {
        let before: HashMap<u32, u64> = earlier
            .stacks
            .iter()
            .map(|sampled| (sampled.node, sampled.samples))
            .collect();
        for sampled in &mut self.stacks {
            sampled.samples -= before.get(&sampled.node).copied().unwrap_or(0);
        }
        self.stacks.retain(|sampled| sampled.samples > 0);
        self
    }

    /// Samples of such stacks.
    pub fn samples(&self, such: impl Fn(&Sampled) -> bool) -> u64 {
        let such = self.stacks.iter().filter(|sampled| such(sampled));
        such.map(|sampled| sampled.samples).sum()
    }

    /// Samples of stacks that have this word.
    pub fn under(&self, word: &str) -> u64 {
        self.samples(|sampled| sampled.has(word))
    }

    /// Samples of stacks that cannot be true.
    pub fn wrong(&self) -> u64 {
        self.samples(Sampled::is_wrong)
    }

    pub fn complete_share(&self) -> f64 {
        self.samples(|sampled| sampled.complete) as f64 / self.samples(|_| true) as f64
    }

    /// Prints the figures, and some of what is not as it should be.
    pub fn print(&self, what: &str) {
        println!(
            "{what}: {} samples, {:.3}% complete, {} wrong",
            self.samples(|_| true),
            100.0 * self.complete_share(),
            self.wrong()
        );
        self.print_such("wrong", Sampled::is_wrong);
        self.print_such("incomplete", |sampled| sampled.right && !sampled.complete);
    }

    /// Prints the most frequent of such stacks.
    pub fn print_such(&self, what: &str, such: impl Fn(&Sampled) -> bool) {
        let mut stacks: Vec<_> = self.stacks.iter().filter(|sampled| such(sampled)).collect();
        stacks.sort_by_key(|sampled| std::cmp::Reverse(sampled.samples));
        for sampled in stacks.into_iter().take(12) {
            println!("  {what} {}: {sampled}", sampled.samples);
        }
    }

    /// None is wrong, and so many are complete.
    pub fn assert(&self, complete_share: f64) {
        assert_eq!(self.wrong(), 0, "samples are wrong");
        let samples = self.samples(|_| true);
        let share = self.complete_share();
        // Where few were taken: within three standard errors.
        let error = (complete_share * (1.0 - complete_share) / samples as f64).sqrt();
        assert!(
            share >= complete_share - 3.0 * error,
            "{share} of {samples} are complete"
        );
    }
}
