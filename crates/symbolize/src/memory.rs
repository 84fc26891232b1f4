//! Describes addresses of data without a variable's name: on a thread's stack, on the heap, or in a named mapping.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
};

use profiler_target::{MAPPINGS_MAX, Mapping, read_of_process};

use super::frame::FrameId;

/// Most processes whose regions are kept; then they are all read anew.
const PROCESSES_MAX: usize = 64;
/// Regions older than this are read again, in ns.
const AGE_MAX_NS: u64 = 1_000_000_000;
/// Time until threads are asked again for a stack that none of them said to be its own, in ns; twice as long each time after.
const ASK_AGAIN_NS: u64 = 10_000_000;
/// Threads of a process whose stacks are looked for.
const THREADS_MAX: usize = 256;

/// What memory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// The stack of this thread.
    StackOf(u32),
    /// What is mapped by this name.
    Named(String),
}

/// The memory that data lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedMemory {
    /// What stands for it.
    pub name: FrameId,
    /// It is a thread's stack.
    pub is_stack: bool,
}

/// What a region of a process's memory may be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// A stack of the process's first thread.
    FirstStack,
    /// Without a name, and with memory below that nobody may touch: as the C library makes stacks of threads.
    Guarded,
    /// Mapped by this name.
    Named(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Region {
    start: u64,
    end: u64,
    kind: Kind,
}

/// The memory of a process, as last read.
#[derive(Default)]
struct Space {
    read_at_ns: u64,
    /// By address.
    regions: Vec<Region>,
    /// Whose stacks regions are, by where these begin, as far as it was asked for.
    stacks: HashMap<u64, u32>,
    /// When threads may be asked for it.
    ask: Ask,
}

/// When threads are asked for their stacks: one that runs does not say where its stack is, and is asked again.
#[derive(Default)]
struct Ask {
    next_ns: u64,
    pause_ns: u64,
}

impl Ask {
    /// Whether they were asked already.
    fn is_done(&self) -> bool {
        self.next_ns > 0
    }

    /// Whether they are asked now.
    fn is_due(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        self.pause_ns = self.pause_ns.saturating_mul(2).clamp(ASK_AGAIN_NS, AGE_MAX_NS);
        self.next_ns = now_ns.saturating_add(self.pause_ns);
        true
    }
}

/// The memory of processes.
#[derive(Default)]
pub(super) struct Memories {
    spaces: HashMap<u32, Space>,
}

impl Memories {
    /// What lies around an address; `None` where that is not known.
    pub fn around(&mut self, pid: u32, address: u64, now_ns: u64) -> Option<Memory> {
        if self.spaces.len() >= PROCESSES_MAX && !self.spaces.contains_key(&pid) {
            self.spaces.clear();
        }
        let space = self.spaces.entry(pid).or_default();
        if space.read_at_ns == 0 || now_ns.saturating_sub(space.read_at_ns) >= AGE_MAX_NS {
            space.read_at_ns = now_ns.max(1);
            match read_of_process(pid, move || read(pid)) {
                Ok(regions) if !regions.is_empty() => space.renew(regions),
                // It has ended: what was known serves its last waits.
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, pid, "memory not read"),
            }
        }
        space.around(pid, address, now_ns)
    }
}

impl Space {
    fn renew(&mut self, regions: Vec<Region>) {
        let stays = |start: &u64| {
            let at = |regions: &[Region]| regions.iter().find(|region| region.start == *start).cloned();
            at(&regions).is_some_and(|now| at(&self.regions) == Some(now))
        };
        self.stacks.retain(|start, _| stays(start));
        self.regions = regions;
        self.ask = Ask::default();
    }

    fn around(&mut self, pid: u32, address: u64, now_ns: u64) -> Option<Memory> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = self.regions.get(after.checked_sub(1)?)?;
        if address >= region.end {
            return None;
        }
        match &region.kind {
            Kind::FirstStack => Some(Memory::StackOf(pid)),
            Kind::Named(name) => Some(Memory::Named(name.clone())),
            Kind::Guarded => {
                let start = region.start;
                let is_known = self.ask.is_done() && self.stacks.contains_key(&start);
                if !is_known && self.ask.is_due(now_ns) {
                    ask_for_stacks(pid, &self.regions, &mut self.stacks);
                }
                self.stacks.get(&start).copied().map(Memory::StackOf)
            }
        }
    }
}

/// Asks threads which regions are their stacks.
fn ask_for_stacks(pid: u32, regions: &[Region], stacks: &mut HashMap<u64, u32>) {
    let lives = |tid: u32| fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false);
    stacks.retain(|_, tid| lives(*tid));
    let pointers = read_of_process(pid, move || stack_pointers(pid)).unwrap_or_default();
    for Top { tid, pointer } in pointers {
        let after = regions.partition_point(|region| region.start <= pointer);
        let region = after.checked_sub(1).and_then(|at| regions.get(at));
        if let Some(region) = region.filter(|region| pointer < region.end) {
            stacks.insert(region.start, tid);
        }
    }
}

/// Where the stack of a thread ends that waits.
struct Top {
    tid: u32,
    pointer: u64,
}

/// Those of the first threads of a process.
fn stack_pointers(pid: u32) -> io::Result<Vec<Top>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    let top = |thread: fs::DirEntry| {
        let call = fs::read_to_string(thread.path().join("syscall")).ok()?;
        let tid = thread.file_name().to_str()?.parse().ok()?;
        let pointer = stack_pointer(&call)?;
        Some(Top { tid, pointer })
    };
    Ok(threads.flatten().take(THREADS_MAX).filter_map(top).collect())
}

/// A thread's stack pointer, by `/proc/PID/task/TID/syscall`: the word before the last. None of one that runs.
fn stack_pointer(call: &str) -> Option<u64> {
    let pointer = call.split_whitespace().rev().nth(1)?;
    u64::from_str_radix(pointer.strip_prefix("0x")?, 16).ok()
}

/// The regions of a process that may be told, by address.
fn read(pid: u32) -> io::Result<Vec<Region>> {
    let lines = BufReader::with_capacity(1 << 16, File::open(format!("/proc/{pid}/maps"))?);
    let lines = lines.split(b'\n').take(MAPPINGS_MAX);
    // The process may end between two lines.
    Ok(regions(lines.map_while(Result::ok)))
}

fn regions(lines: impl Iterator<Item = Vec<u8>>) -> Vec<Region> {
    let mut regions = Vec::new();
    // Where what nobody may touch ends.
    let mut guard_end = 0;
    for line in lines {
        let Ok(mapping) = Mapping::parse(&line) else {
            continue;
        };
        let permissions = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        if permissions.starts_with(b"---") {
            guard_end = mapping.end;
            continue;
        }
        let kind = match (mapping.path.as_os_str().to_str(), mapping.path.file_name()) {
            (Some("[stack]"), _) => Kind::FirstStack,
            (Some(""), _) if guard_end == mapping.start => Kind::Guarded,
            (_, Some(name)) => Kind::Named(name.to_string_lossy().into_owned()),
            _ => continue,
        };
        regions.push(Region {
            start: mapping.start,
            end: mapping.end,
            kind,
        });
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0a2b000-55d0c0a4c000 rw-p 00000000 00:00 0                          [heap]
7f3c2c000000-7f3c2c001000 ---p 00000000 00:00 0 
7f3c2c001000-7f3c2c801000 rw-p 00000000 00:00 0 
7f3c2c801000-7f3c2c802000 rw-p 00000000 00:00 0 
7f3c2d000000-7f3c2d001000 rw-s 00000000 00:01 1027                       /dev/shm/till (deleted)
7ffc51000000-7ffc51021000 rw-p 00000000 00:00 0                          [stack]
";

    fn space() -> Space {
        Space {
            regions: regions(MAPS.lines().map(|line| line.as_bytes().to_vec())),
            stacks: HashMap::from([(0x7f3c_2c00_1000, 12)]),
            ask: Ask {
                next_ns: 1,
                pause_ns: 1,
            },
            ..Space::default()
        }
    }

    #[test]
    fn memory_is_told_by_what_is_mapped() {
        let mut space = space();
        let named = |name: &str| Some(Memory::Named(name.to_owned()));
        for (address, expected) in [
            (0x55d0_c0a2_b010, named("[heap]")),
            (0x55d0_c0a4_c000, None),
            // A guard, the stack above it, and memory of which nothing is known.
            (0x7f3c_2c00_0010, None),
            (0x7f3c_2c80_0010, Some(Memory::StackOf(12))),
            (0x7f3c_2c80_1010, None),
            (0x7f3c_2d00_0010, named("till")),
            (0x7ffc_5100_0010, Some(Memory::StackOf(7))),
            (0x10, None),
        ] {
            assert_eq!(space.around(7, address, 0), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_stack_is_remembered_while_it_is_the_same() {
        let mut space = space();
        let same = space.regions.clone();
        space.renew(same);
        assert_eq!(space.stacks, HashMap::from([(0x7f3c_2c00_1000, 12)]));
        assert!(!space.ask.is_done(), "another thread may have it by now");
        let mut space = self::space();
        let mut other = space.regions.clone();
        other[1].end += 0x1000;
        space.renew(other);
        assert!(space.stacks.is_empty());
    }

    #[test]
    fn threads_that_did_not_say_their_stacks_are_asked_again_less_and_less_often() {
        let mut ask = Ask::default();
        assert!(!ask.is_done());
        let asked: Vec<u64> = (5_000..5_200)
            .filter(|now_ms| ask.is_due(now_ms * 1_000_000))
            .collect();
        assert_eq!(asked, [5_000, 5_010, 5_030, 5_070, 5_150]);
        assert!(ask.is_done());
    }

    #[test]
    fn reads_the_stack_pointer_of_waiting_threads() {
        let waits = "202 0x7ffe 0x80 0x2 0x0 0x0 0x0 0x7ffc51000aa0 0x7f3c2d0aa\n";
        assert_eq!(stack_pointer(waits), Some(0x7ffc_5100_0aa0));
        assert_eq!(
            stack_pointer("-1 0x7ffc51000aa0 0x7f3c2d0aa\n"),
            Some(0x7ffc_5100_0aa0)
        );
        for other in ["running\n", "", "x y"] {
            assert_eq!(stack_pointer(other), None);
        }
    }
}
