//! A lens as a command line, which shows the same.

use std::borrow::Cow;

use profiler_export::text::is_unseen;

use super::{FrameId, Lens, Pane, Recorded, Target};
use crate::{cli::args::RecordedTime, state::functions::Sort};

/// Separates the frames of `--zoom`, as folded stacks do.
pub const BETWEEN_FRAMES: char = ';';

/// The command that shows the screen as it is.
#[must_use]
pub fn of_screen(lens: &Lens) -> Vec<String> {
    let mut words = vec!["profiler".to_owned(), "tui".to_owned()];
    words.extend(host(lens));
    words.extend(lens.making.clone());
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
    if lens.heat {
        words.push("--heat".to_owned());
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
        words.extend(host(lens));
        return words;
    }
    let is_of_session = matches!(lens.target, Some(Target::Session(_)));
    match lens.pane {
        Pane::Top if lens.is_of_recording() => words.push("flame".to_owned()),
        Pane::Top => words.push("top".to_owned()),
        Pane::Graph | Pane::Difference => words.push("flame".to_owned()),
        Pane::Latency => words.push("latency".to_owned()),
        // Hits and reasons are recorded by sessions that are made for them, and source is a process's.
        Pane::Explain | Pane::Hits | Pane::Source if is_of_session => words.push("flame".to_owned()),
        Pane::Hits => words.push("trace".to_owned()),
        Pane::Explain => words.push("explain".to_owned()),
        Pane::Waits => words.push("waits".to_owned()),
        Pane::Syscalls => words.push("syscalls".to_owned()),
        Pane::Spans => words.push("spans".to_owned()),
        Pane::Source => {
            words.push("source".to_owned());
            words.extend(host(lens));
            words.extend(target(lens, false));
            words.extend(lens.source.clone());
            return words;
        }
    }
    words.extend(host(lens));
    words.extend(target(lens, true));
    match lens.pane {
        Pane::Difference => words.push("--diff".to_owned()),
        Pane::Hits if !is_of_session && !lens.print.is_empty() => {
            words.push(format!("--print={}", lens.print.join(",")));
        }
        _ => {}
    }
    words
}

fn host(lens: &Lens) -> Option<String> {
    lens.host.as_ref().map(|host| format!("--host={host}"))
}

fn target(lens: &Lens, with_scope: bool) -> Vec<String> {
    let mut words = match &lens.target {
        None => return Vec::new(),
        Some(Target::Session(name)) => return vec!["--session".to_owned(), name.clone()],
        Some(Target::Pid(pid)) => vec!["-p".to_owned(), pid.to_string()],
        Some(Target::Exe(exe)) => vec!["--exe".to_owned(), exe.clone()],
        Some(Target::Profile(path)) => return vec!["--from".to_owned(), path.clone()],
        Some(Target::Recording(Recorded { path, time })) => {
            let time = (*time != RecordedTime::default()).then(|| format!("--time={time}"));
            let from = ["--from".to_owned(), path.clone()];
            from.into_iter().chain(time).collect()
        }
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

/// Words as a shell takes them, harmless where they are shown and where they are pasted: characters that a terminal would act on,
/// which names of a target may hold, are written as bash and zsh read them, `$'\u001b'`.
#[must_use]
pub fn quoted(words: &[String]) -> String {
    let quote = |word: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else if word.chars().any(is_unseen) {
            let escape = |c: char| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if is_unseen(c) => format!("\\U{:08x}", u32::from(c)),
                c => c.to_string(),
            };
            format!("$'{}'", word.chars().map(escape).collect::<String>())
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_do_nothing_but_mean_themselves_where_they_are_pasted() {
        let quoted = |word: &str| quoted(&[word.to_owned()]);
        assert_eq!(quoted("f"), "f");
        assert_eq!(quoted("f[>= p95]"), "'f[>= p95]'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        // The end of a bracketed paste, and a line break.
        assert_eq!(quoted("x\u{1b}[201~\n'"), "$'x\\U0000001b[201~\\U0000000a\\''");
        assert_eq!(quoted("\u{202e}b"), "$'\\U0000202eb'");
    }
}
