//! Running other programs: each is echoed first, and an error names the command, its end and where it ran.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::{
    error::{Error, Result},
    workspace,
};

/// Bytes kept of a failed program's standard error.
const DETAIL_BYTES: usize = 4096;

/// Runs a program with our own input and output.
pub fn run(command: &mut Command) -> Result<()> {
    let mut child = begin(command)?;
    end(command, &mut child)
}

/// Starts a program with our own input and output, to go on beside other things.
pub fn begin(command: &mut Command) -> Result<Child> {
    echo(command);
    command.spawn().map_err(|source| start_error(command, source))
}

/// Waits for its end.
pub fn end(command: &Command, child: &mut Child) -> Result<()> {
    let status = child.wait().map_err(|source| start_error(command, source))?;
    if status.success() {
        Ok(())
    } else {
        Err(exit_error(command, status, ""))
    }
}

/// Runs a program silently and returns its standard output.
pub fn read(command: &mut Command) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| start_error(command, source))?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(exit_error(command, status, &String::from_utf8_lossy(&stderr)))
    }
}

/// Runs a program that tells of its progress on our standard error, and returns its standard output.
pub fn read_in_sight(command: &mut Command) -> Result<String> {
    echo(command);
    let (text, outcome) = gather(command);
    outcome.map(|()| text)
}

/// Runs a program silently and returns what it wrote to its standard output, with the outcome: the output is there even when
/// the program failed, for what it got done until then counts.
pub fn gather(command: &mut Command) -> (String, Result<()>) {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    match output {
        Ok(Output { status, stdout, .. }) => {
            let text = String::from_utf8_lossy(&stdout).into_owned();
            let outcome = if status.success() {
                Ok(())
            } else {
                Err(exit_error(command, status, ""))
            };
            (text, outcome)
        }
        Err(source) => (String::new(), Err(start_error(command, source))),
    }
}

/// Runs a program, and passes its standard output on line by line, to ours (behind a prefix, if others run beside it) and to who
/// reads it here as it comes.
pub fn tee(command: &mut Command, prefix: &str, mut read: impl FnMut(&str)) -> Result<()> {
    echo(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| start_error(command, source))?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        // An unreadable pipe is the same as one that ended: the exit status decides.
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let line_text = String::from_utf8_lossy(&line);
            print!("{prefix}{line_text}");
            read(line_text.trim_end_matches('\n'));
            line.clear();
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(exit_error(command, status, "")),
        Err(source) => Err(start_error(command, source)),
    }
}

/// `cargo` of the running toolchain, in the workspace, free of what the outer `cargo run` exported.
///
/// Left in place, the outer package's variables would reach build scripts and make them run again.
pub fn cargo() -> Command {
    in_workspace(Command::new(cargo_program()))
}

/// The same, started by another program, which takes a command line as its last arguments.
pub fn cargo_under(mut starter: Command) -> Command {
    starter.arg(cargo_program());
    in_workspace(starter)
}

fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn in_workspace(mut command: Command) -> Command {
    command.current_dir(workspace::root());
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// Where a program is: on the PATH, else in cargo's own binary directory (which `sudo` often drops).
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([workspace::cargo_home().join("bin")])
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Whether this process has all of root's rights.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes no pointer and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The command line as it would be typed, for messages.
pub fn display(command: &Command) -> String {
    let quote = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{word}'")
        }
    };
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quote)
        .collect::<Vec<_>>()
        .join(" ")
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn echo(command: &Command) {
    println!("  $ {}", display(command));
    // The program writes to the same terminal or file: its lines must come after ours.
    let _ = std::io::stdout().flush();
}

fn directory_of(command: &Command) -> PathBuf {
    command
        .get_current_dir()
        .map_or_else(|| env::current_dir().unwrap_or_default(), Path::to_path_buf)
}

fn start_error(command: &Command, source: std::io::Error) -> Error {
    Error::Start {
        command: display(command),
        directory: directory_of(command),
        source,
    }
}

fn exit_error(command: &Command, status: std::process::ExitStatus, stderr: &str) -> Error {
    let stderr = stderr.trim_end();
    let mut from = stderr.len().saturating_sub(DETAIL_BYTES);
    while !stderr.is_char_boundary(from) {
        from += 1;
    }
    let detail = if stderr.is_empty() {
        String::new()
    } else {
        format!("\n{}", &stderr[from..])
    };
    Error::Exit {
        command: display(command),
        directory: directory_of(command),
        status,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_command_status_place_and_words() {
        let error = read(
            Command::new("sh")
                .args(["-c", "echo no such thing >&2; exit 3"])
                .current_dir("/"),
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("sh -c 'echo no such thing >&2; exit 3'"),
            "{error}"
        );
        assert!(error.contains("in /: exit status: 3\nno such thing"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err().to_string();
        assert!(
            error.starts_with("could not start `no-such-program` in "),
            "{error}"
        );
    }

    #[test]
    fn output_before_a_failure_is_read() {
        let mut lines = Vec::new();
        let outcome = tee(
            Command::new("sh").args(["-c", "echo done; echo; exit 1"]),
            "",
            |line| lines.push(line.to_owned()),
        );
        assert_eq!(lines, ["done", ""]);
        assert!(outcome.is_err());
    }
}
