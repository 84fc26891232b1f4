//! From a line to its conditional jumps, and the lines that they lead to.
//!
//! A jump is the line's where the line table says so of its instruction: in each instance of an inlined function, and in
//! each clone. Which way it goes the flags say just before it; where it leads may be reached by other ways as well.

mod targets;

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::condition::Condition;

use super::{
    functions::ModuleIndex,
    held::{Holder, each_holder, listed, nearest_lines},
    instruction::{InstructionSite, Obstacle, instruction_at},
    lines::{self, LineCode, LineError, MAX_SITES},
    source::{find::with_dwarf, flow::Jump, ranges::Ranges, units::Reader},
};
use targets::Views;

/// Jumps on other lines that are looked at for the nearest.
const MAX_ELSEWHERE: usize = 1_000;

/// A conditional jump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchSite {
    /// The jump's instruction.
    pub jump: InstructionSite,
    /// When it is taken.
    pub condition: Condition,
    /// The function that it is in, as it is shown; that into which, where what it is in is inlined.
    pub function: String,
    /// Where it leads when it is taken.
    pub taken: Target,
    /// Where it goes on when it is not.
    pub otherwise: Target,
}

/// Where a jump leads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// In the file's address space.
    pub address: u64,
    /// The path of the source file, as the compiler was given it; empty where unknown.
    pub file: String,
    /// The line, as the function that the jump is in shows it: of code that is inlined, that of its call. 0 where
    /// unknown, and of another function.
    pub line: u32,
}

/// Why a jump is no site.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// `loop`, `jrcxz` and their like.
    #[error("{0} tests a register, not only the flags")]
    NotByFlags(String),
    /// It cannot be probed.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
}

/// A jump that cannot be probed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The address of its instruction in the file's address space.
    pub address: u64,
    /// The function that it is in.
    pub function: String,
    /// What is in the way.
    pub reason: Reason,
}

/// The conditional jumps of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBranches {
    /// The file's whole path, as the compiler was given it.
    pub file: String,
    /// By address; there are some.
    pub sites: Vec<BranchSite>,
    /// Those that are no sites, by address.
    pub left_out: Vec<LeftOut>,
    /// What could not be read of the functions that hold the line.
    pub missing: Vec<String>,
}

/// Why there is no branch to probe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BranchError {
    /// There is no such line.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The line decides nothing, or without a jump.
    #[error("{}", no_branches(.file, *.line, .nearest))]
    NoBranches {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// Lines of the same file nearby, in the same functions, that have branches.
        nearest: Vec<u64>,
    },
    /// None of the jumps can be probed.
    #[error("the branch at line {line} of {file}, in {function}, cannot be probed: {reason}")]
    Unusable {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// The function that one of them is in.
        function: String,
        /// What is in the way there.
        reason: Reason,
    },
    /// Nothing was found, but not everything could be read.
    #[error("the branches at line {line} of {file} could not be determined: {reason}")]
    Unread {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// What could not be read.
        reason: String,
    },
}

fn no_branches(file: &str, line: u64, nearest: &[u64]) -> String {
    let text = format!("line {line} of {file} has no conditional jump");
    if nearest.is_empty() {
        text
    } else {
        format!("{text}; the nearest lines with one: {}", listed(nearest))
    }
}

/// Finds the conditional jumps of a line. The file is given by the last components of its path.
///
/// # Errors
/// See [`BranchError`].
pub fn find(module: &ModuleIndex, file: &str, line: u64) -> Result<FoundBranches, BranchError> {
    let code = lines::code(module, file, line)?;
    let found = with_dwarf(module, |reader| {
        let mut search = Search {
            module,
            code: Ranges::new(code.rows.iter().cloned()),
            sites: BTreeMap::new(),
            left_out: BTreeMap::new(),
            elsewhere: Vec::new(),
            missing: BTreeSet::new(),
        };
        search.run(reader, &code);
        search.finish(reader, code.file, line)
    });
    // It has been read before.
    found.unwrap_or(Err(BranchError::Line(LineError::NoLines)))
}

struct Search<'m> {
    module: &'m ModuleIndex,
    code: Ranges,
    sites: BTreeMap<u64, BranchSite>,
    left_out: BTreeMap<u64, LeftOut>,
    /// Jumps on other lines.
    elsewhere: Vec<u64>,
    missing: BTreeSet<String>,
}

impl Search<'_> {
    fn run(&mut self, reader: &mut Reader<'_, '_>, code: &LineCode) {
        each_holder(self.module, reader, &code.rows, |reader, mut holder| {
            self.missing.extend(std::mem::take(&mut holder.flow.notes));
            let jumps = std::mem::take(&mut holder.flow.jumps);
            let (own, others): (Vec<Jump>, Vec<Jump>) = jumps
                .into_iter()
                .filter(|jump| jump.next.is_some())
                .partition(|jump| self.code.contains(jump.address));
            let room = MAX_ELSEWHERE.saturating_sub(self.elsewhere.len());
            self.elsewhere
                .extend(others.iter().map(|jump| jump.address).take(room));
            if own.is_empty() {
                return;
            }
            let mut views = Views::of(reader, &mut holder);
            for jump in own {
                if self.sites.len() + self.left_out.len() > MAX_SITES {
                    break;
                }
                self.add(reader, &holder, &mut views, &jump);
            }
        });
        if reader.budget.is_short() {
            self.missing.insert(
                "the file has too much code or debug information for this request: not all of it was read"
                    .to_owned(),
            );
        }
    }

    fn add(&mut self, reader: &mut Reader<'_, '_>, holder: &Holder, views: &mut Views, jump: &Jump) {
        let function = reader.budget.text(&holder.name);
        match self.decode(holder, jump) {
            Ok((instruction, condition)) => {
                let (taken, otherwise) = (jump.target, instruction.end());
                let site = BranchSite {
                    jump: instruction,
                    condition,
                    function,
                    taken: views.target(reader, jump.address, taken),
                    otherwise: views.target(reader, jump.address, otherwise),
                };
                self.sites.insert(jump.address, site);
            }
            Err(reason) => {
                let left_out = LeftOut {
                    address: jump.address,
                    function,
                    reason,
                };
                self.left_out.insert(jump.address, left_out);
            }
        }
    }

    fn decode(&self, holder: &Holder, jump: &Jump) -> Result<(InstructionSite, Condition), Reason> {
        let end = holder.end_of(jump.address).unwrap_or(u64::MAX);
        let (instruction, site) = instruction_at(self.module, jump.address, end)?;
        // The opcode is the last byte before the distance.
        let distance = match () {
            () if instruction.is_jcc_short() => 1,
            () if instruction.is_jcc_near() => 4,
            () => return Err(Reason::NotByFlags(site.mnemonic)),
        };
        let opcode = site
            .end()
            .checked_sub(distance + 1)
            .and_then(|at| self.module.code(at..at.checked_add(1)?))
            .and_then(<[u8]>::first)
            .ok_or(Obstacle::NotInFile(jump.address))?;
        Ok((site, Condition::from_number(*opcode)))
    }

    fn finish(
        self,
        reader: &mut Reader<'_, '_>,
        file: String,
        line: u64,
    ) -> Result<FoundBranches, BranchError> {
        if self.sites.len() + self.left_out.len() > MAX_SITES {
            return Err(LineError::TooMany { file, line }.into());
        }
        if !self.sites.is_empty() {
            return Ok(FoundBranches {
                file,
                sites: self.sites.into_values().collect(),
                left_out: self.left_out.into_values().collect(),
                missing: self.missing.into_iter().collect(),
            });
        }
        if let Some(LeftOut { function, reason, .. }) = self.left_out.into_values().next() {
            return Err(BranchError::Unusable {
                file,
                line,
                function,
                reason,
            });
        }
        if let Some(reason) = self.missing.into_iter().next() {
            return Err(BranchError::Unread { file, line, reason });
        }
        let nearest = nearest_lines(reader, &self.elsewhere, (&file, line));
        Err(BranchError::NoBranches { file, line, nearest })
    }
}
