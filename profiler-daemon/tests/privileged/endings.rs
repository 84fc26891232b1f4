//! Sessions end while others go on: the kernel takes its time to take probes off, and nobody else waits for that.

use std::time::{Duration, Instant};

use profiler_daemon::session::{Capture, NewSession, Purpose, SessionInfo};

use super::{
    bpf,
    fixture::{Fixture, small_scale},
    service::{PATIENCE, ROOT, Service, session_of},
};

/// Times at which something came.
struct Times {
    last: Instant,
    /// How many.
    number: usize,
    /// The longest from one to the next.
    longest: Duration,
}

impl Times {
    fn from_now() -> Self {
        Self {
            last: Instant::now(),
            number: 0,
            longest: Duration::ZERO,
        }
    }

    fn note(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
        self.number += 1;
    }
}

/// Ends a session while another one's calls are shown, each five milliseconds, and asks for the list of sessions all the while.
fn end_beside(service: &Service, ending: &SessionInfo, other: u32) -> [Times; 2] {
    let handle = &service.handle;
    let request = NewSession {
        capture: Some(Capture {
            print: Vec::new(),
            hits_per_second: 1_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        ..session_of(other, "step_cold")
    };
    let run = async {
        let other = handle.create(ROOT, request).await.unwrap();
        let mut calls = handle.watch_trace(ROOT, other.name.clone()).await.unwrap();
        // It goes on as it does.
        for _ in 0..10 {
            calls.recv().await.unwrap();
        }
        let end = handle.end(ROOT, ending.name.clone());
        tokio::pin!(end);
        let (mut shown, mut answered) = (Times::from_now(), Times::from_now());
        loop {
            tokio::select! {
                ended = &mut end => {
                    ended.unwrap();
                    break;
                }
                batch = calls.recv() => {
                    assert!(batch.unwrap().ended.is_none());
                    shown.note();
                }
                list = handle.list(ROOT) => {
                    assert!(list.unwrap().iter().any(|session| session.name == other.name));
                    answered.note();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    answered.last = Instant::now();
                }
            }
        }
        shown.note();
        handle.end(ROOT, other.name).await.unwrap();
        [shown, answered]
    };
    let run = async { tokio::time::timeout(PATIENCE, run).await.unwrap() };
    service.runtime.block_on(run)
}

#[test]
#[ignore = "needs root"]
fn others_are_shown_in_time_while_hundreds_of_probes_are_taken_off() {
    let service = Service::start_by_perf();
    let mut many = Fixture::start("many_2000", &[]);
    many.say("go");
    let mut other = Fixture::start("hot", &[]);
    other.say("go");
    // Each function has a perf event at its entry and one at each of its ends.
    let scope = if small_scale() { "many_000?" } else { "many_00??" };
    let session = service.attach(many.pid(), scope).unwrap();
    let begin = Instant::now();
    let [shown, answered] = end_beside(&service, &session, other.pid());
    let took = begin.elapsed();
    bpf::wait_until_unchanged(many.pid());
    println!(
        "{} functions' probes were taken off in {took:?}; meanwhile {} pictures of another session, at most {:?} apart, and {} answers \
         within {:?}",
        session.sites.len(),
        shown.number,
        shown.longest,
        answered.number,
        answered.longest
    );
    let allowed = Duration::from_millis(500);
    assert!(shown.longest < allowed && answered.longest < allowed);
    many.end();
    other.end();
}
