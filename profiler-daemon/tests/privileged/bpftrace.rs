//! Hits beside bpftrace's, of the same places at the same time. A machine without bpftrace leaves them out: its own
//! program and libraries are larger than everything else in an emulated one (`cargo xtask vm --with /usr/bin/bpftrace`).

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use profiler_daemon::kernel::has_function_probes;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    fixture::{directory, small_scale},
    places::{Traced, finish, start},
    service::{Service, ended, function},
    skipped,
};

const BPFTRACE: &str = "/usr/bin/bpftrace";
const TRACEFS: &str = "/sys/kernel/tracing";

/// It reads tracepoints where `tracefs` is mounted: where that is nowhere, it gets a mount that nobody else sees.
pub fn command() -> Command {
    if Path::new(TRACEFS).join("events").exists() {
        return Command::new(BPFTRACE);
    }
    let mut command = Command::new("unshare");
    let script = format!("mount -t tracefs tracefs {TRACEFS} && exec {BPFTRACE} \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command
}

/// A run of bpftrace whose probes are attached; killed when dropped.
struct Bpftrace {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Bpftrace {
    fn start(script: &str) -> Self {
        // Probes are attached in the order in which they stand.
        let script = format!("{script} interval:ms:100 {{ printf(\"ready\\n\"); }}");
        let mut child = command()
            .args(["-q", "-e", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim_end() != "ready" {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "bpftrace ended early");
        }
        Self { child, stdout }
    }

    /// What it counted, by the names of its maps.
    fn end(mut self) -> BTreeMap<String, u64> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).unwrap();
        assert!(self.child.wait().unwrap().success(), "{output}");
        let counts = output.lines().filter_map(|line| {
            let (name, count) = line.strip_prefix('@')?.split_once(": ")?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        counts.collect()
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether two saw the same calls. A preemptible kernel leaves some out, not the same to both, on a CPU on which it was
/// stopped amid the writing of a map.
fn agree(name: &str, [ours, theirs]: [u64; 2]) {
    let apart = if small_scale() { theirs / 10 } else { 0 };
    assert!(ours.abs_diff(theirs) <= apart, "{name}: {ours} and {theirs}");
}

#[test]
#[ignore = "needs root"]
fn it_counts_as_many_hits_of_each_kind_of_place() {
    if !Path::new(BPFTRACE).exists() {
        return skipped("bpftrace is not installed");
    }
    let service = Service::start();
    let mut target = start();
    let pid = target.pid();
    let seek = "kernel:shmem_file_llseek";
    let program = directory().join("places");
    let mut places = vec![
        ("function", "work", format!("uprobe:{}:work", program.display())),
        (
            "syscall",
            "syscall:lseek",
            "tracepoint:syscalls:sys_exit_lseek".to_owned(),
        ),
    ];
    if has_function_probes() {
        places.push(("entry", seek, "kprobe:shmem_file_llseek".to_owned()));
        places.push(("end", seek, "kretprobe:shmem_file_llseek".to_owned()));
    }
    let tracepoint = "tracepoint:syscalls:sys_enter_lseek";
    let probes = places.iter().map(|(name, _, probe)| (*name, probe.as_str()));
    let script: Vec<String> = probes
        .chain([("tracepoint", tracepoint)])
        .map(|(name, probe)| format!("{probe} /pid == {pid}/ {{ @{name} = count(); }}"))
        .collect();
    let theirs = Bpftrace::start(&script.join(" "));
    let sessions: Vec<_> = places
        .iter()
        .map(|(name, scope, _)| (*name, *scope, service.attach(pid, scope).unwrap()))
        .collect();
    let hits = Traced::start(&service, &target, tracepoint, &[]);
    let made = finish(&mut target);
    let theirs = theirs.end();
    let mut ours: BTreeMap<String, u64> = sessions
        .iter()
        .map(|(name, scope, session)| {
            let picture = service.last_latency(session);
            let unseen =
                |reason: &str| matches!(reason, "off_cpu_unseen" | "syscall_missed" | "place_missed");
            assert!(
                picture.lost.keys().all(|reason| unseen(reason)),
                "{:?}",
                picture.lost
            );
            ((*name).to_owned(), ended(function(&picture, scope)))
        })
        .collect();
    ours.insert("tracepoint".to_owned(), hits.end(&service).0.len() as u64);
    println!("bpftrace: {theirs:?}\nwe: {ours:?}\nthe target: {made:?}");
    assert_eq!(ours.len(), theirs.len());
    for (name, count) in &ours {
        agree(name, [*count, theirs[name]]);
    }
    assert_eq!(target.finish().status, Some(0));
}
