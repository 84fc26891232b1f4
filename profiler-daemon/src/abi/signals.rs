//! Names of signals, by number (`signal(7)`).

/// The name of a signal; `None` of one that has none, as those for real-time use.
#[must_use]
pub fn signal(number: u32) -> Option<&'static str> {
    let before = number.checked_sub(1)?;
    SIGNALS.get(usize::try_from(before).ok()?).copied()
}

/// From 1 on.
#[rustfmt::skip]
const SIGNALS: [&str; 31] = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV",
    "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN",
    "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_numbers() {
        for (number, name) in [
            (1, "SIGHUP"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (15, "SIGTERM"),
            (31, "SIGSYS"),
        ] {
            assert_eq!(signal(number), Some(name));
        }
        assert_eq!((signal(0), signal(32), signal(u32::MAX)), (None, None, None));
    }
}
