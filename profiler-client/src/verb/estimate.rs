//! `--dry-run`.

use std::time::Duration;

use profiler_proto::v1;
use tonic::Request;

use crate::{
    cli::request::{Estimate, Host},
    connect::{connect, require_daemon},
    failure::Failure,
    live::screen,
    output,
    render::{estimate, estimate_json},
};

/// Planning for a large program, a second of samples, and counting.
const DEADLINE: Duration = Duration::from_mins(2);

/// Runs it.
pub async fn run(host: &Host, request: Estimate) -> Result<(), Failure> {
    let connection = connect(host).await?;
    if !matches!(*request.of, v1::estimate_scope_request::Request::Create(_)) {
        require_daemon(&connection)?;
    }
    let mut client = connection.sessions();
    let mut asked = Request::new(v1::EstimateScopeRequest {
        request: Some(*request.of),
        measure: request.measures,
        sampled: None,
    });
    asked.set_timeout(DEADLINE);
    let estimated = client.estimate_scope(asked).await?.into_inner();
    output::warnings(&estimated.warnings);
    if request.json {
        return output::ndjson(estimate_json::estimate(&estimated));
    }
    output::stdout(estimate::estimate(&estimated, screen::width()))
}
