//! What threads and processes are called. They choose it themselves, and may change it at any time.

use std::{
    collections::HashMap,
    fs::{self, File},
    hash::Hash,
    io::{self, Read as _},
};

use profiler_target::read_of_process;

use super::{
    frame::{Frame, FrameId, Frames},
    name::NAME_MAX,
};

/// The module of a thread's frame.
const THREAD: &str = "[thread]";
/// The module of a command line's frame.
const PROCESS: &str = "[process]";
/// What a thread or process is called that was gone before it was looked at.
pub const UNKNOWN_TASK: &str = "[unknown]";
/// Most threads, and most processes, that are told apart at a time; then they are all looked up anew.
const TASKS_MAX: usize = 1 << 16;
/// Names older than this are read again, in ns.
const AGE_MAX_NS: u64 = 1_000_000_000;
/// So long after it was seen last, the name of a thread that has ended is kept: its records may be on their way.
const MET_MAX_NS: u64 = 60_000_000_000;
/// So often the name of a thread is read that is seen: it may have set it only after it began.
const MET_READS: u8 = 2;

struct Known {
    frame: FrameId,
    read_at_ns: u64,
}

/// A thread that was seen while it was there.
struct Met {
    name: String,
    /// How often its name was read.
    reads: u8,
    seen_at_ns: u64,
}

/// The frames of threads and command lines.
#[derive(Default)]
pub(super) struct Tasks {
    /// Threads that were there when their process was looked at: of one that ends before it is sampled, the name is known.
    met: HashMap<(u32, u32), Met>,
    /// When processes were looked at last.
    met_at_ns: HashMap<u32, u64>,
    /// When those were left out last that have ended long ago.
    pruned_at_ns: u64,
    threads: HashMap<(u32, u32), Known>,
    names: HashMap<(u32, u32), Known>,
    processes: HashMap<u32, Known>,
}

impl Tasks {
    /// Looks what a process and its threads are called, at most once a second. Of more threads than are kept, the first are looked at.
    pub fn meet(&mut self, tgid: u32, now_ns: u64, frames: &mut Frames) {
        let met_at_ns = self.met_at_ns.get(&tgid).copied();
        if met_at_ns.is_some_and(|met_at_ns| now_ns.saturating_sub(met_at_ns) < AGE_MAX_NS) {
            return;
        }
        self.prune(now_ns);
        if self.met_at_ns.len() >= TASKS_MAX {
            self.met_at_ns.clear();
        }
        self.met_at_ns.insert(tgid, now_ns);
        let Ok(threads) = fs::read_dir(format!("/proc/{tgid}/task")) else {
            // It is gone, and what is known of it is needed for what it did last.
            return;
        };
        self.process(tgid, now_ns, frames);
        for thread in threads.flatten().take(TASKS_MAX) {
            let tid = thread.file_name().to_str().and_then(|tid| tid.parse().ok());
            let Some(tid) = tid else { continue };
            self.meet_thread((tgid, tid), met_at_ns.unwrap_or(0), now_ns);
        }
    }

    /// Leaves out threads that have ended long ago; once a second, however many processes are looked at.
    fn prune(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.pruned_at_ns) < AGE_MAX_NS {
            return;
        }
        self.pruned_at_ns = now_ns;
        self.met
            .retain(|_, met| now_ns.saturating_sub(met.seen_at_ns) < MET_MAX_NS);
    }

    /// Looks what a thread is called whose process was looked at before at `before_ns`. A number that was nobody's then is another
    /// thread's now.
    fn meet_thread(&mut self, (tgid, tid): (u32, u32), before_ns: u64, now_ns: u64) {
        let is_full = self.met.len() >= TASKS_MAX;
        let reads = match self.met.get_mut(&(tgid, tid)) {
            Some(met) => {
                let reads = if met.seen_at_ns < before_ns { 0 } else { met.reads };
                met.seen_at_ns = now_ns;
                reads
            }
            // Those that are known already are kept: their name is asked when they are sampled.
            None if is_full => return,
            None => 0,
        };
        if reads < MET_READS
            && let Some(name) = name_of_thread(tgid, tid)
        {
            let met = Met {
                name,
                reads: reads + 1,
                seen_at_ns: now_ns,
            };
            self.met.insert((tgid, tid), met);
        }
    }

    /// Forgets what threads of a process were called when it was looked at.
    pub fn forget(&mut self, tgid: u32) {
        self.met_at_ns.remove(&tgid);
        self.met.retain(|(of, _), _| *of != tgid);
    }

    /// The frame of a thread: its name and its number on the host.
    pub fn thread(&mut self, tgid: u32, tid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        let met = &self.met;
        look_up(&mut self.threads, (tgid, tid), now_ns, |known| {
            let Some(name) = thread_name(tgid, tid, known.is_some(), met) else {
                return known.unwrap_or(FrameId::OTHER);
            };
            frames.intern(Frame::named(&format!("{name} ({tid})"), &THREAD.into(), false))
        })
    }

    /// The frame of threads that are called like a thread, but for the number at the end: `worker-*`.
    pub fn threads_like(&mut self, tgid: u32, tid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        let met = &self.met;
        look_up(&mut self.names, (tgid, tid), now_ns, |known| {
            let Some(name) = thread_name(tgid, tid, known.is_some(), met) else {
                return known.unwrap_or(FrameId::OTHER);
            };
            frames.intern(Frame::named(&without_number(&name), &THREAD.into(), false))
        })
    }

    /// The frame of a process: its command line, or its name where that is empty.
    pub fn process(&mut self, tgid: u32, now_ns: u64, frames: &mut Frames) -> FrameId {
        look_up(&mut self.processes, tgid, now_ns, |known| {
            let read = read_of_process(tgid, move || read(&format!("/proc/{tgid}/cmdline")));
            let line = match (read, known) {
                (Err(_), Some(known)) => return known,
                // It does not answer: its name is told without waiting for it.
                (Err(error), None) if error.kind() == io::ErrorKind::TimedOut => String::new(),
                (Err(_), None) => UNKNOWN_TASK.to_owned(),
                (Ok(line), _) => command(line),
            };
            let line = if line.is_empty() {
                self::read(&format!("/proc/{tgid}/comm")).map_or_else(
                    |_| UNKNOWN_TASK.to_owned(),
                    |name| text(name.strip_suffix(b"\n").unwrap_or(&name)),
                )
            } else {
                line
            };
            frames.intern(Frame::named(&line, &PROCESS.into(), false))
        })
    }
}

/// What a thread is called, or was when its process was looked at; `None` where it is gone and was known before.
fn thread_name(tgid: u32, tid: u32, is_known: bool, met: &HashMap<(u32, u32), Met>) -> Option<String> {
    match name_of_thread(tgid, tid) {
        None if !is_known => {
            let met = met.get(&(tgid, tid));
            Some(met.map_or_else(|| UNKNOWN_TASK.to_owned(), |met| met.name.clone()))
        }
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
        assert_eq!(&*frames.table()[unknown.0 as usize].function, UNKNOWN_TASK);
    }

    #[test]
    fn threads_that_were_there_have_their_names_though_they_end_before_they_are_looked_at() {
        let (mut tasks, mut frames) = (Tasks::default(), Frames::default());
        let pid = std::process::id();
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("ends early".to_owned());
        let thread = thread.spawn(move || {
            tell.send(own_tid()).unwrap();
            ended.recv().unwrap();
        });
        let tid = told.recv().unwrap();
        tasks.meet(pid, 0, &mut frames);
        end.send(()).unwrap();
        thread.unwrap().join().unwrap();
        // It is joined a moment before the kernel has taken it away.
        while name_of_thread(pid, tid).is_some() {
            std::thread::yield_now();
        }
        let mut name = |tasks: &mut Tasks| {
            let frame = tasks.thread(pid, tid, AGE_MAX_NS, &mut frames);
            frames.table()[frame.0 as usize].function.to_string()
        };
        assert_eq!(name(&mut tasks), format!("ends early ({tid})"));
        assert_eq!(name(&mut Tasks::default()), format!("{UNKNOWN_TASK} ({tid})"));

        // Its number may be another's one day.
        tasks.threads.clear();
        tasks.meet(pid, MET_MAX_NS, &mut Frames::default());
        assert!(!tasks.met.contains_key(&(pid, tid)));
        assert!(tasks.met.contains_key(&(pid, pid)));
        tasks.forget(pid);
        assert!(tasks.met.is_empty());
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
