//! What Enter leads to, on each screen.

use profiler_proto::v1;
use profiler_scope::{Name, Place};

use super::{
    Effect, Item, Lens, Pane,
    attaching::{attach, join},
    path,
    update::{
        done_with_bars, inside, no_function, no_place, scope_inside, selected_frame, selected_place,
        set_scope, set_scope_and_show, show,
    },
};
use crate::{
    cli::args::By,
    render::waits::own_frame,
    state::{shape::Patterns, timeline::Row},
    tui::data::{Data, SelectedBars, ThreadRow},
};

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
            Some(scope) => set_scope_and_show(lens, scope, Pane::Latency),
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
                let scope = path::append(&scope_of_source(lens, data, &place), place);
                set_scope(lens, scope)
            }
            None => no_place(lens),
        },
        Pane::Hits => only_such(lens, data),
        Pane::Explain => next_of_finding(lens, data),
        Pane::Spans => as_slow(lens, data),
        Pane::Threads => of_threads(lens, data),
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

/// Calls by the selected threads alone; where there is no step in the program, their flame graph.
fn of_threads(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(Item::Threads(threads)) = lens.selection().cloned() else {
        return Vec::new();
    };
    let row = data.threads_shown(lens).find(|row| row.patterns == threads);
    let row = row.filter(|_| lens.takes_threads());
    if let Some((row, other)) = row.and_then(|row| Some((row, row.not_told_from.as_ref()?))) {
        lens.notice = Some(format!(
            "A condition on `{}` takes `{other}` too: select one of the threads below it.",
            row.name
        ));
        return Vec::new();
    }
    if let Some(condition) = row.and_then(ThreadRow::condition) {
        let scope = path::with_condition(&lens.scope, condition.expression, &condition.value);
        return set_scope_and_show(lens, scope, Pane::Latency);
    }
    lens.shape.threads = Patterns::read(&threads);
    lens.zoom = Vec::new();
    lens.pane = Pane::Graph;
    Vec::new()
}

/// The scope that a place of the source comes behind. A line alone has no time: it is looked at in the function that is shown.
fn scope_of_source(lens: &Lens, data: &Data, place: &Place) -> String {
    let shown = data
        .source_shown(lens)
        .and_then(|source| source.function.as_ref());
    let is_alone = lens.scope.is_empty() && !place.has_spans();
    match shown.filter(|function| is_alone && !function.name.is_empty()) {
        Some(function) => {
            let name = Name::Exact(function.name.clone());
            // It has no code of its own.
            let is_inlined = function.address == 0;
            path::only(if is_inlined {
                Place::Inlined(name)
            } else {
                Place::Function(name)
            })
        }
        None => lens.scope.clone(),
    }
}

/// Only calls as long as the selected bars; without any, slow ones; of those already, how they differ.
fn next_of_latency(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let scope = match data.selected_bars(lens) {
        SelectedBars::Durations(bars) => path::between(&lens.scope, bars.from_ns, bars.below_ns),
        SelectedBars::WithoutCalls => Err(path::WITHOUT_CALLS.to_owned()),
        SelectedBars::None => path::with_threshold(&lens.scope),
    };
    if scope.as_ref() == Ok(&lens.scope) {
        return show(lens, Pane::Difference, data);
    }
    let effects = set_scope(lens, scope);
    done_with_bars(lens, &effects);
    effects
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

/// The function that samples were taken in, where that is what a finding says.
#[must_use]
pub fn sampled_function(finding: &v1::Finding) -> Option<&str> {
    let is_of_samples = finding.kind() == v1::finding::Kind::Frame;
    finding.text.strip_prefix("samples in ").filter(|_| is_of_samples)
}

/// The scope that the selected finding leads to.
fn next_of_finding(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let Some(finding) = data.selected_finding(lens) else {
        lens.notice = Some(
            "There is no finding: slow calls of one function are explained, as in handle_request[>= p95] (e edits the scope)."
                .to_owned(),
        );
        return Vec::new();
    };
    let next = finding.next.clone();
    if let Some(function) = sampled_function(finding).filter(|_| next.is_empty()) {
        // It cannot be a step where it cannot be probed.
        lens.search = function.to_owned();
        (lens.pane, lens.by, lens.zoom) = (Pane::Graph, By::Function, Vec::new());
        return Vec::new();
    }
    if next.is_empty() {
        lens.notice = Some("This finding cannot be added to the scope: choose another.".to_owned());
        return Vec::new();
    }
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
    if value.starts_with(['{', '[']) {
        lens.notice = Some(format!(
            "`{expression}` has parts, and a condition compares one of them: press p and name it, as in {expression}.FIELD."
        ));
        return Vec::new();
    }
    let scope = path::with_condition(&lens.scope, &expression, &value);
    set_scope(lens, scope)
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

/// The source of the selected function with probes.
fn show_source_of_probed(lens: &mut Lens, data: &Data) {
    let id = match lens.selection() {
        Some(Item::Probed(id)) => Some(*id),
        _ => None,
    };
    match id.and_then(|id| data.latency.functions.get(&id)) {
        Some(function) => {
            lens.source = Some(path::quoted(&function.function.name));
            lens.pane = Pane::Source;
        }
        None if data.latency.functions.is_empty() => {
            lens.notice =
                Some("No function has probes: Enter on one of the functions (1) times it.".to_owned());
        }
        None => {
            lens.notice = Some("Select a function with probes: Enter shows its source.".to_owned());
        }
    }
}
