//! Where the server listens: a Unix socket, by path or abstract, or TCP.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use crate::error::Error;

/// A parsed socket address; its `Display` parses back to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:@NAME`: leaves no file behind.
    Abstract(String),
    /// `unix:PATH`.
    Path(PathBuf),
    /// `tcp:HOST:PORT`; port 0 lets the kernel choose.
    Tcp(String),
}

impl Address {
    /// The default address of a server: its own, whatever else runs.
    pub fn of_process(pid: u32) -> Self {
        Self::Abstract(format!("demo-{pid}"))
    }

    /// Opens the listening socket, and gives the address under which it is reached.
    ///
    /// # Errors
    /// [`Error::Listen`] with the kernel's reason.
    pub fn listen(&self) -> Result<(Listener, Self), Error> {
        self.try_listen().map_err(|source| Error::Listen {
            address: self.to_string(),
            source,
        })
    }

    fn try_listen(&self) -> io::Result<(Listener, Self)> {
        Ok(match self {
            Self::Abstract(name) => (
                Listener::Unix(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?),
                self.clone(),
            ),
            Self::Path(path) => (Listener::Unix(UnixListener::bind(path)?), self.clone()),
            Self::Tcp(host_port) => {
                let listener = TcpListener::bind(host_port)?;
                let bound = Self::Tcp(listener.local_addr()?.to_string());
                (Listener::Tcp(listener), bound)
            }
        })
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// [`Error::Connect`] with the kernel's reason.
    pub fn connect(&self) -> Result<Stream, Error> {
        self.try_connect().map_err(|source| Error::Connect {
            address: self.to_string(),
            source,
        })
    }

    fn try_connect(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Abstract(name) => {
                Stream::Unix(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
            }
            Self::Path(path) => Stream::Unix(UnixStream::connect(path)?),
            Self::Tcp(host_port) => {
                let stream = TcpStream::connect(host_port)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }

    /// Takes away what listening left in the file system.
    pub fn clean_up(&self) {
        if let Self::Path(path) = self {
            // Somebody else may have removed it already: then it is gone, as wanted.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected unix:PATH, unix:@NAME or tcp:HOST:PORT";
        match text.split_once(':') {
            Some(("unix", "" | "@")) => Err(format!("{text} names no socket: {EXPECTED}")),
            Some(("unix", rest)) => Ok(match rest.strip_prefix('@') {
                Some(name) => Self::Abstract(name.to_owned()),
                None => Self::Path(rest.into()),
            }),
            Some(("tcp", rest)) => match rest.to_socket_addrs() {
                Ok(_) => Ok(Self::Tcp(rest.to_owned())),
                Err(error) => Err(format!("{rest}: {error}")),
            },
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Path(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => write!(f, "tcp:{host_port}"),
        }
    }
}

/// A listening socket of either family.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

/// A connected socket of either family.
#[derive(Debug)]
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Ends the connection, waking whoever reads from it.
    pub fn shutdown(&self) {
        // The other side may have gone already: then nobody waits here either.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Bounds how long a read may wait.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(buffer),
            Stream::Tcp(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).write(bytes),
            Stream::Tcp(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_display() {
        for text in [
            "unix:@demo-1",
            "unix:/run/demo.sock",
            "unix:relative",
            "tcp:127.0.0.1:0",
            "tcp:[::1]:80",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "unix:",
            "unix:@",
            "tcp:",
            "tcp:127.0.0.1",
            "tcp:127.0.0.1:99999",
            "udp:1",
            "127.0.0.1:80",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
