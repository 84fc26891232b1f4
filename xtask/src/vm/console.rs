//! What a machine's serial console tells.

/// What a console line means for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The program was started: the machine has booted.
    Running,
    /// The program ended with this status.
    Exited(i32),
    /// The machine cannot go on, with the line that says why.
    Broken(String),
    /// Anything else.
    Text,
}

/// Reads one line, as [`clean`] left it.
pub fn event(line: &str) -> Event {
    // A kernel message can come in between and stand before the marker on the same line.
    if let Some((_, rest)) = line.split_once("vm-init: ") {
        if rest.starts_with("running") {
            return Event::Running;
        }
        if let Some(status) = rest
            .strip_prefix("exit status ")
            .and_then(|status| status.trim().parse().ok())
        {
            return Event::Exited(status);
        }
        if rest.starts_with("could not run") {
            return Event::Broken(rest.to_owned());
        }
    }
    if line.contains("Kernel panic - not syncing") || stuck_s(line).is_some_and(|s| s >= STUCK_S) {
        Event::Broken(line.to_owned())
    } else {
        Event::Text
    }
}

/// Seconds for which a CPU has to be stuck in the kernel for the machine to be given up. The kernel tells of it from 20 on,
/// which an emulated one may be where the host is busy.
const STUCK_S: u64 = 60;

/// For how long the kernel says that a CPU has been stuck in it.
fn stuck_s(line: &str) -> Option<u64> {
    let (_, stuck) = line.split_once("soft lockup - CPU#")?;
    let (_, stuck) = stuck.split_once(" stuck for ")?;
    stuck.split_once('s')?.0.parse().ok()
}

/// Whether the kernel complains of itself, with a warning or worse.
pub fn is_complaint(line: &str) -> bool {
    // It tells of both after 20 or 30 seconds, for which an emulated CPU can stand still where the host is busy.
    let is_of_host = line.contains("soft lockup") || line.contains("workqueue lockup");
    // 6.1 names an exception without the word: `int3: 0000 [#1]`.
    let is_worse =
        line.contains("Oops: ") || line.contains(": 0000 [#") || line.contains("BUG: ") && !is_of_host;
    line.contains("[ cut here ]") || is_worse
}

/// Whether the kernel has come upon a breakpoint that is not there any more, as it puts into its own code while it rewrites that.
///
/// The emulator's doing: see [`super::emulator`].
pub fn is_stale_breakpoint(complaint: &str) -> bool {
    complaint.contains("int3: 0000 [#1]")
}

/// What the kernel says from a complaint on that helps to find its cause: where it was, and who called it.
pub fn complaint(lines: &[String]) -> Vec<String> {
    /// Lines looked through: one complaint.
    const LOOKED_AT: usize = 64;
    const KEPT: usize = 24;
    const CHARACTERS_MAX: usize = 160;
    /// Registers and the like: long, and of no help without the machine.
    const LEFT_OUT: [&str; 6] = ["Modules linked in", "Code: ", "RSP: ", "R10: ", "CR2: ", "PKRU: "];
    let is_kept = |line: &&String| {
        let is_register = line.contains("] R") && line.contains(": 0") && !line.contains("RIP: ");
        is_of_kernel(line) && !is_register && !LEFT_OUT.iter().any(|word| line.contains(word))
    };
    let kept = lines.iter().take(LOOKED_AT).filter(is_kept).take(KEPT);
    kept.map(|line| line.chars().take(CHARACTERS_MAX).collect())
        .collect()
}

/// Whether a line has something that the kernel says, which begins with the time: `[   12.345678]`.
fn is_of_kernel(line: &str) -> bool {
    line.split('[').skip(1).any(|part| {
        part.split_once(']').is_some_and(|(time, _)| {
            let time = time.trim_start();
            time.contains('.') && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    })
}

/// A console line without line ends, terminal sequences and other control characters.
pub fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // ESC [ parameters letter; the firmware writes such and `ESC c`.
            if characters.next_if_eq(&'[').is_some() {
                while characters.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
            }
            characters.next();
        } else if character == '\t' || !character.is_control() {
            kept.push(character);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_machine_that_is_stuck_is_given_up() {
        let stuck =
            |s: u64| format!("[  8.7] watchdog: BUG: soft lockup - CPU#1 stuck for {s}s! [tests:2212]");
        assert_eq!(event(&stuck(26)), Event::Text);
        assert_eq!(event(&stuck(78)), Event::Broken(stuck(78)));
    }

    #[test]
    fn complaints_are_seen() {
        for line in [
            "test a ... [  184.960243] ------------[ cut here ]------------",
            "[   12.1] Oops: general protection fault: 0000 [#1] SMP",
            "[   12.1] BUG: scheduling while atomic: tests/2212/0x00000002",
            "[   12.1] Oops: int3: 0000 [#1] SMP NOPTI",
            "[   12.1] int3: 0000 [#1] PREEMPT SMP PTI",
        ] {
            assert!(is_complaint(line), "{line}");
        }
        for line in [
            "test a ... ok",
            // Of a busy host.
            "[   12.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [tests:2212]",
            "[   12.1] BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 31s!",
        ] {
            assert!(!is_complaint(line), "{line}");
        }
    }

    #[test]
    fn a_complaint_is_told_without_registers_and_what_others_print() {
        let lines = [
            "test a ... [  184.960243] ------------[ cut here ]------------",
            "[  184.960250] WARNING: CPU: 1 PID: 77 at kernel/trace/ftrace.c:2164 ftrace_bug+0x25/0x1f0",
            "[  184.960251] Modules linked in:",
            "[  184.960252] RIP: 0010:ftrace_bug+0x25/0x1f0",
            "[  184.960253] Code: 00 00",
            "[  184.960254] RAX: 00000000ffffffea RBX: ffffffffb0",
            "ok <0.100s>",
            "[  184.960255] Call Trace:",
        ]
        .map(str::to_owned);
        let said = complaint(&lines);
        let places: Vec<usize> = said
            .iter()
            .map(|line| lines.iter().position(|other| other == line).unwrap())
            .collect();
        assert_eq!(places, [0, 1, 3, 7]);
    }

    #[test]
    fn markers_are_seen() {
        assert_eq!(event("vm-init: running after 1.75 s of uptime"), Event::Running);
        assert_eq!(event("vm-init: exit status 0"), Event::Exited(0));
        assert_eq!(
            event("[    3.1] clocksource: vm-init: exit status 101"),
            Event::Exited(101)
        );
        assert_eq!(event("test a ... ok"), Event::Text);
        let panic = "[  1.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100";
        assert_eq!(event(panic), Event::Broken(panic.to_owned()));
        assert!(matches!(
            event("vm-init: could not run the program that /vm-run names: x"),
            Event::Broken(_)
        ));
        assert_eq!(event("vm-init: exit status x"), Event::Text);
    }

    #[test]
    fn a_breakpoint_that_is_gone_is_told_from_other_complaints() {
        for line in [
            "[  198.789094] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI",
            "[   31.2] int3: 0000 [#1] PREEMPT SMP NOPTI",
        ] {
            assert!(is_complaint(line) && is_stale_breakpoint(line), "{line}");
        }
        for line in [
            "[   31.2] Oops: int3: 0000 [#2] PREEMPT SMP NOPTI",
            "[   31.2] Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
        ] {
            assert!(is_complaint(line) && !is_stale_breakpoint(line), "{line}");
        }
    }

    #[test]
    fn lines_are_cleaned() {
        assert_eq!(
            clean(b"\x1b[?7l\x1b[2J\x1bctest a ... \x1b[32mok\x1b[0m\r\n"),
            "test a ... ok"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_harmless_line(bytes in any::<Vec<u8>>()) {
            let line = clean(&bytes);
            prop_assert!(line.chars().all(|c| c == '\t' || !c.is_control()));
            event(&line);
        }
    }
}
