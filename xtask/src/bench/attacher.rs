//! The process that holds the probes: `profiler-daemon/examples/bench_attach.rs`.

use std::path::Path;

use serde_json::Value;

use super::fixture::Conversation;
use crate::error::{Error, Result};

/// Attaches and detaches on command.
pub struct Attacher(Conversation);

/// What attaching took.
#[derive(Debug)]
pub struct Attached {
    /// Functions with probes.
    pub functions: u64,
    /// Time for all of them.
    pub attach_ms: f64,
}

impl Attacher {
    /// Starts it; the programs are loaded when it is ready.
    pub fn start(program: &Path) -> Result<Self> {
        let mut conversation = Conversation::start(program, &[])?;
        let ready = conversation.hear()?;
        println!("{}: {ready}", program.display());
        Ok(Self(conversation))
    }

    /// Attaches `floor` (empty pairs), `entry` (empty programs at entries) or `ours` to functions of a process.
    pub fn attach(&mut self, kind: &str, pid: u32, file: &Path, functions: &[&str]) -> Result<Attached> {
        let answer = self.0.ask(&format!(
            "{kind} {pid} {} {}",
            file.display(),
            functions.join(" ")
        ))?;
        let functions = answer["functions"]
            .as_u64()
            .ok_or_else(|| missing("functions", &answer))?;
        Ok(Attached {
            functions,
            attach_ms: milliseconds(&answer, "attach_ns")?,
        })
    }

    /// Samples the process until the next [`Attacher::detach`].
    pub fn sample(&mut self, pid: u32, frequency_hz: u32) -> Result<()> {
        self.0.ask(&format!("sample {pid} {frequency_hz}")).map(drop)
    }

    /// Detaches everything; returns the milliseconds it took.
    pub fn detach(&mut self) -> Result<f64> {
        milliseconds(&self.0.ask("detach")?, "detach_ns")
    }
}

fn milliseconds(answer: &Value, field: &str) -> Result<f64> {
    answer[field]
        .as_f64()
        .map(|ns| ns / 1e6)
        .ok_or_else(|| missing(field, answer))
}

fn missing(field: &str, answer: &Value) -> Error {
    Error::told(format!("bench_attach gave no `{field}`: {answer}"))
}
