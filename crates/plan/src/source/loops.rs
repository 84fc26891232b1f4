//! Tells which backward jumps are loops: those from whose target they are reached again. Other backward jumps only
//! undo the compiler's order of blocks. Also finds the targets of the jumps of `switch` statements.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use iced_x86::{FlowControl, Instruction};

use super::super::{
    code::direct_target,
    inlined::tables::{self, Table},
};

/// The cycles of some code.
pub(super) struct Cycles {
    /// By instruction, in order of address: two of the same number reach each other.
    components: Vec<(u64, u32)>,
    /// Where jumps through tables lead, in order.
    pub cases: Vec<u64>,
}

impl Cycles {
    /// Whether these two instructions reach each other.
    pub fn join(&self, a: u64, b: u64) -> bool {
        let component = |address: u64| {
            let at = self
                .components
                .binary_search_by_key(&address, |(address, _)| *address)
                .ok()?;
            Some(self.components[at].1)
        };
        component(a).is_some() && component(a) == component(b)
    }

    /// Finds the cycles of instructions, which are in order of address. `bytes` reads the file.
    pub fn of<'b>(instructions: &[Instruction], bytes: impl Fn(Range<u64>) -> Option<&'b [u8]>) -> Self {
        let tables = known_tables(instructions, bytes);
        let graph = Graph::of(instructions, &tables);
        let numbers = graph.components();
        let addresses = instructions.iter().map(Instruction::ip);
        let mut cases: Vec<u64> = tables.into_values().flat_map(|table| table.targets).collect();
        cases.sort_unstable();
        cases.dedup();
        Self {
            components: addresses.zip(numbers).collect(),
            cases,
        }
    }
}

/// Cases of all `switch`es of some code that are followed.
const MAX_CASES: usize = 65_536;

/// Up to two ways on from each instruction, or those of a `switch`. The last node stands for wherever jumps through registers
/// lead of which that is not known.
struct Graph {
    next: Vec<Ways>,
    /// What nothing is seen to lead to: the cases of such a `switch`, for one.
    orphans: Vec<usize>,
}

/// The tables that jumps go through, by the jump's number; none where one may be come to without what says how far it reaches.
fn known_tables<'b>(
    instructions: &[Instruction],
    bytes: impl Fn(Range<u64>) -> Option<&'b [u8]>,
) -> HashMap<usize, Table> {
    let mut known = HashMap::new();
    let mut left = MAX_CASES;
    let jumps = instructions.iter().enumerate();
    for (at, _) in jumps.filter(|(_, jump)| jump.flow_control() == FlowControl::IndirectBranch) {
        let Some(table) = tables::of(instructions, at, &bytes) else {
            continue;
        };
        let Some(rest) = left.checked_sub(table.targets.len()) else {
            return HashMap::new();
        };
        left = rest;
        known.insert(at, table);
    }
    let mut targets: HashSet<u64> = instructions.iter().filter_map(direct_target).collect();
    targets.extend(known.values().flat_map(|table| table.targets.iter().copied()));
    let is_led_into = |table: &Table| {
        let mut midst = (table.passed.start + 1..=table.passed.end).map(|at| instructions[at].ip());
        midst.any(|address| targets.contains(&address))
    };
    if known.values().any(is_led_into) {
        return HashMap::new();
    }
    known
}

enum Ways {
    On([Option<usize>; 2]),
    Cases(Vec<usize>),
}

impl Graph {
    fn of(instructions: &[Instruction], tables: &HashMap<usize, Table>) -> Self {
        let position = |address: u64| instructions.binary_search_by_key(&address, Instruction::ip).ok();
        let anywhere = instructions.len();
        let mut reached = vec![false; instructions.len()];
        // It is where the code is entered, and no case of its own.
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        let mut next = Vec::with_capacity(instructions.len() + 1);
        for (at, instruction) in instructions.iter().enumerate() {
            if let Some(table) = tables.get(&at) {
                let cases: HashSet<usize> = table.targets.iter().filter_map(|at| position(*at)).collect();
                for &case in &cases {
                    reached[case] = true;
                }
                next.push(Ways::Cases(cases.into_iter().collect()));
                continue;
            }
            let target = direct_target(instruction).and_then(position);
            let after = position(instruction.next_ip());
            let ways = match instruction.flow_control() {
                FlowControl::Return | FlowControl::Exception => [None, None],
                FlowControl::UnconditionalBranch => [target, None],
                FlowControl::IndirectBranch => [Some(anywhere), None],
                FlowControl::ConditionalBranch => [target, after],
                // Calls return; what does not is followed by code that something else leads to.
                _ => [after, None],
            };
            for way in ways.into_iter().flatten().filter(|&way| way != anywhere) {
                reached[way] = true;
            }
            next.push(Ways::On(ways));
        }
        next.push(Ways::On([None, None]));
        let orphans = (0..reached.len()).filter(|&at| !reached[at]).collect();
        Self { next, orphans }
    }

    fn way(&self, node: usize, number: usize) -> Option<usize> {
        if node + 1 == self.next.len() {
            return self.orphans.get(number).copied();
        }
        match &self.next[node] {
            Ways::On(ways) => ways.iter().flatten().nth(number).copied(),
            Ways::Cases(cases) => cases.get(number).copied(),
        }
    }

    /// Tarjan's strongly connected components, without recursion.
    fn components(&self) -> Vec<u32> {
        const NONE: usize = usize::MAX;
        let count = self.next.len();
        let (mut found, mut low) = (vec![NONE; count], vec![0usize; count]);
        let mut component = vec![u32::MAX; count];
        let (mut open, mut path): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        let (mut time, mut components) = (0, 0u32);
        for start in 0..count {
            if found[start] != NONE {
                continue;
            }
            path.push((start, 0));
            while let Some(&(node, way)) = path.last() {
                if way == 0 && found[node] == NONE {
                    (found[node], low[node]) = (time, time);
                    time += 1;
                    open.push(node);
                }
                if let Some(to) = self.way(node, way) {
                    if let Some(top) = path.last_mut() {
                        top.1 += 1;
                    }
                    if found[to] == NONE {
                        path.push((to, 0));
                    } else if component[to] == u32::MAX {
                        low[node] = low[node].min(found[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(before, _)) = path.last() {
                    low[before] = low[before].min(low[node]);
                }
                if low[node] == found[node] {
                    while let Some(member) = open.pop() {
                        component[member] = components;
                        if member == node {
                            break;
                        }
                    }
                    components += 1;
                }
            }
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use proptest::prelude::*;

    fn cycles(bytes: &[u8]) -> Cycles {
        Cycles::of(Code::decode(bytes, 0x1000).unwrap().instructions(), |_| None)
    }

    #[test]
    fn a_jump_back_is_a_loop_only_where_it_is_reached_again() {
        // nop; dec eax; jnz to the dec; ret
        let looped = cycles(&[0x90, 0xff, 0xc8, 0x75, 0xfc, 0xc3]);
        assert!(looped.join(0x1003, 0x1001));
        assert!(!looped.join(0x1003, 0x1000));
        // test eax, eax; jz to the nop; ret; nop; jmp to the ret
        let moved = cycles(&[0x85, 0xc0, 0x74, 0x01, 0xc3, 0x90, 0xeb, 0xfc]);
        assert!(!moved.join(0x1006, 0x1004));
        // The case of a switch: jmp rax; nop; jmp to the first.
        let switched = cycles(&[0xff, 0xe0, 0x90, 0xeb, 0xfb]);
        assert!(switched.join(0x1003, 0x1000));
    }

    #[test]
    fn one_switch_behind_another_is_no_loop() {
        // cmp edi,1; ja to the ret; lea rdx,[table]; mov edi,edi; movslq rax,[rdx+4*rdi]; add rax,rdx; jmp rax
        let switch = |table: u64, from: u64, end: u8| {
            let mut code = vec![0x83, 0xff, 1, 0x77, end, 0x48, 0x8d, 0x15];
            code.extend(u32::try_from(table - (from + 12)).unwrap().to_le_bytes());
            code.extend([0x89, 0xff, 0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0]);
            code
        };
        // The second comes first, and its cases lead back to the other, whose are a nop each, and the ret.
        let mut code = vec![0xeb, 26];
        code.extend(switch(0x2008, 0x1002, 20));
        code.extend([0x90, 0x90, 0xc3]);
        assert_eq!(code.len(), 28);
        code.extend(switch(0x2000, 0x101c, 0xfa));
        code.extend([0x90, 0xeb, 0xcc]);
        let table = |cases: [u64; 2], table: u64| {
            cases.map(|case| {
                u32::try_from(case)
                    .unwrap()
                    .wrapping_sub(u32::try_from(table).unwrap())
                    .to_le_bytes()
            })
        };
        let tables = [table([0x1033, 0x1034], 0x2000), table([0x1019, 0x101a], 0x2008)]
            .concat()
            .concat();
        let bytes = |range: Range<u64>| {
            let [start, end] =
                [range.start, range.end].map(|at| usize::try_from(at.checked_sub(0x2000)?).ok());
            tables.get(start?..end?)
        };
        let code = Code::decode(&code, 0x1000).unwrap();
        let instructions = code.instructions();
        let back = instructions
            .iter()
            .find(|instruction| instruction.ip() == 0x1034)
            .unwrap();
        let target = direct_target(back).unwrap();
        assert_eq!(target, 0x1002);
        assert!(!Cycles::of(instructions, bytes).join(0x1034, target));
        // Where the tables are not known, any may lead anywhere.
        assert!(Cycles::of(instructions, |_| None).join(0x1034, target));
    }

    proptest! {
        #[test]
        fn instructions_that_reach_each_other_share_a_number(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
            let Ok(code) = Code::decode(&bytes, 0x1000) else { return Ok(()) };
            let graph = Graph::of(code.instructions(), &HashMap::new());
            let reaches = |from: usize| {
                let mut seen = vec![false; graph.next.len()];
                let mut left = vec![from];
                while let Some(node) = left.pop() {
                    for to in (0..).map_while(|number| graph.way(node, number)) {
                        if !std::mem::replace(&mut seen[to], true) {
                            left.push(to);
                        }
                    }
                }
                seen
            };
            let reached: Vec<Vec<bool>> = (0..graph.next.len()).map(reaches).collect();
            let numbers = graph.components();
            for a in 0..numbers.len() {
                for b in 0..numbers.len() {
                    let together = a == b || (reached[a][b] && reached[b][a]);
                    prop_assert_eq!(numbers[a] == numbers[b], together, "{} {}", a, b);
                }
            }
        }
    }
}
