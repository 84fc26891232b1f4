//! Stacks in libraries that come and go while their process is sampled.

use profiler_daemon::session::{FlamePicture, Pictures};
use profiler_symbolize::Frame;

use super::{
    fixture::{Fixture, small_scale},
    service::Service,
    stacks_truth::{Judged, Sampled, Truth},
};

/// New code is known after this, also where the CPUs are busy otherwise; an emulated machine is several times as slow.
fn new_ms() -> u64 {
    if small_scale() { 3000 } else { 1000 }
}

/// And this, where it lies where other code lay: that is looked for each second.
pub fn swapped_ms() -> u64 {
    if small_scale() { 4000 } else { 2500 }
}

fn frequency_hz() -> u32 {
    if small_scale() { 199 } else { 999 }
}

/// Share of samples that may be in the library's linkage table, which has no name.
const IN_LINKAGE_TABLE: f64 = 0.01;

/// Nothing is vague of the code that has been there for a while, its linkage table left aside.
fn settled_is_known(judged: &Judged) {
    let vague = |sampled: &Sampled| sampled.has("settled") && sampled.is_vague();
    let in_table =
        |sampled: &Sampled| sampled.complete && sampled.words.ends_with(&["late_calls".into(), "?".into()]);
    let elsewhere = judged.samples(|sampled| vague(sampled) && !in_table(sampled));
    // An emulated machine may come to the name of a sample when its library is gone already; it then has none.
    assert!(elsewhere == 0 || small_scale(), "{elsewhere}");
    let allowed = judged.samples(|sampled| sampled.has("settled")) as f64 * IN_LINKAGE_TABLE;
    assert!(judged.samples(vague) as f64 <= allowed);
}

/// Samples that are judged of each library.
fn enough() -> u64 {
    if small_scale() { 100 } else { 300 }
}

fn is_own(frame: &Frame) -> bool {
    &*frame.module == "late" || frame.module.starts_with("stacks_late")
}

/// What the loader runs of a library when it comes and goes.
const BY_LOADER: [&str; 7] = [
    "open_library - _init",
    "open_library - frame_dummy register_tm_clones",
    "open_library - register_tm_clones",
    "- _fini",
    "- __do_global_dtors_aux deregister_tm_clones",
    "- __do_global_dtors_aux -",
    "- deregister_tm_clones",
];

fn truth(leaves: &[&str]) -> Truth {
    let chains: Vec<String> = ["early", "settled"]
        .iter()
        .flat_map(|caller| {
            leaves
                .iter()
                .map(move |leaf| format!("{caller} late_calls {leaf}"))
        })
        .chain(["nothing_open", "open_library say", "say"].map(str::to_owned))
        .chain(BY_LOADER.map(str::to_owned))
        .collect();
    let chains: Vec<&str> = chains.iter().map(String::as_str).collect();
    Truth::new(is_own, &["_start - main"], &chains, &[], &[])
}

struct Late {
    service: Service,
    target: Fixture,
    pictures: Pictures<FlamePicture>,
}

impl Late {
    fn start() -> Self {
        let service = Service::start();
        let mut target = Fixture::start("late", &[]);
        let session = service.attach_at(target.pid(), "", frequency_hz()).unwrap();
        let mut pictures = service.watch_flame(&session);
        target.say("go");
        service.until(&mut pictures, |picture| picture.picture.summary.samples > 0);
        Self {
            service,
            target,
            pictures,
        }
    }

    /// Opens a library, and says where it is.
    fn open(&mut self, library: &str, early_ms: u64) -> String {
        self.target.say(&format!("open {library} {early_ms}"));
        let line = self.target.line();
        line.strip_prefix("opened ").expect("opened").to_owned()
    }

    fn close(&mut self) {
        self.target.say("close");
        assert_eq!(self.target.line(), "closed");
    }

    /// Waits until there are so many more samples that have a word; judges all that there are.
    fn judge_after(&mut self, truth: &Truth, word: &str, more: u64) -> Judged {
        let mut judged = Judged::default();
        let mut before = None;
        self.service.until(&mut self.pictures, |picture| {
            judged = truth.judge(picture);
            let under = judged.under(word);
            under >= *before.get_or_insert(under) + more
        });
        judged
    }
}

/// Samples of a thread that computes all the time, in so many milliseconds.
fn samples_in(ms: u64) -> u64 {
    ms * u64::from(frequency_hz()) / 1000
}

#[test]
#[ignore = "needs root"]
fn new_code() {
    let truth = truth(&["first_leaf"]);
    let mut late = Late::start();
    let rounds = if small_scale() { 2 } else { 5 };
    let mut judged = Judged::default();
    let mut vague = 0;
    for _ in 0..rounds {
        late.open("stacks_late_a", new_ms());
        late.judge_after(&truth, "settled", enough());
        late.close();
        judged = late.judge_after(&truth, "nothing_open", 50);
        let before = std::mem::replace(&mut vague, judged.samples(Sampled::is_vague));
        let ms = (vague - before) * 1000 / u64::from(frequency_hz());
        println!(
            "dlopen: stacks are complete, with names, after {ms} ms ({} samples were not)",
            vague - before
        );
    }
    judged.print("libraries opened while sampled");
    judged.print_such("vague", Sampled::is_vague);
    assert_eq!(judged.wrong(), 0);
    settled_is_known(&judged);
    assert!(
        vague <= rounds * samples_in(new_ms()),
        "{vague} of {rounds} libraries"
    );
}

#[test]
#[ignore = "needs root"]
fn other_code_in_its_place() {
    // The second's frames are larger than the first's, the third's have other names only.
    let libraries = [
        ("stacks_late_a", "first_leaf"),
        ("stacks_late_b", "other_leaf"),
        ("stacks_late_c", "third_leaf"),
    ];
    let leaves = libraries.map(|(_, leaf)| leaf);
    let truth = truth(&leaves);
    let mut late = Late::start();
    let mut place = None;
    let mut before = [0; 3];
    let mut judged = Judged::default();
    for (at, (library, leaf)) in libraries.into_iter().enumerate() {
        let opened_at = late.open(library, swapped_ms());
        let place = place.get_or_insert_with(|| opened_at.clone());
        assert_eq!(*place, opened_at, "the loader put it elsewhere");
        late.judge_after(&truth, "settled", enough());
        late.close();
        judged = late.judge_after(&truth, "nothing_open", 50);
        let after = leaves
            .map(|leaf| judged.samples(|stack| stack.has("settled") && stack.has(leaf) && !stack.is_vague()));
        for (other, (before, after)) in before.iter().zip(after).enumerate() {
            let more = after - before;
            assert_eq!(
                more > 0,
                other == at,
                "{more} samples in {} while {leaf} ran",
                leaves[other]
            );
        }
        before = after;
    }
    judged.print("libraries in the place of others");
    judged.print_such("vague", Sampled::is_vague);
    judged.print_such("early", |sampled| sampled.has("early"));
    settled_is_known(&judged);
    let vague = judged.samples(Sampled::is_vague);
    assert!(vague <= 3 * samples_in(swapped_ms()), "{vague}");
}
