//! A file's packed table against its rows.

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian,
    ParsedEhFrameHdr, Register, RegisterRule, UnwindContext, UnwindSection as _,
};
use object::{Object as _, ObjectSection as _};
use profiler_common::unwind::{Frame, Outcome, Rule, step};
use profiler_unwind::{Image, Limits, ROOT, Store, build};

use crate::reference::{Caller, Evaluated, Machine, Slice, evaluate};

/// Of rows that the section's index leads to, one in so many is also found that way.
const BY_INDEX: u64 = 97;

/// Differences that are kept to be shown.
const MAX_SHOWN: usize = 50;

/// What was found.
#[derive(Default)]
pub struct Tally {
    pub files: u64,
    /// gimli's rows.
    pub rows: u64,
    /// Of them, those that ours call unsupported.
    pub unsupported: u64,
    /// Those for which a followed register's value is not kept.
    lost: u64,
    /// Those evaluated again through `.eh_frame_hdr`.
    by_index: u64,
    /// Addresses compared.
    addresses: u64,
    packed_rows: u64,
    rules: HashSet<Rule>,
    module_rules_max: usize,
    pub wrong: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files: {} rows, {} addresses compared ({} by index); packed into {} rows ({} KiB) and {} rules \
             ({} KiB, at most {} a file); unsupported {} rows ({:.5}%), rbp or rbx lost in {} ({:.5}%)",
            self.files,
            self.rows,
            self.addresses,
            self.by_index,
            self.packed_rows,
            self.packed_rows * 4 / 1024,
            self.rules.len(),
            self.rules.len() * size_of::<Rule>() / 1024,
            self.module_rules_max,
            self.unsupported,
            100.0 * self.unsupported as f64 / self.rows as f64,
            self.lost,
            100.0 * self.lost as f64 / self.rows as f64,
        )
    }
}

/// Ours at an address.
enum Ours {
    Unsupported,
    None,
    Root,
    Caller(Frame),
}

struct File<'a> {
    path: PathBuf,
    image: Image,

    base: u64,
    entry: u64,
    section: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
    index: Option<ParsedEhFrameHdr<Slice<'a>>>,
}

/// Compares one file, unless it is no x86-64 ELF file with `.eh_frame`.
pub fn compare(path: &Path, bytes: &[u8], tally: &mut Tally) {
    let Ok(elf) = object::File::parse(bytes) else {
        return;
    };
    if elf.architecture() != object::Architecture::X86_64 || !elf.is_64() {
        return;
    }
    // Objects to be linked have no addresses yet.
    if !matches!(
        elf.kind(),
        object::ObjectKind::Executable | object::ObjectKind::Dynamic
    ) {
        return;
    }
    let Some(section) = elf.section_by_name(".eh_frame") else {
        return;
    };
    let data = section.data().unwrap();
    // A C library's terminator alone.
    if data.len() <= 4 {
        return;
    }
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    for (name, set) in [
        (".text", BaseAddresses::set_text as fn(_, _) -> _),
        (".got", BaseAddresses::set_got),
        (".eh_frame_hdr", BaseAddresses::set_eh_frame_hdr),
    ] {
        if let Some(section) = elf.section_by_name(name) {
            bases = set(bases, section.address());
        }
    }
    let index = elf.section_by_name(".eh_frame_hdr").and_then(|section| {
        EhFrameHdr::new(section.data().ok()?, LittleEndian)
            .parse(&bases, 8)
            .ok()
    });

    let table = build(bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut store = Store::new(Limits::default());
    let placement = store.add(&Arc::from(&b"file"[..]), ROOT, &table).unwrap();
    let mut image = Image::default();
    image.write(&placement);
    tally.files += 1;
    tally.packed_rows += u64::from(table.counts.rows);
    tally.module_rules_max = tally.module_rules_max.max(table.rules.len());
    tally.rules.extend(&table.rules);
    let section = EhFrame::new(data, LittleEndian);
    let file = File {
        path: path.into(),
        image,
        entry: elf.entry(),
        base: table.base,
        section,
        bases,
        index,
    };
    file.rows(tally);
}

impl File<'_> {
    fn rows(&self, tally: &mut Tally) {
        let mut context = UnwindContext::new();
        let mut again = UnwindContext::new();
        let mut entries = self.section.entries(&self.bases);
        let mut common = std::collections::HashMap::new();
        let mut extents = Vec::new();
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(entry) = entry else { continue };
            let fde = entry
                .parse(|section, bases, offset| {
                    if let Some(known) = common.get(&offset.0) {
                        return Ok(gimli::CommonInformationEntry::clone(known));
                    }
                    let parsed = section.cie_from_offset(bases, offset)?;
                    common.insert(offset.0, parsed.clone());
                    Ok(parsed)
                })
                .unwrap();
            if fde.len() == 0 {
                continue;
            }
            extents.push((fde.initial_address(), fde.end_address()));
            let leaves_to_handler = self.leaves_to_handler(&fde);
            let mut table = fde.rows(&self.section, &self.bases, &mut context).unwrap();
            let mut covered = fde.initial_address();
            // An entry that gimli cannot evaluate to its end must be unsupported from there on.
            while let Ok(Some(row)) = table.next_row() {
                let (start, end) = (row.start_address(), row.end_address());
                if start >= end {
                    continue;
                }
                covered = end;
                tally.rows += 1;
                let before = (tally.unsupported, tally.lost);
                for address in [start, start + (end - start) / 2, end - 1] {
                    let expected = evaluate(&self.section, row, Machine { ip: address });
                    self.check(address, &expected, leaves_to_handler, tally);
                }
                // Once a row, however many of its addresses.
                tally.unsupported = before.0 + u64::from(tally.unsupported > before.0);
                tally.lost = before.1 + u64::from(tally.lost > before.1);
                if tally.rows.is_multiple_of(BY_INDEX)
                    && let Some(index) = self.index.as_ref().and_then(ParsedEhFrameHdr::table)
                {
                    let found = index.unwind_info_for_address(
                        &self.section,
                        &self.bases,
                        &mut again,
                        start,
                        EhFrame::cie_from_offset,
                    );
                    // Where an empty entry begins alike, the index may lead to that one.
                    if let Ok(row) = found {
                        let expected = evaluate(&self.section, row, Machine { ip: start });
                        self.check(start, &expected, leaves_to_handler, tally);
                        tally.by_index += 1;
                    }
                }
            }
            if covered < fde.end_address() && !matches!(self.ours(covered), Ours::Unsupported) {
                self.wrong(covered, "is supported, but gimli cannot evaluate it", tally);
            }
        }
        extents.sort_unstable();
        for pair in extents.windows(2) {
            let (end, start) = (pair[0].1, pair[1].0);
            // Shorter gaps may be padding; the code that a process begins with is a root.
            if start >= end + 64
                && !(end..start).contains(&self.entry)
                && !matches!(self.ours(end), Ours::None)
            {
                self.wrong(end, "has a rule, but no entry", tally);
            }
        }
        if let Some((_, end)) = extents.last()
            && !matches!(self.ours(*end), Ours::None)
        {
            self.wrong(*end, "has a rule, but is after the last entry", tally);
        }
    }

    /// Whether a function has a way out by another register than its frame's, with `rax` and `rdx` saved for a handler.
    fn leaves_to_handler(&self, fde: &FrameDescriptionEntry<Slice<'_>>) -> bool {
        let mut context = UnwindContext::new();
        let mut table = fde.rows(&self.section, &self.bases, &mut context).unwrap();
        while let Ok(Some(row)) = table.next_row() {
            let is_saved = |number| matches!(row.register(Register(number)), Some(RegisterRule::Offset(_)));
            let by_other = matches!(row.cfa(), CfaRule::RegisterAndOffset { register, .. }
                if ![Register(6), Register(7)].contains(register));
            if by_other && is_saved(0) && is_saved(1) {
                return true;
            }
        }
        false
    }

    fn ours(&self, address: u64) -> Ours {
        let machine = Machine { ip: address };
        let rule = self
            .image
            .rule(0, address.wrapping_sub(self.base))
            .unwrap_or(&Rule::NONE);
        let mut frame = Frame::interrupted(
            address,
            machine.register(7),
            machine.register(6),
            machine.register(3),
        );
        let register = |number: u8| Some(machine.register(number.into()));
        match step(rule, &mut frame, register, |address| Some(Machine::read(address))) {
            Outcome::Continue => Ours::Caller(frame),
            Outcome::Root => Ours::Root,
            Outcome::NoRule => Ours::None,
            Outcome::Unsupported | Outcome::Overwritten => Ours::Unsupported,
            outcome => panic!("{outcome:?} by {rule:?}"),
        }
    }

    fn check(&self, address: u64, expected: &Evaluated, leaves_to_handler: bool, tally: &mut Tally) {
        tally.addresses += 1;
        let frame = match (self.ours(address), expected.ip) {
            (Ours::Unsupported, _) => {
                tally.unsupported += 1;
                return;
            }
            (Ours::Root, None) => return,
            (Ours::Caller(frame), Some(ip)) if frame.ip == ip && Some(frame.sp) == expected.sp => frame,
            // The code itself overwrites it, which gimli cannot know: another return address, of the same frame.
            (Ours::Caller(frame), Some(_))
                if leaves_to_handler
                    && [frame.rbp_at, frame.rbx_at] == [Frame::LOST; 2]
                    && Some(frame.sp) == expected.sp =>
            {
                tally.unsupported += 1;
                return;
            }
            (Ours::None, _) => return self.wrong(address, "has no rule", tally),
            (Ours::Root, Some(_)) => return self.wrong(address, "is no root", tally),
            (Ours::Caller(_), None) => return self.wrong(address, "is a root", tally),
            (Ours::Caller(_), Some(_)) => return self.wrong(address, "has another caller", tally),
        };
        let followed = [
            (frame.rbp, frame.rbp_at, expected.rbp),
            (frame.rbx, frame.rbx_at, expected.rbx),
        ];
        for (value, at, expected) in followed {
            let value: Caller = match at {
                Frame::HERE => Some(value),
                Frame::LOST => None,
                at => Some(Machine::read(at)),
            };
            match value {
                None if expected.is_some() => tally.lost += 1,
                value if value == expected => {}
                _ => self.wrong(address, "has another rbp or rbx", tally),
            }
        }
    }

    fn wrong(&self, address: u64, what: &str, tally: &mut Tally) {
        if tally.wrong.len() < MAX_SHOWN {
            tally
                .wrong
                .push(format!("{}: {address:#x} {what}", self.path.display()));
        }
    }
}
