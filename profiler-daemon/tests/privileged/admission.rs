//! Processes that become something else while a user looks at them: what they are then is seen where that user may see it,
//! and not at all elsewhere.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    ffi::CString,
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Instant,
};

use profiler_common::instruction::Action;
use profiler_daemon::{
    kernel::{Config, Counter, Ends, Engine, Gates, ProbeSpec, SpanKind},
    session::{
        Caller, FlamePicture, FlameTimes, LatencyPicture, Library, NewSession, Pictures, Reason,
        SessionError, SessionInfo, SyscallsPicture, TargetSpec, TimelineBucket, TimelineRequest,
        list_functions, may_look,
    },
};
use profiler_plan::ModuleIndex;
use profiler_scope::Name;
use profiler_symbolize::Grouping;
use profiler_testkit::has_program;

use super::{
    fixture::{Fixture, directory, long_scale, small_scale},
    places::Traced,
    service::{PATIENCE, ROOT, Service, Side, ended, function, session_of, time_under},
    skipped,
};

/// A user who is nobody else on the machine.
pub const USER: Caller = Caller {
    uid: 61_234,
    gid: 61_234,
};

/// Calls that a target makes before it becomes something else.
const OWN_CALLS: usize = 100;

/// `getppid`, which nothing calls before.
pub const OTHER_CALL: u32 = 110;

/// A folder of programs that are removed with it.
pub struct Programs(PathBuf);

impl Programs {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("profiler-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// A copy of the target with an owner, a group and a mode.
    pub fn copy(&self, name: &str, [owner, group]: [u32; 2], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::copy(directory().join("becomes"), &path).unwrap();
        chown(&path, Some(owner), Some(group)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A copy of the user's own.
    pub fn own(&self) -> PathBuf {
        self.copy("own", [USER.uid, USER.gid], 0o755)
    }

    /// A copy that gives who runs it a capability.
    pub fn copy_with_capability(&self) -> io::Result<PathBuf> {
        let path = self.copy("capable", [0, 0], 0o755);
        // `struct vfs_cap_data` of `linux/capability.h`: version 2, effective, with CAP_NET_RAW.
        let words = [0x0200_0001_u32, 1 << 13, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let file = CString::new(path.as_os_str().as_bytes()).unwrap();
        let size = bytes.len();
        // SAFETY: both strings end in 0, and the value is as long as is said.
        let set = unsafe {
            libc::setxattr(
                file.as_ptr(),
                c"security.capability".as_ptr(),
                bytes.as_ptr().cast(),
                size,
                0,
            )
        };
        if set == 0 {
            Ok(path)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What is left lies in a folder for what is left.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A target of the user, which becomes what it is told to.
pub fn start(program: &Path, how: &str, becomes: &Path) -> Fixture {
    let mut command = Command::new(program);
    command.arg(how).arg(becomes).uid(USER.uid).gid(USER.gid);
    Fixture::start_by(&mut command)
}

/// All that a user can look at of a target.
struct Looking {
    service: Service,
    traced: Traced,
    flame: Pictures<FlamePicture>,
    calls: Pictures<SyscallsPicture>,
    latency: Pictures<LatencyPicture>,
    timed: SessionInfo,
    sampled: SessionInfo,
}

/// What was seen of it.
struct Seen {
    /// Calls of the function.
    hits: usize,
    /// Time on and off the CPU in what it became, in nanoseconds.
    became_ns: u64,
    /// System calls that only that makes, where all are counted, and where they are timed.
    other_calls: u64,
    timed_calls: u64,
    /// Times that a program was at what it is and did not look.
    missed: u64,
    /// Why it was looked at no more.
    reason: String,
}

impl Looking {
    fn at(target: &Fixture) -> Self {
        Self::of(USER, target, &[])
    }

    /// At a target and at others beside it, for somebody.
    fn of(owner: Caller, target: &Fixture, others: &[&Fixture]) -> Self {
        let service = Service::start();
        let targets = [target].into_iter().chain(others.iter().copied());
        let pids: Vec<u32> = targets.map(Fixture::pid).collect();
        let create = |scope: &str| {
            let request = NewSession {
                target: TargetSpec::Pids(pids.clone()),
                ..session_of(target.pid(), scope)
            };
            service.create_for(owner, request).unwrap()
        };
        let traced = Traced::start_for(&service, owner, pids.clone(), "a64l", &["$rdi"]);
        let (timed, sampled) = (create("syscall:getppid"), create(""));
        let latency = service.watch_latency(&timed);
        let flame = service.watch_flame_of(&sampled, Grouping::Function, FlameTimes::Both);
        let calls = service.watch_syscalls(&sampled, Grouping::Function);
        Self {
            service,
            traced,
            flame,
            calls,
            latency,
            timed,
            sampled,
        }
    }

    /// All that was seen, when the sessions have ended by themselves.
    fn ended(mut self) -> Seen {
        let (hits, _) = self.traced.ended();
        let latency = self
            .service
            .until(&mut self.latency, |picture| picture.ended.is_some());
        let flame = self
            .service
            .until(&mut self.flame, |picture| picture.ended.is_some());
        let calls = self
            .service
            .until(&mut self.calls, |picture| picture.ended.is_some());
        let became = [Side::Inside, Side::Outside].map(|side| time_under(&flame, side, "became_fn").0);
        let others = calls.calls.iter().filter(|call| call.call.number == OTHER_CALL);
        Seen {
            hits: hits.len(),
            became_ns: became.iter().sum(),
            other_calls: others.map(|call| call.all.calls).sum(),
            timed_calls: ended(function(&latency, "syscall:getppid")),
            missed: latency.lost.get("not_admitted").copied().unwrap_or(0),
            reason: flame.ended.clone().unwrap().reason,
        }
    }

    /// The same, ended here.
    fn end(self) -> Seen {
        let listed = self.service.handle.list(ROOT);
        let listed = self.service.runtime.block_on(listed).unwrap();
        let goes_on = listed.iter().any(|session| session.name == self.sampled.name);
        assert!(goes_on, "it ended by itself: {}", self.ended().reason);
        self.traced.ask_to_end(&self.service);
        for session in [&self.timed, &self.sampled] {
            self.service.end(session);
        }
        self.ended()
    }
}

/// A session of all of these, for somebody.
fn all_of(service: &Service, owner: Caller, targets: &[&Fixture]) -> Result<SessionInfo, SessionError> {
    let pids: Vec<u32> = targets.iter().map(|target| target.pid()).collect();
    let request = NewSession {
        target: TargetSpec::Pids(pids.clone()),
        ..session_of(pids[0], "")
    };
    service.create_for(owner, request)
}

/// Whatever is drawn inside a function, a text of all frames each.
fn waits_in(picture: &FlamePicture, name: &str) -> Vec<String> {
    let frames_of = |mut node: u32| {
        let mut names = Vec::new();
        while let Some(Node {
            parent: NodeId(parent),
            frame: FrameId(frame),
            ..
        }) = node.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            names.push(picture.frames[frame as usize].function.to_string());
            node = parent;
        }
        names
    };
    let weights = picture.picture.weights.iter();
    weights
        .map(|weight| frames_of(weight.node.0))
        .filter(|names| names.iter().any(|other| other == name))
        .map(|names| names.join(" < "))
        .collect()
}

/// Lets a target become something else; says what it did then.
fn become_it(target: &mut Fixture) -> u64 {
    assert_eq!(target.line(), format!("own {OWN_CALLS}"));
    target.say("become");
    let line = target.line();
    let calls = line.strip_prefix("became ").unwrap_or_else(|| panic!("{line}"));
    calls.parse().unwrap()
}

#[test]
#[ignore = "needs root"]
fn nothing_is_seen_of_a_program_with_more_rights() {
    let programs = Programs::new("becomes");
    let own = programs.own();
    let mut ways = vec![
        ("exec", programs.copy("setuid", [0, 0], 0o4755)),
        ("exec", programs.copy("setgid", [0, 42], 0o2755)),
        ("exec", programs.copy("unreadable", [0, 0], 0o711)),
        ("thread", programs.copy("setuid_by_thread", [0, 0], 0o4755)),
        ("undumpable", own.clone()),
    ];
    match programs.copy_with_capability() {
        Ok(capable) => ways.push(("exec", capable)),
        Err(error) => println!("no file can have capabilities here: {error}"),
    }
    let rounds = if long_scale() { 1000 } else { 1 };
    for (how, becomes) in ways.iter().cycle().take(ways.len() * rounds) {
        let mut target = start(&own, how, becomes);
        let looking = Looking::at(&target);
        target.say("go");
        let calls = become_it(&mut target);
        let seen = looking.ended();
        println!("{how} {}: {calls} calls then; {}", becomes.display(), seen.reason);
        assert!(calls > 0);
        assert_eq!(seen.hits, OWN_CALLS, "{how} {}", becomes.display());
        let of_became = (seen.became_ns, seen.other_calls, seen.timed_calls);
        assert_eq!(of_became, (0, 0, 0), "{how} {}", becomes.display());
        // Whatever the daemon notices first.
        let reasons = ["since it changed", "runs another program now"];
        assert!(
            reasons.iter().any(|reason| seen.reason.contains(reason)),
            "{}",
            seen.reason
        );
        assert_eq!(target.finish().status, Some(0));
    }
}

/// Sessions whose probes, perf events, are closed by turns with those of another: a tenth of a second each.
const BEFORE: usize = 12;

/// Root looks at a process, from before a user's probes are being taken off it or from then on, which the user may look at no more when
/// they are not off yet.
fn be_looked_at_no_more(is_root_first: bool) {
    let service = Service::start_by_perf();
    let programs = Programs::new("becomes-beside");
    let mut target = start(&programs.own(), "undumpable", &programs.own());
    let pid = target.pid();
    let mut many = Fixture::start("many_2000", &[]);
    many.say("go");
    let before = (0..BEFORE).map(|number| service.attach(many.pid(), &format!("many_{number:04}")).unwrap());
    let before: Vec<SessionInfo> = before.collect();
    let traced = Traced::start_for(&service, USER, vec![pid], "a64l", &["$rdi"]);
    let as_root = || {
        let of_root = service.attach(pid, "").unwrap();
        let flame = service.watch_flame(&of_root);
        (of_root, flame)
    };
    let first = is_root_first.then(as_root);
    target.say("go");
    assert_eq!(target.line(), format!("own {OWN_CALLS}"));
    let end = |name: String| {
        let (handle, ended) = (service.handle.clone(), name.clone());
        let ending = service
            .runtime
            .spawn(async move { handle.end(ROOT, ended).await });
        let is_listed = || {
            let listed = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
            listed.iter().any(|session| session.name == name)
        };
        while is_listed() {
            std::thread::yield_now();
        }
        ending
    };
    let before: Vec<_> = before.into_iter().map(|session| end(session.name)).collect();
    let own = end(traced.session.name.clone());
    let (of_root, _flame) = first.unwrap_or_else(as_root);
    target.say("become");
    let line = target.line();
    assert!(line.starts_with("became "), "{line}");
    println!(
        "its probes were off when it had become another: {}",
        own.is_finished()
    );
    for ended in before.into_iter().chain([own]) {
        service.runtime.block_on(ended).unwrap().unwrap();
    }
    let (hits, _) = traced.ended();
    assert_eq!(hits.len(), OWN_CALLS);
    service.end(&of_root);
    assert_eq!(target.finish().status, Some(0));
    many.end();
}

#[test]
#[ignore = "needs root"]
fn probes_that_are_still_being_taken_off_see_nothing_of_a_process_that_may_be_looked_at_no_more() {
    be_looked_at_no_more(true);
    be_looked_at_no_more(false);
}

/// Calls of the fixture before a change of a right, and after it, and how many rights it changes.
const CALLS_OF_RIGHT: u64 = 10;
const RIGHTS: u64 = 8;

#[test]
#[ignore = "needs root"]
fn a_process_that_changes_one_of_its_rights_is_not_seen_until_that_is_taken_back() {
    let mut target = Fixture::start("becomes", &["rights", "x"].map(str::to_owned));
    let file = directory().join("becomes");
    let index = ModuleIndex::new(Arc::new(fs::read(&file).unwrap())).unwrap();
    let name = Name::Exact("right_fn".to_owned());
    let (at, _) = index.matching(&name)[0];
    let spec = ProbeSpec {
        entry_offset: index.function(at).file_offset().unwrap(),
        entry_action: Action::LEAVE,
        loops: false,
        ends: Ends::ReturnProbe,
        done_by_program: false,
        stacks_switch: false,
        gates: Gates::default(),
        look: None,
        kind: SpanKind::Function,
    };
    let mut engine = Engine::load(&Config::default()).unwrap();
    let states = engine.look_at(&[target.pid()]).unwrap();
    engine.admit(&states[0], false).unwrap();
    let attachment = engine.attach(target.pid(), &file, &[spec]).unwrap();
    target.say("go");
    assert_eq!(target.line(), format!("changed {RIGHTS}"));
    let probe = attachment.probes()[0];
    let ended: u64 = engine.histogram(probe).map(|(_, count)| count).sum();
    let begun = engine.probe_counts(probe).entries;
    let refused = engine.counted_of(&[target.pid()]).unwrap()[&target.pid()].refusals;
    engine.detach(attachment);
    // Of the call that changes a right only the beginning is seen; the end of that, and both ends of those behind it, are not.
    let unseen = 1 + 2 * CALLS_OF_RIGHT;
    let expected = (
        RIGHTS * CALLS_OF_RIGHT,
        RIGHTS * (CALLS_OF_RIGHT + 1),
        RIGHTS * unseen,
    );
    assert_eq!((ended, begun, refused), expected, "ended, begun, refused");
    assert_eq!(target.finish().status, Some(0));
}

/// Processes of whom more is read together than one by one.
const MANY: usize = 40;

#[test]
#[ignore = "needs root"]
fn what_was_counted_of_many_processes_is_read_together_as_it_is_one_by_one() {
    // The machines of the tests' own have none.
    if !has_program("bash") {
        return;
    }
    let mut engine = Engine::load(&Config::default()).unwrap();
    let shell = || {
        let mut command = Command::new("bash");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut shells: Vec<Child> = (0..MANY).map(|_| shell()).collect();
    let pids: Vec<u32> = shells.iter().map(Child::id).collect();
    engine.admit_any(&pids).unwrap();
    for (number, shell) in shells.iter_mut().enumerate() {
        let mut input = shell.stdin.take().unwrap();
        let begun = "(true)\n".repeat(number % 3);
        input.write_all(format!("{begun}echo done\n").as_bytes()).unwrap();
        drop(input);
        assert!(shell.wait().unwrap().success());
    }
    let together = engine.counted_of(&pids).unwrap();
    for (number, pid) in pids.iter().enumerate() {
        let own = engine.counted_of(&[*pid]).unwrap();
        assert_eq!(own[pid], together[pid]);
        assert_eq!(own[pid].children, number as u64 % 3);
    }
    engine.dismiss(&pids).unwrap();
    assert!(engine.counted_of(&pids).unwrap().is_empty());
}

#[test]
#[ignore = "needs root"]
fn children_of_what_a_user_may_not_look_at_are_not_counted() {
    // The machines of the tests' own have none.
    if !has_program("bash") {
        return;
    }
    let mut engine = Engine::load(&Config::default()).unwrap();
    let mut command = Command::new("bash");
    let mut shell = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = shell.id();
    let mut input = shell.stdin.take().unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut say = |words: &str| {
        input
            .write_all(format!("{words}; echo done\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    };
    let count = |engine: &mut Engine| {
        let states = engine.look_at(&[pid]).unwrap();
        engine.count_children(&states[0]).unwrap();
    };
    let counted = |engine: &Engine| engine.counted_of(&[pid]).unwrap()[&pid].children;
    say(":");
    count(&mut engine);
    say("(true); (true)");
    assert_eq!(counted(&engine), 2);
    // The same number and the same beginning, but another program, which may be one with more rights.
    say("exec bash -c 'echo done; exec bash'; :");
    say("(true); (true); (true)");
    assert_eq!(counted(&engine), 2);
    // It was looked at, and may be counted.
    count(&mut engine);
    say("(true)");
    assert_eq!(counted(&engine), 3);
    drop(input);
    assert!(shell.wait().unwrap().success());
    engine.dismiss(&[pid]).unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_path_is_followed_with_the_callers_rights() {
    let programs = Programs::new("becomes-path");
    let own = programs.own();
    let target = start(&own, "exec", &own);
    let folder = own.parent().unwrap();
    let closed = folder.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::create_dir(closed.join("there")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let service = Service::start();
    let attach = |caller, path: &Path| {
        let request = NewSession {
            target: TargetSpec::Executable(path.display().to_string()),
            ..session_of(0, "")
        };
        let session = service.runtime.block_on(service.handle.create(caller, request));
        session.map(|session| {
            let end = service.handle.end(caller, session.name);
            service.runtime.block_on(end).unwrap();
        })
    };
    let through = |name: &str| closed.join(name).join("../..").join(own.file_name().unwrap());
    assert!(attach(USER, &own).is_ok());
    assert!(attach(ROOT, &through("there")).is_ok());
    for name in ["there", "not-there"] {
        let refused = attach(USER, &through(name)).unwrap_err();
        assert_eq!(refused.reason, Reason::TargetNotFound, "{name}");
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_session_ends_by_the_process_that_left_last_and_not_by_one_before() {
    let programs = Programs::new("becomes-last");
    let own = programs.own();
    let other = programs.copy("other", [USER.uid, USER.gid], 0o755);
    let [mut first, mut last] = [start(&own, "exec", &other), start(&own, "undumpable", &own)];
    let service = Service::start();
    let session = all_of(&service, USER, &[&first, &last]).unwrap();
    let mut flame = service.watch_flame(&session);
    let departures = service.handle.departures(ROOT, session.name.clone());
    let departures = service.runtime.block_on(departures).unwrap();
    first.say("go");
    become_it(&mut first);
    let until = Instant::now() + PATIENCE;
    while departures.left.behind(0).is_empty() {
        assert!(Instant::now() < until, "it is not said that it left");
        std::thread::yield_now();
    }
    last.say("go");
    become_it(&mut last);
    let picture = service.until(&mut flame, |picture| picture.ended.is_some());
    let reason = picture.ended.clone().unwrap().reason;
    let expected = format!("process {} ", last.pid());
    assert!(
        reason.starts_with(&expected) && reason.ends_with("since it changed"),
        "{reason}"
    );
    for target in [first, last] {
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_with_the_same_rights_is_seen_again() {
    let programs = Programs::new("becomes-own");
    let own = programs.own();
    for how in ["exec", "namespace"] {
        let mut target = start(&own, how, &own);
        let looking = Looking::at(&target);
        target.say("go");
        let calls = become_it(&mut target);
        if calls == 0 {
            skipped("no user namespaces for users here");
            continue;
        }
        let seen = looking.end();
        println!(
            "{how}: {calls} calls, {} of them seen, {} missed",
            seen.hits - OWN_CALLS,
            seen.missed
        );
        assert!(seen.hits > OWN_CALLS && seen.became_ns > 0 && seen.other_calls > 0 && seen.timed_calls > 0);
        assert!(seen.missed > 0, "nobody says what was not seen");
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_that_another_thread_runs_ends_the_sessions_as_its_probes_are_dead() {
    let programs = Programs::new("becomes-by-thread");
    let own = programs.own();
    for owner in [USER, ROOT] {
        let mut target = start(&own, "thread", &own);
        let looking = Looking::of(owner, &target, &[]);
        target.say("go");
        assert!(become_it(&mut target) > 0);
        let seen = looking.ended();
        assert_eq!(seen.hits, OWN_CALLS);
        assert!(
            seen.reason.contains("a thread other than its first"),
            "{}",
            seen.reason
        );
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn a_child_that_borrows_the_memory_is_not_seen() {
    let programs = Programs::new("becomes-child");
    let own = programs.own();
    let setuid = programs.copy("setuid", [0, 0], 0o4755);
    let mut target = start(&own, "vfork", &setuid);
    let looking = Looking::at(&target);
    target.say("go");
    assert!(become_it(&mut target) > 0);
    let seen = looking.end();
    assert_eq!(seen.hits, OWN_CALLS);
    assert_eq!((seen.became_ns, seen.other_calls, seen.timed_calls), (0, 0, 0));
    // The child waits for a line, and its parent for it.
    target.say("exit");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn nothing_is_seen_of_another_process_that_has_the_number_of_one_that_ended() {
    let programs = Programs::new("becomes-another");
    let own = programs.own();
    let (mut target, mut beside) = (start(&own, "exec", &own), start(&own, "exec", &own));
    let pid = target.pid();
    let looking = Looking::of(USER, &target, &[&beside]);
    target.say("go");
    assert_eq!(target.line(), format!("own {OWN_CALLS}"));
    // Ends it.
    drop(target);
    let Some(mut another) = Fixture::start_as(pid, "becomes", &["undumpable", "x"].map(str::to_owned)) else {
        return skipped("this kernel gives no process a number of choice");
    };
    another.say("go");
    assert!(become_it(&mut another) > 0);
    let seen = looking.end();
    assert_eq!(seen.hits, OWN_CALLS);
    assert_eq!((seen.became_ns, seen.other_calls, seen.timed_calls), (0, 0, 0));
    assert_eq!(another.finish().status, Some(0));
    beside.say("go");
    assert!(beside.finish().status.is_some());
}

#[test]
#[ignore = "needs root"]
fn one_user_leaves_sessions_to_others() {
    let service = Service::start();
    let programs = Programs::new("becomes-quotas");
    let mut target = start(&programs.own(), "exec", &programs.own());
    let create = |caller: Caller, scope: &str, frequency_hz: u32| {
        let request = NewSession {
            frequency_hz,
            ..session_of(target.pid(), scope)
        };
        service.create_for(caller, request)
    };
    let refused = |session: Result<SessionInfo, SessionError>, says: &str| {
        let error = session.unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::LimitReached);
        assert!(error.message.contains(says), "{error}");
    };
    refused(create(USER, "", 10_000), "only root may sample at 10000 Hz");
    let mut own = Vec::new();
    while own.len() < 16 {
        own.push(create(USER, "", 99).unwrap());
    }
    refused(create(USER, "", 99), "may have at most 16 of the 64 sessions");
    let roots = create(ROOT, "", 10_000).unwrap();
    for session in own.iter().chain([&roots]) {
        service.end(session);
    }
    target.say("go");
    assert!(target.finish().status.is_some());
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_forbids_to_trace_is_refused() {
    let service = Service::start();
    let programs = Programs::new("becomes-refused");
    let own = programs.own();
    let attach = |target: &Fixture| service.create_for(USER, session_of(target.pid(), ""));
    let mut allowed = start(&own, "exec", &own);
    service.end(&attach(&allowed).unwrap());
    allowed.say("go");
    assert!(allowed.finish().status.is_some());
    let user = USER.uid.to_string();
    let mut refused = vec![
        (
            start(&programs.copy("setuid", [0, 0], 0o4755), "exec", &own),
            "runs as user 0",
        ),
        (
            start(&programs.copy("setgid", [0, 42], 0o2755), "exec", &own),
            "of group 42",
        ),
        (
            start(&programs.copy("unreadable", [0, 0], 0o711), "exec", &own),
            "memory be read",
        ),
        (
            Fixture::start("becomes", &["dropped".to_owned(), user]),
            "memory be read",
        ),
        (
            Fixture::start("becomes", &["exec", "x"].map(str::to_owned)),
            "belongs to user 0",
        ),
    ];
    match programs.copy_with_capability() {
        Ok(capable) => refused.push((start(&capable, "exec", &own), "has capabilities")),
        Err(error) => println!("no file can have capabilities here: {error}"),
    }
    for (mut target, says) in refused {
        let error = attach(&target).unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::PermissionDenied);
        assert!(error.message.contains(says), "{error}");
        assert!(!may_look(USER, target.pid()), "listed, and refused");
        target.say("go");
        assert!(target.finish().status.is_some());
    }
}

/// Yama's setting. It is as it was where this is dropped.
struct PtraceScope(String);

impl PtraceScope {
    const PATH: &str = "/proc/sys/kernel/yama/ptrace_scope";

    /// Sets it; `None` where the kernel has no Yama.
    fn set(scope: u32) -> Option<Self> {
        let before = fs::read_to_string(Self::PATH).ok()?;
        fs::write(Self::PATH, scope.to_string()).unwrap();
        Some(Self(before))
    }
}

impl Drop for PtraceScope {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, self.0.trim());
    }
}

/// Has a command be no descendant of this process, which Yama would let trace it.
fn orphan(command: &mut Command) {
    let leave = || {
        // SAFETY: this process has no other thread by now, and what follows is another fork or its end.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(()),
            // SAFETY: it ends at once, and runs nothing more of ours.
            _ => unsafe { libc::_exit(0) },
        }
    };
    // SAFETY: it makes nothing but system calls.
    unsafe { command.pre_exec(leave) };
}

/// The process that runs a program of this path, once another one than this has it as a child.
fn orphan_of(path: &Path) -> u32 {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "nobody runs {}", path.display());
        for process in profiler_target::list().unwrap() {
            let stat = fs::read(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
            let parent = profiler_target::Stat::parse(&stat).map(|stat| stat.parent);
            let parent_is_ours = parent.is_some_and(|parent| {
                let stat = fs::read(format!("/proc/{parent}/stat")).unwrap_or_default();
                profiler_target::Stat::parse(&stat).is_some_and(|stat| stat.parent == std::process::id())
            });
            if process.executable.as_deref() == Some(path) && !parent_is_ours {
                return process.pid;
            }
        }
    }
}

#[test]
#[ignore = "needs root"]
fn what_yama_forbids_is_refused_to_users_and_said() {
    if !small_scale() {
        return skipped("what a user may trace is changed in machines of the tests' own alone");
    }
    let programs = Programs::new("becomes-yama");
    let own = programs.own();
    let mut command = Command::new(&own);
    command.arg("exec").arg(&own).uid(USER.uid).gid(USER.gid);
    orphan(&mut command);
    let mut target = Fixture::start_by(&mut command);
    let pid = orphan_of(&own);
    let service = Service::start();
    let attach = |caller: Caller| service.create_for(caller, session_of(pid, "a64l"));
    let functions = || list_functions(&Library::new(None), USER, &TargetSpec::Pid(pid), "a64l").map(drop);
    for (scope, says) in [
        (1, "trace none but those that it has started"),
        (2, "nobody but root"),
    ] {
        let Some(_set) = PtraceScope::set(scope) else {
            return skipped("this kernel has no Yama");
        };
        for refused in [attach(USER).map(drop), functions()] {
            let error = refused.unwrap_err();
            println!("{error}");
            assert_eq!(error.reason, Reason::PermissionDenied);
            assert!(
                error.message.contains(&format!("ptrace_scope is {scope}")),
                "{error}"
            );
            assert!(error.message.contains(says), "{error}");
        }
        assert!(may_look(USER, pid), "it is listed all the same");
        service.end(&attach(ROOT).unwrap());
    }
    let _set = PtraceScope::set(0).unwrap();
    functions().unwrap();
    service.end(&attach(USER).unwrap());
    target.say("go");
    assert!(target.finish().status.is_some());
}

#[test]
#[ignore = "needs root"]
fn the_stack_of_somebody_elses_waker_is_not_shown() {
    let programs = Programs::new("becomes-woken");
    let own = programs.own();
    for owner in [USER, ROOT] {
        let service = Service::start();
        let mut target = start(&own, "namespace", &own);
        let session = service.create_for(owner, session_of(target.pid(), "")).unwrap();
        let mut waits = service
            .watch_flame_with_waits(&session, FlameTimes::OffCpu)
            .unwrap();
        // With the first picture everything is attached.
        service.until(&mut waits, |_| true);
        target.say("go");
        assert_eq!(target.line(), format!("own {OWN_CALLS}"));
        // Root's program makes it runnable, by a write: this very one.
        target.until_it_reads();
        target.say("become");
        assert!(target.line().starts_with("became "));
        service.end(&session);
        let picture = service.until(&mut waits, |picture| picture.ended.is_some());
        let waits = waits_in(&picture, "read_line");
        println!("{owner:?}: {waits:?}");
        assert!(!waits.is_empty(), "no wait was seen");
        let is_told = waits.iter().any(|frames| frames.contains("vfs_write"));
        assert_eq!(is_told, owner == ROOT, "for {owner:?}");
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn counters_tell_nothing_of_what_a_process_becomes() {
    let programs = Programs::new("becomes-counted");
    let own = programs.own();
    for is_alone in [true, false] {
        let service = Service::start();
        let (mut target, mut beside) = (start(&own, "undumpable", &own), start(&own, "undumpable", &own));
        let targets = if is_alone {
            &[&target][..]
        } else {
            &[&target, &beside]
        };
        let session = all_of(&service, USER, targets).unwrap();
        let asked = TimelineRequest {
            counters: vec![Counter::parse("task-clock").unwrap()],
            step_ns: 50_000_000,
            threads: true,
        };
        let mut stream = service.watch_timeline(&session, asked).unwrap();
        let mut next = || -> TimelineBucket {
            let next = async { tokio::time::timeout(PATIENCE, stream.recv()).await };
            service.runtime.block_on(next).expect("no bucket came").unwrap()
        };
        target.say("go");
        assert!(become_it(&mut target) > 0);
        if !is_alone {
            // What has been counted until here is handed over by then.
            for _ in 0..2 {
                assert_eq!(next().ended, None);
            }
            service.end(&session);
        }
        let (mut counted_ns, mut of_threads_ns) = (0, 0);
        let mut buckets = 0;
        let reason = loop {
            let bucket = next();
            buckets += 1;
            assert!(buckets < 200, "it is counted on, {counted_ns} ns so far");
            let count = |bucket: &profiler_aggregate::timeline::Counted| bucket.count.unwrap();
            counted_ns += count(&bucket.counted[0]);
            let threads = bucket.threads.iter().filter(|thread| thread.tid == target.pid());
            of_threads_ns += threads.map(|thread| count(&thread.counted[0])).sum::<u64>();
            if let Some(reason) = bucket.ended {
                break reason;
            }
        };
        println!("alone: {is_alone}: {counted_ns} ns, of its threads {of_threads_ns} ns; {reason}");
        assert_eq!(reason.contains("since it changed"), is_alone, "{reason}");
        // It computes for most of 600 ms then, and does next to nothing before.
        assert!(counted_ns < 30_000_000 && of_threads_ns < 30_000_000);
        assert_eq!(target.finish().status, Some(0));
        beside.say("go");
        assert!(beside.finish().status.is_some());
    }
}

#[test]
#[ignore = "needs root"]
fn a_process_that_changed_unnoticed_is_open_to_others_and_a_number_that_is_used_again_is_nobodys() {
    let programs = Programs::new("becomes-unnoticed");
    let own = programs.own();
    let service = Service::start();
    // Nothing looks at them: no program notices.
    let mut target = start(&own, "exec", &own);
    let first = all_of(&service, USER, &[&target]).unwrap();
    target.say("go");
    assert!(become_it(&mut target) > 0);
    let second = all_of(&service, ROOT, &[&target]).unwrap();
    service.end(&second);
    // It may have been noticed that it runs another program.
    let _ = service.runtime.block_on(service.handle.end(ROOT, first.name));
    assert_eq!(target.finish().status, Some(0));

    let (target, mut beside) = (start(&own, "exec", &own), start(&own, "exec", &own));
    let pid = target.pid();
    let of_both = all_of(&service, USER, &[&target, &beside]).unwrap();
    // Ends it.
    drop(target);
    let Some(mut another) = Fixture::start_as(pid, "becomes", &["undumpable", "x"].map(str::to_owned)) else {
        return skipped("this kernel gives no process a number of choice");
    };
    let of_another = all_of(&service, ROOT, &[&another]).unwrap();
    let listed = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
    let of_both = listed
        .iter()
        .find(|session| session.name == of_both.name)
        .unwrap();
    assert_eq!(
        of_both.pids,
        [beside.pid()],
        "a number that is another's now is looked at"
    );
    service.end(&of_another);
    for target in [&mut another, &mut beside] {
        target.say("go");
    }
    assert!(another.finish().status.is_some() && beside.finish().status.is_some());
}
