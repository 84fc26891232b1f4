//! How many programs and libraries set the stack pointer by hand, and how long it takes to tell. Run by hand, in release mode:
//! `PLAN_DIRECTORIES=/usr/bin:/usr/lib cargo test --release -p profiler-plan --test set_by_hand -- --ignored --nocapture`

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use profiler_elf::Elf;
use profiler_plan::hazards::{Hazards, ModuleHazards};

#[test]
#[ignore = "a measurement, of the files in PLAN_DIRECTORIES"]
fn measure() {
    let directories = std::env::var("PLAN_DIRECTORIES").unwrap();
    let mut files = BTreeSet::new();
    for directory in directories.split(':') {
        add_files(Path::new(directory), &mut files);
    }
    let (mut count, mut switches, mut others, mut code_bytes) = (0, 0, 0, 0);
    let mut time = Duration::ZERO;
    for path in files {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(elf) = Elf::parse(&bytes) else { continue };
        count += 1;
        code_bytes += elf
            .mapped_code()
            .iter()
            .map(|code| code.bytes.len())
            .sum::<usize>();
        let shown = path.to_string_lossy();
        let start = Instant::now();
        let found = ModuleHazards::scan(&shown, &bytes).unwrap();
        time += start.elapsed();
        let hazards = Hazards::of([(&*shown, &found)]);
        if let Some(evidence) = hazards.stack_switch.filter(|found| found.sign.contains("rsp")) {
            switches += 1;
            println!("switch: {} in {}", evidence.sign, evidence.module);
        }
        if let Some(evidence) = hazards.stack_pointer {
            others += 1;
            println!("other: {} in {}", evidence.sign, evidence.module);
        }
    }
    println!("{count} files, {switches} with a switch, {others} with another load");
    println!(
        "{:.2} ms for each of {} MB of code, symbols included",
        time.as_secs_f64() * 1e9 / code_bytes as f64,
        code_bytes / 1_000_000
    );
}

fn add_files(directory: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => add_files(&entry.path(), files),
            Ok(kind) if kind.is_file() => {
                files.insert(entry.path());
            }
            _ => {}
        }
    }
}
