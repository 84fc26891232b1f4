//! Which flags go together, and what they come to.

use std::time::Duration;

use clap::Parser as _;

use super::*;
use crate::{
    cli::request::{Flame, FlameFormat, SessionChoice, Sides},
    failure::FailureClass,
    state::shape::{Around, Patterns},
};

fn parse(line: &[&str]) -> Result<(Host, Request), Failure> {
    validate(Cli::try_parse_from([&["profiler"], line].concat()).unwrap())
}

fn refused(line: &[&str]) -> String {
    match Cli::try_parse_from([&["profiler"], line].concat()) {
        Err(error) => error.to_string(),
        Ok(cli) => {
            let failure = validate(cli).unwrap_err();
            assert_eq!(failure.class, FailureClass::Usage);
            failure.message
        }
    }
}

fn flame_of(line: &[&str]) -> Flame {
    let (_, Request::Flame(flame)) = parse(line).unwrap() else {
        panic!("not a flame")
    };
    flame
}

#[test]
fn the_command_lines_of_the_documentation_are_accepted() {
    let (host, request) = parse(&["latency", "-p", "7", "f"]).unwrap();
    assert_eq!(host, Host::Default);
    let Request::Latency(latency) = request else {
        panic!()
    };
    let SessionChoice::Make(create) = latency.session else {
        panic!()
    };
    assert_eq!(create.scope, "f");
    assert_eq!(
        create.target.clone().unwrap().target,
        Some(v1::target::Target::Pid(7))
    );
    assert_eq!(create.exit_method(), v1::ExitMethod::Auto);
    let flame = flame_of(&["flame", "-p", "7", "f[>= p95]", "--diff", "-o", "diff.svg"]);
    assert_eq!((flame.sides, flame.format), (Sides::Difference, FlameFormat::Svg));
    let flame = flame_of(&["flame", "-p", "7", "f[>= p95]", "-f", "--duration", "10"]);
    assert_eq!(
        (flame.format, flame.duration),
        (FlameFormat::Folded, Some(Duration::from_secs(10)))
    );
    assert_eq!(flame_of(&["flame", "-p", "7"]).format, FlameFormat::Text);
    assert_eq!(flame_of(&["flame", "-p", "7"]).by, v1::Grouping::Function);
    assert_eq!(
        flame_of(&["flame", "-p", "7", "--by", "line"]).by,
        v1::Grouping::Line
    );
    assert_eq!(
        flame_of(&["flame", "--session", "web", "--json"]).session,
        SessionChoice::Join("web".into())
    );
}

#[test]
fn several_processes_are_looked_at_together() {
    let target_of = |line: &[&str]| {
        let (_, Request::Latency(latency)) = parse(&[&["latency"], line, &["f"]].concat()).unwrap() else {
            panic!("not a latency")
        };
        let SessionChoice::Make(create) = latency.session else {
            panic!("no session of its own")
        };
        create.target.unwrap().target.unwrap()
    };
    let several = |pids: &[u32]| v1::target::Target::Processes(v1::Processes { pids: pids.to_vec() });
    assert_eq!(target_of(&["-p", "8", "-p", "7"]), several(&[8, 7]));
    assert_eq!(target_of(&["-p", "8,7", "--pid", "9"]), several(&[8, 7, 9]));
    // One that is named twice counts once.
    assert_eq!(target_of(&["-p", "8,7", "-p", "8"]), several(&[8, 7]));
    assert_eq!(target_of(&["-p", "7", "-p", "7"]), v1::target::Target::Pid(7));
    let (_, Request::Tui(tui)) = parse(&["tui", "-p", "7", "-p", "8"]).unwrap() else {
        panic!("not the terminal")
    };
    assert_eq!(tui.lens.target, Some(crate::tui::lens::Target::Pids(vec![7, 8])));
    for verb in ["top", "flame", "waits", "syscalls", "timeline", "functions"] {
        assert!(parse(&[verb, "-p", "7", "-p", "8"]).is_ok(), "{verb}");
    }
    assert!(refused(&["top", "-p", "7", "-p", "0"]).contains("0 is not in 1..="));
    assert!(refused(&["top", "-p", "7,nginx"]).contains("`profiler ps nginx` lists the processes"));
    assert!(refused(&["top", "-p", "7", "--exe", "nginx"]).contains("cannot be used with"));
}

#[test]
fn a_trace_says_what_to_capture() {
    let line = [
        "trace", "-p", "7", "a.c:3", "--print", "n,a[1,2]", "--print", "*p", "--exit", "ret", "--stack",
    ];
    let (_, Request::Trace(trace)) = parse(&line).unwrap() else {
        panic!("not a trace")
    };
    let SessionChoice::Make(create) = trace.session else {
        panic!("no session of its own")
    };
    assert_eq!(
        (create.scope.as_str(), create.exit_method()),
        ("a.c:3", v1::ExitMethod::Ret)
    );
    assert_eq!(
        create.capture,
        Some(v1::Capture {
            print: vec!["n".into(), "a[1,2]".into(), "*p".into()],
            hits_per_second: 1000,
            stack: true,
        })
    );
    assert_eq!(create.name, "");
}

#[test]
fn calls_are_divided_by_an_expression() {
    let (_, Request::Latency(latency)) = parse(&["latency", "-p", "7", "f", "--by", "req->kind"]).unwrap()
    else {
        panic!("not a latency")
    };
    let SessionChoice::Make(create) = latency.session else {
        panic!("no session of its own")
    };
    assert_eq!((create.by.as_str(), &create.capture), ("req->kind", &None));
    let (_, Request::SessionNew { create, .. }) =
        parse(&["session", "new", "-p", "7", "f", "--by", "n"]).unwrap()
    else {
        panic!("not a session")
    };
    assert_eq!((create.by.as_str(), &create.capture), ("n", &None));
}

#[test]
fn spans_read_values_only_where_they_are_asked_for() {
    let created = |line: &[&str]| {
        let (_, Request::Spans(spans)) = parse(line).unwrap() else {
            panic!("no spans")
        };
        let SessionChoice::Make(create) = spans.session else {
            panic!("no session of its own")
        };
        (spans.number, create)
    };
    let (number, create) = created(&["spans", "-p", "7", "f", "--window", "3"]);
    assert_eq!((number, &create.capture), (10, &None));
    assert_eq!(create.window.map(|window| window.seconds), Some(3));
    let (number, create) = created(&["spans", "-p", "7", "f", "-n", "3", "--print", "n,m", "-F", "999"]);
    assert_eq!((number, create.frequency_hz), (3, 999));
    assert_eq!(
        create.capture,
        Some(v1::Capture {
            print: vec!["n".into(), "m".into()],
            hits_per_second: 10_000,
            stack: false,
        })
    );
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    for (line, words) in [
        (&["latency", "f"][..], "-p PID"),
        (&["latency", "-p", "7"], "which calls"),
        (&["trace", "-p", "7"], "what to trace"),
        (&["trace", "-p", "7", " "], "what to trace"),
        (&["trace", "f"], "-p PID"),
        (&["trace", "-p", "7", "f", "--limit", "0"], "0 is not in"),
        (
            &["trace", "-p", "7", "f", "--limit", "100001"],
            "100001 is not in",
        ),
        (
            &["trace", "-p", "7", "f", "--session", "web"],
            "cannot be used with",
        ),
        (
            &["trace", "-p", "7", "f", "--print", "n,,m"],
            "no expression before the comma at byte 2",
        ),
        (
            &[
                "trace",
                "-p",
                "7",
                "f",
                "--print",
                "a,b,c,d,e,f,g,h,i",
                "--print",
                "a,b,c,d,e,f,g,h",
            ],
            "17 expressions; at most 16",
        ),
        (&["latency", "-p", "7", "f", "--by", "n,m"], "one expression"),
        (
            &["latency", "--session", "web", "--by", "n"],
            "cannot be used with",
        ),
        (
            &["session", "new", "-p", "7", "--by", "n"],
            "whose calls to divide",
        ),
        (
            &["session", "new", "-p", "7", "f", "--by", "n", "--print", "m"],
            "cannot be used with",
        ),
        (
            &["session", "new", "-p", "7", "f", "--by", "n", "--limit", "5"],
            "cannot be used with",
        ),
        (
            &["record", "--session", "web", "--calls", "-o", "a"],
            "the condition [>= 0ns]",
        ),
        (&["self", "f", "--calls", "-o", "a"], "calls inside of others"),
        (&["source", "f"], "-p PID"),
        (&["spans", "-p", "7"], "whose slowest calls"),
        (&["spans", "f"], "-p PID"),
        (&["spans", "-p", "7", "f", "-n", "0"], "0 is not in"),
        (&["spans", "-p", "7", "f", "-n", "101"], "101 is not in"),
        (
            &["spans", "--session", "web", "--print", "n"],
            "cannot be used with",
        ),
        (&["source", "-p", "7", ""], "a function or FILE:LINE"),
        (&["latency", "-p", "0", "f"], "0 is not in"),
        (&["latency", "-p", "server", "f"], "`profiler ps server` lists"),
        (&["latency", "-p", "7", "--exe", "x", "f"], "cannot be used with"),
        (&["latency", "--session", "web", "-p", "7"], "cannot be used with"),
        (
            &["flame", "-p", "7", "f", "--outside"],
            "--outside needs a scope with a condition",
        ),
        (
            &["flame", "-p", "7", "\"a[>= p95]\"", "--diff"],
            "--diff needs a scope with a condition",
        ),
        (
            &["flame", "-p", "7", "f[>= p95]", "--diff", "--outside"],
            "cannot be used with",
        ),
        (&["flame", "-p", "7", "-o", "x.png"], ".folded .ndjson .json .svg"),
        (&["flame", "-p", "7", "-f", "-o", "x.svg"], "cannot be used with"),
        (&["flame", "-p", "7", "-F", "0"], "0 is not in"),
        (&["flame", "-p", "7", "--duration", "0"], "more than zero"),
        (&["ps", "--host", "example.com:443"], "not a socket"),
    ] {
        let message = refused(line);
        assert!(message.contains(words), "{line:?}: {message}");
    }
}

#[test]
fn a_host_is_a_socket() {
    for endpoint in ["/run/x.sock", "unix:/run/x.sock", "unix:///run/x.sock"] {
        let (host, _) = parse(&["ps", "--host", endpoint]).unwrap();
        assert_eq!(host, Host::Socket("/run/x.sock".into()), "{endpoint}");
    }
    assert_eq!(
        parse(&["ps", "--host", "unix:x.sock"]).unwrap().0,
        Host::Socket("x.sock".into())
    );
}

#[test]
fn latency_is_written_by_ending_or_format() {
    let export = |line: &[&str]| {
        let line = [&["latency", "-p", "7", "f"], line].concat();
        let (_, Request::Latency(latency)) = parse(&line).unwrap() else {
            panic!("not a latency")
        };
        latency.export.map(|export| export.output)
    };
    assert_eq!(export(&[]), None);
    assert_eq!(export(&["-o", "a.hlog", "--json"]), Some(Some("a.hlog".into())));
    assert_eq!(export(&["-o", "a", "--format", "hlog"]), Some(Some("a".into())));
    assert_eq!(export(&["--format", "hlog"]), Some(None));
    let message = refused(&["latency", "-p", "7", "f", "-o", "a.svg"]);
    assert!(message.contains("`a.svg` ends in none of .hlog"), "{message}");
    let message = refused(&["latency", "-p", "7", "f", "--format", "hlog", "--json"]);
    assert!(message.contains("--format and --json"), "{message}");
}

#[test]
fn events_are_written_by_ending_or_format() {
    use crate::cli::args::{EventFormat, TimelineFormat};

    let export = |line: &[&str]| match parse(line).unwrap().1 {
        Request::Trace(trace) => trace.export,
        Request::Spans(spans) => spans.export,
        _ => panic!("neither a trace nor spans"),
    };
    for verb in ["trace", "spans"] {
        let format =
            |rest: &[&str]| export(&[&[verb, "-p", "7", "f"], rest].concat()).map(|export| export.format);
        assert_eq!(format(&[]), None);
        for (file, written) in [
            ("a.pftrace", EventFormat::Perfetto),
            ("a.b.Perfetto-Trace", EventFormat::Perfetto),
            ("a.trace.json", EventFormat::Chrome),
            ("a.firefox.json", EventFormat::Firefox),
        ] {
            assert_eq!(format(&["-o", file]), Some(written), "{verb} {file}");
            assert_eq!(format(&["-o", file, "--json"]), Some(written), "{verb} {file}");
        }
        assert_eq!(
            format(&["-o", "a.pftrace", "--format", "chrome"]),
            Some(EventFormat::Chrome)
        );
        assert_eq!(format(&["--format", "perfetto"]), Some(EventFormat::Perfetto));
        for refusal in ["a.json", "a.svg", "a"] {
            let message = refused(&[verb, "-p", "7", "f", "-o", refusal]);
            let words = format!("`{refusal}` ends in none of .pftrace .perfetto-trace .trace.json");
            assert!(message.contains(&words), "{message}");
        }
        let message = refused(&[verb, "-p", "7", "f", "--format", "chrome", "--json"]);
        assert!(message.contains("--format and --json"), "{message}");
    }
    let timeline = |rest: &[&str]| {
        let (_, Request::Timeline(timeline)) = parse(&[&["timeline", "-p", "7"], rest].concat()).unwrap()
        else {
            panic!("not a timeline")
        };
        timeline.export.map(|export| export.format)
    };
    assert_eq!(timeline(&["-o", "a.SVG"]), Some(TimelineFormat::Svg));
    assert_eq!(timeline(&["-o", "a.pftrace"]), Some(TimelineFormat::Perfetto));
    assert_eq!(timeline(&["--format", "chrome"]), Some(TimelineFormat::Chrome));
    assert_eq!(timeline(&["-o", "a.firefox.json"]), Some(TimelineFormat::Firefox));
    let message = refused(&["timeline", "-p", "7", "-o", "a.json"]);
    assert!(
        message.contains("ends in none of .svg .pftrace .perfetto-trace .trace.json"),
        "{message}"
    );
}

#[test]
fn stacks_are_shaped_as_flags_say_and_never_compared_so() {
    let flame = flame_of(&[
        "flame",
        "-p",
        "7",
        "--thread",
        "clerk-*",
        "--hide",
        "malloc|free",
        "--collapse",
    ]);
    assert_eq!(
        flame.by,
        v1::Grouping::Thread,
        "threads are told apart to be chosen"
    );
    assert_eq!(flame.shape.threads.text(), "clerk-*");
    assert!(flame.shape.hide.matches("free") && flame.shape.collapse);
    assert!(flame_of(&["flame", "-p", "7"]).shape.is_plain());
    assert_eq!(
        flame_of(&["flame", "-p", "7", "--callees", "parse|::read"])
            .shape
            .around,
        Some(Around::Callees(Patterns::read("parse|::read")))
    );
    assert_eq!(
        flame_of(&["flame", "-p", "7", "--callers", "f"]).shape.around,
        Some(Around::Callers(Patterns::read("f")))
    );
    let both = ["profiler", "flame", "-p", "7", "--callers", "f", "--callees", "g"];
    assert!(Cli::try_parse_from(both).is_err());
    for flags in [
        &["--hide", "f"][..],
        &["--fold", "f"],
        &["--collapse"],
        &["--thread", "f"],
        &["--callees", "f"],
        &["--callers", "f"],
    ] {
        let words = [&["profiler", "flame", "-p", "7", "f[>= p95]", "--diff"], flags].concat();
        assert!(Cli::try_parse_from(&words).is_err(), "{words:?}");
    }
}

#[test]
fn a_recording_takes_no_flags_that_would_change_nothing() {
    for line in [
        &["spans", "--from", "a"][..],
        &["spans", "--from", "a", "f[>= p95]", "--time", "2s..", "--waits"],
        &["explain", "--from", "a", "f[>= p95]", "--time", "2s.."],
        &["trace", "--from", "a"],
        &["syscalls", "--from", "a", "f", "--time", "2s..", "--by", "line"],
    ] {
        let (host, _) = parse(line).unwrap();
        assert_eq!(host, Host::Recording("a".into()), "{line:?}");
    }
    for line in [
        &["trace", "--from", "a", "--limit", "5"][..],
        &["spans", "--from", "a", "--limit", "5"],
        &["spans", "--from", "a", "--print", "n"],
        &["tui", "--from", "a", "--print", "n"],
        &["tui", "--from", "a", "-F", "99"],
        &["tui", "--from", "a", "--budget", "5"],
        &["tui", "--from", "a", "-p", "7"],
        &["spans", "--from", "a", "--window", "5"],
        &["spans", "--from", "a", "-F", "99"],
        &["explain", "--from", "a", "--duration", "5"],
        &["explain", "--from", "a", "-p", "7"],
        &["syscalls", "--from", "a", "-p", "7"],
    ] {
        let said = refused(line);
        assert!(
            said.contains("--from") || said.contains("record --print"),
            "{line:?}: {said}"
        );
    }
    assert_eq!(
        refused(&["tui", "--from", "a", "--print", "n"]),
        refused(&["spans", "--from", "a", "--print", "n"])
    );
}

#[test]
fn whether_a_screen_is_asked_for_is_known_of_flags_that_say_what_is_shown_anyway() {
    let asks = |flags: &[&str]| {
        let (_, Request::Tui(tui)) = parse(&[&["tui", "--from", "a"], flags].concat()).unwrap() else {
            panic!("not a screen")
        };
        tui.says_what_is_shown
    };
    for flags in [
        &[][..],
        &["--no-mouse"],
        &["--color", "never"],
        &["--window", "5"],
    ] {
        assert!(!asks(flags), "{flags:?}");
    }
    for flags in [
        &["--pane", "top"][..],
        &["--sort", "self"],
        &["--by", "function"],
        &["--at-least", "0"],
        &["--search", ""],
        &["--collapse"],
        &["--heat"],
        &["--time", "5s.."],
        &["--hide", "malloc"],
        &["--callers", "f"],
        &["f"],
        &[""],
    ] {
        assert!(asks(flags), "{flags:?}");
    }
}
