//! A lens as a command line, which shows the same.

use std::borrow::Cow;

use super::{FrameId, Lens, Pane, Target};
use crate::state::functions::Sort;

/// Separates the frames of `--zoom`, as folded stacks do.
pub const BETWEEN_FRAMES: char = ';';

/// The command that shows the screen as it is.
#[must_use]
pub fn of_screen(lens: &Lens) -> Vec<String> {
    let mut words = vec!["profiler".to_owned(), "tui".to_owned()];
    words.extend(target(lens, true));
    if lens.target.is_none() {
        return words;
    }
    if lens.pane != Pane::default() {
        words.extend(["--pane".to_owned(), lens.pane.name().to_owned()]);
    }
    if lens.sort != Sort::default() {
        words.extend(["--sort".to_owned(), lens.sort.name().to_owned()]);
    }
    let mut option = |name: &str, value: &str| words.push(format!("{name}={value}"));
    if !lens.search.is_empty() {
        option("--search", &lens.search);
    }
    if !lens.print.is_empty() {
        option("--print", &lens.print.join(","));
    }
    if !lens.zoom.is_empty() {
        option("--zoom", &zoom(&lens.zoom));
    }
    if let Some(source) = lens.source.as_ref().filter(|_| lens.pane == Pane::Source) {
        option("--source", source);
    }
    words
}

/// The command that shows the same without a screen, for scripts.
#[must_use]
pub fn of_verb(lens: &Lens) -> Vec<String> {
    let mut words = vec!["profiler".to_owned()];
    if lens.target.is_none() {
        words.push("ps".to_owned());
        return words;
    }
    match lens.pane {
        Pane::Top => words.push("top".to_owned()),
        Pane::Graph | Pane::Difference => words.push("flame".to_owned()),
        Pane::Latency => words.push("latency".to_owned()),
        Pane::Hits => words.push("trace".to_owned()),
        // A session for reasons is made as such.
        Pane::Explain if matches!(lens.target, Some(Target::Session(_))) => words.push("flame".to_owned()),
        Pane::Explain => words.push("explain".to_owned()),
        Pane::Waits => words.push("waits".to_owned()),
        Pane::Syscalls => words.push("syscalls".to_owned()),
        Pane::Source => {
            words.push("source".to_owned());
            words.extend(target(lens, false));
            words.extend(lens.source.clone());
            return words;
        }
    }
    words.extend(target(lens, true));
    match lens.pane {
        Pane::Difference => words.push("--diff".to_owned()),
        Pane::Hits if !lens.print.is_empty() => words.push(format!("--print={}", lens.print.join(","))),
        _ => {}
    }
    words
}

fn target(lens: &Lens, with_scope: bool) -> Vec<String> {
    let mut words = match &lens.target {
        None => return Vec::new(),
        Some(Target::Session(name)) => return vec!["--session".to_owned(), name.clone()],
        Some(Target::Pid(pid)) => vec!["-p".to_owned(), pid.to_string()],
        Some(Target::Exe(exe)) => vec!["--exe".to_owned(), exe.clone()],
    };
    if with_scope && !lens.scope.is_empty() {
        words.push(lens.scope.clone());
    }
    words
}

fn zoom(frames: &[FrameId]) -> String {
    let names: Vec<Cow<'_, str>> = frames
        .iter()
        .map(|frame| crate::render::escape::folded(&frame.function))
        .collect();
    names.join(&BETWEEN_FRAMES.to_string())
}

/// Words as a shell takes them, harmless where they are shown.
#[must_use]
pub fn quoted(words: &[String]) -> String {
    let quote = |word: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
