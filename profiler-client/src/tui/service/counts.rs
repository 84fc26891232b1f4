//! How often each step of the scope was reached: the source of its place says what sessions count there.

use std::time::Duration;

use profiler_proto::v1;
use profiler_scope::{Place, parse};
use tokio::{sync::watch, time::sleep};

use super::{Reports, What, lookup::all_sources};
use crate::{connect::Connection, tui::lens::path};

/// Time between looks.
const BETWEEN: Duration = Duration::from_secs(2);

/// Reports the counts of steps that no view has, as long as there are such.
pub async fn count(
    connection: Connection,
    target: v1::Target,
    session: String,
    mut scopes: watch::Receiver<String>,
    reports: Reports,
) {
    loop {
        let scope = scopes.borrow_and_update().clone();
        let wanted = wanted(&scope);
        if wanted.is_empty() {
            if scopes.changed().await.is_err() {
                return;
            }
            continue;
        }
        let mut counted = Vec::new();
        for step in wanted {
            // What a step has not been found for has no count on the screen.
            let Ok(sources) = all_sources(&connection, target.clone(), &step.place).await else {
                continue;
            };
            counted.push((step.text.clone(), of_step(&sources, &session, &step.text)));
        }
        if !reports.send(What::Counts(counted)).await {
            return;
        }
        tokio::select! {
            () = sleep(BETWEEN) => {}
            changed = scopes.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// A step and where its counts are.
struct Step {
    text: String,
    place: String,
}

/// The steps that no view has the number of: lines, and calls before the last step.
fn wanted(scope: &str) -> Vec<Step> {
    let steps = parse(scope).map(|scope| scope.steps).unwrap_or_default();
    let last = steps.len().saturating_sub(1);
    let steps = steps.iter().enumerate();
    let wanted = steps.filter_map(|(at, step)| {
        if at == last && step.place.has_spans() {
            return None;
        }
        let place = match &step.place {
            Place::Function(name) => path::quoted(name.text()),
            Place::Line { .. } => step.place.to_string(),
            Place::Branch { file, line, .. } | Place::Call { file, line, .. } => Place::Line {
                file: file.clone(),
                line: *line,
            }
            .to_string(),
            _ => return None,
        };
        Some(Step {
            text: step.to_string(),
            place,
        })
    });
    wanted.collect()
}

fn of_step(sources: &[v1::SourceFunction], session: &str, step: &str) -> u64 {
    let lines = sources.iter().flat_map(|source| &source.lines);
    let counts = lines.flat_map(|line| &line.counts);
    let of_step = counts.filter(|counted| counted.session == session && counted.step == step);
    of_step.fold(0, |sum, counted| sum.saturating_add(counted.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_asked_for_where_no_view_has_them() {
        let texts = |scope: &str| {
            wanted(scope)
                .into_iter()
                .map(|step| step.text)
                .collect::<Vec<_>>()
        };
        assert!(texts("").is_empty() && texts("f[>= p95]").is_empty());
        assert_eq!(texts("f[>= p95]/g"), ["f[>= p95]"]);
        assert_eq!(texts("f/main.cc:3!taken"), ["f", "main.cc:3!taken"]);
        assert_eq!(wanted("f/main.cc:3!taken")[1].place, "main.cc:3");
    }
}
