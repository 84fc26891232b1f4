//! Code under probes, which a target may change while it is probed: a hook is put over a function's first instructions, or these
//! are put back as they were. The breakpoint is gone then, and calls are no longer seen. The kernel does not say so. Or it unloads a library,
//! and loads another file of the same path, as where a plugin was replaced by a newer version: probes are in the old file alone.
//!
//! Whoever made a session therefore looks at the code of its probes again and again, beside the owner, and has those taken off whose code
//! is another by now. See `docs/safety.md` for what is promised.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use profiler_target::{Mapping, Memory, Process, executable_mappings, read_of_process};

use super::{
    command::{Caller, Command, Handle, blocking},
    functions::Key,
    prepare::changed_code::{differs, is_probe},
};

/// Time between looks.
const LOOK: Duration = Duration::from_millis(500);

/// Looks from one for code that is gone to the next.
const LOOKS_FOR_GONE: u64 = 4;

/// Looks in a row that have to find it changed. Code is changed in steps, and where probes are attached anew, their breakpoints are
/// gone for a moment.
const LOOKS: u32 = 4;

/// Places that are looked at, of one session. The others are not watched.
const MAX_PLACES: usize = 4096;

/// What has become of code under a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Other bytes are there, or no breakpoint.
    Bytes,
    /// Its file is mapped no more, but another one of its path is.
    Replaced,
}

impl Change {
    /// Why probes are taken off whose code has changed so.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Bytes => {
                "its code was changed while it was probed: what came since then may not have been seen"
            }
            Self::Replaced => {
                "the process has loaded another file in place of its own, of the same path: calls since then were not seen; run it again"
            }
        }
    }
}

/// Code of a process under a probe.
#[derive(PartialEq, Eq, Debug)]
pub struct ProbedCode {
    /// The process.
    pub pid: u32,
    /// Where the code is in its memory.
    pub address: u64,
    /// The file that is mapped there, and where in it that is.
    pub file: MappedFile,
    /// The path of that file, as of [`Mapping`].
    pub path: PathBuf,
    /// What the file has there, and a few bytes behind that: an instruction may begin in one and end in the other.
    pub was: Box<[u8]>,
    /// How many of the bytes are compared.
    pub compared: usize,
    /// Which of the bytes the probe is at.
    pub probe: usize,
    /// The function whose spans begin there; `None` of a line.
    pub function: Option<Key>,
}

/// A place in a file, whatever its name is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedFile {
    /// Its device and inode, as of [`Mapping`].
    pub device: (u32, u32),
    /// See there.
    pub inode: u64,
    /// Where in the file, in bytes.
    pub offset: u64,
}

impl ProbedCode {
    /// Whether the file is still mapped there: a process may run another program by now, or have unloaded a library.
    fn is_mapped(&self, mappings: &[Mapping]) -> bool {
        let MappedFile {
            device,
            inode,
            offset,
        } = self.file;
        let mut mappings = mappings.iter();
        mappings.any(|now| {
            (now.device, now.inode) == (device, inode) && now.address_of(offset) == Some(self.address)
        })
    }

    /// What is there now. What cannot be read says nothing but that it may be gone.
    fn look(&self, memory: &Memory) -> Look {
        let mut now = vec![0; self.was.len()];
        if memory.read_exact_at(&mut now, self.address).is_err() {
            return Look::Unreadable;
        }
        let has_probe = match (self.was.get(self.probe..), now.get(self.probe..)) {
            (Some(was), Some(now)) => is_probe(was, now),
            _ => true,
        };
        if !has_probe || differs(&self.was, &now, self.compared) {
            Look::Changed
        } else {
            Look::Same
        }
    }

    /// Its file, whatever its name is.
    fn file_id(&self) -> FileId {
        (self.file.device, self.file.inode)
    }
}

/// What a look at code under a probe finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Same,
    /// Other bytes, or no probe.
    Changed,
    /// Nothing is mapped there, or it cannot be read.
    Unreadable,
}

/// Device and inode.
type FileId = ((u32, u32), u64);

/// What a process has mapped to execute.
struct Mapped<'m> {
    mappings: &'m [Mapping],
    files: HashSet<FileId>,
    paths: HashSet<&'m Path>,
}

impl<'m> Mapped<'m> {
    fn of(mappings: &'m [Mapping]) -> Self {
        let of_files = || mappings.iter().filter(|mapping| mapping.is_file());
        Self {
            mappings,
            files: of_files()
                .map(|mapping| (mapping.device, mapping.inode))
                .collect(),
            paths: of_files().map(|mapping| mapping.path.as_path()).collect(),
        }
    }

    /// Whether a file is mapped nowhere by now, and another one of its path is. Files in memory have names that are not theirs alone.
    fn has_replaced(&self, code: &ProbedCode) -> bool {
        !self.files.contains(&code.file_id())
            && self.paths.contains(code.path.as_path())
            && !code.path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:")
    }

    /// What has become of a place, if something has.
    fn change(&self, code: &ProbedCode, look: Look) -> Option<Change> {
        if code.is_mapped(self.mappings) {
            (look == Look::Changed).then_some(Change::Bytes)
        } else {
            self.has_replaced(code).then_some(Change::Replaced)
        }
    }
}

/// The code of a session's probes; there as long as the session.
#[derive(Default, Debug)]
pub struct ProbedCodes(Mutex<Generation>);

/// Code that probes are in from one change of these to the next.
#[derive(Clone, Default, Debug)]
struct Generation {
    number: u64,
    codes: Vec<Arc<ProbedCode>>,
    /// The session's processes.
    processes: Vec<Arc<Process>>,
}

impl ProbedCodes {
    /// Says which code it is by now, and in which processes. None is judged while probes are attached and detached: nothing is said to be
    /// probed then.
    pub fn set(&self, codes: impl Iterator<Item = Arc<ProbedCode>>, processes: &[Arc<Process>]) {
        let codes = codes.take(MAX_PLACES).collect();
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Generation {
            number: now.number + 1,
            codes,
            processes: processes.to_vec(),
        };
    }

    /// How often that was said.
    pub fn generation(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).number
    }

    fn now(&self) -> Generation {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Code that a target has changed.
pub struct ChangedCode {
    /// When it was looked at, as of [`ProbedCodes::generation`].
    pub generation: u64,
    /// The places.
    pub places: Vec<ChangedPlace>,
    /// Processes in which there was nothing to look at any more, once that had been looked at.
    pub left: HashSet<u32>,
}

impl ChangedCode {
    /// What has become of a place, if it is one of these.
    pub fn of(&self, code: &Arc<ProbedCode>) -> Option<Change> {
        let place = self.places.iter().find(|place| Arc::ptr_eq(&place.code, code));
        place.map(|place| place.change)
    }
}

/// A place whose code is another by now.
pub struct ChangedPlace {
    /// The place.
    pub code: Arc<ProbedCode>,
    /// What has become of it.
    pub change: Change,
}

impl ChangedPlace {
    /// The process, and where in its memory.
    fn at(&self) -> (u32, u64) {
        (self.code.pid, self.code.address)
    }
}

/// Those whose code is another by now. What is mapped is read where bytes differ, and where code is gone only if that is asked for:
/// reading it takes longer, and a library may stay unloaded.
fn changed(codes: Vec<Arc<ProbedCode>>, look_for_gone: bool) -> Vec<ChangedPlace> {
    let mut of_processes: HashMap<u32, Vec<Arc<ProbedCode>>> = HashMap::new();
    for code in codes {
        of_processes.entry(code.pid).or_default().push(code);
    }
    let look = |(pid, codes)| {
        let changed = read_of_process(pid, move || changed_in(pid, codes, look_for_gone));
        // One that does not answer is looked at the next time.
        changed.unwrap_or_default()
    };
    of_processes.into_iter().flat_map(look).collect()
}

/// The same of one process.
fn changed_in(pid: u32, codes: Vec<Arc<ProbedCode>>, look_for_gone: bool) -> io::Result<Vec<ChangedPlace>> {
    let memory = Memory::open(pid)?;
    let looks: Vec<Look> = codes.iter().map(|code| code.look(&memory)).collect();
    let is_gone = look_for_gone && looks.contains(&Look::Unreadable);
    if !is_gone && !looks.contains(&Look::Changed) {
        return Ok(Vec::new());
    }
    let mappings = executable_mappings(pid).unwrap_or_default();
    let mapped = Mapped::of(&mappings);
    // Of a file that was replaced, all places are, also where another's probe is at the same address of the new one.
    let changed = codes.into_iter().zip(looks).filter_map(|(code, look)| {
        let change = mapped.change(&code, look)?;
        Some(ChangedPlace { code, change })
    });
    Ok(changed.collect())
}

/// What a look at the code of a session's probes finds.
#[derive(Default)]
struct Looked {
    places: Vec<ChangedPlace>,
    /// As of [`ChangedCode::left`].
    left: HashSet<u32>,
}

impl Looked {
    /// Looks at the code, and then which processes are still there: what has changed in others is their program.
    fn at(codes: Vec<Arc<ProbedCode>>, processes: &[Arc<Process>], look_for_gone: bool) -> Self {
        let places = changed(codes, look_for_gone);
        if places.is_empty() {
            return Self::default();
        }
        let left = processes.iter().filter(|process| has_left(process));
        Self {
            left: left.map(|process| process.pid()).collect(),
            places,
        }
    }
}

/// Whether there is nothing to look at in a process any more.
fn has_left(process: &Process) -> bool {
    !process.is_alive() || process.runs_another_file()
}

/// A session whose probes are watched.
pub struct Watched {
    /// Its owner.
    pub caller: Caller,
    /// Its name.
    pub name: String,
    /// The code of its probes.
    pub codes: Weak<ProbedCodes>,
}

impl Handle {
    /// Watches the code of a session's probes until that ends.
    pub(super) async fn watch_code(self, of: Watched) {
        // How many looks in a row have found what changed.
        let mut seen: HashMap<(u32, u64), u32> = HashMap::new();
        let mut generation = 0;
        // Places of files that were replaced, of which that was said.
        let mut said: HashSet<(u32, u64)> = HashSet::new();
        for number_of_look in 0_u64.. {
            tokio::time::sleep(LOOK).await;
            let Some(now) = of.codes.upgrade().map(|codes| codes.now()) else {
                return;
            };
            let Generation {
                number,
                codes,
                processes,
            } = now;
            let look_for_gone = number_of_look % LOOKS_FOR_GONE == 0;
            let look = move || Ok(Looked::at(codes, &processes, look_for_gone));
            let Looked { places, left } = blocking(look).await.unwrap_or_default();
            let Some(after) = of.codes.upgrade().map(|codes| codes.generation()) else {
                return;
            };
            if generation != number || number != after {
                seen.clear();
                said.clear();
            }
            generation = number;
            if number != after {
                continue;
            }
            let times = |place: &ChangedPlace| {
                let at = place.at();
                (at, seen.get(&at).copied().unwrap_or(0) + 1)
            };
            seen = places.iter().map(times).collect();
            // Of replaced files all are known together where what is gone was looked for.
            let is_certain = |place: &ChangedPlace| match place.change {
                Change::Bytes => seen.get(&place.at()) >= Some(&LOOKS),
                Change::Replaced => look_for_gone,
            };
            let places: Vec<_> = places.into_iter().filter(is_certain).collect();
            let replaced = places.iter().filter(|place| place.change == Change::Replaced);
            let replaced: HashSet<(u32, u64)> = replaced.map(ChangedPlace::at).collect();
            if replaced.is_subset(&said) && places.len() == replaced.len() {
                continue;
            }
            let (caller, name) = (of.caller, of.name.clone());
            let taken_off = self.ask(caller, |reply| Command::TakeOffChanged {
                caller,
                name,
                changed: ChangedCode {
                    generation,
                    places,
                    left,
                },
                reply,
            });
            match taken_off.await {
                Ok(()) => said.extend(replaced),
                Err(error) => {
                    tracing::debug!(uid = caller.uid, session = of.name, %error, "changed code stays probed");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of this process, as if `was` were the file's.
    fn code(now: &[u8], was: &[u8], probe: usize) -> ProbedCode {
        ProbedCode {
            pid: std::process::id(),
            address: now.as_ptr() as u64,
            file: MappedFile {
                device: (8, 1),
                inode: 7,
                offset: 0x1000,
            },
            path: "/usr/bin/server".into(),
            was: was.into(),
            compared: was.len(),
            probe,
            function: None,
        }
    }

    #[test]
    fn a_probe_is_no_change_and_one_that_is_gone_is_one() {
        let memory = Memory::open(std::process::id()).unwrap();
        let was = [0x55, 0x48, 0x89, 0xe5, 0x90, 0xc3];
        let with = |at: usize, bytes: &[u8]| {
            let mut now = was;
            now[at..at + bytes.len()].copy_from_slice(bytes);
            now
        };
        for (now, probe, is_changed) in [
            (with(0, &[0xcc]), 0, false),
            (with(1, &[0xcc]), 1, false),
            // Another's beside ours.
            (with(0, &[0xcc, 0xcc]), 0, false),
            (was, 0, true),
            (with(1, &[0xcc]), 0, true),
            (with(0, &[0xe9, 1, 2, 3, 4]), 0, true),
            (with(0, &[0xcc, 0x90, 0x90]), 0, true),
        ] {
            let look = code(&now, &was, probe).look(&memory);
            assert_eq!(look == Look::Changed, is_changed, "{now:x?} {probe}");
        }
        let nop = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];
        let call = [0xe8, 1, 2, 3, 4, 0xc3];
        assert_eq!(
            code(&call, &nop, 0).look(&memory),
            Look::Same,
            "the kernel's call"
        );
        let nowhere = ProbedCode {
            address: 0,
            ..code(&was, &was, 0)
        };
        assert_eq!(nowhere.look(&memory), Look::Unreadable);
        let of_a_line = ProbedCode {
            compared: 1,
            ..code(&with(0, &[0xcc, 0xe9, 1, 2]), &was, 0)
        };
        assert_eq!(
            of_a_line.look(&memory),
            Look::Same,
            "what is behind it is another's"
        );
    }

    #[test]
    fn it_is_no_change_where_another_file_is_mapped() {
        let now = [0_u8; 8];
        let code = code(&now, &now, 0);
        let mapping = Mapping {
            start: code.address - 0x100,
            end: code.address + 0x100,
            file_offset: 0x1000 - 0x100,
            executable: true,
            writable: false,
            device: (8, 1),
            inode: 7,
            path: "/usr/bin/server".into(),
            deleted: false,
        };
        assert!(code.is_mapped(std::slice::from_ref(&mapping)));
        let other = |change: fn(&mut Mapping)| {
            let mut other = mapping.clone();
            change(&mut other);
            code.is_mapped(&[other])
        };
        assert!(!other(|mapping| mapping.inode = 8));
        assert!(!other(|mapping| mapping.file_offset = 0x3000), "elsewhere in it");
        assert!(!code.is_mapped(&[]));

        let becomes = |mappings: &[Mapping]| Mapped::of(mappings).change(&code, Look::Changed);
        let newer = Mapping {
            inode: 8,
            ..mapping.clone()
        };
        assert_eq!(
            becomes(std::slice::from_ref(&mapping)),
            Some(Change::Bytes),
            "it has no probe"
        );
        assert_eq!(becomes(&[]), None, "it may be loaded again");
        assert_eq!(becomes(std::slice::from_ref(&newer)), Some(Change::Replaced));
        let in_memory = ProbedCode {
            path: "/memfd:jit".into(),
            ..self::code(&now, &now, 0)
        };
        let of_memory = [Mapping {
            path: in_memory.path.clone(),
            ..newer.clone()
        }];
        let becomes_another = Mapped::of(&of_memory).change(&in_memory, Look::Unreadable);
        assert_eq!(becomes_another, None, "its name is not its own");
        let elsewhere = Mapping {
            start: 0x1000,
            end: 0x2000,
            ..mapping
        };
        assert_eq!(becomes(&[newer.clone(), elsewhere]), None, "both are loaded");
        let other = Mapping {
            path: "/usr/bin/other".into(),
            ..newer
        };
        assert_eq!(becomes(&[other]), None, "it was unloaded");
    }
}
