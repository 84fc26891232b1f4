//! Who may do what: requests of all kinds of callers, on all kinds of processes and on everybody's sessions. The tables of
//! `SECURITY.md` are those of this file. Not asked here is for a recording of a session, which is a view as the others are.

use std::{fmt::Write as _, path::Path};

use profiler_daemon::{
    kernel::Counter,
    session::{
        Caller, Estimated, FlameRequest, FlameTimes, Library, Looks, MoreRecords, NewSession, Reason,
        ScopeEdit, SessionError, TargetSpec, TimelineRequest, list_functions, may_look, sources,
    },
};
use profiler_symbolize::Grouping;

use super::{
    admission::{Programs, USER, start},
    fixture::Fixture,
    service::{ROOT, Service, meant_by, session_of, slowest},
};

/// A kind of caller.
struct Kind {
    /// As the tables call it.
    name: &'static str,
    caller: Caller,
}

const CALLERS: [Kind; 4] = [
    Kind {
        name: "root",
        caller: ROOT,
    },
    Kind {
        name: "the user",
        caller: USER,
    },
    Kind {
        name: "the user, in another group",
        caller: Caller {
            uid: USER.uid,
            gid: 61_235,
        },
    },
    Kind {
        name: "another user",
        caller: Caller {
            uid: 61_235,
            gid: 61_235,
        },
    },
];

/// Time between pictures.
const INTERVAL_NS: u64 = 100_000_000;

/// A request, and what became of it.
struct Asked {
    request: &'static str,
    answer: Result<(), SessionError>,
}

fn asked<T>(request: &'static str, answer: Result<T, SessionError>) -> Asked {
    Asked {
        request,
        answer: answer.map(drop),
    }
}

/// A process of some kind.
struct Target {
    /// As the table calls it.
    kind: &'static str,
    process: Fixture,
}

/// The processes, and which of the callers may look at each.
fn targets(programs: &Programs) -> Vec<Target> {
    let own = programs.own();
    let user = USER.uid.to_string();
    let of_user = |kind, program: &Path, how: &str, becomes: &Path| Target {
        kind,
        process: start(program, how, becomes),
    };
    let becomes = |kind, how: &str, becomes: &Path| {
        let mut target = of_user(kind, &own, how, becomes);
        target.process.say("go");
        assert!(target.process.line().starts_with("own "));
        target.process.say("become");
        assert!(
            target.process.line().starts_with("became "),
            "{}",
            target.process.output
        );
        target
    };
    let setuid = programs.copy("setuid", [0, 0], 0o4755);
    let setgid = programs.copy("setgid", [0, 42], 0o2755);
    let unreadable = programs.copy("unreadable", [0, 0], 0o711);
    let mut targets = vec![
        of_user("the user's own", &own, "exec", &own),
        becomes("in a user namespace that it has made", "namespace", &own),
        of_user("runs a setuid program", &setuid, "exec", &own),
        of_user("runs a setgid program", &setgid, "exec", &own),
        of_user(
            "runs a program that the user may not read",
            &unreadable,
            "exec",
            &own,
        ),
        becomes("may not be dumped", "undumpable", &own),
        becomes("has exec'd a setuid program", "exec", &setuid),
        Target {
            kind: "was root's, and has become the user's",
            process: Fixture::start("becomes", &["dropped".to_owned(), user]),
        },
        Target {
            kind: "root's",
            process: Fixture::start("becomes", &["exec", "x"].map(str::to_owned)),
        },
    ];
    if let Ok(capable) = programs.copy_with_capability() {
        targets.insert(
            6,
            of_user("runs a program with a capability", &capable, "exec", &own),
        );
    }
    targets
}

/// Requests on a process.
fn requests_on_process(service: &Service, library: &Library, caller: Caller, pid: u32) -> Vec<Asked> {
    let (handle, runtime) = (&service.handle, &service.runtime);
    let new = |scope: &str| session_of(pid, scope);
    let estimate = |looks| {
        let of = Estimated::New(Box::new(new("a64l")));
        runtime.block_on(handle.estimate(caller, of, looks))
    };
    let attach = |request: NewSession| {
        let session = runtime.block_on(handle.create(caller, request))?;
        runtime.block_on(handle.end(caller, session.name))
    };
    let listed = if may_look(caller, pid) {
        Ok(())
    } else {
        Err(SessionError::new(Reason::PermissionDenied, "not listed"))
    };
    let target = TargetSpec::Pid(pid);
    vec![
        asked("attach", attach(new("a64l"))),
        asked("sample", attach(new(""))),
        asked("dry run", estimate(Looks::SAMPLES)),
        asked("dry run, measured", estimate(Looks::SAMPLES_AND_COUNTS)),
        asked("functions", list_functions(library, caller, &target, "a64l")),
        asked("source", sources(library, caller, &target, "became_fn")),
        asked("ps", listed),
    ]
}

/// Requests on a session, the end of it last.
fn requests_on_session(service: &Service, caller: Caller, name: &str) -> Vec<Asked> {
    let (handle, runtime, name) = (&service.handle, &service.runtime, || name.to_owned());
    let flame = FlameRequest::of(Grouping::Function, Some(FlameTimes::OnCpu));
    let timeline = TimelineRequest {
        counters: vec![Counter::parse("task-clock").unwrap()],
        step_ns: INTERVAL_NS,
        threads: false,
    };
    let of = Estimated::Edit {
        name: name(),
        edit: ScopeEdit::Set("a64l".to_owned()),
    };
    let by = Grouping::Function;
    let edit = |edit| runtime.block_on(handle.edit_scope(caller, name(), edit));
    vec![
        asked(
            "latency",
            runtime.block_on(handle.watch_latency(caller, name(), INTERVAL_NS)),
        ),
        asked(
            "flame",
            runtime.block_on(handle.watch_flame(caller, name(), INTERVAL_NS, flame)),
        ),
        asked(
            "waits",
            runtime.block_on(handle.watch_waits(caller, name(), INTERVAL_NS)),
        ),
        asked(
            "syscalls",
            runtime.block_on(handle.watch_syscalls(caller, name(), INTERVAL_NS, by)),
        ),
        asked(
            "timeline",
            runtime.block_on(handle.watch_timeline(caller, name(), timeline)),
        ),
        asked("trace", runtime.block_on(handle.watch_trace(caller, name()))),
        asked(
            "spans",
            runtime.block_on(handle.watch_spans(caller, name(), INTERVAL_NS, slowest(10))),
        ),
        asked(
            "explain",
            runtime.block_on(handle.watch_explain(caller, name(), INTERVAL_NS)),
        ),
        asked(
            "record",
            runtime.block_on(handle.watch_records(caller, name(), MoreRecords::default())),
        ),
        asked(
            "dry run of an edit",
            runtime.block_on(handle.estimate(caller, of, Looks::SAMPLES)),
        ),
        asked(
            "edit of the scope",
            edit(ScopeEdit::Set("a64l[> 1ms]".to_owned())),
        ),
        asked("undo", edit(ScopeEdit::Undo(1))),
        asked("renew", runtime.block_on(handle.renew(caller, name()))),
        asked("end", runtime.block_on(handle.end(caller, name()))),
    ]
}

/// Whether a caller may, as all requests agree.
fn agreed(of: &str, asked: &[Asked], forbidden: Reason) -> bool {
    let is_allowed = |asked: &Asked| !matches!(&asked.answer, Err(error) if error.reason == forbidden);
    let first = is_allowed(&asked[0]);
    for asked in asked {
        assert_eq!(
            is_allowed(asked),
            first,
            "{of}: {}: {:?}",
            asked.request,
            asked.answer
        );
    }
    first
}

fn row(text: &mut String, first: &str, cells: [bool; CALLERS.len()]) {
    let cells = cells.map(|may| if may { "yes" } else { "no" }).join(" | ");
    writeln!(text, "| {first} | {cells} |").unwrap();
}

fn heading(first: &str) -> String {
    let callers = CALLERS.map(|kind| kind.name).join(" | ");
    format!("| {first} | {callers} |\n|---|{}\n", "---|".repeat(CALLERS.len()))
}

/// The table's text in `SECURITY.md`, between two lines that name it.
fn written(name: &str) -> String {
    let text = include_str!("../../../SECURITY.md");
    let (_, rest) = text.split_once(&format!("<!-- {name}:begin -->\n")).unwrap();
    rest.split_once(&format!("<!-- {name}:end -->"))
        .unwrap()
        .0
        .to_owned()
}

#[test]
#[ignore = "needs root"]
fn who_may_look_at_a_process_is_as_written() {
    let service = Service::start();
    let library = Library::new(None);
    let programs = Programs::new("matrix");
    let mut table = heading("process");
    let mut has_capable = false;
    for mut target in targets(&programs) {
        let pid = target.process.pid();
        let cells = CALLERS.map(|Kind { name, caller }| {
            let of = format!("{name}, {}", target.kind);
            agreed(
                &of,
                &requests_on_process(&service, &library, caller, pid),
                Reason::PermissionDenied,
            )
        });
        has_capable |= target.kind.contains("capability");
        row(&mut table, target.kind, cells);
        target.process.say("go");
        assert!(target.process.finish().status.is_some());
        // What has ended is nobody's to look at.
        for Kind { name, caller } in CALLERS {
            for Asked { request, answer } in requests_on_process(&service, &library, caller, pid) {
                // `ps` asks only of processes that there are.
                assert!(
                    answer.is_err() || request == "ps",
                    "{name}: {request} of a process that has ended"
                );
            }
        }
    }
    println!("{table}");
    let written = written("processes");
    let written: String = written
        .split_inclusive('\n')
        .filter(|line| has_capable || !line.contains("capability"))
        .collect();
    assert_eq!(written, table, "SECURITY.md");
}

#[test]
#[ignore = "needs root"]
fn who_may_use_a_session_is_as_written() {
    let service = Service::start();
    let programs = Programs::new("matrix-sessions");
    let own = programs.own();
    let mut target = start(&own, "exec", &own);
    let mut table = heading("session");
    for (maker, owner) in [("root's", ROOT), ("the user's", USER)] {
        let cells = CALLERS.map(|Kind { name, caller }| {
            let new = session_of(target.pid(), "a64l");
            let session = service
                .runtime
                .block_on(service.handle.create(owner, new))
                .unwrap();
            let meant = meant_by(caller, owner, &session.name);
            let of = format!("{name}, a session of {maker}");
            let listed = service.runtime.block_on(service.handle.list(caller)).unwrap();
            let may = agreed(
                &of,
                &requests_on_session(&service, caller, &meant),
                Reason::SessionNotFound,
            );
            assert_eq!(
                listed.iter().any(|listed| listed.name == meant),
                may,
                "{of}: list"
            );
            if !may {
                service
                    .runtime
                    .block_on(service.handle.end(owner, session.name))
                    .unwrap();
            }
            may
        });
        row(&mut table, maker, cells);
    }
    target.say("go");
    assert!(target.finish().status.is_some());
    println!("{table}");
    assert_eq!(written("sessions"), table, "SECURITY.md");
}
