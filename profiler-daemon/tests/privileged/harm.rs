//! What return probes are known to break: the target behaves as if nothing were attached, and every call is
//! timed, abandoned or too deep; none is invented.

use super::{
    fixture::{Fixture, spec},
    service::{Service, ended, function},
};

/// Runs a fixture unprobed and probed, and compares.
fn unharmed(name: &str) {
    let spec = spec(name);
    let mut plain = Fixture::start(name, &spec.args);
    plain.run();
    let plain = plain.finish();

    let service = Service::start();
    let mut target = Fixture::start(name, &spec.args);
    let sessions: Vec<_> = spec
        .probe
        .iter()
        .map(|function| {
            (
                function,
                service.attach(target.pid(), &format!("\"{function}\"")).unwrap(),
            )
        })
        .collect();
    let truth = target.run();
    assert_eq!(truth, spec.truth, "the fixture's own counts");
    let mut shown = Vec::new();
    for (name, session) in &sessions {
        let picture = service.last_latency(session);
        let seen = function(&picture, name);
        let truth = truth[*name];
        let too_deep = seen.lost.get("too_deep").copied().unwrap_or(0);
        let figures = format!(
            "{name}: {truth:?}, ended {}, abandoned {}, too_deep {too_deep}, open {}, lost {:?}, by {:?}",
            ended(seen),
            seen.abandoned,
            seen.open,
            seen.lost,
            session.sites[0].exit_method,
        );
        shown.push((figures, ended(seen), seen.abandoned + too_deep + seen.open, truth));
    }
    let ended = target.finish();
    assert_eq!(ended.output, plain.output, "the target's output");
    assert_eq!(ended.status, plain.status, "the target's exit status");
    for (figures, ended, given_up, truth) in shown {
        println!("{figures}");
        assert!(ended <= truth.returned, "a span is invented: {figures}");
        assert_eq!(ended + given_up, truth.calls, "a call is missing: {figures}");
    }
}

macro_rules! unharmed {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                unharmed(stringify!($name));
            }
        )+
    };
}

unharmed!(
    recursion,
    tailcall,
    longjmp,
    exceptions,
    panics,
    pthread_exit,
    pthread_exit_cxx,
    coroutines,
    altstack,
    thread_exit,
    fork,
    exec,
    churn,
    twice,
);
