//! The tables of what a process has mapped.

use std::{collections::HashMap, sync::Arc};

use object::{Object as _, ObjectSegment as _};
use profiler_common::unwind::{Mapping, Rule};
use profiler_testkit::mapped;
use profiler_unwind::{Image, Key, Limits, ROOT, Store, build};

use crate::tracee::Tracee;

pub struct Tables {
    store: Store,
    bases: HashMap<String, (u32, u64)>,
    names: Vec<(Mapping, String)>,
    pub image: Image,
    pub mappings: Vec<Mapping>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            store: Store::new(Limits::default()),
            bases: HashMap::new(),
            names: Vec::new(),
            image: Image::default(),
            mappings: Vec::new(),
        }
    }
}

impl Tables {
    /// Makes the tables of all that is mapped by now, if `ip` is nowhere in what was.
    pub fn know(&mut self, tracee: &Tracee, ip: u64) {
        if self
            .mappings
            .iter()
            .any(|mapping| (mapping.start..mapping.end).contains(&ip))
        {
            return;
        }
        self.names.clear();
        for part in mapped::executable(tracee.pid()) {
            let bytes = if part.path == "[vdso]" {
                tracee.bytes(part.start, usize::try_from(part.end - part.start).unwrap())
            } else if let Ok(bytes) = std::fs::read(&part.path) {
                bytes
            } else {
                continue;
            };
            let Self { store, image, .. } = self;
            let (module, base) = *self.bases.entry(part.path.clone()).or_insert_with(|| {
                let table = build(&bytes).unwrap();
                let key: Key = Arc::from(part.path.as_bytes());
                let placement = store.add(&key, ROOT, &table).unwrap();
                image.write(&placement);
                (placement.module, table.base)
            });
            let address = address_of(&bytes, part.offset);
            let bias = part.start.wrapping_sub(address.wrapping_sub(base));
            let mapping = Mapping {
                start: part.start,
                end: part.end,
                bias,
                module,
                reserved: 0,
            };
            self.names.push((mapping, part.path));
        }
        self.names.sort_by_key(|(mapping, _)| mapping.start);
        self.mappings = self.names.iter().map(|(mapping, _)| *mapping).collect();
    }

    /// Whether the code at an address has unwind information that a rule can say. The last of `longjmp`'s has not: it is about
    /// to leave for another frame.
    pub fn has_rule(&mut self, tracee: &Tracee, ip: u64) -> bool {
        self.know(tracee, ip);
        let rule = self.image.rule_at(&self.mappings, ip);
        rule.is_some_and(|rule| ![Rule::NONE, Rule::UNSUPPORTED].contains(rule))
    }

    /// An address as file and address in it.
    pub fn place(&self, ip: u64) -> String {
        let Some((mapping, path)) = self.names.iter().find(|(m, _)| (m.start..m.end).contains(&ip)) else {
            return format!("{ip:#x}");
        };
        let base = self.bases[path].1;
        let name = path.rsplit('/').next().unwrap();
        format!("{name}+{:#x}", ip.wrapping_sub(mapping.bias).wrapping_add(base))
    }
}

/// The address, in the file's own address space, of a file offset.
fn address_of(elf: &[u8], offset: u64) -> u64 {
    let elf = object::File::parse(elf).unwrap();
    elf.segments()
        .find_map(|segment| {
            let (at, length) = segment.file_range();
            // A mapping begins at a page's start, which may lie before its segment.
            let page = at & !0xfff;
            (page..at + length)
                .contains(&offset)
                .then(|| (segment.address() - (at - page)) + (offset - page))
        })
        .unwrap()
}
