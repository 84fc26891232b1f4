//! Each subcommand as a user runs it: what it prints, that its figures add up, and how it ends.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test, as it should")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    demo(arguments).output().unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Serves a thousand requests a second, or what a busy machine has time for.
fn serve_for_two_seconds(variant: &str, more: &[&str]) -> (Value, Value) {
    let mut arguments = vec![
        variant,
        "--load",
        "--duration",
        "2",
        "--json",
        "--size",
        "64K",
        "--rate",
        "1000",
    ];
    arguments.extend_from_slice(more);
    let [ready, load, server] = &objects(&run(&arguments))[..] else {
        panic!("three lines")
    };
    assert_eq!((&ready["type"], &ready["pid"]), (&"ready".into(), &server["pid"]));
    assert_eq!(
        (&load["type"], &server["type"], &server["variant"]),
        (&"load".into(), &"server".into(), &variant.into())
    );
    (load.clone(), server.clone())
}

fn check_figures(load: &Value, server: &Value) {
    let requests = server["requests"].as_u64().unwrap();
    // The generator stops between rounds, so it has seen the reply to all that was served.
    assert_eq!(load["requests"], server["requests"]);
    assert!((200..=2100).contains(&requests), "{requests} at 1,000/s");
    let slow = server["slow"].as_u64().unwrap();
    assert!((1..=requests / 8).contains(&slow), "{slow} of {requests} slow");
    let latency = &server["handle_request"];
    assert_eq!(latency["count"], server["requests"]);
    let at = |key: &str| latency[key].as_u64().unwrap();
    assert!(at("min_ns") <= at("p50_ns") && at("p50_ns") <= at("p99_ns") && at("p99_ns") <= at("max_ns"));
    assert!(
        at("p50_ns") * 4 < at("max_ns"),
        "a slow path that is slow: {latency}"
    );
}

#[test]
fn slow_requests_wait_for_the_journal() {
    let path = std::env::temp_dir().join(format!("demo-journal-{}", std::process::id()));
    let journal = path.to_str().unwrap();
    // What is there already is left alone.
    std::fs::write(&path, "mine").unwrap();
    let refused = run(&["blocking", "--journal", journal, "--duration", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains(&format!("the journal {journal}: File exists")),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    std::fs::remove_file(&path).unwrap();

    let (load, server) = serve_for_two_seconds("blocking", &["--journal", journal]);
    assert_eq!(load["requests"], server["requests"]);
    assert!(server["slow"].as_u64().unwrap() > 0);
    assert!(!path.exists(), "it is removed");
}

#[test]
fn blocking_waits_for_requests() {
    let (load, server) = serve_for_two_seconds("blocking", &["--pairs", "2"]);
    check_figures(&load, &server);
    assert_eq!(server["connections"], 2);
    let waits = server["switches"]["serving"]["voluntary"].as_u64().unwrap();
    // A busy machine has the next request ready before the last is answered: how often it waits is open.
    assert!(waits > 0);
}

#[test]
fn async_never_waits_while_serving() {
    let (load, server) = serve_for_two_seconds("async", &["--pairs", "2", "--listen", "tcp:127.0.0.1:0"]);
    check_figures(&load, &server);
    // A page fault that has to wait for another one is not the program's doing: some are forgiven.
    let waits = server["switches"]["serving"]["voluntary"].as_u64().unwrap();
    assert!(
        waits * 10 <= server["requests"].as_u64().unwrap(),
        "{waits} waits"
    );
}

#[test]
fn calls_keeps_its_rate() {
    let [ready, calls] = &objects(&run(&["calls", "--rate", "20000", "--duration", "1", "--json"]))[..]
    else {
        panic!("two lines")
    };
    assert_eq!(ready["function"], "tick");
    let made = calls["calls"].as_u64().unwrap();
    assert!((1_000..=20_400).contains(&made), "{made}");
}

struct Server {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = demo(arguments).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        assert!(
            ready.starts_with(&format!("ready pid={} address=", child.id())),
            "{ready}"
        );
        let address = ready
            .split_once("address=")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        Self {
            child,
            stdout,
            address,
        }
    }

    fn stop(mut self, signal: i32) -> String {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: no memory is involved; the child has not been waited for, so the PID is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

/// A client of this test's own, written from the description of the wire format alone.
fn echoes(address: &str) {
    let mut stream = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let requests: Vec<u8> = (0..3 * 64u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    // Cut where no request ends.
    for piece in requests.chunks(50) {
        stream.write_all(piece).unwrap();
    }
    for request in requests.chunks(64) {
        let mut reply = [0; 72];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[..64], request);
        let digest = request[8..].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(reply[64..], digest.to_le_bytes());
    }
}

#[test]
fn both_variants_echo_to_anyone_and_end_cleanly_on_a_signal() {
    for (variant, signal) in [("blocking", libc::SIGTERM), ("async", libc::SIGINT)] {
        let server = Server::start(&[
            variant,
            "--listen",
            "tcp:127.0.0.1:0",
            "--pairs",
            "1",
            "--size",
            "4K",
        ]);
        echoes(&server.address);
        let open = TcpStream::connect(server.address.strip_prefix("tcp:").unwrap()).unwrap();
        let report = server.stop(signal);
        assert!(
            report.starts_with(&format!("{variant} server: 3 requests")),
            "{report}"
        );
        drop(open);
    }
}

#[test]
fn a_load_that_nobody_serves_says_so() {
    let output = run(&["load", "unix:@demo-that-is-not-there"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot connect to unix:@demo-that-is-not-there"),
        "{message}"
    );
}

#[test]
fn a_server_that_goes_away_ends_the_load_without_failure() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", server.local_addr().unwrap());
    let load = demo(&["load", &address, "--pairs", "2", "--json"])
        .spawn()
        .unwrap();
    let connections = [server.accept().unwrap(), server.accept().unwrap()];
    drop(connections);
    let output = load.wait_with_output().unwrap();
    assert_eq!(objects(&output)[0]["requests"], 0);
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("the server closed the connection")
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    for wrong in [
        &["blocking", "--size", "1K", "--stride", "2K"][..],
        &["calls", "--rate", "0"],
        &["serve"],
        &[],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_path_that_is_taken_is_named() {
    let output = run(&["async", "--listen", "unix:/", "--duration", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cannot listen on unix:/")
    );
}
