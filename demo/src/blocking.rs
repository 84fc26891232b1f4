//! One thread a connection, each blocked in `read` until its next request.

use std::{
    io::{self, Read as _, Write as _},
    os::fd::AsRawFd as _,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crate::{
    address::{Listener, Stream},
    args::Traffic,
    error::Error,
    generator::{Totals, Variant},
    handler::{Workspace, Workspaces, handle_request},
    request::Framing,
    served::Served,
    switches::Switches,
};

/// The blocking server.
pub struct Server {
    listener: Arc<Listener>,
    accepting: JoinHandle<Result<Totals, Error>>,
}

impl Variant for Server {
    const NAME: &str = "blocking";

    fn start(listener: Listener, traffic: &Traffic, workspaces: Workspaces) -> Result<Self, Error> {
        let listener = Arc::new(listener);
        let pairs = traffic.pairs as usize;
        let accepting = spawn("accept", {
            let listener = Arc::clone(&listener);
            move || accept_connections(&listener, pairs, &workspaces)
        })?;
        Ok(Self { listener, accepting })
    }

    fn stop(self) -> Result<Totals, Error> {
        let fd = match &*self.listener {
            Listener::Unix(listener) => listener.as_raw_fd(),
            Listener::Tcp(listener) => listener.as_raw_fd(),
        };
        // SAFETY: the listener is open until the end of this function. A listening socket that is shut down
        // makes Linux end a pending `accept` with EINVAL.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        self.accepting.join().map_err(|_| Error::Panicked("accepting"))?
    }
}

/// A connection's thread, and the socket to end it by.
struct Connection {
    thread: JoinHandle<Served>,
    stream: Arc<Stream>,
}

fn accept_connections(listener: &Listener, pairs: usize, workspaces: &Workspaces) -> Result<Totals, Error> {
    let (mut totals, mut connections) = (Totals::new(), Vec::new());
    loop {
        let stream = match listener.accept() {
            Ok(stream) => Arc::new(stream),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            // What a listener says that has been shut down.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(source) => {
                return Err(Error::System {
                    call: "accept",
                    source,
                });
            }
        };
        reap(&mut connections, &mut totals, |connection: &Connection| {
            connection.thread.is_finished()
        })?;
        if connections.len() >= pairs {
            totals.refused += 1;
            continue;
        }
        totals.connections += 1;
        let workspace = workspaces.make();
        let thread = spawn("serve", {
            let stream = Arc::clone(&stream);
            move || serve_connection(&stream, workspace)
        })?;
        connections.push(Connection { thread, stream });
    }
    for connection in &connections {
        connection.stream.shutdown();
    }
    reap(&mut connections, &mut totals, |_| true)?;
    Ok(totals)
}

/// Takes in the figures of the connections that `ended`.
fn reap(
    connections: &mut Vec<Connection>,
    totals: &mut Totals,
    ended: impl Fn(&Connection) -> bool,
) -> Result<(), Error> {
    for connection in connections.extract_if(.., |connection| ended(connection)) {
        totals
            .served
            .merge(&connection.thread.join().map_err(|_| Error::Panicked("serving"))?);
    }
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|source| Error::System {
        call: "starting a thread",
        source,
    })
}

/// Serves one connection to its end, one read, one write a request.
fn serve_connection(mut stream: &Stream, mut workspace: Workspace) -> Served {
    let (mut served, mut framing) = (Served::new(), Framing::new());
    loop {
        let before = Switches::of_thread();
        let Ok(read @ 1..) = stream.read(framing.free()) else {
            return served;
        };
        let mut written = Ok(());
        framing.take(read, |request| {
            let handled = handle_request(&mut workspace, request);
            if written.is_ok() {
                written = stream.write_all(&handled.reply);
            }
            served.count(&handled);
        });
        served.serving += Switches::of_thread() - before;
        if written.is_err() {
            return served;
        }
    }
}
