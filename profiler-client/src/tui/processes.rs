//! Processes and how busy they are. Which there are, the service says; how much CPU they use is read from `/proc` here, and
//! left out where that is another machine's, or hidden.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use profiler_proto::v1;

use super::data::ProcessRow;
use crate::render::process;

/// Ticks in a second, as `/proc` has them on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// What a process had used at a look.
#[derive(Clone, Copy, Debug)]
struct Used {
    ticks: u64,
    /// Since the machine's start.
    began_ticks: u64,
}

/// The looks before, by process.
#[derive(Debug, Default)]
pub struct Usage {
    before: HashMap<u32, Used>,
    at: Option<Instant>,
    users: HashMap<u32, String>,
}

impl Usage {
    /// Rows of processes, the busiest first.
    pub fn rows(&mut self, processes: Vec<v1::Process>) -> Vec<ProcessRow> {
        if self.users.is_empty() {
            self.users = users();
        }
        let now = Instant::now();
        let since = self.at.map(|at| now - at);
        let uptime_s = fs::read_to_string("/proc/uptime")
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let mut used = HashMap::with_capacity(processes.len());
        let mut rows: Vec<ProcessRow> = processes
            .into_iter()
            .map(|process| {
                let now = read(process.pid);
                if let Some(now) = now {
                    used.insert(process.pid, now);
                }
                let before = self.before.get(&process.pid);
                ProcessRow {
                    pid: process.pid,
                    user: self
                        .users
                        .get(&process.uid)
                        .cloned()
                        .unwrap_or_else(|| process.uid.to_string()),
                    threads: process.threads,
                    cpus: now.and_then(|now| cpus(now, before.copied(), since, uptime_s)),
                    place: process::place(&process).to_owned(),
                    command: process::command(&process).to_owned(),
                    command_by_name: process::command_by_name(&process).to_owned(),
                    symbols: process.symbols,
                    debug_info: process.debug_info,
                    runtime: process.runtime,
                }
            })
            .collect();
        let busy = |row: &ProcessRow| row.cpus.unwrap_or(-1.0);
        rows.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then(a.pid.cmp(&b.pid)));
        self.before = used;
        self.at = Some(now);
        rows
    }
}

fn cpus(now: Used, before: Option<Used>, since: Option<Duration>, uptime_s: Option<f64>) -> Option<f64> {
    let of = before.filter(|before| before.began_ticks == now.began_ticks);
    match (of, since) {
        (Some(before), Some(since)) if since > Duration::ZERO => {
            let ticks = now.ticks.saturating_sub(before.ticks);
            Some(ticks as f64 / TICKS_PER_S / since.as_secs_f64())
        }
        _ => {
            let lived_s = uptime_s? - now.began_ticks as f64 / TICKS_PER_S;
            Some(now.ticks as f64 / TICKS_PER_S / lived_s.max(1.0))
        }
    }
}

fn read(pid: u32) -> Option<Used> {
    used(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// What a `stat` file says. A process's name may hold anything.
fn used(stat: &str) -> Option<Used> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Used {
        ticks: user.saturating_add(system),
        began_ticks: fields.nth(6)?.parse().ok()?,
    })
}

/// Names of the machine's own users.
fn users() -> HashMap<u32, String> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) b) S 1 7 7 0 -1 4194560 2 0 0 0 150 50 0 0 20 0 4 0 1000 1 2 3";

    #[test]
    fn usage_is_since_the_last_look() {
        let now = used(STAT).unwrap();
        assert_eq!((now.ticks, now.began_ticks), (200, 1000));
        let before = Used { ticks: 100, ..now };
        let since = Some(Duration::from_secs(2));
        assert_eq!(cpus(now, Some(before), since, None), Some(0.5));
        // The number was another's before.
        let other = Used {
            began_ticks: 3,
            ..before
        };
        assert_eq!(cpus(now, Some(other), since, Some(20.0)), Some(0.2));
        assert!(used("7 (a").is_none());
    }
}
