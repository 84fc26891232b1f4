//! What is typed, read by a thread of its own: a terminal that has gone must hold up nothing else.

use std::{io, thread, time::Duration};

use crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::mpsc;

/// How long the library may look for more of what has been typed. It does not look at all where it may not wait.
const AT_MOST: Duration = Duration::from_millis(1);

/// Keys that wait to be taken.
const WAITING: usize = 256;

/// The keyboard.
#[derive(Debug)]
pub struct Keyboard(mpsc::Receiver<io::Result<Event>>);

impl Keyboard {
    /// Begins to read standard input, which is a terminal.
    ///
    /// # Errors
    ///
    /// Where no thread can be started.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(WAITING);
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || {
                // What goes wrong ends the reading: the receiver sees that nothing more comes.
                if let Err(error) = read(&sender) {
                    let _ = sender.blocking_send(Err(error));
                }
            })?;
        Ok(Self(receiver))
    }

    /// The next event; `None` once the terminal has gone.
    pub async fn next(&mut self) -> Option<io::Result<Event>> {
        self.0.recv().await
    }
}

fn read(sender: &mpsc::Sender<io::Result<Event>>) -> io::Result<()> {
    let input = io::stdin();
    loop {
        let mut waited_for = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut waited_for, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        // The library would read the end of a terminal over and over, and never return.
        if waited_for[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
        {
            return Ok(());
        }
        while event::poll(AT_MOST)? {
            if sender.blocking_send(event::read()).is_err() {
                return Ok(());
            }
        }
    }
}
