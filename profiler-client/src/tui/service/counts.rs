//! How often each step of the scope was reached: the source of its place says what sessions count there.

use std::time::Duration;

use profiler_proto::v1;
use profiler_scope::{Place, parse};
use tokio::{sync::watch, time::sleep};

use super::{Reports, What};
use crate::{connect::Connection, tui::lens::path, verb::source::sources};

/// Time between looks.
const BETWEEN: Duration = Duration::from_secs(2);

/// Reports the counts of steps that no view has, and that it is time for the lines of the source to be counted anew, as long as there
/// are steps.
pub async fn count(
    connection: Connection,
    target: v1::Target,
    session: String,
    mut scopes: watch::Receiver<String>,
    reports: Reports,
) {
    loop {
        let scope = scopes.borrow_and_update().clone();
        if scope.is_empty() {
            if scopes.changed().await.is_err() {
                return;
            }
            continue;
        }
        let wanted = wanted(&scope);
        let mut counted = Vec::new();
        for step in wanted {
            // What a step has not been found for has no count on the screen.
            let Ok(sources) = sources(&connection, target.clone(), &step.place).await else {
                continue;
            };
            if let Some(count) = of_step(&sources, &session, &step.text) {
                counted.push((step.text, count));
            }
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

/// How often a session's step was reached; `None` where the sources have no place of it, which is not known to be never.
fn of_step(sources: &[v1::SourceFunction], session: &str, step: &str) -> Option<u64> {
    let lines = sources.iter().flat_map(|source| &source.lines);
    let counts = lines.flat_map(|line| &line.counts);
    let of_step = counts.filter(|counted| counted.session == session && counted.step == step);
    of_step.map(|counted| counted.count).reduce(u64::saturating_add)
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

    #[test]
    fn what_is_not_found_is_not_counted_as_never_reached() {
        let count = |step: &str, count| v1::SourceCount {
            session: "s1".to_owned(),
            step: step.to_owned(),
            count,
            ..v1::SourceCount::default()
        };
        let line = v1::SourceLine {
            counts: vec![count("f", 2), count("f", 3), count("main.cc:3", 0)],
            ..v1::SourceLine::default()
        };
        let source = v1::SourceFunction {
            lines: vec![line],
            ..v1::SourceFunction::default()
        };
        let sources = [source];
        assert_eq!(of_step(&sources, "s1", "f"), Some(5));
        assert_eq!(of_step(&sources, "s1", "main.cc:3"), Some(0));
        assert_eq!(of_step(&sources, "s1", "main.cc:4"), None, "another step");
        assert_eq!(of_step(&sources, "s2", "f"), None, "another session");
        assert_eq!(of_step(&[], "s1", "f"), None);
    }
}
