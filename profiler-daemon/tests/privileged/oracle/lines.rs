//! What a child writes, line by line: read by a thread of its own, and awaited.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
};

use super::super::service::PATIENCE;

/// What is known by the lines so far.
struct Known<T> {
    known: T,
    /// There will be no more lines.
    is_closed: bool,
}

/// The lines of a child, of which each means something.
pub struct Lines<T> {
    read: Arc<(Mutex<Known<T>>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl<T: Default + Send + 'static> Lines<T> {
    /// Reads lines, each by what it means: a function that adds it to what is known.
    pub fn of(output: impl Read + Send + 'static, mean: fn(&mut T, &str)) -> Self {
        let read = Arc::new((
            Mutex::new(Known {
                known: T::default(),
                is_closed: false,
            }),
            Condvar::new(),
        ));
        let reader = std::thread::spawn({
            let read = Arc::clone(&read);
            move || {
                let (state, changed) = &*read;
                for line in BufReader::new(output).lines() {
                    let Ok(line) = line else { break };
                    mean(&mut state.lock().unwrap().known, &line);
                    changed.notify_all();
                }
                state.lock().unwrap().is_closed = true;
                changed.notify_all();
            }
        });
        Self {
            read,
            reader: Some(reader),
        }
    }

    /// Waits until something holds of what is known; whether it does. It does not where the lines have ended before it did, or it takes too
    /// long.
    pub fn wait(&self, holds: impl Fn(&T) -> bool) -> bool {
        let (state, changed) = &*self.read;
        let waited = changed.wait_timeout_while(state.lock().unwrap(), PATIENCE, |read| {
            !holds(&read.known) && !read.is_closed
        });
        holds(&waited.unwrap().0.known)
    }

    /// Looks at what is known so far.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.read.0.lock().unwrap().known)
    }

    /// Waits until the lines have ended, and hands over what is known.
    pub fn end(&mut self) -> T {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        std::mem::take(&mut self.read.0.lock().unwrap().known)
    }
}

#[test]
fn lines_that_end_early_are_no_mark() {
    fn mean(marks: &mut usize, line: &str) {
        *marks += usize::from(line == "mark");
    }
    let mut lines = Lines::of("other\nmark\nother\n".as_bytes(), mean);
    assert!(lines.wait(|marks| *marks == 1));
    assert!(!lines.wait(|marks| *marks == 2), "they have ended");
    assert_eq!(lines.end(), 1);
}
