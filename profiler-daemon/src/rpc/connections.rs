//! The connections that clients have: how many, whose they are, and how long one may take to begin.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy, sink},
    net::{UnixListener, UnixStream},
    time::{Sleep, sleep, timeout},
};
use tonic::transport::server::Connected;

use super::{
    peer::{Peer, caller},
    places::{Limits, Place, Places},
};

/// How many connections there may be.
const LIMITS: Limits = Limits {
    of_a_user: 64,
    of_all: 1024,
};

/// Time in which a client has to send what an HTTP/2 connection begins with.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Length of that in bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// How many clients at once are told that there is no place for them, how long each has to read that, and how much is read of it.
const REFUSALS: Limits = Limits {
    of_a_user: 8,
    of_all: 32,
};
const REFUSAL: Duration = Duration::from_secs(1);
const MAX_REFUSED_BYTES: u64 = 64 << 10;
/// Until another connection is taken where none can be: there may be a descriptor by then.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Takes connections for ever. One that cannot be taken, or for which there is no place, is no end.
pub fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<Connection>> {
    let door = Door {
        listener,
        places: Places::new(LIMITS),
        refusals: Places::new(REFUSALS),
    };
    stream::unfold(door, |door| async {
        let connection = door.next().await;
        Some((Ok(connection), door))
    })
}

/// Where clients come in, or are told that there is no place.
struct Door {
    listener: UnixListener,
    places: Places,
    refusals: Places,
}

impl Door {
    async fn next(&self) -> Connection {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(connection) = self.admit(stream) {
                        return connection;
                    }
                }
                Err(error) => {
                    // Most likely there is no descriptor left.
                    tracing::warn!(%error, "a connection could not be taken");
                    sleep(BACK_OFF).await;
                }
            }
        }
    }

    fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let peer = Peer::of(&stream)?;
        let uid = peer.counted_as();
        if let Some(place) = self.places.take(uid) {
            return Some(Connection::new(stream, peer, place, HANDSHAKE));
        }
        tracing::debug!(uid, "a connection was refused: there are too many");
        if let Some(place) = self.refusals.take(uid) {
            tokio::spawn(refuse(stream, place));
        }
        None
    }
}

/// Says in HTTP/2 that there is no place, and closes the connection once the client has read that or had time to.
async fn refuse(mut stream: UnixStream, _place: Place) {
    let told = async {
        stream.write_all(&refusal()).await?;
        // Until the client closes it.
        copy(&mut stream.take(MAX_REFUSED_BYTES), &mut sink()).await
    };
    // A client that has gone need not be told.
    let _: Result<io::Result<u64>, _> = timeout(REFUSAL, told).await;
}

/// Empty settings, with which a connection begins, and its end for coming too often (RFC 9113, sections 6.5, 6.8 and 7).
fn refusal() -> Vec<u8> {
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 11;
    const NO_STREAM: u32 = 0;
    let frame = |kind: u8, payload: &[u8]| {
        // Three bytes of length; the kind; no flags; of the connection as a whole.
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        [&length[..], &[kind, 0], &NO_STREAM.to_be_bytes(), payload].concat()
    };
    let goaway = [NO_STREAM.to_be_bytes(), ENHANCE_YOUR_CALM.to_be_bytes()].concat();
    [frame(SETTINGS, &[]), frame(GOAWAY, &goaway)].concat()
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    peer: Peer,
    /// None where it is no client's, but this process's own.
    _place: Option<Place>,
    /// Bytes of the beginning that are still to come, and until when.
    beginning: Option<(usize, Pin<Box<Sleep>>)>,
}

impl Connection {
    fn new(stream: UnixStream, peer: Peer, place: Place, handshake: Duration) -> Self {
        Self {
            stream,
            peer,
            _place: Some(place),
            beginning: Some((PREFACE_BYTES, Box::pin(sleep(handshake)))),
        }
    }

    /// One within this process.
    ///
    /// # Errors
    /// Where the kernel does not say whose it is.
    pub fn of_own(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            peer: Peer::User(caller(&stream.peer_cred()?)),
            stream,
            _place: None,
            beginning: None,
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some((_, deadline)) = &mut self.beginning
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        if let Some((missing, _)) = &mut self.beginning {
            *missing = missing.saturating_sub(read);
            if *missing == 0 {
                self.beginning = None;
            }
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Caller;

    /// A user's, who has 20 ms to begin.
    fn connection(stream: UnixStream) -> Connection {
        let place = Places::new(LIMITS).take(1).unwrap();
        let peer = Peer::User(Caller { uid: 1, gid: 1 });
        Connection::new(stream, peer, place, Duration::from_millis(20))
    }

    #[tokio::test]
    async fn a_client_that_does_not_begin_is_left() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = connection(theirs);
        ours.write_all(b"PRI * HTTP").await.unwrap();
        let mut text = Vec::new();
        let error = connection.read_to_end(&mut text).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(text, b"PRI * HTTP");
    }

    #[tokio::test]
    async fn one_that_has_begun_may_be_silent() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = connection(theirs);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(preface.len(), PREFACE_BYTES);
        ours.write_all(preface).await.unwrap();
        let mut text = vec![0; PREFACE_BYTES];
        connection.read_exact(&mut text).await.unwrap();
        sleep(Duration::from_millis(40)).await;
        ours.write_all(b"more").await.unwrap();
        let mut more = [0; 4];
        connection.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"more");
    }
}
