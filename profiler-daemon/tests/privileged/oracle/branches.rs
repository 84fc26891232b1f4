//! The conditional jumps of a program with debug information, as objdump tells them, and which way each goes.

use std::{collections::BTreeMap, path::Path, process::Command, time::Instant};

use profiler_daemon::session::FunctionInfo;
use profiler_testkit::Random;

use super::{
    super::programs::Running,
    ANSWERS, RATE_HZ,
    jump_events::JumpEvents,
    trace::{AtJump, Truth},
};

/// Lines that are watched.
const WATCHED_LINES: usize = 4;

/// A conditional jump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jump {
    /// In the file's address space.
    pub address: u64,
    /// In the file.
    pub offset: u64,
    /// Its mnemonic.
    condition: String,
}

impl Jump {
    /// Whether it is taken with these flags, as Intel's manual has it; `None` of one that tests something else.
    fn is_taken(&self, flags: u64) -> Option<bool> {
        let flag = |bit: u32| flags & 1 << bit != 0;
        let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
        Some(match &*self.condition {
            "ja" => !carry && !zero,
            "jae" => !carry,
            "jb" => carry,
            "jbe" => carry || zero,
            "je" => zero,
            "jne" => !zero,
            "jg" => !zero && sign == overflow,
            "jge" => sign == overflow,
            "jl" => sign != overflow,
            "jle" => zero || sign != overflow,
            "jo" => overflow,
            "jno" => !overflow,
            "jp" => parity,
            "jnp" => !parity,
            "js" => sign,
            "jns" => !sign,
            _ => return None,
        })
    }
}

/// A line of a function with conditional jumps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Number of the function among those that are watched.
    pub function: usize,
    /// The last components of the file's path.
    file: String,
    number: u64,
    /// All that the function has of it.
    pub jumps: Vec<Jump>,
}

impl Line {
    /// A way that it goes as a step of a scope.
    pub fn step(&self, taken: bool) -> String {
        let way = if taken { "taken" } else { "else" };
        format!("\"{}\":{}!{way}", self.file, self.number)
    }
}

/// The lines that are watched.
#[derive(Default)]
pub struct Branches {
    pub lines: Vec<Line>,
}

impl Branches {
    /// Random lines with conditional jumps of these functions, of those that are come to as often as can be written down.
    pub fn choose(running: &Running, watched: &[FunctionInfo], random: &mut Random) -> Self {
        let lines = watched
            .iter()
            .enumerate()
            .flat_map(|(number, function)| lines_of(number, function));
        let all = Self {
            lines: lines.collect(),
        };
        if all.lines.is_empty() {
            return all;
        }
        let events = all.events(watched);
        let began = Instant::now();
        running.wait(ANSWERS, "while jumps are counted");
        let counted_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
        let truth = Truth::of(events.end().0);
        let mut first = 0;
        let mut lines: Vec<(Line, u64)> = Vec::new();
        for line in all.lines {
            let jumps = first..first + line.jumps.len();
            first = jumps.end;
            let rate_hz = truth.at_jumps(jumps).count() as u64 * 1_000 / counted_ms;
            if RATE_HZ.contains(&rate_hz) {
                lines.push((line, rate_hz));
            }
        }
        let mut chosen = Self::default();
        while chosen.lines.len() < WATCHED_LINES && !lines.is_empty() {
            let (line, rate_hz) = lines.swap_remove(random.below(lines.len()));
            println!("{}: {rate_hz} a second", line.step(true));
            chosen.lines.push(line);
        }
        chosen
    }

    /// What the kernel writes down of all jumps, by their number.
    pub fn events(&self, watched: &[FunctionInfo]) -> JumpEvents {
        let jumps = self.lines.iter().flat_map(|line| {
            let module = Path::new(&watched[line.function].module);
            line.jumps.iter().map(move |jump| (module, jump))
        });
        JumpEvents::start(jumps)
    }

    /// The times that a line went one way.
    pub fn went<'a>(&self, truth: &'a Truth, line: usize, taken: bool) -> Vec<&'a AtJump> {
        let first: usize = self.lines[..line].iter().map(|line| line.jumps.len()).sum();
        let jumps = &self.lines[line].jumps;
        let went = truth.at_jumps(first..first + jumps.len());
        went.filter(|at| jumps[at.jump - first].is_taken(at.flags) == Some(taken))
            .collect()
    }
}

/// The lines of a function that have conditional jumps which go by the flags.
fn lines_of(number: usize, function: &FunctionInfo) -> Vec<Line> {
    let end = function.address + function.size;
    let output = Command::new("objdump")
        .args([
            "--disassemble",
            "--line-numbers",
            "--file-offsets",
            "--no-show-raw-insn",
        ])
        .arg(format!("--start-address={:#x}", function.address))
        .arg(format!("--stop-address={end:#x}"))
        .arg(&function.module)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    parse(number, &String::from_utf8_lossy(&output.stdout))
}

/// Where a symbol begins, in the address space and in the file: `0000000000153c30 <parse_request> (File Offset: 0x152c30):`.
fn begin(text: &str) -> Option<(u64, u64)> {
    let (address, symbol) = text.split_once(" <")?;
    let (_, offset) = symbol.strip_suffix("):")?.rsplit_once("(File Offset: 0x")?;
    Some((
        u64::from_str_radix(address, 16).ok()?,
        u64::from_str_radix(offset, 16).ok()?,
    ))
}

fn parse(function: usize, listing: &str) -> Vec<Line> {
    let mut lines: BTreeMap<(String, u64), Vec<Jump>> = BTreeMap::new();
    let (mut at, mut offset_at) = (None, 0_u64);
    for text in listing.lines() {
        if let Some((address, offset)) = begin(text) {
            // By how much addresses differ from places in the file.
            offset_at = offset.wrapping_sub(address);
        } else if let Some((address, instruction)) = text.trim_start().split_once(":\t") {
            let mnemonic = instruction.split([' ', ',']).next().unwrap_or_default();
            let (Some(place), Ok(address)) = (&at, u64::from_str_radix(address, 16)) else {
                continue;
            };
            let jump = Jump {
                address,
                offset: address.wrapping_add(offset_at),
                condition: mnemonic.to_owned(),
            };
            if mnemonic.starts_with('j') && !mnemonic.starts_with("jmp") {
                lines.entry(Clone::clone(place)).or_default().push(jump);
            }
        } else if let Some((path, number)) = text
            .split_once(" (")
            .map_or(text, |(place, _)| place)
            .rsplit_once(':')
            && let Ok(number) = number.parse::<u64>()
        {
            let components: Vec<&str> = path.rsplit('/').take(3).collect();
            let file: Vec<&str> = components.into_iter().rev().collect();
            at = Some((file.join("/"), number));
        }
    }
    let by_flags = |jumps: &[Jump]| jumps.iter().all(|jump| jump.is_taken(0).is_some());
    lines
        .into_iter()
        .filter(|((_, number), jumps)| *number > 0 && by_flags(jumps))
        .map(|((file, number), jumps)| Line {
            function,
            file,
            number,
            jumps,
        })
        .collect()
}

#[test]
fn jumps_are_those_of_their_line() {
    let listing = "
0000000000153c30 <parse_request> (File Offset: 0x152c30):
parse_request():
/a/demo/src/handler.rs:83
  153c30:\tsub    $0x28,%rsp
/a/demo/src/handler.rs:86 (discriminator 2)
  153c40:\tja     153c60 <parse_request+0x30> (File Offset: 0x152c60)
  153c42:\tjmp    153c60 <parse_request+0x30> (File Offset: 0x152c60)
  153c44:\tjrcxz  153c60 <parse_request+0x30> (File Offset: 0x152c60)
/a/demo/src/handler.rs:89
  153c48:\tjne    153c60 <parse_request+0x30> (File Offset: 0x152c60)
/a/demo/src/handler.rs:90
  153c4a:\tjb,pn  153c60 <parse_request+0x30> (File Offset: 0x152c60)
/a/demo/src/handler.rs:89
  153c4c:\tje     153c60 <parse_request+0x30> (File Offset: 0x152c60)
";
    let jump = |address, condition: &str| Jump {
        address,
        offset: address - 0x1000,
        condition: condition.to_owned(),
    };
    let line = |number, jumps| Line {
        function: 7,
        file: "demo/src/handler.rs".to_owned(),
        number,
        jumps,
    };
    let expected = [
        line(89, vec![jump(0x15_3c48, "jne"), jump(0x15_3c4c, "je")]),
        line(90, vec![jump(0x15_3c4a, "jb")]),
    ];
    assert_eq!(
        parse(7, listing),
        expected,
        "a jump by a register is no branch by the flags"
    );
}
