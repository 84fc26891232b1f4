//! What reports change.

use std::{sync::Arc, time::Instant};

use profiler_proto::v1;

use super::{
    data::{Data, Heat, Hits, StepCount},
    lens::Action,
    service::{Costly, Incoming, What},
};
use crate::{
    attached::Attached,
    failure::Failure,
    render::escape::terminal,
    state::{Malformed, end::End, latency::LatencyState},
    view::Change,
    watch::Message,
};

/// Takes a report; what the user is told of it.
pub fn take(data: &mut Data, what: What) -> Option<Action> {
    let action = take_report(data, what);
    data.hits.note_time(Instant::now());
    action
}

fn take_report(data: &mut Data, what: What) -> Option<Action> {
    match what {
        What::Sessions(sessions) => data.sessions = sessions,
        What::Processes(processes) => data.processes = processes,
        What::Attached(attached, target) => return Some(take_session(data, *attached, target)),
        What::Connection(change) => data.is_connection_lost = matches!(change, Change::Lost(_)),
        What::Gone(message) => gone(data, &message),
        What::NotAttached(failure) => {
            return Some(Action::NotAttached {
                message: failure.message,
            });
        }
        What::Edited(session) => {
            let scope = session.scope.clone();
            if session.recorded.is_some() {
                // What was drawn is of the scope before; a recording's views begin anew.
                (data.flame, data.latency) = (Arc::default(), LatencyState::default());
                (data.stale, data.ended) = (true, None);
            }
            data.session = Some(Arc::new(*session));
            return Some(Action::Edited { scope });
        }
        What::Refused(failure, scope) => {
            return Some(Action::Refused {
                message: failure.message,
                scope,
            });
        }
        What::Costly(Costly { wanted, cost, scope }) => {
            let cost = cost.escaped();
            return Some(Action::Costly { wanted, cost, scope });
        }
        // The last pictures stay: why there are no others stands above them.
        What::Flame(Incoming::Broken(_))
        | What::Latency(Incoming::Broken(_))
        | What::Hits(Incoming::Broken(_))
        | What::Counts(_)
            if data.is_over() => {}
        What::Flame(Incoming::Broken(failure)) => {
            // What was drawn is of another scope.
            data.flame = Arc::default();
            data.stale = true;
            return Some(broken(&failure));
        }
        What::Flame(incoming) => {
            return view(data, incoming, |data, message| {
                data.stale = true;
                Arc::make_mut(&mut data.flame)
                    .apply(*message)
                    .map_err(|error| error.to_string())
            });
        }
        What::Latency(incoming) => {
            return view(data, incoming, |data, message| {
                data.latency.apply(message).map_err(|error| error.to_string())?;
                data.heat.add(&data.latency, Instant::now());
                Ok(())
            });
        }
        What::NoLatency => (data.latency, data.heat) = (LatencyState::default(), Heat::default()),
        What::HitsBegin(scope) if data.is_over() && data.hits.scope == scope => {}
        What::HitsBegin(scope) => data.hits = Hits::of(scope),
        What::HitsReady => data.hits.ready(Instant::now()),
        What::Hits(Incoming::Broken(failure)) => {
            data.hits = Hits {
                scope: std::mem::take(&mut data.hits.scope),
                failure: Some(failure.message),
                ..Hits::default()
            };
        }
        // Its session is its own: the one on the screen may go on.
        What::Hits(Incoming::Message(message)) => {
            data.hits.ended = end_of_pane(data, &message).or(data.hits.ended.take());
            return wrong(data.hits.apply(*message));
        }
        What::AsideBegin(_)
        | What::Waits(_)
        | What::Syscalls(_)
        | What::Timeline(_)
        | What::Spans(_)
        | What::Explained(_) => return take_aside(data, what),
        // What was shown can still be seen.
        What::Source(place, Err(failure)) if data.is_over() && data.source.is_some() => {
            data.source_failure = (data.source_of != place).then_some(failure.message);
        }
        What::Source(place, found) => {
            data.source_of = place;
            (data.source, data.source_failure) = match found {
                Ok(source) => (Some(Arc::new(*source)), None),
                Err(failure) => (None, Some(failure.message)),
            };
        }
        What::Completions(names) => (data.completions, data.completing) = (names, false),
        What::Recording(words) => data.recording = Some(terminal(&words).into_owned()),
        What::Recorded(words) => {
            data.recording = None;
            return Some(Action::Notice(terminal(&words).into_owned()));
        }
        What::Counts(counts) => {
            count(data, counts);
            return Some(Action::Counted);
        }
    }
    None
}

/// Takes a session in the place of the one before, of which nothing stays.
fn take_session(data: &mut Data, attached: Attached, target: String) -> Action {
    let (sessions, processes) = (
        std::mem::take(&mut data.sessions),
        std::mem::take(&mut data.processes),
    );
    let scope = attached.session.scope.clone();
    *data = Data {
        sessions,
        processes,
        target,
        session: Some(Arc::new(attached.session)),
        ..Data::default()
    };
    Action::Attached { scope }
}

/// Takes what belongs to the pane that is shown.
fn take_aside(data: &mut Data, what: What) -> Option<Action> {
    match what {
        What::AsideBegin(of) => data.turn_aside(of),
        What::Waits(Incoming::Broken(_))
        | What::Syscalls(Incoming::Broken(_))
        | What::Spans(Incoming::Broken(_))
        | What::Timeline(Incoming::Broken(_))
        | What::Explained(Incoming::Broken(_))
            if data.is_over() => {}
        What::Waits(Incoming::Broken(failure))
        | What::Syscalls(Incoming::Broken(failure))
        | What::Spans(Incoming::Broken(failure))
        | What::Timeline(Incoming::Broken(failure))
        | What::Explained(Incoming::Broken(failure)) => data.aside.failure = Some(failure.message),
        What::Waits(Incoming::Message(message)) => {
            data.aside.ended = end_of_pane(data, &message).or(data.aside.ended.take());
            return wrong(data.aside.waits.apply(message));
        }
        What::Syscalls(Incoming::Message(message)) => {
            data.aside.ended = end_of_pane(data, &message).or(data.aside.ended.take());
            return wrong(data.aside.syscalls.apply(message));
        }
        // The last of a process says that no more comes, and holds no counts.
        What::Timeline(Incoming::Message(message)) if !message.counts.is_empty() => {
            return wrong(data.aside.timeline.apply(message).map(|_| ()));
        }
        What::Spans(Incoming::Message(message)) => {
            return wrong(data.aside.calls.apply(message));
        }
        What::Explained(Incoming::Message(message)) => {
            data.aside.ended = end_of_pane(data, &message).or(data.aside.ended.take());
            data.aside.explained = Some(*message);
        }
        _ => {}
    }
    None
}

/// Why nothing more of a pane comes, where this message is its last and the session on the screen goes on.
fn end_of_pane(data: &Data, message: &impl Message) -> Option<End> {
    let end = End::from(message.end()?).or_said("its session has ended");
    // Of a recording, all that there is has come with it.
    (data.ended.is_none() && !end.is_of_recording()).then_some(end)
}

/// The daemon is gone, and is not waited for any more.
fn gone(data: &mut Data, message: &str) {
    data.is_connection_lost = false;
    data.ended = Some(End::other(terminal(message.trim_end_matches('.'))));
}

/// Lets a screen that stands still have what is no measurement.
pub fn follow(frozen: &mut Data, live: &Data) {
    frozen.sessions.clone_from(&live.sessions);
    frozen.processes.clone_from(&live.processes);
    frozen.target.clone_from(&live.target);
    frozen.session.clone_from(&live.session);
    // What is made of samples is of those that are shown.
    if frozen.made.source.is_none() {
        frozen.source.clone_from(&live.source);
        frozen.source_of.clone_from(&live.source_of);
        frozen.source_failure.clone_from(&live.source_failure);
    }
    frozen.completions.clone_from(&live.completions);
    frozen.completing = live.completing;
    frozen.hits.starting = live.hits.starting;
    frozen.ended.clone_from(&live.ended);
    frozen.is_connection_lost = live.is_connection_lost;
    frozen.recording.clone_from(&live.recording);
}

fn view<M: Message>(
    data: &mut Data,
    incoming: Incoming<M>,
    apply: impl FnOnce(&mut Data, M) -> Result<(), String>,
) -> Option<Action> {
    match incoming {
        Incoming::Message(message) => {
            let end = message.end().map(|end| End::from(end).or_said("the session"));
            if end.is_some() {
                data.ended.clone_from(&end);
                // A pane whose own session ended with this one has nothing to add.
                for of_pane in [&mut data.hits.ended, &mut data.aside.ended] {
                    of_pane.take_if(|why| Some(&*why) == data.ended.as_ref());
                }
            }
            let left = message.info().map(|info| data.departures.lines(info));
            if let Err(error) = apply(data, message) {
                return Some(Action::Notice(error));
            }
            let Some(end) = end else {
                let left = left.filter(|left| !left.is_empty())?;
                return Some(Action::Notice(left.join("; ")));
            };
            let reason = terminal(&end.reason).into_owned();
            Some(Action::Ended(End { reason, ..end }))
        }
        Incoming::Broken(failure) => Some(broken(&failure)),
    }
}

/// What follows from a stream that broke, or could not be opened: its session may have ended before.
fn broken(failure: &Failure) -> Action {
    let message = terminal(&failure.message).into_owned();
    if failure.reason == "SESSION_OVER_BUDGET" {
        Action::Ended(End {
            cause: v1::EndCause::Budget,
            reason: message,
        })
    } else {
        Action::Notice(message)
    }
}

/// What is told of a message that contradicts the protocol.
fn wrong(applied: Result<(), Malformed>) -> Option<Action> {
    applied.err().map(|error| Action::Notice(error.to_string()))
}

/// Counts of steps, and how fast they grow.
fn count(data: &mut Data, counts: Vec<(String, u64)>) {
    let at = Instant::now();
    let before = std::mem::take(&mut data.counts);
    for (step, count) in counts {
        let rate_hz = before.get(&step).and_then(|before| {
            let passed = at.saturating_duration_since(before.at).as_secs_f64();
            let more = count.checked_sub(before.count)?;
            (passed > 0.1).then(|| more as f64 / passed)
        });
        data.counts.insert(step, StepCount { count, rate_hz, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_leaves_is_a_notice_once() {
        let mut data = Data::default();
        let message = |pids: &[u32]| v1::WatchLatencyResponse {
            info: Some(v1::StreamInfo {
                departures: (pids.iter().map(|pid| v1::Departure {
                    pid: *pid,
                    reason: format!("process {pid} (a) ended"),
                    left: 1,
                    of: 3,
                    ..v1::Departure::default()
                }))
                .collect(),
                ..v1::StreamInfo::default()
            }),
            ..v1::WatchLatencyResponse::default()
        };
        let mut told = |pids: &[u32]| match take(&mut data, What::Latency(Incoming::Message(message(pids)))) {
            Some(Action::Notice(notice)) => Some(notice),
            _ => None,
        };
        assert_eq!(
            told(&[7, 8]).as_deref(),
            Some("process 7 (a) ended; 1 of 3 is left; process 8 (a) ended; 1 of 3 is left")
        );
        assert_eq!(told(&[7, 8]), None);
    }
}
