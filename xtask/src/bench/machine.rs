//! `cargo xtask bench --vm KERNEL`: what it is worth that the programs do the probed instructions themselves, on a
//! kernel that lets them. This program runs again inside the machine, with `--inside`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Arguments, MACHINE_CASES, attacher::Attacher, finish, measure_calls, table};
use crate::{
    error::{Error, Result},
    vm,
};

const LIMIT: Duration = Duration::from_mins(20);

/// Boots the machine, and takes the table from what it prints.
pub fn main(arguments: &Arguments, kernel: &str, attacher: &Path, target: &Path) -> Result<()> {
    let path = std::env::current_exe().map_err(Error::file("find", "this program"))?;
    let words = [
        "bench",
        "--rounds",
        &arguments.rounds.to_string(),
        "--calls",
        &arguments.calls.to_string(),
        "--inside",
        &attacher.to_string_lossy(),
        &target.to_string_lossy(),
    ];
    let program = vm::Program {
        path,
        arguments: words.map(str::to_owned).into(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
    };
    let console = vm::run_program(kernel, &program, &[attacher.to_owned(), target.to_owned()], LIMIT)?;
    finish(arguments, table::MACHINE, &table_of(&console))
}

/// Measures, in the machine.
pub fn inside(arguments: &Arguments, programs: &[PathBuf]) -> Result<()> {
    let [attacher, target] = programs else {
        return Err(Error::told("--inside takes two programs"));
    };
    let rows = measure_calls(arguments, &MACHINE_CASES, &mut Attacher::start(attacher)?, target)?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(Error::file("read", "/proc/sys/kernel/osrelease"))?;
    println!("{BEGIN}");
    print!(
        "{}",
        table::instructions(&rows, &format!("Linux {}", release.trim()))
    );
    println!("{END}");
    Ok(())
}

const BEGIN: &str = "table:";
const END: &str = "end of the table";

fn table_of(console: &[String]) -> String {
    let lines = console.iter().skip_while(|line| *line != BEGIN).skip(1);
    lines
        .take_while(|line| *line != END)
        // What the kernel says comes in between.
        .filter(|line| !line.starts_with('['))
        .fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_found_on_the_console() {
        let console = ["noise", BEGIN, "| a |", "[ 1.2] hrtimer", "|---|", END, "noise"].map(str::to_owned);
        assert_eq!(table_of(&console), "| a |\n|---|\n");
        assert_eq!(table_of(&[]), "");
    }
}
