//! What attaching a scope would do: said before it is done, and what is said is then done.

use profiler_daemon::session::{Estimate, Estimated, ExitMethod, Looks, NewSession, ScopeEdit, SessionError};

use super::{
    bpf,
    fixture::{Fixture, small_scale},
    service::{ROOT, Service, session_of},
};

fn busy() -> Fixture {
    let mut target = Fixture::start("slowpath", &[]);
    // What is looked at for a moment has to run in it.
    target.prefer();
    target.say("go");
    target
}

fn estimate(service: &Service, new: NewSession, looks: Looks) -> Result<Estimate, SessionError> {
    let of = Estimated::New(Box::new(new));
    service.runtime.block_on(service.handle.estimate(ROOT, of, looks))
}

#[test]
#[ignore = "needs root"]
fn what_would_be_attached_is_what_is_attached() {
    let service = Service::start();
    let target = busy();
    let scope = "f[>= p95]/*_path";
    let said = estimate(&service, session_of(target.pid(), scope), Looks::SAMPLES).unwrap();
    assert_eq!(bpf::changed_code(target.pid()), 0);
    assert_eq!((said.scope.as_str(), &said.pids), (scope, &vec![target.pid()]));
    let texts: Vec<&str> = said.steps.iter().map(|step| step.text.as_str()).collect();
    assert_eq!(texts, ["f[>= p95]", "*_path"]);

    // Nearly all of its time is in f, nearly none of that outside of the two paths; how often is not known.
    let sampled = said.sampled.as_ref().unwrap();
    let share = |step: usize, name: &str| {
        let mut places = said.steps[step].places.iter();
        let place = places.find(|place| place.place.function == name).unwrap();
        assert_eq!((place.hits, place.place.site.as_str()), (None, name));
        place.samples_inside.unwrap() as f64 / sampled.samples as f64
    };
    let (all, fast, slow) = (share(0, "f"), share(1, "fast_path"), share(1, "slow_path"));
    println!(
        "{} samples: {all} in f, {fast} in fast_path, {slow} in slow_path",
        sampled.samples
    );
    assert!(sampled.samples > 0 && sampled.cpu_ns > 0 && sampled.ns >= 1_000_000_000);
    assert!(all > 0.8 && fast > 0.0 && slow > 0.0 && fast + slow > 0.8);
    assert_eq!(said.counted_ns, None);

    let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
    assert!(sessions.is_empty(), "{sessions:?}");
    let attached = service.attach(target.pid(), scope).unwrap();
    assert_eq!(attached.warnings, said.warnings);
    let places: Vec<_> = said.steps.iter().flat_map(|step| &step.places).collect();
    assert_eq!(attached.sites.len(), places.len());
    for (site, place) in attached.sites.iter().zip(places) {
        let end = place.end.unwrap();
        assert_eq!(
            (
                site.function.address + u64::from(site.entry_offset),
                &site.entry_instruction,
                site.entry_single_stepped
            ),
            (place.place.address, &place.instruction, place.single_stepped)
        );
        assert_eq!(
            (site.exit_method, site.exits, site.exit_single_stepped),
            (end.method, end.probes, end.single_stepped)
        );
        assert!(place.cost_ns.unwrap() > 0);
    }

    // An edit is estimated and not done.
    let edit = Estimated::Edit {
        name: attached.name.clone(),
        edit: ScopeEdit::Append("slow_inner".to_owned()),
    };
    let edited = service.handle.estimate(ROOT, edit, Looks::SAMPLES);
    let edited = service.runtime.block_on(edited).unwrap();
    assert_eq!(edited.scope, "f[>= p95]/*_path/slow_inner");
    let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].scope, scope);
    service.end(&attached);
    bpf::wait_until_unchanged(target.pid());
    target.end();
}

#[test]
#[ignore = "needs root"]
fn hits_are_counted_for_a_moment_where_that_is_asked_for() {
    let service = Service::start();
    let target = busy();
    let new = NewSession {
        exit_method: Some(ExitMethod::Ret),
        ..session_of(target.pid(), "f")
    };
    let said = estimate(&service, new, Looks::SAMPLES_AND_COUNTS).unwrap();
    bpf::wait_until_unchanged(target.pid());
    let counted_ns = said.counted_ns.unwrap();
    let place = &said.steps[0].places[0];
    println!("{place:?} in {counted_ns} ns");
    // A call computes for a millisecond at least.
    let hits = place.hits.unwrap();
    assert!(hits <= counted_ns / 1_000_000 + 1, "{hits} hits");
    assert!(small_scale() || hits > 0);
    let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
    assert!(sessions.is_empty(), "{sessions:?}");
    target.end();
}

#[test]
#[ignore = "needs root"]
fn a_target_is_sampled_for_as_long_as_asked_for() {
    let service = Service::start();
    let target = busy();
    let said = |looks| {
        let began = std::time::Instant::now();
        let said = estimate(&service, session_of(target.pid(), "f"), looks).unwrap();
        println!("{looks:?}: {:?} in {:?}", said.sampled, began.elapsed());
        said
    };
    let planned = said(Looks {
        sampled_ns: 0,
        measures: false,
    });
    assert!(
        planned.sampled.is_none() && planned.warnings.is_empty(),
        "{planned:?}"
    );
    assert_eq!(planned.steps[0].places.len(), 1);
    // Longer than where nobody says for how long.
    let asked_ns = 3 * Looks::SAMPLES.sampled_ns / 2;
    let sampled = said(Looks {
        sampled_ns: asked_ns,
        measures: false,
    });
    let sampled = sampled.sampled.unwrap();
    assert!(sampled.ns >= asked_ns, "{sampled:?}");
    assert!(small_scale() || sampled.samples > 0, "{sampled:?}");
    target.end();
}

#[test]
#[ignore = "needs root"]
fn counting_ends_with_enough_hits() {
    let service = Service::start();
    // More than it ever comes to.
    let args = ["run", "1", "1000000000000", "fn_push"].map(str::to_owned);
    let mut target = Fixture::start("calls", &args);
    target.prefer();
    target.say("go");
    // The daemon can wait for a CPU longer than it counts where other tests run as well: not each of these times.
    let mut times = 0..8;
    let ended_early = times.any(|_| {
        let new = NewSession {
            budget: Some(0.03),
            ..session_of(target.pid(), "fn_push")
        };
        let said = estimate(&service, new, Looks::SAMPLES_AND_COUNTS).unwrap();
        let hits = said.steps[0].places[0].hits.unwrap();
        let counted_ns = said.counted_ns.unwrap();
        println!("{hits} hits in {counted_ns} ns, {:?}", said.warnings);
        if !small_scale() {
            let told = "of the target's CPU time, over the budget of 3%: they would be taken off";
            assert!(
                said.warnings.iter().any(|warning| warning.ends_with(told)),
                "{:?}",
                said.warnings
            );
        }
        hits >= 10_000 && counted_ns < 100_000_000
    });
    assert!(small_scale() || ended_early);
    drop(target);
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_attached_is_refused_as_by_attaching() {
    let service = Service::start();
    let target = Fixture::start("idle", &[]);
    for scope in ["nosuch", "idle_fn[", "idle_fn/idle.c:1"] {
        let refused = estimate(
            &service,
            session_of(target.pid(), scope),
            Looks::SAMPLES_AND_COUNTS,
        )
        .unwrap_err();
        let attached = service.attach(target.pid(), scope).unwrap_err();
        assert_eq!(
            (refused.reason, refused.message),
            (attached.reason, attached.message)
        );
    }
    assert_eq!(target.finish().status, Some(0));
}
