//! `cargo xtask protocol`: the protocol follows buf's rules, and understands those who were built with the released one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, Result},
    setup, sh, workspace,
};

/// The protocol as it was released last, compiled.
const RELEASED: &str = "released.binpb";

/// What `cargo xtask protocol` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Take the protocol as it is for the released one, with which it is compared from now on
    #[arg(long)]
    release: bool,
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let buf = setup::buf().ok_or_else(|| Error::told(MISSING))?;
    if arguments.release {
        return sh::run(
            command(&buf, &["build", "--exclude-source-info", "--output"]).arg(folder().join(RELEASED)),
        );
    }
    check(&buf)
}

const MISSING: &str = "buf is missing: run `cargo xtask setup --programs`";

fn check(buf: &Path) -> Result<()> {
    sh::run(&mut command(buf, &["lint"]))?;
    sh::run(command(buf, &["breaking", "--against"]).arg(folder().join(RELEASED)))
}

fn command(buf: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(buf);
    command.current_dir(folder()).args(arguments);
    command
}

fn folder() -> PathBuf {
    workspace::root().join("proto")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_follows_its_rules_and_breaks_no_released_client() {
        match setup::buf() {
            Some(buf) => check(&buf).unwrap(),
            None => println!(
                "skipped protocol::tests::the_protocol_follows_its_rules_and_breaks_no_released_client: {MISSING}"
            ),
        }
    }
}
