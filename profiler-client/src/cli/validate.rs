//! The one place where typed flags become a request that makes sense.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use profiler_proto::v1;

use super::{
    args::{
        BarsOver, By, Cli, Exit, ExplainArgs, FlameArgs, Format, HostArgs, LatencyArgs, Over, ScopeVerb,
        SessionMakingArgs, SessionNewArgs, SessionVerb, SpansArgs, TargetArgs, TraceArgs, Verb,
    },
    duration::to_proto,
    exit::Failure,
    print_list,
    request::{
        Explain, Flame, FlameFormat, Host, Latency, Request, ScopeEdit, SessionChoice, Sides, Spans, Trace,
    },
};

/// How long a session that a command made for itself outlives its last stream: long enough for a
/// busy machine to open the stream, short enough that a killed command leaves nothing for long.
const OWN_LEASE: Duration = Duration::from_secs(10);

/// Validates what was typed.
///
/// # Errors
///
/// A usage failure (exit status 2) that says which flags do not go together.
pub fn validate(cli: Cli) -> Result<(Host, Request), Failure> {
    Ok(match cli.verb {
        Verb::Ps(args) => (
            host(args.host)?,
            Request::Ps {
                pattern: args.pattern.unwrap_or_default(),
                json: args.json,
            },
        ),
        Verb::Functions(args) => (
            host(args.host)?,
            Request::Functions {
                target: target(args.target)?,
                pattern: args.glob.unwrap_or_default(),
                json: args.json,
            },
        ),
        Verb::Source(args) => (
            host(args.host)?,
            Request::Source {
                target: target(args.target)?,
                place: place(args.place)?,
                json: args.json,
                color: args.color,
            },
        ),
        Verb::Latency(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Latency(latency(args)?),
        ),
        Verb::Trace(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Trace(trace(args)?),
        ),
        Verb::Spans(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Spans(spans(args)?),
        ),
        Verb::Flame(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Flame(flame(args)?),
        ),
        Verb::Explain(mut args) => (
            host(std::mem::take(&mut args.host))?,
            Request::Explain(explain(args)?),
        ),
        Verb::Session(args) => match args.verb {
            SessionVerb::New(mut args) => (host(std::mem::take(&mut args.host))?, session_new(args)?),
            SessionVerb::List(args) => (host(args.host)?, Request::SessionList { json: args.json }),
            SessionVerb::End(args) => (host(args.host)?, Request::SessionEnd { name: args.name }),
        },
        Verb::Scope(args) => match args.verb {
            ScopeVerb::Set(args) => (
                host(args.host)?,
                Request::ScopeEdit {
                    name: args.name,
                    edit: ScopeEdit::Set(args.scope),
                },
            ),
            ScopeVerb::Append(args) => (
                host(args.host)?,
                Request::ScopeEdit {
                    name: args.name,
                    edit: ScopeEdit::Append(args.steps),
                },
            ),
            ScopeVerb::Drop(args) => (
                host(args.host)?,
                Request::ScopeEdit {
                    name: args.name,
                    edit: ScopeEdit::Drop(args.count),
                },
            ),
            ScopeVerb::Undo(args) => (
                host(args.host)?,
                Request::ScopeEdit {
                    name: args.name,
                    edit: ScopeEdit::Undo(args.count),
                },
            ),
        },
    })
}

fn host(args: HostArgs) -> Result<Host, Failure> {
    let Some(endpoint) = args.host else {
        return Ok(Host::Default);
    };
    let path = endpoint.strip_prefix("unix:").unwrap_or(&endpoint);
    // `unix:///path` is how URLs have it.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || (path == endpoint && !path.contains('/')) {
        return Err(Failure::usage(format!(
            "--host `{endpoint}` is not a socket: give its path (/run/profilerd.sock) or unix:PATH."
        )));
    }
    Ok(Host::Socket(PathBuf::from(path)))
}

fn target(args: TargetArgs) -> Result<v1::Target, Failure> {
    let target = match (args.pid, args.exe) {
        (Some(pid), _) => v1::target::Target::Pid(pid),
        (None, Some(exe)) if !exe.is_empty() => v1::target::Target::Executable(exe),
        (None, _) => {
            return Err(Failure::usage(
                "Say what to look at: -p PID or --exe EXE (`profiler ps` lists processes).",
            ));
        }
    };
    Ok(v1::Target { target: Some(target) })
}

fn place(text: String) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage(
            "Say what to show: a function or FILE:LINE, e.g. `profiler source -p PID main.cc:1310`.",
        ));
    }
    Ok(text)
}

fn create(
    target: v1::Target,
    making: &SessionMakingArgs,
    scope: Option<String>,
    frequency: Option<u32>,
    lease: Duration,
) -> Box<v1::CreateSessionRequest> {
    let exit_method = match making.exit {
        Exit::Auto => v1::ExitMethod::Auto,
        Exit::Return => v1::ExitMethod::Return,
        Exit::Ret => v1::ExitMethod::Ret,
    };
    Box::new(v1::CreateSessionRequest {
        name: String::new(),
        target: Some(target),
        scope: scope.unwrap_or_default(),
        frequency_hz: frequency.unwrap_or(0),
        window: making.window.map(|span| to_proto(span.0)),
        half_life: making.half_life.map(|span| to_proto(span.0)),
        lease: Some(to_proto(lease)),
        exit_method: exit_method.into(),
        symbols: Vec::new(),
        capture: None,
        explain: false,
        by: String::new(),
    })
}

fn latency(args: LatencyArgs) -> Result<Latency, Failure> {
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None if args.scope.as_deref().is_none_or(str::is_empty) => {
            return Err(Failure::usage(
                "Say which calls to time: a function, a glob or a scope, e.g. `profiler latency -p PID 'handle_*'`.",
            ));
        }
        None => {
            let mut create = create(target(args.target)?, &args.making, args.scope, None, OWN_LEASE);
            create.by = args.by.unwrap_or_default();
            SessionChoice::Make(create)
        }
    };
    Ok(Latency {
        session,
        duration: args.duration.map(|span| span.0),
        interval: args.interval.0,
        bars: args.over.unwrap_or(BarsOver::Window),
        json: args.json,
        color: args.color,
    })
}

fn trace(args: TraceArgs) -> Result<Trace, Failure> {
    if let Some(name) = args.session {
        return Ok(Trace {
            session: SessionChoice::Join(name),
            duration: args.duration.map(|span| span.0),
            json: args.json,
            color: args.color,
        });
    }
    if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) {
        return Err(Failure::usage(
            "Say what to trace: a line or a function, e.g. `profiler trace -p PID main.cc:1310 --print n`.",
        ));
    }
    let print = print_list::join(args.print)?;
    let making = SessionMakingArgs {
        exit: args.exit,
        ..SessionMakingArgs::default()
    };
    let mut create = create(target(args.target)?, &making, args.scope, None, OWN_LEASE);
    create.capture = Some(v1::Capture {
        print,
        hits_per_second: args.limit,
        stack: args.stack,
    });
    Ok(Trace {
        session: SessionChoice::Make(create),
        duration: args.duration.map(|span| span.0),
        json: args.json,
        color: args.color,
    })
}

fn explain(args: ExplainArgs) -> Result<Explain, Failure> {
    if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) {
        return Err(Failure::usage(
            "Say which calls are slow: e.g. `profiler explain -p PID 'handle_request[>= p95]'`.",
        ));
    }
    let making = SessionMakingArgs {
        exit: args.exit,
        ..SessionMakingArgs::default()
    };
    let mut create = create(target(args.target)?, &making, args.scope, None, OWN_LEASE);
    create.explain = true;
    Ok(Explain {
        session: SessionChoice::Make(create),
        duration: args.duration.0,
        number: usize::try_from(args.number).unwrap_or(usize::MAX),
        json: args.json,
        color: args.color,
    })
}

fn spans(args: SpansArgs) -> Result<Spans, Failure> {
    let session = match args.session {
        Some(name) => SessionChoice::Join(name),
        None if args.scope.as_deref().is_none_or(|scope| scope.trim().is_empty()) => {
            return Err(Failure::usage(
                "Say whose slowest calls to show: a function, a glob or a scope, e.g. `profiler spans -p PID handle_request`.",
            ));
        }
        None => {
            let making = SessionMakingArgs {
                window: args.window,
                exit: args.exit,
                ..SessionMakingArgs::default()
            };
            let target = target(args.target)?;
            let mut create = create(target, &making, args.scope, args.frequency, OWN_LEASE);
            create.symbols = absolute(&args.symbols)?;
            let print = print_list::join(args.print)?;
            create.capture = (!print.is_empty()).then_some(v1::Capture {
                print,
                hits_per_second: args.limit,
                stack: false,
            });
            SessionChoice::Make(create)
        }
    };
    Ok(Spans {
        session,
        number: args.number,
        duration: args.duration.map(|span| span.0),
        json: args.json,
        color: args.color,
    })
}

fn flame(args: FlameArgs) -> Result<Flame, Failure> {
    let sides = match (args.outside, args.diff) {
        (_, true) => Sides::Difference,
        (true, false) => Sides::Outside,
        (false, false) => Sides::Inside,
    };
    let session = if let Some(name) = args.session {
        SessionChoice::Join(name)
    } else {
        require_predicate(sides, args.scope.as_deref().unwrap_or(""))?;
        let target = target(args.target)?;
        let mut create = create(target, &args.making, args.scope, args.frequency, OWN_LEASE);
        create.symbols = absolute(&args.symbols)?;
        SessionChoice::Make(create)
    };
    let explicit = match args.format {
        Some(Format::Folded) => Some(FlameFormat::Folded),
        Some(Format::Svg) => Some(FlameFormat::Svg),
        Some(Format::Json) => Some(FlameFormat::Json),
        None if args.folded => Some(FlameFormat::Folded),
        None if args.json => Some(FlameFormat::Json),
        None => None,
    };
    let format = match (explicit, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) => format_of(path)?,
        (None, None) => FlameFormat::Text,
    };
    let over = match args.over {
        Over::Window => v1::Over::Window,
        Over::Start => v1::Over::Start,
        Over::Ewma => v1::Over::Ewma,
    };
    let by = match args.by {
        By::Function => v1::Grouping::Function,
        By::Line => v1::Grouping::Line,
        By::Module => v1::Grouping::Module,
        By::Thread => v1::Grouping::Thread,
        By::Process => v1::Grouping::Process,
    };
    Ok(Flame {
        session,
        sides,
        duration: args.duration.map(|span| span.0),
        over,
        by,
        output: args.output,
        format,
        color: args.color,
    })
}

fn session_new(args: SessionNewArgs) -> Result<Request, Failure> {
    let mut create = create(
        target(args.target)?,
        &args.making,
        args.scope,
        args.frequency,
        args.lease.0,
    );
    if args.by.is_some() && create.scope.trim().is_empty() {
        return Err(Failure::usage(
            "Say whose calls to divide: a function, a glob or a scope, e.g. `profiler session new -p PID f --by n`.",
        ));
    }
    create.by = args.by.unwrap_or_default();
    create.name = args.name.unwrap_or_default();
    create.symbols = absolute(&args.symbols)?;
    if args.trace || args.stack || !args.print.is_empty() {
        create.capture = Some(v1::Capture {
            print: print_list::join(args.print)?,
            hits_per_second: args.limit,
            stack: args.stack,
        });
    }
    Ok(Request::SessionNew {
        create,
        json: args.json,
    })
}

/// Paths as the service can use them, which may be in another folder.
fn absolute(paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let absolute = |path: &PathBuf| {
        let absolute = std::path::absolute(path).ok();
        absolute
            .and_then(|path| path.into_os_string().into_string().ok())
            .ok_or_else(|| Failure::usage(format!("--symbols `{}` is not a path in UTF-8.", path.display())))
    };
    paths.iter().map(absolute).collect()
}

fn format_of(path: &Path) -> Result<FlameFormat, Failure> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(FlameFormat::Svg),
        Some("folded") => Ok(FlameFormat::Folded),
        Some("json" | "ndjson") => Ok(FlameFormat::Json),
        _ => Err(Failure::usage(format!(
            "`{}` does not end in .svg, .folded or .json: say which with --format.",
            path.display()
        ))),
    }
}

/// Refuses two sides where the scope has but one.
///
/// # Errors
///
/// A usage failure where `scope` has no predicate.
pub fn require_predicate(sides: Sides, scope: &str) -> Result<(), Failure> {
    let flag = match sides {
        Sides::Inside => return Ok(()),
        Sides::Outside => "--outside",
        Sides::Difference => "--diff",
    };
    if has_predicate(scope) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{flag} needs a scope with a predicate, which divides its calls in two, \
         e.g. 'handle_request[>= p95]'."
    )))
}

/// Whether a bracket with a condition on a duration opens outside of double quotes: all that telling sides apart needs here; the
/// daemon parses the scope.
fn has_predicate(scope: &str) -> bool {
    let mut quoted = false;
    let mut chars = scope.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '"' => quoted = !quoted,
            '[' if !quoted && chars.as_str().trim_start().starts_with(['<', '>']) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::exit::ExitStatus;

    fn parse(line: &[&str]) -> Result<(Host, Request), Failure> {
        validate(Cli::try_parse_from([&["profiler"], line].concat()).unwrap())
    }

    fn refused(line: &[&str]) -> String {
        match Cli::try_parse_from([&["profiler"], line].concat()) {
            Err(error) => error.to_string(),
            Ok(cli) => {
                let failure = validate(cli).unwrap_err();
                assert_eq!(failure.status, ExitStatus::Usage);
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
        let (_, Request::Latency(latency)) =
            parse(&["latency", "-p", "7", "f", "--by", "req->kind"]).unwrap()
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
            (&["latency", "-p", "server", "f"], "`profiler ps server` shows"),
            (&["latency", "-p", "7", "--exe", "x", "f"], "cannot be used with"),
            (&["latency", "--session", "web", "-p", "7"], "cannot be used with"),
            (
                &["flame", "-p", "7", "f", "--outside"],
                "--outside needs a scope with a predicate",
            ),
            (
                &["flame", "-p", "7", "\"a[>= p95]\"", "--diff"],
                "--diff needs a scope with a predicate",
            ),
            (
                &["flame", "-p", "7", "f[>= p95]", "--diff", "--outside"],
                "cannot be used with",
            ),
            (&["flame", "-p", "7", "-o", "x.png"], ".svg, .folded or .json"),
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
    fn a_bracket_in_quotes_is_no_predicate() {
        assert!(has_predicate("f[>= p95]"));
        assert!(has_predicate(r#""a\"[x]"[> 2ms]/b"#));
        assert!(!has_predicate(r#""operator[]""#));
        assert!(!has_predicate(r#""a\"[x]""#));
    }
}
