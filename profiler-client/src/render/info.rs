//! Which service answers, as text and as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_proto::v1::{self, Served};
use serde_json::{Value, json};

use super::{
    escape::terminal,
    json::{SCHEMA, integer},
    units,
};

/// As lines: a name and what it is.
#[must_use]
pub fn text(info: &v1::GetInfoResponse, is_daemon: bool) -> String {
    let host = info.host.clone().unwrap_or_default();
    let known = |text: &str| {
        let text = if text.is_empty() { "?" } else { text };
        terminal(text).into_owned()
    };
    let service = match (info.served(), is_daemon) {
        (Served::Recording, _) => "a recording".to_owned(),
        (Served::Comparison, _) => "two recordings".to_owned(),
        (_, true) => format!("profilerd {}", known(&host.build)),
        (_, false) => format!(
            "profiler {}, in this command: no daemon answers",
            known(&host.build)
        ),
    };
    let mut rows = vec![
        ("service", service),
        ("host", known(&host.name)),
        ("kernel", known(&host.kernel)),
        ("host id", known(&host.id)),
        ("boot id", known(&host.boot_id)),
    ];
    if let Some(date) = date(host.since_1970_ns).filter(|_| info.served() != Served::Processes) {
        rows.push(("recorded", date));
    }
    let user = if info.is_root {
        "root: all processes".to_owned()
    } else {
        format!("uid {}: processes that the kernel lets it trace", info.uid)
    };
    rows.push(("you", user));
    if let Some(limits) = &info.limits {
        let count = |count: u32| units::count(u64::from(count));
        rows.push((
            "limits",
            format!(
                "{} sessions, {} probes, {} samples a second and CPU",
                count(limits.sessions),
                count(limits.probes),
                count(limits.frequency_hz)
            ),
        ));
    }
    let mut text = String::new();
    for (name, value) in rows {
        text.push_str(&format!(
            "{name:<9} {value}
"
        ));
    }
    text
}

/// How long ago something was recorded; `None` where its date is not known, or in the future.
fn date(since_1970_ns: u64) -> Option<String> {
    let at = UNIX_EPOCH + Duration::from_nanos(since_1970_ns);
    let ago = SystemTime::now().duration_since(at).ok()?;
    (since_1970_ns > 0).then(|| format!("{} ago", units::duration(ago.as_nanos() as f64)))
}

/// As a JSON object.
#[must_use]
pub fn object(info: &v1::GetInfoResponse, is_daemon: bool) -> Value {
    let v1::HostInfo {
        id,
        boot_id,
        name,
        kernel,
        build,
        monotonic_ns,
        since_1970_ns,
    } = info.host.clone().unwrap_or_default();
    let text = |text: String| if text.is_empty() { Value::Null } else { text.into() };
    let serves = match info.served() {
        Served::Recording => "recording",
        Served::Comparison => "comparison",
        Served::Processes | Served::Unspecified => "processes",
    };
    json!({
        "type": "info",
        "schema": SCHEMA,
        "serves": serves,
        "daemon": is_daemon,
        "version": text(build),
        "host": text(name),
        "kernel": text(kernel),
        "host_id": text(id),
        "boot_id": text(boot_id),
        "monotonic_ns": integer(monotonic_ns),
        "since_1970_ns": integer(since_1970_ns),
        "uid": info.uid,
        "root": info.is_root,
        "limits": info.limits.map(|limits| json!({
            "sessions": limits.sessions,
            "probes": limits.probes,
            "frequency_hz": limits.frequency_hz,
        })),
    })
}
