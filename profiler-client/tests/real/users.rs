//! Other users than root.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixStream,
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    command::{Ended, as_program, program, run},
    daemon::Daemon,
    fixture::{self, Fixture},
    split_off,
    verbs::{busy, unharmed},
};

/// `nobody`, by Debian's numbering; any user without rights would do.
pub const NOBODY: u32 = 65_534;

/// Programs where everybody may run them, which the build's directory need not be.
pub struct Open(pub TempDir);

impl Open {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(directory)
    }

    pub fn copy(&self, from: &Path) -> PathBuf {
        let path = self.0.path().join(from.file_name().unwrap());
        fs::copy(from, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// `profiler` as `nobody`.
fn as_nobody(program: &Path, socket: &Path, arguments: &[&str]) -> Ended {
    let mut command = as_program(program, socket, arguments);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    run(command)
}

#[test]
#[ignore = "needs root"]
fn who_watched_what_is_in_the_audit_log_and_who_was_refused_too() {
    let daemon = Daemon::start();
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let target = Fixture::start("slowpath", &[]);
    let pid = target.pid().to_string();
    let new = [
        "session", "new", "-p", &pid, "f", "--name", "web", "--trace", "--print", "i",
    ];
    daemon.profiler(&new).status(0);
    daemon
        .profiler(&["latency", "--session", "web", "--duration", "1"])
        .status(0);
    as_nobody(&program, &daemon.socket, &["latency", "-p", &pid, "f"]).status(4);
    let log = daemon.log();
    let line = |words: &[&str]| {
        log.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        line(&["attached", "session=0/web", "scope=\"f\"", "reads=\"i\""]),
        "{log}"
    );
    assert!(line(&["watched", "uid=0", "view=\"latency\""]), "{log}");
    assert!(line(&["refused", "uid=65534", "belongs to user 0"]), "{log}");
    assert_eq!(daemon.stop(), Some(0));
}

/// A target of nobody's.
pub struct OfNobody(pub Child);

/// Has its user trace what a command starts, also where Yama forbids that of programs that the user has not started
/// (`PR_SET_PTRACER` in prctl(2)).
fn traceable(command: &mut Command) -> &mut Command {
    let allow = || {
        // Kernels without Yama do not know it.
        // SAFETY: the call takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: it makes nothing but a system call.
    unsafe { command.pre_exec(allow) }
}

impl OfNobody {
    /// Starts it, and lets it begin.
    fn start(open: &Open) -> Self {
        Self::start_with(open, "")
    }

    /// The same with libraries, whose paths are separated by spaces.
    pub fn start_with(open: &Open, libraries: &str) -> Self {
        let mut command = Command::new(open.copy(&fixture::directory().join("slowpath")));
        command.env("LD_PRELOAD", libraries);
        Self::run(command)
    }

    pub fn run(mut command: Command) -> Self {
        let child = traceable(&mut command)
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut own = Self(child);
        ready(&mut own.0);
        own
    }
}

impl Drop for OfNobody {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn without_capabilities_nothing_is_attached() {
    let target = busy();
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let nowhere = Path::new("/nonexistent/profilerd.sock");
    let pid = target.pid().to_string();
    for arguments in [
        &["latency", "-p", &pid, "f"][..],
        &["flame", "-p", &pid, "-f"],
        &["functions", "-p", &pid, "f"],
    ] {
        let refused = as_nobody(&program, nowhere, arguments).status(4);
        let refused = refused
            .says("CAP_BPF")
            .says("run as root, or")
            .says("docs/service/setup.sh");
        println!("{}", refused.stderr().trim_end());
    }
    // What is malformed is said first, and help needs no rights.
    as_nobody(&program, nowhere, &["latency", "-p", &pid, "f["]).status(2);
    as_nobody(&program, nowhere, &["latency", "--help"]).status(0);
    unharmed(target);
}

/// Gives a file the capabilities that docs/permissions.md asks for (`struct vfs_cap_data`, revision 2, in
/// `linux/capability.h`).
fn give_capabilities(program: &Path) {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    const SYS_PTRACE: u64 = 1 << 19;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    let permitted = (SYS_PTRACE | PERFMON | BPF).to_le_bytes();
    let inheritable = [0; 4];
    let value = [
        &REVISION_2_EFFECTIVE.to_le_bytes()[..],
        &permitted[..4],
        &inheritable,
        &permitted[4..],
        &inheritable,
    ]
    .concat();
    rustix::fs::setxattr(
        program,
        "security.capability",
        &value,
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
}

#[test]
#[ignore = "needs root"]
fn with_capabilities_of_its_own_the_program_does_not_believe_its_environment() {
    let open = Open::new();
    let profiler = open.copy(&program("profiler"));
    give_capabilities(&profiler);
    let own = OfNobody::start(&open);
    let pid = own.0.id().to_string();
    let nowhere = Path::new("/nonexistent/profilerd.sock");
    let arguments = ["latency", "-p", &pid, "f", "--json", "--duration", "0.5"];
    let mut command = as_program(&profiler, nowhere, &arguments);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    // Were it opened, nobody's own programs would run in the kernel.
    command.env("PROFILER_OBJECT", "/nonexistent/object");
    let seen = run(command).status(0);
    let objects = seen.objects();
    assert!(objects.last().unwrap()["since_start"]["count"].as_u64().unwrap() > 0);
}

#[test]
#[ignore = "needs root"]
fn through_a_daemon_of_root_everybody_has_their_own() {
    let target = busy();
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let nobody = |arguments: &[&str]| as_nobody(&program, &daemon.socket, arguments);
    let refused = nobody(&["latency", "-p", &pid, "f"]).status(4);
    let refused = refused.says("belongs to user 0, you are user 65534: ask its owner or root");
    println!("{}", refused.stderr().trim_end());
    nobody(&["functions", "-p", &pid, "f"])
        .status(4)
        .says("belongs to user 0");
    // Root's session is not to be seen.
    daemon
        .profiler(&["session", "new", "-p", &pid, "f", "--name", "web"])
        .status(0);
    assert_eq!(nobody(&["session", "list", "--json"]).status(0).stdout(), "");
    nobody(&["session", "end", "web"]).status(3);
    nobody(&["scope", "set", "web", ""]).status(3);
    assert_eq!(daemon.sessions().len(), 1);

    // What is nobody's own, they may look at.
    let own = OfNobody::start(&open);
    let of_root = pid;
    let pid = own.0.id().to_string();
    // Of several none, where one is another's.
    nobody(&["latency", "-p", &pid, "-p", &of_root, "f"])
        .status(4)
        .says(&format!("process {of_root} belongs to user 0"));
    let listed = nobody(&["ps", "--json"]).status(0).objects();
    assert!(listed.iter().all(|process| process["uid"] == NOBODY));
    assert!(listed.iter().any(|process| process["pid"] == own.0.id()));
    let seen = nobody(&["latency", "-p", &pid, "f", "--json", "--duration", "0.5"]).status(0);
    let objects = seen.objects();
    assert!(objects.last().unwrap()["since_start"]["count"].as_u64().unwrap() > 0);
    // Nor is its name taken. Root means another user's session with that user's number.
    let names = |sessions: &[Value]| {
        sessions
            .iter()
            .map(|session| session["name"].clone())
            .collect::<Vec<_>>()
    };
    let new = nobody(&["session", "new", "-p", &pid, "f", "--name", "web"]).status(0);
    assert_eq!(new.stdout(), "web\n");
    assert_eq!(names(&daemon.sessions()), ["web", "65534/web"]);
    let listed = nobody(&["session", "list", "--json"]).status(0);
    assert_eq!(names(&listed.objects()), ["web"]);
    nobody(&["session", "end", "0/web"]).status(3);
    daemon
        .profiler(&["scope", "set", "65534/web", "f[> 1ms]"])
        .status(0);
    daemon.profiler(&["session", "end", "65534/web"]).status(0);
    nobody(&["session", "end", "web"]).status(3);
    daemon.profiler(&["session", "end", "web"]).status(0);
    let flame = nobody(&["flame", "-p", &pid, "-f", "-F", "999", "--duration", "1"]).status(0);
    assert!(flame.stdout().contains("fast_path"), "{}", flame.stdout());
    drop(own);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn root_of_a_user_namespace_is_the_user_who_made_it() {
    let target = busy();
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let daemon = Daemon::start();
    let own = OfNobody::start(&open);
    let as_root_of_its_own = |arguments: &[&str]| {
        let first = ["--user", "--map-root-user", program.to_str().unwrap()];
        let arguments = [&first, arguments].concat();
        let mut command = as_program(Path::new("unshare"), &daemon.socket, &arguments);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        run(command)
    };
    let [pid, own_pid] = [target.pid(), own.0.id()].map(|pid| pid.to_string());
    as_root_of_its_own(&["latency", "-p", &pid, "f"])
        .status(4)
        .says("belongs to user 0, you are user 65534");
    as_root_of_its_own(&["latency", "-p", &own_pid, "f", "--duration", "0.2"]).status(0);
    drop(own);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn root_by_its_number_alone_is_refused() {
    let target = busy();
    let daemon = Daemon::start();
    let program = program("profiler");
    let pid = target.pid().to_string();
    let attach = ["latency", "-p", &pid, "f", "--duration", "0.2"];
    // As a container's root is, with some capabilities or with none; and root of a user namespace that root has made.
    for by in [
        &["setpriv", "--bounding-set", "-sys_ptrace"][..],
        &["setpriv", "--bounding-set", "-all"],
        &["unshare", "--user", "--map-root-user"],
    ] {
        for arguments in [&attach[..], &["ps"], &["session", "list"]] {
            let arguments = [&by[1..], &[program.to_str().unwrap()], arguments].concat();
            run(as_program(Path::new(by[0]), &daemon.socket, &arguments))
                .status(4)
                .says("without all of the daemon's capabilities");
        }
    }
    daemon.profiler(&attach).status(0);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

/// A library of nobody's that is as long as can be copied, and of which nearly all is a hole.
pub fn sparse_library(open: &Open, number: u64) -> String {
    const LENGTH: u64 = 1 << 30;
    let path = open.0.path().join(format!("sparse-{number}.so"));
    fs::copy(fixture::directory().join("system_calls_library"), &path).unwrap();
    // None is as long as another: the same contents are read once.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(LENGTH - 4096 * number).unwrap();
    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A line of `/proc/PID/status`, in KiB.
pub fn memory_of(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[test]
#[ignore = "needs root"]
fn names_of_a_file_that_the_user_may_not_read_are_not_shown() {
    let daemon = Daemon::start();
    let open = Open::new();
    let profiler = open.copy(&program("profiler"));
    let (target, debug) = split_off::stripped(&open.0, "slowpath");
    chown(&target, Some(NOBODY), Some(NOBODY)).unwrap();
    let debug = open.0.path().join(debug);
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o600)).unwrap();
    let own = OfNobody::run(Command::new(&target));
    let pid = own.0.id().to_string();
    let functions = ["functions", "-p", &pid, "f", "--json"];
    as_nobody(&profiler, &daemon.socket, &functions).status(3);
    // What is read for root is kept for others.
    daemon.profiler(&functions).status(3);
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o644)).unwrap();
    let found = as_nobody(&profiler, &daemon.socket, &functions).status(0);
    assert!(found.stdout().contains("slowpath.c"), "{}", found.stdout());
}

#[test]
#[ignore = "needs root"]
fn what_a_user_has_read_takes_little_memory_and_gives_it_back() {
    const AT_ONCE: usize = 12;
    /// Of the daemon's memory at any time, and of what may be left, in KiB.
    const PEAK: u64 = 512 << 10;
    const LEFT: u64 = 64 << 10;
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let libraries: Vec<String> = (0..8).map(|number| sparse_library(&open, number)).collect();
    let own = OfNobody::start_with(&open, &libraries.join(" "));
    let pid = own.0.id().to_string();
    let daemon = Daemon::start();
    let before = memory_of(daemon.pid(), "RssAnon");
    let functions = ["functions", "-p", &pid, "f*"];
    let listed = as_nobody(&program, &daemon.socket, &functions).status(0);
    assert!(listed.stdout().contains("fast_path"), "{}", listed.stdout());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| as_nobody(&program, &daemon.socket, &functions).status(0));
        }
        // Root is answered meanwhile.
        daemon
            .profiler(&["functions", "-p", &std::process::id().to_string(), "main"])
            .status(0);
    });
    let peak = memory_of(daemon.pid(), "VmHWM");
    let left = || memory_of(daemon.pid(), "RssAnon");
    // It is given back a moment later.
    for _ in 0..100 {
        if left() <= before + LEFT {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("before {before} KiB, at most {peak}, left {}", left());
    assert!(peak <= PEAK && left() <= before + LEFT);
    drop(own);
    assert_eq!(daemon.stop(), Some(0));
}

/// Lets it begin.
fn ready(child: &mut Child) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
}

/// Connections to a socket that the calling thread has made as `nobody`, who may look at [`OfNobody`].
pub fn connect_as_nobody(socket: &Path, number: usize) -> Vec<UnixStream> {
    become_in_this_thread(libc::SYS_setresgid, NOBODY);
    become_in_this_thread(libc::SYS_setresuid, NOBODY);
    (0..number)
        .map(|_| UnixStream::connect(socket).unwrap())
        .collect()
}

/// Changes the calling thread's effective user or group by this system call.
fn become_in_this_thread(call: libc::c_long, number: u32) {
    let unchanged = -1_i64;
    // SAFETY: the calls take no pointers. Made past the C library, they change the calling thread alone.
    let result = unsafe { libc::syscall(call, unchanged, i64::from(number), unchanged) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
#[ignore = "needs root"]
fn connections_of_one_user_are_bounded_and_keep_nobody_else_out() {
    const NUMBER: usize = 1500;
    const MAX: usize = 64;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let daemon = Daemon::start();
    let socket = daemon.socket.clone();
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let connected = std::thread::spawn(move || connect_as_nobody(&socket, NUMBER));
    let connected = connected.join().unwrap();
    // Some of those that come at once are only closed.
    let one_more = || as_nobody(&program, &daemon.socket, &["session", "list", "--json"]).status(1);
    let words = "The daemon takes no more connections";
    while !one_more().stderr().contains(words) {}
    assert_eq!(daemon.sessions().len(), 0, "root gets in");
    // Those that were refused are told so or closed, and the others are closed once they have said nothing for some seconds.
    let refused = connected.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut stream: &UnixStream = stream;
        let mut answer = [0; 256];
        match stream.read(&mut answer) {
            // What a connection that is served begins with has more settings.
            Ok(read) => read == 0 || answer[..4] == *b"\0\0\0\x04",
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    });
    assert!(refused.count() >= NUMBER - MAX);
    for mut stream in connected {
        stream.set_read_timeout(None).unwrap();
        // To its end, or to where the daemon has left.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
    // There are places again.
    as_nobody(&program, &daemon.socket, &["session", "list", "--json"]).status(0);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_socket_of_roots_own_is_named() {
    let open = Open::new();
    let program = open.copy(&program("profiler"));
    let daemon = Daemon::with(&["--socket-mode", "600"]);
    let socket = daemon.socket.to_str().unwrap();
    let refused = as_nobody(&program, &daemon.socket, &["ps", "--host", socket]).status(4);
    let refused = refused.says(&format!("Cannot reach a daemon at {socket}: Permission denied"));
    println!("{}", refused.stderr().trim_end());
    let target = Fixture::start("idle", &[]);
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
}
