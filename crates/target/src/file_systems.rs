//! File systems that files of programs are not read from, or that may not answer who reads them.

use rustix::fs::FsWord;

/// Whose file systems hold files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// The kernel, and no files of programs: what they give depends on who asks (this process may read its own `/proc/self/maps` with
    /// whatever rights), or they have effects.
    Kernel,
    /// A process, which may answer or never answer.
    Process,
    /// Another machine, which may be gone: whoever asks for something may wait for it, and nobody else.
    Network,
}

/// A file system, by its number in `statfs(2)` and its name in `/proc/PID/mountinfo`.
struct FileSystem {
    number: FsWord,
    name: &'static str,
    holder: Holder,
}

const fn of(number: FsWord, name: &'static str, holder: Holder) -> FileSystem {
    FileSystem { number, name, holder }
}

const FILE_SYSTEMS: [FileSystem; 32] = [
    of(0x9fa0, "proc", Holder::Kernel),
    of(0x6265_6572, "sysfs", Holder::Kernel),
    of(0x7472_6163, "tracefs", Holder::Kernel),
    of(0x6462_6720, "debugfs", Holder::Kernel),
    of(0x7363_6673, "securityfs", Holder::Kernel),
    of(0x6265_6570, "configfs", Holder::Kernel),
    of(0xf97c_ff8c, "selinuxfs", Holder::Kernel),
    of(0x4341_5d53, "smackfs", Holder::Kernel),
    of(0x5a3c_69f0, "apparmorfs", Holder::Kernel),
    of(0xcafe_4a11, "bpf", Holder::Kernel),
    of(0x0027_e0eb, "cgroup", Holder::Kernel),
    of(0x6367_7270, "cgroup2", Holder::Kernel),
    of(0x0765_5821, "resctrl", Holder::Kernel),
    of(0x6e73_6673, "nsfs", Holder::Kernel),
    of(0x4249_4e4d, "binfmt_misc", Holder::Kernel),
    of(0xde5e_81e4, "efivarfs", Holder::Kernel),
    of(0x6165_676c, "pstore", Holder::Kernel),
    of(0x1980_0202, "mqueue", Holder::Kernel),
    of(0x6573_5543, "fusectl", Holder::Kernel),
    of(0x6573_5546, "fuse", Holder::Process),
    of(0x6573_5546, "fuseblk", Holder::Process),
    of(0x6573_5546, "virtiofs", Holder::Process),
    of(0x6969, "nfs", Holder::Network),
    of(0x6969, "nfs4", Holder::Network),
    of(0xff53_4d42, "cifs", Holder::Network),
    of(0xfe53_4d42, "smb3", Holder::Network),
    of(0x0102_1997, "9p", Holder::Network),
    of(0x00c3_6400, "ceph", Holder::Network),
    of(0x5346_414f, "afs", Holder::Network),
    of(0x7375_7245, "coda", Holder::Network),
    of(0x0bd0_0bd0, "lustre", Holder::Network),
    of(0x2003_0528, "pvfs2", Holder::Network),
];

/// File systems that lie over others, whose answers theirs are (`include/uapi/linux/magic.h`): overlayfs, eCryptfs.
const OVER_OTHERS: [FsWord; 2] = [OVERLAY, 0xf15f];
pub(crate) const OVERLAY: FsWord = 0x794c_7630;

/// Whether a file system of this number answers without asking a process or another machine.
#[must_use]
pub fn answers(number: FsWord) -> bool {
    let asks = |one: &FileSystem| one.number == number && one.holder != Holder::Kernel;
    !OVER_OTHERS.contains(&number) && !FILE_SYSTEMS.iter().any(asks)
}

/// Whether files of programs may be read from a file system of this number, for somebody who asks for them.
#[must_use]
pub fn is_read(number: FsWord) -> bool {
    let is_refused = |one: &FileSystem| one.number == number && one.holder != Holder::Network;
    !FILE_SYSTEMS.iter().any(is_refused)
}

/// Whether a file system of this name, which may have one of its own behind a dot (`fuse.sshfs`), answers without asking a process or
/// another machine, and holds files of programs.
#[must_use]
pub fn is_local(name: &str) -> bool {
    let kind = name.split('.').next().unwrap_or_default();
    !FILE_SYSTEMS.iter().any(|one| one.name == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_answer_is_not_local() {
        for name in ["ext4", "btrfs", "xfs", "overlay", "tmpfs", "zfs", "squashfs"] {
            assert!(is_local(name), "{name}");
        }
        for name in ["fuse", "fuse.sshfs", "fuseblk", "nfs4", "cifs", "9p", "proc"] {
            assert!(!is_local(name), "{name}");
        }
    }

    #[test]
    fn what_is_on_another_machine_is_read_for_who_asks() {
        assert!(is_read(0x6969) && is_read(0xef53));
        assert!(!is_read(0x6573_5546) && !is_read(0x9fa0));
    }

    #[test]
    fn what_lies_over_others_answers_as_they_do() {
        assert!(is_read(OVERLAY) && !answers(OVERLAY));
        assert!(answers(0xef53) && answers(0x0102_1994), "ext4, tmpfs");
        assert!(!answers(0x6573_5546) && !answers(0x6969));
    }
}
