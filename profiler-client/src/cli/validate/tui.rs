//! What `tui` is asked for.

use profiler_proto::v1;

use super::flame::shape;
use super::{
    super::{
        args::{Exit, SessionMakingArgs, ShapingArgs, TuiArgs},
        budget::Budget,
        duration::Span,
        print_list,
        request::Tui,
    },
    RECORDED_VALUES, each_once,
    session::{OWN_LEASE, create},
};
use crate::failure::Failure;
use crate::tui::lens::{BETWEEN_FRAMES, FrameId, Lens, Mouse, Picture, Recorded, Target};

/// `host` is the daemon that was given.
pub(super) fn tui(args: TuiArgs, host: Option<String>) -> Result<Tui, Failure> {
    if args.from.is_some() && !args.print.is_empty() {
        return Err(Failure::usage(RECORDED_VALUES));
    }
    let says_what_is_shown = says_what_is_shown(&args);
    let recorded = args.from.map(|path| {
        Target::Recording(Recorded {
            path: path.to_string_lossy().into_owned(),
            time: args.time.unwrap_or_default(),
            without_scope: args.scope.as_deref().is_some_and(|scope| scope.trim().is_empty()),
        })
    });
    let target = match (
        args.session,
        each_once(args.target.pid).as_slice(),
        args.target.exe,
    ) {
        _ if recorded.is_some() => recorded,
        (Some(name), ..) => Some(Target::Session(name)),
        (None, &[pid], _) => Some(Target::Pid(pid)),
        (None, [], Some(exe)) if !exe.is_empty() => Some(Target::Exe(exe)),
        (None, [], _) => None,
        (None, pids, _) => Some(Target::Pids(pids.to_vec())),
    };
    let frames = args.zoom.unwrap_or_default();
    let frames = frames.split(BETWEEN_FRAMES).filter(|name| !name.is_empty());
    let mut lens = Lens::on(target);
    lens.host = host;
    lens.making = making(&args.making, args.frequency);
    if args.no_mouse {
        lens.mouse = Mouse::OfTerminal;
    }
    lens.scope = args.scope.unwrap_or_default();
    lens.pane = args.pane.unwrap_or_default();
    lens.sort = args.sort.unwrap_or_default();
    lens.picture = if args.heat { Picture::Heat } else { Picture::Bars };
    lens.by = args.by.unwrap_or_default();
    lens.event = args.event.unwrap_or_default();
    lens.shape = shape(&args.shaping, args.thread.as_deref());
    lens.at_least = args.at_least.unwrap_or(0);
    lens.search = args.search.unwrap_or_default();
    lens.print = print_list::join(args.print)?;
    lens.zoom = frames.map(FrameId::named).collect();
    lens.source = args.source;
    let template = *create(
        v1::Target::default(),
        &args.making,
        None,
        args.frequency,
        OWN_LEASE,
    )?;
    Ok(Tui {
        lens,
        says_what_is_shown,
        template,
        color: args.color,
    })
}

/// Whether a flag, or the scope, says what is shown of a target, be it what is shown without it.
fn says_what_is_shown(args: &TuiArgs) -> bool {
    let ShapingArgs {
        hide,
        fold,
        collapse,
        callees,
        callers,
    } = &args.shaping;
    let texts = [
        &args.scope,
        &args.search,
        &args.event,
        &args.thread,
        hide,
        fold,
        callees,
        callers,
        &args.zoom,
        &args.source,
    ];
    texts.iter().any(|text| text.is_some())
        || args.time.is_some()
        || args.pane.is_some()
        || args.sort.is_some()
        || args.by.is_some()
        || args.at_least.is_some()
        || args.heat
        || *collapse
}

/// The flags that sessions are made with, where they are not as if left out.
fn making(making: &SessionMakingArgs, frequency: Option<u32>) -> Vec<String> {
    let length = |name: &str, span: Option<Span>| {
        span.map(|span| format!("--{name}={}", crate::cli::duration::text(span.0)))
    };
    let exit = match making.probing.exit {
        Exit::Auto => None,
        Exit::Return => Some("--exit=return".to_owned()),
        Exit::Ret => Some("--exit=ret".to_owned()),
    };
    let flags = [
        frequency.map(|hz| format!("--frequency={hz}")),
        length("window", making.window),
        length("half-life", making.half_life),
        exit,
        making
            .probing
            .budget
            .map(|Budget(share)| format!("--budget={}", share * 100.0)),
    ];
    flags.into_iter().flatten().collect()
}
