//! Processes and libraries that come and go for as long as one cares to wait: `PROFILER_CHURN_S` seconds, half a minute
//! where nothing is said. What the profiler holds stays the same, and every name is that of the code that ran.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use profiler_daemon::session::FlamePicture;

use super::{
    fixture::{Fixture, directory, long_scale, small_scale},
    memory,
    service::Service,
    skipped,
    stacks_late::swapped_ms,
    stacks_target::EMULATED,
};

/// Libraries that a process loads, one after the other, and samples that each has to have.
const LIBRARIES: u32 = 3;
const ENOUGH: u64 = 20;

const FREQUENCY_HZ: u32 = 999;

/// Two thirds of them say whether what is held grows, be it that something is read once meanwhile.
const PROCESSES_MIN: usize = 6;

/// Growth that is none, while caches are still being filled.
const GROWTH_KIB_A_MINUTE: f64 = 2048.0;

/// Makes libraries that differ in their build-id and in the name of their innermost function.
struct Press {
    template: Vec<u8>,
    build_id: Vec<u8>,
    directory: PathBuf,
    made: u32,
}

const TEMPLATE_LEAF: &str = "first_leaf";

impl Press {
    /// Works in a directory, where the executable that loads the libraries is too.
    fn new(here: &Path) -> Self {
        fs::copy(directory().join("late"), here.join("late")).unwrap();
        let template = fs::read(directory().join("stacks_late_a")).unwrap();
        let build_id = object::Object::build_id(&object::File::parse(template.as_slice()).unwrap())
            .unwrap()
            .unwrap()
            .to_owned();
        Self {
            template,
            build_id,
            directory: here.to_owned(),
            made: 0,
        }
    }

    /// A library that is like no other; gives the name of its file and of its innermost function.
    fn make(&mut self) -> (String, String) {
        let number = self.made;
        self.made += 1;
        let leaf = format!("f{number:04}_leaf");
        let mut build_id = self.build_id.clone();
        build_id[..4].copy_from_slice(&number.to_le_bytes());
        // The name in the symbol table: the loader goes by the other, which comes first.
        let bytes = replaced(&self.template, TEMPLATE_LEAF.as_bytes(), leaf.as_bytes());
        let bytes = replaced(&bytes, &self.build_id, &build_id);
        let name = format!("library_{number}");
        fs::write(self.directory.join(&name), bytes).unwrap();
        (name, leaf)
    }
}

/// With other bytes where some are for the last time.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = bytes.to_vec();
    let at = bytes
        .windows(old.len())
        .rposition(|window| window == old)
        .unwrap();
    bytes[at..at + old.len()].copy_from_slice(new);
    bytes
}

/// Samples by what the process was doing.
#[derive(Default)]
struct Samples {
    /// Of code that is there for a while, by the name of the library's innermost function.
    leaves: BTreeMap<String, u64>,
    /// While no library was there.
    between: u64,
}

impl Samples {
    fn of(picture: &FlamePicture) -> Self {
        let mut samples = Self::default();
        for weight in &picture.picture.weights {
            let mut names = Vec::new();
            let mut node = weight.node.0;
            while let Some(Node {
                parent: NodeId(parent),
                frame: FrameId(frame),
                ..
            }) = node.checked_sub(1).map(|at| picture.nodes[at as usize])
            {
                names.push(&*picture.frames[frame as usize].function);
                node = parent;
            }
            let leaf = names
                .iter()
                .find(|name| name.starts_with('f') && name.ends_with("_leaf"));
            if let Some(leaf) = leaf.filter(|_| names.contains(&"settled")) {
                *samples.leaves.entry((*leaf).to_owned()).or_default() += weight.inside_samples;
            }
            if names.contains(&"nothing_open") {
                samples.between += weight.inside_samples;
            }
        }
        samples
    }
}

/// A process that loads and unloads some libraries while it is sampled.
fn one_process(service: &Service, press: &mut Press) {
    let late = press.directory.join("late");
    let mut target = Fixture::start(late.to_str().unwrap(), &[]);
    let session = service.attach_at(target.pid(), "", FREQUENCY_HZ).unwrap();
    let mut pictures = service.watch_flame(&session);
    target.say("go");
    let mut before = BTreeMap::new();
    for _ in 0..LIBRARIES {
        let (library, leaf) = press.make();
        target.say(&format!("open {library} {}", swapped_ms()));
        assert!(target.line().starts_with("opened "));
        let mut between = 0;
        service.until(&mut pictures, |picture| {
            let samples = Samples::of(picture);
            between = samples.between;
            samples
                .leaves
                .get(&leaf)
                .is_some_and(|samples| *samples >= ENOUGH)
        });
        target.say("close");
        assert_eq!(target.line(), "closed");
        fs::remove_file(press.directory.join(&library)).unwrap();
        // Samples arrive in their order: with those that came after, all of the library's are there.
        let picture = service.until(&mut pictures, |picture| {
            Samples::of(picture).between >= between + ENOUGH
        });
        let after = Samples::of(&picture).leaves;
        let others: BTreeMap<String, u64> = after
            .clone()
            .into_iter()
            .filter(|(name, _)| *name != leaf)
            .collect();
        assert_eq!(
            others, before,
            "samples of {leaf} have the names of libraries that are gone"
        );
        before = after;
    }
    service.end(&session);
    assert_eq!(target.finish().status, Some(0));
}

/// What is held, by the minute.
struct Held {
    minutes: f64,
    allocated_kib: f64,
    resident_kib: f64,
}

/// By how much a value grows from one process to the next, per minute: the median. What leaks grows with each of them; a file of debug
/// information that a rare sample leads to is read once.
fn growth(held: &[Held], value: impl Fn(&Held) -> f64) -> f64 {
    let steps = held.iter().zip(&held[1..]);
    let mut steps: Vec<f64> = steps
        .map(|(before, after)| (value(after) - value(before)) / (after.minutes - before.minutes))
        .collect();
    steps.sort_by(f64::total_cmp);
    steps[(steps.len() - 1) / 2]
}

#[test]
#[ignore = "needs root"]
fn memory_is_flat_and_no_name_is_stale() {
    if small_scale() {
        return skipped(EMULATED);
    }
    let seconds = if long_scale() { 3600 } else { 30 };
    let seconds = std::env::var("PROFILER_CHURN_S").map_or(seconds, |text| text.parse().unwrap());
    let place = tempfile::tempdir().unwrap();
    let mut press = Press::new(place.path());
    let service = Service::own();
    // A session that stays keeps everything that is not any one target's.
    let idle = Fixture::start("idle", &[]);
    let stays = service.attach(idle.pid(), "").unwrap();
    let start = Instant::now();
    let mut held = Vec::new();
    while start.elapsed() < Duration::from_secs(seconds) || held.len() < PROCESSES_MIN {
        one_process(&service, &mut press);
        service.renew(&stays);
        held.push(Held {
            minutes: start.elapsed().as_secs_f64() / 60.0,
            allocated_kib: memory::allocated_kib() as f64,
            resident_kib: memory::resident_kib() as f64,
        });
    }
    // Caches are filled by the first ones.
    let later = &held[held.len() / 3..];
    let allocated = growth(later, |held| held.allocated_kib);
    let resident = growth(later, |held| held.resident_kib);
    println!(
        "{} processes, {} libraries in {:.1} minutes; at the end {:.0} KiB allocated, {:.0} KiB of anonymous memory \
         resident; the later ones {allocated:+.1} and {resident:+.1} KiB a minute",
        held.len(),
        press.made,
        start.elapsed().as_secs_f64() / 60.0,
        held.last().unwrap().allocated_kib,
        held.last().unwrap().resident_kib,
    );
    assert!(allocated < GROWTH_KIB_A_MINUTE, "{allocated} KiB a minute");
    service.end(&stays);
}
