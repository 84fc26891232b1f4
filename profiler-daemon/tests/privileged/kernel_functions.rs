//! Functions of the kernel, against what the target says it made. Where the kernel cannot probe its own, that is what is said.

use std::collections::BTreeMap;

use profiler_daemon::{
    kernel::{self, has_function_probes},
    session::{Caller, Estimated, ExitMethod, FlameTimes, Looks, Reason, SessionError},
};
use profiler_symbolize::Grouping;

use super::{
    counts::kernel_release,
    fixture::{Fixture, small_scale, spec},
    places::{Traced, finish, missed, saw_all, start, value},
    service::{ROOT, Service, Side, ended, function, session_of, time_under},
    skipped,
};

/// What an `lseek` in a file in memory leads to: called through a pointer alone, so that it is never inlined.
const SEEK: &str = "kernel:shmem_file_llseek";
/// What `nanosleep` leads to.
const SLEEP: &str = "kernel:hrtimer_nanosleep";

/// How often hits are counted for a moment, until there are some.
const MOST_MEASURED: usize = 20;

/// Whether the kernel can probe its functions; else that the refusal says so, and the calling test is skipped.
fn can_be_probed(service: &Service, target: &Fixture) -> bool {
    if has_function_probes() {
        return true;
    }
    let error = service.attach(target.pid(), SEEK).unwrap_err();
    println!("{error}");
    assert_eq!(error.reason, Reason::Kernel);
    for word in ["CONFIG_KPROBES", "syscall:NAME", "tracepoint:CATEGORY:NAME"] {
        assert!(error.message.contains(word), "{error}");
    }
    skipped("this kernel has no kprobes");
    false
}

#[test]
#[ignore = "needs root"]
fn the_programs_load() {
    for force_perf in [false, true] {
        let mut engine = kernel::Engine::load(&kernel::Config {
            force_perf,
            ..kernel::Config::default()
        })
        .unwrap();
        println!("{:?}", engine.ability().attach);
        engine.load_function_programs().unwrap();
    }
}

/// By links, and by perf events: of the machines, which load all programs another time for these, on those alone whose kernel has no other
/// uprobes.
fn services() -> impl Iterator<Item = Service> {
    let has_both = !small_scale() || kernel_release() < (6, 10);
    let by_perf = has_both.then(Service::start_by_perf);
    std::iter::once(Service::start()).chain(by_perf)
}

#[test]
#[ignore = "needs root"]
fn calls_are_counted_to_the_call() {
    for service in services() {
        let mut target = start();
        // Makes the same calls at the same time.
        let mut other = start();
        if !can_be_probed(&service, &target) {
            return;
        }
        let seek = |before: &str, behind: &str| format!("{before}{SEEK}{behind}");
        let scopes = [
            ("all", seek("", "")),
            ("twice", seek("", "")),
            ("inside", seek("work/", "")),
            ("five", seek("", "[offset == 5]")),
            ("fifth", seek("", "[arg1 == 5]")),
            ("slow", seek("work[> 2ms]/", "")),
            ("call", seek("syscall:lseek/", "")),
            ("nested", seek("kernel:__x64_sys_lseek/", "")),
            ("glob", seek("kernel:__x64_sys_lsee?/", "")),
            ("slept", SLEEP.to_owned()),
            ("other", seek(&format!("{SLEEP}/"), "")),
        ];
        let sessions = scopes.map(|(name, scope)| (name, service.attach(target.pid(), &scope).unwrap()));
        other.say("go");
        let made = finish(&mut target);
        let mut unseen = 0;
        let seen: BTreeMap<&str, u64> = sessions
            .iter()
            .map(|(name, session)| {
                let picture = service.last_latency(session);
                unseen = unseen.max(missed(&picture.lost));
                let called = if *name == "slept" { SLEEP } else { SEEK };
                let function = function(&picture, called);
                println!(
                    "{name}: {} open, {} abandoned, {:?}",
                    function.open, function.abandoned, function.lost
                );
                if !small_scale() {
                    assert_eq!((function.open, function.abandoned), (0, 0), "{name}");
                }
                assert_eq!(
                    function.lost.values().sum::<u64>(),
                    0,
                    "{name}: {:?}",
                    function.lost
                );
                (*name, ended(function))
            })
            .collect();
        println!("{seen:?}");
        for name in ["all", "twice", "call", "nested", "glob"] {
            saw_all(seen[name], made["lseek"], unseen);
        }
        saw_all(seen["inside"], made["inside"], unseen);
        saw_all(seen["five"], made["five"], unseen);
        saw_all(seen["fifth"], made["five"], unseen);
        saw_all(seen["slept"], made["nanosleep"], unseen);
        assert_eq!(seen["other"], 0);
        let slow = seen["slow"];
        assert!(
            (made["slow"] * 9 / 10..=made["slow"] + made["unsure"]).contains(&slow),
            "{slow} in slow calls"
        );
        assert_eq!(target.finish().status, Some(0));
        assert_eq!(other.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn calls_are_traced_with_parameters_duration_and_what_they_return() {
    for service in services() {
        let mut target = start();
        if !can_be_probed(&service, &target) {
            return;
        }
        let print = ["offset", "arg1", "whence", "file", "return"];
        let all = Traced::start(&service, &target, SEEK, &print);
        let failed = Traced::start(
            &service,
            &target,
            &format!("work/{SEEK}[return < 0]"),
            &["return"],
        );
        let slept = Traced::start(&service, &target, SLEEP, &["return"]);
        let made = finish(&mut target);
        let (hits, last) = all.end(&service);
        assert_eq!(last.rejected, 0);
        saw_all(hits.len() as u64, made["lseek"], missed(&last.unseen));
        for hit in &hits {
            let (offset, returned) = (value(hit, 0), value(hit, 4));
            let expected = if offset == "-1" { "-22" } else { offset.as_str() };
            assert_eq!(returned, expected, "at {offset}");
            assert_eq!((value(hit, 1), value(hit, 2)), (offset, "0".to_owned()));
            assert!(value(hit, 3).starts_with("0xff"), "{}", value(hit, 3));
        }
        let (hits, last) = failed.end(&service);
        saw_all(hits.len() as u64, made["failed"], missed(&last.unseen));
        assert!(hits.iter().all(|hit| value(hit, 0) == "-22"));
        let (hits, last) = slept.end(&service);
        saw_all(hits.len() as u64, made["nanosleep"], missed(&last.unseen));
        let durations: Vec<u64> = hits.iter().map(|hit| hit.duration_ns.unwrap()).collect();
        assert!(durations.iter().all(|ns| *ns >= 5_000_000), "{durations:?}");
        let sum: u64 = durations.iter().sum();
        println!("slept {sum} ns, {} by the target's clock", made["slept_ns"]);
        assert!(sum <= made["slept_ns"]);
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn time_inside_of_a_function_of_the_kernel_is_drawn() {
    let service = Service::start();
    let mut target = start();
    if !can_be_probed(&service, &target) {
        return;
    }
    let session = service.attach(target.pid(), &format!("work/{SLEEP}")).unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Both);
    let made = finish(&mut target);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let (_, inside) = time_under(&picture, Side::Inside, "work");
    println!("{inside} ns inside, {} slept", made["slept_ns"]);
    assert!(inside <= made["slept_ns"] * 11 / 10, "{inside} ns");
    assert!(inside >= made["nanosleep"] * 9 / 10 * 4_500_000, "{inside} ns");
    assert_eq!(target.finish().status, Some(0));
}

/// Programs at the target's functions are interrupted, and call functions of the kernel themselves.
#[test]
#[ignore = "needs root"]
fn what_a_program_calls_changes_nothing_of_its_thread() {
    for service in services() {
        let spec = spec("calls");
        let mut target = Fixture::start("calls", &spec.args);
        if !can_be_probed(&service, &target) {
            return;
        }
        let name = &spec.probe[1];
        let calls = service.attach(target.pid(), name).unwrap();
        let within = [
            "schedule",
            "copy_from_kernel_nofault",
            "handle_mm_fault",
            "schedule",
        ]
        .map(|called| {
            service
                .attach(target.pid(), &format!("{name}/kernel:{called}"))
                .unwrap()
        });
        let alone = service
            .attach(target.pid(), "kernel:copy_from_kernel_nofault")
            .unwrap();
        // What the timer does while the target runs is not the target's.
        let timer = service.attach(target.pid(), "kernel:hrtimer_interrupt").unwrap();
        let truth = target.run();
        let picture = service.last_latency(&calls);
        let probed = function(&picture, name);
        let of_kernel = service.last_latency(&alone);
        println!(
            "{:?}",
            of_kernel
                .functions
                .iter()
                .map(|f| (ended(f), f.open, f.abandoned, &f.lost))
                .collect::<Vec<_>>()
        );
        assert_eq!(ended(probed), truth[name].returned);
        assert_eq!((probed.open, probed.abandoned), (0, 0));
        let of_timer = service.last_latency(&timer);
        let interrupts = function(&of_timer, "kernel:hrtimer_interrupt");
        assert_eq!((ended(interrupts), interrupts.open), (0, 0));
        for session in &within {
            service.end(session);
        }
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn calls_are_measured_before_they_are_timed() {
    for service in services() {
        // Goes on until it is killed.
        let mut target = Fixture::start("places", &["1000000000".to_owned()]);
        if !can_be_probed(&service, &target) {
            return;
        }
        target.say("go");
        // The target may not come to run in so short a time, where its CPU is an emulated one.
        let is_measured = (0..MOST_MEASURED).any(|_| {
            let of = Estimated::New(Box::new(session_of(target.pid(), SEEK)));
            let estimate = service.handle.estimate(ROOT, of, Looks::SAMPLES_AND_COUNTS);
            let said = service.runtime.block_on(estimate).unwrap();
            let [place] = said.steps[0].places.as_slice() else {
                panic!("{:?}", said.steps)
            };
            println!("{:?} hits in {:?} ns", place.hits, said.counted_ns);
            assert_eq!(place.end.unwrap().method, ExitMethod::KernelFunction);
            assert_eq!((place.place.site.as_str(), place.cost_ns), (SEEK, None));
            place.hits.unwrap() > 0
        });
        assert!(is_measured);
    }
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_probed_is_refused_with_the_reason() {
    let service = Service::start();
    let target = start();
    let caller = Caller {
        uid: 12345,
        gid: 12345,
    };
    let created = service.handle.create(caller, session_of(target.pid(), SEEK));
    let error = service.runtime.block_on(created).unwrap_err();
    assert_eq!(error.reason, Reason::PermissionDenied, "{error}");
    if !can_be_probed(&service, &target) {
        return;
    }
    let refused = |scope: &str, reason: Reason, words: &[&str]| {
        let error: SessionError = service.attach(target.pid(), scope).unwrap_err();
        println!("{scope}: {error}");
        assert_eq!(error.reason, reason, "{scope}: {error}");
        for word in words {
            assert!(error.message.contains(word), "{scope}: {error}");
        }
    };
    refused(
        "kernel:shmem_file_lseek",
        Reason::PlaceNotFound,
        &["shmem_file_llseek"],
    );
    refused("kernel:no_such_func*", Reason::PlaceNotFound, &["no_such_func"]);
    refused(
        &format!("{SEEK}[ofset == 1]"),
        Reason::PlaceNotFound,
        &["no field ofset", "file, offset, whence"],
    );
    refused(&format!("{SEEK}[$rdi == 1]"), Reason::ArgumentInvalid, &["$rdi"]);
    refused("kernel:*", Reason::TooManyFunctions, &["at most"]);
    // Code that no probe may interrupt.
    refused(
        "kernel:do_syscall_64",
        Reason::FunctionNotProbeable,
        &["do_syscall_64", "blacklist"],
    );
    // Nothing stays.
    let session = service.attach(target.pid(), SEEK).unwrap();
    let name = session.name.clone();
    for scope in [format!("work/{SEEK}"), SLEEP.to_owned()] {
        let edited = service.handle.set_scope(ROOT, name.clone(), scope.clone());
        assert_eq!(service.runtime.block_on(edited).unwrap().scope, scope);
    }
    service.end(&session);
}

/// While a map is written, the kernel runs no program at its functions.
#[test]
#[ignore = "needs root"]
fn what_the_kernel_does_not_show_is_counted() {
    for service in services() {
        let (mut target, mut other) = (start(), start());
        if !can_be_probed(&service, &target) {
            return;
        }
        let session = service
            .attach(target.pid(), "kernel:htab_map_update_elem")
            .unwrap();
        // The process that is sampled is entered in the map of targets.
        let seeks = service.attach(other.pid(), SEEK).unwrap();
        let _pictures = service.watch_flame_of(&seeks, Grouping::Function, FlameTimes::OnCpu);
        finish(&mut target);
        finish(&mut other);
        assert!(ended(function(&service.last_latency(&seeks), SEEK)) > 0);
        let lost = &service.last_latency(&session).lost;
        println!("{lost:?}");
        let missed = lost.get("place_missed").copied().unwrap_or(0);
        // Those before do not count it.
        assert_eq!(missed > 0, kernel_release() >= (6, 7), "{lost:?}");
    }
}
