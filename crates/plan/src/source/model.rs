//! The source of a function and the places that can be probed in it, as data.

use std::ops::Range;

use super::{flow::Call, variables::Variable};

/// A function, or what is left of one that exists only inlined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionSource {
    /// The name that is shown.
    pub name: String,
    /// Its linkage name; empty where unknown.
    pub linkage_name: String,
    /// Its address in the file's address space; 0 where it exists only inlined.
    pub address: u64,
    /// Its size in bytes; 0 where it exists only inlined.
    pub size: u64,
    /// Where its code is: the function and its cold parts, or its instances.
    pub ranges: Vec<Range<u64>>,
    /// The path of its source file, as the compiler was given it; empty where unknown.
    pub file: String,
    /// The line of its declaration; 0 where unknown.
    pub line: u32,
    /// The last line of it that has code.
    pub last_line: u32,
    /// The MD5 of the source file, where the compiler noted it.
    pub md5: Option<[u8; 16]>,
    /// The places that it is inlined into, where it exists only so.
    pub instances: Vec<Instance>,
    /// The lines that have something, its own first, in order.
    pub lines: Vec<Line>,
    /// Its variables and parameters, and those of what is inlined into it.
    pub variables: Vec<Variable>,
    /// What is not known, and why.
    pub missing: Vec<String>,
}

/// A line of the source and what can be probed there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The path of the file where it is not the function's own; empty where it is.
    pub file: String,
    /// Counted from 1; 0 for code of no line.
    pub line: u32,
    /// The addresses at which it begins to run.
    pub sites: Vec<u64>,
    /// The addresses of its code, by address.
    pub code: Vec<Range<u64>>,
    /// By address.
    pub branches: Vec<Branch>,
    /// By address.
    pub calls: Vec<Call>,
    /// Where jumps of `switch`es lead to it, by address.
    pub cases: Vec<u64>,
    /// What is inlined here, and what is inlined into that.
    pub inlined: Vec<Instance>,
    /// The variables that can be read where it begins.
    pub variables: Vec<Readable>,
}

/// A conditional jump, or a jump back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The address of the instruction.
    pub address: u64,
    /// Its name.
    pub mnemonic: String,
    /// Where it jumps to.
    pub taken: Position,
    /// Where it goes on if it does not jump; `None` where it always does.
    pub otherwise: Option<Position>,
    /// Whether it jumps back to where it is reached from: that of a loop.
    pub is_loop: bool,
}

/// An address and its line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// In the file's address space.
    pub address: u64,
    /// The path of the file where it is not the function's own; empty where it is, or unknown.
    pub file: String,
    /// 0 where unknown.
    pub line: u32,
}

/// An inlined instance of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// What is inlined; of the instances of the function itself, what it is inlined into.
    pub name: String,
    /// The path of the file with the call; empty where it is the function's own.
    pub call_file: String,
    /// The line of the call; 0 where unknown.
    pub call_line: u32,
    /// Where its code is.
    pub ranges: Vec<Range<u64>>,
}

/// A variable that can be read where a line begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readable {
    /// Its number in [`FunctionSource::variables`].
    pub variable: usize,
    /// Whether it can be read at each place where the line begins.
    pub everywhere: bool,
}
