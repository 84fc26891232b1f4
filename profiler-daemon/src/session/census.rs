//! What is known of each process before anything is attached: names of functions, debug information, what runs its code, where
//! it runs. It is for choosing one, so it is cheap, and what is not known in time is left out (`looks`).

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read as _,
    ops::ControlFlow,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use profiler_debug_files::{Home, Rights, Wanted};
use profiler_elf::facts::{DebugInfo, Facts, Mark, Symbols};
use profiler_target::{Listed, Place, Surroundings, contents::FileKey, open_at_once, visit_mappings};

use super::{command::Caller, looks::Looks};

/// How long what is known of a process is not looked at anew, nor what was found beside an executable.
const FRESH: Duration = Duration::from_secs(10);
/// Executables that are kept; with more, all are forgotten.
const MAX_FILES: usize = 4_096;
/// Bytes that are read of what a process has mapped, and of mounts.
const MAX_MAPS: u64 = 16 << 20;
const MAX_MOUNTS: u64 = 4 << 20;

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
const MARKS: [(Mark, &str); 8] = [
    (Mark::Section(".PyRuntime"), "python"),
    (Mark::Shared("_ZN4node5StartEiPPc"), "node"),
    (Mark::Shared("enif_make_atom"), "erlang"),
    (Mark::Shared("ruby_init"), "ruby"),
    (Mark::Shared("perl_parse"), "perl"),
    (Mark::Go, "go"),
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
    /// Since when this was known, where files that were split off from it were looked for: they may come and go.
    looked_around: Option<Instant>,
}

impl Executable {
    fn is_fresh(&self) -> bool {
        self.looked_around.is_none_or(|at| at.elapsed() < FRESH)
    }
}

/// Which executable, as a process sees it: what was split off is looked for below its root, where its mount namespace has something.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ExecutableKey {
    file: FileKey,
    root: Place,
    mounts: Place,
}

/// What is known of processes, and looks at them.
#[derive(Clone)]
pub struct Census(Looks<Known>);

impl Default for Census {
    fn default() -> Self {
        let files = Executables::default();
        Self(Looks::new(FRESH, move |pid| look(&files, pid)))
    }
}

impl Census {
    /// What is known of processes, or becomes known in a second. It waits: not to be called where others would wait as well.
    #[must_use]
    pub fn of(&self, caller: Caller, processes: &[Listed]) -> HashMap<u32, Known> {
        self.0.of(caller, processes)
    }
}

/// The command lines of processes, which are in their memory.
#[derive(Clone)]
pub struct CommandLines(Looks<String>);

impl Default for CommandLines {
    fn default() -> Self {
        Self(Looks::new(Duration::ZERO, profiler_target::command_line))
    }
}

impl CommandLines {
    /// Those of processes that answer in a second. It waits: not to be called where others would wait as well.
    #[must_use]
    pub fn of(&self, caller: Caller, processes: &[Listed]) -> HashMap<u32, String> {
        self.0.of(caller, processes)
    }
}

/// What is known of executables.
#[derive(Clone, Default)]
struct Executables(Arc<Mutex<HashMap<ExecutableKey, Executable>>>);

impl Executables {
    fn lock(&self) -> MutexGuard<'_, HashMap<ExecutableKey, Executable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, key: &ExecutableKey) -> Option<Executable> {
        self.lock().get(key).copied().filter(Executable::is_fresh)
    }

    fn keep(&self, key: ExecutableKey, known: Executable) {
        let mut files = self.lock();
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(key, known);
    }
}

/// Looks at one process.
fn look(files: &Executables, pid: u32) -> Known {
    // Before anything else: a process may take more rights at any time.
    let rights = Rights::of_process(pid);
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let mapped = path.as_deref().and_then(|path| Mapped::of(pid, path));
    let executable = path
        .zip(mapped.as_ref())
        .filter(|(_, mapped)| is_local(pid, mapped))
        .and_then(|(path, _)| executable(files, pid, &rights, &path));
    let executable = executable.unwrap_or_default();
    Known {
        symbols: executable.symbols,
        debug_info: executable.debug_info,
        runtime: runtime(mapped.as_ref(), executable.runtime),
        surroundings: Surroundings::of(pid).unwrap_or_default(),
    }
}

/// What a process has mapped, as far as it is needed.
#[derive(Default)]
struct Mapped {
    /// The first of [`LIBRARIES`] that is among it.
    library: Option<usize>,
    /// The device of the executable's file system, as that has it.
    device: Option<(u32, u32)>,
    /// Whether all was looked at.
    is_all: bool,
}

impl Mapped {
    fn of(pid: u32, executable: &Path) -> Option<Self> {
        let mut mapped = Self::default();
        let is_all = visit_mappings(pid, MAX_MAPS, |mapping| {
            if mapping.is_file() && mapping.path == executable {
                mapped.device.get_or_insert(mapping.device);
            }
            if mapping.is_file() && mapping.executable {
                let name = mapping.path.file_name().and_then(|name| name.to_str());
                let found = name.and_then(of_library);
                mapped.library = mapped.library.into_iter().chain(found).min();
            }
            ControlFlow::Continue(())
        });
        mapped.is_all = is_all.ok()?;
        Some(mapped)
    }
}

/// What runs a process's code: what it has mapped says so, or its executable.
fn runtime(mapped: Option<&Mapped>, of_executable: Option<&'static str>) -> &'static str {
    let library = mapped.and_then(|mapped| mapped.library);
    let is_all = mapped.is_some_and(|mapped| mapped.is_all);
    match (library, of_executable) {
        (Some(at), _) => LIBRARIES[at].1,
        (None, Some("")) if is_all => "native",
        (None, of_executable) => of_executable.unwrap_or_default(),
    }
}

/// Which of the libraries a name is of.
fn of_library(name: &str) -> Option<usize> {
    LIBRARIES
        .iter()
        .position(|(library, _)| name.starts_with(library) && name.contains(".so"))
}

/// Mounts that a process of this number sees, as the kernel tells of them: their file systems are not asked.
struct Mounts(String);

/// One of them (proc(5), `/proc/PID/mountinfo`).
struct Mount<'a> {
    number: u64,
    device: &'a str,
    kind: &'a str,
}

impl Mounts {
    fn of(process: &str) -> Self {
        let mut text = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{process}/mountinfo")) {
            // What was read before an error is kept.
            let _ = file.take(MAX_MOUNTS).read_to_end(&mut text);
        }
        Self(String::from_utf8_lossy(&text).into_owned())
    }

    fn all(&self) -> impl Iterator<Item = Mount<'_>> {
        self.0.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let (number, device) = (fields.next()?.parse().ok()?, fields.nth(1)?);
            // After fields of any number, a hyphen.
            let kind = fields.skip_while(|field| *field != "-").nth(1)?;
            Some(Mount { number, device, kind })
        })
    }
}

/// Whether the executable of a process is on a file system that answers by itself. A process may have its own behind any path, and have
/// mapped another file of the same name: what is mapped says it without a question to the file system, and which mount the file is on
/// cannot be feigned.
fn is_local(pid: u32, mapped: &Mapped) -> bool {
    // Its own root may be below ours, so that it does not see where its program is.
    let mounts = [Mounts::of(&pid.to_string()), Mounts::of("self")];
    let number = || Some(Place::at(format!("/proc/{pid}/exe").as_ref()).ok()?.mount);
    are_local(&mounts, mapped.device, number)
}

/// Whether a device is not of a file system elsewhere by these mounts, and then that of a number is there, and is not elsewhere either.
fn are_local(mounts: &[Mounts], device: Option<(u32, u32)>, number: impl FnOnce() -> Option<u64>) -> bool {
    let all = || mounts.iter().flat_map(Mounts::all);
    let is_local = |mount: &Mount<'_>| profiler_target::file_systems::is_local(mount.kind);
    let device = device.map(|(major, minor)| format!("{major}:{minor}"));
    if all().any(|mount| device.as_deref() == Some(mount.device) && !is_local(&mount)) {
        return false;
    }
    // A kernel that does not know the number says 0, which none has.
    let number = number();
    all()
        .find(|mount| Some(mount.number) == number)
        .is_some_and(|mount| is_local(&mount))
}

fn executable(files: &Executables, pid: u32, rights: &Rights, path: &Path) -> Option<Executable> {
    let file = open_at_once(format!("/proc/{pid}/exe").as_ref()).ok()?;
    let metadata = file.metadata().ok()?;
    let key = ExecutableKey {
        file: FileKey::of_open(&file, &metadata),
        root: Place::at(format!("/proc/{pid}/root").as_ref()).ok()?,
        mounts: Place::at(format!("/proc/{pid}/ns/mnt").as_ref()).ok()?,
    };
    if let Some(known) = files.known(&key) {
        return Some(known);
    }
    let home = || Home::of(pid, rights, path, &metadata);
    let known = read(&file, key.file.owner, home)?;
    files.keep(key, known);
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
            DebugInfo::Unknown => "",
            DebugInfo::Lines => "lines",
            DebugInfo::Full => "full",
        },
        runtime: Some(facts.marks.first().map_or("", |at| MARKS[*at].1)),
        looked_around: None,
    };
    if let (DebugInfo::None, Some(build_id)) = (facts.debug_info, facts.build_id) {
        let link = facts.debug_link.as_deref().map(bytes_as_path);
        let wanted = Wanted::by_build_id_and_name(build_id, link, owner);
        known.looked_around = Some(Instant::now());
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
    let mut found = files.iter().filter_map(|open| facts(&open.file, &[]));
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
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn libraries_are_told_by_their_names() {
        let of = |name| of_library(name).map(|at| LIBRARIES[at].1);
        assert_eq!(of("libpython3.11.so.1.0"), Some("python"));
        assert_eq!(of("libjvm.so"), Some("jvm"));
        assert_eq!(of("libpythonic"), None);
        assert_eq!(of("libc.so.6"), None);
    }

    #[test]
    fn what_was_not_looked_at_is_not_called_native() {
        let mapped = |library, is_all| Mapped {
            library,
            device: None,
            is_all,
        };
        let of = |mapped: &Mapped, executable| runtime(Some(mapped), executable);
        assert_eq!(of(&mapped(None, true), Some("")), "native");
        assert_eq!(of(&mapped(None, false), Some("")), "");
        assert_eq!(of(&mapped(None, false), Some("go")), "go");
        assert_eq!(of(&mapped(Some(0), false), Some("")), LIBRARIES[0].1);
        assert_eq!(runtime(None, Some("")), "");
    }

    #[test]
    fn mounts_are_told_whatever_they_have() {
        let text = "36 35 98:0 /root /a\\040b rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
                    37 36 0:41 / /c rw - fuse.sshfs host: rw\nx y\n\n";
        let mounts = Mounts(text.to_owned());
        let of = |mount: Mount<'_>| (mount.number, mount.device.to_owned(), mount.kind.to_owned());
        let all: Vec<_> = mounts.all().map(of).collect();
        let expected = [(36, "98:0", "ext3"), (37, "0:41", "fuse.sshfs")];
        assert_eq!(
            all,
            expected.map(|(number, device, kind)| (number, device.to_owned(), kind.to_owned()))
        );
    }

    #[test]
    fn executables_elsewhere_are_told_by_what_is_mapped_and_by_their_mount() {
        let of_process = "36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 0:41 / /c rw - fuse.sshfs host: rw\n";
        let own = "21 1 0:50 / /home rw - nfs4 host: rw\n22 1 98:0 / /b rw - ext4 /dev/root rw\n";
        let mounts = [of_process, own].map(|text| Mounts(text.to_owned()));
        let of = |device, number| are_local(&mounts, device, || number);
        assert!(of(Some((98, 0)), Some(36)));
        assert!(of(None, Some(36)));
        assert!(of(None, Some(22)), "by a mount that only this process sees");
        assert!(!of(Some((98, 0)), Some(37)), "another file is mapped by its name");
        assert!(!of(None, Some(21)));
        assert!(
            !of(None, Some(99)) && !of(None, None),
            "by no mount that is there"
        );
        // Not so much as the number is asked for.
        assert!(!are_local(&mounts, Some((0, 41)), || panic!(
            "its file system is asked"
        )));
        assert!(!are_local(&mounts, Some((0, 50)), || panic!(
            "its file system is asked"
        )));
    }

    struct Running(Child);

    impl Running {
        fn start(program: &Path, argument: &str) -> Self {
            let mut command = Command::new(program);
            command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::null());
            Self(command.spawn().unwrap())
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What becomes known of a process: others may keep this machine busy for longer than a look is waited for.
    fn known(census: &Census, process: &Listed) -> Known {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(known) = census
                .of(Caller { uid: 0, gid: 0 }, std::slice::from_ref(process))
                .remove(&process.pid)
            {
                return known;
            }
            assert!(Instant::now() < until);
        }
    }

    #[test]
    fn an_own_process_is_known() {
        let running = Running::start(Path::new("/bin/sleep"), "100");
        let census = Census::default();
        let all = profiler_target::list().unwrap();
        let listed = |pid| all.iter().find(|process| process.pid == pid).unwrap();
        let own = known(&census, listed(std::process::id()));
        assert_eq!((own.symbols, own.runtime), ("full", "rust"));
        // As the profile that it is built by says.
        assert!(["lines", "full"].contains(&own.debug_info), "{own:?}");
        let sleep = listed(running.0.id());
        let of_sleep = known(&census, sleep);
        assert_eq!(of_sleep.runtime, "native");
        // Again: no thread looks at it.
        let before = census.0.threads_so_far();
        assert_eq!(
            (known(&census, sleep), census.0.threads_so_far()),
            (of_sleep, before)
        );
        // A number that nobody has any more.
        let gone = Listed {
            pid: u32::MAX,
            ..sleep.clone()
        };
        assert_eq!(known(&census, &gone), Known::default());
    }

    #[test]
    fn what_was_split_off_is_looked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let (program, debug) = (folder.path().join("p"), folder.path().join("p.debug"));
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(folder.path());
            assert!(command.status().unwrap().success(), "{program} {arguments:?}");
        };
        let source = "#include <unistd.h>\nint main(void) { char c; return (int)read(0, &c, 1); }";
        fs::write(folder.path().join("p.c"), source).unwrap();
        run("cc", &["-g", "-Wl,--build-id", "p.c", "-o", "p"]);
        run("objcopy", &["--only-keep-debug", "p", "p.debug"]);
        run("strip", &["p"]);
        run("objcopy", &["--add-gnu-debuglink=p.debug", "p"]);
        let kept = fs::read(&debug).unwrap();
        fs::remove_file(&debug).unwrap();
        let running = Running::start(&program, "");
        let files = Executables::default();
        let of = || {
            // Its own program runs by the time that it is known.
            let until = Instant::now() + Duration::from_mins(1);
            while fs::read_link(format!("/proc/{}/exe", running.0.id())).unwrap() != program {
                assert!(Instant::now() < until);
            }
            let known = look(&files, running.0.id());
            [known.symbols, known.debug_info]
        };
        assert_eq!(of(), ["dynamic", "none"]);
        fs::write(&debug, kept).unwrap();
        let is_new = files.lock().values().all(Executable::is_fresh);
        assert!(!is_new || of() == ["dynamic", "none"], "it is kept for a while");
        for known in files.lock().values_mut() {
            known.looked_around = known.looked_around.and_then(|at| at.checked_sub(FRESH));
        }
        assert_eq!(of(), ["separate", "separate"]);
    }
}
