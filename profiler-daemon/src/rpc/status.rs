//! Errors on the wire: `google.rpc.Status` with a reason that programs can decide by.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::stream_info;
use crate::session::{Ending, Reason, SessionError};

/// The domain of every reason.
const DOMAIN: &str = "profiler.v1";

/// How long a client should wait before it asks again for what a limit refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes of an error's message, and of that with all of its details: names of templates may have thousands. They travel in headers, of which
/// clients take 16 KiB, and become longer there: else all that a client learned would be that the connection broke.
const MAX_MESSAGE_BYTES: usize = 2048;
const MAX_TEXT_BYTES: usize = 4096;

/// Shorter details are never cut off: a number that is cut off would be another.
const SHORT_BYTES: usize = 64;

/// Text of so many bytes at most; one that is cut off says so.
fn cut(text: &mut String, most: usize) {
    const MARK: &str = "…";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
}

impl From<SessionError> for Status {
    fn from(mut error: SessionError) -> Self {
        let (code, reason) = describe(error.reason);
        cut(&mut error.message, MAX_MESSAGE_BYTES);
        let mut left = MAX_TEXT_BYTES.saturating_sub(error.message.len());
        let told = error.metadata.iter();
        let told = told.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let told = told.chain(error.ended.iter().flat_map(told_of_end));
        let metadata = told.map(|(name, mut value)| {
            if value.len() > SHORT_BYTES {
                cut(&mut value, left);
            }
            left = left.saturating_sub(value.len());
            (name, value)
        });
        let metadata: HashMap<String, String> = metadata.collect();
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        match error.reason {
            Reason::CapabilityMissing => {
                for (_, capability) in error.metadata.iter().filter(|(name, _)| *name == "capability") {
                    details.add_precondition_failure_violation("CAPABILITY", capability, &error.message);
                }
            }
            Reason::LimitReached => {
                details.set_retry_info(Some(RETRY_AFTER));
            }
            _ => {}
        }
        Self::with_error_details(code, error.message, details)
    }
}

/// How a session has ended, as details of the error.
fn told_of_end(ending: &Ending) -> impl Iterator<Item = (String, String)> {
    let end = stream_info::end(ending);
    let signal = (end.signal != 0).then(|| end.signal.to_string());
    [
        ("end_cause", Some(end.cause().as_str_name().to_owned())),
        ("end_reason", Some(end.reason)),
        ("end_signal", signal),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

/// The gRPC code and the reason's name.
fn describe(reason: Reason) -> (Code, &'static str) {
    match reason {
        Reason::ScopeInvalid => (Code::InvalidArgument, "SCOPE_INVALID"),
        Reason::ScopeChanged => (Code::Aborted, "SCOPE_CHANGED"),
        Reason::ArgumentInvalid => (Code::InvalidArgument, "ARGUMENT_INVALID"),
        Reason::TargetNotFound => (Code::NotFound, "TARGET_NOT_FOUND"),
        Reason::TargetGone => (Code::NotFound, "TARGET_GONE"),
        Reason::TargetIsKernelThread => (Code::FailedPrecondition, "TARGET_IS_KERNEL_THREAD"),
        Reason::TargetIs32Bit => (Code::FailedPrecondition, "TARGET_IS_32_BIT"),
        Reason::TargetStripped => (Code::FailedPrecondition, "TARGET_STRIPPED"),
        Reason::FunctionNotFound => (Code::NotFound, "FUNCTION_NOT_FOUND"),
        Reason::LineNotFound => (Code::NotFound, "LINE_NOT_FOUND"),
        Reason::PlaceNotFound => (Code::NotFound, "PLACE_NOT_FOUND"),
        Reason::FileAmbiguous => (Code::NotFound, "FILE_AMBIGUOUS"),
        Reason::CounterNotFound => (Code::NotFound, "COUNTER_NOT_FOUND"),
        Reason::ExpressionInvalid => (Code::InvalidArgument, "EXPRESSION_INVALID"),
        Reason::ConditionRefused => (Code::FailedPrecondition, "CONDITION_REFUSED"),
        Reason::ExpressionRefused => (Code::FailedPrecondition, "EXPRESSION_REFUSED"),
        Reason::FunctionOnlyInlined => (Code::FailedPrecondition, "FUNCTION_ONLY_INLINED"),
        Reason::FunctionIsIfunc => (Code::FailedPrecondition, "FUNCTION_IS_IFUNC"),
        Reason::FunctionNotProbeable => (Code::FailedPrecondition, "FUNCTION_NOT_PROBEABLE"),
        Reason::TooManyFunctions => (Code::ResourceExhausted, "TOO_MANY_FUNCTIONS"),
        Reason::PermissionDenied => (Code::PermissionDenied, "PERMISSION_DENIED"),
        Reason::CapabilityMissing => (Code::FailedPrecondition, "CAPABILITY_MISSING"),
        Reason::SessionExists => (Code::AlreadyExists, "SESSION_EXISTS"),
        Reason::SessionOverBudget => (Code::NotFound, "SESSION_OVER_BUDGET"),
        Reason::SessionNotFound => (Code::NotFound, "SESSION_NOT_FOUND"),
        Reason::WatchNotFound => (Code::NotFound, "WATCH_NOT_FOUND"),
        Reason::LimitReached => (Code::ResourceExhausted, "LIMIT_REACHED"),
        Reason::Stopping => (Code::Unavailable, "STOPPING"),
        Reason::Kernel => (Code::Internal, "KERNEL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_and_its_details_arrive() {
        let error = SessionError::new(Reason::FunctionNotFound, "no function `f`").with("nearest", "g,h");
        let status = Status::from(error);
        assert_eq!(status.code(), Code::NotFound);
        let info = status.get_error_details().error_info().unwrap().clone();
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            ("FUNCTION_NOT_FOUND", "profiler.v1")
        );
        assert_eq!(info.metadata["nearest"], "g,h");
    }

    #[test]
    fn how_a_session_has_ended_arrives() {
        let status = Status::from(SessionError {
            ended: Some(Ending::of_process(7, "shop", Some(9))),
            ..SessionError::new(Reason::SessionNotFound, "it has ended")
        });
        let info = status.get_error_details().error_info().unwrap().clone();
        assert_eq!(
            info.metadata,
            HashMap::from([
                ("end_cause".to_owned(), "END_CAUSE_TARGET".to_owned()),
                (
                    "end_reason".to_owned(),
                    "process 7 (shop) was ended by signal 9 (SIGKILL)".to_owned()
                ),
                ("end_signal".to_owned(), "9".to_owned()),
            ])
        );
    }

    #[test]
    fn an_error_of_long_names_fits_into_headers() {
        let name = "Γράφος<std::vector<long>>::add, ".repeat(200);
        let error = SessionError::new(Reason::SessionOverBudget, format!("`{name}` was taken off"));
        let error = error.with("end_reason", name.clone()).with("nearest", name);
        let headers = Status::from(error).into_http::<()>().into_parts().0.headers;
        let bytes: usize = headers
            .iter()
            .map(|(key, value)| key.as_str().len() + value.len())
            .sum();
        assert!(bytes < 16 << 10, "{bytes}");
        let short = Status::from(SessionError::new(Reason::Kernel, "no"))
            .message()
            .to_owned();
        assert_eq!(short, "no");
    }

    #[test]
    fn a_missing_capability_is_a_violated_precondition() {
        let error = SessionError::new(Reason::CapabilityMissing, "no").with("capability", "CAP_BPF");
        let details = Status::from(error).get_error_details();
        assert_eq!(
            details.precondition_failure().unwrap().violations[0].subject,
            "CAP_BPF"
        );
    }
}
