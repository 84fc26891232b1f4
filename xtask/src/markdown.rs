//! Tables that tasks write into Markdown files, between two lines that name them.

use std::{fs, path::Path};

use crate::error::{Error, Result};

/// A table's place in a Markdown file: between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
#[derive(Clone, Copy, Debug)]
pub struct Place(&'static str);

impl Place {
    /// The place of that name.
    pub const fn named(name: &'static str) -> Self {
        Self(name)
    }

    fn begin(self) -> String {
        format!("<!-- {}:begin -->", self.0)
    }

    fn end(self) -> String {
        format!("<!-- {}:end -->", self.0)
    }
}

/// Replaces what stands at a place of a Markdown file.
pub fn write_into(path: &Path, place: Place, text: &str) -> Result<()> {
    let old = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let new = replace(&old, place, text).ok_or_else(|| {
        Error::told(format!(
            "{} has no lines `{}` and `{}` for the table to stand between",
            path.display(),
            place.begin(),
            place.end()
        ))
    })?;
    fs::write(path, new).map_err(Error::file("write", path))?;
    println!("written into {}", path.display());
    Ok(())
}

fn replace(old: &str, place: Place, text: &str) -> Option<String> {
    let (begin, end) = (place.begin(), place.end());
    let (before, rest) = old.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let [here, elsewhere] = ["bench", "bench-vm"].map(Place::named);
        let old = "# Title\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nrest\n";
        let new = replace(old, here, "new\n").unwrap();
        assert_eq!(new, old.replace("old", "new"));
        assert_eq!(replace(&new, here, "new\n").unwrap(), new);
        assert_eq!(replace(old, elsewhere, "new"), None);
    }
}
