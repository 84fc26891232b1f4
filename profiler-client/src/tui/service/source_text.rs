//! The text of a recording's source lines, where its files are on this machine.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_daemon::session::SourceText;
use profiler_proto::v1;

use crate::{tui::data::WantedSource, verb::target};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Files that are read for one function, at most.
const MAX_FILES: usize = 16;

/// Lines that are shown before the first line with samples, and behind the last one.
const AROUND: u32 = 10;

/// Gives lines their text, and the ones with samples those around and between them.
pub fn add(source: &mut v1::SourceFunction, wanted: &WantedSource) {
    let recorded_at = target::about(Path::new(&wanted.recording))
        .map(|about| about.since_1970_ns)
        .filter(|since_1970_ns| *since_1970_ns > 0)
        .map(|since_1970_ns| UNIX_EPOCH + Duration::from_nanos(since_1970_ns));
    let own = source
        .function
        .as_ref()
        .map_or_else(String::new, |function| function.file.clone());
    let mut texts: HashMap<String, Option<SourceText>> = HashMap::new();
    match read(&own) {
        Ok(text) => {
            source.warnings.extend(changed(&own, &text, recorded_at));
            add_between(source, &text);
            source.has_text = true;
            texts.insert(own.clone(), Some(text));
        }
        Err(error) => {
            source.warnings.insert(
                0,
                format!(
                    "the text of {own} is not shown ({error}): only lines with samples, by their numbers"
                ),
            );
            texts.insert(own.clone(), None);
        }
    }
    for line in &mut source.lines {
        let path = if line.file.is_empty() { &own } else { &line.file };
        if texts.len() < MAX_FILES && !texts.contains_key(path) {
            texts.insert(path.clone(), read(path).ok());
        }
        let text = texts.get(path).and_then(Option::as_ref);
        line.text = text.and_then(|text| text.line(line.line)).unwrap_or_default();
    }
}

/// Adds the lines of the own file that have no samples.
fn add_between(source: &mut v1::SourceFunction, text: &SourceText) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let first = source.function.as_ref().map_or(0, |function| function.line);
    let shown = first.saturating_sub(AROUND).max(1)..=source.last_line.saturating_add(AROUND).min(length);
    let of_others = source.lines.iter().position(|line| !line.file.is_empty());
    let others = source.lines.split_off(of_others.unwrap_or(source.lines.len()));
    // Lines beyond the end stay: the file is another by now.
    let mut sampled: HashMap<u32, v1::SourceLine> =
        source.lines.drain(..).map(|line| (line.line, line)).collect();
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

/// What is said of a file that was written to since the recording began.
fn changed(path: &str, text: &SourceText, recorded_at: Option<SystemTime>) -> Option<String> {
    let is_newer = text.modified? > recorded_at?;
    is_newer.then(|| format!("{path} was changed after the recording began: its lines may be others by now"))
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
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(SourceText::new(bytes, metadata.modified().ok()))
}

/// Opens a file without waiting for whoever may be at the other end of it.
fn open(path: &str) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(nonblocking).unwrap_or(0))
        .open(path)
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
            (pipe.to_str().unwrap(), "no regular file"),
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
        assert!(changed("a.c", &text(101), recorded).is_some());
        assert!(changed("a.c", &text(99), recorded).is_none());
        assert!(changed("a.c", &text(101), None).is_none());
    }
}
