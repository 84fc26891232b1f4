//! How long large programs take, and which of their functions cannot be probed. Run by hand, in release mode:
//! `PLAN_FILE=/path cargo test --release -p profiler-plan --test large -- --ignored --nocapture`

use std::{collections::BTreeMap, io, sync::Arc, time::Instant};

use memmap2::Mmap;
use profiler_plan::{
    Limits, ModuleIndex,
    dwarf::DebugIndex,
    hazards::{Decision, KernelAbility, Method, ModuleHazards},
    ifuncs::Choices,
    plan,
};
use profiler_scope::Name;

/// The file that `PLAN_FILE` names, with its path.
fn mapped() -> io::Result<(String, Arc<Mmap>)> {
    let path = std::env::var("PLAN_FILE").map_err(io::Error::other)?;
    let file = std::fs::File::open(&path)?;
    // SAFETY: the file is not changed while this test, which is run by hand, maps it.
    let map = unsafe { Mmap::map(&file) }?;
    println!("{path}: {} MB", map.len() / 1_000_000);
    Ok((path, Arc::new(map)))
}

#[test]
#[ignore = "a measurement, of the file that PLAN_FILE names"]
fn functions_that_cannot_be_probed_by_reason() {
    let (_, bytes) = mapped().unwrap();
    let index = ModuleIndex::new(bytes).unwrap();
    let by_instructions = Decision {
        method: Method::Ret,
        done_by_program: false,
        stacks_switch: false,
        reasons: Vec::new(),
        warnings: Vec::new(),
    };
    let plan = plan(
        &Name::Glob("*".into()),
        &[&index],
        &Choices::default(),
        &by_instructions,
        KernelAbility::default(),
        Limits {
            functions: usize::MAX,
        },
    )
    .unwrap();
    // The reasons differ in addresses and instructions.
    let mut reasons: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for skipped in &plan.skipped {
        let words = skipped.reason.split_whitespace();
        let words = words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
        let reason: Vec<&str> = words.take(8).collect();
        let of_it = reasons.entry(reason.join(" ")).or_default();
        of_it.0 += 1;
        of_it.1.clone_from(&skipped.name);
    }
    println!("{:>30} {}", "probed", plan.functions.len());
    for (reason, (number, example)) in reasons {
        println!("{number:>30} {reason} …: {example}");
    }
}

#[test]
#[ignore = "a measurement, of the file that PLAN_FILE names"]
fn measure() {
    let (path, bytes) = mapped().unwrap();
    let timed =
        |what: &str, start: Instant| println!("{what:>30} {:8.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for _ in 0..3 {
        let start = Instant::now();
        let index = ModuleIndex::new(bytes.clone()).unwrap();
        timed("symbols", start);
        println!("{:>30} {}", "functions", index.len());
        for name in ["main", "handle_request", "parse_*", "new", "*"] {
            let start = Instant::now();
            let name = if name.contains('*') {
                Name::Glob(name.into())
            } else {
                Name::Exact(name.into())
            };
            let found = index.matching(&name).len();
            timed(&format!("{name} ({found})"), start);
        }
        let start = Instant::now();
        let near = index.nearest(&Name::Exact("handel_requets".into()), 5);
        timed(&format!("nearest ({})", near.len()), start);
        let start = Instant::now();
        ModuleHazards::scan(&path, &bytes).unwrap();
        timed("hazards", start);
    }
    let start = Instant::now();
    let debug = DebugIndex::new(&bytes).unwrap();
    timed(&format!("DWARF ({} functions)", debug.functions.len()), start);
}
