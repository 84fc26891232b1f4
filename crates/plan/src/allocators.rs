//! The functions by which programs allocate memory, found by name, and the meaning of their parameters.

use super::{ModuleIndex, instruction::InstructionSite};

/// A function of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocatorFunction {
    /// File offset of its entry.
    pub offset: u64,
    /// As of [`profiler_common::allocation::AllocationSite::new`].
    pub parameters: [u8; 4],
}

/// What comes before the names of functions where an allocator does not stand in for the C library's: of jemalloc (as part
/// of programs in C, and in Rust), mimalloc and gperftools.
const PREFIXES: [&str; 5] = ["", "je_", "_rjem_", "mi_", "tc_"];

/// Names, with the number of the parameter that is the size, of a second one that it is multiplied by, of what is freed, and
/// of where the address is written to; 0 for none.
const FUNCTIONS: [(&str, [u8; 4]); 28] = [
    ("malloc", [1, 0, 0, 0]),
    ("calloc", [1, 2, 0, 0]),
    ("realloc", [2, 0, 1, 0]),
    ("reallocarray", [2, 3, 1, 0]),
    ("aligned_alloc", [2, 0, 0, 0]),
    ("memalign", [2, 0, 0, 0]),
    ("posix_memalign", [3, 0, 0, 1]),
    ("valloc", [1, 0, 0, 0]),
    ("pvalloc", [1, 0, 0, 0]),
    ("free", [0, 0, 1, 0]),
    ("cfree", [0, 0, 1, 0]),
    ("free_sized", [0, 0, 1, 0]),
    ("free_aligned_sized", [0, 0, 1, 0]),
    // Of jemalloc.
    ("mallocx", [1, 0, 0, 0]),
    ("rallocx", [2, 0, 1, 0]),
    ("dallocx", [0, 0, 1, 0]),
    ("sdallocx", [0, 0, 1, 0]),
    // Of mimalloc.
    ("zalloc", [1, 0, 0, 0]),
    ("malloc_aligned", [1, 0, 0, 0]),
    ("zalloc_aligned", [1, 0, 0, 0]),
    ("calloc_aligned", [1, 2, 0, 0]),
    ("realloc_aligned", [2, 0, 1, 0]),
    ("rezalloc", [2, 0, 1, 0]),
    ("recalloc", [2, 3, 1, 0]),
    ("new_nothrow", [1, 0, 0, 0]),
    ("free_size", [0, 0, 1, 0]),
    ("free_aligned", [0, 0, 1, 0]),
    ("free_size_aligned", [0, 0, 1, 0]),
];

/// Finds them in a file. C++'s operators are not among them: mostly they call `malloc`, and where they are the allocator's own they
/// throw where there is no memory, which must not pass by a return probe.
#[must_use]
pub fn find(module: &ModuleIndex) -> Vec<AllocatorFunction> {
    let functions = module.functions().filter(|function| !function.is_indirect());
    let known = functions.filter_map(|function| {
        let parameters = function.linkage_names().find_map(|name| parameters(&name))?;
        // Another site than the first instruction would have values that are not the arguments any more.
        let offset = InstructionSite::find(module, function.address())
            .ok()?
            .file_offset;
        Some(AllocatorFunction { offset, parameters })
    });
    let mut found: Vec<AllocatorFunction> = known.collect();
    found.sort_unstable_by_key(|function| function.offset);
    found.dedup_by_key(|function| function.offset);
    found
}

/// What the parameters of a function of this name say, if it is an allocator's.
fn parameters(name: &str) -> Option<[u8; 4]> {
    let of = |prefix: &&str| {
        let rest = name.strip_prefix(prefix)?;
        FUNCTIONS.iter().find(|(known, _)| *known == rest)
    };
    PREFIXES.iter().find_map(of).map(|(_, parameters)| *parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        for (name, expected) in [
            ("malloc", Some([1, 0, 0, 0])),
            ("je_calloc", Some([1, 2, 0, 0])),
            ("_rjem_sdallocx", Some([0, 0, 1, 0])),
            ("mi_zalloc", Some([1, 0, 0, 0])),
            ("posix_memalign", Some([3, 0, 0, 1])),
            ("mallocs", None),
            ("my_malloc", None),
            ("malloc_usable_size", None),
            ("_Znwm", None),
        ] {
            assert_eq!(parameters(name), expected, "{name}");
        }
    }
}
