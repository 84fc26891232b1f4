//! The code of one inlined instance among that of the function that holds it: how it is entered and left.
//!
//! What an instance's ranges say is taken as it is, but for short pieces of the caller between two of them, which
//! schedulers put there. Of what is reached from where the instance begins, every way in and out is looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use profiler_common::condition::Condition;

use super::{
    super::{
        code::{self, Code, condition, direct_target},
        source::ranges::Ranges,
    },
    Reason,
    tables::{self, Table},
};

/// Instructions of the caller between two pieces of an instance that are taken for its own.
const MAX_GAP: usize = 16;

/// Cases of all tables of a function that are looked at; of functions with more none is.
const MAX_TARGETS: usize = 1 << 16;

/// The instructions of a function, with the ways between them.
pub(super) struct Graph {
    /// By address.
    instructions: Vec<Instruction>,
    ways: Vec<Ways>,
    /// From where each is reached, by jumps and by going on.
    before: Vec<Vec<usize>>,
    /// Where functions begin: reached from anywhere.
    starts: BTreeSet<u64>,
    /// Where jumps through tables lead.
    tables: BTreeMap<usize, Vec<usize>>,
    /// Jumps whose target is known only when they are taken.
    indirect: Vec<usize>,
}

/// Where control goes from an instruction.
#[derive(Clone, Copy, Default)]
struct Ways {
    /// What comes behind it, where it goes on.
    next: Option<usize>,
    /// Where it jumps to within the function.
    target: Option<usize>,
    /// It jumps, perhaps, out of the function.
    leaves: bool,
    /// Nothing leads there: it fills the space behind a jump.
    is_filling: bool,
}

impl Ways {
    fn each(self) -> impl Iterator<Item = usize> {
        self.next.into_iter().chain(self.target)
    }
}

/// When control leaves at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Whenever it is reached.
    Always,
    /// Where the jump goes that way.
    If(Condition),
    /// Where a call has just returned to it: other ways lead there too.
    Returned,
}

/// What an instance is, where it can be timed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Region {
    /// Where it begins, and instructions behind that which will do as well.
    pub entries: Vec<u64>,
    /// Where it ends, by address.
    pub exits: BTreeMap<u64, When>,
    /// All of its instructions.
    pub addresses: BTreeSet<u64>,
}

impl Graph {
    /// The ways of some pieces of code, which are one function's and in order of address. `starts` are the addresses
    /// of symbols in them; `bytes` reads the file.
    pub fn new<'b>(
        codes: &[Code],
        starts: BTreeSet<u64>,
        bytes: impl Fn(Range<u64>) -> Option<&'b [u8]>,
    ) -> Self {
        let mut instructions: Vec<Instruction> = Vec::new();
        for code in codes {
            instructions.extend_from_slice(code.instructions());
        }
        let position = |address: u64| instructions.binary_search_by_key(&address, Instruction::ip).ok();
        let mut targets: BTreeSet<u64> = instructions.iter().filter_map(direct_target).collect();
        let tables = tables_in(&instructions, &mut targets, &starts, &bytes);
        let mut ways = Vec::with_capacity(instructions.len());
        let mut indirect = Vec::new();
        let mut goes_on = false;
        for (at, instruction) in instructions.iter().enumerate() {
            let is_led_to = goes_on
                || at == 0
                || instructions[at - 1].next_ip() != instruction.ip()
                || targets.contains(&instruction.ip())
                || starts.contains(&instruction.ip());
            if !is_led_to && matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                ways.push(Ways {
                    is_filling: true,
                    ..Ways::default()
                });
                continue;
            }
            let flow = instruction.flow_control();
            goes_on = code::goes_on(instruction);
            let next = position(instruction.next_ip()).filter(|_| goes_on);
            let target = code::jump_target(instruction);
            let within = target.and_then(position);
            if flow == FlowControl::IndirectBranch
                && !is_through_linkage_table(instruction)
                && !tables.contains_key(&at)
            {
                indirect.push(at);
            }
            // What comes behind a call that never returns is not looked at.
            let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
            let goes_nowhere = goes_on && next.is_none() && !is_call;
            ways.push(Ways {
                next,
                target: within,
                leaves: target.is_some() && within.is_none() || goes_nowhere,
                is_filling: false,
            });
        }
        let mut before = vec![Vec::new(); instructions.len()];
        for (at, ways) in ways.iter().enumerate() {
            let by_table = tables.get(&at).into_iter().flatten().copied();
            for after in ways.each().chain(by_table) {
                before[after].push(at);
            }
        }
        Self {
            instructions,
            ways,
            before,
            starts,
            tables,
            indirect,
        }
    }

    /// The number of instructions.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    fn position(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }

    /// Whether straight and short code leads from one address to another.
    pub fn leads_straight(&self, from: u64, to: u64) -> bool {
        let (Some(from), Some(to)) = (self.position(from), self.position(to)) else {
            return false;
        };
        from <= to && to - from <= MAX_GAP && (from..to).all(|at| self.ways[at].next == Some(at + 1))
    }

    /// The instance with these ranges; `entry` is where the debug information says that it begins, if it does.
    pub fn region(&self, ranges: &Ranges, entry: Option<u64>) -> Result<Region, Reason> {
        let inside = self.inside(ranges);
        let entry = match entry.and_then(|entry| self.position(entry)) {
            Some(entry) if inside[entry] => entry,
            _ => self.only_way_in(&inside)?,
        };
        let is_own = self.reached(&inside, [entry]);
        // What only an exception leads to belongs to it; what leaves from there has been thrown.
        let orphans: Vec<usize> = (0..self.instructions.len())
            .filter(|&at| inside[at] && at != entry && !self.ways[at].is_filling)
            .filter(|&at| self.before[at].is_empty() && !self.is_start(at))
            .collect();
        let is_caught = self.reached(&inside, orphans);
        self.check_ways_in(entry, &is_own, &is_caught)?;
        let mut info = InstructionInfoFactory::new();
        for (at, _) in is_own.iter().enumerate().filter(|(_, is_own)| **is_own) {
            self.check(at, &mut info)?;
        }
        let exits = self.exits(entry, &is_own)?;
        if exits.is_empty() {
            return Err(Reason::NeverLeft);
        }
        let mut entries = vec![self.instructions[entry].ip()];
        let mut at = entry;
        // Other ways do not lead to what is straight behind it.
        while self.instructions[at].flow_control() == FlowControl::Next
            && !is_system_call(&self.instructions[at])
            && let Some(next) = self.ways[at].next
            && is_own[next]
            && self.before[next].len() == 1
            && !self.is_start(next)
        {
            entries.push(self.instructions[next].ip());
            at = next;
        }
        let own = is_own.iter().zip(&self.instructions).filter(|(own, _)| **own);
        Ok(Region {
            entries,
            exits,
            addresses: own.map(|(_, instruction)| instruction.ip()).collect(),
        })
    }

    /// Where control goes from an instruction.
    fn after(&self, at: usize) -> impl Iterator<Item = usize> {
        let by_table = self.tables.get(&at).into_iter().flatten().copied();
        self.ways[at].each().chain(by_table)
    }

    fn is_start(&self, at: usize) -> bool {
        self.starts.contains(&self.instructions[at].ip())
    }

    /// Which instructions are an instance's, with the short straight pieces between them.
    fn inside(&self, ranges: &Ranges) -> Vec<bool> {
        let mut inside: Vec<bool> = self
            .instructions
            .iter()
            .zip(&self.ways)
            .map(|(instruction, ways)| !ways.is_filling && ranges.contains(instruction.ip()))
            .collect();
        let mut info = InstructionInfoFactory::new();
        let mut last: Option<usize> = None;
        for at in 0..inside.len() {
            if !inside[at] {
                continue;
            }
            if let Some(last) = last
                && at - last - 1 <= MAX_GAP
                && (last..at).all(|at| self.ways[at].next == Some(at + 1))
                && (last + 1..at).all(|at| {
                    let instruction = &self.instructions[at];
                    instruction.flow_control() == FlowControl::Next
                        && !is_system_call(instruction)
                        && !moves_stack(instruction, &mut info)
                        && self.before[at].len() == 1
                        && !self.is_start(at)
                })
            {
                inside[last + 1..at].fill(true);
            }
            last = Some(at);
        }
        inside
    }

    /// Where an instance is entered whose debug information does not say it.
    fn only_way_in(&self, inside: &[bool]) -> Result<usize, Reason> {
        let mut entered = (0..inside.len()).filter(|&at| {
            inside[at] && (self.is_start(at) || self.before[at].iter().any(|&before| !inside[before]))
        });
        match (entered.next(), entered.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => Err(Reason::NoCode),
            (Some(_), Some(_)) => Err(Reason::EnteredElsewhere),
        }
    }

    /// What is reached from some instructions without leaving an instance.
    fn reached(&self, inside: &[bool], from: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut reached = vec![false; inside.len()];
        let mut pending: Vec<usize> = from.into_iter().collect();
        while let Some(at) = pending.pop() {
            if !inside[at] || std::mem::replace(&mut reached[at], true) {
                continue;
            }
            pending.extend(self.after(at));
        }
        reached
    }

    fn check_ways_in(&self, entry: usize, is_own: &[bool], is_caught: &[bool]) -> Result<(), Reason> {
        for (at, _) in is_own.iter().enumerate().filter(|(_, own)| **own) {
            if at == entry {
                if self.before[at].iter().any(|&before| is_own[before]) {
                    return Err(Reason::LoopsBack);
                }
                continue;
            }
            let from_outside = |&before: &usize| !is_own[before] && !is_caught[before];
            if self.is_start(at) || self.before[at].iter().any(from_outside) {
                return Err(Reason::EnteredElsewhere);
            }
        }
        if self.indirect.is_empty() {
            Ok(())
        } else {
            Err(Reason::JumpsByTable)
        }
    }

    fn check(&self, at: usize, info: &mut InstructionInfoFactory) -> Result<(), Reason> {
        let instruction = &self.instructions[at];
        if moves_stack(instruction, info) {
            return Err(Reason::MovesStack);
        }
        let is_tail_call =
            instruction.flow_control() == FlowControl::IndirectBranch && !self.tables.contains_key(&at);
        if self.ways[at].leaves || is_tail_call {
            return Err(Reason::TailCall);
        }
        if instruction.flow_control() == FlowControl::XbeginXabortXend {
            return Err(Reason::Transaction);
        }
        Ok(())
    }

    /// Where control leaves an instance.
    fn exits(&self, entry: usize, is_own: &[bool]) -> Result<BTreeMap<u64, When>, Reason> {
        let mut exits: BTreeMap<u64, When> = BTreeMap::new();
        let ip = |at: usize| self.instructions[at].ip();
        // Where only one way leads, and no exception: that is seen from `before`.
        let is_only_reached_here = |to: usize| self.before[to].len() == 1 && !self.is_start(to);
        for (at, _) in is_own.iter().enumerate().filter(|(_, own)| **own) {
            let instruction = &self.instructions[at];
            let Ways { next, target, .. } = self.ways[at];
            let out = |to: Option<usize>| to.filter(|&to| !is_own[to]);
            let mut add = |address: u64, when: When| {
                let known = exits.entry(address).or_insert(when);
                if *known != when {
                    *known = When::Always;
                }
            };
            match instruction.flow_control() {
                FlowControl::Return => add(ip(at), When::Always),
                FlowControl::ConditionalBranch => {
                    let ways = [(out(target), false), (out(next), true)];
                    let ways = ways.map(|(to, is_opposite)| to.map(|to| (to, is_opposite)));
                    match ways {
                        [Some(_), Some(_)] if at != entry => add(ip(at), When::Always),
                        ways => {
                            for (to, is_opposite) in ways.into_iter().flatten() {
                                match condition(instruction) {
                                    Some(condition) if at != entry => {
                                        let condition = if is_opposite {
                                            condition.opposite()
                                        } else {
                                            condition
                                        };
                                        add(ip(at), When::If(condition));
                                    }
                                    _ if is_only_reached_here(to) => add(ip(to), When::Always),
                                    Some(_) => return Err(Reason::TooShort),
                                    None => return Err(Reason::NotByFlags),
                                }
                            }
                        }
                    }
                }
                FlowControl::UnconditionalBranch => {
                    let Some(to) = out(target) else { continue };
                    match () {
                        () if at != entry => add(ip(at), When::Always),
                        () if is_only_reached_here(to) => add(ip(to), When::Always),
                        () => return Err(Reason::TooShort),
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall if !is_system_call(instruction) => {
                    if let Some(next) = out(next) {
                        add(ip(next), When::Returned);
                    }
                }
                FlowControl::IndirectBranch => {
                    let all = || self.tables.get(&at).into_iter().flatten();
                    match all().filter(|to| !is_own[**to]).count() {
                        0 => {}
                        // Which way it goes is not told by the flags.
                        left if left < all().count() => return Err(Reason::JumpsByTable),
                        _ if at == entry => return Err(Reason::TooShort),
                        _ => add(ip(at), When::Always),
                    }
                }
                _ => {
                    let Some(next) = out(next) else { continue };
                    match () {
                        () if is_only_reached_here(next) => add(ip(next), When::Always),
                        () if at == entry => return Err(Reason::TooShort),
                        // It counts to the end that is seen just before it.
                        () if !is_long(instruction) => add(ip(at), When::Always),
                        () => return Err(Reason::EndsLong),
                    }
                }
            }
        }
        Ok(exits)
    }

    /// Whether an instruction of a region is reached from itself.
    pub fn is_in_loop(&self, region: &Region, address: u64) -> bool {
        let Some(from) = self.position(address) else {
            return false;
        };
        let inside: Vec<bool> = self
            .instructions
            .iter()
            .map(|instruction| region.addresses.contains(&instruction.ip()))
            .collect();
        self.reached(&inside, self.after(from))[from]
    }
}

/// Where the jumps through tables in some code lead, which are further targets. None where another way leads into what comes
/// before such a jump.
fn tables_in<'b>(
    instructions: &[Instruction],
    targets: &mut BTreeSet<u64>,
    starts: &BTreeSet<u64>,
    bytes: &impl Fn(Range<u64>) -> Option<&'b [u8]>,
) -> BTreeMap<usize, Vec<usize>> {
    let jumps = instructions.iter().enumerate();
    let jumps = jumps.filter(|(_, jump)| jump.flow_control() == FlowControl::IndirectBranch);
    let mut tables: BTreeMap<usize, Table> = BTreeMap::new();
    let mut cases = 0;
    for (at, _) in jumps {
        let Some(table) = tables::of(instructions, at, bytes) else {
            continue;
        };
        cases += table.targets.len();
        if cases > MAX_TARGETS {
            return BTreeMap::new();
        }
        tables.insert(at, table);
    }
    let direct = targets.clone();
    targets.extend(tables.values().flat_map(|table| table.targets.iter().copied()));
    let is_led_into = |table: &Table| {
        let mut midst = (table.passed.start + 1..=table.passed.end).map(|at| instructions[at].ip());
        midst.any(|address| targets.contains(&address) || starts.contains(&address))
    };
    if tables.values().any(is_led_into) {
        *targets = direct;
        return BTreeMap::new();
    }
    let position = |address: &u64| instructions.binary_search_by_key(address, Instruction::ip).ok();
    let known = tables.iter().filter_map(|(at, table)| {
        let mut leads: Vec<usize> = table.targets.iter().map(position).collect::<Option<_>>()?;
        leads.sort_unstable();
        leads.dedup();
        Some((*at, leads))
    });
    known.collect()
}

/// A tail call through the linkage table, rather than a jump to wherever.
fn is_through_linkage_table(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RIP
        && instruction.memory_index() == Register::None
}

fn is_system_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) && instruction.mnemonic() != Mnemonic::Call
}

/// Whether it may take long by itself.
fn is_long(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repne_prefix() || is_system_call(instruction)
}

/// Whether the stack pointer is another behind it. What a call puts there its callee takes away.
fn moves_stack(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    if matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return
    ) {
        return false;
    }
    instruction.is_stack_instruction()
        || info.info(instruction).used_registers().iter().any(|used| {
            let is_read = matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            );
            !is_read && used.register().full_register() == Register::RSP
        })
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use super::*;

    const BASE: u64 = 0x1000;

    // mov eax, 1; mov ecx, 2; test ecx, ecx; dec ecx; call to what is behind the code; ret
    const OUTSIDE: &[u8] = &[0xb8, 1, 0, 0, 0];
    const INSIDE: &[u8] = &[0xb9, 2, 0, 0, 0];
    const TEST: &[u8] = &[0x85, 0xc9];
    const DECREMENT: &[u8] = &[0xff, 0xc9];
    const CALL: &[u8] = &[0xe8, 0, 1, 0, 0];
    const RET: &[u8] = &[0xc3];
    const UD2: &[u8] = &[0x0f, 0x0b];

    fn jump(distance: i8) -> Vec<u8> {
        vec![0xeb, distance.cast_unsigned()]
    }

    fn jump_if_equal(distance: i8) -> Vec<u8> {
        vec![0x74, distance.cast_unsigned()]
    }

    /// The region of ranges in some code, and its exits counted from its beginning.
    fn region(
        parts: &[&[u8]],
        ranges: &[Range<u64>],
        entry: Option<u64>,
    ) -> Result<Vec<(u64, When)>, Reason> {
        let code = Code::decode(&parts.concat(), BASE).unwrap();
        let graph = Graph::new(&[code], BTreeSet::from([BASE]), |_| None);
        let ranges = ranges.iter().map(|range| BASE + range.start..BASE + range.end);
        let region = graph.region(&Ranges::new(ranges), entry.map(|entry| BASE + entry))?;
        let exits = region.exits.into_iter();
        Ok(exits.map(|(address, when)| (address - BASE, when)).collect())
    }

    #[test]
    fn an_end_is_where_control_leaves() {
        // Behind the last instruction, where nothing else leads there.
        let straight = region(&[OUTSIDE, INSIDE, TEST, OUTSIDE, RET], &[5..12], None);
        assert_eq!(straight, Ok(vec![(12, When::Always)]));
        // Both ways lead behind it: each is seen where it leaves.
        let branch = jump_if_equal(5);
        let parts: &[&[u8]] = &[OUTSIDE, TEST, &branch, INSIDE, OUTSIDE, RET];
        let both = vec![(7, When::If(Condition::EQUAL)), (9, When::Always)];
        assert_eq!(region(parts, &[5..14], None), Ok(both.clone()));
        assert_eq!(region(parts, &[5..14], Some(5)), Ok(both));
        // What goes on behind the jump leaves.
        let back = jump_if_equal(-6);
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, DECREMENT, TEST, &back, OUTSIDE, RET];
        assert_eq!(
            region(parts, &[5..16], None),
            Ok(vec![(14, When::If(Condition::NOT_EQUAL))])
        );
        // A jump, and a return.
        let over = jump(5);
        let parts: &[&[u8]] = &[INSIDE, &over, OUTSIDE, RET];
        assert_eq!(region(parts, &[0..7], None), Ok(vec![(5, When::Always)]));
        assert_eq!(region(&[INSIDE, RET], &[0..6], None), Ok(vec![(5, When::Always)]));
    }

    #[test]
    fn a_call_that_comes_last_ends_when_it_returns() {
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, CALL, OUTSIDE, RET];
        assert_eq!(region(parts, &[5..15], None), Ok(vec![(15, When::Returned)]));
    }

    #[test]
    fn short_pieces_of_the_caller_are_part_of_it() {
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, OUTSIDE, INSIDE, OUTSIDE, RET];
        assert_eq!(
            region(parts, &[5..10, 15..20], None),
            Ok(vec![(20, When::Always)])
        );
        // Calls of the caller are not.
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, CALL, INSIDE, OUTSIDE, RET];
        assert_eq!(
            region(parts, &[5..10, 15..20], None),
            Err(Reason::EnteredElsewhere)
        );
        assert_eq!(
            region(parts, &[5..10, 15..20], Some(5)),
            Ok(vec![(10, When::Always)])
        );
        let long = OUTSIDE.repeat(MAX_GAP + 1);
        let parts: &[&[u8]] = &[INSIDE, &long, INSIDE, RET];
        let behind = 5 + long.len() as u64;
        assert_eq!(
            region(parts, &[0..5, behind..behind + 5], Some(0)),
            Ok(vec![(5, When::Always)])
        );
    }

    #[test]
    fn leaves_out_instances_that_cannot_be_timed() {
        // Another way leads behind its first instruction, or back to it.
        let into = jump(5);
        let parts: &[&[u8]] = &[&into, INSIDE, INSIDE, RET];
        assert_eq!(region(parts, &[2..12], Some(2)), Err(Reason::EnteredElsewhere));
        let back = jump_if_equal(-9);
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, DECREMENT, &back, RET];
        assert_eq!(region(parts, &[5..14], None), Err(Reason::LoopsBack));
        // push rax; pop rax
        let parts: &[&[u8]] = &[OUTSIDE, INSIDE, &[0x50, 0x58], OUTSIDE, RET];
        assert_eq!(region(parts, &[5..12], None), Err(Reason::MovesStack));
        // sub rsp, 8
        let parts: &[&[u8]] = &[INSIDE, &[0x48, 0x83, 0xec, 8], OUTSIDE, RET];
        assert_eq!(region(parts, &[0..9], None), Err(Reason::MovesStack));
        // jmp rax
        let parts: &[&[u8]] = &[INSIDE, OUTSIDE, &[0xff, 0xe0]];
        assert_eq!(region(parts, &[0..5], None), Err(Reason::JumpsByTable));
        // To another function.
        let parts: &[&[u8]] = &[INSIDE, &[0xe9, 0, 1, 0, 0]];
        assert_eq!(region(parts, &[0..10], None), Err(Reason::TailCall));
        assert_eq!(region(&[INSIDE, UD2], &[0..7], None), Err(Reason::NeverLeft));
        assert_eq!(region(&[OUTSIDE, RET], &[7..9], None), Err(Reason::NoCode));
    }

    #[test]
    fn an_instance_of_one_instruction_is_timed_at_the_next_one_if_possible() {
        // Only from there, or from elsewhere too.
        let over = jump(5);
        let parts: &[&[u8]] = &[OUTSIDE, &over, OUTSIDE, OUTSIDE, RET];
        assert_eq!(region(parts, &[5..7], None), Err(Reason::TooShort));
        assert_eq!(
            region(&[OUTSIDE, INSIDE, OUTSIDE, RET], &[5..10], None),
            Ok(vec![(10, When::Always)])
        );
    }

    #[test]
    fn padding_is_not_an_entry() {
        // jmp over; nop; the instance
        let to_it = jump(1);
        let parts: &[&[u8]] = &[&to_it, &[0x90], INSIDE, OUTSIDE, RET];
        assert_eq!(region(parts, &[3..8], None), Ok(vec![(8, When::Always)]));
    }
}
