//! A web server on loopback that does as it is told, well or badly.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// What is answered to a request for a path.
pub enum Answer {
    /// This, with its length.
    Bytes(Vec<u8>),
    /// This status, and nothing.
    Status(u16),
    /// Another place to ask.
    Redirect(String),
    /// A length, and less than that.
    Short(Vec<u8>),
    /// Bytes as fast as they are taken, with no end.
    Endless,
    /// A byte now and then, with no end.
    Drip,
    /// The beginning of an answer, and then nothing.
    Silence,
}

/// The server; its thread ends with the process.
pub struct Web {
    /// Where it is, without a slash at the end.
    pub url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    pub fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                // Clients go away in the middle: that is no failure.
                thread::spawn(move || serve(&stream.unwrap(), &log, &*answer).ok());
            }
        });
        Self { url, asked }
    }

    /// The paths that were asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: &TcpStream,
    log: &Mutex<Vec<String>>,
    answer: &impl Fn(&str) -> Answer,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap()?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap().to_owned();
    log.lock().unwrap().push(path.clone());
    let head =
        |status: u16, header: &str| format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{header}\r\n");
    let length = |length: usize| head(200, &format!("Content-Length: {length}\r\n"));
    match answer(&path) {
        Answer::Bytes(bytes) => {
            stream.write_all(length(bytes.len()).as_bytes())?;
            stream.write_all(&bytes)
        }
        Answer::Status(status) => stream.write_all(head(status, "Content-Length: 0\r\n").as_bytes()),
        Answer::Redirect(to) => {
            let header = format!("Location: {to}\r\nContent-Length: 0\r\n");
            stream.write_all(head(302, &header).as_bytes())
        }
        Answer::Short(bytes) => {
            stream.write_all(length(bytes.len() + 1).as_bytes())?;
            stream.write_all(&bytes)
        }
        Answer::Endless => {
            stream.write_all(head(200, "").as_bytes())?;
            loop {
                stream.write_all(&[0; 1 << 13])?;
            }
        }
        Answer::Drip => {
            stream.write_all(head(200, "").as_bytes())?;
            loop {
                stream.write_all(&[0; 64])?;
                // Slowness is what this is for.
                thread::sleep(Duration::from_millis(50));
            }
        }
        Answer::Silence => {
            stream.write_all(length(1 << 20).as_bytes())?;
            thread::sleep(Duration::from_mins(1));
            Ok(())
        }
    }
}
