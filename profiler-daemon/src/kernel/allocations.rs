//! Who allocated a target's memory, while somebody asks: probes at its allocator, and what they keep.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::fd::AsFd as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Ebpf,
    maps::{self, MapData},
};
use profiler_common::{
    allocation::{ALLOCATION_FRAMES, Allocation, AllocationKey, AllocationSite, AllocatorCounts},
    limits::MAX_ALLOCATIONS,
};

use super::{
    Engine, KernelError,
    attach::{Links, Site},
    leaving::Held,
};

/// Addresses at which allocators' memory begins are multiples of this.
const ALIGNMENT: u64 = 16;

/// Those of the smallest pieces, of allocators that waste less.
const LEAST_ALIGNMENT: u64 = 8;

/// How far before an address it is looked for where its memory begins.
pub const MAX_OFFSET: u64 = 1 << 16;

/// Words of a key and a value, as the programs write them.
type Key = [u64; size_of::<AllocationKey>() / 8];
type Value = [u64; size_of::<Allocation>() / 8];

/// Words of the counts, in the order of [`AllocatorCounts`], whose offsets are asserted.
const WORDS_OF_COUNTS: usize = size_of::<AllocatorCounts>() / 8;

/// A function of an allocator to be probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocatorSpec {
    /// File offset of its entry.
    pub offset: u64,
    /// Which of its parameters say what, as of [`AllocationSite::new`].
    pub parameters: [u8; 4],
}

/// A piece of memory that was allocated while it was looked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocated {
    /// Where it begins.
    pub address: u64,
    /// Bytes that were asked for.
    pub size_bytes: u64,
    /// Return addresses, innermost first: the first is where the allocator was called.
    pub stack: Vec<u64>,
}

/// What is known of who allocated memory, for any thread.
#[derive(Clone)]
pub struct Allocations(Arc<Known>);

struct Known {
    map: maps::HashMap<MapData, Key, Value>,
    /// The watches, by process.
    watches: Mutex<HashMap<u32, Watched>>,
}

/// What is known of a watch.
#[derive(Clone, Copy)]
struct Watched {
    number: u32,
    /// Where the process's stack began, which is elsewhere when it runs a program anew.
    stack_begin: Option<u64>,
}

/// Somebody who asks who allocates memory in a process, until [`Engine::end_allocations`] takes this back.
pub struct AllocationWatch {
    pid: u32,
}

impl AllocationWatch {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// Probes at the allocator of a process. All who ask have them in common: what one call of the allocator asks for is kept once.
pub(super) struct WatchedAllocator {
    links: Vec<Links>,
    askers: usize,
}

const MAP: &str = "ALLOCATIONS";
const COUNTS: &str = "ALLOCATOR_COUNTS";
const ENTRY: &str = "allocation_entry";
pub(super) const RETURN: &str = "allocation_return";

impl Allocations {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        Ok(Self(Arc::new(Known {
            map: second_handle(ebpf)?,
            watches: Mutex::default(),
        })))
    }

    /// Whether somebody asks for a process's.
    #[must_use]
    pub fn is_watched(&self, pid: u32) -> bool {
        self.watches().contains_key(&pid)
    }

    /// The piece of memory that an address of a process lies in; `None` where that was allocated before anybody looked, is
    /// free again, or begins more than 64 KiB before it. With it, how many addresses were looked up.
    #[must_use]
    pub fn around(&self, pid: u32, address: u64) -> (Option<Allocated>, u32) {
        let Some(watched) = self.watches().get(&pid).copied() else {
            return (None, 0);
        };
        if watched.stack_begin != stack_begin(pid) {
            return (None, 0);
        }
        let mut looked_up = 0;
        for begin in begins(address) {
            looked_up += 1;
            if let Ok(value) = self.0.map.get(&[watched.number.into(), begin], 0) {
                let allocated = parse(begin, &value);
                // What is nearest before it may end before it.
                let is_inside = address - begin < allocated.size_bytes;
                return (is_inside.then_some(allocated), looked_up);
            }
        }
        (None, looked_up)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<u32, Watched>> {
        self.0.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses at which memory may begin that an address lies in, the nearest first.
fn begins(address: u64) -> impl Iterator<Item = u64> {
    let nearest = address / LEAST_ALIGNMENT * LEAST_ALIGNMENT;
    let aligned = address / ALIGNMENT * ALIGNMENT;
    let first = (nearest != aligned).then_some(nearest);
    let lowest = address.saturating_sub(MAX_OFFSET);
    let further = (0..=MAX_OFFSET / ALIGNMENT).map_while(move |step| aligned.checked_sub(step * ALIGNMENT));
    first
        .into_iter()
        .chain(further.take_while(move |begin| *begin >= lowest && *begin > 0))
}

/// Field by field, in the order of [`Allocation`], whose offsets are asserted.
fn parse(address: u64, value: &Value) -> Allocated {
    let [size_bytes, frames, stack @ ..] = value;
    let frames = usize::try_from(*frames).unwrap_or(ALLOCATION_FRAMES);
    Allocated {
        address,
        size_bytes: *size_bytes,
        stack: stack.iter().take(frames).copied().collect(),
    }
}

impl Engine {
    /// What is known of who allocated memory.
    #[must_use]
    pub fn allocations(&self) -> Allocations {
        self.allocations.clone()
    }

    /// Keeps from now on who allocates memory in a process, by these functions of its files, unless that is kept already; all or
    /// none.
    ///
    /// # Errors
    /// Where the kernel refuses one of them.
    pub fn watch_allocations<'a>(
        &mut self,
        pid: u32,
        files: impl IntoIterator<Item = (&'a Path, &'a [AllocatorSpec])>,
    ) -> Result<AllocationWatch, KernelError> {
        if let Some(known) = self.allocators.get_mut(&pid) {
            known.askers += 1;
            return Ok(AllocationWatch { pid });
        }
        self.allocation_watches = self.allocation_watches.wrapping_add(1);
        let number = self.allocation_watches;
        counts_of_all(&mut self.ebpf)?.insert(number, [0; WORDS_OF_COUNTS], 0)?;
        let mut all = Vec::new();
        for (file, functions) in files {
            let mut links = self.no_links();
            let attached = self.attach_allocator((pid, number), file, functions, &mut links);
            all.push(links);
            if let Err(error) = attached {
                self.leave_allocator(number, all);
                return Err(error);
            }
        }
        let watched = Watched {
            number,
            stack_begin: stack_begin(pid),
        };
        self.allocations.watches().insert(pid, watched);
        let allocator = WatchedAllocator {
            links: all,
            askers: 1,
        };
        self.allocators.insert(pid, allocator);
        Ok(AllocationWatch { pid })
    }

    fn attach_allocator(
        &mut self,
        (pid, number): (u32, u32),
        file: &Path,
        functions: &[AllocatorSpec],
        links: &mut Links,
    ) -> Result<(), KernelError> {
        let site = |function: &AllocatorSpec| {
            let cookie = AllocationSite::new(number, function.parameters);
            Site {
                offset: function.offset,
                cookie: cookie.0,
            }
        };
        let entries: Vec<Site> = functions.iter().map(site).collect();
        let allocate = functions.iter().filter(|function| function.parameters[0] != 0);
        let returns: Vec<Site> = allocate.map(site).collect();
        if !returns.is_empty() {
            self.attach_program(RETURN, pid, file, &returns, true, links)?;
        }
        if !entries.is_empty() {
            self.attach_program(ENTRY, pid, file, &entries, false, links)?;
        }
        Ok(())
    }

    /// Takes the probes off if nobody else asks, and forgets what they have kept: it is not known what is freed from then on.
    #[expect(clippy::needless_pass_by_value, reason = "it is over")]
    pub fn end_allocations(&mut self, watch: AllocationWatch) {
        let AllocationWatch { pid } = watch;
        let Some(known) = self.allocators.get_mut(&pid) else {
            return;
        };
        known.askers -= 1;
        if known.askers > 0 {
            return;
        }
        let allocator = self.allocators.remove(&pid);
        let watched = self.allocations.watches().remove(&pid);
        if let (Some(allocator), Some(Watched { number, .. })) = (allocator, watched) {
            self.leave_allocator(number, allocator.links);
        }
    }

    /// Takes the probes off, and forgets what they have kept once they are off.
    fn leave_allocator(&mut self, number: u32, links: Vec<Links>) {
        let closing = links.into_iter().flat_map(Links::close).collect();
        self.leave(Held::Allocator(number), closing);
    }

    /// How often the functions of a watched allocator were called since somebody first asked.
    #[must_use]
    pub fn allocator_counts(&self, watch: &AllocationWatch) -> AllocatorCounts {
        let watched = self.allocations.watches().get(&watch.pid).copied();
        let counts = || {
            let map = self.ebpf.map(COUNTS)?;
            let map: maps::HashMap<&MapData, u32, [u64; WORDS_OF_COUNTS]> = map.try_into().ok()?;
            let [allocations, frees, stacks_ns] = map.get(&watched?.number, 0).ok()?;
            Some(AllocatorCounts {
                allocations,
                frees,
                stacks_ns,
            })
        };
        counts().unwrap_or_default()
    }

    pub(super) fn forget_counts(&mut self, number: u32) {
        let forgotten = counts_of_all(&mut self.ebpf).and_then(|mut counts| Ok(counts.remove(&number)?));
        if let Err(error) = forgotten {
            tracing::warn!(%error, "the counts of an allocator take room until the engine is unloaded");
        }
    }

    /// Nothing finds what was kept under a number that is over: it only takes room. To go over all takes a while, so that it is
    /// done beside everything else.
    pub(super) fn forget_allocations(&self, number: u32) {
        let forget = || -> Result<(), KernelError> {
            let mut kept = second_handle(&self.ebpf)?;
            let thread = std::thread::Builder::new().name("forget".to_owned());
            let spawned = thread.spawn(move || {
                // Where others take out theirs meanwhile, it may begin anew.
                let keys = kept
                    .keys()
                    .filter_map(Result::ok)
                    .take(2 * MAX_ALLOCATIONS as usize);
                let own: HashSet<Key> = keys.filter(|[watch, _]| *watch == u64::from(number)).collect();
                for key in own {
                    if let Err(error) = kept.remove(&key) {
                        tracing::debug!(%error, "an allocation was gone");
                    }
                }
            });
            spawned
                .map(drop)
                .map_err(|error| KernelError::system("starting a thread".to_owned(), error))
        };
        if let Err(error) = forget() {
            tracing::warn!(%error, "who allocated memory takes room until the engine is unloaded");
        }
    }
}

/// The counts of all watches.
fn counts_of_all(
    ebpf: &mut Ebpf,
) -> Result<maps::HashMap<&mut MapData, u32, [u64; WORDS_OF_COUNTS]>, KernelError> {
    let map = ebpf.map_mut(COUNTS).ok_or(KernelError::Missing(COUNTS))?;
    Ok(map.try_into()?)
}

/// The map, by a descriptor of its own.
fn second_handle(ebpf: &Ebpf) -> Result<maps::HashMap<MapData, Key, Value>, KernelError> {
    let Some(maps::Map::HashMap(data)) = ebpf.map(MAP) else {
        return Err(KernelError::Missing(MAP));
    };
    let descriptor = data.fd().as_fd().try_clone_to_owned();
    let descriptor = descriptor.map_err(|error| KernelError::system(MAP.to_owned(), error))?;
    Ok(maps::Map::HashMap(MapData::from_fd(descriptor)?).try_into()?)
}

/// Where a process's stack begins (`startstack` of `/proc/PID/stat`); `None` where that is not said.
fn stack_begin(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything; behind it is the third field.
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split(' ').nth(25)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_looked_for_at_each_place_where_it_may_begin() {
        let of = |address| begins(address).collect::<Vec<_>>();
        assert_eq!(of(0x10_0018)[..3], [0x10_0018, 0x10_0010, 0x10_0000]);
        assert_eq!(of(0x10_0014)[..2], [0x10_0010, 0x10_0000]);
        assert_eq!(of(0x20_0000).last(), Some(&(0x20_0000 - MAX_OFFSET)));
        // Nothing begins at zero.
        assert_eq!(of(0x28), [0x28, 0x20, 0x10]);
        assert!(of(0).is_empty());
    }

    #[test]
    fn a_stack_begins_where_the_kernel_says() {
        let begin = stack_begin(std::process::id()).unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let (start, rest) = stack.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        assert!((start..end).contains(&begin), "{begin:#x}");
        assert_eq!(stack_begin(0), None);
    }

    #[test]
    fn a_value_is_read_as_the_programs_write_it() {
        let mut value: Value = [0; size_of::<Allocation>() / 8];
        value[..4].copy_from_slice(&[48, 2, 0x1000, 0x2000]);
        let allocated = parse(0x10, &value);
        assert_eq!((allocated.address, allocated.size_bytes), (0x10, 48));
        assert_eq!(allocated.stack, [0x1000, 0x2000]);
        value[1] = u64::MAX;
        assert_eq!(parse(0x10, &value).stack.len(), ALLOCATION_FRAMES);
    }
}
