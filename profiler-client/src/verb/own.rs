//! `profiler self`: the daemon, recorded by a second one within this process.

use profiler_proto::v1;

use super::record;
use crate::{
    attached::Owned,
    cli::request::{Host, Record, SessionChoice},
    connect::daemon_pid,
    failure::Failure,
    stop::Stop,
};

/// Runs it: `host` is the daemon that is looked at.
pub async fn run(host: &Host, mut request: Record, stop: Stop, owned: Owned) -> Result<(), Failure> {
    let pid = daemon_pid(host).await?;
    if let SessionChoice::Make(create) = &mut request.session {
        create.target = Some(v1::Target {
            target: Some(v1::target::Target::Pid(pid)),
        });
    }
    record::run(&Host::InProcess, request, stop, owned).await
}
