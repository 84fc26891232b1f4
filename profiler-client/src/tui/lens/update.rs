//! What each action does.

use profiler_daemon::session::OVER_BUDGET;
use profiler_proto::v1;
use profiler_scope::Place;

use super::{
    Action, Effect, FrameId, Hits, Item, Lens, MAX_EDITS, MAX_TRAIL, Overlay, Pane, Part, Pointed, Purpose,
    Recorded, Target, command_line, part,
    path::{self, Towards},
    pointing, shaping, typing,
};
use crate::{
    attached::recorded_length,
    cli::args::By,
    render::waits::own_frame,
    state::{shape::Patterns, timeline::Row},
    tui::data::Data,
};

/// Says what an action changes, and what is to be done outside.
pub fn update(lens: &mut Lens, action: Action, data: &Data) -> Vec<Effect> {
    if action.is_of_user() {
        lens.notice = None;
    }
    let mut effects = act(lens, action, data);
    effects.extend(follow(lens));
    effects
}

fn act(lens: &mut Lens, action: Action, data: &Data) -> Vec<Effect> {
    // Whatever is drawn over the screen goes with the next key.
    let over = lens.overlay;
    let mut pointed = None;
    if action.is_of_user() {
        pointed = lens.pointed.take();
        lens.overlay = Overlay::None;
    }
    match action {
        // A key that takes away what is drawn over the screen does nothing else.
        _ if over != Overlay::None && !acts_over_screen(&action) => Vec::new(),
        Action::Show(pane) => show(lens, pane, data),
        Action::Move(towards) => {
            crate::tui::moves::step(lens, towards, data);
            Vec::new()
        }
        Action::Point { spot, row } => pointing::point(lens, Pointed { spot, row }, pointed.as_ref(), data),
        Action::Mouse => pointing::change_mouse(lens),
        Action::Enter => enter(lens, data),
        Action::Inside => inside(lens, data),
        Action::Values => values(lens, data),
        Action::Back => {
            back(lens);
            Vec::new()
        }
        Action::Undo => undo(lens),
        Action::Nudge(towards) => nudge(lens, towards),
        Action::Part(part) => move_part(lens, part, data),
        Action::Mark => {
            mark(lens);
            Vec::new()
        }
        Action::Threshold => threshold(lens, data),
        Action::Resized(size) => {
            lens.size = size;
            Vec::new()
        }
        Action::Sort | Action::Picture | Action::By | Action::Collapse | Action::AtLeast | Action::Around => {
            shaping::change(lens, &action);
            Vec::new()
        }
        Action::EditHide => typing::begin(lens, Purpose::Hide),
        Action::EditFold => typing::begin(lens, Purpose::Fold),
        Action::EditScope => typing::begin(lens, Purpose::Scope),
        Action::Search => typing::begin(lens, Purpose::Search),
        Action::EditPrint => typing::begin(lens, Purpose::Print),
        Action::Type(typed) => typing::typed(lens, &typed, data),
        Action::Freeze => {
            lens.frozen = !lens.frozen;
            Vec::new()
        }
        Action::Help => {
            lens.overlay = match over {
                Overlay::Help => Overlay::MoreHelp,
                Overlay::MoreHelp => Overlay::Scopes,
                Overlay::Scopes => Overlay::None,
                _ => Overlay::Help,
            };
            Vec::new()
        }
        Action::Copy => copy(lens, over),
        Action::Record => record(lens),
        Action::NoBudget => no_budget(lens, data),
        Action::Processes => detach(lens),
        Action::Suspend => vec![Effect::Suspend],
        Action::Quit => vec![Effect::Quit],
        Action::Nothing => Vec::new(),
        Action::Counted => {
            // The lines of the source have counts too.
            if !lens.frozen && lens.screen() == Some(Pane::Source) {
                lens.asked.source = None;
            }
            Vec::new()
        }
        Action::Drawn => {
            bind(lens, data);
            Vec::new()
        }
        Action::Attached { scope } => attached(lens, scope, data),
        Action::NotAttached { message } => not_attached(lens, message),
        Action::Ended { reason } => ended(lens, &reason),
        Action::Edited { scope } => {
            lens.edits = lens.edits.saturating_sub(1);
            if lens.edits == 0 {
                lens.scope = scope;
                lens.settled = lens.trail.clone();
            }
            Vec::new()
        }
        Action::Refused { message, scope } => {
            lens.edits = 0;
            refused(lens, message, scope);
            Vec::new()
        }
        Action::Notice(message) => {
            lens.notice = Some(message);
            Vec::new()
        }
    }
}

/// Whether an action means what it does whatever is drawn over the screen.
const fn acts_over_screen(action: &Action) -> bool {
    !action.is_of_user() || matches!(action, Action::Help | Action::Copy | Action::Suspend)
}

/// The session is there, with this scope.
fn attached(lens: &mut Lens, scope: String, data: &Data) -> Vec<Effect> {
    lens.attaching = false;
    lens.unattached = false;
    let is_of_part = lens.part_before.take().is_some();
    if let (Some(Target::Recording(recorded)), Some(length)) =
        (&lens.target, data.session.as_deref().and_then(recorded_length))
    {
        lens.whole = part::whole(recorded.time, length).or(lens.whole);
    }
    // Without a scope, a recording has the recorded one.
    let wants_everything = is_of_part && lens.scope.is_empty() && !scope.is_empty();
    lens.scope = scope;
    if wants_everything {
        return set_scope(lens, Ok(String::new()));
    }
    // The screen that the command line names has to be one that the scope has.
    let pane = std::mem::take(&mut lens.pane);
    if pane == Pane::Source && lens.source.is_some() && lens.has(pane) {
        lens.pane = pane;
        return Vec::new();
    }
    show(lens, pane, data)
}

/// The session has ended. One whose probes took too much goes on without them.
fn ended(lens: &mut Lens, reason: &str) -> Vec<Effect> {
    // Each view says so.
    if lens.attaching || !reason.contains(OVER_BUDGET) {
        return Vec::new();
    }
    let notice = format!(
        "`{}` is left: {reason}. K takes it again and keeps its probes whatever they cost.",
        lens.scope
    );
    let left = lens.scope.clone();
    let effect = attach_to_everything(lens, notice);
    if effect.is_some() {
        lens.left = Some(left);
    }
    effect.into_iter().collect()
}

/// Attaches to the same processes without the scope, and says why; `None` where there is no scope, or no process.
fn attach_to_everything(lens: &mut Lens, notice: String) -> Option<Effect> {
    let target = match &lens.target {
        Some(target @ (Target::Pid(_) | Target::Exe(_))) if !lens.scope.is_empty() => target.clone(),
        _ => return None,
    };
    *lens = Lens {
        target: Some(target.clone()),
        attaching: true,
        notice: Some(notice),
        ..lens.anew()
    };
    Some(Effect::Attach {
        target,
        scope: String::new(),
    })
}

/// There is no session, and why.
fn not_attached(lens: &mut Lens, message: String) -> Vec<Effect> {
    if lens.is_of_recording() {
        lens.attaching = false;
        lens.unattached = true;
        lens.notice = Some(message);
        let before = lens.part_before.take().map(Target::Recording);
        let effect = before.map(|before| attach_recording(lens, before));
        return effect.into_iter().collect();
    }
    // The process may be there, and the scope be what cannot be looked at.
    if let Some(effect) = attach_to_everything(lens, message.clone()) {
        return vec![effect];
    }
    *lens = Lens {
        notice: Some(message),
        search: std::mem::take(&mut lens.search),
        selected: std::mem::take(&mut lens.selected),
        ..lens.anew()
    };
    Vec::new()
}

/// The scope is as the service says, and the user back where that was edited from.
fn refused(lens: &mut Lens, message: String, scope: String) {
    if let Some(before) = lens.trail.iter().rev().find(|before| before.scope == scope) {
        lens.go_back(before.clone());
    }
    lens.trail = lens.settled.clone();
    lens.scope = scope;
    lens.notice = Some(message);
}

/// Gives the session another scope; says why not, where there is none.
pub(super) fn set_scope(lens: &mut Lens, scope: Result<String, String>) -> Vec<Effect> {
    match scope {
        Err(why_not) => {
            lens.notice = Some(why_not);
            Vec::new()
        }
        Ok(scope) if lens.unattached => {
            lens.scope = scope;
            let target = lens.target.clone();
            target
                .map(|target| attach_recording(lens, target))
                .into_iter()
                .collect()
        }
        Ok(scope) if scope == lens.scope => Vec::new(),
        Ok(scope) => {
            if lens.trail.len() == MAX_TRAIL {
                lens.trail.remove(0);
            }
            lens.trail.push(lens.here());
            lens.edits = lens.edits.saturating_add(1);
            lens.scope.clone_from(&scope);
            vec![Effect::SetScope(scope)]
        }
    }
}

/// As [`set_scope`], and to another screen if there is one.
fn set_scope_and_show(lens: &mut Lens, scope: Result<String, String>, pane: Pane) -> Vec<Effect> {
    let is_one = scope.is_ok();
    let effects = set_scope(lens, scope);
    if is_one {
        lens.pane = pane;
    }
    effects
}

pub(super) fn show(lens: &mut Lens, pane: Pane, data: &Data) -> Vec<Effect> {
    if lens.target.is_none() {
        lens.notice = Some("Choose a process first: Enter attaches to the one that is selected.".to_owned());
        return Vec::new();
    }
    if lens.has_stacks_alone() && !lens.has(pane) {
        lens.notice = Some(format!(
            "A profile of another tool has stacks alone, and no {}.",
            pane.name()
        ));
        return Vec::new();
    }
    if !lens.has(pane) {
        lens.notice = Some(format!(
            "Recordings have no {}: it is there while the process runs, with `profiler tui -p PID`.",
            pane.name()
        ));
        return Vec::new();
    }
    match pane {
        Pane::Difference | Pane::Explain => {
            let selected = selected_place(lens, data).filter(|_| lens.scope.is_empty());
            let of = selected.map_or_else(|| lens.scope.clone(), path::only);
            set_scope_and_show(lens, path::with_threshold(&of), pane)
        }
        Pane::Source => {
            show_source(lens);
            Vec::new()
        }
        Pane::Hits if lens.scope.is_empty() => {
            lens.notice =
                Some("Choose a function or a line first: hits are those of the last step.".to_owned());
            Vec::new()
        }
        Pane::Latency | Pane::Spans if lens.scope.is_empty() => {
            lens.notice = Some("Select a function and press Enter: its calls are timed.".to_owned());
            Vec::new()
        }
        _ => {
            lens.pane = pane;
            Vec::new()
        }
    }
}

fn show_source(lens: &mut Lens) {
    let selected = match lens.pane {
        Pane::Top | Pane::Graph | Pane::Difference => selected_frame(lens),
        _ => None,
    };
    let function = selected.map(|frame| frame.function);
    match function.or_else(|| path::function(&lens.scope)) {
        Some(function) => {
            lens.source = Some(path::quoted(&function));
            lens.pane = Pane::Source;
        }
        None if lens.source.is_some() => lens.pane = Pane::Source,
        None => lens.notice = Some("Select a function first: its source is shown.".to_owned()),
    }
}

pub(super) fn enter(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(pane) = lens.screen() else {
        return attach(lens);
    };
    match pane {
        Pane::Top if lens.by == By::Module => {
            functions_of_module(lens);
            Vec::new()
        }
        Pane::Top if lens.by == By::Line => inside(lens, data),
        Pane::Top => match scope_inside(lens, data) {
            Some(scope) => {
                lens.search = String::new();
                set_scope_and_show(lens, scope, Pane::Latency)
            }
            None => no_function(lens),
        },
        Pane::Graph | Pane::Difference => {
            if let Some(Item::Stack(stack)) = lens.selection() {
                lens.zoom = stack.clone();
            }
            Vec::new()
        }
        Pane::Latency => next_of_latency(lens, data),
        Pane::Source => match selected_place(lens, data) {
            Some(place) => {
                let scope = path::append(&lens.scope, place);
                set_scope(lens, scope)
            }
            None => no_place(lens),
        },
        Pane::Hits => only_such(lens, data),
        Pane::Explain => next_of_finding(lens, data),
        Pane::Spans => as_slow(lens, data),
        Pane::Threads => {
            if let Some(Item::Threads(threads)) = lens.selection() {
                lens.shape.threads = Patterns::read(threads);
                lens.zoom = Vec::new();
                lens.pane = Pane::Graph;
            }
            Vec::new()
        }
        Pane::Timeline => next_of_counter(lens, data),
        Pane::Sessions => join(lens, data),
        Pane::Losses => {
            show_source_of_probed(lens, data);
            Vec::new()
        }
        Pane::Waits => next_of_wait(lens, data),
        Pane::Syscalls => next_of_syscall(lens),
    }
}

/// The calls of the function in which the selected thread waits; or, of another thread, of the one that ended the wait.
fn next_of_wait(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let node = data.selected_wait(lens);
    let frame = node.and_then(|node| own_frame(&data.aside.waits, node));
    let (Some(node), Some(place)) = (node, frame.and_then(path::place_of)) else {
        lens.notice = Some("No function of the program is known there: choose another wait.".to_owned());
        return Vec::new();
    };
    let scope = match node.kind() {
        v1::WaitKind::Waited => path::append(&lens.scope, place),
        _ => path::append("", place),
    };
    set_scope_and_show(lens, scope, Pane::Latency)
}

/// The calls of the selected system call.
fn next_of_syscall(lens: &mut Lens) -> Vec<Effect> {
    let Some(Item::SystemCall(name)) = lens.selection().cloned() else {
        lens.notice = Some("There is no system call yet.".to_owned());
        return Vec::new();
    };
    let scope = path::append(&lens.scope, Place::SystemCall(name));
    set_scope_and_show(lens, scope, Pane::Latency)
}

/// The threshold at the next percentile or time, where there is one.
fn nudge(lens: &mut Lens, towards: Towards) -> Vec<Effect> {
    let scope = path::nudge(&lens.scope, towards);
    if scope.as_ref() == Ok(&lens.scope) {
        let key = match towards {
            Towards::Slower => ">",
            Towards::Faster => "<",
        };
        lens.notice = Some(format!(
            "{key} goes no further: press e to type another threshold, as in [>= p75] or [>= 3ms]."
        ));
    }
    set_scope(lens, scope)
}

/// Only calls as long as the selected bars; without any, slow ones; of those already, how they differ.
fn next_of_latency(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let scope = match data.selected_bars(lens) {
        Some(bars) => path::between(&lens.scope, bars.from_ns, bars.below_ns),
        None => path::with_threshold(&lens.scope),
    };
    if scope.as_ref() == Ok(&lens.scope) {
        return show(lens, Pane::Difference, data);
    }
    if scope.is_ok() {
        lens.mark = None;
    }
    set_scope(lens, scope)
}

/// The selected bar is one end of several; a second time, no longer.
fn mark(lens: &mut Lens) {
    let bar = match lens.selection() {
        Some(Item::Bar(bar)) => Some(*bar),
        _ => None,
    };
    if bar.is_none() {
        lens.notice =
            Some("Select a bar first (↑ and ↓): it is one end of those that Enter takes.".to_owned());
    }
    lens.mark = bar.filter(|bar| lens.mark != Some(*bar));
}

/// Calls are slow from the selected bar on.
fn threshold(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(bars) = data.selected_bars(lens) else {
        lens.notice = Some("Select a bar first (↑ and ↓): calls are slow from it on.".to_owned());
        return Vec::new();
    };
    let scope = path::between(&lens.scope, bars.from_ns, None);
    set_scope(lens, scope)
}

/// The functions of the selected library.
fn functions_of_module(lens: &mut Lens) {
    if let Some(frame) = selected_frame(lens) {
        lens.by = By::Function;
        let name = frame.function.rsplit('/').next();
        name.unwrap_or_default().clone_into(&mut lens.search);
    }
}

/// Where the selected counter counts, as a flame graph.
fn next_of_counter(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(row) = data.selected_counter(lens) else {
        lens.notice = Some("There is no counter yet: the first come in a second.".to_owned());
        return Vec::new();
    };
    match row {
        Row::Calls => return show(lens, Pane::Latency, data),
        Row::Ratio(..) => {
            lens.notice = Some("A ratio happens nowhere: select one of its counters.".to_owned());
        }
        Row::Counter(at) => {
            let name = data.aside.timeline.counters.get(at).cloned().unwrap_or_default();
            // That is time.
            lens.event = if name == "task-clock" { String::new() } else { name };
            lens.pane = Pane::Graph;
        }
    }
    Vec::new()
}

/// Another session takes the place of what is looked at.
fn join(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(Item::Session(name)) = lens.selection().cloned() else {
        lens.notice = Some("The daemon has no session: `profiler session new` makes one.".to_owned());
        return Vec::new();
    };
    let is_shown = data.session.as_ref().is_some_and(|session| session.name == name);
    if is_shown {
        lens.notice = Some("This session is the one that is looked at.".to_owned());
        return Vec::new();
    }
    let target = Target::Session(name);
    *lens = Lens {
        target: Some(target.clone()),
        attaching: true,
        // What a session was made with is its own.
        making: Vec::new(),
        ..lens.anew()
    };
    vec![Effect::Attach {
        target,
        scope: String::new(),
    }]
}

/// The source of the selected function with probes.
fn show_source_of_probed(lens: &mut Lens, data: &Data) {
    let id = match lens.selection() {
        Some(Item::Probed(id)) => Some(*id),
        _ => None,
    };
    match id.and_then(|id| data.latency.functions.get(&id)) {
        Some(_) if !lens.has(Pane::Source) => {
            lens.notice = Some("Recordings have no source: it is there while the process runs.".to_owned());
        }
        Some(function) => {
            lens.source = Some(path::quoted(&function.function.name));
            lens.pane = Pane::Source;
        }
        None => {
            lens.notice =
                Some("No function has probes: Enter on one of the functions (1) times it.".to_owned());
        }
    }
}

/// Only calls that take as long as the selected one.
fn as_slow(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(call) = data.selected_call(lens) else {
        lens.notice = Some("There is no call yet: as soon as one has ended, it can be selected.".to_owned());
        return Vec::new();
    };
    let scope = path::at_least(&lens.scope, call.span.duration_ns);
    set_scope_and_show(lens, scope, Pane::Graph)
}

/// The scope that the selected finding leads to.
fn next_of_finding(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let next = data.selected_finding(lens).map(|finding| finding.next.clone());
    let Some(next) = next.filter(|next| !next.is_empty()) else {
        lens.notice = Some("This finding cannot be added to the scope: choose another.".to_owned());
        return Vec::new();
    };
    // Only calls of one function can be explained.
    let pane = path::read(&next).map_or(Pane::Explain, |scope| match scope.last() {
        Some(_) if scope.steps.len() == 1 => Pane::Explain,
        Some(last) if last.place.has_spans() => Pane::Latency,
        _ => Pane::Graph,
    });
    set_scope_and_show(lens, path::read(&next).map(|scope| scope.to_string()), pane)
}

/// The selected value becomes a condition.
fn only_such(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some((expression, value)) = data.selected_value(lens) else {
        lens.notice = Some("Select a hit with a value: it becomes a condition.".to_owned());
        return Vec::new();
    };
    let scope = path::with_condition(&lens.scope, &expression, &value);
    set_scope(lens, scope)
}

fn attach(lens: &mut Lens) -> Vec<Effect> {
    let target = match lens.selection() {
        Some(Item::Process(pid)) => Target::Pid(*pid),
        Some(Item::Session(name)) => Target::Session(name.clone()),
        _ => {
            lens.notice = Some("There is no process to attach to.".to_owned());
            return Vec::new();
        }
    };
    lens.target = Some(target.clone());
    lens.attaching = true;
    lens.search = String::new();
    vec![Effect::Attach {
        target,
        scope: lens.scope.clone(),
    }]
}

/// Looks at another part of the recording.
fn move_part(lens: &mut Lens, part: Part, data: &Data) -> Vec<Effect> {
    if lens.has_stacks_alone() {
        lens.notice = Some("A profile of another tool has no parts: its stacks are sums.".to_owned());
        return Vec::new();
    }
    let Some(Target::Recording(recorded)) = lens.target.clone() else {
        lens.notice = Some("Only recordings have parts: a process is looked at as it goes on.".to_owned());
        return Vec::new();
    };
    let length = part::length(recorded.time, lens.whole);
    let Some(length) = length.or_else(|| data.session.as_deref().and_then(recorded_length)) else {
        lens.notice = Some("How long the recording is, is not known yet.".to_owned());
        return Vec::new();
    };
    let Some(time) = part::moved(recorded.time, length, lens.whole, part) else {
        lens.notice = Some("There is no more of the recording that way.".to_owned());
        return Vec::new();
    };
    let target = Target::Recording(Recorded {
        time,
        path: recorded.path.clone(),
    });
    lens.part_before = Some(recorded);
    vec![attach_recording(lens, target)]
}

/// Looks at a part of a recording with the scope that there is. Edits of the session before cannot be taken back.
fn attach_recording(lens: &mut Lens, target: Target) -> Effect {
    lens.target = Some(target.clone());
    lens.attaching = true;
    lens.frozen = false;
    (lens.trail, lens.settled, lens.edits) = (Vec::new(), Vec::new(), 0);
    Effect::Attach {
        target,
        scope: lens.scope.clone(),
    }
}

fn detach(lens: &mut Lens) -> Vec<Effect> {
    if lens.target.is_none() {
        return Vec::new();
    }
    if lens.is_of_recording() {
        lens.notice = Some("This is a recording: `profiler tui` alone begins with the processes.".to_owned());
        return Vec::new();
    }
    *lens = lens.anew();
    vec![Effect::Detach]
}

/// Sessions have no limit on what their probes cost any more; where probes were taken off, they are attached again.
fn no_budget(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let target = match &lens.target {
        Some(target @ (Target::Pid(_) | Target::Exe(_))) if !lens.attaching => target.clone(),
        Some(Target::Session(_)) => {
            lens.notice = Some("The limit of a session was set when it was made (--budget).".to_owned());
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    lens.making.retain(|flag| !flag.starts_with("--budget"));
    lens.making.push("--budget=0".to_owned());
    let left = lens.left.take().filter(|_| lens.scope.is_empty());
    if !data.is_over_budget() && left.is_none() {
        lens.notice = Some("Probes that are attached from now on stay, whatever they cost.".to_owned());
        return vec![Effect::NoBudget];
    }
    lens.attaching = true;
    (lens.trail, lens.settled, lens.edits) = (Vec::new(), Vec::new(), 0);
    if let Some(left) = left {
        lens.scope = left;
    }
    let scope = lens.scope.clone();
    vec![Effect::NoBudget, Effect::Attach { target, scope }]
}

fn record(lens: &mut Lens) -> Vec<Effect> {
    lens.notice = match lens.target {
        _ if lens.is_of_recording() => Some("This is a recording already.".to_owned()),
        None => Some("Choose a process first: what comes of it can be recorded.".to_owned()),
        Some(_) if lens.attaching => Some("Nothing is attached yet: record once it is.".to_owned()),
        Some(_) => return vec![Effect::Record],
    };
    Vec::new()
}

fn inside(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    match scope_inside(lens, data) {
        Some(scope) => set_scope(lens, scope),
        None => no_function(lens),
    }
}

fn values(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    if lens.screen() != Some(Pane::Source) {
        return show(lens, Pane::Hits, data);
    }
    match selected_place(lens, data) {
        Some(place) => {
            let scope = path::append(&lens.scope, place);
            set_scope_and_show(lens, scope, Pane::Hits)
        }
        None => no_place(lens),
    }
}

fn no_function(lens: &mut Lens) -> Vec<Effect> {
    lens.notice =
        Some("The selected frame has no function name, and cannot be added to the scope.".to_owned());
    Vec::new()
}

fn no_place(lens: &mut Lens) -> Vec<Effect> {
    lens.notice = Some("No probe can be placed at this line: choose one marked on its left.".to_owned());
    Vec::new()
}

/// The scope that looks inside of the selected function: a step behind the last if it is called in there, or else its
/// own.
fn scope_inside(lens: &Lens, data: &Data) -> Option<Result<String, String>> {
    let place = selected_place(lens, data)?;
    let outer = path::function(&lens.scope);
    let frame = selected_frame(lens);
    let is_inside = |outer: &str| {
        frame
            .as_ref()
            .is_some_and(|frame| data.is_called_in(frame, lens, outer))
    };
    Some(match outer {
        Some(outer) if lens.pane == Pane::Source || is_inside(&outer) => path::append(&lens.scope, place),
        // A line alone has no end: it is looked at in its function.
        _ if matches!(place, Place::Line { .. }) => {
            let function = frame.as_ref().and_then(|frame| data.frame_of(frame));
            let function = function.and_then(path::place_of)?;
            path::append(&path::only(function), place)
        }
        _ => path::append("", place),
    })
}

/// The function that is selected.
fn selected_frame(lens: &Lens) -> Option<FrameId> {
    match lens.selection()? {
        Item::Function(frame) => Some(frame.clone()),
        Item::Stack(stack) => stack.last().cloned(),
        Item::Session(_)
        | Item::Process(_)
        | Item::Line(_)
        | Item::Hit(_)
        | Item::Call(_)
        | Item::Finding(_)
        | Item::Bar(_)
        | Item::Threads(_)
        | Item::Counter(_)
        | Item::Probed(_)
        | Item::Wait(_)
        | Item::SystemCall(_) => None,
    }
}

/// The step that is selected.
fn selected_place(lens: &Lens, data: &Data) -> Option<Place> {
    if let Item::Line(_) = lens.selection()? {
        return data.selected_place(lens);
    }
    let frame = data.frame_of(&selected_frame(lens)?)?;
    match lens.flame_view().by {
        By::Module => None,
        By::Line => path::line_of(frame).or_else(|| path::place_of(frame)),
        _ => path::place_of(frame),
    }
}

fn back(lens: &mut Lens) {
    if !lens.search.is_empty() {
        lens.search = String::new();
    } else if lens.screen() == Some(Pane::Latency) && lens.selection().is_some() {
        lens.unselect();
        lens.mark = None;
    } else if lens.pane.is_graph() && !lens.zoom.is_empty() {
        lens.zoom.pop();
    } else if lens.target.is_some() {
        shaping::back(lens);
    }
}

fn undo(lens: &mut Lens) -> Vec<Effect> {
    if lens.target.is_none() || lens.attaching {
        return Vec::new();
    }
    if lens.edits >= MAX_EDITS {
        return Vec::new();
    }
    match lens.trail.pop() {
        Some(before) => lens.go_back(before),
        // Somebody else's edits of a session that is shared can be taken back too.
        None if matches!(lens.target, Some(Target::Session(_))) => {}
        None => {
            let hint = if lens.scope.is_empty() {
                ""
            } else {
                " To look at everything, press e, empty the scope with Ctrl-U, and press Enter."
            };
            lens.notice = Some(format!("There is no edit to take back.{hint}"));
            return Vec::new();
        }
    }
    lens.edits = lens.edits.saturating_add(1);
    vec![Effect::Undo]
}

fn copy(lens: &mut Lens, over: Overlay) -> Vec<Effect> {
    let (overlay, words) = if over == Overlay::Screen {
        (Overlay::Verb, command_line::of_verb(lens))
    } else {
        (Overlay::Screen, command_line::of_screen(lens))
    };
    lens.overlay = overlay;
    vec![Effect::Copy(command_line::quoted(&words))]
}

/// Binds the selection to what is there, so that it stays with it.
fn bind(lens: &mut Lens, data: &Data) {
    if lens.selection().is_some_and(|item| data.has(lens, item)) {
        return;
    }
    match data.first_item(lens) {
        Some(first) => lens.select(first),
        None => lens.unselect(),
    }
}

/// Asks for what the screen needs and has not asked for.
fn follow(lens: &mut Lens) -> Vec<Effect> {
    let mut effects = Vec::new();
    let screen = lens.screen().filter(|_| !lens.attaching);
    if screen == Some(Pane::Source) && lens.source != lens.asked.source {
        lens.asked.source.clone_from(&lens.source);
        effects.extend(lens.source.clone().map(Effect::Source));
    }
    let flame = screen.map(|_| lens.flame_view()).unwrap_or_default();
    if flame != lens.asked.flame {
        lens.asked.flame.clone_from(&flame);
        effects.push(Effect::Flame(flame));
    }
    let hits = (screen == Some(Pane::Hits) && !lens.scope.is_empty()).then(|| Hits {
        scope: lens.scope.clone(),
        print: lens.print.clone(),
    });
    if hits != lens.asked.hits {
        lens.asked.hits.clone_from(&hits);
        effects.push(match hits {
            Some(Hits { scope, print }) => Effect::Hits { scope, print },
            None => Effect::NoHits,
        });
    }
    // What is under way has its stream when it is done.
    if lens.edits == 0 {
        let aside = screen.filter(|pane| pane.is_aside()).map(|pane| {
            let scope = match pane {
                // They end before the duration of their call is known.
                Pane::Waits | Pane::Syscalls => path::without_thresholds(&lens.scope),
                _ => lens.scope.clone(),
            };
            (pane, scope)
        });
        if aside != lens.asked.aside {
            lens.asked.aside.clone_from(&aside);
            effects.push(match aside {
                Some((pane, scope)) => Effect::Aside {
                    pane,
                    is_of_session: scope == lens.scope,
                    scope,
                },
                None => Effect::NoAside,
            });
        }
    }
    effects
}
