//! One tokio task a connection; a task that has nothing to read leaves its thread to the others.

use std::{
    collections::HashMap,
    future::Future,
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::JoinSet,
};

use crate::{
    address::Listener,
    args::Traffic,
    error::Error,
    generator::{Totals, Variant},
    handler::{Workspace, Workspaces, handle_request},
    request::{Framing, READ_LEN, REQUEST_LEN, Reply},
    served::Served,
    switches::Switches,
};

/// The async server.
pub struct Server {
    stop: oneshot::Sender<()>,
    accepting: thread::JoinHandle<Result<Totals, Error>>,
}

impl Variant for Server {
    const NAME: &str = "async";

    fn start(listener: Listener, traffic: &Traffic, workspaces: Workspaces) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(traffic.threads as usize)
            .thread_name("worker")
            .enable_io()
            .build()
            .map_err(|source| Error::System {
                call: "starting the tokio runtime",
                source,
            })?;
        let acceptor = Acceptor::new(listener, &runtime)?;
        let (stop, stopped) = oneshot::channel();
        let pairs = traffic.pairs as usize;
        // The main thread waits for signals, so the future that accepts is driven from a thread of its own.
        let accepting = thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || runtime.block_on(accept_connections(acceptor, pairs, workspaces, stopped)))
            .map_err(|source| Error::System {
                call: "starting a thread",
                source,
            })?;
        Ok(Self { stop, accepting })
    }

    fn stop(self) -> Result<Totals, Error> {
        // Nobody is left to be told where the accepting future has ended already.
        let _ = self.stop.send(());
        self.accepting.join().map_err(|_| Error::Panicked("accepting"))?
    }
}

/// A listening socket in tokio's hands.
enum Acceptor {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Either kind of connection.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for S {}

impl Acceptor {
    fn new(listener: Listener, runtime: &Runtime) -> Result<Self, Error> {
        let _guard = runtime.enter();
        let acceptor = match listener {
            Listener::Unix(listener) => listener
                .set_nonblocking(true)
                .and_then(|()| UnixListener::from_std(listener))
                .map(Self::Unix),
            Listener::Tcp(listener) => listener
                .set_nonblocking(true)
                .and_then(|()| TcpListener::from_std(listener))
                .map(Self::Tcp),
        };
        acceptor.map_err(|source| Error::System {
            call: "handing the listener to tokio",
            source,
        })
    }

    /// A connection, and a second descriptor of its socket to end it by.
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, OwnedFd)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let socket = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream), socket))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let socket = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream), socket))
            }
        }
    }
}

async fn accept_connections(
    acceptor: Acceptor,
    pairs: usize,
    workspaces: Workspaces,
    mut stopped: oneshot::Receiver<()>,
) -> Result<Totals, Error> {
    let (mut totals, mut connections, mut sockets) =
        (Totals::new(), JoinSet::<Session>::new(), HashMap::new());
    loop {
        let (stream, socket) = tokio::select! {
            biased;
            // An error is the end of the sender: then the server goes too.
            _ = &mut stopped => break,
            accepted = acceptor.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(source) => return Err(Error::System { call: "accept", source }),
            },
        };
        while let Some(ended) = connections.try_join_next_with_id() {
            let (id, session) = ended.map_err(|_| Error::Panicked("serving"))?;
            sockets.remove(&id);
            totals.served.merge(&session.served);
        }
        if connections.len() >= pairs {
            totals.refused += 1;
            continue;
        }
        totals.connections += 1;
        let task = connections.spawn(Watched::new(serve_connection(
            stream,
            Session::new(workspaces.make()),
        )));
        sockets.insert(task.id(), socket);
    }
    // A connection learns of the end as it does of any other: its read gives 0. Waiting for a second event in each
    // task would take a lock that all share, and with it the chance to block.
    for socket in sockets.values() {
        // SAFETY: the descriptor is open and this program's own. A peer that has gone already leaves nothing to do.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
    while let Some(ended) = connections.join_next().await {
        totals
            .served
            .merge(&ended.map_err(|_| Error::Panicked("serving"))?.served);
    }
    Ok(totals)
}

/// What one task works with. Made before it starts and dropped after it ends, because returning memory to the
/// kernel may have to wait for another thread that does so.
struct Session {
    workspace: Workspace,
    served: Served,
    framing: Framing,
    replies: Vec<Reply>,
}

impl Session {
    fn new(workspace: Workspace) -> Self {
        let replies = Vec::with_capacity(READ_LEN / REQUEST_LEN);
        Self {
            workspace,
            served: Served::new(),
            framing: Framing::new(),
            replies,
        }
    }
}

/// Serves one connection to its end, one read, one write a request.
async fn serve_connection(mut stream: Box<dyn Connection>, mut session: Session) -> Session {
    let Session {
        workspace,
        served,
        framing,
        replies,
    } = &mut session;
    'connected: while let Ok(read @ 1..) = stream.read(framing.free()).await {
        framing.take(read, |request| {
            let handled = handle_request(workspace, request);
            replies.push(handled.reply);
            served.count(&handled);
        });
        for reply in replies.drain(..) {
            if stream.write_all(&reply).await.is_err() {
                break 'connected;
            }
        }
    }
    session
}

/// Counts the context switches of whichever thread polls the connection, while it polls it: a voluntary one there
/// would be a task that blocked. (A worker with nothing to poll waits in `epoll_wait`, outside of this.)
struct Watched<F> {
    connection: Pin<Box<F>>,
    switches: Switches,
}

impl<F> Watched<F> {
    fn new(connection: F) -> Self {
        Self {
            connection: Box::pin(connection),
            switches: Switches::default(),
        }
    }
}

impl<F: Future<Output = Session>> Future for Watched<F> {
    type Output = Session;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Session> {
        let before = Switches::of_thread();
        let polled = self.connection.as_mut().poll(context);
        self.switches += Switches::of_thread() - before;
        polled.map(|mut session| {
            session.served.serving = self.switches;
            session
        })
    }
}
