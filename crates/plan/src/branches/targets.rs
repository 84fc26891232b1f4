//! The lines that jumps lead to, as the function that a jump is in shows them.

use std::{collections::HashMap, rc::Rc};

use gimli::UnitOffset;

use super::{
    super::{
        held::Holder,
        source::{
            find::known,
            part::{Key, Own, Part},
            ranges::Ranges,
            rows::{Row, row_at},
            scopes::Body,
            units::{Known, Reader},
        },
    },
    Target,
};

/// A function or an inlined instance, and its text.
struct View {
    part: Part,
    own: Own,
}

impl View {
    fn read(reader: &mut Reader<'_, '_>, body: Body, known: &Known) -> Option<Self> {
        let declared = &known.declared.source;
        let file = reader.files.number(&declared.file);
        let first = u32::try_from(declared.line).unwrap_or(0);
        // What is too much for it is said by the budget.
        let mut part = Part::read(reader, body, &mut Vec::new())?;
        let last = part.last_line(file, first).unwrap_or(first).max(first);
        let own = Own { file, first, last };
        part.place(&own);
        Some(Self { part, own })
    }

    fn line_of(&self, address: u64) -> Option<Key> {
        let inside = self.part.ranges.contains(address);
        inside.then(|| self.part.line_of(&self.own, address))
    }
}

/// A function, and what is inlined into it.
pub(super) struct Views {
    function: Option<View>,
    /// The function's rows, where only the line table knows it.
    rows: Vec<Row>,
    /// The unit of the function and of all that is inlined into it.
    unit: usize,
    /// By entry.
    instances: HashMap<UnitOffset, Option<View>>,
}

impl Views {
    /// Takes what is described of the function.
    pub fn of(reader: &mut Reader<'_, '_>, holder: &mut Holder) -> Self {
        let function = match (holder.body.take(), holder.entry) {
            (Some(body), Some(entry)) => {
                let known = known(reader, entry);
                View::read(reader, body, &known)
            }
            _ => None,
        };
        let rows = if function.is_none() {
            rows_of(reader, &holder.code)
        } else {
            Vec::new()
        };
        Self {
            function,
            rows,
            unit: holder.entry.map_or(0, |(unit, _)| unit),
            instances: HashMap::new(),
        }
    }

    /// Where a jump at an address leads.
    pub fn target(&mut self, reader: &mut Reader<'_, '_>, jump: u64, address: u64) -> Target {
        let instance = self.instance_at(jump);
        let own = instance.and_then(|(offset, known)| {
            let unit = self.unit;
            let view = self.instances.entry(offset).or_insert_with(|| {
                let body = Body::read(reader, unit, offset)?;
                View::read(reader, body, &known)
            });
            view.as_ref()?.line_of(address)
        });
        // Out of an instance it leads into what the instance is in.
        let key = own.or_else(|| match &self.function {
            Some(function) => function.line_of(address),
            None => row_at(&self.rows, address).map(|row| (row.file, row.line)),
        });
        let (file, line) = key.unwrap_or((0, 0));
        Target {
            address,
            file: if line == 0 {
                String::new()
            } else {
                reader.budget.text(reader.files.path(file))
            },
            line,
        }
    }

    /// The instance whose code a jump is: compilers give some code of an instance the line of its call, which is that of
    /// the code around.
    fn instance_at(&self, jump: u64) -> Option<(UnitOffset, Rc<Known>)> {
        let View { part, .. } = self.function.as_ref()?;
        let row = part.row_at(jump);
        let is_call = |scope: usize| row.is_some() && part.called_at.get(scope).copied().flatten() == row;
        let mut chain = part.body.chain_at(jump);
        chain
            .find(|&(scope, _)| !is_call(scope))
            .map(|(_, inlined)| (inlined.offset, Rc::clone(&inlined.known)))
    }
}

/// The rows of some code by the line table of its unit: compilers that are asked for lines alone describe only those
/// functions that something is inlined into.
fn rows_of(reader: &mut Reader<'_, '_>, code: &Ranges) -> Vec<Row> {
    let Some(start) = code.iter().next().map(|range| range.start) else {
        return Vec::new();
    };
    let unit = reader.holding(&[start]).remove(&start);
    let rows = unit.and_then(|unit| reader.rows(unit));
    rows.map_or_else(Vec::new, |rows| rows.within(code, reader.budget).0)
}
