//! `--event`: counters, and ratios of two.

use crate::state::timeline::Row;

/// Counters that a daemon counts at once.
const MAX_COUNTERS: usize = 16;

/// A ratio with a name of its own.
const IPC: (&str, &str) = ("instructions", "cycles");

/// What one `--event` lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventList(pub Vec<Event>);

/// A counter, or a ratio of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A counter, by perf's name.
    Counter(String),
    /// One by another.
    Ratio(String, String),
}

/// Splits at commas; what a counter is called, the daemon knows.
///
/// # Errors
///
/// Where there is nothing between two commas or before or behind a `/`, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<EventList, String> {
    let event = |text: &str| {
        let text = text.trim();
        match text.split_once('/') {
            _ if text.is_empty() => Err("a counter's name is missing".to_owned()),
            Some(("", _) | (_, "")) => Err(format!("a ratio is of two counters, as in A/B, not `{text}`")),
            Some((above, below)) if !below.contains('/') => {
                Ok(Event::Ratio(above.to_owned(), below.to_owned()))
            }
            Some(_) => Err(format!("a ratio is of two counters, as in A/B, not `{text}`")),
            None if text == "ipc" => Ok(Event::Ratio(IPC.0.to_owned(), IPC.1.to_owned())),
            None => Ok(Event::Counter(text.to_owned())),
        }
    };
    text.split(',')
        .map(event)
        .collect::<Result<_, _>>()
        .map(EventList)
}

/// The counters that these take, each once.
///
/// # Errors
///
/// Where there are too many, as a sentence.
pub fn counters(events: &[Event]) -> Result<Vec<String>, String> {
    let mut counters: Vec<String> = Vec::new();
    for event in events {
        let (first, second) = match event {
            Event::Counter(name) => (name, None),
            Event::Ratio(above, below) => (above, Some(below)),
        };
        for name in std::iter::once(first).chain(second) {
            if !counters.contains(name) {
                counters.push(name.clone());
            }
        }
    }
    if counters.len() > MAX_COUNTERS {
        return Err(format!(
            "up to {MAX_COUNTERS} counters can be asked for, not {}",
            counters.len()
        ));
    }
    Ok(counters)
}

/// The rows that these are, of counters in this order; all of them, and `ipc` where it can be had, if none was asked for.
#[must_use]
pub fn rows(events: &[Event], counters: &[String]) -> Vec<Row> {
    let at = |name: &str| counters.iter().position(|counter| counter == name);
    let ratio = |above: &str, below: &str| Some(Row::Ratio(at(above)?, at(below)?));
    if events.is_empty() {
        let all = (0..counters.len()).map(Row::Counter);
        return all.chain(ratio(IPC.0, IPC.1)).collect();
    }
    let row = |event: &Event| match event {
        Event::Counter(name) => at(name).map(Row::Counter),
        Event::Ratio(above, below) => ratio(above, below),
    };
    events.iter().filter_map(row).collect()
}

/// What a row is called.
#[must_use]
pub fn label(row: &Row, counters: &[String], scope: &str) -> String {
    let name = |at: usize| counters.get(at).map_or("?", String::as_str);
    match row {
        Row::Counter(at) => name(*at).to_owned(),
        Row::Ratio(above, below) => format!("{}/{}", name(*above), name(*below)),
        Row::Calls => format!("calls of {scope}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_ratios_are_rows() {
        let EventList(events) = parse("cs, ipc,cache-misses/instructions,instructions").unwrap();
        let counters = counters(&events).unwrap();
        assert_eq!(counters, ["cs", "instructions", "cycles", "cache-misses"]);
        let rows = rows(&events, &counters);
        assert_eq!(
            rows,
            [
                Row::Counter(0),
                Row::Ratio(1, 2),
                Row::Ratio(3, 1),
                Row::Counter(1)
            ]
        );
        assert_eq!(label(&rows[2], &counters, ""), "cache-misses/instructions");
        assert_eq!(label(&Row::Calls, &counters, "serve"), "calls of serve");
    }

    #[test]
    fn what_is_missing_is_said() {
        for (text, said) in [
            ("", "missing"),
            ("a,,b", "missing"),
            ("a/", "A/B"),
            ("/b", "A/B"),
            ("a/b/c", "A/B"),
        ] {
            assert!(parse(text).unwrap_err().contains(said), "{text}");
        }
        let many: Vec<Event> = (0..17).map(|number| Event::Counter(number.to_string())).collect();
        assert!(counters(&many).unwrap_err().contains("16"));
    }

    #[test]
    fn without_events_all_counters_are_rows() {
        let counters = ["cycles", "instructions"].map(str::to_owned);
        assert_eq!(
            rows(&[], &counters),
            [Row::Counter(0), Row::Counter(1), Row::Ratio(1, 0)]
        );
    }
}
