//! Stacks in code that is made while its process is sampled: walked by frame pointer, named by a perf map.

use std::collections::HashMap;

use profiler_daemon::session::{FlamePicture, Pictures};

use super::{
    fixture::Fixture,
    service::{Service, Side, time_under},
};

const FREQUENCY_HZ: u32 = 999;
/// Names are known after this, be it of new code or of code where other code lay; what was sampled shortly before
/// is named with it. Where nobody else wants the CPUs it takes a quarter of it.
const NAMED_MS: u64 = 600;

/// Samples that are judged of each piece of code: many times those that come before it is known.
const ENOUGH: u64 = 300;

struct Compiled {
    service: Service,
    target: Fixture,
    pictures: Pictures<FlamePicture>,
}

/// Samples by their stack from `early` or `settled` on.
type Seen = HashMap<(String, bool), u64>;

/// What was sampled in code that was made, and whether the stacks are complete.
fn seen(picture: &FlamePicture) -> Seen {
    let mut seen = Seen::new();
    for weight in &picture.picture.weights {
        let mut words = Vec::new();
        let mut complete = false;
        let mut next = weight.node.0;
        while let Some(node) = next.checked_sub(1).map(|at| &picture.nodes[at as usize]) {
            let frame = &picture.frames[node.frame.0 as usize];
            if !frame.kernel {
                words.push(&*frame.function);
            }
            (next, complete) = (node.parent.0, node.complete);
            if ["early", "settled"].contains(&&*frame.function) {
                words.reverse();
                *seen.entry((words.join(";"), true)).or_default() += weight.inside_samples;
                words.clear();
            }
        }
        if !complete {
            words.reverse();
            *seen.entry((words.join(";"), false)).or_default() += weight.inside_samples;
        }
    }
    seen
}

/// Samples whose stacks are not complete.
fn incomplete(seen: &Seen) -> u64 {
    let incomplete = seen.iter().filter(|((_, complete), _)| !complete);
    incomplete.map(|(_, samples)| samples).sum()
}

/// A round that has ended.
struct Settled {
    /// All samples of all rounds so far.
    seen: Seen,
    /// Those of this round without a complete stack, once its code had settled.
    incomplete: u64,
}

fn of(seen: &Seen, stack: &str) -> u64 {
    seen.get(&(stack.to_owned(), true)).copied().unwrap_or(0)
}

impl Compiled {
    fn start() -> Self {
        let service = Service::start();
        let mut target = Fixture::start("compiled", &[]);
        let session = service.attach_at(target.pid(), "", FREQUENCY_HZ).unwrap();
        let mut pictures = service.watch_flame(&session);
        target.say("go");
        service.until(&mut pictures, |picture| picture.picture.summary.samples > 0);
        Self {
            service,
            target,
            pictures,
        }
    }

    fn make(&mut self, how: &str, name: &str, early_ms: u64) {
        self.target.say(&format!("{how} {name} {early_ms}"));
        assert_eq!(self.target.line(), "made");
    }

    /// Waits until enough has been sampled in code of a name that has settled, and for nothing to be on its way.
    fn until_settled(&mut self, name: &str) -> Settled {
        let stack = format!("settled;{name} caller;{name} leaf");
        let mut until = |samples| {
            let pictures = &mut self.pictures;
            let picture = self
                .service
                .until(pictures, |picture| of(&seen(picture), &stack) >= samples);
            incomplete(&seen(&picture))
        };
        let incomplete_before = until(1);
        let incomplete = until(ENOUGH) - incomplete_before;
        self.target.say("stop");
        assert_eq!(self.target.line(), "stopped");
        let mut before = None;
        let picture = self.service.until(&mut self.pictures, |picture| {
            let (idle, _) = time_under(picture, Side::Inside, "nothing_made");
            idle > *before.get_or_insert(idle)
        });
        Settled {
            seen: seen(&picture),
            incomplete,
        }
    }
}

#[test]
#[ignore = "needs root"]
fn code_that_is_made_has_names() {
    let mut compiled = Compiled::start();
    let mut before = Seen::new();
    let mut incomplete_when_settled = 0;
    let rounds = [
        ("compile", "first"),
        ("compile", "second"),
        ("replace", "third"),
        ("replace", "fourth"),
        ("rewrite", "fifth"),
        ("compile", "sixth"),
    ];
    for (how, name) in rounds {
        compiled.make(how, name, NAMED_MS);
        let Settled {
            seen: now,
            incomplete,
        } = compiled.until_settled(name);
        incomplete_when_settled += incomplete;
        let leaf = format!("{name} caller;{name} leaf");
        let mut others = 0;
        let mut early = 0;
        for (stack @ (words, complete), samples) in &now {
            let more = samples - before.get(stack).copied().unwrap_or(0);
            let unnamed_or_old = *complete && words.contains(';') && !words.contains(name);
            if more > 0 && words.starts_with("settled;") {
                assert!(!unnamed_or_old, "{more} in {words} after {how} {name}");
            }
            if unnamed_or_old || !complete {
                others += more;
            }
            if *words == format!("early;{leaf}") {
                early += more;
            }
        }
        let ms = others * 1000 / u64::from(FREQUENCY_HZ);
        println!("{how} {name}: other names or none for {ms} ms, then {early} early samples with its own");
        assert!(ms <= NAMED_MS, "{ms} ms");
        before = now;
    }
    let all: u64 = before.values().sum();
    let settled = ENOUGH * rounds.len() as u64;
    println!(
        "code made while sampled: {all} samples, {} of them incomplete; {incomplete_when_settled} of the {settled} when it had settled",
        incomplete(&before)
    );
    assert!(incomplete_when_settled <= settled / 100);
    assert_eq!(
        compiled.target.finish().status,
        Some(0),
        "the target came to harm"
    );
}
