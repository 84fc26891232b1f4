//! Which stacks of a fixture can be true, and how many of those sampled were.
//!
//! A stack is a list of words, root first: a function of the fixture or its libraries by its name, `?` for code of theirs
//! that has none (linkage tables), and `-` for any number of frames of other files.

use std::collections::{BTreeMap, HashSet};

use profiler_daemon::session::FlamePicture;

/// Frames of other files.
const OTHERS: &str = "-";
/// Code of the fixture without a name.
const NAMELESS: &str = "?";

/// The stacks of a fixture that can be true.
pub struct Truth {
    /// Files that make up the fixture begin with one of these.
    files: &'static [&'static str],
    /// Every stack without signals, from a root to any function.
    stacks: HashSet<Vec<String>>,
    /// Functions that signals call anywhere.
    handlers: &'static [&'static str],
}

impl Truth {
    /// Of everything that can be below each of the roots, and of handlers with what is below them: names separated by
    /// spaces, `name*3` for a recursion.
    pub fn new(
        files: &'static [&'static str],
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
            files,
            stacks,
            handlers,
        }
    }

    fn is_true(&self, stack: &[String]) -> bool {
        let Some(handler) = self.innermost_handler(stack) else {
            return self.stacks.contains(without_end(stack));
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
        let mut judged = Judged::default();
        for weight in &picture.picture.weights {
            let samples = weight.inside_samples;
            if samples == 0 {
                continue;
            }
            let Sampled {
                stack,
                complete,
                kernel,
            } = self.stack(picture, weight.node.0);
            let shown = || format!("{}; in the kernel: {}", show(&stack), kernel.join(" "));
            let right = if complete {
                judged.complete += samples;
                self.is_true(&stack)
            } else {
                *judged.incomplete.entry(shown()).or_default() += samples;
                self.is_end_of_true(&stack)
            };
            judged.samples += samples;
            if !right {
                *judged.wrong.entry(shown()).or_default() += samples;
            }
            for name in stack.iter().collect::<HashSet<_>>() {
                *judged.under.entry(name.clone()).or_default() += samples;
            }
        }
        judged
    }

    /// A node's stack in words.
    fn stack(&self, picture: &FlamePicture, node: u32) -> Sampled {
        let mut stack: Vec<String> = Vec::new();
        let mut kernel = Vec::new();
        let mut complete = false;
        let mut next = node;
        while let Some((parent, frame, is_complete)) =
            next.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            complete = is_complete;
            next = parent;
            let frame = &picture.frames[frame as usize];
            if frame.kernel {
                kernel.push(frame.function.to_string());
                continue;
            }
            let own = self.files.iter().any(|file| frame.module.starts_with(file));
            let word = match (own, frame.function.contains('+')) {
                (false, _) => OTHERS,
                (true, true) => NAMELESS,
                (true, false) => &frame.function,
            };
            if word != OTHERS || stack.last().is_none_or(|last| last != OTHERS) {
                stack.push(word.to_owned());
            }
        }
        stack.reverse();
        Sampled {
            stack,
            complete,
            kernel,
        }
    }
}

/// What was sampled.
struct Sampled {
    stack: Vec<String>,
    complete: bool,
    /// The kernel's functions, innermost first.
    kernel: Vec<String>,
}

/// A stack without the frame of other files, or of a linkage table, that may be innermost anywhere.
fn without_end(stack: &[String]) -> &[String] {
    match stack.split_last() {
        Some((last, rest)) if last == OTHERS || last == NAMELESS => rest,
        _ => stack,
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_ascii_whitespace().flat_map(|word| {
        let (name, times) = word.split_once('*').unwrap_or((word, "1"));
        std::iter::repeat_n(name.to_owned(), times.parse().unwrap())
    })
}

/// A stack in one line, its recursions shortened.
fn show(stack: &[String]) -> String {
    stack
        .chunk_by(|one, next| one == next)
        .map(|same| match same.len() {
            1 => same[0].clone(),
            times => format!("{}*{times}", same[0]),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// What became of the samples of a picture.
#[derive(Default)]
pub struct Judged {
    pub samples: u64,
    pub complete: u64,
    /// Samples by word, each counted once a stack.
    pub under: BTreeMap<String, u64>,
    /// By stack: not complete, and not true.
    pub incomplete: BTreeMap<String, u64>,
    pub wrong: BTreeMap<String, u64>,
}

impl Judged {
    pub fn complete_share(&self) -> f64 {
        self.complete as f64 / self.samples as f64
    }

    /// Samples of stacks that have this word.
    pub fn under(&self, word: &str) -> u64 {
        self.under.get(word).copied().unwrap_or(0)
    }

    /// Prints the figures, and some of what is not as it should be.
    pub fn print(&self, what: &str) {
        let wrong: u64 = self.wrong.values().sum();
        println!(
            "{what}: {} samples, {:.3}% complete, {wrong} wrong",
            self.samples,
            100.0 * self.complete_share()
        );
        for (kind, stacks) in [("incomplete", &self.incomplete), ("wrong", &self.wrong)] {
            let mut stacks: Vec<_> = stacks.iter().collect();
            stacks.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
            for (stack, samples) in stacks.into_iter().take(12) {
                println!("  {kind} {samples}: {stack}");
            }
        }
    }

    /// None is wrong, and so many are complete.
    pub fn assert(&self, complete_share: f64) {
        assert!(self.wrong.is_empty(), "{} stacks are wrong", self.wrong.len());
        let share = self.complete_share();
        assert!(share >= complete_share, "{share} are complete");
    }
}
