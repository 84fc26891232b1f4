//! Where memory was allocated that data lies in: by which functions, and how much of it.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use profiler_symbolize::{FrameId, Symbolizer};

use crate::kernel::{Allocated, Allocations};

/// Addresses that are remembered; then all are looked up anew.
const MAX_REMEMBERED: usize = 4096;

/// What was found is looked up again after this time: memory is freed, and allocated by others.
const MAX_AGE_NS: u64 = 1_000_000_000;

/// What was not found: it takes far longer to look up.
const MAX_AGE_OF_NOTHING_NS: u64 = 5_000_000_000;

/// What cannot be looked up again is told for so long.
const MAX_TOLD_NS: u64 = 5_000_000_000;

/// Names of memory that are made; what comes then has none. The table of names is everybody's.
const MAX_NAMES: usize = 16_384;

/// Addresses of the kernel's map that are looked up in a second: some hundredths of a CPU.
const LOOKED_UP_PER_S: u32 = 131_072;

/// Functions that are told of a stack.
const MAX_TOLD: usize = 3;

/// How names of functions begin that allocate for others: the one that wants the memory called these.
const ALLOCATE_FOR_OTHERS: [&str; 8] = [
    "operator new",
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "__rust",
    "__rdl",
];

/// Where data lies that is on a heap, as far as that was asked for when it was allocated.
pub(super) struct AllocationSites {
    allocations: Allocations,
    remembered: HashMap<(u32, u64), Known>,
    names: HashSet<FrameId>,
    looked_up: u32,
    since_ns: u64,
}

struct Known {
    site: Option<FrameId>,
    since_ns: u64,
}

impl AllocationSites {
    /// None yet.
    pub fn new(allocations: Allocations) -> Self {
        Self {
            allocations,
            remembered: HashMap::new(),
            names: HashSet::new(),
            looked_up: 0,
            since_ns: 0,
        }
    }

    /// What allocated the memory that an address lies in; `None` where that is not known.
    pub fn of(
        &mut self,
        symbolizer: &mut Symbolizer,
        pid: u32,
        address: u64,
        now_ns: u64,
    ) -> Option<FrameId> {
        let known = self.remembered.get(&(pid, address));
        let age_ns = known.map_or(u64::MAX, |known| now_ns.saturating_sub(known.since_ns));
        let known = known.and_then(|known| known.site);
        let told = known.filter(|_| age_ns < MAX_TOLD_NS);
        if !self.allocations.is_watched(pid) {
            // The last waits of a session may come when it looks no more.
            return told;
        }
        let is_new = match known {
            Some(_) => age_ns < MAX_AGE_NS,
            None => age_ns < MAX_AGE_OF_NOTHING_NS,
        };
        if is_new {
            return known;
        }
        if now_ns.saturating_sub(self.since_ns) >= 1_000_000_000 {
            (self.since_ns, self.looked_up) = (now_ns, 0);
        }
        if self.looked_up >= LOOKED_UP_PER_S {
            return told;
        }
        let (allocated, looked_up) = self.allocations.around(pid, address);
        self.looked_up += looked_up;
        let site = allocated
            .filter(|_| self.names.len() < MAX_NAMES)
            .map(|allocated| name(symbolizer, pid, address, &allocated, now_ns));
        self.names.extend(site);
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        let known = Known {
            site,
            since_ns: now_ns,
        };
        self.remembered.insert((pid, address), known);
        site
    }
}

/// `+24 in 64 bytes of make_table at table.c:31 < load_tables < main`.
fn name(symbolizer: &mut Symbolizer, pid: u32, address: u64, allocated: &Allocated, now_ns: u64) -> FrameId {
    let mut frames = Vec::new();
    for return_address in &allocated.stack {
        symbolizer.resolve_user_lines(pid, return_address.saturating_sub(1), now_ns, &mut frames);
    }
    let all = symbolizer.frames();
    let functions: Vec<_> = frames
        .iter()
        .filter_map(|frame| all.get(frame.0 as usize))
        .collect();
    let for_others = |name: &str| {
        let name = name.trim_start_matches('<');
        ALLOCATE_FOR_OTHERS.iter().any(|prefix| name.starts_with(prefix))
    };
    let skipped = functions
        .iter()
        .take_while(|frame| for_others(&frame.function))
        .count();
    // Where there are no others, those that are there.
    let told = functions.get(skipped..).filter(|rest| !rest.is_empty());
    let told = told.unwrap_or(&functions);
    let offset = address.saturating_sub(allocated.address);
    let mut text = format!("+{offset} in {} bytes", allocated.size_bytes);
    for (number, frame) in told.iter().take(MAX_TOLD).enumerate() {
        let before = if number == 0 { " of " } else { " < " };
        text.push_str(before);
        text.push_str(&frame.function);
        if number == 0 && frame.line > 0 {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(text, " at {file}:{}", frame.line);
        }
    }
    symbolizer.memory_named(&text)
}
