//! One program under gdb: stopped at its statements, read by both.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use gimli::{EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _};
use profiler_common::values::{Comparison, Kind, Outcome, State, run as interpret};
use profiler_plan::values::{
    DebugFile, DebugSections, Reading, Refusal, Returns, Site, Value, lower, render, require, require_text,
};
use profiler_scope::expression::parse;
use serde_json::{Value as Json, json};

use crate::{build::Program, compare::Tally, stopped::Stopped};

/// Conditions are tried on one in so many values.
const CONDITIONS_EVERY: usize = 5;

/// What was read at a function's first instruction and has to be seen again once the frame is set up.
struct AtStart {
    body: u64,
    /// Expressions, what we read, and how gdb differed.
    doubtful: Vec<(String, Reading, Vec<String>)>,
}

impl AtStart {
    /// Compares what was read with what gdb reads now, if this is the function's body.
    fn settle(self, program: &Program, site: Site, stop: &Json, tally: &mut Tally) {
        for (name, ours, difference) in self.doubtful {
            let place = format!("{} at the start of {}: {name}", program.name(), stop["function"]);
            match stop["values"].get(&name) {
                Some(theirs) if self.body == site.address => tally.compare_at_start(&place, &ours, theirs),
                _ => tally.differ.extend(difference),
            }
        }
    }
}

/// What is not to be compared at a function's first instruction: gdb reads there what is not stored yet, of
/// variables in the frame. Which of both is right is seen where it is stored. The rest is compared.
fn doubtful(
    program: &Program,
    file: &DebugFile<'_>,
    site: Site,
    theirs: &serde_json::Map<String, Json>,
    thread: &mut Stopped<'_>,
    tally: &mut Tally,
) -> Vec<(String, Reading, Vec<String>)> {
    let mut doubtful = Vec::new();
    for (name, theirs) in theirs {
        let ours = read(file, site, name, thread);
        let mut alone = Tally::default();
        if program.is_optimized() {
            let place = format!("{} {:#x}: {name}", program.name(), site.address);
            alone.compare(&place, &ours, theirs);
        }
        if program.is_optimized() && alone.differ.is_empty() {
            tally.add(&alone);
        } else {
            doubtful.push((name.clone(), ours, alone.differ));
        }
    }
    doubtful
}

/// gdb at the first instruction of a program, which waits to be told addresses.
fn gdb(path: &Path) -> Child {
    // The C library's debug files, where they are installed, would be read anew for every program.
    Command::new("gdb")
        .args(["-nx", "-q", "-batch"])
        .args(["-iex", "set debug-file-directory", "-iex", "set auto-load off"])
        .arg("-x")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/values/stop.py"))
        .arg(path)
        .env("DEBUGINFOD_URLS", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("gdb, which `cargo xtask setup` installs")
}

pub fn run(program: &Program, path: &Path, max_stops: usize) -> Tally {
    let bytes = std::fs::read(path).unwrap();
    let sections = DebugSections::load(&bytes, &bytes).unwrap();
    let file = DebugFile::new(&sections);
    let mut gdb = gdb(path);
    let mut answers = gdb.stdin.take().unwrap();
    let mut lines = BufReader::new(gdb.stdout.take().unwrap()).lines();
    // gdb has things of its own to say, too.
    let mut next = || -> Json {
        loop {
            let Some(line) = lines.next() else {
                panic!("gdb ended while it looked at {}", program.name());
            };
            let line = line.unwrap();
            if let Ok(said @ Json::Object(_)) = serde_json::from_str(&line) {
                return said;
            }
        }
    };
    let pid = next()["pid"].as_u64().unwrap();
    let bias = bias(pid, path, &bytes);
    let (mut addresses, starts) = statements(&bytes, program, max_stops);
    // Where each function begins, and where gdb's reading is first true of its arguments.
    let mut bodies = BTreeMap::new();
    for start in starts {
        if program.is_optimized() && !addresses.contains(&start) {
            continue;
        }
        if let Some(body) = file.body_start(start) {
            bodies.insert(start, body);
            addresses.extend([start, body]);
        }
    }
    let mut at_start: Option<AtStart> = None;
    let absolute: Vec<u64> = addresses.iter().map(|address| address + bias).collect();
    let told = json!({"addresses": absolute, "expressions": program.globals()});
    writeln!(answers, "{told}").unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut tally = Tally::default();
    loop {
        let stop = next();
        if stop.get("end").is_some() {
            break;
        }
        tally.stops += 1;
        let number = |value: &Json| value.as_str().unwrap().parse::<u64>().unwrap();
        let registers: Vec<u64> = stop["registers"].as_array().unwrap().iter().map(number).collect();
        let mut thread = Stopped {
            registers: registers.try_into().unwrap(),
            thread_pointer: number(&stop["fs_base"]),
            memory: &memory,
        };
        let site = Site {
            address: thread.registers[16] - bias,
            bias,
        };
        let theirs = stop["values"].as_object().unwrap();
        if let Some(before) = at_start.take() {
            before.settle(program, site, &stop, &mut tally);
        }
        if let Some(body) = bodies.get(&site.address) {
            let doubtful = doubtful(program, &file, site, theirs, &mut thread, &mut tally);
            at_start = Some(AtStart {
                body: *body,
                doubtful,
            });
            writeln!(answers, "go").unwrap();
            continue;
        }
        for (expression, theirs) in theirs {
            let ours = read(&file, site, expression, &mut thread);
            let place = format!(
                "{} {:#x} in {}: {expression}",
                program.name(),
                site.address,
                stop["function"]
            );
            tally.compare(&place, &ours, theirs);
            // Of every few values, because each takes four plans.
            if let Reading::Ok(Value::Variant { name, .. }) = &ours {
                tally.requirements += has_no_other_variant(&file, site, expression, name, &mut thread);
            }
            if let Reading::Ok(value) = &ours {
                tally.requirements += require_its_text(&file, site, expression, value, &mut thread);
            }
            if let (Reading::Ok(value), 0) = (&ours, expression.len() % CONDITIONS_EVERY) {
                tally.requirements += require_itself(&file, site, expression, value, &mut thread);
            }
        }
        writeln!(answers, "go").unwrap();
    }
    gdb.wait().unwrap();
    tally
}

fn read(file: &DebugFile<'_>, site: Site, expression: &str, thread: &mut Stopped<'_>) -> Reading {
    let parsed = match parse(expression) {
        Ok(parsed) => parsed,
        Err(error) => return Reading::Unsupported(error.to_string()),
    };
    match lower(file, site, &parsed) {
        Ok(lowered) => {
            let mut state = State::START;
            interpret(&lowered.plan, &mut state, thread);
            render(&lowered, &state)
        }
        Err(refusal) => refusal.into(),
    }
}

/// Conditions that hold of what was read, and those that do not, decided by the interpreter; how many.
fn require_itself(
    file: &DebugFile<'_>,
    site: Site,
    expression: &str,
    value: &Value,
    thread: &mut Stopped<'_>,
) -> u64 {
    let parsed = parse(expression).unwrap();
    let mut decide = |comparison: Comparison, above: bool| {
        let plan = require(file, site, &parsed, comparison, |_, kind| {
            Ok(match (value, kind) {
                (Value::Float(float), Kind::Float) => {
                    #[expect(clippy::cast_possible_truncation, reason = "it was read as a float")]
                    let float = *float as f32 + if above { 1.0 } else { 0.0 };
                    float.to_bits().into()
                }
                (Value::Float(float), _) => (float + if above { 1.0 } else { 0.0 }).to_bits(),
                (Value::Signed(number) | Value::Enumerator { number, .. }, _) => {
                    (i64::try_from(*number).unwrap().saturating_add(above.into())).cast_unsigned()
                }
                (Value::Unsigned(number), _) => u64::try_from(*number).unwrap().saturating_add(above.into()),
                (Value::Boolean(yes), _) => u64::from(*yes) + u64::from(above),
                (Value::Character(character), _) => u64::from(u32::from(*character)) + u64::from(above),
                (Value::Pointer(address), _) => address.saturating_add(above.into()),
                (Value::Text { pointer, .. }, _) => pointer.unwrap().saturating_add(above.into()),
                other => panic!("{expression}: {other:?}"),
            })
        });
        let mut state = State::START;
        interpret(&plan.ok()?, &mut state, thread);
        Some(state.outcome == Outcome::Ok as u8)
    };
    let Some(equal) = decide(Comparison::Equal, false) else {
        return 0;
    };
    let decided = [
        decide(Comparison::NotEqual, false),
        decide(Comparison::Less, false),
        decide(Comparison::LessOrEqual, true),
    ];
    let is_number = !matches!(value, Value::Float(float) if !float.is_finite());
    if is_number {
        assert_eq!(
            (equal, decided),
            (true, [Some(false), Some(false), Some(true)]),
            "{expression}: {value:?}"
        );
    }
    4
}

/// What an enum would hold if it had another variant is not shown; of how many.
fn has_no_other_variant(
    file: &DebugFile<'_>,
    site: Site,
    expression: &str,
    name: &str,
    thread: &mut Stopped<'_>,
) -> u64 {
    let of_none = parse(&format!("{expression}.none")).unwrap();
    let Err(Refusal::NoMember { members: names, .. }) = lower(file, site, &of_none) else {
        return 0;
    };
    let others = names.iter().filter(|other| *other != name);
    others
        .map(
            |other| match read(file, site, &format!("{expression}.{other}"), thread) {
                Reading::Ok(value) => panic!("{expression}: {name}, and also {other}: {value:?}"),
                Reading::Unreadable(reason) => u64::from(reason.contains("another variant")),
                _ => 0,
            },
        )
        .sum()
}

/// As [`require_itself`], of text as a whole.
fn require_its_text(
    file: &DebugFile<'_>,
    site: Site,
    expression: &str,
    value: &Value,
    thread: &mut Stopped<'_>,
) -> u64 {
    let text = match value {
        Value::Text {
            bytes,
            length: Some(length),
            ..
        } if bytes.len() as u64 == *length && bytes.len() < 90 => bytes.clone(),
        _ => return 0,
    };
    let parsed = parse(expression).unwrap();
    let mut holds = |comparison: Comparison, text: &[u8]| {
        let plan = require_text(file, site, Returns::AtInstruction, &parsed, comparison, text);
        let mut state = State::START;
        interpret(&plan.ok()?, &mut state, thread);
        Some(state.outcome == Outcome::Ok as u8)
    };
    let mut others = vec![[&text[..], b"x"].concat(), b"another".to_vec()];
    if let Some((last, before)) = text.split_last() {
        others.extend([before.to_vec(), [before, &[last ^ 1]].concat()]);
    }
    let both = [Comparison::Equal, Comparison::NotEqual];
    let mut decided = 0;
    let is_itself = both.map(|comparison| holds(comparison, &text));
    if is_itself[0].is_some() {
        assert_eq!(is_itself, [Some(true), Some(false)], "{expression}: {value:?}");
        decided += 2;
    }
    for other in others {
        let is_another = both.map(|comparison| holds(comparison, &other));
        // An array may have no room for it, and a changed character be the NUL.
        if is_another[0].is_some() && !other.ends_with(b"\0") {
            assert_eq!(
                is_another,
                [Some(false), Some(true)],
                "{expression}: {value:?}, {other:?}"
            );
            decided += 2;
        }
    }
    decided
}

/// What is added to the file's addresses in the process.
fn bias(pid: u64, path: &Path, bytes: &[u8]) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps
        .lines()
        .find(|line| line.ends_with(path.to_str().unwrap()))
        .unwrap();
    let start = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let elf = object::File::parse(bytes).unwrap();
    let lowest = object::Object::segments(&elf)
        .map(|segment| object::ObjectSegment::address(&segment))
        .min()
        .unwrap();
    start - (lowest & !0xfff)
}

/// Addresses of the fixture's statements, spread over all of them. Those in what sets up a function's frame are left
/// out of code that is not optimized: gdb reads there what is not stored yet.
fn statements(bytes: &[u8], program: &Program, most: usize) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let elf = object::File::parse(bytes).unwrap();
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, gimli::Error> {
        let section = elf.section_by_name(id.name());
        Ok(section.map_or(Cow::Borrowed(&[][..]), |section| {
            section.uncompressed_data().unwrap()
        }))
    };
    let sections = gimli::DwarfSections::load(load).unwrap();
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut addresses = BTreeSet::new();
    let mut all_starts = BTreeSet::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let mut entries = unit.entries();
        let mut starts = BTreeSet::new();
        while let Some(entry) = entries.next_dfs().unwrap() {
            if entry.tag() == gimli::DW_TAG_subprogram
                && let Some(range) = dwarf.die_ranges(&unit, entry).unwrap().next().unwrap()
            {
                starts.insert(range.begin);
            }
        }
        let Some(lines) = unit.line_program.clone() else {
            continue;
        };
        let mut rows = lines.rows();
        while let Some((header, row)) = rows.next_row().unwrap() {
            let name = row
                .file(header)
                .map(|file| dwarf.attr_string(&unit, file.path_name()).unwrap());
            if name.is_some_and(|name| name.to_string_lossy().ends_with(program.source))
                && row.is_stmt()
                && !row.end_sequence()
                && row.line().is_some()
                && row.address() > 0x100
            {
                if starts.contains(&row.address()) {
                    all_starts.insert(row.address());
                }
                if program.is_optimized() || !starts.contains(&row.address()) {
                    addresses.insert(row.address());
                }
            }
        }
    }
    let addresses: Vec<u64> = addresses.into_iter().collect();
    let every = addresses.len().div_ceil(most).max(1);
    // Not always the same statements of the same source.
    let first = program.name().len() % every;
    let chosen = addresses.into_iter().skip(first).step_by(every).collect();
    (chosen, all_starts)
}
