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
/// How control groups of containers are called: what comes before the identity, who makes them, and whether containers have names of
/// their owner's choice there. Others have an identity of digits alone, and what has none is a program of the makers' own.
const MAKERS: [Maker; 7] = [
    Maker::of_ids("docker-", "docker"),
    Maker::of_ids("cri-containerd-", "containerd"),
    Maker::of_ids("nerdctl-", "containerd"),
    Maker::of_ids("crio-", "cri-o"),
    Maker::of_ids("libpod-", "podman"),
    Maker::of_names("lxc.payload.", "lxc"),
    Maker::of_names("machine-", "machine"),
];
/// Kinds of units of systemd that are no container, whatever they are called: one is a scope, or no unit at all.
const OTHER_UNITS: [&str; 5] = [".service", ".slice", ".socket", ".mount", ".swap"];
/// Groups whose children are containers.
const PARENTS: [(&str, &str); 5] = [
    ("docker", "docker"),
    ("libpod_parent", "podman"),
    ("lxc", "lxc"),
    ("lxc.payload", "lxc"),
    ("containerd", "containerd"),
];

/// Who makes containers.
struct Maker {
    prefix: &'static str,
    name: &'static str,
    has_names: bool,
}

impl Maker {
    const fn of_ids(prefix: &'static str, name: &'static str) -> Self {
        let has_names = false;
        Self {
            prefix,
            name,
            has_names,
        }
    }

    const fn of_names(prefix: &'static str, name: &'static str) -> Self {
        let has_names = true;
        Self {
            prefix,
            name,
            has_names,
        }
    }
}

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
        let found = Self::parse(&String::from_utf8_lossy(&text));
        Some(found.or_by_namespace(|| other_namespace(pid)))
    }

    /// This, or where it is of no container a PID namespace, in place of the service that made it.
    fn or_by_namespace(self, namespace: impl FnOnce() -> Option<String>) -> Self {
        if self.container.is_some() {
            return self;
        }
        match namespace() {
            None => self,
            container => Self {
                container,
                unit: None,
            },
        }
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
        if OTHER_UNITS.iter().any(|kind| part.ends_with(kind)) {
            return None;
        }
        let plain = part.strip_suffix(".scope").unwrap_or(part);
        let before = &parts[..at];
        for maker in &MAKERS {
            // Programs that watch a container are beside it in a group such as `libpod-conmon-ID`: they are not in it.
            let id = plain.strip_prefix(maker.prefix);
            if let Some(id) = id.filter(|id| is_id(id) || maker.has_names && !id.is_empty()) {
                return Some(named(maker.name, id));
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
        for service in [
            "docker-desktop.service",
            "docker-registry.service",
            "machine-learning.service",
            "crio-wipe.service",
        ] {
            let path = format!("/system.slice/{service}");
            assert_eq!(parsed(&path), (None, Some(service.to_owned())));
            // What it makes below its own group is not said by its name.
            let path = format!("/system.slice/{service}/workers");
            assert_eq!(parsed(&path), (None, Some(service.to_owned())));
        }
        for path in [
            "/",
            "/system.slice/docker-registry.socket",
            "/system.slice/machine-learning.slice",
            "/system.slice/docker-desktop.scope",
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
    fn a_namespace_is_said_where_no_container_is_known_and_no_service_then() {
        let of = |path: &str, namespace: Option<&str>| {
            let found = Surroundings::parse(&format!("0::{path}\n"));
            let found = found.or_by_namespace(|| namespace.map(str::to_owned));
            (found.container, found.unit)
        };
        let named = |name: &str| Some(name.to_owned());
        let (session, service) = ("/user.slice/session-3.scope", "/system.slice/nginx.service");
        assert_eq!(of(session, Some("pidns 7")), (named("pidns 7"), None));
        assert_eq!(of("/lxc/web", Some("pidns 7")), (named("lxc web"), None));
        assert_eq!(of(service, Some("pidns 7")), (named("pidns 7"), None));
        assert_eq!(of(service, None), (None, named("nginx.service")));
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
            prop_assert!(container.is_none() || unit.is_none());
            for name in container.iter().chain(&unit) {
                prop_assert!(name.chars().count() <= MAX_NAME + 12);
            }
        }
    }
}
