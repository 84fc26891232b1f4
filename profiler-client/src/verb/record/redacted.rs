//! What is left out of a recording with `--redact`: what a program's own data, its user or its machine could be told by.
//!
//! Functions' names stay, and the last component of the paths of files.

use std::collections::HashSet;

use profiler_proto::v1;
use profiler_scope::{Place, Scope};

/// Said by each view of such a recording.
const NOTE: &str = "recorded with --redact: folders, host, command lines, names of threads and the session's warnings are left out";

/// A scope that names values.
#[derive(Debug, thiserror::Error)]
#[error("--redact leaves values out, and `{0}` has a condition on one: record it without the condition")]
pub struct NamesValue(String);

/// Looks whether a scope can be recorded without values.
///
/// # Errors
/// Where it has a condition on one.
pub fn check(text: &str) -> Result<(), NamesValue> {
    scope(text).map(|_| ())
}

/// Leaves out of a message what is not to be in the file.
///
/// # Errors
/// Where its scope has a condition on a value.
pub fn redact(message: &mut v1::WatchRecordsResponse) -> Result<(), NamesValue> {
    if let Some(recorded) = &mut message.scope {
        recorded.text = scope(&recorded.text)?;
        recorded.warnings = vec![NOTE.to_owned()];
        for place in &mut recorded.places {
            place.expressions.clear();
            if let Some(place) = &mut place.place {
                place.site =
                    place_name(&place.site).unwrap_or_else(|| last_component(&without_folders(&place.site)));
                place.function = function_name(&place.function);
                place.file = last_component(&place.file);
                place.module = last_component(&place.module);
            }
        }
        for step in &mut recorded.steps {
            step.text = scope(&step.text)?;
            let functions = step.functions.iter_mut();
            for function in functions.filter_map(|recorded| recorded.function.as_mut()) {
                function.name = function_name(&function.name);
                function.linkage_name = function_name(&function.linkage_name);
                function.file = last_component(&function.file);
                function.module = last_component(&function.module);
            }
        }
    }
    // Values are the program's own data.
    for value in message.hits.iter_mut().flat_map(|hit| &mut hit.values) {
        *value = v1::RecordedValue::default();
    }
    let buckets = message
        .counted
        .iter_mut()
        .flat_map(|counted| &mut counted.buckets);
    for thread in buckets.flat_map(|bucket| &mut bucket.threads) {
        thread.name.clear();
    }
    let named = thread_names(&message.waits);
    for frame in &mut message.frames {
        frame.function = without_folders(&frame.function);
        frame.file = last_component(&frame.file);
        frame.module = last_component(&frame.module);
        if named.contains(&frame.id) {
            frame.function = format!("threads #{}", frame.id);
        }
        let is_thread = |thread: &&v1::RecordedThread| thread.thread_frame == frame.id;
        if let Some(thread) = message.threads.iter().find(is_thread) {
            frame.function = format!("thread ({})", thread.tid);
        }
        if (message.threads.iter()).any(|thread| thread.process_frame == frame.id) {
            // Processes of one command line are one, and those of others stay apart.
            frame.function = format!("process #{}", frame.id);
        }
    }
    if let Some(info) = &mut message.info {
        if let Some(end) = &mut info.end {
            end.reason = reason(&end.reason);
        }
        // They are said as they leave, and are not looked for in a recording.
        info.departures.clear();
        info.replaced_files.clear();
    }
    Ok(())
}

/// Frames with names of threads: those that waited, those that ended a wait, and those on whose stacks a lock lies. Each is told
/// with the first wait that names it.
fn thread_names(waits: &[v1::RecordedWait]) -> HashSet<u32> {
    let names = waits.iter().flat_map(|wait| {
        let waker = match &wait.waker {
            Some(v1::recorded_wait::Waker::Woken(woken)) => Some(woken.name_frame),
            Some(v1::recorded_wait::Waker::GoesOnFrame(holder)) => Some(*holder),
            Some(v1::recorded_wait::Waker::InterruptFrame(_)) | None => None,
        };
        let memory = wait.lock.as_ref().map(|lock| lock.memory_frame);
        [Some(wait.name_frame), waker, memory]
    });
    names.flatten().filter(|frame| *frame != 0).collect()
}

/// A scope's text without the folders of files.
fn scope(text: &str) -> Result<String, NamesValue> {
    let names_value = || NamesValue(text.to_owned());
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut scope: Scope = profiler_scope::parse(text).map_err(|_| names_value())?;
    for step in &mut scope.steps {
        if !step.conditions.is_empty() {
            return Err(names_value());
        }
        match &mut step.place {
            Place::Line { file, .. } | Place::Branch { file, .. } | Place::Call { file, .. } => {
                *file = last_component(file);
            }
            Place::Address { module, .. } => *module = last_component(module),
            Place::Function(_)
            | Place::Inlined(_)
            | Place::SystemCall(_)
            | Place::KernelFunction(_)
            | Place::Tracepoint { .. } => {}
        }
    }
    Ok(scope.to_string())
}

/// A function's name, or the place in a file that a step times in its stead, without folders.
fn function_name(name: &str) -> String {
    place_name(name).unwrap_or_else(|| without_folders(name))
}

/// A place in a file as a step names it, without folders; `None` where it is something else.
fn place_name(name: &str) -> Option<String> {
    let place: Scope = profiler_scope::parse(name).ok()?;
    let is_function = |place: &Place| matches!(place, Place::Function(_) | Place::Inlined(_));
    let names_function = place.steps.iter().any(|step| is_function(&step.place));
    scope(name).ok().filter(|_| !names_function)
}

/// Why a session ended, without folders: functions and steps are named in it between backquotes.
fn reason(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 1 {
            function_name(part)
        } else {
            without_folders(part)
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

fn last_component(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A text whose absolute paths have only their last component: names of functions that an interpreter compiled have such.
fn without_folders(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = path_begin(rest, kept.chars().next_back()) {
        kept.push_str(&rest[..at]);
        let path = &rest[at..];
        let ends = |c: char| c.is_whitespace() || "()<>\"',;".contains(c);
        let end = path.find(ends).unwrap_or(path.len());
        kept.push_str(&last_component(&path[..end]));
        rest = &path[end..];
    }
    kept.push_str(rest);
    kept
}

/// Where an absolute path begins: at a slash that is not amid a word, nor by itself.
fn path_begin(text: &str, mut before: Option<char>) -> Option<usize> {
    for (at, c) in text.char_indices() {
        let is_begin = c == '/' && !before.is_some_and(|before| before.is_alphanumeric() || before == '_');
        let next = text[at + c.len_utf8()..].chars().next();
        if is_begin && next.is_some_and(|next| next.is_alphanumeric() || "/._-~@".contains(next)) {
            return Some(at);
        }
        before = Some(c);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_folders_and_names_stay() {
        for (text, kept) in [
            ("LazyCompile:~f /home/ann/a.js:1", "LazyCompile:~f a.js:1"),
            ("py::f:/home/ann/a.py", "py::f:a.py"),
            ("* file:///home/ann/a.mjs:3:1", "* file:a.mjs:3:1"),
            ("ns::operator/(int)", "ns::operator/(int)"),
            ("a(b / c)", "a(b / c)"),
            ("github.com/ann/pkg.F", "github.com/ann/pkg.F"),
            ("/srv/x/y (/srv/z)", "y (z)"),
            ("", ""),
        ] {
            assert_eq!(without_folders(text), kept);
        }
    }

    #[test]
    fn names_of_processes_that_left_are_not_kept() {
        let mut message = v1::WatchRecordsResponse {
            info: Some(v1::StreamInfo {
                departures: vec![v1::Departure {
                    name: "secret-server".to_owned(),
                    reason: "process 40 (secret-server) ended".to_owned(),
                    ..v1::Departure::default()
                }],
                replaced_files: vec![v1::ReplacedFile {
                    path: "/srv/secret/plugin.so".to_owned(),
                    ..v1::ReplacedFile::default()
                }],
                ..v1::StreamInfo::default()
            }),
            ..Default::default()
        };
        redact(&mut message).unwrap();
        assert!(!format!("{message:?}").contains("secret"), "{message:?}");
    }

    #[test]
    fn a_message_has_nothing_left_of_what_is_secret() {
        let function = v1::Function {
            name: "handle".to_owned(),
            file: "/home/secret/src/a.c".to_owned(),
            module: "/home/secret/bin/server".to_owned(),
            ..Default::default()
        };
        let call = v1::Function {
            name: "parse@\"secret/a.c\":3".to_owned(),
            ..Default::default()
        };
        let step = |text: &str, function| v1::RecordedStep {
            text: text.to_owned(),
            functions: vec![v1::RecordedFunction {
                function: Some(function),
                ..Default::default()
            }],
            gates: 0,
        };
        let frame = |id, function: &str, module: &str| v1::Frame {
            id,
            function: function.to_owned(),
            file: "/home/secret/src/a.c".to_owned(),
            module: module.to_owned(),
            ..Default::default()
        };
        let mut message = v1::WatchRecordsResponse {
            info: Some(v1::StreamInfo {
                end: Some(v1::StreamEnd {
                    cause: v1::EndCause::Other.into(),
                    reason: "`parse@\"secret/a.c\":3` was taken off: /home/secret/bin/server".to_owned(),
                    signal: 0,
                }),
                ..v1::StreamInfo::default()
            }),
            scope: Some(v1::RecordedScope {
                text: "handle/\"/home/secret/src/a.c\":3".to_owned(),
                steps: vec![step("handle", function), step("parse@\"secret/a.c\":3", call)],
                warnings: vec!["/home/secret/bin/server has no symbols".to_owned()],
                places: vec![v1::RecordedPlace {
                    place: Some(v1::TracedPlace {
                        site: "/home/secret/src/a.c:3".to_owned(),
                        file: "/home/secret/src/a.c".to_owned(),
                        ..Default::default()
                    }),
                    expressions: vec![v1::RecordedExpression {
                        expression: "secret".to_owned(),
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }),
            frames: vec![
                frame(1, "handle", "/home/secret/bin/server"),
                frame(2, "secret-worker (41)", "[thread]"),
                frame(3, "server --password secret", "[process]"),
                frame(4, "secret-worker-*", "[thread]"),
                frame(5, "stack of secret-worker-1 (41)", "[memory]"),
            ],
            waits: vec![v1::RecordedWait {
                name_frame: 4,
                lock: Some(v1::RecordedLock {
                    memory_frame: 5,
                    ..Default::default()
                }),
                ..Default::default()
            }],
            hits: vec![v1::RecordedHit {
                values: vec![v1::RecordedValue {
                    value: Some(v1::recorded_value::Value::Unreadable("secret".to_owned())),
                }],
                ..Default::default()
            }],
            threads: vec![v1::RecordedThread {
                id: 1,
                pid: 40,
                tid: 41,
                thread_frame: 2,
                process_frame: 3,
            }],
            ..Default::default()
        };
        redact(&mut message).unwrap();
        let text = format!("{message:?}");
        assert!(!text.contains("secret"), "{text}");
        for kept in [
            "\"handle\"",
            "\"a.c\"",
            "\"server\"",
            "handle/a.c:3",
            "name: \"parse@a.c:3\"",
            "thread (41)",
            "process #3",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        let refused = check("handle[user == \"ann\"]").unwrap_err().to_string();
        assert!(refused.contains("without the condition"), "{refused}");
        check("handle[>= p95]/parse").unwrap();
        check("").unwrap();
    }
}
