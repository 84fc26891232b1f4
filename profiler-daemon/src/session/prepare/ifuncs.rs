//! The functions that stand behind ifuncs in a process, read from where its loader wrote them.

use profiler_plan::{
    ModuleIndex,
    ifuncs::{Choices, slots},
};
use profiler_scope::Name;
use profiler_target::{Memory, read_for_request};

use super::super::files::TargetFile;

/// What was chosen for the ifuncs that a name means. A slot in memory that is not there, or of a process that is gone, tells nothing.
pub fn choices(pid: u32, files: &[TargetFile], name: &Name) -> Choices {
    let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
    let mut choices = Choices::default();
    let slots = slots(name, &modules);
    if slots.is_empty() {
        return choices;
    }
    let Ok(memory) = read_for_request(pid, move || Memory::open(pid)) else {
        return choices;
    };
    let bias = |file: &TargetFile| {
        let mut code = file
            .known
            .index
            .segments()
            .iter()
            .filter(|segment| segment.executable);
        file.bias(code.next()?.address)
    };
    let biases: Vec<Option<u64>> = files.iter().map(bias).collect();
    let bias_of = |module: usize| biases.get(module).copied().flatten();
    for slot in slots {
        let (Some(from), Some(to)) = (bias_of(slot.module), bias_of(slot.resolver.module)) else {
            continue;
        };
        let mut word = [0; 8];
        if memory
            .read_exact_at(&mut word, from.wrapping_add(slot.address))
            .is_ok()
        {
            let address = u64::from_le_bytes(word).wrapping_sub(to);
            choices.add(slot.resolver, address, &modules);
        }
    }
    choices
}
