//! Where calls go beside the view: into a file at the end of a run, and to a collector while it goes on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_export::{interval_log::NotCountable, otlp};

use crate::{
    attached::Attached,
    cli::{
        args::LatencyFormat,
        request::{Export, Latency},
    },
    collector::{Collector, MetricsStream, Signal},
    failure::Failure,
    output::{Output, first_failure, note},
    render::{durations, escape::terminal, intervals::Intervals, units},
    state::latency::LatencyState,
};

/// What is opened before anything is attached.
pub struct Opened {
    output: Option<Output>,
    collector: Option<Collector>,
}

impl Opened {
    /// Opens what a run is to be written to.
    ///
    /// # Errors
    ///
    /// Where a file cannot be written or a collector not be reached.
    pub async fn new(request: &Latency) -> Result<Self, Failure> {
        let output = request.export.as_ref().map(|export| match export.format {
            LatencyFormat::Otlp => Output::open_binary(export.output.as_deref()),
            LatencyFormat::Hlog => Output::open(export.output.as_deref()),
        });
        let output = output.transpose()?;
        let collector = Collector::connect_if(request.otlp.as_ref(), Signal::Metrics).await?;
        Ok(Self { output, collector })
    }

    /// Whether metrics are made, which say what the target is.
    pub fn has_metrics(&self, request: &Latency) -> bool {
        let format = request.export.as_ref().map(|export| export.format);
        self.collector.is_some() || format == Some(LatencyFormat::Otlp)
    }
}

/// What a run is written to.
pub struct Exports<'a> {
    attached: &'a Attached,
    file: Option<(&'a Export<LatencyFormat>, Output)>,
    intervals: Option<Intervals>,
    stream: Option<MetricsStream>,
    /// What was profiled.
    target: String,
    /// When the run began.
    since_1970: Duration,
}

impl<'a> Exports<'a> {
    /// Of a run that begins now.
    pub fn begin(opened: Opened, request: &'a Latency, attached: &'a Attached, target: String) -> Self {
        let Opened { output, collector } = opened;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = request.export.as_ref().zip(output);
        let is_log = file
            .as_ref()
            .is_some_and(|(export, _)| export.format == LatencyFormat::Hlog);
        Self {
            attached,
            file,
            intervals: is_log.then(|| Intervals::new(since_1970, !attached.own)),
            stream: collector.map(Collector::into_stream),
            target,
            since_1970,
        }
    }

    /// Takes what an update has brought, so long after the beginning; of the last one, [`Self::finish`] sends the sums.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn update(&mut self, state: &LatencyState, elapsed: Duration, is_last: bool) -> Result<(), Failure> {
        if let Some(intervals) = &mut self.intervals {
            let added = intervals.update(state, elapsed);
            added.map_err(|NotCountable { reason }| {
                Failure::failed(format!("Cannot put the calls into an interval log: {reason}."))
            })?;
        }
        if let Some(stream) = self.stream.as_ref().filter(|_| !is_last) {
            stream.offer(otlp::metrics(&self.durations(state, elapsed)));
        }
        Ok(())
    }

    /// Writes what is written at the end, and sends the last sums.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or the collector did not take it.
    pub async fn finish(mut self, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
        let file = self.write(state, elapsed);
        let Some(stream) = self.stream.take() else {
            return file;
        };
        let last = otlp::metrics(&self.durations(state, elapsed));
        let sent = stream.finish(last).await;
        first_failure(file, sent.map(|sent| note(&sent)))
    }

    fn write(&mut self, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
        match (self.file.take(), self.intervals.take()) {
            (Some((export, output)), Some(intervals)) => write_log(export, output, intervals)?,
            (Some((export, output)), None) => {
                output.write(otlp::encoded_metrics(&self.durations(state, elapsed)))?;
                let functions = units::count(state.functions.len() as u64);
                written(export, &format!("{functions} functions"));
            }
            (None, _) => {}
        }
        Ok(())
    }

    fn durations(&self, state: &LatencyState, elapsed: Duration) -> profiler_export::Durations {
        // What was recorded is over; how long ago that was, its file alone says.
        let started = if self.attached.session.recorded.is_some() {
            self.since_1970.saturating_sub(elapsed)
        } else {
            self.since_1970
        };
        let about = durations::About {
            target: &self.target,
            // A session that was joined has counted before.
            began: self.attached.own.then_some(started),
            ended: started + elapsed,
        };
        durations::of(state, &about)
    }
}

/// Writes the log, and says what is in it.
fn write_log(export: &Export<LatencyFormat>, output: Output, intervals: Intervals) -> Result<(), Failure> {
    let log = intervals.finish();
    let (kept, left_out) = (log.intervals(), log.left_out());
    output.write(log.into_bytes())?;
    written(export, &format!("{} intervals", units::count(kept)));
    if left_out > 0 {
        note(&format!(
            "warning: {} intervals did not fit into the log: choose a longer --interval.",
            units::count(left_out)
        ));
    }
    Ok(())
}

/// Says what is in a file.
fn written(export: &Export<LatencyFormat>, what: &str) {
    if let Some(path) = &export.output {
        note(&format!("{} written: {what}", terminal(&path.to_string_lossy())));
    }
}
