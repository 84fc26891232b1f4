//! `profiler trace`.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _},
    time::Duration,
};

use profiler_proto::v1;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::{
    events::{About, File},
    interruptible,
};
use crate::{
    attached::{Attached, Owned, recorded_length},
    cli::request::{Host, Trace},
    connect::connect,
    failure::Failure,
    live::screen,
    output::{self, note, warnings},
    render::{events::hits::Hits, trace, trace_json},
    state::trace::{TraceState, origin_ns, zero_ns},
    stop::Stop,
    view::View,
    watch::Run,
};

/// Time between notes of losses.
const BETWEEN_NOTES: Duration = Duration::from_secs(1);

/// How hits are shown.
enum Show {
    Json,
    Lines {
        colour: bool,
    },
    /// They are written at the end.
    Nothing,
}

/// Runs it.
pub async fn run(host: &Host, request: Trace, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let file = request.export.as_ref().map(File::open).transpose()?;
    let (attached, stream, began_ns, about) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchTraceRequest {
            session: attached.session.name.clone(),
            interval: None,
        };
        let about = match &file {
            Some(_) => About::of(&connection, &attached.session).await,
            None => About::default(),
        };
        let began_ns = monotonic_ns();
        let stream = View::open(&connection, &attached.session, watch).await?;
        Ok((attached, stream, began_ns, about))
    })
    .await?;
    warnings(&attached.session.warnings);

    let show = if request.json {
        Show::Json
    } else if file.is_some() {
        Show::Nothing
    } else {
        Show::Lines {
            colour: screen::is_coloured(request.color, io::stdout().is_terminal()),
        }
    };
    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(request.json);
    let began = run.began;
    let mut state = TraceState::default();
    let mut losses = io::stderr().is_terminal().then(|| Losses::since(began));
    let mut origin = None;
    let mut kept = file.as_ref().map(|_| Hits::of(&about.title));
    let ended = run
        .watch(stream, |message: v1::WatchTraceResponse| {
            let hits = state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(kept) = &mut kept {
                kept.add(&state, &hits);
            }
            if let Some(first) = hits.first() {
                let origin = *origin.get_or_insert_with(|| {
                    let recorded = recorded_length(&attached.session).is_some();
                    if recorded {
                        return attached.session.recorded_begin_ns;
                    }
                    let began_ns = origin_ns(began_ns, monotonic_ns(), first.ts_ns);
                    zero_ns(began_ns, &hits, attached.own)
                });
                match show {
                    Show::Json => output::ndjson(trace_json::hits(&state, &hits))?,
                    Show::Lines { colour } => screen::print(&trace::hits(&state, &hits, origin), colour)?,
                    Show::Nothing => {}
                }
            }
            if let Some(news) = losses
                .as_mut()
                .and_then(|losses| losses.news(&state.lost, Instant::now()))
            {
                note(&news);
            }
            Ok(())
        })
        .await?;

    if state.started {
        match show {
            Show::Json => output::ndjson(trace_json::summary(&state))?,
            Show::Lines { .. } | Show::Nothing => note(&trace::summary(&state, attached.elapsed(began))),
        }
        if let (Some(file), Some(kept)) = (file, kept) {
            file.write(kept.finish(&state, &about.scope), &about)?;
        }
    }
    ended.result(state.started)
}

/// The clock that hits carry.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// What has been said of hits that are not shown.
struct Losses {
    said: BTreeMap<String, u64>,
    at: Instant,
}

impl Losses {
    fn since(began: Instant) -> Self {
        Self {
            said: BTreeMap::new(),
            at: began,
        }
    }

    /// What was lost since the last time, if that is long enough ago.
    fn news(&mut self, lost: &BTreeMap<String, u64>, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.at) < BETWEEN_NOTES {
            return None;
        }
        let more: BTreeMap<String, u64> = lost
            .iter()
            .map(|(reason, &count)| {
                let said = self.said.get(reason).copied().unwrap_or(0);
                (reason.clone(), count.saturating_sub(said))
            })
            .collect();
        self.at = now;
        let reasons = trace::reasons(&more)?;
        self.said.clone_from(lost);
        Some(format!("hits not shown: {reasons}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_said_once_a_second_at_most_and_once_each() {
        let began = Instant::now();
        let mut losses = Losses::since(began);
        let lost = |count| BTreeMap::from([("rate_limit".to_owned(), count)]);
        let mut at = |ms, count| losses.news(&lost(count), began + Duration::from_millis(ms));
        assert_eq!(at(999, 5), None);
        assert_eq!(at(1000, 7).unwrap(), "hits not shown: rate_limit 7");
        assert_eq!(at(1500, 9000), None);
        assert_eq!(at(2000, 9007).unwrap(), "hits not shown: rate_limit 9,000");
        assert_eq!(at(3000, 9007), None);
        assert_eq!(at(3500, 9008), None, "too soon");
        assert_eq!(at(4000, 9009).unwrap(), "hits not shown: rate_limit 2");
    }
}
