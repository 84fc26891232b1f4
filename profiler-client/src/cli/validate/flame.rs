//! What `flame` is asked for: its format, and sides that are there to be drawn.

use std::path::PathBuf;

use profiler_proto::v1;

use super::{
    super::{
        args::{Color, DiffArgs, DrawingArgs, FlameArgs, Format, Over, SessionMakingArgs, ShapingArgs},
        request::{Flame, FlameEvent, FlameFormat, Host, Request, SessionChoice, Sides},
    },
    endings::format_of,
    recorded_time,
    session::{OWN_LEASE, absolute, create},
    target_or_recording,
};
use crate::failure::Failure;
use crate::state::shape::{Around, Patterns, Shape};

pub(super) fn flame(args: FlameArgs) -> Result<Flame, Failure> {
    let sides = match (args.outside, args.diff) {
        (_, true) => Sides::Difference,
        (true, false) => Sides::Outside,
        (false, false) => Sides::Inside,
    };
    let session = if let Some(name) = args.session {
        SessionChoice::Join(name)
    } else {
        // Of a recording, the scope may be the recorded one.
        if args.recording.from.is_none() || args.scope.is_some() {
            require_predicate(sides, args.scope.as_deref().unwrap_or(""))?;
        }
        let target = target_or_recording(args.target, &args.recording)?;
        let mut create = create(target, &args.making, args.scope, args.frequency, OWN_LEASE)?;
        create.symbols = absolute(&args.symbols)?;
        create.allocations = args.allocations;
        SessionChoice::Make(create)
    };
    let drawing = drawing(args.drawing)?;
    let Drawing { over, mut by, .. } = drawing;
    let shape = shape(&args.shaping, args.thread.as_deref());
    if !shape.threads.is_empty() {
        if !matches!(by, v1::Grouping::Function | v1::Grouping::Thread) {
            return Err(Failure::usage(
                "--thread draws functions: leave out --by, or draw --by thread.",
            ));
        }
        by = v1::Grouping::Thread;
    }
    let times = times(args.on_cpu, args.off_cpu);
    if args.waits {
        check_waits(times, by)?;
    }
    if args.unique && over != v1::Over::Start {
        return Err(Failure::usage(
            "--unique counts what is touched once since the run began, --over counts what is recent: leave out one of them.",
        ));
    }
    let event = args.event.map(|name| FlameEvent {
        name,
        period: args.count.unwrap_or(0),
        frequency_hz: args.frequency.unwrap_or(0),
    });
    Ok(Flame {
        session,
        sides,
        duration: args.duration.map(|span| span.0),
        over,
        by,
        times,
        waits: args.waits,
        unique: args.unique,
        event,
        shape,
        output: drawing.output,
        otlp: args.otlp,
        format: drawing.format,
        color: drawing.color,
    })
}

/// The flame graph of what differs between two recordings.
pub(super) fn diff(args: DiffArgs) -> Result<(Host, Request), Failure> {
    let comparison = v1::RecordedComparison {
        after: Some(recorded_time(args.after_time)),
        before: Some(recorded_time(args.before_time)),
    };
    let target = v1::Target {
        target: Some(v1::target::Target::Comparison(Box::new(comparison))),
    };
    let making = SessionMakingArgs::default();
    let drawing = drawing(args.drawing)?;
    let times = times(args.on_cpu, args.off_cpu);
    if args.waits {
        check_waits(times, drawing.by)?;
    }
    let event = args.event.map(|name| FlameEvent {
        name,
        ..FlameEvent::default()
    });
    let flame = Flame {
        session: SessionChoice::Make(create(target, &making, args.scope, None, OWN_LEASE)?),
        sides: Sides::Difference,
        duration: None,
        over: drawing.over,
        by: drawing.by,
        times,
        waits: args.waits,
        unique: false,
        event,
        shape: Shape::default(),
        output: drawing.output,
        otlp: None,
        format: drawing.format,
        color: drawing.color,
    };
    let host = Host::Comparison {
        after: args.after,
        before: args.before,
    };
    Ok((host, Request::Flame(flame)))
}

/// Refuses to draw who ended waits where these are not drawn, or not by functions.
fn check_waits(times: v1::Times, by: v1::Grouping) -> Result<(), Failure> {
    if times == v1::Times::OnCpu {
        return Err(Failure::usage(
            "--waits draws time off the CPU, --on-cpu leaves it out: add --off-cpu, or leave out one of them.",
        ));
    }
    if by == v1::Grouping::Module {
        return Err(Failure::usage(
            "--waits draws functions, which --by module leaves out: choose another --by.",
        ));
    }
    Ok(())
}

/// What is made of stacks.
pub(super) fn shape(args: &ShapingArgs, threads: Option<&str>) -> Shape {
    let read = |text: Option<&str>| Patterns::read(text.unwrap_or_default());
    Shape {
        threads: read(threads),
        hide: read(args.hide.as_deref()),
        fold: read(args.fold.as_deref()),
        collapse: args.collapse,
        around: around(args),
    }
}

/// The functions that stacks are seen from.
fn around(args: &ShapingArgs) -> Option<Around> {
    let callees = args
        .callees
        .as_deref()
        .map(|names| Around::Callees(Patterns::read(names)));
    let callers = args
        .callers
        .as_deref()
        .map(|names| Around::Callers(Patterns::read(names)));
    let around = callees.or(callers);
    around.filter(|around| !around.functions().is_empty())
}

/// How a flame graph is drawn, and where it goes.
struct Drawing {
    over: v1::Over,
    by: v1::Grouping,
    output: Option<PathBuf>,
    format: FlameFormat,
    color: Color,
}

fn drawing(args: DrawingArgs) -> Result<Drawing, Failure> {
    let explicit = match args.format {
        Some(Format::Folded) => Some(FlameFormat::Folded),
        Some(Format::Svg) => Some(FlameFormat::Svg),
        Some(Format::Json) => Some(FlameFormat::Json),
        Some(Format::Pprof) => Some(FlameFormat::Pprof),
        Some(Format::Firefox) => Some(FlameFormat::Firefox),
        Some(Format::Speedscope) => Some(FlameFormat::Speedscope),
        Some(Format::PerfScript) => Some(FlameFormat::PerfScript),
        Some(Format::Otlp) => Some(FlameFormat::Otlp),
        None if args.folded => Some(FlameFormat::Folded),
        None if args.json => Some(FlameFormat::Json),
        None => None,
    };
    let format = match (explicit, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) => format_of(path, &ENDINGS)?,
        (None, None) => FlameFormat::Text,
    };
    let over = match args.over {
        Over::Window => v1::Over::Window,
        Over::Start => v1::Over::Start,
        Over::Ewma => v1::Over::Ewma,
    };
    let by = args.by.grouping();
    Ok(Drawing {
        over,
        by,
        output: args.output,
        format,
        color: args.color,
    })
}

fn times(on_cpu: bool, off_cpu: bool) -> v1::Times {
    match (on_cpu, off_cpu) {
        (false, false) => v1::Times::Unspecified,
        (true, false) => v1::Times::OnCpu,
        (false, true) => v1::Times::OffCpu,
        (true, true) => v1::Times::Both,
    }
}

/// What files of a format end in; the longer ones first.
const ENDINGS: [(&str, FlameFormat); 10] = [
    (".firefox.json", FlameFormat::Firefox),
    (".speedscope.json", FlameFormat::Speedscope),
    (".pb.gz", FlameFormat::Pprof),
    (".pprof", FlameFormat::Pprof),
    (".perf", FlameFormat::PerfScript),
    (".otlp", FlameFormat::Otlp),
    (".folded", FlameFormat::Folded),
    (".ndjson", FlameFormat::Json),
    (".json", FlameFormat::Json),
    (".svg", FlameFormat::Svg),
];

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
        "{flag} needs a scope with a condition on a duration, which divides its calls in two, e.g. 'handle_request[>= p95]'."
    )))
}

/// Whether the last step that asks for what is known at the end of its calls asks for a duration, and not only for what they
/// return: all that telling sides apart needs here. The daemon parses the scope.
fn has_predicate(scope: &str) -> bool {
    let mut divides = false;
    let (mut by_duration, mut by_return) = (false, false);
    let (mut quoted, mut bracketed) = (false, false);
    let mut chars = scope.chars();
    while let Some(c) = chars.next() {
        let rest = || chars.as_str().trim_start();
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' if !bracketed => {
                bracketed = true;
                by_duration |= rest().starts_with(['<', '>']);
                by_return |= is_of_return(rest());
            }
            ']' => bracketed = false,
            '/' if !bracketed => {
                divides = by_duration || divides && !by_return;
                (by_duration, by_return) = (false, false);
            }
            _ => {}
        }
    }
    by_duration || divides && !by_return
}

/// Whether a condition is on what a call returns.
fn is_of_return(condition: &str) -> bool {
    let name = condition.trim_start_matches(['*', '(', ' ']);
    let behind = name.strip_prefix("return").map(|behind| behind.chars().next());
    behind.is_some_and(|next| next.is_none_or(|c| !c.is_alphanumeric() && c != '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bracket_in_quotes_is_no_predicate() {
        assert!(has_predicate("f[>= p95]"));
        assert!(has_predicate(r#""a\"[x]"[> 2ms]/b"#));
        assert!(has_predicate("f[>= p95]/g[n > 1]"));
        assert!(has_predicate("f[return < 0]/g[> 2ms][return == 1]"));
        assert!(has_predicate("f[>= p95]/g[returned > 1]"));
        assert!(!has_predicate("f[return < 0]"));
        assert!(!has_predicate("f[>= p95]/g[*return == 0]"));
        assert!(!has_predicate(r#""operator[]""#));
        assert!(!has_predicate(r#""a\"[x]""#));
    }
}
