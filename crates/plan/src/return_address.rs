//! Functions that look at the address that they return to, which a return probe replaces: by themselves, or in one that they end
//! in a jump to. Of another file, only the C library's functions are known to do so, by their names.

use std::collections::BTreeSet;

use iced_x86::FlowControl;
use profiler_elf::Elf;

use super::{
    body::Body,
    demangle::without_version,
    frames::Frames,
    functions::ModuleIndex,
    source::{slot, slot_of},
};

/// Functions that a jump at the end is followed to.
const MAX_TAIL_CALLS: usize = 64;

/// Functions of the C library and the loader that look at the address that they return to. Of the first, the caller's file decides
/// what they find; the others go back there another time.
const READERS: [&str; 20] = [
    "dlsym",
    "dlvsym",
    "dlopen",
    "dlmopen",
    "dl_iterate_phdr",
    "__fentry__",
    "_mcount",
    "mcount",
    "_dl_mcount_wrapper",
    "_dl_mcount_wrapper_check",
    "backtrace",
    "_Unwind_Backtrace",
    "getcontext",
    "swapcontext",
    "setjmp",
    "_setjmp",
    "__sigsetjmp",
    "sigsetjmp",
    "vfork",
    "__vfork",
];

/// Whether a function looks at the address that it returns to, or one does that it ends in a jump to. Where too many would have to
/// be looked at, one may.
pub(super) fn is_read(module: &ModuleIndex, frames: &Frames<'_>, body: &Body) -> bool {
    if reads(module, body) {
        return true;
    }
    let mut seen = BTreeSet::from([body.start()]);
    let mut next: Vec<u64> = body.tail_calls().collect();
    while let Some(address) = next.pop() {
        if !seen.insert(address) {
            continue;
        }
        if seen.len() > MAX_TAIL_CALLS {
            return true;
        }
        let Some(callee) = module.function_from(address) else {
            if slot_of(module, address).is_some_and(|slot| leads_to_reader(module, slot)) {
                return true;
            }
            continue;
        };
        match Body::decode(module, frames, &callee) {
            Ok(callee) if !reads(module, &callee) => next.extend(callee.tail_calls()),
            _ => return true,
        }
    }
    false
}

/// Whether its own code does, or jumps through a slot to another file's function that does.
fn reads(module: &ModuleIndex, body: &Body) -> bool {
    let jumps = body.instructions();
    let jumps = jumps.filter(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
    let mut slots = jumps.filter_map(slot);
    body.reads_return_address() || slots.any(|slot| leads_to_reader(module, slot))
}

fn leads_to_reader(module: &ModuleIndex, slot: u64) -> bool {
    module.slots_of_readers().binary_search(&slot).is_ok()
}

/// The slots of a file that the loader fills with addresses of functions that look at the address that they return to, in order.
pub(super) fn slots_of_readers(program: &[u8]) -> Box<[u64]> {
    let Ok(elf) = Elf::parse(program) else {
        return Box::default();
    };
    let is_reader = |name: &[u8]| {
        let name = str::from_utf8(name);
        name.is_ok_and(|name| READERS.contains(&without_version(name)))
    };
    let relocations = elf.relocations().into_iter();
    let mut found: Vec<u64> = relocations
        .filter(|relocation| {
            let name = relocation.symbol.and_then(|symbol| elf.symbol_name(symbol));
            name.is_some_and(is_reader)
        })
        .map(|relocation| relocation.address)
        .collect();
    found.sort_unstable();
    found.into()
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;

    /// This process's own copy of the C library.
    fn c_library() -> ModuleIndex {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let path = paths.find(|path| path.ends_with("/libc.so.6")).unwrap();
        ModuleIndex::new(Arc::new(fs::read(path).unwrap())).unwrap()
    }

    #[test]
    fn the_c_librarys_functions_that_look_at_their_return_address_are_on_the_list() {
        let module = c_library();
        let frames = Frames::of(module.files().program());
        let looks = |function: &super::super::functions::Function<'_>| {
            Body::decode(&module, &frames, function).is_ok_and(|body| body.reads_return_address())
        };
        let mut names: Vec<String> = module
            .functions()
            .filter(looks)
            .flat_map(|function| {
                function
                    .linkage_names()
                    .map(|name| without_version(&name).to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        names.sort();
        names.dedup();
        assert!(names.iter().any(|name| name == "dlsym"), "{names:?}");
        let missing: Vec<&String> = names
            .iter()
            .filter(|name| !READERS.contains(&name.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
