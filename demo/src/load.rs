//! The load: requests at a steady rate over all connections, each reply checked.

use std::{
    io::{self, Read as _, Write as _},
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{
    address::Stream,
    args::{Load, Traffic},
    error::Error,
    pace::Pacer,
    report::{LoadReport, Output},
    request::{REPLY_LEN, expected_reply, request},
    served::{durations, record},
    stop::{Signals, Stop},
};

/// A server that takes longer is taken for stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects, sends until told to stop or the server goes away, and reports.
pub fn run(load: &Load, duration: Option<Duration>, signals: &Signals, output: Output) -> Result<(), Error> {
    let Load {
        address,
        traffic: Traffic { pairs, threads, rate },
    } = load;
    let mut shares: Vec<Vec<Connection>> = (0..(*threads).min(*pairs)).map(|_| Vec::new()).collect();
    for number in 0..*pairs {
        let stream = address.connect()?;
        stream
            .set_read_timeout(REPLY_TIMEOUT)
            .map_err(|source| Error::System {
                call: "setting a socket's read timeout",
                source,
            })?;
        let share = number as usize % shares.len();
        shares[share].push(Connection {
            stream,
            next_id: u64::from(number) << 40,
        });
    }

    // One round sends one request on each connection, so rounds follow each other at this distance.
    let interval = Duration::from_secs(1) * *pairs / *rate;
    let (start, stop) = (Instant::now(), Stop::default());
    let deadline = duration.map(|duration| start + duration);
    let (waited, results) = thread::scope(|scope| {
        let ended = Ended::new();
        let generators: Vec<_> = shares
            .into_iter()
            .map(|connections| {
                let stop = stop.clone();
                scope.spawn(move || {
                    let result = generate(connections, Pacer::new(interval, start), &stop);
                    ended.thread_ended();
                    result
                })
            })
            .collect();
        let waited = signals.wait(deadline);
        stop.set();
        (
            waited,
            generators
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>(),
        )
    });

    let (mut requests, mut round_trips, mut failure) = (0, durations(), None);
    for result in results {
        let generated = result.map_err(|_| Error::Panicked("generator"))?;
        requests += generated.requests;
        if let Err(error) = round_trips.add(&generated.round_trips) {
            unreachable!("histograms of equal bounds: {error}");
        }
        failure = failure.or(generated.failure);
    }
    output.load(&LoadReport {
        elapsed: start.elapsed(),
        requests,
        round_trips,
    })?;
    waited?;
    failure.map_or(Ok(()), Err)
}

/// Wakes the main thread from its wait for signals when a generator has nothing left to do.
#[derive(Clone, Copy)]
struct Ended {
    main: libc::pthread_t,
}

impl Ended {
    fn new() -> Self {
        // SAFETY: pthread_self has no preconditions.
        let main = unsafe { libc::pthread_self() };
        Self { main }
    }

    fn thread_ended(self) {
        // SAFETY: the main thread waits for all generators in a scope, so that it is alive. SIGCHLD is blocked in
        // every thread and taken by the main thread's wait.
        unsafe { libc::pthread_kill(self.main, libc::SIGCHLD) };
    }
}

struct Connection {
    stream: Stream,
    next_id: u64,
}

/// What one thread did, and what ended it before it was told to stop.
struct Generated {
    requests: u64,
    round_trips: Histogram<u64>,
    failure: Option<Error>,
}

fn generate(mut connections: Vec<Connection>, mut pacer: Pacer, stop: &Stop) -> Generated {
    let mut generated = Generated {
        requests: 0,
        round_trips: durations(),
        failure: None,
    };
    while !stop.asked_before(pacer.next(Instant::now())) {
        match round(&mut connections, &mut generated) {
            Ok(true) => {}
            Ok(false) => {
                eprintln!("demo: the server closed the connection");
                break;
            }
            Err(error) => {
                generated.failure = Some(error);
                break;
            }
        }
    }
    generated
}

/// One request on each connection, all sent before the first reply is read; `false` where the server has gone.
fn round(connections: &mut [Connection], generated: &mut Generated) -> Result<bool, Error> {
    let mut sent = Vec::with_capacity(connections.len());
    for connection in &mut *connections {
        let request = request(connection.next_id);
        connection.next_id += 1;
        sent.push((Instant::now(), request));
        if let Err(source) = (&connection.stream).write_all(&request) {
            return gone(connection.next_id - 1, source);
        }
    }
    for (connection, (start, request)) in connections.iter_mut().zip(sent) {
        let (id, mut reply) = (connection.next_id - 1, [0; REPLY_LEN]);
        if let Err(source) = (&connection.stream).read_exact(&mut reply) {
            return gone(id, source);
        }
        record(&mut generated.round_trips, start.elapsed());
        generated.requests += 1;
        if reply != expected_reply(&request) {
            return Err(Error::NotTheEcho { id });
        }
    }
    Ok(true)
}

/// Tells a server that stopped from one that fails.
fn gone(id: u64, source: io::Error) -> Result<bool, Error> {
    match source.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Ok(false)
        }
        _ => Err(Error::Reply { id, source }),
    }
}
