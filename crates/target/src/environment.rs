//! What the programs believe of their environment.

/// Variables that only say how output looks.
const HARMLESS: [&str; 6] = ["COLUMNS", "LANG", "LC_ALL", "LINES", "NO_COLOR", "TERM"];

/// Forgets the environment where the program has rights that its caller has not: file capabilities, or set-user-ID. Who
/// chooses variables could otherwise choose what these rights are used for: files that are read, sockets, logs.
///
/// To be called first of all, while there is no other thread.
pub fn distrust() {
    // SAFETY: the call takes no pointers; it reads what the kernel has put beside the program's arguments.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if !is_secure {
        return;
    }
    let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    for name in names {
        if !HARMLESS.iter().any(|harmless| name == *harmless) {
            // SAFETY: the program has just begun and has no other thread, which could read the environment meanwhile.
            unsafe { std::env::remove_var(name) };
        }
    }
}
