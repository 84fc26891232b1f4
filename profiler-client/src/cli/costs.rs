//! `--costs`: events, and how often stacks are taken at each, in the notation of perf-record(1).

use std::{fmt::Display, str::FromStr};

use profiler_proto::limits::{MAX_FREQUENCY_HZ, MAX_PERIOD};

use super::request::FlameEvent;

/// What one `--costs` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostList(pub Vec<FlameEvent>);

/// Splits at commas that are not between slashes; what an event is called, the daemon knows.
///
/// # Errors
///
/// Where an event is missing, or what stands behind it is not how often stacks are to be taken, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<CostList, String> {
    let mut is_in_slashes = false;
    let events = text.split(|c| {
        is_in_slashes ^= c == '/';
        c == ',' && !is_in_slashes
    });
    events.map(event).collect::<Result<_, _>>().map(CostList)
}

/// An event with what stands between slashes behind it.
fn event(text: &str) -> Result<FlameEvent, String> {
    let text = text.trim();
    let (name, behind) = match text.split_once('/') {
        Some((name, behind)) => (name.trim(), Some(behind)),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("the name of an event is missing, as in page-faults,block-bytes".to_owned());
    }
    let mut event = FlameEvent {
        name: name.to_owned(),
        ..FlameEvent::default()
    };
    let Some(behind) = behind else { return Ok(event) };
    let Some((term, rest)) = behind.split_once('/') else {
        return Err(format!(
            "a slash is missing behind `{text}`: write {name}/period=N/ for every Nth event"
        ));
    };
    if !rest.trim().is_empty() {
        return Err(format!(
            "`{rest}` stands behind the last slash of `{name}/{term}/`: separate events by commas"
        ));
    }
    let (key, value) = term.split_once('=').unwrap_or((term, ""));
    match key.trim() {
        "period" => event.period = number(value, "a period", MAX_PERIOD)?,
        "freq" => event.frequency_hz = number(value, "a frequency in Hz", MAX_FREQUENCY_HZ)?,
        _ => {
            return Err(format!(
                "`{term}` is not how often stacks are taken at {name}: write {name}/period=N/ for every Nth event, or, of events \
                 of the hardware, {name}/freq=HZ/"
            ));
        }
    }
    Ok(event)
}

/// A number from 1 to the most that it can be.
fn number<T>(text: &str, what: &str, most: T) -> Result<T, String>
where
    T: FromStr + Copy + PartialOrd + From<u8> + Display,
{
    let number = text.trim().parse::<T>().ok();
    let number = number.filter(|number| (T::from(1)..=most).contains(number));
    number.ok_or_else(|| format!("{what} is a whole number from 1 to {most}, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(text: &str) -> Vec<(String, u64, u32)> {
        let CostList(events) = parse(text).unwrap();
        let events = events.into_iter();
        events
            .map(|event| (event.name, event.period, event.frequency_hz))
            .collect()
    }

    #[test]
    fn events_are_taken_as_often_as_is_said_behind_them() {
        let expected = [("faults", 10, 0), ("cycles", 0, 250), ("cs", 0, 0)];
        let expected = expected.map(|(name, period, hz)| (name.to_owned(), period, hz));
        assert_eq!(costs("faults/period=10/, cycles/freq=250/,cs"), expected);
        assert_eq!(costs("faults/period=1000000000/")[0].1, 1_000_000_000);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        for (text, said) in [
            ("", "name of an event is missing"),
            ("faults,,cs", "name of an event is missing"),
            ("/period=3/", "name of an event is missing"),
            ("faults/period=3", "a slash is missing behind `faults/period=3`"),
            ("faults/perod=3/", "write faults/period=N/"),
            ("faults//", "write faults/period=N/"),
            (
                "faults/period=3,freq=9/",
                "whole number from 1 to 1000000000, not `3,freq=9`",
            ),
            ("faults/period=0/", "whole number from 1 to 1000000000, not `0`"),
            ("faults/period=1000000001/", "not `1000000001`"),
            (
                "cycles/freq=10001/",
                "frequency in Hz is a whole number from 1 to 10000",
            ),
            ("cycles/freq=-1/", "not `-1`"),
            ("faults/period/", "not ``"),
            ("faults/period=3/cs", "separate events by commas"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
