//! Which session is looked at: its beginning, its end, and others in its place.

use super::{
    Before, Effect, Item, LeftScope, Lens, MAX_TRAIL, Part, Recorded, Target, part, update::show_as_it_was,
};
use crate::{attached::recorded_length, cli::args::RecordedTime, state::end::End, tui::data::Data};

/// Why the limit on what probes cost stays.
const LIMIT_OF_SESSION: &str = "The limit of a session was set when it was made (--budget).";

pub(super) fn attach(lens: &mut Lens) -> Vec<Effect> {
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

/// Another session takes the place of what is looked at.
pub(super) fn join(lens: &mut Lens, data: &Data) -> Vec<Effect> {
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

/// The session is there, with this scope.
pub(super) fn attached(lens: &mut Lens, scope: String, data: &Data) -> Vec<Effect> {
    lens.attaching = false;
    lens.unattached = false;
    lens.part_before = None;
    if let (Some(Target::Recording(recorded)), Some(length)) =
        (&lens.target, data.session.as_deref().and_then(recorded_length))
    {
        lens.whole = part::whole(recorded.time, length).or(lens.whole);
    }
    lens.scope = scope;
    lens.left = lens.left.take().filter(|_| lens.scope.is_empty());
    // The screen that the command line names has to be one that the scope has.
    let pane = std::mem::take(&mut lens.pane);
    show_as_it_was(lens, pane, data)
}

/// The session has ended. One whose probes took too much goes on without them.
pub(super) fn ended(lens: &mut Lens, end: &End) -> Vec<Effect> {
    // Each view says so.
    if lens.attaching || !end.is_over_budget() {
        return Vec::new();
    }
    let left = LeftScope {
        scope: lens.scope.clone(),
        why: end.reason.clone(),
    };
    let effect = attach_to_everything(lens, None);
    if effect.is_some() {
        lens.left = Some(left);
    }
    effect.into_iter().collect()
}

/// Attaches to the same processes without the scope; `None` where there is no scope, or no process.
fn attach_to_everything(lens: &mut Lens, notice: Option<String>) -> Option<Effect> {
    let target = match &lens.target {
        Some(target) if target.is_of_processes() && !lens.scope.is_empty() => target.clone(),
        _ => return None,
    };
    let trail = trail_of_before(lens);
    *lens = Lens {
        target: Some(target.clone()),
        attaching: true,
        notice,
        settled: trail.clone(),
        trail,
        ..lens.anew()
    };
    Some(Effect::Attach {
        target,
        scope: String::new(),
    })
}

/// There is no session, and why.
pub(super) fn not_attached(lens: &mut Lens, message: String) -> Vec<Effect> {
    if lens.is_of_recording() {
        lens.attaching = false;
        lens.unattached = true;
        lens.notice = Some(message);
        let before = lens.part_before.take().map(Target::Recording);
        lens.type_again(before.is_none());
        let effect = before.map(|before| attach_recording(lens, before));
        return effect.into_iter().collect();
    }
    // The process may be there, and the scope be what cannot be looked at.
    if let Some(effect) = attach_to_everything(lens, Some(message.clone())) {
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

/// Why there are no parts of what is looked at; `None` of a recording.
pub(super) fn why_no_parts(lens: &Lens) -> Option<&'static str> {
    match lens.target {
        Some(Target::Recording(_)) => None,
        Some(Target::Profile(_)) => Some("A profile of another tool has no parts: its stacks are sums."),
        _ => Some("Only recordings have parts: a process is looked at as it goes on."),
    }
}

/// Looks at another part of the recording.
pub(super) fn move_part(lens: &mut Lens, part: Part, data: &Data) -> Vec<Effect> {
    let Some(Target::Recording(recorded)) = lens.target.clone() else {
        lens.notice = why_no_parts(lens).map(str::to_owned);
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
    go_to_part(lens, recorded, time)
}

/// Looks at the part of the recording that was typed.
///
/// # Errors
/// What is wrong with the text, in a clause.
pub(super) fn type_part(lens: &mut Lens, text: &str, data: &Data) -> Result<Vec<Effect>, String> {
    let Some(Target::Recording(recorded)) = lens.target.clone() else {
        return Ok(Vec::new());
    };
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let of_all = data.session.as_deref().and_then(recorded_length);
    let of_all = of_all.filter(|_| recorded.time == RecordedTime::default());
    let time = part::typed(text, lens.whole.or(of_all))?;
    if time == recorded.time {
        return Ok(Vec::new());
    }
    Ok(go_to_part(lens, recorded, time))
}

fn go_to_part(lens: &mut Lens, recorded: Recorded, time: RecordedTime) -> Vec<Effect> {
    let target = Target::Recording(Recorded {
        time,
        ..recorded.clone()
    });
    lens.part_before = Some(recorded);
    vec![attach_recording(lens, target)]
}

/// Looks at a part of a recording with the scope that there is, or without one.
pub(super) fn attach_recording(lens: &mut Lens, mut target: Target) -> Effect {
    if let Target::Recording(recorded) = &mut target {
        recorded.without_scope = lens.scope.is_empty();
    }
    lens.target = Some(target.clone());
    lens.frozen = false;
    attach_anew(lens, target)
}

/// Attaches with the scope that there is, in another session: edits of the one before cannot be taken back.
fn attach_anew(lens: &mut Lens, target: Target) -> Effect {
    lens.attaching = true;
    (lens.trail, lens.settled, lens.edits) = (Vec::new(), Vec::new(), 0);
    lens.ahead = Vec::new();
    // What was known of the session before is gone.
    lens.asked.source = None;
    Effect::Attach {
        target,
        scope: lens.scope.clone(),
    }
}

pub(super) fn detach(lens: &mut Lens) -> Vec<Effect> {
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

fn make_without_budget(lens: &mut Lens) {
    lens.making.retain(|flag| !flag.starts_with("--budget"));
    lens.making.push("--budget=0".to_owned());
}

/// Does an edit that is costly, in a session without a limit on what its probes cost.
pub(super) fn without_budget(lens: &mut Lens, next: Before) -> Vec<Effect> {
    let Some(target) = lens.target.clone().filter(Target::is_of_processes) else {
        lens.notice = Some(LIMIT_OF_SESSION.to_owned());
        return Vec::new();
    };
    make_without_budget(lens);
    lens.trail.push(lens.here());
    lens.go_back(next);
    vec![Effect::NoBudget, attach_again(lens, target)]
}

/// The edits so far, as they can be taken back in another session: each by giving it the scope of before.
fn trail_of_before(lens: &mut Lens) -> Vec<Before> {
    let mut trail = std::mem::take(&mut lens.trail);
    trail.drain(..trail.len().saturating_sub(MAX_TRAIL));
    for before in &mut trail {
        before.edits = 0;
    }
    trail
}

/// As [`attach_anew`] to the same processes: edits can still be taken back, though the session before is gone.
fn attach_again(lens: &mut Lens, target: Target) -> Effect {
    let trail = trail_of_before(lens);
    let effect = attach_anew(lens, target);
    lens.settled.clone_from(&trail);
    lens.trail = trail;
    effect
}

/// Sessions have no limit on what their probes cost any more; where probes were taken off, they are attached again.
pub(super) fn no_budget(lens: &mut Lens, data: &Data) -> Vec<Effect> {
    let target = match &lens.target {
        Some(target) if target.is_of_processes() && !lens.attaching => target.clone(),
        Some(Target::Session(_)) => {
            lens.notice = Some(LIMIT_OF_SESSION.to_owned());
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    make_without_budget(lens);
    let left = lens.left_scope().cloned();
    lens.left = None;
    if !data.is_over_budget(lens) && left.is_none() {
        lens.notice = Some("Probes that are attached from now on stay, whatever they cost.".to_owned());
        return vec![Effect::NoBudget];
    }
    if let Some(left) = left {
        lens.trail.push(lens.here());
        lens.scope = left.scope;
    }
    vec![Effect::NoBudget, attach_again(lens, target)]
}
