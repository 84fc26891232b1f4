//! A lens as a command line, which shows the same.

use std::borrow::Cow;

use profiler_export::text::is_unseen;

use super::{FrameId, Lens, Mouse, Pane, Picture, Recorded, Target, path, url};
use crate::{
    cli::args::{By, RecordedTime},
    state::{functions::Sort, shape::Around},
};

/// Separates the frames of `--zoom`, as folded stacks do.
pub const BETWEEN_FRAMES: char = ';';

/// Flags whose value is the next word; that of others stands behind `=` in the same word.
const IN_NEXT_WORD: [&str; 6] = ["-p", "--exe", "--from", "--session", "--pane", "--sort"];

/// Whether the value of a flag is the next word.
pub fn has_next_word(flag: &str) -> bool {
    IN_NEXT_WORD.contains(&flag)
}

/// A flag with its value, as command lines have it.
fn option(flag: &str, value: &str) -> Vec<String> {
    if has_next_word(flag) {
        vec![flag.to_owned(), value.to_owned()]
    } else {
        vec![format!("{flag}={value}")]
    }
}

/// The command that shows the screen as it is.
#[must_use]
pub fn of_screen(lens: &Lens) -> Vec<String> {
    let mut words = vec!["profiler".to_owned(), "tui".to_owned()];
    words.extend(host(lens));
    words.extend(lens.making.clone());
    words.extend(target(lens, true));
    if lens.mouse == Mouse::OfTerminal {
        words.push("--no-mouse".to_owned());
    }
    if lens.target.is_none() {
        return words;
    }
    // A recording of which nothing is said is shown as it was recorded.
    let says_nothing = is_recording(lens) && scope_word(lens, &lens.scope).is_none();
    if lens.pane != Pane::default() || says_nothing {
        words.extend(option("--pane", lens.pane.name()));
    }
    if lens.sort != Sort::default() {
        words.extend(option("--sort", lens.sort.name()));
    }
    if lens.picture == Picture::Heat {
        words.push("--heat".to_owned());
    }
    if lens.shape.collapse {
        words.push("--collapse".to_owned());
    }
    let mut add = |name: &str, value: &str| words.extend(option(name, value));
    if !lens.search.is_empty() {
        add("--search", &lens.search);
    }
    if !lens.print.is_empty() {
        add("--print", &lens.print.join(","));
    }
    for (name, value) in shaping(lens) {
        add(name, &value);
    }
    if let Some((name, functions)) = around(lens) {
        add(name, functions);
    }
    if lens.at_least > 0 {
        add("--at-least", &(f64::from(lens.at_least) / 10.0).to_string());
    }
    if lens.pane.is_graph() && !lens.zoom.is_empty() {
        add("--zoom", &zoom(&lens.zoom));
    }
    if let Some(source) = lens.source.as_ref().filter(|_| lens.pane == Pane::Source) {
        add("--source", source);
    }
    words
}

/// The command that shows the screen as it is by its URL.
#[must_use]
pub fn of_url(lens: &Lens) -> Vec<String> {
    vec!["profiler".to_owned(), "tui".to_owned(), url::of(&of_screen(lens))]
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
        Pane::Top if lens.is_of_recording() || shapes_stacks(lens) => words.push("flame".to_owned()),
        Pane::Top => words.push("top".to_owned()),
        Pane::Graph | Pane::Difference | Pane::Threads | Pane::Losses => words.push("flame".to_owned()),
        Pane::Timeline => words.push("timeline".to_owned()),
        Pane::Sessions => {
            words.extend(["session".to_owned(), "list".to_owned()]);
            words.extend(host(lens));
            return words;
        }
        Pane::Latency => words.push("latency".to_owned()),
        Pane::Source if lens.is_of_recording() => words.push("flame".to_owned()),
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
    words.extend(probing(lens));
    let scope = match lens.pane {
        // They end before the duration of their call is known.
        Pane::Waits | Pane::Syscalls => path::without_thresholds(&lens.scope),
        _ => lens.scope.clone(),
    };
    words.extend(target(lens, false));
    words.extend(scope_word(lens, &scope));
    match lens.pane {
        Pane::Difference => {
            words.push("--diff".to_owned());
            let by = shaping(lens).filter(|(name, _)| *name == "--by" && lens.shape.threads.is_empty());
            words.extend(by.flat_map(|(name, value)| option(name, &value)));
        }
        Pane::Threads => words.extend(option("--by", "thread")),
        Pane::Source if lens.is_of_recording() => words.extend(option("--by", "line")),
        Pane::Top | Pane::Graph if shapes_stacks(lens) => {
            // Threads are told apart by a view of functions.
            let by_thread = !lens.shape.threads.is_empty();
            let flags = shaping(lens).filter(|(name, _)| !(by_thread && *name == "--by"));
            words.extend(flags.flat_map(|(name, value)| option(name, &value)));
            if lens.shape.collapse {
                words.push("--collapse".to_owned());
            }
            // Functions are those of all stacks.
            let around = around(lens).filter(|_| lens.pane == Pane::Graph);
            words.extend(
                around
                    .into_iter()
                    .flat_map(|(name, functions)| option(name, functions)),
            );
        }
        Pane::Hits if !is_of_session && !lens.print.is_empty() => {
            words.extend(option("--print", &lens.print.join(",")));
        }
        _ => {}
    }
    words
}

/// The flag that says from which functions stacks are seen, and these.
fn around(lens: &Lens) -> Option<(&'static str, &str)> {
    match lens.shape.around.as_ref()? {
        Around::Callees(functions) => Some(("--callees", functions.text())),
        Around::Callers(functions) => Some(("--callers", functions.text())),
    }
}

/// Flags with values that `flame` has too.
fn shaping(lens: &Lens) -> impl Iterator<Item = (&'static str, String)> {
    let by = if lens.by == By::default() {
        ""
    } else {
        lens.by.name()
    };
    let flags = [
        ("--by", by),
        ("--event", lens.event.as_str()),
        ("--thread", lens.shape.threads.text()),
        ("--hide", lens.shape.hide.text()),
        ("--fold", lens.shape.fold.text()),
    ];
    let flags = flags.map(|(name, value)| (name, value.to_owned()));
    flags.into_iter().filter(|(_, value)| !value.is_empty())
}

/// The flags that all verbs with probes have.
fn probing(lens: &Lens) -> impl Iterator<Item = String> {
    let flags = lens.making.iter();
    flags
        .filter(|flag| ["--exit=", "--budget="].iter().any(|name| flag.starts_with(name)))
        .cloned()
}

fn host(lens: &Lens) -> impl Iterator<Item = String> {
    lens.host.iter().flat_map(|host| option("--host", host))
}

fn target(lens: &Lens, with_scope: bool) -> Vec<String> {
    let mut words = match &lens.target {
        None => return Vec::new(),
        Some(Target::Session(name)) => return option("--session", name),
        Some(Target::Pid(pid)) => option("-p", &pid.to_string()),
        Some(Target::Pids(pids)) => pids
            .iter()
            .flat_map(|pid| option("-p", &pid.to_string()))
            .collect(),
        Some(Target::Exe(exe)) => option("--exe", exe),
        Some(Target::Profile(path)) => return option("--from", path),
        Some(Target::Recording(Recorded { path, time, .. })) => {
            let mut words = option("--from", path);
            if *time != RecordedTime::default() {
                words.extend(option("--time", &time.to_string()));
            }
            words
        }
    };
    if with_scope {
        words.extend(scope_word(lens, &lens.scope));
    }
    words
}

/// The scope as a word; an empty one of a recording, of which the recorded one would be looked at without it, and no other.
fn scope_word(lens: &Lens, scope: &str) -> Option<String> {
    let is_said = match &lens.target {
        Some(Target::Session(_)) => false,
        // Before it has come, the recorded one is not known.
        Some(Target::Recording(recorded)) => !scope.is_empty() || recorded.without_scope || !lens.attaching,
        _ => !scope.is_empty(),
    };
    is_said.then(|| scope.to_owned())
}

const fn is_recording(lens: &Lens) -> bool {
    matches!(lens.target, Some(Target::Recording(_)))
}

/// Whether stacks are shown otherwise than as they are.
fn shapes_stacks(lens: &Lens) -> bool {
    let is_seen_from = lens.pane == Pane::Graph && lens.shape.around.is_some();
    shaping(lens).next().is_some() || lens.shape.collapse || is_seen_from
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
