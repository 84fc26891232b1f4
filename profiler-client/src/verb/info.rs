//! `profiler info`.

use crate::{cli::request::Host, connect::connect, failure::Failure, output, render::info};

/// Says which service answers, on which machine, and what it gives the caller.
pub async fn show(host: &Host, json: bool) -> Result<(), Failure> {
    let connection = connect(host).await?;
    let said = connection.info().await?;
    if json {
        return output::ndjson(format!("{}\n", info::object(&said, connection.daemon)));
    }
    output::stdout(info::text(&said, connection.daemon))
}
