//! DWARF: entries that another unit, or another file, refers to.

use gimli::{DebugInfoOffset, Dwarf, Unit, UnitOffset};
use profiler_debug_files::Bytes;

/// Most units of one file.
const UNITS_MAX: usize = 1 << 18;

/// Where the units of a file begin, in order.
#[derive(Debug, Default)]
pub(super) struct Offsets(Vec<DebugInfoOffset>);

impl Offsets {
    /// Lists the units, up to the first that is damaged.
    pub fn read(dwarf: &Dwarf<Bytes<'_>>) -> Self {
        let mut offsets = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next()
            && offsets.len() < UNITS_MAX
        {
            offsets.extend(header.debug_info_offset());
        }
        Self(offsets)
    }

    /// The unit of this number.
    pub fn get(&self, index: u32) -> Option<DebugInfoOffset> {
        self.0.get(index as usize).copied()
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, DebugInfoOffset)> + '_ {
        (0..).zip(self.0.iter().copied())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The unit that an entry is in.
    fn unit_at<'a>(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        offset: DebugInfoOffset,
    ) -> Option<(Unit<Bytes<'a>>, UnitOffset)> {
        let after = self.0.partition_point(|unit| unit.0 <= offset.0);
        let header = dwarf.unit_header(*self.0.get(after.checked_sub(1)?)?).ok()?;
        let inside = offset.to_unit_offset(&header)?;
        Some((dwarf.unit(header).ok()?, inside))
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.0.len() * size_of::<DebugInfoOffset>()
    }
}

/// The debug information of a file and the way to what it refers to.
#[derive(Clone, Copy)]
pub(super) struct References<'d, 'a> {
    pub dwarf: &'d Dwarf<Bytes<'a>>,
    /// Of the file itself; `None` where nothing in it refers to other units.
    pub own: Option<&'d Offsets>,
    /// Of its supplementary file.
    pub supplement: Option<&'d Offsets>,
}

impl<'d, 'a> References<'d, 'a> {
    /// An entry of another unit of the same file.
    pub fn unit_at(&self, offset: DebugInfoOffset) -> Option<(Unit<Bytes<'a>>, UnitOffset)> {
        self.own?.unit_at(self.dwarf, offset)
    }

    /// The supplementary file, which itself has none.
    pub fn in_supplement(&self) -> Option<References<'d, 'a>> {
        Some(References {
            dwarf: self.dwarf.sup()?,
            own: self.supplement,
            supplement: None,
        })
    }
}
