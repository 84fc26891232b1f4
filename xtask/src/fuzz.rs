//! `cargo xtask fuzz`: feeds damaged files and texts to the daemon's readers, guided by coverage.
//!
//! The targets are laid out as cargo-fuzz has it, which works on them too; this one needs neither it nor a nightly
//! compiler. What is found to reach new code is kept in the target directory, and `--keep` takes a little of it into
//! the repository.

mod output;
mod seeds;

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    at_once,
    error::{Error, Result},
    sh, workspace,
};
use output::Statistics;

/// Targets, and the longest input of each in bytes.
const TARGETS: [(&str, usize); 10] = [
    ("eh_frame", 4096),
    ("kept", 4096),
    ("recording", 2048),
    ("recorded", 4096),
    ("dwarf", 8192),
    ("elf", 12288),
    ("perf_map", 2048),
    ("maps", 1024),
    ("scope", 256),
    ("name", 512),
];
/// What makes the compiler count edges and report comparisons: libFuzzer is guided by both.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// The flags would reach build scripts and macros too if no platform were named.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// An input that takes more resident memory than this fails, in MiB.
const MEMORY_LIMIT_MIB: u32 = 1024;
/// So does one that takes longer, in seconds.
const TIME_LIMIT_S: u32 = 10;
/// How long CI feeds each target, in seconds.
const SHORT_S: u32 = 10;
/// Most bytes of found inputs that are committed for a target, besides the seeds.
const KEPT_BYTES_MAX: u64 = 24 << 10;
/// How the names of inputs begin that are written by [`seeds`].
const SEED: &str = "seed-";
/// How many lines of the output tell what went wrong.
const FAILURE_LINES: usize = 40;

/// What `cargo xtask fuzz` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The targets to feed; all, one after the other, if none is named
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS.map(|(name, _)| name)))]
    targets: Vec<String>,
    /// How long each target is fed, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Then take some of what was found into the corpus that is committed, the shortest first
    #[arg(long)]
    keep: bool,
    /// Only write the inputs that all others were made from
    #[arg(long, conflicts_with_all = ["targets", "keep"])]
    seeds: bool,
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    if arguments.seeds {
        return seeds::write(&workspace::root().join("fuzz/corpus"));
    }
    let folder = build()?;
    let named = |name: &str| arguments.targets.is_empty() || arguments.targets.iter().any(|one| one == name);
    let targets: Vec<Target> = TARGETS
        .iter()
        .filter(|(name, _)| named(name))
        .map(|&(name, length_max)| Target::new(&folder, name, length_max))
        .collect();
    for target in &targets {
        target.feed(arguments.seconds)?;
        if arguments.keep {
            target.keep()?;
        }
    }
    Ok(())
}

/// What CI runs: every target over its corpus and a little further. One that fails does not keep others from running.
pub fn short(building: Building) -> Result<()> {
    let folder = building.end()?;
    at_once::map(&TARGETS, |&(name, length_max)| {
        Target::new(&folder, name, length_max).feed(SHORT_S)
    })
    .into_iter()
    .collect()
}

/// Builds the targets; returns the folder of the executables.
fn build() -> Result<PathBuf> {
    sh::run(&mut build_by(sh::cargo()))?;
    Ok(built_folder())
}

/// A build of the targets beside something else, which has the CPUs first.
pub struct Building {
    command: Command,
    child: Child,
}

impl Building {
    /// Begins it.
    pub fn begin() -> Result<Self> {
        // Threads of this policy run where no other would (sched(7), SCHED_IDLE).
        let mut idle = Command::new("chrt");
        idle.args(["--idle", "0"]);
        let mut command = build_by(sh::cargo_under(idle));
        // Its lines would be amid those of others.
        let child = sh::begin(command.arg("--quiet"))?;
        Ok(Self { command, child })
    }

    /// Waits for its end; returns the folder of the executables.
    fn end(mut self) -> Result<PathBuf> {
        sh::end(&self.command, &mut self.child)?;
        Ok(built_folder())
    }
}

/// Where something else has failed meanwhile, nobody waits for it.
impl Drop for Building {
    fn drop(&mut self) {
        // One that has ended cannot be ended again.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// Adds to `cargo` that it builds the targets.
fn build_by(mut command: Command) -> Command {
    command
        .args(["build", "--release", "--locked", "--bins", "--target", PLATFORM])
        .args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
        .arg(target_folder())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", FLAGS);
    command
}

/// Where the executables are once they are built.
fn built_folder() -> PathBuf {
    target_folder().join(PLATFORM).join("release")
}

/// Apart from everything else's: other flags would build all of it anew.
fn target_folder() -> PathBuf {
    workspace::target().join("fuzz")
}

struct Target {
    name: &'static str,
    length_max: usize,
    program: PathBuf,
    /// Inputs that were found here.
    found: PathBuf,
    /// Those that are committed.
    committed: PathBuf,
    /// Inputs that failed.
    failed: PathBuf,
    log: PathBuf,
}

impl Target {
    fn new(folder: &Path, name: &'static str, length_max: usize) -> Self {
        let sources = workspace::root().join("fuzz");
        Self {
            name,
            length_max,
            program: folder.join(name),
            found: target_folder().join("corpus").join(name),
            committed: sources.join("corpus").join(name),
            failed: sources.join("artifacts").join(name),
            log: target_folder().join(format!("{name}.log")),
        }
    }

    /// Runs all inputs there are, then makes new ones of them.
    fn feed(&self, seconds: u32) -> Result<()> {
        for folder in [&self.found, &self.committed, &self.failed] {
            fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
        }
        let mut command = Command::new(&self.program);
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"))
            .arg(format!("-timeout={TIME_LIMIT_S}"))
            .arg(format!("-max_len={}", self.length_max))
            .arg(format!("-artifact_prefix={}/", self.failed.display()))
            .args(["-print_final_stats=1", "-reload=0"])
            .args([&self.found, &self.committed]);
        let text = self.run(&mut command)?;
        let statistics = Statistics::read(&text);
        println!("{:9} {statistics}", self.name);
        Ok(())
    }

    /// Replaces the committed inputs, seeds apart, by the shortest of those that are needed to reach as many edges.
    fn keep(&self) -> Result<()> {
        let least = target_folder().join("least").join(self.name);
        if least.exists() {
            fs::remove_dir_all(&least).map_err(Error::file("remove", &least))?;
        }
        fs::create_dir_all(&least).map_err(Error::file("create", &least))?;
        let mut command = Command::new(&self.program);
        command
            .args(["-set_cover_merge=1", "-use_counters=0", "-use_cmp=0"])
            .arg(format!("-max_len={}", self.length_max))
            .args([&least, &self.committed, &self.found]);
        self.run(&mut command)?;
        let is_seed = |input: &Input| {
            input
                .path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(SEED))
        };
        for input in inputs(&self.committed)?.iter().filter(|input| !is_seed(input)) {
            fs::remove_file(&input.path).map_err(Error::file("remove", &input.path))?;
        }
        let mut kept = 0;
        for Input { bytes, path } in inputs(&least)? {
            kept += bytes;
            if kept > KEPT_BYTES_MAX {
                break;
            }
            let to = self.committed.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &to).map_err(Error::file("copy", &path))?;
        }
        Ok(())
    }

    /// Runs the target with its output in the log, and returns that. A failure shows the log's end.
    fn run(&self, command: &mut Command) -> Result<String> {
        println!("  $ {}", sh::display(command));
        let mut log = File::create(&self.log).map_err(Error::file("create", &self.log))?;
        command
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start {
                command: sh::display(command),
                directory: workspace::root().to_path_buf(),
                source,
            })?;
        let mut text = String::new();
        if let Some(stderr) = child.stderr.take() {
            for line in BufReader::new(stderr)
                .split(b'\n')
                .map_while(std::result::Result::ok)
            {
                let line = String::from_utf8_lossy(&line);
                writeln!(log, "{line}").map_err(Error::file("write", &self.log))?;
                text.push_str(&line);
                text.push('\n');
            }
        }
        let status = child.wait().map_err(Error::file("wait for", &self.program))?;
        if status.success() {
            return Ok(text);
        }
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(FAILURE_LINES)..].join("\n");
        Err(Error::told(format!(
            "{} failed: {status}\n{end}\nThe input: see the line above. To run it alone: {} INPUT",
            self.name,
            self.program.display()
        )))
    }
}

/// An input in a file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Input {
    bytes: u64,
    path: PathBuf,
}

/// The inputs in a folder, the shortest first.
fn inputs(folder: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let path = entry.map_err(Error::file("list", folder))?.path();
        let bytes = path.metadata().map_err(Error::file("read", &path))?.len();
        inputs.push(Input { bytes, path });
    }
    inputs.sort();
    Ok(inputs)
}
