//! Servers under load that are recorded for a while: what is asked of the recording is what a live session showed of the same time.
//!
//! A few seconds in two parts; with `PROFILER_SCALE=long` a minute. The server stands still where parts meet and while views are
//! opened, so that all of them show the same calls.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::metrics::v1::{MetricsData, metric::Data};
use profiler_recording::Reader;
use profiler_testkit::fixture::long_scale;
use prost::Message as _;
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, program, run},
    daemon::Daemon,
    skipped,
};

/// Longest wait for a server, and for it to stand still.
const PATIENCE: Duration = Duration::from_mins(1);

/// Lines of the latency, five a second, after which nothing more is on its way to any view.
const QUIET_LINES: usize = 12;

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Lets all of its threads stand still.
    fn stop(&self) {
        kill_process(Pid::from_child(&self.0), Signal::STOP).unwrap();
        let begin = Instant::now();
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, state)| state.starts_with('T'))
        };
        let tasks = format!("/proc/{}/task", self.pid());
        while !fs::read_dir(&tasks).unwrap().all(|task| stands(task.unwrap())) {
            assert!(begin.elapsed() < PATIENCE);
        }
    }

    fn go_on(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// What was counted of calls, and their percentiles.
fn since_start(object: &Value) -> Value {
    let mut calls = object["since_start"].clone();
    // A rate is by the time that went by, stops among it.
    calls.as_object_mut().unwrap().remove("rate_hz");
    calls
}

/// The last latency that was printed.
fn last(objects: Vec<Value>) -> Value {
    let object = objects.into_iter().rfind(|object| object["type"] == "latency");
    object.unwrap()
}

/// The histogram that was written: calls by bucket, and the first bucket.
fn histogram(file: &Path) -> (i32, Vec<u64>) {
    let data = MetricsData::decode(&*fs::read(file).unwrap()).unwrap();
    let Some(Data::ExponentialHistogram(histogram)) =
        &data.resource_metrics[0].scope_metrics[0].metrics[0].data
    else {
        panic!("{data:?}")
    };
    let buckets = histogram.data_points[0].positive.clone().unwrap();
    (buckets.offset, buckets.bucket_counts)
}

/// The objects of a flame graph without what the command itself costs; stacks in the order of their text.
fn flame(ended: &Ended) -> Vec<String> {
    let mut objects = ended.objects();
    let summary = objects.last_mut().unwrap();
    assert_eq!(summary["type"], "summary");
    summary.as_object_mut().unwrap().remove("cost");
    let mut texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    texts
}

/// Lines of folded stacks, in the order of their text.
fn folded(ended: &Ended) -> Vec<String> {
    let mut lines: Vec<String> = ended.stdout().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// What a session lost is lost live, too, and compared; the recording itself loses nothing.
fn none_behind(lost: &Value) {
    assert!(lost.get("recording_behind").is_none(), "{lost}");
}

/// What was shown while the server stood still: until then, and when.
struct Part {
    calls: Value,
    at_ns: u64,
}

/// Reads lines until the latency has shown the same for so long that nothing is on its way; when that was half over.
fn until_quiet(latency: &mut Running) -> Part {
    let mut shown = (Value::Null, 0);
    let mut at_ns = 0;
    while shown.1 < QUIET_LINES {
        let object: Value = serde_json::from_str(&latency.line()).unwrap();
        if object["type"] != "latency" {
            continue;
        }
        let calls = since_start(&object);
        shown = if calls == shown.0 {
            (calls, shown.1 + 1)
        } else {
            (calls, 0)
        };
        if shown.1 == QUIET_LINES / 2 {
            at_ns = now_ns();
        }
    }
    Part {
        calls: shown.0,
        at_ns,
    }
}

/// A time of a recording in seconds, as it is asked for.
fn seconds(file: &Path, at_ns: u64) -> String {
    let reader = Reader::open(File::open(file).unwrap()).unwrap();
    let begins = reader.chunks().map(|chunk| chunk.from_ns);
    let begin_ns = begins.filter(|ns| *ns > 0).min().unwrap();
    format!("{}s", (at_ns - begin_ns) as f64 / 1e9)
}

/// Questions whose answers are compared when all is over.
const QUESTIONS: [&[&str]; 5] = [
    &["flame", "--json"],
    &["flame", "--json", "--diff"],
    &["flame", "--json", "--by", "line"],
    &["flame", "--json", "--outside", "--on-cpu"],
    &["flame", "--folded"],
];

/// One that is answered when the first part is over.
const OF_FIRST_PART: &[&str] = &["flame", "--json", "--by", "module"];

/// Ends what asks a server; gives how many calls that made, where it is known.
type End = Box<dyn FnOnce() -> Option<u64>>;

/// Records a server that `begin_load` has asked twice; compares what is asked of the recording with what was shown live.
fn record_and_compare(server: &Server, scope: &str, begin_load: impl Fn() -> End) {
    let length = Duration::from_secs(if long_scale() { 60 } else { 6 });
    let daemon = Daemon::start();
    let pid = server.pid();
    let new = ["session", "new", "-p", &pid, "--name", "s", "-F", "499", scope];
    daemon.profiler(&new).status(0);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (file, live_histogram) = (path("a.profrec"), path("live.otlp"));
    let file_text = file.to_str().unwrap();

    server.stop();
    let recorder = daemon.on("s", &["record", "-o", file_text]);
    let live: Vec<Running> = QUESTIONS
        .iter()
        .map(|question| daemon.on("s", question))
        .collect();
    let first_part = daemon.on("s", OF_FIRST_PART);
    let histogram_file = live_histogram.to_str().unwrap();
    let mut latency = daemon.on(
        "s",
        &["latency", "--json", "--interval", "0.2", "-o", histogram_file],
    );
    daemon.until_watched_by(3 + QUESTIONS.len() as u64);
    let half = |latency: &mut Running| {
        server.go_on();
        let end = begin_load();
        let begin = Instant::now();
        while begin.elapsed() < length / 2 {
            latency.line();
        }
        let calls = end();
        server.stop();
        calls
    };
    let calls_of_first = half(&mut latency);
    let mut first = until_quiet(&mut latency);
    first_part.interrupt();
    let first_part = first_part.end().status(0);
    // Names of samples may have come until then; what follows is not of the same messages.
    first.at_ns = now_ns();
    until_quiet(&mut latency);
    let calls_of_second = half(&mut latency);
    let whole = until_quiet(&mut latency);
    daemon.profiler(&["session", "end", "s"]).status(0);
    let recorded = recorder.end().status(0);
    println!("{}", recorded.stderr().trim_end());
    server.go_on();
    if let (Some(first), Some(second)) = (calls_of_first, calls_of_second) {
        assert_eq!(
            number(&whole.calls, "count"),
            first + second,
            "as many as were asked for"
        );
    }

    let from = |question: &[&str], more: &[&str]| {
        run(profiler(&[question, &["--from", file_text], more].concat())).status(0)
    };
    for (question, live) in QUESTIONS.iter().zip(live) {
        let (live, recorded) = (live.end().status(0), from(question, &[]));
        if question.contains(&"--folded") {
            assert_eq!(folded(&recorded), folded(&live), "{question:?}");
            println!("{question:?}: {} stacks, equal", folded(&recorded).len());
            continue;
        }
        let summary = recorded.objects().pop().unwrap();
        println!("{question:?}: {summary}");
        assert_eq!(flame(&recorded), flame(&live), "{question:?}");
        assert!(number(&summary, "inside") > 0, "{summary}");
        none_behind(&summary["lost"]);
    }
    let of_live = latency.end().status(0);
    let recorded_histogram = path("recorded.otlp");
    let of_recorded = from(
        &["latency", "--json", "-o", recorded_histogram.to_str().unwrap()],
        &[],
    );
    let (live, recorded) = (last(of_live.objects()), last(of_recorded.objects()));
    println!("latency: {}", since_start(&recorded));
    assert_eq!(since_start(&recorded), since_start(&live));
    assert_eq!(since_start(&recorded), whole.calls);
    none_behind(&recorded["lost"]);
    assert_eq!(histogram(&recorded_histogram), histogram(&live_histogram));
    let at = seconds(&file, first.at_ns);
    ranges(&from, &at, (&first, &whole), &first_part);
    let all_calls = scope.split('[').next().unwrap();
    parts_add_up(&from, &at, all_calls);
    assert_eq!(daemon.stop(), Some(0));
}

/// Compares the parts of the time before and after the server stood still with what was shown then.
fn ranges(
    from: &dyn Fn(&[&str], &[&str]) -> Ended,
    at: &str,
    (first, whole): (&Part, &Part),
    first_part: &Ended,
) {
    let (until, since) = (format!("..{at}"), format!("{at}.."));
    let latency = |time: &str| since_start(&last(from(&["latency", "--json"], &["--time", time]).objects()));
    let (before, after) = (latency(&until), latency(&since));
    println!("until {at}: {before}\nsince then: {after}");
    assert_eq!(before, first.calls, "what was shown at {at}");
    assert_eq!(
        number(&before, "count") + number(&after, "count"),
        number(&whole.calls, "count")
    );
    assert_eq!(
        flame(&from(OF_FIRST_PART, &["--time", &until])),
        flame(first_part),
        "until {at}"
    );
}

/// Compares the samples in all calls of a scope before and after a time with those of the whole, which has those of calls that were
/// open then too.
fn parts_add_up(from: &dyn Fn(&[&str], &[&str]) -> Ended, at: &str, scope: &str) {
    let samples = |time: &[&str]| {
        let mut objects = from(&["flame", "--json", "--on-cpu", scope], time).objects();
        let open = number(&objects.pop().unwrap(), "open");
        let stacks = objects.iter();
        let samples: BTreeMap<String, u64> = stacks
            .map(|stack| (stack["frames"].to_string(), number(stack, "samples")))
            .collect();
        (samples, open)
    };
    let sum = |samples: &BTreeMap<String, u64>| samples.values().sum::<u64>();
    let (mut parts, open) = samples(&["--time", &format!("..{at}")]);
    for (stack, count) in samples(&["--time", &format!("{at}..")]).0 {
        *parts.entry(stack).or_default() += count;
    }
    let whole = samples(&[]).0;
    println!(
        "{} samples on the CPU in {} stacks of {scope}, {} in both parts together, {open} in calls that were open at {at}",
        sum(&whole),
        whole.len(),
        sum(&parts),
    );
    assert_eq!(sum(&parts) + open, sum(&whole));
    assert!(parts.iter().all(|(stack, count)| whole.get(stack) >= Some(count)));
}

/// Clients of Redis that ask one thing after the other.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Clients {
    fn start(socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..4).map(|_| {
            let (stop, connection) = (Arc::clone(&stop), UnixStream::connect(socket).unwrap());
            std::thread::spawn(move || ask(connection, &stop))
        });
        Self {
            threads: threads.collect(),
            stop,
        }
    }

    /// Ends them; how many commands were answered.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    }
}

/// Asks until it is to stop; how many commands were answered.
fn ask(mut connection: UnixStream, stop: &AtomicBool) -> u64 {
    let mut answers = BufReader::new(connection.try_clone().unwrap());
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = asked % 500;
        let command = match asked % 20 {
            // One that takes long.
            19 => "EVAL \"local s = 0 for n = 1, 20000 do s = s + n end return s\" 0\r\n".to_owned(),
            n if n % 2 == 0 => format!("SET key:{key} {asked}\r\n"),
            _ => format!("ZADD scores {asked} member:{key}\r\n"),
        };
        connection.write_all(command.as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(['+', ':']), "{answer}");
        asked += 1;
        // At most so many a second: the server is not to take the CPUs from who looks at it.
        std::thread::sleep(Duration::from_millis(2));
    }
    asked
}

#[test]
#[ignore = "needs root and Debian's package redis-server"]
fn a_recording_of_redis_answers_as_the_session_did() {
    let server = Path::new("/usr/bin/redis-server");
    if !server.exists() {
        return skipped("there is no redis-server");
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = Command::new(server)
        .args(["--port", "0", "--unixsocket", "socket", "--save", ""])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn();
    let server = Server(server.unwrap());
    let begin = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begin.elapsed() < PATIENCE, "redis-server does not listen");
    }
    record_and_compare(&server, "processCommand[>= p90]", || {
        let clients = Clients::start(&socket);
        Box::new(|| Some(clients.end()))
    });
}

#[test]
#[ignore = "needs root"]
fn a_recording_of_the_demo_answers_as_the_session_did() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let server = Command::new(program("demo"))
        .args(["blocking", "--listen", &socket])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server(server.unwrap());
    // It says that it serves; then nobody reads more.
    let mut said = [0];
    server.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    record_and_compare(&server, "handle_request[>= p90]", || {
        let load = Command::new(program("demo"))
            .args(["load", &socket, "--rate", "800"])
            .stdout(Stdio::null())
            .spawn();
        let mut load = load.unwrap();
        Box::new(move || {
            kill_process(Pid::from_child(&load), Signal::INT).unwrap();
            assert!(load.wait().unwrap().success());
            None
        })
    });
}
