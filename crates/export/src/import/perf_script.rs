//! The text that `perf script` prints: of each sample a line that says what it is, then its frames, the innermost first.

use super::{NotAProfile, stacks::Stacks};
use crate::profile::{Frame, Measure, Profile, Unit};

/// Whether a text is such: a line of a sample comes first, and a frame or an empty line behind it.
pub fn is_one(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let is_head = lines
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| head(line).is_some());
    is_head
        && lines
            .next()
            .is_none_or(|line| line.is_empty() || frame(line).is_some())
}

/// Reads it. A sample weighs its period, where that is printed; of clocks, nanoseconds.
pub fn read(text: &str) -> Result<Profile, NotAProfile> {
    let mut stacks = Stacks::default();
    let mut event = String::new();
    let mut has_periods = true;
    let mut open: Option<(u64, Vec<u32>)> = None;
    // An empty line ends a sample; so does the end.
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            if let Some((period, mut frames)) = open.take() {
                frames.reverse();
                stacks.add(frames, &[1, period])?;
            }
        } else if let Some((_, frames)) = &mut open {
            let Some(frame) = frame(line) else {
                return Err(NotAProfile::new(format!("line {number} is no frame of a sample")));
            };
            frames.push(stacks.frame(frame)?);
            stacks.room_for(frames.len())?;
        } else {
            let Some(head) = head(line) else {
                return Err(NotAProfile::new(format!(
                    "line {number} is no sample of `perf script`: it has no event with a time before it"
                )));
            };
            if event.is_empty() {
                head.event.clone_into(&mut event);
            } else if event != head.event {
                return Err(NotAProfile::new(format!(
                    "it has samples of `{event}` and of `{}`, which do not add up: print one event, with `perf script --event`",
                    head.event
                )));
            }
            has_periods &= head.period.is_some();
            open = Some((head.period.unwrap_or(1), Vec::new()));
        }
    }
    let is_clock = matches!(event.split(':').next(), Some("cpu-clock" | "task-clock"));
    let unit = if is_clock && has_periods {
        Unit::Nanoseconds
    } else {
        Unit::Count
    };
    Ok(stacks.profile(vec![
        Measure {
            name: "samples".to_owned(),
            unit: Unit::Count,
        },
        Measure { name: event, unit },
    ]))
}

/// What the first line of a sample says.
struct Head<'a> {
    event: &'a str,
    /// `None` where that is not printed.
    period: Option<u64>,
}

/// `comm pid/tid [cpu] time: period event:`, of which `perf script` leaves out what it is told to.
fn head(line: &str) -> Option<Head<'_>> {
    if line.starts_with(char::is_whitespace) {
        return None;
    }
    let (rest, event) = line
        .trim_end()
        .strip_suffix(':')?
        .rsplit_once(char::is_whitespace)?;
    let is_time = |text: &str| {
        let time = text.strip_suffix(':');
        time.is_some_and(|time| !time.is_empty() && time.bytes().all(|c| c.is_ascii_digit() || c == b'.'))
    };
    let mut words = rest.split_whitespace().rev();
    let last = words.next()?;
    let period = if is_time(last) {
        None
    } else {
        let period = last.parse().ok()?;
        words.next().filter(|word| is_time(word))?;
        Some(period)
    };
    Some(Head { event, period })
}

/// `address name+offset (module)`.
fn frame(line: &str) -> Option<Frame> {
    if !line.starts_with(char::is_whitespace) {
        return None;
    }
    let (address, rest) = line.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    let (name, module) = match rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) {
        Some((name, module)) => (name, module),
        None => (rest, ""),
    };
    let is_offset = |text: &str| {
        let digits = text.strip_prefix("0x");
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_hexdigit()))
    };
    let name = match name.rsplit_once('+') {
        Some((name, offset)) if is_offset(offset) => name,
        _ => name,
    };
    let inlined = module == "inlined";
    Some(Frame {
        name: name.trim().to_owned(),
        module: if inlined { String::new() } else { module.to_owned() },
        inlined,
        ..Frame::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\nmy server 4630/4631 [001] 12.345678:     250000 cpu-clock:u: \n\t    55d0 f<(a + b)>+0x12 (/usr/bin/server)\n\t    55d1 g (inlined)\n\t    55d2 main+0x1 (/usr/bin/server)\n\nother 7 12.5: 7 cpu-clock:u: \n\tffff [unknown] ([unknown])\n\n";

    #[test]
    fn samples_have_their_frames_and_period() {
        assert!(is_one(TEXT));
        let profile = read(TEXT).unwrap();
        let names: Vec<&str> = profile.frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["f<(a + b)>", "g", "main", "[unknown]"]);
        assert!(profile.frames[1].inlined);
        assert_eq!(profile.stacks[0].frames, [2, 1, 0]);
        assert_eq!(profile.stacks[0].weights, [1, 250_000]);
        assert_eq!(profile.stacks[1].weights, [1, 7]);
        assert_eq!(
            (profile.measures[1].name.as_str(), profile.measures[1].unit),
            ("cpu-clock:u", Unit::Nanoseconds)
        );
    }

    #[test]
    fn events_are_not_added_to_others_and_samples_without_periods_are_no_time() {
        let two = TEXT.replace("7 cpu-clock:u", "7 cycles");
        let refused = read(&two).unwrap_err().reason;
        assert!(refused.contains("`cpu-clock:u` and of `cycles`"), "{refused}");
        let unit = |text: &str| read(text).unwrap().measures[1].unit;
        assert_eq!(
            unit(&TEXT.replace("250000 cpu", "cpu").replace("7 cpu", "cpu")),
            Unit::Count
        );
        assert_eq!(unit("perf 7 1.5: 9 unc_clockticks:\n\t1 f (x)\n"), Unit::Count);
    }

    #[test]
    fn folded_stacks_are_none() {
        assert!(!is_one("main;f 3\n"));
        assert!(!is_one("a 1.5: b: 3\n"));
        assert!(read("perf 7 1.5: cycles:\nno frame\n").is_err());
    }
}
