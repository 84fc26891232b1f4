//! Reasons of losses that a newer version has written, which are shown as they say themselves.

use std::{
    collections::BTreeSet,
    sync::{LazyLock, Mutex, PoisonError},
};

/// Stands for reasons that are no names, and for those that find no room.
const UNKNOWN_REASON: &str = "unknown_reason";

/// Reasons that are kept, of all recordings that are read: a version has fewer new ones.
const MAX_REASONS: usize = 1024;

/// Letters of one.
const MAX_LETTERS: usize = 64;

/// Those that were read so far. They are kept to the end, as those that this version knows are.
static REASONS: LazyLock<Mutex<Reasons>> = LazyLock::new(Mutex::default);

/// The reason of this name, or `unknown_reason` where somebody made it up: what is shown, be it on a terminal, is a name.
pub fn reason(name: &str) -> &'static str {
    REASONS.lock().unwrap_or_else(PoisonError::into_inner).of(name)
}

#[derive(Default)]
struct Reasons(BTreeSet<&'static str>);

impl Reasons {
    fn of(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.0.get(name) {
            return known;
        }
        if !is_name(name) || self.0.len() == MAX_REASONS {
            return UNKNOWN_REASON;
        }
        let kept: &'static str = Box::leak(name.into());
        self.0.insert(kept);
        kept
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_LETTERS).contains(&name.len()) && name.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_as_long_as_there_is_room_and_others_are_not() {
        let mut reasons = Reasons::default();
        for number in 0..MAX_REASONS {
            let name = format!("reason_{number}");
            assert_eq!(reasons.of(&name), name);
        }
        assert_eq!(reasons.of("reason_7"), "reason_7");
        assert_eq!(reasons.of("one_more"), UNKNOWN_REASON);

        let mut reasons = Reasons::default();
        for hostile in ["", "a b", "\u{1b}[2J", "a\nlost: none", &"a".repeat(65)] {
            assert_eq!(reasons.of(hostile), UNKNOWN_REASON);
        }
        assert!(reasons.0.is_empty());
    }
}
