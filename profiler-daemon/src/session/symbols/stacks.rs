//! From the addresses of a stack to its frames, in each grouping that is looked at.

use profiler_aggregate::ThreadId;
use profiler_common::record::SampleHeader;
use profiler_symbolize::{FrameId, Grouping, Groupings, Stacks, Symbolizer, Word};

use super::super::remembered::Remembered;
use crate::kernel::{Activity, UserStack};

/// A stack as far as it has been named, innermost first.
#[derive(Default)]
pub(super) struct Walked {
    pub(super) functions: Vec<FrameId>,
    /// The same with the lines that ran, where they are asked for.
    lines: Option<Vec<FrameId>>,
    /// The address that was named last, of user space.
    outermost: Option<u64>,
}

/// How many frames a stack has; one function that others are inlined into has several.
struct Length {
    functions: usize,
    lines: usize,
}

impl Walked {
    /// Names an address; says whether anything is mapped there.
    fn add(&mut self, symbolizer: &mut Symbolizer, tgid: u32, address: u64, now_ns: u64) -> bool {
        let known = self.functions.len();
        symbolizer.resolve_user(tgid, address, now_ns, &mut self.functions);
        if let Some(lines) = &mut self.lines {
            symbolizer.resolve_user_lines(tgid, address, now_ns, lines);
        }
        self.outermost = Some(address);
        !self.functions[known..]
            .iter()
            .any(|frame| symbolizer.is_unmapped(*frame))
    }

    /// Names the addresses of a stack that was walked by tables; the stack's flags, less what turns out not to be so.
    fn add_all(&mut self, symbolizer: &mut Symbolizer, tgid: u32, stack: &UserStack, now_ns: u64) -> u16 {
        for (depth, address) in stack.addresses.iter().enumerate() {
            let returns = u64::from(address & SampleHeader::INTERRUPTED == 0);
            let address = (address & SampleHeader::ADDRESS).saturating_sub(returns);
            let (before, outermost) = (self.length(), self.outermost);
            // Nothing calls from where nothing is mapped: a guess by frame pointer, or by a table of what was here before,
            // has gone astray.
            if !self.add(symbolizer, tgid, address, now_ns) && depth > 0 {
                self.truncate(before);
                self.outermost = outermost;
                return stack.flags & !SampleHeader::USER_COMPLETE;
            }
        }
        stack.flags
    }

    /// Whether it reaches a known root, or the one call of a thread's first function.
    fn is_complete(&self, symbolizer: &mut Symbolizer, tgid: u32, flags: u16, now_ns: u64) -> bool {
        let cut = flags & (SampleHeader::USER_TRUNCATED | SampleHeader::USER_MISSING) != 0;
        if cut || flags & SampleHeader::USER_COMPLETE != 0 {
            return !cut;
        }
        let is_root = self
            .functions
            .last()
            .is_some_and(|outermost| symbolizer.is_root(*outermost));
        is_root
            || self
                .outermost
                .is_some_and(|address| symbolizer.ends_behind(tgid, address, now_ns))
    }

    fn length(&self) -> Length {
        Length {
            functions: self.functions.len(),
            lines: self.lines.as_ref().map_or(0, Vec::len),
        }
    }

    fn truncate(&mut self, Length { functions, lines }: Length) {
        self.functions.truncate(functions);
        if let Some(known) = &mut self.lines {
            known.truncate(lines);
        }
    }
}

/// A stack as it was taken.
pub(super) struct Taken<'a> {
    pub(super) thread: ThreadId,
    pub(super) kernel: &'a [u64],
    pub(super) user: &'a UserStack,
    /// What the thread did there.
    pub(super) activity: Activity,
}

/// Names a stack, unless it was named before; says whether it is complete.
pub(super) fn name_taken(
    symbolizer: &mut Symbolizer,
    remembered: &mut Remembered,
    stack: &Taken<'_>,
    groupings: Groupings,
    now_ns: u64,
) -> (Stacks, bool) {
    let Taken {
        thread,
        kernel,
        user,
        activity,
    } = *stack;
    let tgid = thread.tgid;
    remembered.turn_to(groupings, (tgid, activity), user.flags, kernel, &user.addresses);
    let (generation, fleeting) = (symbolizer.generation(tgid, now_ns), symbolizer.fleeting());
    if let Some(known) = remembered.get(generation) {
        return known;
    }
    let kernel = match activity {
        Activity::OnCpu => kernel,
        _ => outside_scheduler(symbolizer, kernel),
    };
    let frames = name_stack(symbolizer, tgid, kernel, user.clone(), groupings, now_ns);
    let stacks = frames.group(symbolizer, groupings, thread, Did::ended(activity), now_ns);
    // Threads and processes can be given other names.
    let is_lasting = fleeting == symbolizer.fleeting()
        && generation == symbolizer.generation(tgid, now_ns)
        && ![Grouping::Thread, Grouping::Process]
            .into_iter()
            .any(|grouping| groupings.contain(grouping));
    if is_lasting {
        remembered.keep(generation, &stacks, frames.complete);
    }
    (stacks, frames.complete)
}

/// A kernel's stack without what the scheduler does once it has been asked for another thread, our own programs among it.
pub(super) fn outside_scheduler<'a>(symbolizer: &mut Symbolizer, kernel: &'a [u64]) -> &'a [u64] {
    let mut frames = Vec::new();
    for (depth, address) in kernel.iter().take(MAX_IN_SCHEDULER).enumerate() {
        frames.clear();
        symbolizer.resolve_kernel(call_site(*address, depth), &mut frames);
        let function = frames
            .last()
            .and_then(|frame| symbolizer.frames().get(frame.0 as usize));
        if function.is_some_and(|frame| &*frame.function == "__schedule") {
            return kernel.get(depth + 1..).unwrap_or_default();
        }
    }
    kernel
}

/// Frames between the scheduler's own function and the innermost, at most.
const MAX_IN_SCHEDULER: usize = 8;

/// What a thread did at a stack.
#[derive(Clone, Copy)]
pub(super) struct Did {
    pub(super) activity: Activity,
    /// It still does.
    pub(super) goes_on: bool,
}

impl Did {
    /// It does something else by now.
    pub(super) fn ended(activity: Activity) -> Self {
        Self {
            activity,
            goes_on: false,
        }
    }
}

/// A stack whose addresses have names, root first.
pub(super) struct NamedFrames {
    pub(super) functions: Vec<FrameId>,
    /// The same with the lines that ran, where they are asked for.
    pub(super) lines: Vec<FrameId>,
    /// Whether it reaches a known root.
    pub(super) complete: bool,
}

impl NamedFrames {
    /// In the place of one that was not taken.
    pub(super) fn not_taken(groupings: Groupings) -> Self {
        let functions = vec![Word::StackNotTaken.frame()];
        Self {
            lines: if groupings.contain(Grouping::Line) {
                functions.clone()
            } else {
                Vec::new()
            },
            functions,
            complete: false,
        }
    }

    /// In each grouping, with what the thread did innermost, unless it ran; and whether it still does.
    pub(super) fn group(
        &self,
        symbolizer: &mut Symbolizer,
        groupings: Groupings,
        ThreadId { tgid, tid }: ThreadId,
        Did { activity, goes_on }: Did,
        now_ns: u64,
    ) -> Stacks {
        let words = [off_cpu_word(activity), goes_on.then_some(Word::GoesOn)];
        let innermost: Vec<FrameId> = words.into_iter().flatten().map(Word::frame).collect();
        Stacks::make(groupings, |grouping| {
            let mut frames = match grouping {
                Grouping::Function => self.functions.clone(),
                Grouping::Line => self.lines.clone(),
                Grouping::Module => symbolizer.fold_by_module(&self.functions),
                Grouping::Thread => [&[symbolizer.thread(tgid, tid, now_ns)], &*self.functions].concat(),
                Grouping::Process => [&[symbolizer.process(tgid, now_ns)], &*self.functions].concat(),
            };
            frames.extend(&innermost);
            frames
        })
    }
}

/// What a thread does that does not run, in a word.
fn off_cpu_word(activity: Activity) -> Option<Word> {
    match activity {
        Activity::OnCpu => None,
        Activity::Sleeping => Some(Word::Sleeping),
        Activity::Uninterruptible => Some(Word::Uninterruptible),
        Activity::Stopped => Some(Word::Stopped),
        Activity::Runnable => Some(Word::Runnable),
    }
}

/// Names the addresses of a sample.
pub(super) fn name_stack(
    symbolizer: &mut Symbolizer,
    tgid: u32,
    kernel: &[u64],
    mut user: UserStack,
    groupings: Groupings,
    now_ns: u64,
) -> NamedFrames {
    let mut walked = Walked::default();
    for (depth, address) in kernel.iter().enumerate() {
        symbolizer.resolve_kernel(call_site(*address, depth), &mut walked.functions);
    }
    // The kernel's lines are not known.
    walked.lines = groupings
        .contain(Grouping::Line)
        .then(|| walked.functions.clone());
    if user.flags & SampleHeader::USER_BY_KERNEL == 0 {
        user.flags = walked.add_all(symbolizer, tgid, &user, now_ns);
    } else {
        let functions = walked
            .functions
            .iter()
            .filter_map(|frame| symbolizer.frames().get(frame.0 as usize));
        let in_breakpoint = is_behind_breakpoint(functions.map(|frame| &*frame.function));
        for (depth, address) in user.addresses.iter().enumerate() {
            let depth = depth + usize::from(in_breakpoint);
            walked.add(symbolizer, tgid, call_site(*address, depth), now_ns);
        }
    }
    let complete = walked.is_complete(symbolizer, tgid, user.flags, now_ns);
    let Walked {
        mut functions, lines, ..
    } = walked;
    let mut lines = lines.unwrap_or_default();
    functions.reverse();
    lines.reverse();
    NamedFrames {
        functions,
        lines,
        complete,
    }
}

/// Whether the thread's address is that behind a probe's breakpoint, which may be in another function: so it is
/// until the kernel has found out whose breakpoint it is and set the address back, before it runs the programs.
/// The kernel's functions are given from the innermost one.
fn is_behind_breakpoint<'a>(kernel: impl Iterator<Item = &'a str>) -> bool {
    let mut entry = None;
    for function in kernel {
        if SET_BACK.contains(&function) {
            return false;
        }
        entry = Some(function);
    }
    entry == Some("asm_exc_int3")
}

/// What the kernel calls once it has set the address back; which of them are inlined differs between kernels.
const SET_BACK: [&str; 6] = [
    "handler_chain",
    "uprobe_dispatcher",
    "uprobe_multi_link_handler",
    "prepare_uretprobe",
    "arch_uretprobe_hijack_return_addr",
    "arch_uprobe_skip_sstep",
];

/// Frames outside the innermost are return addresses: the call is the instruction before.
pub(super) fn call_site(address: u64, depth: usize) -> u64 {
    if depth == 0 {
        address
    } else {
        address.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_behind_a_breakpoint_until_it_is_set_back() {
        let behind = |kernel: &[&str]| is_behind_breakpoint(kernel.iter().copied());
        let begun = [
            "find_active_uprobe_rcu",
            "uprobe_notify_resume",
            "irqentry_exit_to_user_mode",
            "asm_exc_int3",
        ];
        assert!(behind(&begun));
        let runs = [
            "bpf_prog_run",
            "handler_chain",
            "uprobe_notify_resume",
            "irqentry_exit_to_user_mode",
            "asm_exc_int3",
        ];
        assert!(!behind(&runs));
        assert!(!behind(&["__schedule", "asm_sysvec_apic_timer_interrupt"]));
        assert!(!behind(&[]));
    }
}
