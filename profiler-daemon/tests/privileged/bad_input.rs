//! What cannot be looked at is refused: with its reason, what to do about it, and nothing left attached.

use std::collections::BTreeSet;

use profiler_daemon::session::{Caller, NewSession, SessionError, TargetSpec};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    admission::USER,
    bpf,
    fixture::Fixture,
    service::{ROOT, Service, ended, function, session_of},
    skipped,
};

/// Refused with this code and reason, and a message that has these words in it.
struct Refusal {
    code: Code,
    reason: &'static str,
    words: &'static [&'static str],
}

impl Refusal {
    fn of(code: Code, reason: &'static str, words: &'static [&'static str]) -> Self {
        Self { code, reason, words }
    }

    /// Checks an error as a client sees it.
    fn is(&self, error: SessionError) {
        let status = Status::from(error);
        println!("{}: {}", self.reason, status.message());
        assert_eq!(status.code(), self.code, "{status}");
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            (self.reason, "profiler.v1")
        );
        for words in self.words {
            assert!(
                status.message().contains(words),
                "no `{words}` in: {}",
                status.message()
            );
        }
    }
}

/// Scopes on a process are refused, and nothing is left: not in this process, nor in the kernel.
fn refused(service: &Service, pid: u32, scopes: &[(&str, Refusal)]) {
    for (scope, refusal) in scopes {
        refusal.is(service.attach(pid, scope).unwrap_err());
    }
    // What a service of a test's own has loaded to find out goes within a second.
    bpf::wait_until_gone(&service.held());
    assert!(
        service
            .runtime
            .block_on(service.handle.list(ROOT))
            .unwrap()
            .is_empty()
    );
}

/// The same of a fixture, which then goes on unharmed.
fn refused_in(fixture: &str, scopes: &[(&str, Refusal)]) {
    refused_by(&Service::start(), fixture, scopes);
}

fn refused_by(service: &Service, fixture: &str, scopes: &[(&str, Refusal)]) {
    let mut target = Fixture::start(fixture, &[]);
    refused(service, target.pid(), scopes);
    assert_eq!(bpf::changed_code(target.pid()), 0, "{fixture} was changed");
    target.run();
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_process_that_is_not_there() {
    let service = Service::start();
    let target = Fixture::start("idle", &[]);
    let pid = target.pid();
    assert_eq!(target.finish().status, Some(0));
    let gone = || {
        let words = &["no process ", "`profiler ps`"];
        Refusal::of(Code::NotFound, "TARGET_NOT_FOUND", words)
    };
    refused(&service, pid, &[("idle_fn", gone())]);
    refused(&service, u32::MAX, &[("idle_fn", gone())]);
    let request = NewSession {
        lease_ns: 60_000_000_000,
        target: TargetSpec::Executable("no_such_program".to_owned()),
        ..session_of(0, "f")
    };
    let words = &["no process runs `no_such_program`", "`profiler ps`"];
    let none = Refusal::of(Code::NotFound, "TARGET_NOT_FOUND", words);
    none.is(service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap_err());
}

#[test]
#[ignore = "needs root"]
fn a_thread_of_the_kernel() {
    // Number 2 is the parent of the kernel's threads, except inside a PID namespace.
    if !std::fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n") {
        return skipped("no thread of the kernel can be seen from this PID namespace");
    }
    let refusal = || {
        let words = &["process 2 (kthreadd) is a kernel thread", "only user processes"];
        Refusal::of(Code::FailedPrecondition, "TARGET_IS_KERNEL_THREAD", words)
    };
    // With nothing to attach there is still nothing to look at.
    refused(&Service::start(), 2, &[("f", refusal()), ("", refusal())]);
}

#[test]
#[ignore = "needs root"]
fn a_32_bit_program() {
    let words = &["runs a 32-bit executable", "only 64-bit x86"];
    let refusal = Refusal::of(Code::FailedPrecondition, "TARGET_IS_32_BIT", words);
    refused_in("idle32", &[("idle_fn", refusal)]);
}

#[test]
#[ignore = "needs root"]
fn what_somebody_elses_program_is_for_is_not_told() {
    let service = Service::start();
    let target = Fixture::start("idle32", &[]);
    let request = session_of(target.pid(), "idle_fn");
    let refused = service.runtime.block_on(service.handle.create(USER, request));
    let words = &["belongs to user 0, you are user 61234"];
    Refusal::of(Code::PermissionDenied, "PERMISSION_DENIED", words).is(refused.unwrap_err());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_stripped_program() {
    let stripped = |words| Refusal::of(Code::FailedPrecondition, "TARGET_STRIPPED", words);
    let name = stripped(&[
        "no function is called idle_fn",
        "stripped",
        "install its debug package",
        "a function can be named by its address: `profiler functions -p",
    ]);
    let glob = stripped(&["idle_*", "stripped"]);
    refused_in("idle_stripped", &[("idle_fn", name), ("idle_*", glob)]);
}

#[test]
#[ignore = "needs root"]
fn a_function_that_is_not_there() {
    let missing = |words| Refusal::of(Code::NotFound, "FUNCTION_NOT_FOUND", words);
    let typo = missing(&["no function is called callerone; the nearest names are caller_one"]);
    let part = missing(&["no function is called caller; the nearest names are caller_one, caller_two"]);
    let far = missing(&["no function is called nosuch_*", "`profiler functions` lists"]);
    refused_in(
        "inlined",
        &[("callerone", typo), ("caller", part), ("nosuch_*", far)],
    );
}

#[test]
#[ignore = "needs root"]
fn a_function_that_is_inlined_everywhere() {
    let words = &[
        "inlined_everywhere has no code of its own",
        "inlined in all 3 places",
        "probe a function that calls it",
    ];
    let refusal = Refusal::of(Code::FailedPrecondition, "FUNCTION_ONLY_INLINED", words);
    refused_in("inlined", &[("inlined_everywhere", refusal)]);
}

#[test]
#[ignore = "needs root"]
fn an_ifunc_that_nothing_refers_to() {
    let words = &[
        "unreferenced cannot be probed: it is an ifunc",
        "no reference that the process has bound says which was chosen",
        "by its own name",
    ];
    let refusal = Refusal::of(Code::FailedPrecondition, "FUNCTION_IS_IFUNC", words);
    refused_by(&Service::own(), "ifunc", &[("unreferenced", refusal)]);
}

#[test]
#[ignore = "needs root"]
fn places_that_the_kernel_has_not() {
    let service = Service::start();
    let mut target = Fixture::start("idle", &[]);
    let none = |words| Refusal::of(Code::NotFound, "PLACE_NOT_FOUND", words);
    let argument = |words| Refusal::of(Code::InvalidArgument, "ARGUMENT_INVALID", words);
    refused(
        &service,
        target.pid(),
        &[
            ("syscall:fdatasnyc", none(&["fdatasnyc", "there is fdatasync"])),
            (
                "syscall:lseek[offest > 1]",
                none(&["no field offest", "offset, whence"]),
            ),
            (
                "idle_fn/tracepoint:shced:sched_switch",
                none(&["category", "shced", "sched"]),
            ),
            (
                "idle_fn/tracepoint:sched:sched_swich",
                none(&["sched_swich", "there is sched_switch"]),
            ),
            (
                "idle_fn/tracepoint:sched:sched_switch[comm == \"a\"]",
                none(&["no field comm", "prev_comm, prev_pid"]),
            ),
            (
                "idle_fn/tracepoint:sched:sched_switch[common_pid == 1]",
                none(&["no field common_pid"]),
            ),
            (
                "tracepoint:sched:sched_switch",
                argument(&["which has no duration"]),
            ),
            ("syscall:lseek[$rdi == 1]", argument(&["$rdi"])),
            (
                "idle_fn/tracepoint:sched:sched_switch[return == 1]",
                argument(&["return"]),
            ),
            (
                "idle_fn/tracepoint:sched:sched_switch[prev_comm > 1]",
                Refusal::of(
                    Code::FailedPrecondition,
                    "CONDITION_REFUSED",
                    &["char[16] is not a number"],
                ),
            ),
        ],
    );
    // Its records are not for everybody.
    let request = session_of(target.pid(), "idle_fn/tracepoint:sched:sched_switch");
    let created = service.handle.create(
        Caller {
            uid: 12345,
            gid: 12345,
        },
        request,
    );
    let error = service.runtime.block_on(created).unwrap_err();
    Refusal::of(
        Code::PermissionDenied,
        "PERMISSION_DENIED",
        &["only root may trace it"],
    )
    .is(error);
    target.run();
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_scope_that_is_none() {
    let service = Service::own();
    let target = Fixture::start("idle", &[]);
    for (scope, offset) in [
        ("idle_fn[>= p195]", 11),
        ("idle_fn[>= p95", 7),
        ("idle_fn[", 8),
        ("idle_fn[]", 8),
        ("idle_fn[= 3ms]", 8),
        ("idle_fn[> 3 parsecs]", 12),
        ("idle_fn]", 7),
        ("idle_fn >= p95", 8),
        ("[>= p95]", 0),
        ("\"idle_fn", 0),
        ("idle fn", 5),
        ("<T as U>::f", 0),
        ("a/", 2),
        ("main.c:12/f", 9),
        ("kernel:", 7),
        ("syscall:", 8),
        ("syscall:read*", 8),
        ("tracepoint:sched", 16),
        ("tracepoint:sched:sched_switch[> 2ms]", 30),
        ("tracepoint:sched:sched_switch/f", 29),
        ("main.c:0", 7),
        ("läng?e(", 7),
    ] {
        let error = service.attach(target.pid(), scope).unwrap_err();
        println!("{scope}: {error}");
        let detail = |name| {
            let found = error.metadata.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(detail("scope").as_deref(), Some(scope));
        assert_eq!(detail("offset"), Some(offset.to_string()), "{scope}: {error}");
        Refusal::of(Code::InvalidArgument, "SCOPE_INVALID", &[]).is(error);
    }
    assert_eq!(service.held(), BTreeSet::new(), "for this nothing is loaded");
    assert_eq!(bpf::changed_code(target.pid()), 0);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn allocations_of_a_program_without_a_known_allocator() {
    let service = Service::start();
    let target = Fixture::start("idle_static_stripped", &[]);
    let request = NewSession {
        allocations: true,
        ..session_of(target.pid(), "")
    };
    let refused = service.runtime.block_on(service.handle.create(ROOT, request));
    let words = &[
        "has no known allocator function",
        "`malloc`",
        "leave --allocations out",
    ];
    Refusal::of(Code::FailedPrecondition, "FUNCTION_NOT_PROBEABLE", words).is(refused.unwrap_err());
}

#[test]
#[ignore = "needs root"]
fn a_static_program_works() {
    let service = Service::start();
    let mut target = Fixture::start("idle_static", &[]);
    let session = service.attach(target.pid(), "idle_fn").unwrap();
    target.run();
    let picture = service.last_latency(&session);
    assert_eq!(ended(function(&picture, "idle_fn")), 1);
    assert_eq!(target.finish().status, Some(0));
}
