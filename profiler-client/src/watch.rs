//! One run of a view: messages until it ends, by time, by the user, or by the target's end.

use std::{future::Future, time::Duration};

pub use profiler_proto::stream::Message;
use profiler_proto::v1;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::{
    attached::{self, Attached, Owned},
    departures::Departures,
    failure::Failure,
    output::{first_failure, note, note_amid_progress},
    render::{escape::terminal, units},
    state::end::End,
    stop::Stop,
    view::{Change, View, Viewed},
};

/// How long a stream may take to bring its last message after its session was ended: longer than the daemon waits for the names
/// of what was recorded. Who cannot wait asks to stop once more.
const LAST_MESSAGE: Duration = Duration::from_secs(20);

/// How long the last look at a session that goes on may take.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// Says that processes which the targets began paid for the probes.
fn note_children(begun: u64, rate_hz: Option<f64>) {
    if let Some(text) = children(begun, rate_hz) {
        note(&text);
    }
}

/// Says what became of the connection to the daemon.
fn note_connection(change: Change) {
    note_amid_progress(&match change {
        Change::Lost(lease) => format!(
            "warning: the connection to the daemon was lost: trying to connect again, for up to {}.",
            units::duration(lease.as_nanos() as f64)
        ),
        Change::Back(after) => format!(
            "The daemon is connected again, after {}: calls of meanwhile are counted, and hits of meanwhile are not shown.",
            units::duration(after.as_nanos() as f64)
        ),
    });
}

/// Says that what is shown is as the message before the last one had it.
fn note_missing(waited: Duration) {
    let waited = waited.as_secs();
    note(&format!(
        "warning: the daemon did not say within {waited} s what came last: it is not in the result. \
         Run this again; if the daemon does not keep up then either, ask for a narrower scope or fewer processes."
    ));
}

/// Processes that targets begin during a run.
struct Children {
    /// How many there were before it; `None` as long as that is not known.
    before: Option<u64>,
    begun: u64,
    /// As the first message told it, and as the last one that came at its time did.
    told: Option<(Told, Told)>,
    is_said: bool,
}

/// How many processes had begun when a message came.
#[derive(Clone, Copy)]
struct Told {
    begun: u64,
    at: Instant,
}

/// Children a second from which on a run says how many there are while it goes on: each pays for the probes.
const SAID_FROM_HZ: f64 = 1.0;

/// A rate of less time is none.
const RATED_FROM: Duration = Duration::from_secs(1);

impl Children {
    /// None yet; a session that somebody else made has counted before.
    fn of(own: bool) -> Self {
        Self {
            before: own.then_some(0),
            begun: 0,
            told: None,
            is_said: false,
        }
    }

    /// Takes over what a message tells that came at a time; `None` of the last one, which is waited for.
    fn count(&mut self, all: u64, at: Option<Instant>) {
        self.begun = all.saturating_sub(*self.before.get_or_insert(all));
        if let Some(at) = at {
            let now = Told {
                begun: self.begun,
                at,
            };
            let first = self.told.map_or(now, |(first, _)| first);
            self.told = Some((first, now));
        }
    }

    /// How many begin a second; `None` where it was not watched for long enough. What began before the first message is of a time that
    /// is not known: from when the probes were attached.
    fn rate_hz(&self) -> Option<f64> {
        let (first, last) = self.told?;
        let time = last.at.saturating_duration_since(first.at);
        let begun = last.begun.saturating_sub(first.begun);
        (time >= RATED_FROM).then(|| begun as f64 / time.as_secs_f64())
    }

    /// What is said of them while the run goes on, once.
    fn warning(&mut self) -> Option<String> {
        let rate_hz = self.rate_hz().filter(|rate_hz| *rate_hz >= SAID_FROM_HZ)?;
        if std::mem::replace(&mut self.is_said, true) {
            return None;
        }
        Some(format!(
            "warning: the target begins {} child processes a second: each stops at the breakpoints that it inherits, as long as it runs its \
             parent's program, and its calls are not counted.",
            units::number(rate_hz)
        ))
    }
}

/// Processes that targets have begun, in words; `None` where there were none.
fn children(begun: u64, rate_hz: Option<f64>) -> Option<String> {
    let rate = rate_hz.map_or_else(String::new, |rate_hz| {
        format!(" ({} a second)", units::number(rate_hz))
    });
    let (processes, each) = match begun {
        0 => return None,
        1 => ("child process".to_owned(), "it"),
        _ => (format!("child processes{rate}"), "each"),
    };
    Some(format!(
        "{} {processes} began while this ran: {each} stops at the breakpoints that it inherits, as long as it runs its parent's program, \
         and its calls are not counted.",
        units::count(begun)
    ))
}

/// What is said of a run that nobody ended.
fn ended_by_itself(reason: &str) -> String {
    if reason.is_empty() {
        return "The run ended by itself.".to_owned();
    }
    format!(
        "The run ended by itself: {}.",
        terminal(reason.trim_end_matches('.'))
    )
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    how: How,
    /// Processes that the targets have begun while they were probed in it.
    children: u64,
    /// How many of them a second, where that is known.
    children_hz: Option<f64>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// The user or the clock ended it.
    Asked,
    /// The session or its target ended; why.
    ByItself(End),
    /// A signal ended the target; in words.
    Killed(String),
    /// The stream broke; what came before it stands.
    Broken(Failure),
}

impl Ended {
    /// The command's result, once what came has been shown; whether `anything` did. Says so of a run that nobody ended.
    ///
    /// # Errors
    ///
    /// Where the stream broke, or brought nothing until it was asked to end.
    pub fn result(self, anything: bool) -> Result<(), Failure> {
        note_children(self.children, self.children_hz);
        match self.how {
            How::Asked if anything => Ok(()),
            How::Asked => Err(Failure::failed("The daemon sent nothing before the run ended.")),
            How::ByItself(end) if end.is_of_recording() => Ok(()),
            How::ByItself(end) if end.is_over_budget() => Err(Failure::failed(format!(
                "{} `--budget 0` sets no limit.",
                ended_by_itself(&end.reason)
            ))),
            How::ByItself(end) => {
                note(&ended_by_itself(&end.reason));
                Ok(())
            }
            How::Killed(reason) => Err(Failure::target_killed(ended_by_itself(&reason))),
            How::Broken(failure) => Err(failure),
        }
    }

    /// As [`Self::result`] of a run that was also written or sent elsewhere. How it ended comes first; that the other failed is
    /// said then, and is the result else.
    ///
    /// # Errors
    ///
    /// As there, and where that failed.
    pub fn with_export(self, anything: bool, exported: Result<(), Failure>) -> Result<(), Failure> {
        first_failure(self.result(anything), exported)
    }
}

/// What ends a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it began.
    pub began: Instant,
    /// When the run is over; `None`: only when asked to stop.
    pub deadline: watch::Receiver<Option<Instant>>,
    /// The user.
    pub stop: Stop,
    /// Sessions to end; what their streams then send last still belongs to the run.
    pub owned: Owned,
    /// Whether the watched session is among them.
    pub own: bool,
    /// The length of what it is of, where that is a recording.
    pub length: Option<Duration>,
    /// Which processes have left the session.
    pub departures: Departures,
}

impl Run {
    /// Begins a run of so long, or until it is asked to stop.
    #[must_use]
    pub fn begin(duration: Option<Duration>, stop: Stop, owned: Owned, attached: &Attached) -> Self {
        let began = Instant::now();
        let (_, deadline) = watch::channel(duration.map(|duration| began + duration));
        Self {
            began,
            deadline,
            stop,
            owned,
            own: attached.own,
            length: attached::recorded_length(&attached.session),
            departures: Departures::default(),
        }
    }

    /// Tells what becomes of the target's processes as objects too, where standard output takes those.
    #[must_use]
    pub fn telling_json(mut self, as_json: bool) -> Self {
        self.departures = Departures::new(as_json);
        self
    }

    /// Hands every message of a view to `on_message` until the run is over; at the end also what has come since the last message, where
    /// the session is somebody else's and goes on.
    ///
    /// # Errors
    ///
    /// What `on_message` fails with: it ends the run at once.
    pub async fn watch<R: Viewed>(
        mut self,
        view: View<R>,
        mut on_message: impl FnMut(R::Message) -> Result<(), Failure>,
    ) -> Result<Ended, Failure> {
        let mut departures = std::mem::take(&mut self.departures);
        let (length, own) = (self.length, self.own);
        let mut children = Children::of(own);
        let counted = |message: R::Message| {
            if let Some(info) = message.info() {
                if let Some(all) = info.children {
                    children.count(all, message.end().is_none().then(Instant::now));
                }
                if length.is_none()
                    && let Some(warning) = children.warning()
                {
                    note_amid_progress(&warning);
                }
                departures.say(info)?;
            }
            on_message(message)
        };
        let how = self.take_all(view, counted).await?;
        let in_recording = |length: Duration| children.begun as f64 / length.as_secs_f64().max(0.001);
        Ok(Ended {
            how,
            children: children.begun,
            children_hz: length.map(in_recording).or_else(|| children.rate_hz()),
        })
    }

    async fn take_all<R: Viewed>(
        mut self,
        mut view: View<R>,
        mut on_message: impl FnMut(R::Message) -> Result<(), Failure>,
    ) -> Result<How, Failure> {
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.requested() => break,
                () = until(&mut self.deadline) => break,
                message = view.message(note_connection) => message,
            };
            if let Some(ended) = take(message, &mut on_message)? {
                return Ok(ended);
            }
        }
        if let Some(why) = view.lost() {
            let why = why.clone().into();
            if self.own {
                self.owned.end().await;
            }
            return Ok(How::Broken(why));
        }
        if self.own {
            self.drain(view, on_message).await
        } else {
            // The first stream stays open until then: without any, the daemon forgets what was sampled for it.
            let now = within(LAST_LOOK, view.look_again()).await;
            match now {
                Some(now) => {
                    take(now, &mut on_message)?;
                }
                None => note_missing(LAST_LOOK),
            }
            Ok(How::Asked)
        }
    }

    /// Ends the session, and takes what is still to come.
    async fn drain<R: Viewed>(
        &mut self,
        mut view: View<R>,
        mut on_message: impl FnMut(R::Message) -> Result<(), Failure>,
    ) -> Result<How, Failure> {
        let owned = self.owned.clone();
        let end = tokio::spawn(async move { owned.end().await });
        let last = Instant::now() + LAST_MESSAGE;
        let how = loop {
            let Ok(message) = tokio::time::timeout_at(last, view.message(note_connection)).await else {
                note_missing(LAST_MESSAGE);
                break How::Asked;
            };
            // Only a message says that what came last is there.
            let is_told = message.is_ok();
            match take(message, &mut on_message)? {
                None => {}
                Some(_) if is_told => break How::Asked,
                Some(broken @ How::Broken(_)) => break broken,
                Some(_) => break lost_at_the_end(),
            }
        };
        // It has its own deadline, and cannot fail in a way that matters here.
        let _ = end.await;
        Ok(how)
    }
}

/// The connection was lost, and what came last is missing.
fn lost_at_the_end() -> How {
    How::Broken(Failure::failed(
        "The connection to the daemon was lost, and its session ended meanwhile: the result is of what came before.",
    ))
}

fn how(end: &v1::StreamEnd) -> How {
    match end.signal {
        0 => How::ByItself(end.into()),
        _ => How::Killed(end.reason.clone()),
    }
}

/// How a session has ended that is not there any more, where the daemon remembers it: the connection was lost meanwhile.
fn end_of_session(status: &Status) -> Option<v1::StreamEnd> {
    let details = status.get_error_details();
    let told = &details.error_info()?.metadata;
    let cause = v1::EndCause::from_str_name(told.get("end_cause")?)?;
    Some(v1::StreamEnd {
        cause: cause.into(),
        reason: told.get("end_reason")?.clone(),
        signal: told
            .get("end_signal")
            .and_then(|signal| signal.parse().ok())
            .unwrap_or(0),
    })
}

fn take<M: Message>(
    message: Result<Option<M>, Status>,
    on_message: &mut impl FnMut(M) -> Result<(), Failure>,
) -> Result<Option<How>, Failure> {
    match message {
        Ok(Some(message)) => {
            let ended = message.end().map(how);
            on_message(message)?;
            Ok(ended)
        }
        Ok(None) => Ok(Some(How::ByItself(End::other("")))),
        Err(status) => Ok(Some(match end_of_session(&status) {
            None => How::Broken(status.into()),
            // Nobody watched for so long: the connection was lost.
            Some(end) if end.cause() == v1::EndCause::Lease => lost_at_the_end(),
            Some(end) => how(&end),
        })),
    }
}

async fn until(deadline: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let at = *deadline.borrow_and_update();
        let over = async {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            changed = deadline.changed() => if changed.is_err() {
                break;
            },
        }
    }
    // It stays as it is.
    let at = *deadline.borrow();
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn within<T>(duration: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(duration, future).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_children_are_said_while_the_run_goes_on_once() {
        let began = Instant::now();
        let at = |ms| Some(began + Duration::from_millis(ms));
        let mut of_own = Children::of(true);
        assert_eq!(of_own.warning(), None, "there are none");
        // Since the probes were attached, some time ago.
        of_own.count(40, at(100));
        of_own.count(60, at(900));
        assert_eq!(of_own.warning(), None, "too early to tell");
        of_own.count(90, at(2_100));
        let said = of_own.warning().unwrap();
        assert!(said.contains("begins 25 child processes a second"), "{said}");
        of_own.count(500, at(9_000));
        assert_eq!((of_own.warning(), of_own.begun), (None, 500));
        let rate_hz = of_own.rate_hz();
        // The last message is waited for, while the probes are taken off.
        of_own.count(510, None);
        assert_eq!((of_own.rate_hz(), of_own.begun), (rate_hz, 510));

        let mut of_others = Children::of(false);
        of_others.count(1_000, at(0));
        of_others.count(1_002, at(4_000));
        assert_eq!(of_others.begun, 2);
        assert_eq!(of_others.warning(), None, "few");
    }

    #[test]
    fn children_are_said_with_their_rate() {
        assert_eq!(children(0, Some(1.0)), None);
        let one = children(1, None).unwrap();
        assert!(
            one.starts_with("1 child process began while this ran: it stops at"),
            "{one}"
        );
        for (rate_hz, said) in [(Some(252.5), " (253 a second)"), (None, "")] {
            let many = children(1010, rate_hz).unwrap();
            let begins = format!("1,010 child processes{said} began while this ran: each stops");
            assert!(many.starts_with(&begins), "{many}");
        }
    }
}
