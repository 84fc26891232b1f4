//! Values on their way to the wire.

use std::collections::HashMap;

use profiler_aggregate::summary::Summary;
use profiler_proto::v1;

use crate::session::{BudgetUse, Cost, ExitMethod, FunctionInfo, Losses, SessionInfo, SiteInfo};

pub fn duration(ns: u64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ns % 1_000_000_000).unwrap_or(0),
    }
}

pub fn function(function: &FunctionInfo) -> v1::Function {
    let FunctionInfo {
        name,
        linkage_name,
        file,
        line,
        module,
        address,
        size,
        inlined,
        same_code,
        is_async,
        is_copied,
    } = function;
    v1::Function {
        name: name.clone(),
        linkage_name: linkage_name.clone(),
        file: file.clone(),
        line: *line,
        module: module.clone(),
        address: *address,
        size: *size,
        inlined: *inlined,
        same_code: same_code.clone(),
        is_async: *is_async,
        is_copied: *is_copied,
    }
}

pub fn attach_method(perf_links: bool) -> v1::AttachMethod {
    if perf_links {
        v1::AttachMethod::Perf
    } else {
        v1::AttachMethod::Multi
    }
}

pub fn exit_method(method: ExitMethod) -> v1::ExitMethod {
    match method {
        ExitMethod::Return => v1::ExitMethod::Return,
        ExitMethod::Ret => v1::ExitMethod::Ret,
        ExitMethod::Never => v1::ExitMethod::Never,
        ExitMethod::SystemCall => v1::ExitMethod::SystemCall,
        ExitMethod::KernelFunction => v1::ExitMethod::KernelFunction,
    }
}

fn site(site: &SiteInfo) -> v1::Site {
    v1::Site {
        function: Some(function(&site.function)),
        entry_offset: site.entry_offset,
        entry_instruction: site.entry_instruction.clone(),
        exit_method: exit_method(site.exit_method).into(),
        exits: site.exits,
        entry_single_stepped: site.entry_single_stepped,
        exit_single_stepped: site.exit_single_stepped,
    }
}

pub fn session(session: SessionInfo) -> v1::Session {
    v1::Session {
        name: session.name,
        scope: session.scope,
        pids: session.pids,
        sites: session.sites.iter().map(site).collect(),
        attach_method: attach_method(session.perf_links).into(),
        warnings: session.warnings,
        frequency_hz: session.frequency_hz,
        lease: Some(duration(session.lease_ns)),
        watchers: session.watchers,
        recorded: session.recorded_ns.map(duration),
        recorded_before: session.recorded_before_ns.map(duration),
        recorded_begin_ns: session.recorded_begin_ns,
    }
}

pub fn cost(cost: Cost) -> v1::Cost {
    let Cost {
        cpu_share,
        rss_anon_bytes,
        kernel_share,
        budget_use,
    } = cost;
    v1::Cost {
        cpu_share,
        rss_anon_bytes,
        kernel_share,
        budget_use: budget_use.map(|BudgetUse { taken, allowed }| v1::BudgetUse { taken, allowed }),
    }
}

pub fn losses(losses: &Losses) -> HashMap<String, u64> {
    losses
        .iter()
        .map(|(reason, count)| ((*reason).to_owned(), *count))
        .collect()
}

pub fn summary(summary: &Summary) -> v1::Summary {
    let Some(times) = summary.times else {
        return v1::Summary {
            count: summary.count,
            rate_hz: summary.rate_hz,
            ..Default::default()
        };
    };
    v1::Summary {
        count: summary.count,
        rate_hz: summary.rate_hz,
        mean_ns: times.mean_ns,
        min_ns: times.min_ns,
        max_ns: times.max_ns,
        p50_ns: times.p50_ns,
        p90_ns: times.p90_ns,
        p95_ns: times.p95_ns,
        p99_ns: times.p99_ns,
        p999_ns: times.p999_ns,
    }
}
