//! The functions by which programs allocate memory, by their names, and what their parameters say.

use super::ModuleIndex;

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
const FUNCTIONS: [(&str, [u8; 4]); 20] = [
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
];

/// C++'s operators: in the mangled name, what is behind it are further parameters, as of an alignment.
const OPERATORS: [(&str, [u8; 4]); 4] = [
    ("_Znwm", [1, 0, 0, 0]),
    ("_Znam", [1, 0, 0, 0]),
    ("_ZdlPv", [0, 0, 1, 0]),
    ("_ZdaPv", [0, 0, 1, 0]),
];

/// Finds them in a file. The operators are taken where the file has a `malloc` as well: elsewhere they call that.
#[must_use]
pub fn find(module: &ModuleIndex) -> Vec<AllocatorFunction> {
    let mut found = Vec::new();
    let mut operators = Vec::new();
    let mut has_malloc = false;
    for function in module.functions().filter(|function| !function.is_indirect()) {
        let Some(offset) = function.file_offset() else {
            continue;
        };
        for name in function.linkage_names() {
            if let Some(parameters) = plain(&name) {
                has_malloc |= parameters == FUNCTIONS[0].1;
                found.push(AllocatorFunction { offset, parameters });
                break;
            }
            if let Some(parameters) = operator(&name) {
                operators.push(AllocatorFunction { offset, parameters });
                break;
            }
        }
    }
    if has_malloc {
        found.extend(operators);
    }
    found.sort_unstable_by_key(|function| function.offset);
    found.dedup_by_key(|function| function.offset);
    found
}

fn plain(name: &str) -> Option<[u8; 4]> {
    let of = |prefix: &&str| {
        let rest = name.strip_prefix(prefix)?;
        FUNCTIONS.iter().find(|(known, _)| *known == rest)
    };
    PREFIXES.iter().find_map(of).map(|(_, parameters)| *parameters)
}

fn operator(name: &str) -> Option<[u8; 4]> {
    let (_, parameters) = OPERATORS.iter().find(|(known, _)| name.starts_with(known))?;
    Some(*parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        for (name, parameters) in [
            ("malloc", Some([1, 0, 0, 0])),
            ("je_calloc", Some([1, 2, 0, 0])),
            ("_rjem_sdallocx", Some([0, 0, 1, 0])),
            ("mi_zalloc", Some([1, 0, 0, 0])),
            ("posix_memalign", Some([3, 0, 0, 1])),
            ("mallocs", None),
            ("my_malloc", None),
            ("malloc_usable_size", None),
        ] {
            assert_eq!(plain(name), parameters, "{name}");
        }
        for (name, parameters) in [
            ("_Znwm", Some([1, 0, 0, 0])),
            ("_ZnamSt11align_val_tRKSt9nothrow_t", Some([1, 0, 0, 0])),
            ("_ZdlPvmSt11align_val_t", Some([0, 0, 1, 0])),
            ("_ZnwmPv", Some([1, 0, 0, 0])),
            ("_ZN3fooC1Em", None),
        ] {
            assert_eq!(operator(name), parameters, "{name}");
        }
    }
}
