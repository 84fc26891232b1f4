//! `cargo xtask vm`: the privileged suite on other kernels, in virtual machines without KVM.

mod apt;
mod console;
mod cpio;
mod emulator;
mod initramfs;
mod kernel;
mod part;
mod qemu;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::{
    at_once,
    error::{Error, Result},
    fixtures,
    libtest::{Counts, Log, REPORT_TIME},
    programs, sh, workspace,
};
use emulator::Emulator;
pub use initramfs::Program;
pub use kernel::DEFAULT;
pub use part::part;

/// How long a machine may take: it emulates every instruction of the suite.
pub const LIMIT: Duration = Duration::from_mins(40);

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
    /// Of the privileged suite, the tests that CI runs on each kernel
    #[arg(long, conflicts_with_all = ["filter", "program"])]
    part: bool,
    /// Put this program into the machines too, with its libraries: bpftrace, for the tests that count beside it
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// A machine's time limit
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT.as_secs())]
    timeout: u64,
}

/// How often a machine is booted whose emulator breaks its kernel's code: what happens twice may be a fault of ours.
const BOOTS_MAX: usize = 2;

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
    /// What the suite says of its tests.
    pub log: Log,
    /// What it printed, by lines.
    pub console: Vec<String>,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// Why it was booted again, each time.
    pub booted_again: Vec<String>,
}

impl Report {
    /// Whether the kernel complained of itself. It need not do so again.
    pub fn complains(&self) -> bool {
        self.complaint().is_some()
    }

    /// What the kernel said the first time that it complained of itself.
    fn complaint(&self) -> Option<String> {
        let first = self.console.iter().position(|line| console::is_complaint(line))?;
        let said = console::complaint(&self.console[first..]);
        Some(format!("the kernel complained of itself:\n{}", said.join("\n")))
    }

    /// Whether the emulator had a CPU run code of the kernel that was written over.
    fn ran_stale_code(&self) -> bool {
        let first = self.console.iter().find(|line| console::is_complaint(line));
        first.is_some_and(|line| console::is_stale_breakpoint(line))
    }

    /// Tests that have failed, by what it has printed of each: of one that was cut off, nothing else tells.
    fn failed_so_far(&self) -> Vec<&str> {
        let lines = self.console.iter();
        let failed = lines.filter_map(|line| line.split_once(" ... FAILED"));
        failed
            .map(|(test, _)| test.strip_prefix("test ").unwrap_or(test))
            .collect()
    }

    /// The report in one line.
    pub fn line(&self) -> String {
        let Self {
            kernel,
            package,
            boot,
            total,
            log,
            console: _,
            failure,
            booted_again: _,
        } = self;
        let boot = boot.map_or_else(
            || "never booted".to_owned(),
            |boot| format!("booted in {:.1} s", boot.as_secs_f64()),
        );
        let failure = failure
            .as_ref()
            .map_or_else(String::new, |text| format!(": {text}"));
        let Counts {
            passed,
            failed,
            skipped,
            summaries: _,
        } = log.counts();
        format!(
            "{kernel} ({package}): {boot}, {:.1} s in all, {passed} passed, {failed} failed, {skipped} skipped{failure}",
            total.as_secs_f64()
        )
    }
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let tests = |kernel: &str| {
        if arguments.part {
            part(kernel)
        } else {
            Tests::containing(arguments.filter.clone())
        }
    };
    let suite = match &arguments.program {
        Some(program) => Suite {
            program: program.clone(),
            object: arguments.object.clone(),
            ignored: false,
            beside: arguments.with.clone(),
        },
        None => Suite {
            program: build_suite()?,
            object: arguments.object.clone(),
            ignored: true,
            beside: arguments.with.clone(),
        },
    };
    let limit = Duration::from_secs(arguments.timeout);
    for kernel in &arguments.kernels {
        kernel::Spec::parse(kernel)?;
    }
    let machines = Machines::prepare(&suite)?;
    let reports = at_once::map(&arguments.kernels, |kernel| {
        machines.run(kernel, &tests(kernel), limit)
    })
    .into_iter()
    .collect::<Result<Vec<_>>>()?;
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
    /// Programs that are there too.
    pub beside: Vec<PathBuf>,
}

/// Which tests of a suite run.
#[derive(Debug, Clone)]
pub enum Tests {
    /// By parts of their names.
    Chosen {
        /// One of these is in it; any may be, where there is none.
        containing: Vec<String>,
        /// None of these is in it.
        without: Vec<String>,
    },
    /// Those of these names.
    Named(Vec<String>),
}

impl Tests {
    /// Those whose names contain one of these; all, where there is none.
    pub fn containing(parts: Vec<String>) -> Self {
        Self::Chosen {
            containing: parts,
            without: Vec::new(),
        }
    }

    /// As the test harness is told.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            Self::Chosen { containing, without } => {
                let skipped = without.iter().flat_map(|part| ["--skip", part]);
                let containing = containing.iter().map(String::as_str);
                containing.chain(skipped).map(str::to_owned).collect()
            }
            Self::Named(names) => [&["--exact".to_owned()], names.as_slice()].concat(),
        }
    }
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
    let image = directory()?.join("program.cpio");
    initramfs::write(&image, &vm_init()?, program, files)?;
    let emulator = Emulator::find(&directory()?)?;
    let report = qemu::boot(&emulator, &spec, &kernel::fetch(&spec)?, &image, limit);
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
    const SUITE: &str = "privileged";
    programs::build(&[SUITE])?
        .into_iter()
        .find(|program| program.target == SUITE)
        .map(|program| program.path)
        .ok_or_else(|| Error::told(format!("cargo named no program for the test `{SUITE}`")))
}

/// Images that were written.
static IMAGES: AtomicUsize = AtomicUsize::new(0);

/// What a suite needs in a machine, built.
#[derive(Debug)]
pub struct Machines {
    emulator: Emulator,
    init: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    files: Vec<PathBuf>,
}

impl Machines {
    /// Builds everything that the machines run.
    pub fn prepare(suite: &Suite) -> Result<Self> {
        let directory = directory()?;
        let mut arguments = vec!["--test-threads=1".to_owned()];
        arguments.extend(REPORT_TIME.arguments.map(str::to_owned));
        arguments.extend(suite.ignored.then(|| "--ignored".to_owned()));
        let mut environment = vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
            ("PROFILER_SCALE".to_owned(), "vm".to_owned()),
            (
                REPORT_TIME.variable.0.to_owned(),
                REPORT_TIME.variable.1.to_owned(),
            ),
        ];
        let mut files = suite.beside.clone();
        if suite.ignored {
            let fixtures = fixtures::compile()?;
            environment.push(("PROFILER_FIXTURES".to_owned(), fixtures.display().to_string()));
            files.extend(list(&fixtures)?);
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
        Ok(Self {
            emulator: Emulator::find(&directory)?,
            init: vm_init()?,
            program: strip(&suite.program, &directory)?,
            arguments,
            environment,
            files,
        })
    }

    /// Boots a kernel and runs tests on it. A kernel that cannot be had, or a machine that fails, is in its report.
    pub fn run(&self, kernel: &str, tests: &Tests, limit: Duration) -> Result<Report> {
        let spec = kernel::Spec::parse(kernel)?;
        let program = Program {
            path: self.program.clone(),
            arguments: [&self.arguments[..], &tests.arguments()].concat(),
            environment: self.environment.clone(),
        };
        // A kernel may be asked for more than once, and all at once.
        let number = IMAGES.fetch_add(1, Ordering::Relaxed);
        let image = directory()?.join(format!("machine-{number}.cpio"));
        initramfs::write(&image, &self.init, &program, &self.files)?;
        let mut booted_again = Vec::new();
        let mut report = self.boot(&spec, &image, limit);
        while report.ran_stale_code() && booted_again.len() + 1 < BOOTS_MAX {
            let complaint = report.complaint().unwrap_or_default();
            let failed = report.failed_so_far();
            let before = if failed.is_empty() {
                String::new()
            } else {
                format!(" after {} had failed", failed.join(", "))
            };
            let why = format!(
                "booted again, for the emulator had run code that was written over{before}: {complaint}"
            );
            println!("{kernel}: {why}");
            booted_again.push(why);
            report = self.boot(&spec, &image, limit);
        }
        report.booted_again = booted_again;
        if report.failure.is_none() && report.log.counts().summaries == 0 {
            report.failure = Some("the program ended without a test summary".to_owned());
        }
        if let Some(complaint) = report.complaint() {
            let failure = report
                .failure
                .take()
                .map_or_else(String::new, |failure| failure + "; ");
            report.failure = Some(failure + &complaint);
        }
        println!("{}", report.line());
        Ok(report)
    }

    fn boot(&self, spec: &kernel::Spec, image: &Path, limit: Duration) -> Report {
        match kernel::fetch(spec) {
            Ok(kernel) => qemu::boot(&self.emulator, spec, &kernel, image, limit),
            Err(error) => Report {
                kernel: spec.name.clone(),
                package: "no package".to_owned(),
                boot: None,
                total: Duration::ZERO,
                log: Log::default(),
                console: Vec::new(),
                failure: Some(error.to_string()),
                booted_again: Vec::new(),
            },
        }
    }
}

/// Where kernels, images and what goes into them are.
fn directory() -> Result<PathBuf> {
    let directory = workspace::target().join("vm");
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    Ok(directory)
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
