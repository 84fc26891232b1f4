//! A function's code or that of an instance of it, and the lines that its addresses are shown with.

use super::{
    ranges::Ranges,
    rows::{Row, row_at},
    scopes::{Body, Inlined},
    units::Reader,
};

/// Lines of text that a function has at most; what is beyond is shown without.
pub const MAX_LINES: u32 = 5_000;

/// A file's number among those of the reader, and a line.
pub(crate) type Key = (usize, u32);

/// A body and what belongs to it.
pub(crate) struct Part {
    pub body: Body,
    pub ranges: Ranges,
    pub rows: Vec<Row>,
    /// By scope: where it is called, if it is inlined.
    pub called_at: Vec<Option<Key>>,
    /// By scope: the innermost of the calls that it is in which is in the function's text, else the outermost.
    pub shown_at: Vec<Option<Key>>,
    /// The call that it is, where it is an inlined instance.
    pub call: Option<Key>,
}

/// The lines of the function's own text.
pub(crate) struct Own {
    pub file: usize,
    pub first: u32,
    pub last: u32,
}

impl Own {
    pub fn has(&self, (file, line): Key) -> bool {
        self.file != 0 && file == self.file && (self.first..=self.last).contains(&line)
    }
}

impl Part {
    pub fn read(reader: &mut Reader<'_, '_>, body: Body, missing: &mut Vec<String>) -> Option<Self> {
        let unit = reader.unit(body.unit)?;
        let ranges = Ranges::new(body.scopes[0].ranges.iter().cloned());
        let (rows, all) = reader.rows(body.unit)?.within(&ranges, reader.budget);
        if body.cut || !all {
            missing
                .push("the function is too large: not all of its lines and variables were read".to_owned());
        }
        let (dwarf, files, budget) = (reader.dwarf, &mut reader.files, reader.budget);
        let mut place = |call: &Inlined| {
            let file = files.of_unit(dwarf, &unit, body.unit, call.call_file, budget);
            (file, call.call_line)
        };
        let called_at = body
            .scopes
            .iter()
            .map(|scope| scope.inlined.as_ref().map(&mut place))
            .collect();
        let call = body.call.as_ref().map(&mut place);
        Some(Self {
            body,
            ranges,
            rows,
            called_at,
            shown_at: Vec::new(),
            call,
        })
    }

    /// Finds by which calls scopes are shown, once the function's own text is known.
    pub fn place(&mut self, own: &Own) {
        let mut shown_at: Vec<Option<Key>> = Vec::with_capacity(self.called_at.len());
        for (scope, &called_at) in self.body.scopes.iter().zip(&self.called_at) {
            // What is around comes before; the function itself is around itself.
            let around = shown_at.get(scope.parent).copied().flatten();
            shown_at.push(match called_at {
                Some(key) if own.has(key) => called_at,
                _ => around.or(called_at),
            });
        }
        self.shown_at = shown_at;
    }

    /// The last line in a file of the code that is not inlined.
    pub fn last_line(&self, file: usize, first: u32) -> Option<u32> {
        let of_file = self
            .rows
            .iter()
            .filter(|row| row.file == file && row.line >= first);
        let own = of_file.filter(|row| !self.is_inlined(row.range.start));
        // Compilers give some code of an instance the line of its call.
        own.map(|row| row.line)
            .filter(|&line| self.call != Some((file, line)) && line - first < MAX_LINES)
            .max()
    }

    /// The line that an address is shown with: its own, where that is in the function's text; else that of the call
    /// which is, of those that it is inlined by.
    pub fn line_of(&self, own: &Own, address: u64) -> Key {
        let row = self.row_at(address);
        let row = row.map(|key| {
            if self.call == Some(key) {
                (own.file, own.first)
            } else {
                key
            }
        });
        if let Some(key) = row.filter(|&key| own.has(key)) {
            return key;
        }
        let scope = self.body.scope_at(address);
        let call = scope.and_then(|scope| self.shown_at.get(scope).copied().flatten());
        call.or(row).unwrap_or((0, 0))
    }

    /// What the line table says of an address.
    pub fn row_at(&self, address: u64) -> Option<Key> {
        row_at(&self.rows, address).map(|row| (row.file, row.line))
    }

    /// Whether what is at an address is inlined.
    pub fn is_inlined(&self, address: u64) -> bool {
        self.body.chain_at(address).next().is_some()
    }
}
