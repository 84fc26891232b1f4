//! Compiles the programs that the privileged suite uses as targets, as their manifest says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    sh, workspace,
};

/// The manifest's directory, from the repository's root.
const SOURCES: &str = "profiler-daemon/tests/fixtures/engine";

/// All take `-o EXECUTABLE SOURCE` behind their flags.
const COMPILERS: [&str; 4] = ["cc", "c++", "rustc", "go"];

/// One program of the manifest.
#[derive(Debug, PartialEq, Eq)]
struct Fixture {
    name: String,
    source: String,
    compiler: String,
    flags: Vec<String>,
}

/// Compiles what is missing or older than its sources; returns the directory of the executables.
pub fn compile() -> Result<PathBuf> {
    let sources = workspace::root().join(SOURCES);
    let manifest = sources.join("fixtures.json");
    let text = fs::read_to_string(&manifest).map_err(Error::file("read", &manifest))?;
    let fixtures = parse(&text).map_err(|what| Error::told(format!("{}: {what}", manifest.display())))?;
    let directory = workspace::target().join("fixtures");
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let newest = newest_source(&sources)?;
    for fixture in &fixtures {
        let executable = directory.join(&fixture.name);
        if modified(&executable).is_none_or(|built| built <= newest) {
            sh::run(
                Command::new(&fixture.compiler)
                    .current_dir(&sources)
                    .args(&fixture.flags)
                    .arg("-o")
                    .arg(&executable)
                    .arg(&fixture.source),
            )?;
        }
    }
    println!("{} fixtures in {}", fixtures.len(), directory.display());
    Ok(directory)
}

fn parse(text: &str) -> std::result::Result<Vec<Fixture>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    value
        .as_array()
        .ok_or("not a list")?
        .iter()
        .map(parse_one)
        .collect()
}

fn parse_one(entry: &Value) -> std::result::Result<Fixture, String> {
    let field = |name: &str| {
        entry[name]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("`{name}` is missing or not a string in {entry}"))
    };
    let name = field("name")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!(
            "`{name}` is no name for an executable: letters, digits and `_` only"
        ));
    }
    let compiler = field("compiler")?;
    if !COMPILERS.contains(&&*compiler) {
        return Err(format!(
            "unknown compiler `{compiler}` for {name}: {} are known",
            COMPILERS.join(", ")
        ));
    }
    let flags = entry["flags"]
        .as_array()
        .ok_or_else(|| format!("`flags` of {name} is missing or not a list"))?;
    let flags = flags
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    Ok(Fixture {
        name,
        source: field("source")?,
        compiler,
        flags,
    })
}

/// When the manifest, a source or a header last changed.
fn newest_source(directory: &Path) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(directory).map_err(Error::file("list", directory))? {
        let entry = entry.map_err(Error::file("list", directory))?;
        newest = modified(&entry.path()).map_or(newest, |time| newest.max(time));
    }
    Ok(newest)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads() {
        let text = r#"[{"name": "calls", "source": "calls.c", "compiler": "cc", "flags": ["-O2", "-g"], "truth": {}}]"#;
        let expected = Fixture {
            name: "calls".to_owned(),
            source: "calls.c".to_owned(),
            compiler: "cc".to_owned(),
            flags: vec!["-O2".to_owned(), "-g".to_owned()],
        };
        assert_eq!(parse(text).unwrap(), [expected]);
    }

    #[test]
    fn a_bad_manifest_says_where() {
        let broken = |entry: &str| parse(&format!("[{entry}]")).unwrap_err();
        assert!(broken(r#"{"name": "a"}"#).contains("`compiler` is missing"));
        assert!(broken(r#"{"name": "../a", "compiler": "cc"}"#).contains("no name for an executable"));
        assert!(broken(r#"{"name": "a", "compiler": "tcc"}"#).contains("unknown compiler `tcc`"));
        assert_eq!(parse("{}").unwrap_err(), "not a list");
    }
}
