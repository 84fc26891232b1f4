//! What programs are told of the instructions that they do themselves.

use aya::maps::{Array, MapData};
use profiler_common::{instruction::Action, limits::MAX_SITES};

use crate::kernel::{Engine, KernelError};

impl Engine {
    /// Writes an action and remembers its site in `sites`.
    pub(in crate::kernel) fn open_site(
        &mut self,
        action: &Action,
        sites: &mut Vec<u32>,
    ) -> Result<u32, KernelError> {
        if self.free_sites.is_empty() {
            self.settle_leaving();
        }
        let site = self
            .free_sites
            .pop()
            .ok_or(KernelError::TooManySites(MAX_SITES as usize))?;
        sites.push(site);
        let map = self
            .ebpf
            .map_mut("ACTIONS")
            .ok_or(KernelError::Missing("ACTIONS"))?;
        let mut actions: Array<&mut MapData, [u64; 4]> = Array::try_from(map)?;
        actions.set(site, action_words(action), 0)?;
        Ok(site)
    }
}

/// An action as the words of its map value.
fn action_words(action: &Action) -> [u64; 4] {
    let Action {
        operation,
        size,
        target,
        source,
        base,
        index,
        scale,
        length,
        immediate,
        function_size,
        function_offset,
        address,
    } = *action;
    [
        u64::from_ne_bytes([operation, size, target, source, base, index, scale, length]),
        immediate.cast_unsigned(),
        u64::from(function_size) | u64::from(function_offset) << 32,
        address,
    ]
}
