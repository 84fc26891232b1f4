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

const MEMORY_MIB: &str = "2048";
const CPUS: &str = "2";
/// Console lines waiting to be read.
const LINES_MAX: usize = 1024;
/// Bytes kept of one console line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// For how long a machine may print nothing: it stands still, or a test in it waits for what does not come. The slowest
/// tests take a minute.
const SILENCE_MAX: Duration = Duration::from_mins(6);

/// Ends the machine when it goes out of scope.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only where it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
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
        follow(&read_lines(stdout), start, limit, held_up, &mut report);
    }
    report.total = start.elapsed();
    report
}

/// Reads the console until the program's end, the machine's end or the time limit; `held_up` tells for how long the
/// machine's CPUs have been kept from it.
fn follow(
    lines: &Receiver<String>,
    start: Instant,
    limit: Duration,
    held_up: impl Fn() -> Duration,
    report: &mut Report,
) {
    let mut failure = Some("the machine ended before its program did".to_owned());
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let line = match lines.recv_timeout(left.min(SILENCE_MAX)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                failure = Some(given_up(left, limit, report));
                break;
            }
        };
        let event = console::event(&line);
        take_line(line, start, held_up(), report);
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
                follow_to_the_end(lines, start, report);
                break;
            }
        }
    }
    report.failure = failure;
}

/// Why a machine that went on too long is ended, with what it printed last.
fn given_up(left: Duration, limit: Duration, report: &Report) -> String {
    let last = report.console.last().map_or("nothing", String::as_str);
    if left > SILENCE_MAX {
        format!("silent for {} s, after: {last}", SILENCE_MAX.as_secs())
    } else {
        format!("not done within {} s; the last line: {last}", limit.as_secs())
    }
}

/// Reads what the kernel says of what has just ended the machine.
fn follow_to_the_end(lines: &Receiver<String>, start: Instant, report: &mut Report) {
    const MOST_LINES: usize = 64;
    const PATIENCE: Duration = Duration::from_secs(1);
    for _ in 0..MOST_LINES {
        let Ok(line) = lines.recv_timeout(PATIENCE) else {
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
    use super::*;

    fn followed(console: &'static str) -> Report {
        let mut report = Report {
            kernel: "6.1".to_owned(),
            package: "p".to_owned(),
            boot: None,
            total: Duration::ZERO,
            log: Log::default(),
            console: Vec::new(),
            failure: None,
        };
        follow(
            &read_lines(console.as_bytes()),
            Instant::now(),
            Duration::from_mins(1),
            || Duration::ZERO,
            &mut report,
        );
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
        let (_sender, receiver) = mpsc::sync_channel(1);
        let mut report = followed("");
        follow(
            &receiver,
            Instant::now(),
            Duration::ZERO,
            || Duration::ZERO,
            &mut report,
        );
        assert_eq!(
            report.failure.unwrap(),
            "not done within 0 s; the last line: nothing"
        );
    }

    #[test]
    fn a_silent_machine_is_told_from_a_slow_one() {
        let report = followed("test a ... ");
        let limit = Duration::from_mins(40);
        assert_eq!(
            given_up(limit, limit, &report),
            "silent for 360 s, after: test a ... "
        );
        assert!(given_up(Duration::from_secs(9), limit, &report).starts_with("not done within 2400 s"));
    }
}
