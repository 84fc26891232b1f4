//! The same measurement by bpftrace: a latency histogram for each function.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::switches::Looks;
use crate::error::{Error, Result};

const TRACEFS: &str = "/sys/kernel/tracing";

/// It reads tracepoints where `tracefs` is mounted: where that is nowhere, it gets a mount that nobody else sees.
fn command() -> Command {
    if Path::new(TRACEFS).join("events").exists() {
        return Command::new("bpftrace");
    }
    let mut command = Command::new("unshare");
    let script = format!("mount -t tracefs tracefs {TRACEFS} && exec bpftrace \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command
}

/// Which calls are counted, by their first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    All,
    /// Those with this one.
    Those(i64),
    /// Those with this one, and the others.
    Both(i64),
}

/// A running bpftrace; killed when dropped.
pub struct Bpftrace(Child);

impl Bpftrace {
    /// Measures calls of a process's functions.
    pub fn attach(pid: u32, file: &Path, functions: &[&str]) -> Result<Self> {
        Self::start(&["-p", &pid.to_string(), "-e", &script(file, functions)])
    }

    /// Counts calls of a function as is asked.
    pub fn count(pid: u32, file: &Path, function: &str, counts: Counts) -> Result<Self> {
        let place = format!("uprobe:{}:{function}", file.display());
        let action = match counts {
            Counts::All => "{ @ = count(); }".to_owned(),
            Counts::Those(argument) => format!("/arg0 == {argument}/ {{ @ = count(); }}"),
            Counts::Both(argument) => {
                format!("{{ if (arg0 == {argument}) {{ @ = count(); }} else {{ @rejected = count(); }} }}")
            }
        };
        let script = format!("BEGIN {{ printf(\"attached\\n\"); }} {place} {action}");
        Self::start(&["-p", &pid.to_string(), "-e", &script])
    }

    /// Measures where a process's threads are off the CPU for how long, and who ends it, where that is looked at.
    pub fn off_cpu(pid: u32, looks: Looks) -> Result<Self> {
        Self::start(&["-e", &off_cpu_script(pid, looks)])
    }

    /// Starts it and waits until its probes are attached.
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = command()
            .args(["-B", "line"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start {
                command: "bpftrace".to_owned(),
                directory: ".".into(),
                source,
            })?;
        let output = child.stdout.take();
        let bpftrace = Self(child);
        let mut lines = BufReader::new(output.ok_or_else(|| Error::told("bpftrace has no output"))?).lines();
        let mut said = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line == "attached" {
                // Its histograms come at the end: somebody must read them, or it would wait.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(bpftrace);
            }
            said = line;
        }
        Err(Error::told(format!(
            "bpftrace did not attach; its last words: {said} {}",
            bpftrace.errors()
        )))
    }

    /// Stops it, which detaches its probes.
    pub fn detach(mut self) -> Result<()> {
        let pid =
            libc::pid_t::try_from(self.0.id()).map_err(|_| Error::told("bpftrace's PID is out of range"))?;
        // SAFETY: kill takes no pointer; the child has not been waited for, so its PID is still its own.
        unsafe { libc::kill(pid, libc::SIGINT) };
        self.0
            .wait()
            .map(drop)
            .map_err(Error::file("wait for", "bpftrace"))
    }

    fn errors(mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            // What cannot be read cannot be shown.
            let _ = stderr.take(4096).read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// BEGIN runs when everything else is attached.
fn script(file: &Path, functions: &[&str]) -> String {
    let mut script = "BEGIN { printf(\"attached\\n\"); }".to_owned();
    for name in functions {
        let place = format!("{}:{name}", file.display());
        // Writing to a String cannot fail.
        let _ = write!(
            script,
            " uprobe:{place} {{ @start_{name}[tid] = nsecs; }} uretprobe:{place} /@start_{name}[tid]/ \
             {{ @{name} = hist(nsecs - @start_{name}[tid]); delete(@start_{name}[tid]); }}"
        );
    }
    script
}

/// Time off the CPU by both stacks of who waited, and those who ended waits.
fn off_cpu_script(pid: u32, looks: Looks) -> String {
    let mut script = format!(
        "BEGIN {{ printf(\"attached\\n\"); }} \
         tracepoint:sched:sched_switch {{ \
           if (pid == {pid}) {{ @since[tid] = nsecs; @user[tid] = ustack; @kernel[tid] = kstack; }} \
           if (@since[args->next_pid]) {{ \
             @off[@user[args->next_pid], @kernel[args->next_pid]] = sum(nsecs - @since[args->next_pid]); \
             delete(@since[args->next_pid]); \
           }} \
         }}"
    );
    if looks == Looks::Waits {
        script.push_str(
            " tracepoint:sched:sched_waking { \
               if (@since[args->pid]) { @by[args->pid, ustack, kstack] = count(); } \
             }",
        );
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_a_pair_and_a_histogram() {
        let script = script(Path::new("/t/calls"), &["f", "g"]);
        assert_eq!(script.matches("uprobe:/t/calls:f ").count(), 1);
        assert_eq!(script.matches("uretprobe:/t/calls:g ").count(), 1);
        assert!(script.contains("@g = hist(nsecs - @start_g[tid])"), "{script}");
    }
}
