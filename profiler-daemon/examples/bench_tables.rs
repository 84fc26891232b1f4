//! What unwind tables take to make and to keep: `bench_tables FILE...` prints a line of JSON for each file.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::{fs::File, time::Instant};

use profiler_target::contents::Contents;
use profiler_unwind as unwind;

/// Times that each table is made.
const ROUNDS: usize = 5;

fn main() {
    for path in std::env::args().skip(1) {
        let file = File::open(&path).unwrap();
        let contents = Contents::of(&file).unwrap();
        let bytes = contents.as_ref();
        let mut took_ms: Vec<f64> = Vec::new();
        let mut table = None;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            table = Some(unwind::build(bytes).unwrap());
            took_ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        took_ms.sort_by(f64::total_cmp);
        let table = table.unwrap();
        let size = size_of_val(table.rows.as_slice())
            + size_of_val(table.rules.as_slice())
            + table.pages() * size_of::<profiler_common::unwind::Page>();
        println!(
            "{}",
            serde_json::json!({
                "file": path,
                "file_bytes": bytes.len(),
                "rows": table.rows.len(),
                "table_bytes": size,
                "build_ms": took_ms[ROUNDS / 2],
            })
        );
    }
}
