//! What the environment says. The names and meanings are those that debuginfod's other clients have.

use std::{ffi::OsString, net::IpAddr, path::PathBuf, time::Duration};

/// Time in which a server has to send [`SLOWEST_BYTES`], if nothing is set.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Longest that one file may take, if nothing is set.
const TIME_MAX: Duration = Duration::from_mins(10);
/// Largest file, in bytes, if nothing is set: debug information of the largest browsers is about that.
const SIZE_MAX: u64 = 4 << 30;
/// Most servers that are asked.
const SERVERS_MAX: usize = 16;
/// What a server has to send within the timeout, in bytes.
pub(super) const SLOWEST_BYTES: u64 = 100 << 10;

/// Whom to ask, within what bounds, and where files are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers, without a slash at the end.
    pub(super) servers: Vec<String>,
    /// Servers that are not asked, because what they send could be changed on its way: a build-id names a build, and proves
    /// nothing.
    pub(super) unprotected: Vec<String>,
    /// Folder of what was got.
    pub(super) cache: PathBuf,
    /// Time in which a server has to send [`SLOWEST_BYTES`]; `None` for no such limit.
    pub(super) timeout: Option<Duration>,
    /// Longest that one file may take.
    pub(super) time_max: Duration,
    /// Largest file, in bytes.
    pub(super) size_max: u64,
}

impl Settings {
    /// What the process's environment says; `None` where no server is set.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// What variables say.
    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let path = |name| {
            variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let urls = text("DEBUGINFOD_URLS")?;
        // Other words are about checks of signatures, which are not done.
        let servers = urls
            .split_whitespace()
            .filter(|url| url.starts_with("http://") || url.starts_with("https://"));
        let (servers, unprotected): (Vec<String>, Vec<String>) = servers
            .take(SERVERS_MAX)
            .map(|url| url.trim_end_matches('/').to_owned())
            .partition(|url| is_protected(url));
        if servers.is_empty() && unprotected.is_empty() {
            return None;
        }
        let below = |folder: PathBuf| folder.join("debuginfod_client");
        let cache = path("DEBUGINFOD_CACHE_PATH")
            .or_else(|| path("XDG_CACHE_HOME").map(below))
            .or_else(|| path("HOME").map(|home| below(home.join(".cache"))))?;
        let number = |name| text(name).and_then(|value| value.trim().parse::<i64>().ok());
        let positive = |name| {
            number(name)
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0)
        };
        let timeout = match number("DEBUGINFOD_TIMEOUT") {
            None => Some(TIMEOUT),
            Some(_) => positive("DEBUGINFOD_TIMEOUT").map(Duration::from_secs),
        };
        Some(Self {
            servers,
            unprotected,
            cache,
            timeout,
            time_max: positive("DEBUGINFOD_MAXTIME").map_or(TIME_MAX, Duration::from_secs),
            size_max: positive("DEBUGINFOD_MAXSIZE").unwrap_or(SIZE_MAX),
        })
    }
}

/// Whether nobody can change what a server sends: it is reached by TLS, or is on this machine.
pub(super) fn is_protected(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return true;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        // What is before it is a user's name, however much it looks like a host's.
        return false;
    }
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Option<Settings> {
        Settings::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn off_where_no_server_is_set() {
        assert_eq!(settings(&[("HOME", "/root")]), None);
        for urls in ["", "  ", "ima:enforcing", "ftp://x/ file:///y"] {
            assert_eq!(
                settings(&[("DEBUGINFOD_URLS", urls), ("HOME", "/root")]),
                None,
                "{urls}"
            );
        }
    }

    #[test]
    fn without_tls_only_this_machine_is_asked() {
        let urls = "http://localhost:8002 http://127.0.0.2/x http://[::1]:80 http://b:8002/x/ http://localhost.b \
                    http://localhost@b http://127.0.0.1:80@b/x";
        let found = settings(&[("DEBUGINFOD_URLS", urls), ("HOME", "/root")]).unwrap();
        assert_eq!(
            found.servers,
            ["http://localhost:8002", "http://127.0.0.2/x", "http://[::1]:80"]
        );
        assert_eq!(
            found.unprotected,
            [
                "http://b:8002/x",
                "http://localhost.b",
                "http://localhost@b",
                "http://127.0.0.1:80@b/x"
            ]
        );
    }

    #[test]
    fn servers_folder_and_bounds() {
        let urls = ("DEBUGINFOD_URLS", "https://a/  ima:permissive https://b:8002/x/");
        let found = settings(&[urls, ("HOME", "/root")]).unwrap();
        assert_eq!(found.servers, ["https://a", "https://b:8002/x"]);
        assert_eq!(found.cache, PathBuf::from("/root/.cache/debuginfod_client"));
        assert_eq!(
            (found.timeout, found.time_max, found.size_max),
            (Some(TIMEOUT), TIME_MAX, SIZE_MAX)
        );
        let found = settings(&[
            urls,
            ("HOME", "/root"),
            ("XDG_CACHE_HOME", "/c"),
            ("DEBUGINFOD_TIMEOUT", "5"),
            ("DEBUGINFOD_MAXTIME", "7"),
            ("DEBUGINFOD_MAXSIZE", "9"),
        ])
        .unwrap();
        assert_eq!(found.cache, PathBuf::from("/c/debuginfod_client"));
        let bounds = (found.timeout, found.time_max, found.size_max);
        let seconds = Duration::from_secs;
        assert_eq!(bounds, (Some(seconds(5)), seconds(7), 9));
        for (text, timeout) in [("0", None), ("-1", None), ("soon", Some(TIMEOUT))] {
            let own = [
                urls,
                ("DEBUGINFOD_CACHE_PATH", "/d"),
                ("DEBUGINFOD_TIMEOUT", text),
            ];
            let found = settings(&own).unwrap();
            assert_eq!((found.cache, found.timeout), (PathBuf::from("/d"), timeout));
        }
        assert_eq!(settings(&[urls]), None, "nowhere to put files");
    }
}
