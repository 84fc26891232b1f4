//! The machine that the daemon runs on.

use std::{fmt::Write as _, fs};

use sha2::{Digest as _, Sha256};

/// Told with a machine-id when it is hashed, so that what other programs make of it is something else.
const OF_THIS_PROGRAM: &[u8] = b"profiler.v1 host\0";

/// Bytes of a hash that name a machine.
const ID_BYTES: usize = 16;

/// What names a machine and its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name that stays as long as the machine is installed; empty where it has none. The machine-id cannot be told from it, as
    /// machine-id(5) asks.
    pub id: String,
    /// Another for each time that the machine was started; empty where the kernel does not tell it.
    pub boot_id: String,
    /// What it is called in its network.
    pub name: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Host {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let system = rustix::system::uname();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            id: id(&read("/etc/machine-id")),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
        }
    }
}

fn id(machine_id: &str) -> String {
    // systemd writes this word into images of machines that are not set up yet.
    if machine_id.is_empty() || machine_id == "uninitialized" {
        return String::new();
    }
    let hash = Sha256::new()
        .chain_update(OF_THIS_PROGRAM)
        .chain_update(machine_id)
        .finalize();
    let mut name = String::new();
    for byte in hash.iter().take(ID_BYTES) {
        // A string takes all.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_id_is_not_told() {
        let machine_id = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
        let named = id(machine_id);
        assert_eq!((named.len(), named == id(machine_id)), (32, true));
        assert!(!named.contains(&machine_id[..8]));
        assert_eq!((id(""), id("uninitialized")), (String::new(), String::new()));
    }
}
