//! How long large programs take. Run by hand, in release mode:
//! `PLAN_FILE=/path cargo test --release -p profiler-daemon --test plan_large -- --ignored --nocapture`

use std::{sync::Arc, time::Instant};

use profiler_plan::{ModuleIndex, dwarf::DebugIndex, hazards::ModuleHazards};
use profiler_scope::Name;

#[test]
#[ignore = "a measurement, of the file that PLAN_FILE names"]
fn measure() {
    let path = std::env::var("PLAN_FILE").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // SAFETY: the file is not changed while this test, which is run by hand, maps it.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    println!("{path}: {} MB", map.len() / 1_000_000);
    let bytes = Arc::new(map);
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
