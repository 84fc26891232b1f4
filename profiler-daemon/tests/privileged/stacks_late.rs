//! Stacks in libraries that come and go while their process is sampled.

use std::sync::Arc;

use profiler_daemon::session::FlamePicture;
use tokio::sync::watch;

use super::{
    fixture::Fixture,
    service::Service,
    stacks_truth::{Judged, Truth},
};

/// New code is known after this.
const NEW_MS: u64 = 100;

/// And this, where it lies where other code lay.
const SWAPPED_MS: u64 = 1100;

const FREQUENCY_HZ: u64 = 999;

/// Samples that are judged of each library.
const ENOUGH: u64 = 300;

fn truth(leaves: &[&str]) -> Truth {
    let chains: Vec<String> = ["early", "settled"]
        .iter()
        .flat_map(|caller| leaves.iter().map(move |leaf| format!("{caller} late_calls {leaf}")))
        .chain(["nothing_open".to_owned()])
        .collect();
    let chains: Vec<&str> = chains.iter().map(String::as_str).collect();
    Truth::new(&["late", "stacks_late"], &["_start - main"], &chains, &[], &[])
}

struct Late {
    service: Service,
    target: Fixture,
    pictures: watch::Receiver<Option<Arc<FlamePicture>>>,
}

impl Late {
    fn start() -> Self {
        let service = Service::start();
        let mut target = Fixture::start("late", &[]);
        let session = service
            .attach_at(target.pid(), "", u32::try_from(FREQUENCY_HZ).unwrap())
            .unwrap();
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

    fn judge_when(&mut self, truth: &Truth, mut done: impl FnMut(&Judged) -> bool) -> Judged {
        let mut judged = Judged::default();
        self.service.until(&mut self.pictures, |picture| {
            judged = truth.judge(picture);
            done(&judged)
        });
        judged
    }
}
