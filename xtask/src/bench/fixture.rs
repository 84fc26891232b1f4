//! A target that is told what to call, and says how long it took by its own clock.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::error::{Error, Result};

/// A program with lines in and lines out; killed when dropped.
pub struct Conversation {
    program: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    /// Starts a program.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let failed = |source| Error::Start {
            command: program.display().to_string(),
            directory: ".".into(),
            source,
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::told("a piped child has no pipes"));
        };
        Ok(Self {
            program: program.to_owned(),
            child,
            input: Some(input),
            output: BufReader::new(output),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let result = match &mut self.input {
            Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
            None => Ok(()),
        };
        result.map_err(Error::file("write to", &self.program))
    }

    /// Waits for a line; its end is an error.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self
            .output
            .read_line(&mut line)
            .map_err(Error::file("read from", &self.program))?;
        if read == 0 {
            let status = self
                .child
                .wait()
                .map_err(Error::file("wait for", &self.program))?;
            return Err(Error::told(format!(
                "{} ended too early: {status}",
                self.program.display()
            )));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Sends a line and reads the JSON object in the answer, after an optional word in front of it.
    pub fn ask(&mut self, line: &str) -> Result<Value> {
        self.say(line)?;
        let answer = self.hear()?;
        let object = answer.find('{').map_or("", |at| &answer[at..]);
        let value: Value = serde_json::from_str(object).map_err(|_| {
            Error::told(format!(
                "{} answered `{line}` by `{answer}`",
                self.program.display()
            ))
        })?;
        match value
            .get("error")
            .or_else(|| value.get("message"))
            .and_then(Value::as_str)
        {
            Some(error) => Err(Error::told(format!(
                "{} could not do `{line}`: {error}",
                self.program.display()
            ))),
            None => Ok(value),
        }
    }

    /// Closes its input, and waits for its end.
    pub fn end(mut self) -> Result<()> {
        self.input = None;
        while let Ok(1..) = self.output.read_line(&mut String::new()) {}
        let status = self
            .child
            .wait()
            .map_err(Error::file("wait for", &self.program))?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::told(format!(
                "{} ended with {status}",
                self.program.display()
            )))
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fixture: see the README beside their sources.
pub struct Fixture(Conversation);

impl Fixture {
    /// Starts a fixture and waits until it can be probed.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut conversation = Conversation::start(program, arguments)?;
        match conversation.hear()?.as_str() {
            "ready" => Ok(Self(conversation)),
            other => Err(Error::told(format!(
                "{} began with `{other}`, not `ready`",
                program.display()
            ))),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Nanoseconds a call of a function takes, the median of nine batches of so many calls.
    pub fn call(&mut self, calls: u32, function: &str) -> Result<f64> {
        let answer = self.0.ask(&format!("go {calls} {function}"))?;
        answer["median_ns"]
            .as_f64()
            .ok_or_else(|| Error::told(format!("no `median_ns` in {answer}")))
    }

    /// Lets it end.
    pub fn end(self) -> Result<()> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_hears_answers_errors_and_ends() {
        let script = "read a; echo \"bench {\\\"x\\\": 1}\"; read b; echo 'error {\"message\": \"no\"}'; read c; exit 3";
        let mut conversation = Conversation::start(Path::new("/bin/sh"), &["-c", script]).unwrap();
        assert_eq!(conversation.ask("one").unwrap()["x"], 1);
        assert!(
            conversation
                .ask("two")
                .unwrap_err()
                .to_string()
                .ends_with("could not do `two`: no")
        );
        conversation.say("three").unwrap();
        assert!(
            conversation
                .hear()
                .unwrap_err()
                .to_string()
                .contains("ended too early: exit status: 3")
        );
    }
}
