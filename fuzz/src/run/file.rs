//! Everything that is done with a file that others made.

use std::sync::{Arc, LazyLock};

use profiler_debug_files::Unfolded;
use profiler_elf::{
    Bytes,
    facts::{Facts, Mark},
};
use profiler_plan::{
    DebugIndex, KernelAbility, Limits, ModuleFiles, ModuleIndex,
    hazards::{Hazards, ModuleHazards, exit_method},
    ifuncs::{Choices, slots},
    plan,
};
use profiler_scope::Name;
use profiler_symbolize::FileSymbols;
use profiler_unwind::{Segments, build};

use super::unwind;

/// A file that nothing is wrong with.
static ITSELF: LazyLock<Bytes> = LazyLock::new(|| Arc::new(std::fs::read("/bin/true").unwrap_or_default()));
/// How many places of one file are looked up.
const LOOKUPS: usize = 32;

/// Plans for the file, makes its unwind table, and looks up places all over it.
pub fn run(data: &[u8]) {
    if let Ok(table) = build(data) {
        unwind::check(&table, data);
    }
    let _ = Segments::read(data).load_bias(0, 0);
    let _ = DebugIndex::new(data);
    let read = |bytes: &mut [u8], at: u64| {
        let from = usize::try_from(at)
            .ok()
            .and_then(|at| data.get(at..)?.get(..bytes.len()));
        from.is_some_and(|from| {
            bytes.copy_from_slice(from);
            true
        })
    };
    let marks = [
        Mark::Shared("malloc"),
        Mark::Section(".text"),
        Mark::Compiler("GCC"),
    ];
    let _ = Facts::read(&read, &marks);
    let hazards = ModuleHazards::scan("/fuzzed", data);
    let bytes: Bytes = Arc::new(data.to_vec());
    if let Ok(index) = ModuleIndex::new(Arc::clone(&bytes)) {
        plan_for(&index, &hazards.unwrap_or_default());
    }
    let _ = Unfolded::of(data);
    // What was split off need not fit to what is left.
    for (program, split_off) in [(ITSELF.clone(), bytes.clone()), (bytes, ITSELF.clone())] {
        let files = ModuleFiles::whole(program).with_symbols(Arc::clone(&split_off));
        if let Ok(index) = ModuleIndex::of(files.with_debug(split_off)) {
            plan_for(&index, &ModuleHazards::default());
        }
    }
    let Ok(mut symbols) = FileSymbols::new("fuzzed", data.to_vec()) else {
        return;
    };
    let step = (data.len() / LOOKUPS).max(1);
    for offset in (0..data.len() as u64).step_by(step) {
        let functions = symbols.resolve(offset);
        assert_eq!(functions.len(), symbols.resolve_lines(offset).len());
        assert!(!functions.is_empty());
    }
}

fn plan_for(index: &ModuleIndex, hazards: &ModuleHazards) {
    for function in index.functions().take(LOOKUPS) {
        let _ = (function.name(), function.code(), function.file_offset());
        let _ = index.symbol_name_at(function.address());
    }
    let _ = index.nearest(&Name::Exact("mian".into()), 5);
    let ability = KernelAbility::default();
    let _ = slots(&Name::Glob("*".into()), &[index]);
    for hazards in [&ModuleHazards::default(), hazards] {
        let decision = exit_method(&Hazards::of([("/fuzzed", hazards)]), ability, false, None);
        let limits = Limits { functions: 1000 };
        let _ = plan(
            &Name::Glob("*".into()),
            &[index],
            &Choices::default(),
            &decision,
            ability,
            limits,
        );
    }
}
