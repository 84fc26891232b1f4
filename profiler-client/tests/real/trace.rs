//! `profiler trace` on a real target, held against what the target says of each hit itself.

use serde_json::{Value, json};

use super::{
    bpf,
    command::{Ended, Running, objects, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

/// The same program at each level of optimization.
const LEVELS: [&str; 3] = ["hits_o0", "hits_o1", "hits_o2"];

/// The probed line, as a place.
pub fn place() -> String {
    let text = include_str!("../../../profiler-daemon/tests/fixtures/engine/hits.c");
    let line = text.lines().position(|line| line.contains("/* probed */"));
    format!("hits.c:{}", line.unwrap() + 1)
}

/// What came of a trace of all that a target did.
pub struct Traced {
    pub command: Ended,
    /// What the target says of each hit.
    pub told: Vec<Value>,
}

/// Runs a target to its end, traced from before its first hit to after its last one.
pub fn traced(name: &str, hits: u32, tells: bool, arguments: &[&str]) -> Traced {
    let mut given = vec![hits.to_string()];
    given.extend(tells.then(|| "tell".to_owned()));
    let mut target = Fixture::start(name, &given);
    let pid = target.pid();
    let daemon = Daemon::start();
    let number = pid.to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["trace", "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    let truth = target.run();
    assert_eq!(truth["serve"].calls, u64::from(hits));
    // The end of the target ends the trace, once all has been read.
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let command = command.end().status(0).says(" ended");
    let told = ended.output.lines().filter_map(|line| line.strip_prefix("hit "));
    let told = told.map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(daemon.sessions(), Vec::<Value>::new());
    assert_eq!(daemon.stop(), Some(0));
    Traced { command, told }
}

/// Hits, and the summary behind them, whose counts add up.
#[track_caller]
fn accounted(command: &Ended, reached: u64) -> (Vec<Value>, Value) {
    let mut hits = command.objects();
    let summary = hits.pop().unwrap();
    assert!(hits.iter().all(|hit| hit["type"] == "hit"));
    let lost = summary["lost"].as_object().unwrap().values();
    let lost: u64 = lost.map(|count| count.as_u64().unwrap()).sum();
    let rejected = summary["rejected"].as_u64().unwrap();
    assert_eq!(
        (&summary["type"], &summary["hits"], &summary["reached"]),
        (&json!("summary"), &json!(hits.len()), &json!(reached)),
        "{summary}"
    );
    let said = command.stderr();
    assert_eq!(hits.len() as u64 + rejected + lost, reached, "{summary} {said}");
    (hits, summary)
}

fn ok(value: Value) -> impl Fn(&Value, &str) {
    move |read, what| {
        assert_eq!(
            (&read["state"], &read["value"]),
            (&json!("ok"), &value),
            "{what}: {read}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn the_values_of_a_line_are_the_targets() {
    for level in LEVELS {
        let print = "n,request->kind,request->name,request->cost,*request";
        let Traced { command, told } = traced(
            level,
            300,
            true,
            &[&place(), "--print", print, "--json", "--limit", "100000"],
        );
        let (hits, summary) = accounted(&command, 300);
        assert_eq!((hits.len(), &summary["lost"]), (300, &json!({})), "{level}");
        for (hit, told) in hits.iter().zip(&told) {
            let values = &hit["values"];
            ok(told["n"].clone())(&values["n"], level);
            ok(told["kind"].clone())(&values["request->kind"], level);
            ok(told["name"].clone())(&values["request->name"], level);
            ok(told["cost"].clone())(&values["request->cost"], level);
            let whole = &values["*request"];
            assert_eq!(
                (&whole["value"]["kind"], &whole["value"]["cost"], &whole["type"]),
                (&told["kind"], &told["cost"], &json!("request")),
                "{level}: {whole}"
            );
            assert_eq!(
                (&values["n"]["type"], &values["request->cost"]["type"]),
                (&json!("int"), &json!("double"))
            );
            let at = hit["ts_ns"].as_u64().unwrap();
            let during = told["before_ns"].as_u64().unwrap()..=told["after_ns"].as_u64().unwrap();
            assert!(during.contains(&at), "{level}: {at} is not in {during:?}");
            assert_eq!((&hit["function"], &hit["pid"]), (&json!("serve"), &hit["tid"]));
            let site = hit["site"].as_str().unwrap();
            assert!(site.ends_with(&format!("engine/{}", place())), "{site}");
            assert!(hit["module"].as_str().unwrap().ends_with(level) && hit.get("duration_ns").is_none());
        }
    }
}

/// The address in the file at which the probed line begins.
fn address(level: &str) -> u64 {
    let target = Fixture::start(level, &["0".to_owned()]);
    let pid = target.pid().to_string();
    let lines = run(profiler(&["source", "-p", &pid, &place(), "--json"]))
        .status(0)
        .objects();
    let line = lines.iter().find(|line| line["marked"] == true).unwrap();
    let [site] = line["sites"].as_array().unwrap().as_slice() else {
        panic!("not one place: {line}");
    };
    target.finish();
    site.as_u64().unwrap()
}

#[test]
#[ignore = "needs root"]
fn an_address_is_hit_as_often_as_its_line() {
    for level in LEVELS {
        let address = address(level);
        let site = format!("{level}+{address:#x}");
        let Traced { command, told } = traced(
            level,
            300,
            true,
            &[&site, "--print", "n", "--json", "--limit", "100000"],
        );
        let (hits, _) = accounted(&command, 300);
        assert_eq!(hits.len(), 300, "{level}");
        for (hit, told) in hits.iter().zip(&told) {
            ok(told["n"].clone())(&hit["values"]["n"], level);
            assert!(
                hit["site"].as_str().unwrap().ends_with(&format!("/{site}")),
                "{hit}"
            );
            assert_eq!((&hit["file"], &hit["line"]), (&Value::Null, &Value::Null));
            assert_eq!(
                (&hit["function"], &hit["address"]),
                (&json!("serve"), &json!(address))
            );
        }
    }
}

#[test]
#[ignore = "needs root"]
fn an_address_that_is_none_is_refused() {
    let target = Fixture::start("hits_o0", &["0".to_owned()]);
    let pid = target.pid().to_string();
    let traced = |place: &str| run(profiler(&["trace", "-p", &pid, place])).status(3);
    traced("hits_o0+0x10").says("0x10 is not in its code");
    traced("nosuch.so+0x1000")
        .says("no file mapped that is called nosuch.so")
        .says("/hits_o0");
    traced(&format!("hits_o0+{:#x}", address("hits_o0") + 1))
        .says("inside an instruction: the nearest ones begin at ");
    target.finish();
}

#[test]
#[ignore = "needs root"]
fn a_hit_is_a_line_of_text() {
    let print = ["--print", "n,request->name", "--print", "request->cost"];
    let Traced { command, told } = traced("hits_o2", 50, true, &[&[&*place()][..], &print].concat());
    let lines: Vec<&str> = command.stdout().lines().collect();
    assert_eq!(lines.len(), 50);
    let mut before = 0.0;
    for (line, told) in lines.iter().zip(&told) {
        let (time, rest) = line.trim_start().split_once(" s ").unwrap();
        let time: f64 = time.parse().unwrap();
        assert!(time >= before, "{line}");
        before = time;
        let (n, cost, name) = (&told["n"], told["cost"].as_f64().unwrap(), &told["name"]);
        assert!(
            rest.ends_with(&format!(
                "  serve {}  n={n} request->name={name} request->cost={cost}",
                place()
            )),
            "{line}"
        );
    }
    println!("{}\n{}", lines[49], command.stderr());
    command.says("50 hits shown of 50 (0 rejected)\n");
}

#[test]
#[ignore = "needs root"]
fn a_condition_is_decided_before_a_hit_is_recorded() {
    let scope = format!("{}[n >= 100][request->kind == 3]", place());
    let Traced { command, told } = traced(
        "hits_o2",
        400,
        true,
        &[&scope, "--print", "n", "--json", "--limit", "100000"],
    );
    let (hits, summary) = accounted(&command, 400);
    let expected: Vec<&Value> = told
        .iter()
        .filter(|told| told["n"].as_u64() >= Some(100) && told["kind"] == 3)
        .map(|told| &told["n"])
        .collect();
    let seen: Vec<&Value> = hits.iter().map(|hit| &hit["values"]["n"]["value"]).collect();
    assert_eq!(seen, expected);
    assert_eq!(summary["rejected"], 400 - expected.len());
}

/// How many hits a limit of a hundred a second lets through, at most, in the time that these take: so many a second, and as many at
/// once before and after.
fn most(hits: &[Value]) -> u64 {
    let times = hits.iter().map(|hit| hit["ts_ns"].as_u64().unwrap());
    let first = times.clone().min().unwrap_or(0);
    202 + (times.max().unwrap_or(0) - first) / 10_000_000
}

#[test]
#[ignore = "needs root"]
fn what_the_limit_leaves_out_is_counted() {
    let Traced { command, .. } = traced("hits_o2", 50_000, false, &[&place(), "--json", "--limit", "100"]);
    let (hits, summary) = accounted(&command, 50_000);
    // A second's worth at once, then a hundred a second.
    let times: Vec<u64> = hits.iter().map(|hit| hit["ts_ns"].as_u64().unwrap()).collect();
    let most = 102 + (times[times.len() - 1] - times[0]) / 10_000_000;
    assert!((100..=most).contains(&(hits.len() as u64)), "{summary}");
    assert_eq!(summary["lost"], json!({"rate_limit": 50_000 - hits.len()}));
    assert_eq!(summary["rejected"], 0);
}

#[test]
#[ignore = "needs root"]
fn calls_of_a_function_have_durations() {
    for level in LEVELS {
        let Traced { command, told } = traced(level, 300, true, &["serve", "--json", "--limit", "100000"]);
        let (hits, _) = accounted(&command, 300);
        assert_eq!(hits.len(), 300, "{level}");
        for (hit, told) in hits.iter().zip(&told) {
            let clock = |name: &str| told[name].as_u64().unwrap();
            let (began, duration) = (
                hit["ts_ns"].as_u64().unwrap(),
                hit["duration_ns"].as_u64().unwrap(),
            );
            assert!(
                (clock("before_ns")..=clock("began_ns")).contains(&began)
                    && (clock("ended_ns")..=clock("after_ns")).contains(&(began + duration)),
                "{level}: {hit} {told}"
            );
            assert_eq!(
                (&hit["site"], &hit["file"], &hit["line"], &hit["values"]),
                (&json!("serve"), &Value::Null, &Value::Null, &json!({}))
            );
        }
    }
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_traced_is_refused_with_a_reason() {
    let target = Fixture::start("hits_o2", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let traced = |arguments: &[&str]| run(profiler(&[&["trace", "-p", &pid], arguments].concat()));
    let place = place();
    traced(&["hits.c:1"])
        .status(3)
        .says("has no code; the nearest lines with code");
    traced(&["nosuch.c:1"])
        .status(3)
        .says("no source file is called nosuch.c");
    traced(&["serv"]).status(3).says("serve");
    traced(&[&place, "--print", "n,request->"])
        .status(2)
        .says("\n  request->\n           ^");
    traced(&[&place, "--print", "request->>kind"])
        .status(2)
        .says("\n  request->>kind\n           ^");
    traced(&[&format!("{place}[n >")]).status(2).says("^");
    traced(&[&format!("{place}[>= p95]")]).status(2).says("^");
    traced(&["serve[nosuch == 1]"])
        .status(1)
        .says("no variable nosuch is visible here");
    let (_, line) = place.split_once(':').unwrap();
    let path = format!("\"engine/hits.c\":{line}");
    traced(&[&path, "--duration", "0.1"])
        .status(0)
        .says("0 hits shown of 0 (0 rejected)");
    for verb in ["latency", "flame"] {
        run(profiler(&[verb, "-p", &pid, &place]))
            .status(2)
            .says("is a line, which has no duration");
    }
    // What is printed may be missing; a condition that cannot be decided would reject every hit.
    traced(&[&format!("{place}[nosuch == 1]")])
        .status(1)
        .says("no variable nosuch is visible here");
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_value_that_there_is_not_is_said_to_be_missing() {
    let Traced { command, .. } = traced(
        "hits_o2",
        10,
        false,
        &[&place(), "--print", "nosuch,n,twice,request->nosuch", "--json"],
    );
    let (hits, _) = accounted(&command, 10);
    for (number, hit) in hits.iter().enumerate() {
        let values = &hit["values"];
        ok(json!(number))(&values["n"], "n");
        for missing in ["nosuch", "request->nosuch"] {
            assert_eq!(values[missing]["state"], "unsupported", "{hit}");
            assert!(
                values[missing]["reason"].as_str().unwrap().contains("nosuch"),
                "{hit}"
            );
        }
        // At this level it has a register of its own, or none.
        match values["twice"]["state"].as_str() {
            Some("ok") => assert_eq!(values["twice"]["value"], 2 * number),
            other => assert_eq!(other, Some("optimized_out"), "{hit}"),
        }
    }
}

#[test]
#[ignore = "needs root"]
fn ctrl_c_ends_a_trace_and_leaves_the_target_unharmed() {
    let mut target = Fixture::start("slowpath", &[]);
    target.say("go");
    let pid = target.pid().to_string();
    let mut command = Running::start(profiler(&["trace", "-p", &pid, "f", "--json"]));
    for _ in 0..20 {
        assert_eq!(objects(&command.line())[0]["function"], "f");
    }
    command.interrupt();
    let ended = command.end().status(0);
    assert_eq!(ended.objects().last().unwrap()["type"], "summary");
    super::verbs::unharmed(target);
}

/// A target that reaches the line until it is killed, once it is attached.
fn endless() -> (Fixture, String) {
    let mut target = Fixture::start("hits_o2", &["2000000000".to_owned()]);
    target.say("go");
    let pid = target.pid().to_string();
    (target, pid)
}

#[test]
#[ignore = "needs root"]
fn a_run_that_is_ended_accounts_for_every_hit() {
    let (_target, pid) = endless();
    for _ in 0..5 {
        let command = run(profiler(&[
            "trace",
            "-p",
            &pid,
            &place(),
            "--json",
            "--limit",
            "100000",
            "--duration",
            "0.3",
        ]));
        let command = command.status(0);
        let reached = command.objects().last().unwrap()["reached"].as_u64().unwrap();
        accounted(&command, reached);
    }
}

#[test]
#[ignore = "needs root"]
fn calls_are_limited_and_accounted_for() {
    for scope in ["serve", "serve[> 1ms]", "serve[>= p95]"] {
        let (_target, pid) = endless();
        let command = run(profiler(&[
            "trace",
            "-p",
            &pid,
            scope,
            "--json",
            "--limit",
            "100",
            "--duration",
            "1",
        ]));
        let command = command.status(0);
        let reached = command.objects().last().unwrap()["reached"].as_u64().unwrap();
        let (hits, summary) = accounted(&command, reached);
        assert!(hits.len() as u64 <= most(&hits), "{scope}: {summary}");
    }
}

#[test]
#[ignore = "needs root"]
fn fast_calls_do_not_use_up_the_limit_of_slow_ones() {
    for scope in ["serve[>= p95]".to_owned(), format!("serve[>= p95]/{}", place())] {
        let (_target, pid) = endless();
        let command = run(profiler(&[
            "trace",
            "-p",
            &pid,
            &scope,
            "--json",
            "--limit",
            "100",
            "--duration",
            "2",
        ]));
        let command = command.status(0);
        let reached = command.objects().last().unwrap()["reached"].as_u64().unwrap();
        let (hits, summary) = accounted(&command, reached);
        // Of calls taken as they come, one in twenty would be shown.
        assert!(hits.len() >= 100, "{scope}: {summary}");
        assert!(hits.len() as u64 <= most(&hits), "{scope}: {summary}");
    }
}

#[test]
#[ignore = "needs root"]
fn no_part_of_a_scope_is_left_out_in_silence() {
    let (_target, pid) = endless();
    let line = place();
    let traced = |scope: &str| {
        let arguments = [
            "trace",
            "-p",
            &pid,
            scope,
            "--json",
            "--limit",
            "10",
            "--duration",
            "0.3",
        ];
        let ended = run(profiler(&arguments));
        let status = i32::from(!ended.stderr().is_empty() && ended.stdout().is_empty());
        (status, ended)
    };
    for scope in [
        format!("fflush/{line}"),
        format!("nosuch/{line}"),
        format!("{line}!taken"),
        format!("say@{line}"),
    ] {
        let (status, ended) = traced(&scope);
        let hits = ended.stdout().lines().count().saturating_sub(1);
        assert!(
            status != 0 || hits == 0,
            "{scope}: {hits} hits though none can be meant"
        );
        assert!(
            status != 0 || scope.starts_with("fflush"),
            "{scope}: accepted without a word"
        );
    }
}

/// The chain of the fixture of that name, root first, below `main`.
const CHAIN: [(&str, bool); 5] = [
    ("outermost", false),
    ("compare", false),
    ("outer", false),
    ("inlined", true),
    ("reached", false),
];

/// Number of the line with a mark.
fn chain_line(mark: &str) -> u32 {
    let text = include_str!("../../../profiler-daemon/tests/fixtures/engine/chain.c");
    let mark = format!("/* line of {mark} */");
    let at = text.lines().position(|line| line.contains(&mark)).unwrap();
    u32::try_from(at).unwrap() + 1
}

#[test]
#[ignore = "needs root"]
fn a_hit_has_the_stack_that_leads_to_it() {
    let daemon = Daemon::start();
    let place = format!("chain.c:{}", chain_line("reached"));
    for json in [true, false] {
        let mut target = Fixture::start("chain", &["100".to_owned()]);
        let number = target.pid().to_string();
        // A session of its own, then one that goes on.
        let arguments: &[&str] = if json {
            &["trace", "-p", &number, &place, "--stack", "--json"]
        } else {
            let new = [
                "session", "new", "-p", &number, &place, "--stack", "--name", "chain",
            ];
            run(through(&daemon.socket, &new)).status(0);
            &["trace", "--session", "chain"]
        };
        let command = Running::start(through(&daemon.socket, arguments));
        daemon.until_watched();
        target.run();
        assert_eq!(target.finish().status, Some(0));
        let command = command.end().status(0);
        if json {
            let (hits, summary) = accounted(&command, 100);
            assert_eq!((hits.len(), &summary["lost"]), (100, &json!({})));
            for hit in hits {
                assert_eq!(hit["complete"], true, "{hit}");
                let frames = hit["stack"].as_array().unwrap();
                let seen: Vec<(&str, bool, u64)> = frames
                    .iter()
                    .filter(|frame| CHAIN.iter().any(|(name, _)| frame["function"] == *name))
                    .map(|frame| {
                        assert!(frame["file"].as_str().unwrap().ends_with("/chain.c"), "{frame}");
                        assert!(frame["module"].as_str().unwrap().ends_with("chain"), "{frame}");
                        (
                            frame["function"].as_str().unwrap(),
                            frame["inlined"].as_bool().unwrap(),
                            frame["line"].as_u64().unwrap(),
                        )
                    })
                    .collect();
                let expected = CHAIN.map(|(name, inlined)| (name, inlined, u64::from(chain_line(name))));
                assert_eq!(seen, expected);
                assert_eq!(frames[0]["function"], "_start");
            }
        } else {
            let text = command.stdout();
            let lines: Vec<&str> = text.lines().collect();
            let heads = lines
                .iter()
                .filter(|line| line.ends_with(&format!("  reached {place}")));
            assert_eq!(heads.count(), 100, "{text}");
            let frames: Vec<String> = CHAIN
                .iter()
                .rev()
                .map(|(name, _)| format!("        {name}  chain.c:{}", chain_line(name)))
                .collect();
            // Innermost first; the C library is between the second and the third from the root.
            assert_eq!(lines[1..5], frames[..4]);
            assert!(
                text.contains(&frames[4]) && text.contains("        _start"),
                "{text}"
            );
            assert!(!text.contains("incomplete"), "{text}");
            command.says("100 hits shown of 100 (0 rejected)\n");
        }
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// Traces a scope of `returns` to its end; the hits, the summary, and what the target says that it returned.
fn returning(
    daemon: &Daemon,
    level: &str,
    scope: &str,
    arguments: &[&str],
) -> (Vec<Value>, Value, Vec<Value>) {
    told(daemon, (level, &["200"]), scope, arguments, "returned ")
}

/// Traces a scope of a fixture to its end; the hits, the summary, and what it says in lines that begin so.
fn told(
    daemon: &Daemon,
    (name, own): (&str, &[&str]),
    scope: &str,
    arguments: &[&str],
    begins: &str,
) -> (Vec<Value>, Value, Vec<Value>) {
    let own: Vec<String> = own.iter().map(|&own| own.to_owned()).collect();
    let mut target = Fixture::start(name, &own);
    let number = target.pid().to_string();
    let trace = ["trace", "-p", &number, scope, "--json", "--limit", "100000"];
    let command = Running::start(through(&daemon.socket, &[&trace[..], arguments].concat()));
    daemon.until_watched();
    target.run();
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let mut hits = command.end().status(0).objects();
    let summary = hits.pop().unwrap();
    let told = ended.output.lines().filter_map(|line| line.strip_prefix(begins));
    let told = told.map(|text| serde_json::from_str(text).unwrap()).collect();
    (hits, summary, told)
}

#[test]
#[ignore = "needs root"]
fn what_a_call_returns_is_what_its_caller_has() {
    // The programs are loaded once for many sessions.
    let daemon = Daemon::with(&["--keep-loaded"]);
    for level in ["returns_o0", "returns_o2"] {
        for exit in ["auto", "return", "ret"] {
            for (function, type_name) in [
                ("get_byte", "unsigned char"),
                ("get_bool", "_Bool"),
                ("get_large_number", "long unsigned int"),
                ("get_pointer", "const char*"),
                ("get_pair", "pair"),
                ("get_small", "small"),
                ("get_text", "text"),
                ("get_large", "large"),
            ] {
                let (hits, _, told) =
                    returning(&daemon, level, function, &["--print", "return", "--exit", exit]);
                assert_eq!((hits.len(), told.len()), (200, 200), "{level} {function} {exit}");
                for (hit, told) in hits.iter().zip(&told) {
                    let value = &hit["values"]["return"];
                    assert_eq!(
                        (&value["state"], &value["value"], &value["type"]),
                        (&json!("ok"), &told[function], &json!(type_name)),
                        "{level} {function} {exit}"
                    );
                }
            }
        }
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn calls_are_shown_by_what_they_return() {
    let daemon = Daemon::start();
    let text = include_str!("../../../profiler-daemon/tests/fixtures/engine/returns.c");
    let line = |mark: &str| {
        let mark = format!("/* call of {mark} */");
        text.lines().position(|line| line.contains(&mark)).unwrap() + 1
    };
    for level in ["returns_o0", "returns_o2"] {
        for name in ["get_int", "strcoll"] {
            let scope = format!("{name}@returns.c:{}[return < 0]", line(name));
            let (hits, summary, told) = returning(&daemon, level, &scope, &["--print", "return"]);
            let expected: Vec<&Value> = told
                .iter()
                .map(|told| &told[name])
                .filter(|value| value.as_i64() < Some(0))
                .collect();
            let seen: Vec<&Value> = hits.iter().map(|hit| &hit["values"]["return"]["value"]).collect();
            assert_eq!(seen, expected, "{level} {scope}");
            assert_eq!(
                (&summary["reached"], &summary["rejected"], &summary["lost"]),
                (&json!(200), &json!(200 - seen.len()), &json!({})),
                "{level} {scope}"
            );
        }
        let (hits, summary, told) = returning(
            &daemon,
            level,
            "get_colour[return == RED]",
            &["--print", "return"],
        );
        let red = told.iter().filter(|told| told["get_colour"] == -1).count();
        assert_eq!((hits.len(), &summary["rejected"]), (red, &json!(200 - red)));
        assert!(hits.iter().all(|hit| hit["values"]["return"]["value"] == "RED"));
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_is_returned_leads_to_what_its_caller_finds_there() {
    let daemon = Daemon::start();
    let print = [
        "--print",
        "n,return->length,return->name,return->next->length,return->next->name",
    ];
    for level in ["returns_o0", "returns_o2"] {
        for exit in ["auto", "return", "ret"] {
            let arguments = [&print[..], &["--exit", exit]].concat();
            let (hits, summary, told) = returning(&daemon, level, "get_node", &arguments);
            assert_eq!((hits.len(), told.len()), (200, 200), "{level} {exit}: {summary}");
            for (n, (hit, told)) in hits.iter().zip(&told).enumerate() {
                let values = &hit["values"];
                assert_eq!(values["n"]["value"], n, "{values}");
                for (expression, expected) in [
                    ("return->length", &told["length"]),
                    ("return->name", &told["node"]),
                    ("return->next->length", &told["next"]),
                    ("return->next->name", &json!("next")),
                ] {
                    let value = &values[expression];
                    if n % 5 == 4 {
                        assert_eq!(value["state"], "unreadable", "{value}");
                    } else {
                        assert_eq!(
                            (&value["state"], &value["value"]),
                            (&json!("ok"), expected),
                            "{level} {exit} {n} {expression}"
                        );
                    }
                }
            }
        }
        for (condition, is_asked) in [
            ("return->length > 3", (|n| n - 2 > 3) as fn(i64) -> bool),
            ("return->name == \"second\"", |n| n % 3 == 1),
            ("return->next->length < 100", |n| 10 * n < 100),
            ("return != 0][return->length == 7", |n| n == 9),
        ] {
            let scope = format!("get_node[{condition}]");
            let (hits, summary, _) = returning(&daemon, level, &scope, &["--print", "n,return->length"]);
            let expected: Vec<i64> = (0..200).filter(|n| n % 5 != 4 && is_asked(*n)).collect();
            let seen: Vec<i64> = hits
                .iter()
                .map(|hit| hit["values"]["n"]["value"].as_i64().unwrap())
                .collect();
            assert_eq!(seen, expected, "{level} {scope}: {summary}");
            assert_eq!(
                (&summary["reached"], &summary["rejected"], &summary["lost"]),
                (&json!(200), &json!(200 - seen.len()), &json!({})),
                "{level} {scope}"
            );
        }
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn thread_locals_of_libraries_are_those_of_the_thread() {
    let daemon = Daemon::start();
    let text = include_str!("../../../profiler-daemon/tests/fixtures/engine/thread_locals_library.c");
    let trace = |mark: &str| {
        let mark = format!("/* {mark} */");
        let line = text.lines().position(|line| line.contains(&mark)).unwrap() + 1;
        let scope = format!("thread_locals_library.c:{line}");
        let (mut hits, summary, told) = told(
            &daemon,
            ("thread_locals", &[]),
            &scope,
            &["--print", "n,visits,own.number,own.name"],
            "visited ",
        );
        assert_eq!((hits.len(), told.len()), (24, 24), "{summary}");
        for hit in &mut hits {
            let module = hit["module"].as_str().unwrap();
            hit["library"] = json!(module.rsplit_once("thread_locals_").unwrap().1);
        }
        (hits, told)
    };
    let (hits, told) = trace("visited");
    for (hit, told) in hits.iter().zip(&told) {
        assert_eq!(hit["library"], told["library"]);
        for (expression, known) in [
            ("visits", "visits"),
            ("own.number", "number"),
            ("own.name", "name"),
        ] {
            let value = &hit["values"][expression];
            assert_eq!(
                (&value["state"], &value["value"]),
                (&json!("ok"), &told[known]),
                "{hit} {told}"
            );
        }
    }
    // Before a thread has asked for storage it has none, of the library that does not have it from the start.
    let (hits, told) = trace("reached");
    for (hit, told) in hits.iter().zip(&told) {
        let n = hit["values"]["n"]["value"].as_i64().unwrap();
        let value = &hit["values"]["visits"];
        if n == 0 && hit["library"] == "asked_for" {
            assert_eq!(value["state"], "unreadable", "{hit}");
            assert!(
                value["reason"].as_str().unwrap().contains("has not used"),
                "{hit}"
            );
        } else {
            assert_eq!(
                value["value"],
                told["visits"].as_i64().unwrap() - n,
                "{hit} {told}"
            );
        }
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_is_not_returned_in_general_registers_says_so() {
    let daemon = Daemon::start();
    for (function, reason) in [
        ("get_double", "double is returned in a vector register"),
        ("get_mixed", "mixed is returned in a vector register"),
    ] {
        let (hits, ..) = returning(&daemon, "returns_o2", function, &["--print", "return"]);
        assert_eq!(hits.len(), 200);
        for hit in hits {
            let value = &hit["values"]["return"];
            assert_eq!(value["state"], "unsupported", "{value}");
            assert!(value["reason"].as_str().unwrap().contains(reason), "{value}");
        }
    }
    // It ends by a jump: what that leads to returns in its place.
    for exit in ["ret", "return"] {
        let arguments = ["--print", "return", "--exit", exit];
        let (hits, _, told) = returning(&daemon, "returns_o2", "jumps", &arguments);
        assert_eq!((hits.len(), told.len()), (200, 200), "{exit}");
        for (hit, told) in hits.iter().zip(&told) {
            assert_eq!(hit["values"]["return"]["value"], told["jumps"], "{exit}");
        }
    }
    let target = Fixture::start("returns_o2", &["1".to_owned()]);
    let number = target.pid().to_string();
    for (arguments, words) in [
        (
            &["trace", "-p", &number, "get_nothing", "--print", "return"][..],
            "get_nothing returns nothing",
        ),
        (
            &["trace", "-p", &number, "get_nothing[return < 0]"],
            "a condition at get_nothing: the function returns nothing",
        ),
        (
            &["waits", "-p", &number, "get_int[return < 0]"],
            "waits cannot be filtered by return value",
        ),
        (
            &["flame", "-p", &number, "get_int[return < 0]", "--diff"],
            "a condition on a duration",
        ),
    ] {
        let ended = run(through(&daemon.socket, arguments));
        assert!(
            ended.stderr().contains(words),
            "{arguments:?}: {}",
            ended.stderr()
        );
    }
    target.finish();
    assert_eq!(daemon.stop(), Some(0));
}

/// The shortest durations of calls that take next to nothing: what nine of ten of them exceed.
fn short_durations(pid: &str, arguments: &[&str]) -> u64 {
    let of = [
        "trace",
        "-p",
        pid,
        "step_cold",
        "--limit",
        "100000",
        "--duration",
        "2",
        "--json",
    ];
    let ended = run(profiler(&[&of, arguments].concat())).status(0);
    let hits = ended.objects();
    let mut all: Vec<u64> = hits
        .iter()
        .filter_map(|hit| hit["duration_ns"].as_u64())
        .collect();
    all.sort_unstable();
    assert!(all.len() >= 100, "{}", all.len());
    all[all.len() / 10]
}

#[test]
#[ignore = "needs root"]
fn the_values_of_a_call_are_read_before_it_begins() {
    let mut target = Fixture::start("hot", &[]);
    target.say("go");
    let pid = target.pid().to_string();
    let registers = [
        "$rdi", "$rsi", "$rdx", "$rcx", "$r8", "$r9", "$rax", "$rbx", "$rbp", "$rsp",
    ];
    let mut values = vec!["--stack"];
    values.extend(registers.iter().flat_map(|register| ["--print", register]));
    let (plain, read) = (short_durations(&pid, &[]), short_durations(&pid, &values));
    println!("{plain} ns, with values and a stack {read} ns");
    assert!(read < 2 * plain, "{read} ns, {plain} ns without values");
    target.end();
}
