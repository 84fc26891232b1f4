//! The packed tables in plain memory, as the programs have them in maps.

use profiler_common::unwind::{
    CHUNK_ROWS, MAPPING_STEPS, Mapping, Module, Page, ROW_STEPS, Row, Rule, last_at_or_below,
};

use super::store::Placement;

/// Rules, chunks, pages and modules, looked up as the programs look them up.
#[derive(Clone, Default, Debug)]
pub struct Image {
    rules: Vec<Rule>,
    chunks: Vec<Vec<Row>>,
    pages: Vec<Page>,
    modules: Vec<Module>,
}

impl Image {
    /// Writes what a placement says.
    pub fn write(&mut self, placement: &Placement) {
        let Placement {
            new_rules,
            pieces,
            pages,
            module,
            record,
        } = placement;
        for new in new_rules {
            let index = usize::from(new.index);
            if self.rules.len() <= index {
                self.rules.resize(index + 1, Rule::NONE);
            }
            self.rules[index] = new.rule;
        }
        for piece in pieces {
            let chunk = grown(&mut self.chunks, piece.chunk);
            chunk.resize(
                CHUNK_ROWS as usize,
                Row {
                    offset: 0,
                    rule: Rule::NONE_INDEX,
                },
            );
            let place = piece.place as usize;
            chunk[place..place + piece.rows.len()].copy_from_slice(&piece.rows);
        }
        for (index, page) in (record.first_page..).zip(pages) {
            *grown(&mut self.pages, index) = *page;
        }
        *grown(&mut self.modules, *module) = *record;
    }

    /// Makes a module gone.
    pub fn remove(&mut self, module: u32) {
        *grown(&mut self.modules, module) = Module::default();
    }

    /// The rule at an offset into a module's text.
    #[must_use]
    pub fn rule(&self, module: u32, text_offset: u64) -> Option<&Rule> {
        let page = self.modules.get(module as usize)?.page(text_offset)?;
        let page = self.pages.get(page as usize)?;
        let chunk = self.chunks.get(page.chunk() as usize);
        let row = |index| chunk?.get(page.place(index) as usize);
        let offset = |index| row(index).map(|row| u64::from(row.offset));
        let index = last_at_or_below::<ROW_STEPS>(page.rows, text_offset & 0xffff, offset)?;
        self.rules.get(usize::from(row(index)?.rule))
    }

    /// The rule at an address of a process with these mappings, sorted.
    #[must_use]
    pub fn rule_at(&self, mappings: &[Mapping], address: u64) -> Option<&Rule> {
        let count = u32::try_from(mappings.len()).ok()?;
        let start = |index: u32| mappings.get(index as usize).map(|mapping| mapping.start);
        let index = last_at_or_below::<MAPPING_STEPS>(count, address, start)?;
        let mapping = mappings.get(index as usize)?;
        if address >= mapping.end {
            return None;
        }
        self.rule(mapping.module, address.wrapping_sub(mapping.bias))
    }
}

fn grown<T: Clone + Default>(list: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}
