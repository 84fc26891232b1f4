//! Readers of other tools' formats, which `cargo xtask setup --programs` installs under `target/tools/readers`.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{has_program, skipped};

/// The path of a file among them, whether it is there or not.
pub fn reader(path: &str) -> PathBuf {
    // The test's own program is below `target`, wherever that is.
    let program = env::current_exe().unwrap();
    let installed = program.ancestors().map(|folder| folder.join("tools/readers"));
    let installed = installed.into_iter().find(|folder| folder.exists());
    installed.unwrap_or_default().join(path)
}

/// Python, with a module. Where it has not, the calling test is skipped.
pub fn python(module: &str) -> Option<Command> {
    let command = || {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", reader("python"));
        command
    };
    let status = command()
        .args(["-c", &format!("import {module}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if status.is_ok_and(|status| status.success()) {
        return Some(command());
    }
    skipped(format_args!("Python has no module {module}"));
    None
}

/// Where a package of npm is. Where it is not, or nothing runs it, the calling test is skipped.
pub fn npm_package(name: &str) -> Option<PathBuf> {
    let path = reader("node_modules").join(name);
    if !has_program("node") {
        return None;
    }
    if path.exists() {
        return Some(path);
    }
    skipped(format_args!("npm's package {name} is not installed"));
    None
}
