//! What the ending of a file's name says of its format.

use std::path::Path;

use super::super::exit::Failure;

/// The format of a file by the first of the endings that it has; the longer ones come first.
///
/// # Errors
///
/// A usage failure that says which endings there are.
pub(super) fn format_of<F: Copy>(path: &Path, endings: &[(&str, F)]) -> Result<F, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let format = endings.iter().find(|(ending, _)| name.ends_with(ending));
    format.map(|(_, format)| *format).ok_or_else(|| {
        let endings: Vec<&str> = endings.iter().map(|(ending, _)| *ending).collect();
        Failure::usage(format!(
            "`{}` ends in none of {}: say which format with --format.",
            path.display(),
            endings.join(" ")
        ))
    })
}
