//! The text of a recording's source lines, where its files are on this machine.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    os::fd::AsFd as _,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_debug_files::{Links, SourceText, open_regular};
use profiler_proto::v1;
use rustix::fs::{Mode, OFlags};

use crate::{tui::data::WantedSource, verb::target};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Files that are read for one function, at most.
const MAX_FILES: usize = 16;

/// Files that a warning names; of more it says how many.
const MAX_NAMED: usize = 3;

/// Lines that are shown before the first line with samples, and behind the last one.
const AROUND: u32 = 10;

/// Lines without samples are shown so far from the marked line, at most.
const MAX_FROM_MARKED: u32 = 5_000;

/// The files that lines are of.
struct Files {
    recorded_at: Option<SystemTime>,
    read: HashMap<String, Option<SourceText>>,
    /// Those that were changed after the recording began.
    changed: Vec<String>,
    /// Those that have no text, each with the reason.
    without_text: Vec<String>,
}

impl Files {
    /// None yet, of a recording in this file.
    fn of(recording: &str) -> Self {
        let recorded_at = target::about(Path::new(recording))
            .map(|about| about.machine().since_1970_ns)
            .filter(|since_1970_ns| *since_1970_ns > 0)
            .map(|since_1970_ns| UNIX_EPOCH + Duration::from_nanos(since_1970_ns));
        Self {
            recorded_at,
            read: HashMap::new(),
            changed: Vec::new(),
            without_text: Vec::new(),
        }
    }

    /// Reads a file, where that was not tried before.
    fn read(&mut self, path: &str) -> Option<&SourceText> {
        if !self.read.contains_key(path) {
            let text = if self.read.len() < MAX_FILES {
                read(path).map_err(|error| error.to_string())
            } else {
                Err(format!("it is beyond {MAX_FILES} files"))
            };
            match &text {
                Ok(text) if is_changed(text, self.recorded_at) => self.changed.push(path.to_owned()),
                Ok(_) => {}
                Err(why) => self.without_text.push(format!("{path} ({why})")),
            }
            self.read.insert(path.to_owned(), text.ok());
        }
        self.read.get(path)?.as_ref()
    }

    /// What is said of them.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.changed.as_slice() {
            [] => {}
            [path] => warnings.push(format!(
                "{path} was changed after the recording began: its lines may be others by now"
            )),
            paths => warnings.push(format!(
                "{} were changed after the recording began: their lines may be others by now",
                listed(paths)
            )),
        }
        if !self.without_text.is_empty() {
            warnings.push(format!(
                "the text of {} is not shown: only lines with samples, by their numbers",
                listed(&self.without_text)
            ));
        }
        warnings
    }
}

/// The first of some names, and how many there are more.
fn listed(names: &[String]) -> String {
    match names.split_at_checked(MAX_NAMED) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => names.join(", "),
    }
}

/// Gives lines their text, and the ones with samples those around and between them.
pub fn add(source: &mut v1::SourceFunction, wanted: &WantedSource) {
    let mut files = Files::of(&wanted.recording);
    let own = source
        .function
        .as_ref()
        .map_or_else(String::new, |function| function.file.clone());
    if let Some(text) = files.read(&own) {
        add_between(source, text);
        source.has_text = true;
    }
    for line in &mut source.lines {
        let path = if line.file.is_empty() { &own } else { &line.file };
        let text = files.read(path);
        line.text = text.and_then(|text| text.line(line.line)).unwrap_or_default();
    }
    source.warnings.splice(0..0, files.warnings());
}

/// Adds the lines of the own file that have no samples.
fn add_between(source: &mut v1::SourceFunction, text: &SourceText) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let first = source.function.as_ref().map_or(0, |function| function.line);
    let of_others = source.lines.iter().position(|line| !line.file.is_empty());
    let others = source.lines.split_off(of_others.unwrap_or(source.lines.len()));
    let marked = source.lines.iter().find(|line| line.marked);
    let marked = marked.map_or(first, |line| line.line);
    let wanted = first.saturating_sub(AROUND).max(1)..=source.last_line.saturating_add(AROUND).min(length);
    let shown = marked.saturating_sub(MAX_FROM_MARKED).max(*wanted.start())
        ..=marked.saturating_add(MAX_FROM_MARKED).min(*wanted.end());
    if shown != wanted {
        source.warnings.push(format!(
            "lines without samples are shown up to {MAX_FROM_MARKED} lines from line {marked} alone"
        ));
    }
    // Lines beyond the end stay: the file is another by now.
    let sampled = source.lines.drain(..);
    let (before, within): (Vec<_>, Vec<_>) = sampled.partition(|line| line.line < *shown.start());
    source.lines = before;
    let mut sampled: HashMap<u32, v1::SourceLine> =
        within.into_iter().map(|line| (line.line, line)).collect();
    for number in shown {
        let line = sampled.remove(&number).unwrap_or(v1::SourceLine {
            line: number,
            ..v1::SourceLine::default()
        });
        source.lines.push(line);
    }
    let mut beyond: Vec<v1::SourceLine> = sampled.into_values().collect();
    beyond.sort_by_key(|line| line.line);
    source.lines.extend(beyond.into_iter().chain(others));
}

/// Whether a file was written to since the recording began.
fn is_changed(text: &SourceText, recorded_at: Option<SystemTime>) -> bool {
    let times = text.modified.zip(recorded_at);
    times.is_some_and(|(modified, recorded_at)| modified > recorded_at)
}

/// Reads a regular file.
fn read(path: &str) -> io::Result<SourceText> {
    if !path.starts_with('/') {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "its folder was not recorded",
        ));
    }
    let file = open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(SourceText::new(bytes, metadata.modified().ok()))
}

/// Opens a file that a recording names, which may be somebody else's: nothing but a regular file is opened, and nobody is waited for.
fn open(path: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    open_regular(root.as_fd(), Path::new(path), Links::Followed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(file: &str, lines: &[u32]) -> v1::SourceFunction {
        v1::SourceFunction {
            function: Some(v1::Function {
                name: "f".to_owned(),
                file: file.to_owned(),
                line: lines[0],
                ..v1::Function::default()
            }),
            last_line: *lines.last().unwrap(),
            lines: lines
                .iter()
                .map(|line| v1::SourceLine {
                    line: *line,
                    marked: true,
                    ..v1::SourceLine::default()
                })
                .collect(),
            ..v1::SourceFunction::default()
        }
    }

    fn wanted(recording: &str) -> WantedSource {
        WantedSource {
            place: "f".to_owned(),
            recording: recording.to_owned(),
        }
    }

    #[test]
    fn lines_of_a_file_that_is_here_have_their_text_and_those_around() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        let lines: Vec<String> = (1..=40).map(|line| format!("line {line}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let mut source = source(path.to_str().unwrap(), &[12, 15, 99]);
        source.last_line = 15;
        add(&mut source, &wanted("/nonexistent.profrec"));
        let numbers: Vec<u32> = source.lines.iter().map(|line| line.line).collect();
        assert_eq!(numbers, (2..=25).chain([99]).collect::<Vec<u32>>());
        assert_eq!(source.lines[0].text, "line 2");
        assert_eq!(source.lines[24].text, "");
        let marked = source.lines.iter().filter(|line| line.marked);
        assert_eq!(marked.map(|line| line.line).collect::<Vec<_>>(), [12, 15, 99]);
        assert!(
            source.has_text && source.warnings.is_empty(),
            "{:?}",
            source.warnings
        );
    }

    #[test]
    fn of_a_file_that_is_not_here_there_are_the_numbers_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a.c");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for (path, why) in [
            (missing.to_str().unwrap(), "No such file"),
            (pipe.to_str().unwrap(), "not a regular file"),
            ("/dev/null", "not a regular file"),
            ("/proc/self/maps", "ermission denied"),
            ("a.c", "its folder was not recorded"),
        ] {
            let mut source = source(path, &[3, 7]);
            add(&mut source, &wanted(""));
            assert_eq!(source.lines.len(), 2, "{path}");
            assert!(source.warnings[0].contains(why), "{:?}", source.warnings);
        }
    }

    #[test]
    fn a_file_that_was_changed_since_is_said_to_be() {
        let text = |seconds| SourceText::new(Vec::new(), Some(UNIX_EPOCH + Duration::from_secs(seconds)));
        let recorded = Some(UNIX_EPOCH + Duration::from_secs(100));
        assert!(is_changed(&text(101), recorded));
        assert!(!is_changed(&text(99), recorded));
        assert!(!is_changed(&text(101), None));
    }

    #[test]
    fn all_files_that_were_changed_or_have_no_text_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("a.c");
        let header = folder.path().join("a.h");
        std::fs::write(&own, "one\n").unwrap();
        std::fs::write(&header, "two\n").unwrap();
        let mut files = Files::of("");
        files.recorded_at = Some(UNIX_EPOCH);
        for path in [&own, &header] {
            assert!(files.read(path.to_str().unwrap()).is_some());
        }
        // No more than so many files are looked at.
        for number in 0..MAX_FILES {
            let missing = folder.path().join(format!("{number}.h"));
            assert!(files.read(missing.to_str().unwrap()).is_none());
        }
        assert!(
            files
                .without_text
                .last()
                .unwrap()
                .ends_with("15.h (it is beyond 16 files)")
        );
        let [changed, without_text]: [String; 2] = files.warnings().try_into().unwrap();
        assert!(
            changed.contains("a.c, ") && changed.contains("a.h were changed"),
            "{changed}"
        );
        assert!(
            without_text.contains("0.h (No such file") && without_text.contains(" and 13 more is not shown"),
            "{without_text}"
        );
    }

    #[test]
    fn a_line_of_another_file_that_is_not_here_is_told_beside_those_with_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        let mut source = source(path.to_str().unwrap(), &[1, 2]);
        source.lines.push(v1::SourceLine {
            file: "/nonexistent/a.h".to_owned(),
            line: 7,
            ..v1::SourceLine::default()
        });
        add(&mut source, &wanted(""));
        let texts: Vec<&str> = source.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["one", "two", ""]);
        let [warning] = source.warnings.as_slice() else {
            panic!("{:?}", source.warnings)
        };
        assert!(warning.contains("/nonexistent/a.h (No such file"), "{warning}");
    }

    #[test]
    fn lines_without_samples_are_bounded_however_far_apart_those_with_samples_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        std::fs::write(&path, "\n".repeat(100_000)).unwrap();
        let mut source = source(path.to_str().unwrap(), &[1, 50_000, u32::MAX]);
        for line in &mut source.lines {
            line.marked = line.line == 50_000;
        }
        add(&mut source, &wanted(""));
        let numbers: Vec<u32> = source.lines.iter().map(|line| line.line).collect();
        let expected: Vec<u32> = [1].into_iter().chain(45_000..=55_000).chain([u32::MAX]).collect();
        assert_eq!(numbers, expected);
        assert!(
            source.warnings[0].contains("from line 50000 alone"),
            "{:?}",
            source.warnings
        );
    }
}
