//! One machine's run under QEMU, emulated in full: KVM is not to be had in most build machines.
//!
//! Each CPU of a machine is a thread: which QEMU does that well is [`super::emulator`]'s matter. One thread for all CPUs
//! takes three times as long, and calls that take turns with another CPU have no duration to speak of.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{
    Report, console,
    console::Event,
    emulator::Emulator,
    kernel::{Kernel, Spec},
};
use crate::{held_up, libtest::Log};

const MEMORY_MIB: &str = "3072";
const CPUS: &str = "2";
/// Console lines waiting to be read.
const LINES_MAX: usize = 1024;
/// Bytes kept of one console line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// For how long a machine may print nothing while it has its CPUs: it stands still, or a test in it waits for what does
/// not come. The slowest tests take a minute.
const SILENCE_MAX: Duration = Duration::from_mins(6);
/// The shortest wait for another line.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// Ends the machine when it goes out of scope.
struct Machine(Child);

impl Machine {
    fn end(&mut self) {
        // Both fail only where it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// When a machine is given up.
struct Limits {
    start: Instant,
    /// For its whole run.
    total: Duration,
    /// For a time without a line.
    silence: Duration,
}

/// The time since a machine's last line.
struct Silence {
    since: Instant,
    /// For how long its CPUs had been kept from it by then, and are now.
    held_up_before: Duration,
    held_up_now: Duration,
}

impl Silence {
    fn begin(held_up: Duration) -> Self {
        Self {
            since: Instant::now(),
            held_up_before: held_up,
            held_up_now: held_up,
        }
    }

    /// The part of it in which the machine's CPUs were kept from it: it could not have printed anything.
    fn held_up(&self) -> Duration {
        self.held_up_now.saturating_sub(self.held_up_before)
    }

    /// The rest of it.
    fn of_its_own(&self) -> Duration {
        self.since.elapsed().saturating_sub(self.held_up())
    }
}

/// Boots a kernel with an image, passes its console on, and reports.
pub fn boot(emulator: &Emulator, spec: &Spec, kernel: &Kernel, image: &Path, limit: Duration) -> Report {
    let mut report = Report {
        kernel: spec.name.clone(),
        package: kernel.package.clone(),
        boot: None,
        total: Duration::ZERO,
        log: Log::default(),
        console: Vec::new(),
        failure: None,
        booted_again: Vec::new(),
    };
    let start = Instant::now();
    // Of what the kernel says, its complaints are shown: at level 5 with where they come from.
    let append = format!("console=ttyS0 loglevel=5 panic=-1 {}", spec.append);
    let spawned = emulator
        .command()
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            CPUS,
            "-m",
            MEMORY_MIB,
        ])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image)
        .args([
            "-append",
            append.trim_end(),
            "-nographic",
            "-no-reboot",
            "-nodefaults",
        ])
        .args(["-serial", "stdio", "-monitor", "none"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut machine = match spawned {
        Ok(child) => Machine(child),
        Err(error) => {
            report.failure = Some(format!("could not start QEMU: {error}; run `cargo xtask setup`"));
            return report;
        }
    };
    println!("booting {} ({})", spec.name, kernel.package);
    let pid = machine.0.id();
    if let Some(stdout) = machine.0.stdout.take() {
        let held_up = || held_up::waited(pid) + held_up::stolen();
        let limits = Limits {
            start,
            total: limit,
            silence: SILENCE_MAX,
        };
        let end = || machine.end();
        follow(&read_lines(stdout), &limits, held_up, end, &mut report);
    }
    report.total = start.elapsed();
    report
}

/// Reads the console until the program's end, the machine's end or a limit; `held_up` tells for how long the machine's
/// CPUs have been kept from it, `end` ends it.
fn follow(
    lines: &Receiver<String>,
    limits: &Limits,
    held_up: impl Fn() -> Duration,
    end: impl FnOnce(),
    report: &mut Report,
) {
    let start = limits.start;
    let mut failure = Some("the machine ended before its program did".to_owned());
    let mut silence = Silence::begin(held_up());
    loop {
        let left = limits.total.saturating_sub(start.elapsed());
        let left_silent = limits.silence.saturating_sub(silence.of_its_own());
        let line = match lines.recv_timeout(left.min(left_silent.max(WAIT_MIN))) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                silence.held_up_now = held_up();
                let is_over = start.elapsed() >= limits.total;
                if !is_over && silence.of_its_own() < limits.silence {
                    continue;
                }
                end();
                // The name of the test that runs has no end of line yet: it comes with the end of the console.
                follow_to_the_end(lines, LINES_MAX, PATIENCE_ENDED, start, report);
                failure = Some(given_up(is_over, limits, &silence, report));
                break;
            }
        };
        silence = Silence::begin(held_up());
        let event = console::event(&line);
        take_line(line, start, silence.held_up_now, report);
        match event {
            Event::Text => {}
            Event::Running => report.boot = Some(start.elapsed()),
            Event::Exited(0) => {
                failure = None;
                break;
            }
            Event::Exited(status) => {
                failure = Some(format!("the program's exit status was {status}"));
                break;
            }
            Event::Broken(why) => {
                failure = Some(why);
                follow_to_the_end(lines, LINES_BROKEN, PATIENCE_BROKEN, start, report);
                break;
            }
        }
    }
    report.failure = failure;
}

/// Why a machine that went on too long was ended, with what it printed last.
fn given_up(is_over: bool, limits: &Limits, silence: &Silence, report: &Report) -> String {
    let last = report.console.last().map_or("nothing", String::as_str);
    if is_over {
        return format!(
            "not done within {} s; the last line: {last}",
            limits.total.as_secs()
        );
    }
    let held_up = match silence.held_up().as_secs() {
        0 => String::new(),
        seconds => format!(", without {seconds} s for which its CPUs were kept from it"),
    };
    format!(
        "silent for {} s{held_up}, after: {last}",
        limits.silence.as_secs()
    )
}

/// Lines that a kernel may say of what has just broken its machine.
const LINES_BROKEN: usize = 64;
/// How long each of them is waited for.
const PATIENCE_BROKEN: Duration = Duration::from_secs(1);
/// How long the rest of the console of a machine that was ended is waited for: it is there, but for the thread that reads it.
const PATIENCE_ENDED: Duration = Duration::from_secs(10);

/// Reads what a console that ends still says.
fn follow_to_the_end(
    lines: &Receiver<String>,
    most: usize,
    patience: Duration,
    start: Instant,
    report: &mut Report,
) {
    for _ in 0..most {
        let Ok(line) = lines.recv_timeout(patience) else {
            return;
        };
        take_line(line, start, Duration::ZERO, report);
    }
}

/// Passes a line on.
fn take_line(line: String, start: Instant, held_up: Duration, report: &mut Report) {
    println!(
        "[{} {:.1} s] {line}",
        report.kernel,
        start.elapsed().as_secs_f64()
    );
    report.log.read_live(&line, held_up);
    report.console.push(line);
}

/// Console lines, read by a thread that ends with the console or with the receiver.
fn read_lines(console: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_MAX);
    thread::spawn(move || {
        let mut console = BufReader::new(console);
        loop {
            let mut line = Vec::new();
            match console.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(length) if length > 0 => {}
                _ => return,
            }
            if sender.send(console::clean(&line)).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn report() -> Report {
        Report {
            kernel: "6.1".to_owned(),
            package: "p".to_owned(),
            boot: None,
            total: Duration::ZERO,
            log: Log::default(),
            console: Vec::new(),
            failure: None,
            booted_again: Vec::new(),
        }
    }

    fn limits(total: Duration, silence: Duration) -> Limits {
        Limits {
            start: Instant::now(),
            total,
            silence,
        }
    }

    fn followed(console: &'static str) -> Report {
        let mut report = report();
        let limits = limits(Duration::from_mins(1), Duration::from_mins(1));
        let lines = read_lines(console.as_bytes());
        follow(&lines, &limits, || Duration::ZERO, || {}, &mut report);
        report
    }

    /// A console that says something, and then nothing until its machine ends.
    struct Silent {
        said: &'static [u8],
        end: Receiver<()>,
    }

    impl Read for Silent {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.said.is_empty() {
                // Fails once the machine has ended, which is the end of its console.
                let _ = self.end.recv();
            }
            self.said.read(into)
        }
    }

    /// Follows a machine that says something and then nothing, until it is given up.
    fn given_up_on(said: &'static str, limits: &Limits, held_up: impl Fn() -> Duration) -> Report {
        let mut report = report();
        let (machine, end) = mpsc::channel();
        let lines = read_lines(Silent {
            said: said.as_bytes(),
            end,
        });
        follow(&lines, limits, held_up, || drop(machine), &mut report);
        report
    }

    #[test]
    fn a_good_run() {
        let report = followed(
            "vm-init: running after 1 s of uptime\r\n\
             test result: ok. 3 passed; 0 failed; 0 ignored\r\nvm-init: exit status 0\r\n",
        );
        assert_eq!(
            (
                report.log.counts().passed,
                report.log.counts().failed,
                report.failure
            ),
            (3, 0, None)
        );
        assert!(report.boot.is_some());
    }

    #[test]
    fn every_other_end_is_a_failure() {
        let failure = |console| followed(console).failure.unwrap();
        assert!(failure("vm-init: running\ntest a ... \n").contains("ended before"));
        assert!(
            failure("test result: FAILED. 1 passed; 1 failed\nvm-init: exit status 101\n").contains("101")
        );
        assert!(failure("Kernel panic - not syncing: x\nvm-init: exit status 0\n").contains("panic"));
    }

    #[test]
    fn the_time_limit_ends_a_silent_machine() {
        let limits = limits(Duration::ZERO, SILENCE_MAX);
        let report = given_up_on("", &limits, || Duration::ZERO);
        assert_eq!(
            report.failure.unwrap(),
            "not done within 0 s; the last line: nothing"
        );
    }

    #[test]
    fn a_machine_that_stands_still_is_ended_with_the_test_that_it_stands_still_in() {
        let limits = limits(Duration::from_mins(1), Duration::from_millis(1));
        let report = given_up_on("test a ... ok <0.1s>\ntest b ... ", &limits, || Duration::ZERO);
        let failure = report.failure.unwrap();
        assert!(
            failure.starts_with("silent for 0 s, after: test b ..."),
            "{failure}"
        );
        assert_eq!(report.log.times.len(), 1);
    }

    #[test]
    fn a_machine_whose_cpus_are_kept_from_it_is_not_silent() {
        const SILENCE: Duration = Duration::from_millis(20);
        let limits = limits(Duration::from_mins(1), SILENCE);
        let (asked, held_up) = (Cell::new(0), Cell::new(Duration::ZERO));
        // All the time at first, and then not any more.
        let until_now = || {
            asked.set(asked.get() + 1);
            if asked.get() <= 5 {
                held_up.set(limits.start.elapsed());
            }
            held_up.get()
        };
        let report = given_up_on("", &limits, until_now);
        assert!(asked.get() > 5, "{}", asked.get());
        assert!(limits.start.elapsed() >= held_up.get() + SILENCE);
        assert_eq!(report.failure.unwrap(), "silent for 0 s, after: nothing");
    }

    #[test]
    fn of_a_silent_machine_is_said_for_how_long_it_had_no_cpus() {
        let limits = limits(Duration::from_mins(40), SILENCE_MAX);
        let mut silence = Silence::begin(Duration::from_secs(5));
        let report = followed("test a ... ");
        let said = |silence: &Silence| given_up(false, &limits, silence, &report);
        assert_eq!(said(&silence), "silent for 360 s, after: test a ... ");
        silence.held_up_now = Duration::from_secs(47);
        assert_eq!(
            said(&silence),
            "silent for 360 s, without 42 s for which its CPUs were kept from it, after: test a ... "
        );
        assert!(given_up(true, &limits, &silence, &report).starts_with("not done within 2400 s"));
    }
}
