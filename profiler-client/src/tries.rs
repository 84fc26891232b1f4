//! A connection that is lost, and what is tried again until there is another.

use std::{error::Error as _, io, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

/// How long is tried where nobody listens: a daemon that is gone has no sessions any more.
pub(crate) const NOBODY_LISTENS: Duration = Duration::from_secs(1);

/// How tries follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long is waited behind the first, and twice as long behind each other one.
    pub first_wait: Duration,
    /// How long is waited at most.
    pub max_wait: Duration,
    /// How long one may take at least, however late it is.
    pub least: Duration,
}

/// What is tried for a while, as long as the reason for its failure is that there is no connection.
#[derive(Debug)]
pub(crate) struct Tries {
    began: Instant,
    limit: Duration,
    least: Duration,
    wait: Duration,
    max_wait: Duration,
}

/// What became of a try.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    /// It is done.
    Done(T),
    /// There is no connection; it is time for the next.
    Again,
    /// There is no connection, or no answer, and no time left.
    GivenUp,
    /// What the daemon says.
    Refused(Status),
}

impl Tries {
    /// Those since then, for so long.
    pub fn since(began: Instant, limit: Duration, pace: Pace) -> Self {
        Self {
            began,
            limit,
            least: pace.least,
            wait: pace.first_wait,
            max_wait: pace.max_wait,
        }
    }

    /// Makes one. Whoever takes the connection and does not answer is waited for no longer than others.
    pub async fn make<T>(&mut self, attempt: impl Future<Output = Result<T, Status>>) -> Tried<T> {
        let left = self.limit.saturating_sub(self.began.elapsed()).max(self.least);
        let status = match timeout(left, attempt).await {
            Ok(Ok(done)) => return Tried::Done(done),
            Ok(Err(status)) => status,
            Err(_) => return Tried::GivenUp,
        };
        if !is_lost(&status) {
            return Tried::Refused(status);
        }
        let Some(wait) = self.wait_behind(&status, self.began.elapsed()) else {
            return Tried::GivenUp;
        };
        sleep(wait).await;
        Tried::Again
    }

    /// How long is waited behind a try that failed for this, so long after the beginning; `None` where there is no other one.
    fn wait_behind(&mut self, status: &Status, elapsed: Duration) -> Option<Duration> {
        let left = patience(status, self.limit).checked_sub(elapsed)?;
        let wait = self.wait.min(left);
        self.wait = self.max_wait.min(self.wait * 2);
        (!left.is_zero()).then_some(wait)
    }
}

/// Whether this is the connection's end rather than the daemon's word.
#[must_use]
pub(crate) fn is_lost(status: &Status) -> bool {
    status.source().is_some()
}

/// For how long it is tried after such a failure to connect.
fn patience(status: &Status, limit: Duration) -> Duration {
    match refusal(status) {
        // The service within this process.
        Some(io::ErrorKind::NotConnected) => Duration::ZERO,
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => NOBODY_LISTENS,
        _ => limit,
    }
}

/// Why the system could not connect.
fn refusal(status: &Status) -> Option<io::ErrorKind> {
    let mut error = status.source();
    while let Some(cause) = error {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        error = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);
    const PACE: Pace = Pace {
        first_wait: Duration::from_millis(50),
        max_wait: Duration::from_secs(2),
        least: NOBODY_LISTENS,
    };

    fn failed(kind: io::ErrorKind) -> Status {
        Status::from_error(Box::new(io::Error::from(kind)))
    }

    #[test]
    fn a_connection_is_made_again_for_as_long_as_the_session_may_be_there() {
        assert!(!is_lost(&Status::not_found("no session")));
        for (kind, tried) in [
            (io::ErrorKind::ConnectionReset, LIMIT),
            (io::ErrorKind::BrokenPipe, LIMIT),
            (io::ErrorKind::ConnectionRefused, NOBODY_LISTENS),
            (io::ErrorKind::NotFound, NOBODY_LISTENS),
            (io::ErrorKind::NotConnected, Duration::ZERO),
        ] {
            let status = failed(kind);
            assert!(is_lost(&status), "{kind}");
            assert_eq!(patience(&status, LIMIT), tried, "{kind}");
        }
    }

    /// The waits between tries that all fail so, in no time.
    fn waits(kind: io::ErrorKind) -> Vec<Duration> {
        let mut tries = Tries::since(Instant::now(), LIMIT, PACE);
        let status = failed(kind);
        let mut elapsed = Duration::ZERO;
        let next = || {
            let wait = tries.wait_behind(&status, elapsed)?;
            elapsed += wait;
            Some(wait)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn tries_follow_each_other_more_slowly_and_end() {
        let waits_ms = |kind| -> Vec<u128> { waits(kind).iter().map(Duration::as_millis).collect() };
        assert_eq!(waits_ms(io::ErrorKind::NotFound), [50, 100, 200, 400, 250]);
        assert_eq!(waits_ms(io::ErrorKind::NotConnected), []);
        let long = waits_ms(io::ErrorKind::ConnectionReset);
        assert_eq!(long[4..8], [800, 1_600, 2_000, 2_000]);
        assert_eq!(long.iter().sum::<u128>(), LIMIT.as_millis());
    }

    #[tokio::test]
    async fn what_the_daemon_says_is_the_end() {
        let mut tries = Tries::since(Instant::now(), LIMIT, PACE);
        let refused = tries.make(async { Err::<(), _>(Status::not_found("no session")) });
        assert!(matches!(refused.await, Tried::Refused(_)));
        let done = tries.make(async { Ok(7) });
        assert!(matches!(done.await, Tried::Done(7)));
    }

    #[tokio::test]
    async fn who_does_not_answer_is_not_waited_for_longer_than_others() {
        let pace = Pace {
            least: Duration::ZERO,
            ..PACE
        };
        let mut tries = Tries::since(Instant::now(), Duration::ZERO, pace);
        let silent = tries.make(std::future::pending::<Result<(), Status>>());
        assert!(matches!(silent.await, Tried::GivenUp));
    }
}
