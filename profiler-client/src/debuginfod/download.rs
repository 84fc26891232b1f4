//! One file from one server, bounded.

use std::{
    io::{self, Read as _, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body,
    tls::{RootCerts, TlsConfig},
};

use super::settings::{SLOWEST_BYTES, Settings, is_protected};

/// Most redirections that are followed.
const REDIRECTS_MAX: u32 = 5;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Why a file did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum DownloadError {
    /// The server does not have it.
    #[error("it does not have it")]
    NotThere,
    /// The server answers with something else.
    #[error("it answers with status {0}")]
    Status(u16),
    /// It is larger than is allowed.
    #[error("it sends more than {0} bytes: DEBUGINFOD_MAXSIZE sets how many are allowed")]
    TooLarge(u64),
    /// It sends too little at a time.
    #[error("it sends too slowly: DEBUGINFOD_TIMEOUT sets the seconds that it has for 100 KB")]
    TooSlow,
    /// It takes too long in all.
    #[error("it takes too long: DEBUGINFOD_MAXTIME sets the seconds that a file may take")]
    TooLong,
    /// It leads on and on.
    #[error("it redirects more than {REDIRECTS_MAX} times")]
    TooManyRedirects,
    /// It leads to another server whose answer could be changed on its way.
    #[error("it redirects to `{0}`, which is not reached by TLS")]
    Unprotected(String),
    /// The connection does not come about, or breaks.
    #[error("{0}")]
    Connection(Box<ureq::Error>),
    /// What it sends cannot be written.
    #[error("the file cannot be written: {0}")]
    Write(io::Error),
}

impl DownloadError {
    /// Whether it would be the same for another file, which would again take long to find out.
    pub fn is_of_server(&self) -> bool {
        matches!(self, Self::TooSlow | Self::TooLong | Self::Connection(_))
    }

    /// Whether it is worth saying.
    pub fn is_remarkable(&self) -> bool {
        !matches!(self, Self::NotThere)
    }
}

impl From<ureq::Error> for DownloadError {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::StatusCode(404) => Self::NotThere,
            ureq::Error::StatusCode(status) => Self::Status(status),
            ureq::Error::Timeout(ureq::Timeout::Global) => Self::TooLong,
            ureq::Error::Timeout(_) => Self::TooSlow,
            other => Self::Connection(Box::new(other)),
        }
    }
}

/// The ways to the servers.
pub(super) struct Agents {
    /// By TLS alone, wherever a server redirects to.
    by_tls: Agent,
    /// To this machine, past proxies. What a server redirects to is for the caller to judge.
    local: Agent,
}

impl Agents {
    pub fn new(settings: &Settings) -> Self {
        Self {
            by_tls: agent(settings, true),
            local: agent(settings, false),
        }
    }

    fn to(&self, url: &str) -> &Agent {
        if url.starts_with("https://") {
            &self.by_tls
        } else {
            &self.local
        }
    }
}

fn agent(settings: &Settings, by_tls: bool) -> Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .user_agent(concat!("profiler/", env!("CARGO_PKG_VERSION")))
        .max_redirects(if by_tls { REDIRECTS_MAX } else { 0 })
        .https_only(by_tls)
        .timeout_global(Some(settings.time_max))
        .timeout_resolve(settings.timeout)
        .timeout_connect(settings.timeout)
        .timeout_recv_response(settings.timeout)
        .timeout_per_read(settings.timeout);
    let config = if by_tls { config } else { config.proxy(None) };
    config.build().into()
}

/// What a URL leads to, from a server that is protected as the first one is.
fn answer(agents: &Agents, url: &str) -> Result<Body, DownloadError> {
    let mut url = url.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let response = agents.to(&url).get(&url).call()?;
        if !response.status().is_redirection() {
            return Ok(response.into_body());
        }
        let location = response.headers().get("location");
        let to = location.and_then(|to| to.to_str().ok()).unwrap_or_default();
        url = if to.starts_with('/') {
            let host = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
            format!("{host}{to}")
        } else {
            to.to_owned()
        };
        if !url.starts_with("http") || !is_protected(&url) {
            return Err(DownloadError::Unprotected(url));
        }
    }
    Err(DownloadError::TooManyRedirects)
}

/// Writes what a URL leads to.
///
/// # Errors
/// Where the server does not have it, or goes beyond the bounds; what has been written is then of no use.
pub(super) fn download(
    agents: &Agents,
    url: &str,
    settings: &Settings,
    into: &mut impl Write,
) -> Result<(), DownloadError> {
    let body = answer(agents, url)?;
    let too_large = || DownloadError::TooLarge(settings.size_max);
    if body
        .content_length()
        .is_some_and(|bytes| bytes > settings.size_max)
    {
        return Err(too_large());
    }
    let mut body = body.into_with_config().limit(u64::MAX).reader();
    let mut pace = Pace::new(settings.timeout);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = settings.size_max;
    loop {
        let length = match body.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ureq::Error::from(error).into()),
        };
        left = left.checked_sub(length as u64).ok_or_else(too_large)?;
        if !pace.keeps_up(length as u64) {
            return Err(DownloadError::TooSlow);
        }
        into.write_all(&chunk[..length]).map_err(DownloadError::Write)?;
    }
}

/// How fast it comes.
struct Pace {
    timeout: Option<Duration>,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            since: Instant::now(),
            bytes: 0,
        }
    }

    /// Whether each time of the timeout's length has brought enough so far.
    fn keeps_up(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        if self.timeout.is_none_or(|timeout| self.since.elapsed() < timeout) {
            return true;
        }
        let enough = self.bytes >= SLOWEST_BYTES;
        (self.since, self.bytes) = (Instant::now(), 0);
        enough
    }
}
