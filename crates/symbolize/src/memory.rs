//! Where data lies that no variable's name is known of: on a thread's stack, on the heap, in what is mapped by name.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
};

use profiler_target::{MAPPINGS_MAX, Mapping};

use super::frame::FrameId;

/// Most processes whose regions are kept; then they are all read anew.
const PROCESSES_MAX: usize = 64;
/// Regions older than this are read again, in ns.
const AGE_MAX_NS: u64 = 1_000_000_000;
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
    /// Whose stacks regions are, by where these begin; once it is asked for.
    stacks: Option<HashMap<u64, u32>>,
    /// Those that were known before: a thread that runs does not say where its stack is.
    stacks_before: HashMap<u64, u32>,
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
            match read(pid) {
                Ok(regions) if !regions.is_empty() => space.renew(regions),
                // It has ended: what was known serves its last waits.
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, pid, "memory not read"),
            }
        }
        space.around(pid, address)
    }
}

impl Space {
    fn renew(&mut self, regions: Vec<Region>) {
        let before = self.stacks.take().unwrap_or_default();
        let stays = |start: &u64| {
            let at = |regions: &[Region]| regions.iter().find(|region| region.start == *start).cloned();
            at(&regions).is_some_and(|now| at(&self.regions) == Some(now))
        };
        self.stacks_before = before.into_iter().filter(|(start, _)| stays(start)).collect();
        self.regions = regions;
    }

    fn around(&mut self, pid: u32, address: u64) -> Option<Memory> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = self.regions.get(after.checked_sub(1)?)?;
        if address >= region.end {
            return None;
        }
        match &region.kind {
            Kind::FirstStack => Some(Memory::StackOf(pid)),
            Kind::Named(name) => Some(Memory::Named(name.clone())),
            Kind::Guarded => {
                let (regions, before) = (&self.regions, &self.stacks_before);
                let stacks = self.stacks.get_or_insert_with(|| stacks_of(pid, regions, before));
                stacks.get(&region.start).copied().map(Memory::StackOf)
            }
        }
    }
}

/// Whose stacks regions are, by where these begin.
fn stacks_of(pid: u32, regions: &[Region], before: &HashMap<u64, u32>) -> HashMap<u64, u32> {
    let lives = |tid: u32| fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false);
    let mut stacks = before.clone();
    stacks.retain(|_, tid| lives(*tid));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    for thread in threads.flatten().take(THREADS_MAX) {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        let tid = thread.file_name().to_str().and_then(|tid| tid.parse().ok());
        if let (Some(tid), Some(pointer)) = (tid, stack_pointer(&call)) {
            let after = regions.partition_point(|region| region.start <= pointer);
            let region = after.checked_sub(1).and_then(|at| regions.get(at));
            if let Some(region) = region.filter(|region| pointer < region.end) {
                stacks.insert(region.start, tid);
            }
        }
    }
    stacks
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
            stacks: Some(HashMap::from([(0x7f3c_2c00_1000, 12)])),
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
            assert_eq!(space.around(7, address), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_stack_is_remembered_while_it_is_the_same() {
        let mut space = space();
        let same = space.regions.clone();
        space.renew(same);
        assert_eq!(space.stacks_before, HashMap::from([(0x7f3c_2c00_1000, 12)]));
        let mut space = self::space();
        let mut other = space.regions.clone();
        other[1].end += 0x1000;
        space.renew(other);
        assert!(space.stacks_before.is_empty());
    }

    #[test]
    fn a_stack_pointer_is_said_of_threads_that_wait() {
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
