//! What is known of each process before anything is attached: names of functions, debug information, what runs its code, where
//! it runs. It is for choosing one, so it is cheap, and what is not known in time is left out: a process whose files are on a file
//! system that does not answer, or whose memory is locked, holds up a thread of its own and nothing else.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use profiler_debug_files::{Home, Rights, Wanted};
use profiler_elf::facts::{DebugInfo, Facts, Mark, Symbols};
use profiler_target::{Life, Listed, Surroundings, contents::FileKey, executable_mappings};

/// Longest that a request waits for what is not known, and for one process.
const MOST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(250);
/// How long what is known of a process is not looked at anew.
const FRESH: Duration = Duration::from_secs(10);
/// Threads that look at processes; and how many of a user's processes may hold up one each.
const MAX_THREADS: usize = 32;
const MAX_STUCK_OF_USER: usize = 4;
/// Executables and processes that are kept; with more, all are forgotten.
const MAX_FILES: usize = 4_096;
const MAX_PROCESSES: usize = 65_536;

/// Libraries that run a language's code, by how their names begin.
const LIBRARIES: [(&str, &str); 9] = [
    ("libjvm.so", "jvm"),
    ("libcoreclr.so", "dotnet"),
    ("libmonosgen-", "mono"),
    ("libnode.so", "node"),
    ("libpython", "python"),
    ("libruby", "ruby"),
    ("libperl.so", "perl"),
    ("libHSrts", "haskell"),
    ("libgo.so", "go"),
];

/// What an executable has whose code a language's runtime is, or that a language's compiler made.
const MARKS: [(Mark, &str); 9] = [
    (Mark::Section(".PyRuntime"), "python"),
    (Mark::Shared("_ZN4node5StartEiPPc"), "node"),
    (Mark::Shared("enif_make_atom"), "erlang"),
    (Mark::Shared("ruby_init"), "ruby"),
    (Mark::Shared("perl_parse"), "perl"),
    (Mark::Section(".go.buildinfo"), "go"),
    (Mark::Section(".gopclntab"), "go"),
    (Mark::Compiler("GHC "), "haskell"),
    (Mark::Compiler("rustc version"), "rust"),
];

/// What is known of a process; empty text for what is not. As `profiler.v1` says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Names of functions in its executable.
    pub symbols: &'static str,
    /// Debug information of its executable.
    pub debug_info: &'static str,
    /// What runs its code.
    pub runtime: &'static str,
    /// Its container, or its service.
    pub surroundings: Surroundings,
}

/// What is known of an executable.
#[derive(Clone, Copy, Default)]
struct Executable {
    symbols: &'static str,
    debug_info: &'static str,
    /// What runs its code by the file alone; empty where the file does not say, `None` where it is not known.
    runtime: Option<&'static str>,
}

/// Which executable, as a process sees it: what was split off is looked for below its root.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ExecutableKey {
    file: FileKey,
    root: Option<(u64, u64)>,
}

/// A process that a thread looks at.
struct UnderWay {
    pid: u32,
    uid: u32,
    /// It did not answer in time.
    is_stuck: bool,
}

struct Entry {
    life: Life,
    at: Instant,
    known: Known,
}

#[derive(Default)]
struct State {
    files: HashMap<ExecutableKey, Executable>,
    processes: HashMap<u32, Entry>,
    /// By the thread's number.
    under_way: HashMap<u64, UnderWay>,
    threads: usize,
    next_thread: u64,
}

impl State {
    /// Whether a process is left alone: it does not answer, or too many of its user's do not.
    fn is_left_alone(&self, process: &Asked) -> bool {
        let stuck = || self.under_way.values().filter(|other| other.is_stuck);
        stuck().any(|other| other.pid == process.pid)
            || stuck().filter(|other| other.uid == process.uid).count() >= MAX_STUCK_OF_USER
    }
}

/// A process that is asked for.
#[derive(Clone, Copy)]
struct Asked {
    pid: u32,
    uid: u32,
    life: Life,
}

/// How one process is looked at; another in tests.
type Look = dyn Fn(&Shared, u32) -> Known + Send + Sync;

struct Shared {
    state: Mutex<State>,
    look: Box<Look>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of processes, and looks at them.
#[derive(Clone)]
pub struct Census(Arc<Shared>);

impl Default for Census {
    fn default() -> Self {
        Self::looking(Box::new(look))
    }
}

impl Census {
    fn looking(look: Box<Look>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            look,
        }))
    }

    /// What is known of processes, or becomes known in a second. It waits: not to be called where others would wait as well.
    #[must_use]
    pub fn of(&self, processes: &[Listed]) -> HashMap<u32, Known> {
        let mut known = HashMap::with_capacity(processes.len());
        let mut left = Vec::new();
        {
            let state = self.0.lock();
            for process in processes {
                match state.processes.get(&process.pid) {
                    Some(entry) if entry.life == process.life && entry.at.elapsed() < FRESH => {
                        known.insert(process.pid, entry.known.clone());
                    }
                    _ => left.push(Asked {
                        pid: process.pid,
                        uid: process.uid,
                        life: process.life,
                    }),
                }
            }
        }
        let until = Instant::now() + MOST;
        while !left.is_empty() && Instant::now() < until {
            let (sender, found) = mpsc::channel();
            let Some(thread) = self.begin(left.clone(), sender) else {
                break;
            };
            // One that does not answer is left to its thread; another goes on with the others.
            loop {
                match found.recv_timeout(PATIENCE.min(until.saturating_duration_since(Instant::now()))) {
                    Ok((pid, of_process)) => {
                        known.insert(pid, of_process);
                        left.retain(|asked| asked.pid != pid);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if let Some(stuck) = self.0.lock().under_way.get_mut(&thread) {
                            stuck.is_stuck = true;
                        }
                        break;
                    }
                    // All were looked at, or are left alone.
                    Err(mpsc::RecvTimeoutError::Disconnected) => return known,
                }
            }
        }
        known
    }

    /// Begins to look at processes, on a thread of this number; `None` where there are too many.
    fn begin(&self, asked: Vec<Asked>, found: mpsc::Sender<(u32, Known)>) -> Option<u64> {
        let thread = {
            let mut state = self.0.lock();
            if state.threads >= MAX_THREADS {
                return None;
            }
            state.threads += 1;
            state.next_thread += 1;
            state.next_thread
        };
        let shared = Arc::clone(&self.0);
        let work = move || {
            look_at_all(&shared, thread, asked, &found);
            let mut state = shared.lock();
            state.under_way.remove(&thread);
            state.threads -= 1;
        };
        let begun = thread::Builder::new().name("census".into()).spawn(work).is_ok();
        if !begun {
            self.0.lock().threads -= 1;
        }
        begun.then_some(thread)
    }
}

/// Looks at processes one after another, as long as somebody waits for it.
fn look_at_all(shared: &Shared, thread: u64, asked: Vec<Asked>, found: &mpsc::Sender<(u32, Known)>) {
    for process in asked {
        {
            let mut state = shared.lock();
            if state.is_left_alone(&process) {
                continue;
            }
            let Asked { pid, uid, .. } = process;
            let is_stuck = false;
            state.under_way.insert(thread, UnderWay { pid, uid, is_stuck });
        }
        let known = (shared.look)(shared, process.pid);
        let mut state = shared.lock();
        state.under_way.remove(&thread);
        if state.processes.len() >= MAX_PROCESSES {
            state.processes.clear();
        }
        let entry = Entry {
            life: process.life,
            at: Instant::now(),
            known: known.clone(),
        };
        state.processes.insert(process.pid, entry);
        drop(state);
        if found.send((process.pid, known)).is_err() {
            return;
        }
    }
}

/// Looks at one process.
fn look(shared: &Shared, pid: u32) -> Known {
    let executable = executable(shared, pid).unwrap_or_default();
    Known {
        symbols: executable.symbols,
        debug_info: executable.debug_info,
        runtime: runtime(pid, executable.runtime),
        surroundings: Surroundings::of(pid).unwrap_or_default(),
    }
}

/// What runs a process's code: what it has mapped says so, or its executable.
fn runtime(pid: u32, of_executable: Option<&'static str>) -> &'static str {
    let Ok(mapped) = executable_mappings(pid) else {
        return of_executable.unwrap_or_default();
    };
    let names = mapped
        .iter()
        .filter(|mapping| mapping.is_file())
        .filter_map(|mapping| mapping.path.file_name()?.to_str());
    let of_libraries = names.filter_map(of_library).min_by_key(|(place, _)| *place);
    match (of_libraries, of_executable) {
        (Some((_, runtime)), _) => runtime,
        (None, Some("")) => "native",
        (None, of_executable) => of_executable.unwrap_or_default(),
    }
}

/// What a library runs, and its place among them.
fn of_library(name: &str) -> Option<(usize, &'static str)> {
    let at = LIBRARIES
        .iter()
        .position(|(library, _)| name.starts_with(library) && name.contains(".so"))?;
    Some((at, LIBRARIES[at].1))
}

fn executable(shared: &Shared, pid: u32) -> Option<Executable> {
    // Before the file is opened: a process may take more rights at any time.
    let rights = Rights::of_process(pid);
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/{pid}/exe"))
        .ok()?;
    let metadata = file.metadata().ok()?;
    let root = fs::metadata(format!("/proc/{pid}/root")).ok();
    let key = ExecutableKey {
        file: FileKey::of(&metadata),
        root: root.map(|root| (root.dev(), root.ino())),
    };
    if let Some(known) = shared.lock().files.get(&key) {
        return Some(*known);
    }
    let home = || Home::of(pid, &rights, &path, &metadata);
    let known = read(&file, metadata.uid(), home)?;
    let mut state = shared.lock();
    if state.files.len() >= MAX_FILES {
        state.files.clear();
    }
    state.files.insert(key, known);
    Some(known)
}

/// Reads the headers of an executable, and of what was split off from it where it lacks something.
fn read(file: &File, owner: u32, home: impl FnOnce() -> Home) -> Option<Executable> {
    let facts = facts(file, &MARKS.map(|(mark, _)| mark))?;
    let mut known = Executable {
        symbols: match facts.symbols {
            Symbols::None => "none",
            Symbols::Dynamic => "dynamic",
            Symbols::Packed => "packed",
            Symbols::Full => "full",
        },
        debug_info: match facts.debug_info {
            DebugInfo::None => "none",
            DebugInfo::Lines => "lines",
            DebugInfo::Full => "full",
        },
        runtime: Some(facts.marks.first().map_or("", |at| MARKS[*at].1)),
    };
    if let (DebugInfo::None, Some(build_id)) = (facts.debug_info, facts.build_id) {
        let link = facts.debug_link.as_deref().map(bytes_as_path);
        let wanted = Wanted::by_build_id_and_name(build_id, link, owner);
        let separate = split_off(&wanted, &home());
        if separate.debug_info != DebugInfo::None {
            known.debug_info = "separate";
        }
        if facts.symbols != Symbols::Full && separate.symbols == Symbols::Full {
            known.symbols = "separate";
        }
    }
    Some(known)
}

/// What the file has that was split off; nothing where there is none. It is told by its build-id, of headers that are read as those of
/// the executable: whoever made it may have made it as long as can be.
fn split_off(wanted: &Wanted, home: &Home) -> Facts {
    let Some(build_id) = wanted.build_id() else {
        return Facts::default();
    };
    let files = wanted.opened(home);
    let mut found = files.iter().filter_map(|file| facts(file, &[]));
    let is_it = |facts: &Facts| {
        let has_more = facts.debug_info != DebugInfo::None || facts.symbols == Symbols::Full;
        facts.build_id.as_deref() == Some(build_id) && has_more
    };
    found.find(is_it).unwrap_or_default()
}

fn facts(file: &File, marks: &[Mark]) -> Option<Facts> {
    let read = |bytes: &mut [u8], at| file.read_exact_at(bytes, at).is_ok();
    Facts::read(&read, marks).ok()
}

fn bytes_as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command, Stdio},
        sync::Condvar,
    };

    use super::*;

    fn listed(pid: u32, uid: u32) -> Listed {
        Listed {
            pid,
            uid,
            threads: 1,
            name: String::new(),
            executable: None,
            command_line: String::new(),
            life: Life::default(),
        }
    }

    #[test]
    fn libraries_are_told_by_their_names() {
        let of = |name| of_library(name).map(|(_, runtime)| runtime);
        assert_eq!(of("libpython3.11.so.1.0"), Some("python"));
        assert_eq!(of("libjvm.so"), Some("jvm"));
        assert_eq!(of("libpythonic"), None);
        assert_eq!(of("libc.so.6"), None);
    }

    #[test]
    fn a_process_that_does_not_answer_holds_up_no_other() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let opens = Arc::clone(&gate);
        let census = Census::looking(Box::new(move |_, pid| {
            if pid == 2 {
                let (open, changed) = &*opens;
                let guard = changed.wait_while(open.lock().unwrap(), |open| !*open);
                drop(guard.unwrap());
            }
            Known {
                runtime: "native",
                ..Known::default()
            }
        }));
        let asked = [listed(1, 0), listed(2, 1000), listed(3, 0)];
        let begun = Instant::now();
        let known = census.of(&asked);
        assert!(begun.elapsed() < 10 * MOST);
        let mut pids: Vec<_> = known.keys().copied().collect();
        pids.sort_unstable();
        assert_eq!(pids, [1, 3]);
        // It is not waited for again.
        assert!(!census.of(&asked).contains_key(&2));
        assert_eq!(census.0.lock().threads, 1);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let until = Instant::now() + 10 * MOST;
        while !census.of(&asked).contains_key(&2) {
            assert!(Instant::now() < until);
        }
    }

    #[test]
    fn many_processes_that_do_not_answer_are_bounded_for_their_user() {
        let census = Census::looking(Box::new(|_, pid| {
            if pid > 1 {
                loop {
                    thread::park();
                }
            }
            Known::default()
        }));
        let mut asked: Vec<_> = (2..100).map(|pid| listed(pid, 1000)).collect();
        asked.push(listed(1, 0));
        for _ in 0..4 {
            let _ = census.of(&asked);
        }
        assert!(
            census.0.lock().threads <= MAX_STUCK_OF_USER,
            "{}",
            census.0.lock().threads
        );
        assert!(census.of(&asked).contains_key(&1));
    }

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn an_own_process_is_known() {
        let child = Command::new("/bin/sleep").arg("100").stdin(Stdio::null()).spawn();
        let running = Running(child.unwrap());
        let pid = running.0.id();
        let census = Census::default();
        let all = profiler_target::list(None).unwrap();
        let known = census.of(&all);
        let own = &known[&std::process::id()];
        assert_eq!((own.symbols, own.runtime), ("full", "rust"));
        // As the profile that it is built by says.
        assert!(["lines", "full"].contains(&own.debug_info), "{own:?}");
        assert_eq!(known[&pid].runtime, "native");
        // Again: no thread looks at it.
        let threads = || census.0.lock().next_thread;
        let before = threads();
        let process = || all.iter().find(|process| process.pid == pid).cloned();
        let again = census.of(process().as_slice());
        assert_eq!((&again[&pid], threads()), (&known[&pid], before));
        // A number that nobody has any more.
        let gone = census.of(&[listed(u32::MAX, 0)]);
        assert_eq!(gone[&u32::MAX], Known::default());
    }
}
