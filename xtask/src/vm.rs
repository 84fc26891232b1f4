//! `cargo xtask vm`: the privileged suite on other kernels, in virtual machines without KVM.

mod apt;
mod console;
mod cpio;
mod initramfs;
mod kernel;
mod qemu;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    error::{Error, Result},
    fixtures,
    libtest::Counts,
    sh, workspace,
};
pub use initramfs::Program;
pub use kernel::DEFAULT;

/// What `cargo xtask vm` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernels to boot, such as 6.1, or 6.12-preempt for one that is booted with `preempt=full`
    #[arg(value_name = "KERNEL", default_values = DEFAULT)]
    kernels: Vec<String>,
    /// The eBPF object to test instead of the embedded one
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Run this test program instead of the privileged suite
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Only tests whose name contains this; may be repeated
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Put this program into the machines too, with its libraries: bpftrace, for the tests that count beside it
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// A machine's time limit
    #[arg(long, value_name = "SECONDS", default_value = "1200")]
    timeout: u64,
}

/// How a machine's run ended.
#[derive(Debug)]
pub struct Report {
    /// The kernel as asked for.
    pub kernel: String,
    /// The package that it came from.
    pub package: String,
    /// From QEMU's start to the test program's.
    pub boot: Option<Duration>,
    /// From QEMU's start to its end.
    pub total: Duration,
    /// Tests by the suite's own summaries.
    pub counts: Counts,
    /// What it printed, by lines.
    pub console: Vec<String>,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
}

impl Report {
    /// Whether the kernel complained of itself. It need not do so again.
    pub fn complains(&self) -> bool {
        self.console.iter().any(|line| console::is_complaint(line))
    }

    /// The report in one line.
    pub fn line(&self) -> String {
        let Self {
            kernel,
            package,
            boot,
            total,
            counts,
            console: _,
            failure,
        } = self;
        let boot = boot.map_or_else(
            || "never booted".to_owned(),
            |boot| format!("booted in {:.1} s", boot.as_secs_f64()),
        );
        let failure = failure
            .as_ref()
            .map_or_else(String::new, |text| format!(": {text}"));
        let (passed, failed) = (counts.passed, counts.failed);
        format!(
            "{kernel} ({package}): {boot}, {:.1} s in all, {passed} passed, {failed} failed{failure}",
            total.as_secs_f64()
        )
    }
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let tests = Tests::Containing(arguments.filter.clone());
    let suite = match &arguments.program {
        Some(program) => Suite {
            program: program.clone(),
            object: arguments.object.clone(),
            ignored: false,
            tests,
            beside: arguments.with.clone(),
        },
        None => Suite {
            program: build_suite()?,
            object: arguments.object.clone(),
            ignored: true,
            tests,
            beside: arguments.with.clone(),
        },
    };
    let limit = Duration::from_secs(arguments.timeout);
    let reports = run(&arguments.kernels, &suite, limit)?;
    println!();
    for report in &reports {
        println!("{}", report.line());
    }
    let failures = reports.iter().filter(|report| report.failure.is_some()).count();
    if failures == 0 {
        Ok(())
    } else {
        Err(Error::told(format!(
            "{failures} of {} machines failed",
            reports.len()
        )))
    }
}

/// What runs in the machines.
#[derive(Debug)]
pub struct Suite {
    /// A test program of Rust's harness.
    pub program: PathBuf,
    /// The eBPF object to test instead of the embedded one.
    pub object: Option<PathBuf>,
    /// Whether its tests are ignored by default.
    pub ignored: bool,
    /// Which of them run.
    pub tests: Tests,
    /// Programs that are there too.
    pub beside: Vec<PathBuf>,
}

/// Which tests of a suite run.
#[derive(Debug, Clone)]
pub enum Tests {
    /// Those whose names contain one of these; all, where there is none.
    Containing(Vec<String>),
    /// Those whose names contain none of these.
    Without(Vec<String>),
    /// Those of these names.
    Named(Vec<String>),
}

impl Tests {
    /// As the test harness is told.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            Self::Containing(parts) => parts.clone(),
            Self::Without(parts) => {
                let skipped = parts.iter().flat_map(|part| ["--skip", part]);
                skipped.map(str::to_owned).collect()
            }
            Self::Named(names) => [&["--exact".to_owned()], names.as_slice()].concat(),
        }
    }
}

/// Boots one machine after the other: two at once would share what two CPUs give, and distort every timing.
///
/// A kernel that cannot be had, or a machine that fails, is in its report and stops none of the others.
pub fn run(kernels: &[String], suite: &Suite, limit: Duration) -> Result<Vec<Report>> {
    let specs = kernels
        .iter()
        .map(|name| kernel::Spec::parse(name))
        .collect::<Result<Vec<_>>>()?;
    let image = make_image(suite)?;
    let reports = specs.into_iter().map(|spec| match kernel::fetch(&spec) {
        Ok(kernel) => {
            let report = qemu::boot(&spec, &kernel, &image, limit);
            if report.failure.is_none() || !report.console.iter().any(|line| console::is_stale(line)) {
                return report;
            }
            println!("{}", report.line());
            println!(
                "{}: the emulator ran code that the kernel had rewritten: once more",
                spec.name
            );
            qemu::boot(&spec, &kernel, &image, limit)
        }
        Err(error) => Report {
            kernel: spec.name,
            package: "no package".to_owned(),
            boot: None,
            total: Duration::ZERO,
            counts: Counts::default(),
            console: Vec::new(),
            failure: Some(error.to_string()),
        },
    });
    let judged = reports.map(|mut report| {
        if report.failure.is_none() && report.counts.summaries == 0 {
            report.failure = Some("the program ended without a test summary".to_owned());
        }
        if report.complains() {
            let failure = report
                .failure
                .take()
                .map_or_else(String::new, |failure| failure + "; ");
            report.failure = Some(failure + "the kernel complained of itself");
        }
        report
    });
    Ok(judged.inspect(|report| println!("{}", report.line())).collect())
}

/// Runs one program, which is not a test, on one kernel; gives what it printed.
///
/// # Errors
/// Where the kernel cannot be had, or the program does not end well within the limit.
pub fn run_program(
    kernel: &str,
    program: &Program,
    files: &[PathBuf],
    limit: Duration,
) -> Result<Vec<String>> {
    let spec = kernel::Spec::parse(kernel)?;
    let directory = workspace::target().join("vm");
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let image = directory.join("program.cpio");
    initramfs::write(&image, &vm_init()?, program, files)?;
    let report = qemu::boot(&spec, &kernel::fetch(&spec)?, &image, limit);
    match report.failure {
        None => Ok(report.console),
        Some(failure) => Err(Error::told(format!("{kernel}: {failure}"))),
    }
}

/// Builds the machines' first process.
fn vm_init() -> Result<PathBuf> {
    sh::run(sh::cargo().args(["build", "-p", "xtask", "--bin", "vm-init"]))?;
    Ok(workspace::target().join("debug/vm-init"))
}

/// Builds the privileged suite and returns its program.
pub fn build_suite() -> Result<PathBuf> {
    let mut command = sh::cargo();
    command.args([
        "test",
        "--no-run",
        "--profile=emulated",
        "--message-format=json",
        "-p",
        "profiler-daemon",
        "--test",
        "privileged",
    ]);
    let messages = sh::read(&mut command)?;
    test_program(&messages, "privileged")
        .ok_or_else(|| Error::told("cargo named no program for the test `privileged` of profiler-daemon"))
}

/// The program of a test target, from cargo's JSON messages.
fn test_program(messages: &str, target: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == target && message["profile"]["test"] == true)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn make_image(suite: &Suite) -> Result<PathBuf> {
    let directory = workspace::target().join("vm");
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let init = vm_init()?;
    let fixtures = if suite.ignored {
        Some(fixtures::compile()?)
    } else {
        None
    };
    let program = strip(&suite.program, &directory)?;
    let mut arguments = vec!["--test-threads=1".to_owned()];
    arguments.extend(suite.ignored.then(|| "--ignored".to_owned()));
    arguments.extend(suite.tests.arguments());
    let mut environment = vec![
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
        ("PROFILER_SCALE".to_owned(), "vm".to_owned()),
    ];
    let mut files = suite.beside.clone();
    if let Some(directory) = &fixtures {
        environment.push(("PROFILER_FIXTURES".to_owned(), directory.display().to_string()));
        files.extend(list(directory)?);
    }
    if let Some(object) = &suite.object {
        let object = object.canonicalize().map_err(Error::file("find", object))?;
        environment.push(("PROFILER_OBJECT".to_owned(), object.display().to_string()));
        files.push(object);
    }
    // The suite starts the daemon and the client by the paths that cargo built them at.
    files.extend(
        ["profilerd", "profiler"]
            .map(|name| workspace::target().join("debug").join(name))
            .into_iter()
            .filter(|path| path.exists()),
    );
    let program = Program {
        path: program,
        arguments,
        environment,
    };
    let image = directory.join("initramfs.cpio");
    initramfs::write(&image, &init, &program, &files)?;
    Ok(image)
}

/// A copy without debug information: the machines' memory is small, and loading an image takes its time.
fn strip(program: &Path, directory: &Path) -> Result<PathBuf> {
    let stripped = directory.join("suite");
    sh::run(
        std::process::Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(&stripped)
            .arg(program),
    )?;
    Ok(stripped)
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(Error::file("list", directory))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(Error::file("list", directory))?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"privileged"},"profile":{"test":false},"executable":"/no"}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","target":{"name":"privileged"},"profile":{"test":true},"executable":"/t/p-1"}"#,
            "\n",
        );
        assert_eq!(
            test_program(messages, "privileged"),
            Some(PathBuf::from("/t/p-1"))
        );
        assert_eq!(test_program(messages, "other"), None);
    }
}
