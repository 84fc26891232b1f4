//! Who allocated a target's memory, while somebody asks: probes at its allocator, and what they keep.

use std::{
    collections::HashMap,
    os::fd::AsFd as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Ebpf,
    maps::{self, MapData},
};
use profiler_common::allocation::{ALLOCATION_FRAMES, Allocation, AllocationKey, AllocationSite};

use super::{Engine, KernelError, attach::Links};

/// Addresses at which allocators' memory begins are multiples of this.
const ALIGNMENT: u64 = 16;

/// Those of the smallest pieces, of allocators that waste less.
const LEAST_ALIGNMENT: u64 = 8;

/// How far before an address it is looked for where its memory begins.
pub const MAX_OFFSET: u64 = 1 << 16;

/// Words of a key and a value, as the programs write them.
type Key = [u64; size_of::<AllocationKey>() / 8];
type Value = [u64; size_of::<Allocation>() / 8];

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
    /// Numbers of who asks, by process.
    watches: Mutex<HashMap<u32, Vec<u32>>>,
}

/// Probes at the allocator of a process, until [`Engine::end_allocations`] takes this back.
pub struct AllocationWatch {
    pid: u32,
    number: u32,
    links: Vec<Links>,
}

const MAP: &str = "ALLOCATIONS";
const ENTRY: &str = "allocation_entry";
pub(super) const RETURN: &str = "allocation_return";

impl Allocations {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        let Some(maps::Map::HashMap(data)) = ebpf.map(MAP) else {
            return Err(KernelError::Missing(MAP));
        };
        let descriptor = data.fd().as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| KernelError::system(MAP.to_owned(), error))?;
        let map = maps::Map::HashMap(MapData::from_fd(descriptor)?);
        Ok(Self(Arc::new(Known {
            map: map.try_into()?,
            watches: Mutex::default(),
        })))
    }

    /// Whether somebody asks for a process's.
    #[must_use]
    pub fn is_watched(&self, pid: u32) -> bool {
        self.watches().contains_key(&pid)
    }

    /// The piece of memory that an address of a process lies in; `None` where that was allocated before anybody looked, is
    /// free again, or begins more than [`MAX_OFFSET`] before it. With it, how many addresses were looked up.
    #[must_use]
    pub fn around(&self, pid: u32, address: u64) -> (Option<Allocated>, u32) {
        let watches = self.watches().get(&pid).cloned().unwrap_or_default();
        let mut looked_up = 0;
        for watch in watches {
            for begin in begins(address) {
                looked_up += 1;
                let Ok(value) = self.0.map.get(&[watch.into(), begin], 0) else {
                    continue;
                };
                let allocated = parse(begin, &value);
                if address - begin < allocated.size_bytes {
                    return (Some(allocated), looked_up);
                }
                // What is nearest before it ends before it.
                break;
            }
        }
        (None, looked_up)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<u32, Vec<u32>>> {
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

    /// Keeps from now on who allocates memory in a process, by these functions of its files; all or none.
    ///
    /// # Errors
    /// Where the kernel refuses one of them.
    pub fn watch_allocations<'a>(
        &mut self,
        pid: u32,
        files: impl IntoIterator<Item = (&'a Path, &'a [AllocatorSpec])>,
    ) -> Result<AllocationWatch, KernelError> {
        self.allocation_watches = self.allocation_watches.wrapping_add(1);
        let number = self.allocation_watches;
        let mut watch = AllocationWatch {
            pid,
            number,
            links: Vec::new(),
        };
        self.allocations.watches().entry(pid).or_default().push(number);
        for (file, functions) in files {
            let mut links = self.no_links();
            let attached = self.attach_allocator(&watch, file, functions, &mut links);
            watch.links.push(links);
            if let Err(error) = attached {
                self.end_allocations(watch);
                return Err(error);
            }
        }
        Ok(watch)
    }

    fn attach_allocator(
        &mut self,
        watch: &AllocationWatch,
        file: &Path,
        functions: &[AllocatorSpec],
        links: &mut Links,
    ) -> Result<(), KernelError> {
        let site = |function: &AllocatorSpec| {
            let cookie = AllocationSite::new(watch.number, function.parameters);
            (function.offset, cookie.0)
        };
        let entries: Vec<(u64, u64)> = functions.iter().map(site).collect();
        let allocate = functions.iter().filter(|function| function.parameters[0] != 0);
        let returns: Vec<(u64, u64)> = allocate.map(site).collect();
        if !returns.is_empty() {
            self.attach_program(RETURN, watch.pid, file, &returns, true, links)?;
        }
        if !entries.is_empty() {
            self.attach_program(ENTRY, watch.pid, file, &entries, false, links)?;
        }
        Ok(())
    }

    /// Takes the probes off, and forgets what they have kept: it is not known what is freed from now on.
    pub fn end_allocations(&mut self, watch: AllocationWatch) {
        let AllocationWatch { pid, number, links } = watch;
        {
            let mut watches = self.allocations.watches();
            if let Some(numbers) = watches.get_mut(&pid) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    watches.remove(&pid);
                }
            }
        }
        for links in links {
            self.drop_links(links);
        }
        if let Err(error) = self.forget_allocations(number) {
            tracing::warn!(%error, pid, "who allocated memory is not forgotten");
        }
    }

    fn forget_allocations(&mut self, number: u32) -> Result<(), KernelError> {
        let map = self.ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
        let mut kept: maps::HashMap<&mut MapData, Key, Value> = map.try_into()?;
        let own = |key: &Key| key[0] == u64::from(number);
        // Nobody adds to these any more, but others do to theirs: what is gone over may begin anew.
        let own: Vec<Key> = kept.keys().filter_map(Result::ok).filter(own).collect();
        for key in own {
            // It may be in the list twice.
            if let Err(error) = kept.remove(&key) {
                tracing::debug!(%error, "an allocation was gone");
            }
        }
        Ok(())
    }
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
