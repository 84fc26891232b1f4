//! One tokio task a connection; a task that has nothing to read leaves its thread to the others.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinSet,
};

use crate::{
    address::Listener,
    args::{Traffic, Work},
    error::Error,
    generator::{Totals, Variant},
    handler::{Workspace, handle_request},
    request::Framing,
    served::Served,
    switches::Switches,
};

/// The async server.
pub struct Server {
    stop: watch::Sender<bool>,
    accepting: thread::JoinHandle<Result<Totals, Error>>,
}

impl Variant for Server {
    const NAME: &str = "async";

    fn start(listener: Listener, traffic: &Traffic, work: Work) -> Result<Self, Error> {
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
        let (stop, stopped) = watch::channel(false);
        let pairs = traffic.pairs as usize;
        // The main thread waits for signals, so the future that accepts is driven from a thread of its own.
        let accepting = thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || runtime.block_on(accept_connections(acceptor, pairs, work, stopped)))
            .map_err(|source| Error::System {
                call: "starting a thread",
                source,
            })?;
        Ok(Self { stop, accepting })
    }

    fn stop(self) -> Result<Totals, Error> {
        // Nobody is left to be told where the accepting future has ended already.
        let _ = self.stop.send(true);
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

    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

async fn accept_connections(
    acceptor: Acceptor,
    pairs: usize,
    work: Work,
    mut stopped: watch::Receiver<bool>,
) -> Result<Totals, Error> {
    let (mut totals, mut connections) = (Totals::new(), JoinSet::new());
    loop {
        let stream = tokio::select! {
            biased;
            // An error is the end of the sender: then the server goes too.
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = acceptor.accept() => match accepted {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(source) => return Err(Error::System { call: "accept", source }),
            },
        };
        while let Some(ended) = connections.try_join_next() {
            totals
                .served
                .merge(&ended.map_err(|_| Error::Panicked("serving"))?);
        }
        if connections.len() >= pairs {
            totals.refused += 1;
            continue;
        }
        totals.connections += 1;
        connections.spawn(Watched::new(serve_connection(
            stream,
            Workspace::new(work),
            stopped.clone(),
        )));
    }
    while let Some(ended) = connections.join_next().await {
        totals
            .served
            .merge(&ended.map_err(|_| Error::Panicked("serving"))?);
    }
    Ok(totals)
}

/// Serves one connection to its end, one read, one write a request.
async fn serve_connection(
    mut stream: Box<dyn Connection>,
    mut workspace: Workspace,
    mut stopped: watch::Receiver<bool>,
) -> Served {
    let (mut served, mut framing, mut replies) = (Served::new(), Framing::new(), Vec::new());
    loop {
        let read = tokio::select! {
            biased;
            read = stream.read(framing.free()) => read,
            _ = stopped.wait_for(|stop| *stop) => return served,
        };
        let Ok(read @ 1..) = read else { return served };
        framing.take(read, |request| {
            let handled = handle_request(&mut workspace, request);
            replies.push(handled.reply);
            served.count(&handled);
        });
        for reply in replies.drain(..) {
            if stream.write_all(&reply).await.is_err() {
                return served;
            }
        }
    }
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

impl<F: Future<Output = Served>> Future for Watched<F> {
    type Output = Served;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Served> {
        let before = Switches::of_thread();
        let polled = self.connection.as_mut().poll(context);
        self.switches += Switches::of_thread() - before;
        polled.map(|mut served| {
            served.serving = self.switches;
            served
        })
    }
}
