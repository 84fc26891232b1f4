//! Folded stacks: names with `;` between them, the outermost first, then a space and a number.

use super::{NotAProfile, stacks::Stacks};
use crate::profile::{Frame, Measure, Profile, Unit};

/// Reads them. What the numbers are is not written: samples, for all that is known.
pub fn read(text: &str) -> Result<Profile, NotAProfile> {
    let mut stacks = Stacks::default();
    let mut has_two = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let split = line.rsplit_once(' ');
        let Some((names, weight)) = split.and_then(|(names, count)| Some((names, weight(count)?))) else {
            return Err(NotAProfile::new(format!(
                "line {number} is no folded stack, which ends in a space and a whole number"
            )));
        };
        has_two &= names
            .rsplit_once(' ')
            .is_some_and(|(_, word)| self::weight(word).is_some());
        stacks.room_for(names.bytes().filter(|byte| *byte == b';').count() + 1)?;
        let frames = names.split(';').map(|name| {
            stacks.frame(Frame {
                name: name.to_owned(),
                ..Frame::default()
            })
        });
        let frames: Result<Vec<u32>, NotAProfile> = frames.collect();
        stacks.add(frames?, &[weight])?;
    }
    if has_two && !stacks.is_empty() {
        return Err(NotAProfile::new(
            "each of its stacks ends in two numbers, as those of a difference do: fold one side alone",
        ));
    }
    let profile = stacks.profile(vec![Measure {
        name: "samples".to_owned(),
        unit: Unit::Count,
    }]);
    if profile.stacks.is_empty() {
        return Err(NotAProfile::new("it has no stacks"));
    }
    Ok(profile)
}

/// A whole number, be it written with a point.
fn weight(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_whole = fraction.bytes().all(|digit| digit == b'0');
    whole.parse().ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one() {
        let profile = read("main;f 3\n\nmain;g a 4\nmain;f 5.0\n").unwrap();
        let stacks: Vec<(Vec<&str>, u64)> = profile
            .stacks
            .iter()
            .map(|stack| {
                let names = profile.frames_of(stack);
                let names = names.map(|(_, frame)| frame.name.as_str());
                (names.collect(), stack.weights[0])
            })
            .collect();
        assert_eq!(stacks, [(vec!["main", "f"], 8), (vec!["main", "g a"], 4)]);
    }

    #[test]
    fn more_frames_than_are_kept_are_refused_before_they_are_collected() {
        let line = ";".repeat(1 << 26) + " 1";
        let reason = read(&line).unwrap_err().reason;
        assert!(reason.contains("67,108,864 frames"), "{reason}");
    }

    #[test]
    fn what_is_none_is_refused_with_its_line() {
        let refused = |text: &str| read(text).unwrap_err().reason;
        assert!(refused("main;f 3\nhello").starts_with("line 2 is no folded stack"));
        assert!(refused("main;f -3").starts_with("line 1"));
        assert!(
            refused("main;f 0.004").starts_with("line 1"),
            "a fraction would be lost"
        );
        assert!(refused("\n\n").contains("no stacks"));
        assert!(refused("main;f 3 4\nmain 5 6\n").contains("two numbers"));
        assert!(
            read("main;f 3 4\nmain 5\n").is_ok(),
            "a name that ends in a number"
        );
    }
}
