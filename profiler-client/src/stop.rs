//! Ctrl-C and its like: the first ends the run, the second aborts.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// Signals closer together than this are one request: `timeout` sends two, to the process and to its group.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// Tells how often the user asked to stop. Cloned to whoever waits for it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<u32>);

impl Stop {
    /// Begins to listen to SIGINT, SIGTERM and SIGHUP, in a task of its own: whatever else blocks,
    /// the second one is acted on.
    ///
    /// # Errors
    ///
    /// Where signal handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (sender, receiver) = watch::channel(0_u32);
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while next(&mut interrupt, &mut terminate, &mut hangup).await.is_some() {
                let now = Instant::now();
                if last.is_none_or(|last| now - last >= SAME_REQUEST) {
                    sender.send_modify(|count| *count = count.saturating_add(1));
                    last = Some(now);
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits for the first request.
    pub async fn requested(&mut self) {
        self.at_least(1).await;
    }

    /// Waits for the second request.
    pub async fn insisted(&mut self) {
        self.at_least(2).await;
    }

    async fn at_least(&mut self, count: u32) {
        if self.0.wait_for(|&seen| seen >= count).await.is_err() {
            // The listening task ends only with the runtime.
            std::future::pending::<()>().await;
        }
    }
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal, hangup: &mut Signal) -> Option<()> {
    tokio::select! {
        seen = interrupt.recv() => seen,
        seen = terminate.recv() => seen,
        seen = hangup.recv() => seen,
    }
}
