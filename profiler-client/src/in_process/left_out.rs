//! What is said where the service is not part of the program.

use std::path::Path;

use tonic::transport::Channel;

use crate::failure::Failure;

/// That it is not.
#[must_use]
pub fn left_out() -> Failure {
    Failure::failed(
        "This program was built without the service (feature `in-process`), which looks at processes where no daemon is, makes recordings and \
         reads them: name a daemon with --host, or build it with the feature.",
    )
}

/// Starts none.
///
/// # Errors
///
/// Always.
pub async fn start() -> Result<Channel, Failure> {
    Err(left_out())
}

/// The same of a recording.
///
/// # Errors
///
/// Always.
pub async fn of_recording(_: &Path) -> Result<Channel, Failure> {
    Err(left_out())
}

/// The same of two.
///
/// # Errors
///
/// Always.
pub async fn of_comparison(_: &Path, _: &Path) -> Result<Channel, Failure> {
    Err(left_out())
}
