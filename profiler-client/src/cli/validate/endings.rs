//! What the ending of a file's name says of its format.

use std::path::{Path, PathBuf};

use super::super::{args::EventFormat, request::Export};
use crate::failure::Failure;

/// What files of events end in.
pub(super) const EVENTS: [(&str, EventFormat); 4] = [
    (".pftrace", EventFormat::Perfetto),
    (".perfetto-trace", EventFormat::Perfetto),
    (".trace.json", EventFormat::Chrome),
    (".firefox.json", EventFormat::Firefox),
];

/// The format of a file by the first of the endings that it has; the longer ones come first.
///
/// # Errors
///
/// A usage failure that says which endings there are.
pub(super) fn format_of<F: Copy>(path: &Path, endings: &[(&str, F)]) -> Result<F, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    let format = endings.iter().find(|(ending, _)| name.ends_with(ending));
    format.map(|(_, format)| *format).ok_or_else(|| {
        let endings: Vec<&str> = endings.iter().map(|(ending, _)| *ending).collect();
        Failure::usage(format!(
            "`{}` ends in none of {}: choose the format with --format.",
            path.display(),
            endings.join(" ")
        ))
    })
}

/// What is written beside or in place of what is shown, and how; nothing if neither is given.
///
/// # Errors
///
/// A usage failure where the ending says no format, or standard output is for JSON already.
pub(super) fn export<F: Copy>(
    output: Option<PathBuf>,
    format: Option<F>,
    json: bool,
    endings: &[(&str, F)],
) -> Result<Option<Export<F>>, Failure> {
    let format = match (format, &output) {
        (None, None) => return Ok(None),
        (Some(_), None) if json => {
            return Err(Failure::usage(
                "--format and --json both write to standard output: leave out one of them, or name a file with -o.",
            ));
        }
        (Some(format), _) => format,
        (None, Some(path)) => format_of(path, endings)?,
    };
    Ok(Some(Export { output, format }))
}
