//! Where a process runs: its container or service, by the control groups that the kernel says it is in (cgroups(7)). Who may make
//! control groups chooses their names, so they are what the group says, and no proof.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
};

/// Longest text of `/proc/PID/cgroup` that is read.
const MAX_BYTES: u64 = 64 << 10;
/// Digits of an identity that are shown, as the tools of containers do.
const SHOWN_DIGITS: usize = 12;
/// Fewest digits of an identity.
const MIN_DIGITS: usize = 12;
/// Longest name that is kept, in bytes.
const MAX_NAME: usize = 64;
/// How control groups of containers are called: what comes before the identity, and who makes them.
const MAKERS: [(&str, &str); 7] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("lxc.payload.", "lxc"),
    ("machine-", "machine"),
];
/// Groups whose children are containers.
const PARENTS: [(&str, &str); 5] = [
    ("docker", "docker"),
    ("libpod_parent", "podman"),
    ("lxc", "lxc"),
    ("lxc.payload", "lxc"),
    ("containerd", "containerd"),
];

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Its container, such as `docker 0123456789ab`, or the number of its PID namespace where that is another than ours and
    /// nothing else is known.
    pub container: Option<String>,
    /// The service of systemd that it belongs to, where it is in no container.
    pub unit: Option<String>,
}

impl Surroundings {
    /// Of a process, as it is now; `None` where it is gone or may not be looked at.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{pid}/cgroup")).ok()?;
        file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
        let mut found = Self::parse(&String::from_utf8_lossy(&text));
        if found.container.is_none() {
            found.container = other_namespace(pid);
        }
        Some(found)
    }

    /// Of the text of `/proc/PID/cgroup`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let container = paths().find_map(container);
        let unit = paths().find_map(unit).filter(|_| container.is_none());
        Self { container, unit }
    }
}

/// The innermost container of a path of control groups.
fn container(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    parts.iter().enumerate().rev().find_map(|(at, part)| {
        let plain = part.strip_suffix(".scope").unwrap_or(part);
        let before = &parts[..at];
        for (prefix, maker) in MAKERS {
            // Programs that watch a container are beside it in a group of such a name: they are not in it.
            let id = plain.strip_prefix(prefix).filter(|id| !id.starts_with("conmon"));
            if let Some(id) = id.filter(|id| !id.is_empty()) {
                return Some(named(maker, id));
            }
        }
        let parent = before.last().copied().unwrap_or_default();
        if let Some((_, maker)) = PARENTS.iter().find(|(name, _)| *name == parent)
            && !plain.is_empty()
            && (*maker == "lxc" || is_id(plain))
        {
            return Some(named(maker, plain));
        }
        let of_pod = before.iter().any(|part| part.starts_with("kubepods"));
        (of_pod && is_id(plain)).then(|| named("kubernetes", plain))
    })
}

fn named(maker: &str, id: &str) -> String {
    let most = if is_id(id) { SHOWN_DIGITS } else { MAX_NAME };
    let id: String = id.chars().take(most).collect();
    format!("{maker} {id}")
}

fn is_id(text: &str) -> bool {
    text.len() >= MIN_DIGITS && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// The innermost service of a path of control groups.
fn unit(path: &str) -> Option<String> {
    let parts = path.split('/').rev();
    let mut services = parts.filter(|part| part.ends_with(".service"));
    services.next().map(|name| name.chars().take(MAX_NAME).collect())
}

/// The PID namespace of a process, if it is another than this process's.
fn other_namespace(pid: u32) -> Option<String> {
    let of = |pid: &str| {
        let file = fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?;
        Some((file.dev(), file.ino()))
    };
    let (theirs, ours) = (of(&pid.to_string())?, of("self")?);
    (theirs != ours).then(|| format!("pidns {}", theirs.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn parsed(path: &str) -> (Option<String>, Option<String>) {
        let Surroundings { container, unit } = Surroundings::parse(&format!("0::{path}\n"));
        (container, unit)
    }

    #[test]
    fn containers_are_told_by_their_groups() {
        for (path, container) in [
            (format!("/system.slice/docker-{ID}.scope"), "docker 0123456789ab"),
            (format!("/docker/{ID}"), "docker 0123456789ab"),
            (format!("/docker/{ID}/init.scope"), "docker 0123456789ab"),
            (
                format!("/kubepods/besteffort/pod1-2/{ID}"),
                "kubernetes 0123456789ab",
            ),
            (
                format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
                "containerd 0123456789ab",
            ),
            (
                format!("/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope"),
                "cri-o 0123456789ab",
            ),
            (
                format!("/user.slice/user-1.slice/user@1.service/user.slice/libpod-{ID}.scope/container"),
                "podman 0123456789ab",
            ),
            ("/lxc.payload.web/init.scope".to_owned(), "lxc web"),
            ("/lxc/web".to_owned(), "lxc web"),
            ("/machine.slice/machine-fedora.scope".to_owned(), "machine fedora"),
        ] {
            assert_eq!(parsed(&path), (Some(container.to_owned()), None), "{path}");
        }
    }

    #[test]
    fn services_are_told_where_there_is_no_container() {
        let unit = |path| parsed(path).1;
        assert_eq!(
            unit("/system.slice/nginx.service").as_deref(),
            Some("nginx.service")
        );
        assert_eq!(
            unit("/user.slice/user-1.slice/user@1.service/app.slice/a.service").as_deref(),
            Some("a.service")
        );
        for path in [
            "/",
            "/user.slice/user-1.slice/session-3.scope",
            "",
            "/docker/short",
        ] {
            assert_eq!(parsed(path), (None, None), "{path}");
        }
        // Whoever watches a container is not in it.
        let path = format!("/machine.slice/libpod-conmon-{ID}.scope");
        assert_eq!(parsed(&path), (None, None));
        // The first version of control groups has a line for each controller.
        let text = format!("12:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/system.slice/docker.service\n");
        assert_eq!(
            Surroundings::parse(&text).container.as_deref(),
            Some("docker 0123456789ab")
        );
    }

    #[test]
    fn a_process_of_this_namespace_is_in_none_of_its_own() {
        let own = Surroundings::of(std::process::id()).unwrap();
        assert!(!own.container.is_some_and(|name| name.starts_with("pidns")));
        assert_eq!(Surroundings::of(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,300}") {
            let Surroundings { container, unit } = Surroundings::parse(&text);
            for name in container.iter().chain(&unit) {
                prop_assert!(name.chars().count() <= MAX_NAME + 12);
            }
        }
    }
}
