//! What `perf script` prints of samples: text that `stackcollapse-perf.pl`, speedscope, the Firefox Profiler and
//! many others read.
//!
//! The format has no grammar; what is written here is what all of those readers take alike. A record is a line of the
//! thread's name and number, a time, a period and an event, then a line for each function, the innermost first, then an
//! empty line.
//!
//! Stacks here are sums, which have no times. Readers weigh records in three ways, and each is to get the same from them:
//!
//! | reader | what weighs a stack | hence |
//! |---|---|---|
//! | `stackcollapse-perf.pl` | the periods of its records | they add up to the stack's weight, exactly |
//! | Firefox Profiler | the number of its records | there is one for each [`SHARES`]th of what all stacks weigh |
//! | speedscope | the time until halfway to the record before and behind | times are set so that this is the period |

use std::{collections::BTreeMap, fmt::Write as _, io};

use crate::{
    profile::{Frame, Label, Profile, Stack},
    text::visible,
};

/// Parts that the weight of all stacks is cut into: readers that count records are off by no more of it, for each stack.
pub const SHARES: u64 = 10_000;

/// Text is handed on in pieces of this size.
const PIECE: usize = 1 << 16;

/// Writes the stacks with the last of their measures, a thread for each set of labels. The text repeats the names of each stack,
/// and may be much larger than they are.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut impl io::Write) -> io::Result<()> {
    let Some((at, measure)) = profile.measures.iter().enumerate().next_back() else {
        return Ok(());
    };
    let mut sets: BTreeMap<&[Label], Vec<Weighed<'_>>> = BTreeMap::new();
    let mut all = 0_u64;
    for stack in &profile.stacks {
        let weight = stack.weights.get(at).copied().unwrap_or(0);
        if weight > 0 && profile.frames_of(stack).next().is_some() {
            sets.entry(&stack.labels)
                .or_default()
                .push(Weighed { weight, stack });
            all = all.saturating_add(weight);
        }
    }
    let (mut text, mut lines) = (String::new(), Lines::of(profile));
    let (share, event) = (all.div_ceil(SHARES).max(1), word(&measure.name, "event"));
    for (number, (labels, stacks)) in sets.into_iter().enumerate() {
        let thread = Thread {
            name: thread_name(&profile.title, labels),
            number: number + 1,
            event: &event,
        };
        thread.write(&mut text, &mut lines, &periods(&stacks, share), out)?;
    }
    // Behind the records: some readers know the format by its first line.
    for comment in std::iter::once(&profile.title).chain(&profile.comments) {
        let _ = writeln!(text, "# {}", visible(comment));
    }
    out.write_all(text.as_bytes())
}

/// A stack and what it weighs.
#[derive(Clone, Copy)]
struct Weighed<'a> {
    weight: u64,
    stack: &'a Stack,
}

/// Cuts stacks into records, the lightest first.
fn periods<'a>(stacks: &[Weighed<'a>], share: u64) -> Vec<Weighed<'a>> {
    let mut records = Vec::with_capacity(stacks.len());
    for &Weighed { weight, stack } in stacks {
        let count = (weight.saturating_add(share / 2) / share).max(1);
        let (each, rest) = (weight / count, weight % count);
        records.extend((0..count).map(|number| Weighed {
            weight: each + u64::from(number < rest),
            stack,
        }));
    }
    records.sort_by_key(|record| record.weight);
    records
}

/// The times of records, in nanoseconds.
///
/// To speedscope a record lasts from halfway to the one before it until halfway to the one behind it, the first from its own
/// time and the last until its own. Hence each next time lies as far behind the end of a record as that end behind the
/// record's own time. That is never back in time where no record is shorter than the one before it.
#[derive(Default)]
struct Clock {
    now_ns: u64,
    /// Where the record before it ends.
    began_ns: u64,
}

impl Clock {
    /// Ends a record of so long, and is at the next.
    const fn pass(&mut self, period_ns: u64) {
        let ends_ns = self.began_ns.saturating_add(period_ns);
        self.now_ns = ends_ns.saturating_add(ends_ns.saturating_sub(self.now_ns));
        self.began_ns = ends_ns;
    }

    /// How much of the last record's length is to be left for one more behind it, so that both have it together.
    const fn left_for_the_last(&self, period_ns: u64) -> u64 {
        period_ns.saturating_sub(self.now_ns.saturating_sub(self.began_ns)) / 2
    }
}

/// Whom records are said to be of.
struct Thread<'a> {
    name: String,
    number: usize,
    event: &'a str,
}

impl Thread<'_> {
    fn write(
        &self,
        text: &mut String,
        lines: &mut Lines<'_>,
        records: &[Weighed<'_>],
        out: &mut impl io::Write,
    ) -> io::Result<()> {
        let mut clock = Clock::default();
        for (number, &Weighed { weight, stack }) in records.iter().enumerate() {
            let left = if number + 1 == records.len() {
                clock.left_for_the_last(weight)
            } else {
                0
            };
            for period in [weight - left, left] {
                if period > 0 {
                    self.record(text, lines, clock.now_ns, period, stack);
                    clock.pass(period);
                }
            }
            if text.len() >= PIECE {
                out.write_all(text.as_bytes())?;
                text.clear();
            }
        }
        Ok(())
    }

    fn record(&self, text: &mut String, lines: &mut Lines<'_>, now_ns: u64, period: u64, stack: &Stack) {
        let Self { name, number, event } = self;
        let (seconds, ns) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
        let _ = writeln!(
            text,
            "{name} {number:>5} {seconds}.{ns:09}: {period:>10} {event}: "
        );
        for number in stack.frames.iter().rev() {
            lines.push(text, *number);
        }
        text.push('\n');
    }
}

/// The lines of functions, each made once.
struct Lines<'a> {
    profile: &'a Profile,
    /// By number of the frame; empty where it is not made yet.
    made: Vec<Box<str>>,
}

impl<'a> Lines<'a> {
    fn of(profile: &'a Profile) -> Self {
        let made = vec![Box::default(); profile.frames.len()];
        Self { profile, made }
    }

    /// Writes the line of a frame, if there is one of that number.
    fn push(&mut self, text: &mut String, number: u32) {
        let at = number as usize;
        let (Some(line), Some(frame)) = (self.made.get_mut(at), self.profile.frames.get(at)) else {
            return;
        };
        if line.is_empty() {
            let (address, name) = (frame.address, symbol(&frame.name));
            *line = format!("\t{address:>16x} {name} ({})\n", module(frame)).into();
        }
        text.push_str(line);
    }
}

/// What tells a thread's stacks from others; else what was profiled.
fn thread_name(title: &str, labels: &[Label]) -> String {
    let values: Vec<&str> = labels.iter().map(|label| label.value.as_str()).collect();
    let name = if values.is_empty() {
        word(title, "all")
    } else {
        word(&values.join(","), "all")
    };
    match name.as_str() {
        // A comment to readers.
        text if text.starts_with('#') => format!("_{text}"),
        // They take two characters at least.
        text if text.chars().nth(1).is_none() => format!("{text}_"),
        _ => name,
    }
}

/// A function's name such that readers show all of it.
fn symbol(name: &str) -> String {
    let mut text = visible(name.trim()).into_owned();
    if text.starts_with('(') {
        text = braced(&text);
    }
    if text.is_empty() {
        text.push_str("[unknown]");
    }
    // An offset is cut off by readers: they are given one to cut off.
    if ends_in_offset(&text) {
        text.push_str("+0x0");
    }
    text
}

/// A name that begins with parentheses, in braces instead: readers take `(anonymous namespace)::f` for no function.
fn braced(name: &str) -> String {
    let mut depth = 0_usize;
    let closing = name.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    match closing {
        Some((at, _)) => format!("{{{}}}{}", &name[1..at], &name[at + 1..]),
        None => format!("{{{}", &name[1..]),
    }
}

fn ends_in_offset(name: &str) -> bool {
    let offset = name.rsplit_once("+0x").map_or("", |(_, digits)| digits);
    !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The file of a function's code, in perf's words.
fn module(frame: &Frame) -> String {
    if frame.inlined {
        return "inlined".to_owned();
    }
    match frame.module.as_str() {
        "[kernel]" => "[kernel.kallsyms]".to_owned(),
        module => word(module, "[unknown]").replace(['(', ')'], "_"),
    }
}

/// Text without a space in it, which is where readers cut.
fn word(text: &str, otherwise: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return otherwise.to_owned();
    }
    visible(text).replace(char::is_whitespace, "_")
}
