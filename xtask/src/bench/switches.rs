//! `cargo xtask bench --switches`: what a switch between threads costs while time off the CPU is looked at.

use std::{fmt::Write as _, thread, time::Duration};

use serde_json::Value;

use super::{
    Arguments, bpftrace::Bpftrace, build_example, finish, fixture::Conversation, statistics::Statistics,
    table,
};
use crate::{
    error::{Error, Result},
    fixtures,
};

/// What looks, and at whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Nothing,
    /// An empty program at each of the tracepoints: nothing that sees all switches can cost less.
    Empty,
    Ours(Whom, Looks),
    Bpftrace(Whom, Looks),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// The process that switches.
    It,
    /// A process that sleeps.
    Another,
}

/// At what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Where threads leave the CPU, and for how long.
    OffCpu,
    /// And who wakes them.
    Waits,
}

const CASES: [(Case, &str); 8] = [
    (Case::Nothing, "nothing"),
    (Case::Empty, "an empty program at each tracepoint"),
    (
        Case::Ours(Whom::Another, Looks::Waits),
        "`flame --waits` of another process",
    ),
    (
        Case::Bpftrace(Whom::Another, Looks::Waits),
        "bpftrace, of another process",
    ),
    (
        Case::Ours(Whom::It, Looks::OffCpu),
        "`flame --off-cpu` of this process",
    ),
    (
        Case::Bpftrace(Whom::It, Looks::OffCpu),
        "bpftrace, of this process, one stack",
    ),
    (
        Case::Ours(Whom::It, Looks::Waits),
        "`flame --waits` of this process",
    ),
    (
        Case::Bpftrace(Whom::It, Looks::Waits),
        "bpftrace, of this process, both stacks",
    ),
];

/// Batches that one figure is the median of, and the questions in each; each takes two switches and two wake-ups.
const BATCHES: u32 = 9;
const ASKS: u32 = 1_000;
/// Between batches, so that what stacks may take at once (`profiler_common::limits::STACK_BURST_NS`) is enough for each: a
/// switch without its stack costs less, and is not what is asked.
const PAUSE: Duration = Duration::from_millis(250);
const A_PAIR: f64 = 2.0;

/// All that can be looked at.
pub const LOOKS: [Looks; 2] = [Looks::OffCpu, Looks::Waits];

impl Looks {
    /// As `bench_switches` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OffCpu => "off-cpu",
            Self::Waits => "waits",
        }
    }
}

/// What one case took, a figure a round, of a switch with its wake-up.
#[derive(Debug, Default)]
struct Row {
    /// By the process's own clock.
    clock_ns: Vec<f64>,
    /// Of programs, as the kernel measures them.
    programs_ns: Vec<f64>,
    /// Of what was to be recorded, what was not, in percent.
    lost_percent: Vec<f64>,
}

/// Measures, and shows the table.
pub fn main(arguments: &Arguments) -> Result<()> {
    let directory = fixtures::compile()?;
    let mut looker = Conversation::start(&build_example("bench_switches")?, &[])?;
    looker.hear()?;
    let mut target = Conversation::start(&directory.join("switches"), &["bench"])?;
    target.hear()?;
    let mut other = Conversation::start(&directory.join("switches"), &["bench"])?;
    other.hear()?;
    let mut rows: Vec<Row> = CASES.iter().map(|_| Row::default()).collect();
    for round in 1..=arguments.rounds {
        for ((case, name), row) in CASES.iter().zip(&mut rows) {
            let pid = |whom: Whom| match whom {
                Whom::It => target.pid(),
                Whom::Another => other.pid(),
            };
            let bpftrace = match *case {
                Case::Nothing => None,
                Case::Empty => looker.ask("empty").map(|_| None)?,
                Case::Ours(whom, looks) => {
                    let watch = format!("watch {} {}", pid(whom), looks.name());
                    looker.ask(&watch).map(|_| None)?
                }
                Case::Bpftrace(whom, looks) => Some(Bpftrace::off_cpu(pid(whom), looks)?),
            };
            // Measuring programs takes time too: the clock is read without.
            let clock_ns = ask(&mut target)? / A_PAIR;
            let programs_ns = programs_of_a_switch_ns(&mut looker, &mut target)?;
            let seen = looker.ask("detach")?;
            bpftrace.map_or(Ok(()), Bpftrace::detach)?;
            println!("round {round}, {name}: {clock_ns:.0} ns, of programs {programs_ns:.0} ns");
            row.clock_ns.push(clock_ns);
            row.programs_ns.push(programs_ns);
            if let (Some(drawn), Some(lost)) = (seen["drawn"].as_f64(), seen["lost"].as_f64()) {
                row.lost_percent.push(lost * 100.0 / (drawn + lost).max(1.0));
            }
        }
    }
    other.end()?;
    target.end()?;
    looker.end()?;
    finish(arguments, table::SWITCHES, &markdown(&rows)?)
}

/// Nanoseconds of one question.
fn ask(target: &mut Conversation) -> Result<f64> {
    let batches = (0..BATCHES).map(|_| {
        thread::sleep(PAUSE);
        let answer = target.ask(&format!("go {ASKS}"))?;
        let ask_ns = answer["ask_ns"].as_f64();
        ask_ns.ok_or_else(|| Error::told(format!("the fixture answered {answer}")))
    });
    Ok(table::median(&batches.collect::<Result<Vec<f64>>>()?))
}

/// What all programs take of a switch with its wake-up, by the kernel's own measure.
pub fn programs_of_a_switch_ns(looker: &mut Conversation, target: &mut Conversation) -> Result<f64> {
    let _statistics = Statistics::on()?;
    let before = programs_ns(looker)?;
    ask(target)?;
    Ok((programs_ns(looker)? - before) / f64::from(BATCHES * ASKS) / A_PAIR)
}

/// What all programs have taken by now.
fn programs_ns(looker: &mut Conversation) -> Result<f64> {
    let programs = looker.ask("programs")?;
    let rows = programs.as_object().into_iter().flat_map(|rows| rows.values());
    Ok(rows.filter_map(|row: &Value| row["time_ns"].as_f64()).sum())
}

fn markdown(rows: &[Row]) -> Result<String> {
    let mut text = format!(
        "Nanoseconds of a switch between two threads on one CPU, with the wake-up of the other ({}): the median, lowest and \
         highest in brackets. Of programs is what the kernel's own measure says that all eBPF programs took of it. `--waits` and bpftrace with \
         both stacks take those of who leaves and of who wakes, `--off-cpu` and bpftrace with one that of who leaves: this by \
         unwind tables, bpftrace by frame pointers.\n\n\
         | looked at by | a switch | more than without | of programs | not recorded |\n|---|---|---|---|---|\n",
        table::machine()?
    );
    let without = rows.first().map_or(f64::NAN, |row| table::median(&row.clock_ns));
    for ((_, name), row) in CASES.iter().zip(rows) {
        let lost = match row.lost_percent.as_slice() {
            [] => String::new(),
            some => format!("{:.1}%", table::median(some)),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0} | {} | {lost} |",
            table::with_spread(&row.clock_ns),
            table::median(&row.clock_ns) - without,
            table::with_spread(&row.programs_ns)
        );
    }
    Ok(text)
}
