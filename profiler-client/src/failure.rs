//! Why something that was asked for was not done, in words and as what programs can decide by.

use std::{fmt, io};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::render::escape::terminal;

/// What a failure means to whoever asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureClass {
    /// It failed for another reason.
    Failed,
    /// What was asked for makes no sense: flags, or the scope.
    Usage,
    /// There is no such target, function, line or session.
    NotFound,
    /// It is not permitted.
    NotPermitted,
    /// A signal ended the target while it was looked at; what came before that is shown.
    TargetKilled,
    /// Nobody reads the result any more.
    ClosedPipe,
}

/// A command that did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which.
    pub class: FailureClass,
    /// Complete sentences, escaped where they hold foreign text; empty where nothing is to be said.
    pub message: String,
    /// The daemon's reason by name, such as `SESSION_NOT_FOUND`; empty where it comes from elsewhere.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// One that did not come from the daemon.
    #[must_use]
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            reason: String::new(),
        }
    }

    /// The command line is wrong.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Usage, message)
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureClass::NotFound, message)
    }

    /// Something else went wrong.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Failed, message)
    }

    /// A signal ended the target; `message` says which.
    #[must_use]
    pub fn target_killed(message: impl Into<String>) -> Self {
        Self::new(FailureClass::TargetKilled, message)
    }

    /// Whoever read our output has gone: an end without complaint, as `head` expects of its feeders.
    #[must_use]
    pub fn closed_pipe() -> Self {
        Self::new(FailureClass::ClosedPipe, String::new())
    }

    /// Writing `what` failed.
    #[must_use]
    pub fn writing(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::closed_pipe();
        }
        Self::failed(format!("Cannot write {}: {}.", terminal(what), root(error)))
    }
}

/// The system's own words, without the name of a temporary file around them.
fn root(error: &io::Error) -> &io::Error {
    let inner = error
        .get_ref()
        .and_then(|wrapped| std::error::Error::source(wrapped));
    inner
        .and_then(|inner| inner.downcast_ref::<io::Error>())
        .unwrap_or(error)
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let Some(info) = details.error_info() else {
            return Self::new(class_of_code(status.code()), sentence(&status));
        };
        let field = |name: &str| info.metadata.get(name).map_or("", String::as_str);
        let mut message = sentence(&status);
        match info.reason.as_str() {
            "SCOPE_INVALID" => message.push_str(&caret(field("scope"), field("offset"))),
            "EXPRESSION_INVALID" => message.push_str(&caret(field("expression"), field("offset"))),
            "CAPABILITY_MISSING" => {
                let capability = field("capability");
                if !message.contains(capability) {
                    message.push_str(&format!(" Missing: {}.", terminal(capability)));
                }
            }
            _ => {}
        }
        let nearest = split_names(field("nearest"));
        let mistyped = is_mistyped(&info.reason, &nearest);
        if !nearest.is_empty() && !nearest.iter().all(|name| status.message().contains(name)) {
            message.push_str("\nNearest names:");
            for name in nearest {
                message.push_str("\n  ");
                message.push_str(&terminal(name));
            }
        }
        let has_servers = || std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty());
        if !mistyped && has_servers() {
            message.push_str(&from_debuginfod(field("build_id")));
        }
        Self {
            class: class_of_reason(&info.reason, status.code()),
            message,
            reason: info.reason.clone(),
        }
    }
}

/// Whether a function's name is rather mistyped than in debug information that is missing: others are nearly the same.
fn is_mistyped(reason: &str, nearest: &[&str]) -> bool {
    reason == "FUNCTION_NOT_FOUND" && !nearest.is_empty()
}

/// How the debug information of a build comes from a server of debug information; nothing without a build-id.
fn from_debuginfod(build_id: &str) -> String {
    if build_id.len() < 4 || !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return String::new();
    }
    let (first, rest) = build_id.split_at(2);
    format!(
        "\nDEBUGINFOD_URLS is set. What a server there may have of it is installed for the target by:\n  \
         install -D -m 644 \"$(debuginfod-find debuginfo {build_id})\" /usr/lib/debug/.build-id/{first}/{rest}.debug"
    )
}

/// What a reason of the daemon's means.
fn class_of_reason(reason: &str, code: Code) -> FailureClass {
    match reason {
        "SCOPE_INVALID" | "EXPRESSION_INVALID" | "PREDICATE_WITHOUT_SPAN" => FailureClass::Usage,
        "TARGET_NOT_FOUND"
        | "TARGET_GONE"
        | "TARGET_IS_KERNEL_THREAD"
        | "TARGET_IS_32_BIT"
        | "TARGET_STRIPPED"
        | "COUNTER_NOT_FOUND"
        | "FUNCTION_NOT_FOUND"
        | "LINE_NOT_FOUND"
        | "FILE_AMBIGUOUS"
        | "FUNCTION_ONLY_INLINED"
        | "FUNCTION_IS_IFUNC"
        | "SESSION_NOT_FOUND" => FailureClass::NotFound,
        "PERMISSION_DENIED" | "CAPABILITY_MISSING" => FailureClass::NotPermitted,
        "TOO_MANY_FUNCTIONS" | "SESSION_EXISTS" => FailureClass::Failed,
        _ => class_of_code(code),
    }
}

fn class_of_code(code: Code) -> FailureClass {
    match code {
        Code::InvalidArgument => FailureClass::Usage,
        Code::NotFound => FailureClass::NotFound,
        Code::PermissionDenied | Code::Unauthenticated => FailureClass::NotPermitted,
        _ => FailureClass::Failed,
    }
}

/// The daemon's message; where there is none of its own, what the transport knows.
fn sentence(status: &Status) -> String {
    let message = status.message();
    match status.code() {
        Code::Unavailable => format!("The daemon is gone: {}", terminal(message)),
        _ if is_too_late(status) => {
            "The daemon had no answer in time: it is busy, or waits for the kernel. Try again.".to_owned()
        }
        // What the daemon says has no source here. The transport has it that the connection came too often.
        Code::ResourceExhausted if std::error::Error::source(status).is_some() => {
            "The daemon takes no more connections: end commands of this user that run, or try again in some seconds.".to_owned()
        }
        _ if std::error::Error::source(status).is_some() => format!(
            "The connection to the daemon was lost ({}): the daemon has ended, or had no answer from here for too long.",
            terminal(message)
        ),
        code if message.is_empty() => format!("The daemon refused: {}.", code.description()),
        _ => terminal(message).into_owned(),
    }
}

/// Whether a deadline of our own has passed.
fn is_too_late(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::TimeoutExpired>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// A scope or expression, and below it a mark at the byte `offset`; nothing without an offset.
fn caret(scope: &str, offset: &str) -> String {
    let Ok(offset) = offset.parse::<usize>() else {
        return String::new();
    };
    let mut offset = offset.min(scope.len());
    while !scope.is_char_boundary(offset) {
        offset -= 1;
    }
    let (before, after) = scope.split_at(offset);
    let before = terminal(before);
    format!(
        "\n  {before}{}\n  {}^",
        terminal(after),
        " ".repeat(before.chars().count())
    )
}

/// Splits at commas that are not within a name's template arguments or parameters.
fn split_names(list: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0_u32;
    let mut start = 0;
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                names.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    names.push(list[start..].trim());
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code, reason: &str, message: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: HashMap<String, String> = metadata
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Status::with_error_details(
            code,
            message,
            ErrorDetails::with_error_info(reason, "profiler.v1", metadata),
        )
    }

    #[test]
    fn a_malformed_scope_is_pointed_at() {
        let failure = Failure::from(status(
            Code::InvalidArgument,
            "SCOPE_INVALID",
            "There is no percentile p195.",
            &[("scope", "handle[>= p195]"), ("offset", "10")],
        ));
        assert_eq!(failure.class, FailureClass::Usage);
        assert_eq!(
            failure.message,
            "There is no percentile p195.\n  handle[>= p195]\n            ^"
        );
    }

    #[test]
    fn a_malformed_expression_is_pointed_at() {
        let failure = Failure::from(status(
            Code::InvalidArgument,
            "EXPRESSION_INVALID",
            "A name is expected after `->`.",
            &[("expression", "req->"), ("offset", "5")],
        ));
        assert_eq!(failure.class, FailureClass::Usage);
        assert_eq!(
            failure.message,
            "A name is expected after `->`.\n  req->\n       ^"
        );
    }

    #[test]
    fn a_broken_connection_is_told_in_words() {
        let broken = std::io::Error::other("h2 protocol error: error reading a body from connection");
        let failure = Failure::from(Status::from_error(Box::new(broken)));
        assert_eq!(failure.class, FailureClass::Failed);
        let begin = "The connection to the daemon was lost (h2 protocol error: error reading a body from connection): ";
        assert!(failure.message.starts_with(begin), "{}", failure.message);
        let late = Failure::from(Status::from_error(Box::new(tonic::TimeoutExpired(()))));
        assert!(
            late.message.starts_with("The daemon had no answer in time"),
            "{}",
            late.message
        );
        // The daemon's own words are its own.
        let refused = Failure::from(Status::unknown("No."));
        assert_eq!(refused.message, "No.");
    }

    #[test]
    fn a_missing_function_comes_with_the_nearest_names() {
        let failure = Failure::from(status(
            Code::NotFound,
            "FUNCTION_NOT_FOUND",
            "No function matches `handel`.",
            &[("nearest", "handle,map<int, char>::handle,handle(a, b)")],
        ));
        assert_eq!(failure.class, FailureClass::NotFound);
        assert_eq!(
            failure.message,
            "No function matches `handel`.\nNearest names:\n  handle\n  map<int, char>::handle\n  handle(a, b)"
        );
    }

    #[test]
    fn reasons_decide_the_exit_status() {
        for (reason, expected) in [
            ("TARGET_GONE", FailureClass::NotFound),
            ("TARGET_STRIPPED", FailureClass::NotFound),
            ("SESSION_NOT_FOUND", FailureClass::NotFound),
            ("CAPABILITY_MISSING", FailureClass::NotPermitted),
            ("PERMISSION_DENIED", FailureClass::NotPermitted),
            ("TOO_MANY_FUNCTIONS", FailureClass::Failed),
            ("SESSION_EXISTS", FailureClass::Failed),
            ("SOMETHING_NEW", FailureClass::Failed),
        ] {
            assert_eq!(
                Failure::from(status(Code::Internal, reason, "m", &[])).class,
                expected,
                "{reason}"
            );
        }
        assert_eq!(
            Failure::from(Status::not_found("x")).class,
            FailureClass::NotFound
        );
        assert_eq!(
            Failure::from(Status::unavailable("x")).class,
            FailureClass::Failed
        );
    }

    #[test]
    fn a_capability_is_named_once() {
        let missing = |message| {
            Failure::from(status(
                Code::PermissionDenied,
                "CAPABILITY_MISSING",
                message,
                &[("capability", "CAP_BPF")],
            ))
            .message
        };
        assert_eq!(
            missing("Needs CAP_BPF: run with sudo."),
            "Needs CAP_BPF: run with sudo."
        );
        assert_eq!(missing("Not allowed."), "Not allowed. Missing: CAP_BPF.");
    }

    #[test]
    fn a_server_of_debug_information_is_asked_by_the_build_id() {
        let hint = from_debuginfod("ab01ff");
        assert!(
            hint.ends_with(
                "\n  install -D -m 644 \"$(debuginfod-find debuginfo ab01ff)\" /usr/lib/debug/.build-id/ab/01ff.debug"
            ),
            "{hint}"
        );
        for hostile in ["", "ab", "ab01;x", "$(x)ab", "../../ab", "äbcd"] {
            assert_eq!(from_debuginfod(hostile), "", "{hostile}");
        }
    }

    #[test]
    fn a_mistyped_name_is_not_looked_for_in_debug_information() {
        assert!(is_mistyped("FUNCTION_NOT_FOUND", &["handle"]));
        assert!(!is_mistyped("FUNCTION_NOT_FOUND", &[]));
        assert!(!is_mistyped("LINE_NOT_FOUND", &["server.c"]));
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let failure = Failure::writing("stdout", &io::ErrorKind::BrokenPipe.into());
        assert_eq!(failure, Failure::closed_pipe());
        let failure = Failure::writing("x.svg", &io::Error::from_raw_os_error(28));
        assert_eq!(
            failure.message,
            "Cannot write x.svg: No space left on device (os error 28)."
        );
    }

    proptest! {
        #[test]
        fn hostile_details_are_survived(scope in ".*", offset in any::<usize>(), nearest in ".*") {
            let offset = offset.to_string();
            let failure = Failure::from(status(
                Code::InvalidArgument, "SCOPE_INVALID", "m",
                &[("scope", &scope), ("offset", &offset), ("nearest", &nearest)],
            ));
            let escapes = failure.message.contains('\x1b');
            prop_assert!(!escapes);
        }
    }
}
