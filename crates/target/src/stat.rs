//! The fields of `/proc/PID/stat` and `/proc/PID/status` that matter here (proc(5)).

/// `PF_KTHREAD` of the kernel's task flags.
const FLAG_KERNEL_THREAD: u64 = 0x0020_0000;

/// `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The task's name, at most 15 bytes.
    pub name: Vec<u8>,
    /// One letter.
    pub state: u8,
    /// The process that has begun it, or whom it was left to.
    pub parent: u32,
    /// Whether it runs in the kernel only.
    pub kernel_thread: bool,
    /// Clock ticks since boot.
    pub start_time_ticks: u64,
    /// Whether children of it have ended and were waited for.
    pub has_waited_for_children: bool,
    /// What an exec lays out anew, even of the same file: where its code and its stack begin.
    pub layout: (u64, u64),
}

impl Stat {
    /// Parses the text; `None` where it is not of the form.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        // A name may hold parentheses and spaces: the last closing one ends it.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let name = text.get(open + 1..close)?.to_vec();
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        // Numbered as in proc(5): the first field after the name is the third.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index - 3)?.parse::<u64>().ok();
        Some(Self {
            name,
            state: *fields.first()?.as_bytes().first()?,
            parent: u32::try_from(number(4)?).ok()?,
            kernel_thread: number(9)? & FLAG_KERNEL_THREAD != 0,
            start_time_ticks: number(22)?,
            // The page faults of such children: no process ends without one.
            has_waited_for_children: number(11)? > 0 || number(13)? > 0,
            layout: (number(26)?, number(28)?),
        })
    }

    /// Whether it ended and only its parent has yet to hear of it.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// `/proc/PID/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The thread group's leader.
    pub leader: u32,
    /// Real, effective, saved and file system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file system group.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// Permitted capabilities, a bit each.
    pub permitted: u64,
    /// Number of threads.
    pub threads: u32,
    /// The task's number in its own PID namespace.
    pub own_pid: u32,
    /// Code that it has mapped, in KiB; 0 of a process without memory.
    pub code_kib: u64,
}

impl Status {
    /// Parses the text; `None` where a field is missing.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let field = |name: &[u8]| {
            let line = text
                .split(|&byte| byte == b'\n')
                .find(|line| line.starts_with(name))?;
            std::str::from_utf8(line.get(name.len()..)?).ok()
        };
        let number = |name: &[u8]| field(name)?.trim().parse::<u32>().ok();
        let four = |name: &[u8]| {
            let mut ids = field(name)?
                .split_ascii_whitespace()
                .map(|id| id.parse::<u32>().ok());
            Some([ids.next()??, ids.next()??, ids.next()??, ids.next()??])
        };
        let numbers = |name: &[u8]| -> Option<Vec<u32>> {
            let ids = field(name)?.split_ascii_whitespace();
            ids.map(|id| id.parse::<u32>().ok()).collect()
        };
        // The namespaces' numbers, the innermost last; kernels without such namespaces have no such line.
        let own_pid = match field(b"NSpid:") {
            Some(numbers) => numbers.split_ascii_whitespace().next_back()?.parse().ok()?,
            None => number(b"Pid:")?,
        };
        let kib =
            |name: &[u8]| -> Option<u64> { field(name)?.trim().strip_suffix("kB")?.trim().parse().ok() };
        Some(Self {
            own_pid,
            code_kib: kib(b"VmExe:").unwrap_or(0) + kib(b"VmLib:").unwrap_or(0),
            leader: number(b"Tgid:")?,
            users: four(b"Uid:")?,
            groups: four(b"Gid:")?,
            supplementary: numbers(b"Groups:")?,
            permitted: u64::from_str_radix(field(b"CapPrm:")?.trim(), 16).ok()?,
            threads: number(b"Threads:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_may_hold_what_the_format_uses() {
        let text = b"7 (a) R (b ) S 1 7 7 0 -1 2129984 0 0 0 0 1 2 0 0 20 0 1 0 4711 0 0 0 100 200 300 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat.name, b"a) R (b ");
        assert_eq!(
            (stat.state, stat.start_time_ticks, stat.layout),
            (b'S', 4711, (100, 300))
        );
        assert!(stat.kernel_thread && !stat.ended());
        assert!(!stat.has_waited_for_children);
        let text = b"7 (a) S 1 7 7 0 -1 0 0 12 0 0 1 2 0 0 20 0 1 0 4711 0 0 0 100 200 300 0 0";
        assert!(Stat::parse(text).unwrap().has_waited_for_children);
    }

    #[test]
    fn own_status_is_read() {
        let status = Status::parse(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        assert_eq!(status.leader, std::process::id());
        assert!(status.own_pid > 0);
        assert_eq!(status.users[0], rustix::process::getuid().as_raw());
        assert_eq!(status.groups[0], rustix::process::getgid().as_raw());
        assert!(status.threads >= 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&text);
            let _ = Status::parse(&text);
        }
    }
}
