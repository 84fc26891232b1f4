//! What threads and processes are called. They choose it themselves, and may change it at any time.

use std::{
    collections::HashMap,
    fs::File,
    hash::Hash,
    io::{self, Read as _},
};

use super::{
    frame::{Frame, FrameId, Frames},
    name::NAME_MAX,
};

/// The module of a thread's frame.
const THREAD: &str = "[thread]";
/// The module of a command line's frame.
const PROCESS: &str = "[process]";
/// What a thread or process is called that was gone before it was looked at.
const UNKNOWN: &str = "[unknown]";
/// Most threads, and most processes, that are told apart at a time; then they are all looked up anew.
const TASKS_MAX: usize = 1 << 16;
/// Names older than this are read again, in ns.
const AGE_MAX_NS: u64 = 1_000_000_000;

struct Known {
    frame: FrameId,
    read_at_ns: u64,
}

/// The frames of threads and command lines.
#[derive(Default)]
pub(super) struct Tasks {
    threads: HashMap<(u32, u32), Known>,
    names: HashMap<(u32, u32), Known>,
    processes: HashMap<u32, Known>,
}

impl Tasks {
    /// The frame of a thread: its name and its number on the host.
    pub fn thread(&mut self, tgid: u32, tid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        look_up(&mut self.threads, (tgid, tid), now_ns, |known| {
            let Some(name) = thread_name(tgid, tid, known.is_some()) else {
                return known.unwrap_or(FrameId::OTHER);
            };
            frames.intern(Frame::named(&format!("{name} ({tid})"), &THREAD.into(), false))
        })
    }

    /// The frame of threads that are called like a thread, but for the number at the end: `worker-*`.
    pub fn threads_like(&mut self, tgid: u32, tid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        look_up(&mut self.names, (tgid, tid), now_ns, |known| {
            let Some(name) = thread_name(tgid, tid, known.is_some()) else {
                return known.unwrap_or(FrameId::OTHER);
            };
            frames.intern(Frame::named(&without_number(&name), &THREAD.into(), false))
        })
    }

    /// The frame of a process: its command line, or its name where that is empty.
    pub fn process(&mut self, tgid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        look_up(&mut self.processes, tgid, now_ns, |known| {
            let read = read(&format!("/proc/{tgid}/cmdline"));
            let line = match (read, known) {
                (Err(_), Some(known)) => return known,
                (Err(_), None) => UNKNOWN.to_owned(),
                (Ok(line), _) => command(line),
            };
            let line = if line.is_empty() {
                self::read(&format!("/proc/{tgid}/comm")).map_or_else(
                    |_| UNKNOWN.to_owned(),
                    |name| text(name.strip_suffix(b"\n").unwrap_or(&name)),
                )
            } else {
                line
            };
            frames.intern(Frame::named(&line, &PROCESS.into(), false))
        })
    }
}

/// What a thread is called; `None` where it is gone and was known before.
fn thread_name(tgid: u32, tid: u32, is_known: bool) -> Option<String> {
    match name_of_thread(tgid, tid) {
        None if !is_known => Some(UNKNOWN.to_owned()),
        name => name,
    }
}

/// What a thread is called at present, by the numbers of its process and its own; `None` where it has ended.
#[must_use]
pub fn name_of_thread(pid: u32, tid: u32) -> Option<String> {
    let name = read(&format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(text(name.strip_suffix(b"\n").unwrap_or(&name)))
}

/// A name with a star for the number at its end. A digit behind a letter or a point belongs to a word: `python3.11`.
fn without_number(name: &str) -> String {
    let word = name.trim_end_matches(|byte: char| byte.is_ascii_digit());
    let counts = word.ends_with(|last: char| !last.is_alphanumeric() && last != '.');
    if counts && word.len() < name.len() {
        format!("{word}*")
    } else {
        name.to_owned()
    }
}

/// What is known of a task, looked up where that is nothing or old.
fn look_up<K: Hash + Eq>(
    tasks: &mut HashMap<K, Known>,
    key: K,
    now_ns: u64,
    find: impl FnOnce(Option<FrameId>) -> FrameId,
) -> FrameId {
    let known = tasks.get(&key);
    if let Some(known) = known
        && now_ns.saturating_sub(known.read_at_ns) < AGE_MAX_NS
    {
        return known.frame;
    }
    let frame = find(known.map(|known| known.frame));
    if tasks.len() >= TASKS_MAX {
        tasks.clear();
    }
    let read_at_ns = now_ns;
    tasks.insert(key, Known { frame, read_at_ns });
    frame
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(NAME_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A command line with spaces between its arguments.
fn command(mut line: Vec<u8>) -> String {
    let length = line
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    line.truncate(length);
    line.iter_mut()
        .filter(|byte| **byte == 0)
        .for_each(|byte| *byte = b' ');
    text(&line)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_tid() -> u32 {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
    }

    #[test]
    fn threads_and_processes_have_their_names() {
        let (mut tasks, mut frames) = (Tasks::default(), Frames::default());
        let pid = std::process::id();
        std::thread::Builder::new()
            .name("a worker".to_owned())
            .spawn(move || {
                let tid = own_tid();
                let frame = tasks.thread(pid, tid, 0, &mut frames);
                let named = &frames.table()[frame.0 as usize];
                assert_eq!(*named.function, *format!("a worker ({tid})"));
                assert_eq!(&*named.module, THREAD);

                let frame = tasks.process(pid, 0, &mut frames);
                let arguments: Vec<String> = std::env::args().collect();
                let named = &frames.table()[frame.0 as usize];
                assert_eq!(*named.function, *arguments.join(" "));
            })
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn ended_threads_keep_their_last_known_name() {
        let (mut tasks, mut frames) = (Tasks::default(), Frames::default());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let before = (
            tasks.thread(pid, pid, 0, &mut frames),
            tasks.process(pid, 0, &mut frames),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let later = 2 * AGE_MAX_NS;
        assert_eq!(tasks.thread(pid, pid, later, &mut frames), before.0);
        assert_eq!(tasks.process(pid, later, &mut frames), before.1);
        let unknown = Tasks::default().process(pid, 0, &mut frames);
        assert_eq!(&*frames.table()[unknown.0 as usize].function, UNKNOWN);
    }

    #[test]
    fn a_command_line_is_one_text() {
        assert_eq!(command(b"a\0b c\0\0".to_vec()), "a b c");
        assert_eq!(command(b"\0\0".to_vec()), "");
        assert_eq!(
            command(b"postgres: checkpointer".to_vec()),
            "postgres: checkpointer"
        );
    }
}
