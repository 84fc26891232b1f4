//! What `--dry-run` makes of a request.

use profiler_proto::v1::{self, estimate_scope_request::Request as Of};

use super::super::{
    args::DryRunArgs,
    request::{Estimate, FlameFormat, Request, ScopeEdit, SessionChoice},
};
use crate::failure::Failure;

/// The request, or what attaching for it would do.
pub(super) fn or_estimate(args: DryRunArgs, request: Request) -> Result<Request, Failure> {
    if !args.dry_run {
        return Ok(request);
    }
    let (session, json) = match request {
        Request::Latency(latency) => (latency.session, latency.json),
        Request::Trace(trace) => (trace.session, trace.json),
        Request::Spans(spans) => (spans.session, spans.json),
        Request::Flame(flame) => (flame.session, flame.format == FlameFormat::Json),
        Request::Explain(explain) => (explain.session, explain.json),
        Request::SessionNew { create, json } => (SessionChoice::Make(create), json),
        request => return Ok(request),
    };
    match session {
        SessionChoice::Make(create) => Ok(estimate(args, json, Of::Create(create))),
        SessionChoice::Join(name) => Err(Failure::usage(format!(
            "--dry-run: session `{name}` is attached already; `profiler scope set {name} SCOPE --dry-run` says what \
             another scope would do."
        ))),
    }
}

/// The edit, or what it would do.
pub(super) fn edit(args: DryRunArgs, json: bool, name: String, edit: ScopeEdit) -> Request {
    let change = match edit {
        _ if !args.dry_run => return Request::ScopeEdit { name, edit },
        ScopeEdit::Set(scope) => return estimate(args, json, Of::Set(v1::SetScopeRequest { name, scope })),
        ScopeEdit::Append(steps) => v1::edit_scope_request::Edit::Append(steps),
        ScopeEdit::Drop(steps) => v1::edit_scope_request::Edit::Drop(steps),
        ScopeEdit::Undo(edits) => v1::edit_scope_request::Edit::Undo(edits),
    };
    let edit = Some(change);
    estimate(args, json, Of::Edit(v1::EditScopeRequest { name, edit }))
}

fn estimate(args: DryRunArgs, json: bool, of: Of) -> Request {
    Request::Estimate(Estimate {
        of: Box::new(of),
        measures: args.measure,
        json,
    })
}
