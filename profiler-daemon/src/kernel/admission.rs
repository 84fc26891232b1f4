//! Which processes the programs may look at, and what those are now.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    os::fd::AsFd as _,
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError},
};
use profiler_common::admission::{Admission, Image, ProcessState, Rights};

use super::{
    Engine, KernelError,
    ring::Reader,
    syscall,
    tracepoints::{self, Place},
};

/// The iterator over all threads that tells what processes are.
pub(super) const ITERATOR: Place = ("admission_look", "task");

/// An [`Admission`] as the map has it, whose layout is asserted.
type Words = [u64; size_of::<Admission>() / 8];

/// Where its [`Image::start_ns`] is in it.
const START: usize = 0;

/// Where [`Admission::flags`] is in it.
const FLAGS: usize = size_of::<Words>() / 8 - 4;

/// Where [`Admission::refused`] is.
const REFUSED: usize = FLAGS + 1;

/// Where [`Admission::ended_by`] is.
const ENDED_BY: usize = REFUSED + 1;

/// Where [`Admission::children`] is.
const CHILDREN: usize = ENDED_BY + 1;

/// More processes than these are read together: a call for each takes longer than one that goes through the whole map.
const FEW: usize = 32;

/// What the programs have counted of a process that they may look at, or whose children they count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdmissionCounts {
    /// Times that a program was at a thread of it which was not as it was admitted, since that was.
    pub refusals: u64,
    /// Processes that it has begun with a copy of its memory, since these were first counted.
    pub children: u64,
}

/// The map of them.
const MAP: &str = "ADMISSIONS";

/// The map of how often they were changed.
const CHANGES: &str = "ADMISSION_CHANGES";

impl Engine {
    /// What processes are now: one that has ended is left out. Each is closed from here on, unless it is admitted.
    ///
    /// # Errors
    /// Where the kernel refuses, or there are too many.
    pub fn look_at(&mut self, pids: &[u32]) -> Result<Vec<ProcessState>, KernelError> {
        const BPF_NOEXIST: u64 = 1;
        if pids.is_empty() {
            return Ok(Vec::new());
        }
        let closed = words(&Admission::default());
        let mut admissions = admissions(&mut self.ebpf)?;
        for pid in pids {
            match admissions.insert(pid, closed, BPF_NOEXIST) {
                Ok(()) => {}
                // It is admitted already, or is asked about.
                Err(MapError::SyscallError(error))
                    if error.io_error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A row of each process in the map, whose size is bounded.
        let mut states = parse(&tracepoints::go_over(&mut self.ebpf, ITERATOR)?);
        let asked: HashSet<&u32> = pids.iter().collect();
        states.retain(|state| asked.contains(&state.tgid));
        Ok(states)
    }

    /// Lets the programs look at a process while it is what it was when [`Engine::look_at`] said this. With `any_rights`
    /// whatever users and capabilities it has by then.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn admit(&mut self, state: &ProcessState, any_rights: bool) -> Result<(), KernelError> {
        self.admit_all(std::slice::from_ref(state), any_rights)
    }

    /// The same of several processes.
    ///
    /// # Errors
    /// Where the kernel refuses one; those before it are admitted then.
    pub fn admit_all(&mut self, states: &[ProcessState], any_rights: bool) -> Result<(), KernelError> {
        if states.is_empty() {
            return Ok(());
        }
        let mut admissions = admissions(&mut self.ebpf)?;
        let admitted = states
            .iter()
            .try_for_each(|state| admit(&mut admissions, state, any_rights));
        self.forget_remembered()?;
        admitted
    }

    /// Lets the programs look at processes whatever rights those have, as root may.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn admit_any(&mut self, pids: &[u32]) -> Result<(), KernelError> {
        let states = self.look_at(pids)?;
        self.admit_all(&states, true)
    }

    /// Lets the programs look at processes no more.
    ///
    /// # Errors
    /// Where the kernel refuses one; the others are not looked at any more then.
    pub fn dismiss(&mut self, pids: &[u32]) -> Result<(), KernelError> {
        if pids.is_empty() {
            return Ok(());
        }
        let mut admissions = admissions(&mut self.ebpf)?;
        let mut dismissed = Ok(());
        for pid in pids {
            match admissions.remove(pid) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => dismissed = Err(error.into()),
            }
        }
        self.forget_remembered()?;
        dismissed
    }

    /// Counts the processes that one begins which [`Engine::look_at`] said this of, and nothing else: the programs may not look at it
    /// unless it is admitted.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn count_children(&mut self, state: &ProcessState) -> Result<(), KernelError> {
        let mut admissions = admissions(&mut self.ebpf)?;
        let mut closed = Admission {
            image: state.image,
            rights: state.rights,
            ..Admission::default()
        };
        match admissions.get(&state.tgid, 0) {
            Ok(known) if known[START] == state.image.start_ns => {
                // One that is open follows the process by itself.
                let is_as_it_was = known[..FLAGS] == words(&closed)[..FLAGS];
                if known[FLAGS] != 0 || is_as_it_was {
                    return Ok(());
                }
                closed.children = known[CHILDREN];
            }
            Ok(_) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(admissions.insert(state.tgid, words(&closed), 0)?)
    }

    /// Lets the programs look at processes no more, whose children they count on.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn shut(&mut self, pids: &[u32]) -> Result<(), KernelError> {
        if pids.is_empty() {
            return Ok(());
        }
        let mut admissions = admissions(&mut self.ebpf)?;
        let mut open = Vec::new();
        for pid in pids {
            match admissions.get(pid, 0) {
                Ok(known) if known[FLAGS] == 0 => {}
                Ok(known) => open.push((*pid, known)),
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let mut shut = Ok(());
        for (pid, mut known) in open {
            known[FLAGS] = 0;
            if let Err(error) = admissions.insert(pid, known, 0) {
                // Then its children are counted no more.
                let _ = admissions.remove(&pid);
                shut = Err(error.into());
            }
        }
        self.forget_remembered()?;
        shut
    }

    /// Has each thread asked again that keeps whether it is admitted. To be called behind each change of an admission.
    fn forget_remembered(&mut self) -> Result<(), KernelError> {
        let map = (self.ebpf.map_mut(CHANGES)).ok_or(KernelError::Missing(CHANGES))?;
        let mut changes: Array<&mut MapData, u64> = map.try_into()?;
        let now = changes.get(&0, 0)? + 1;
        Ok(changes.set(0, now, 0)?)
    }

    /// What the programs have counted of processes, by their numbers; of one that is not known to them, nothing.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn counted_of(&self, pids: &[u32]) -> Result<BTreeMap<u32, AdmissionCounts>, KernelError> {
        let Some(Map::HashMap(data)) = self.ebpf.map(MAP) else {
            return Err(KernelError::Missing(MAP));
        };
        if pids.len() > FEW {
            match syscall::elements(data.fd().as_fd()) {
                Ok(elements) => {
                    let all: BTreeMap<u32, Words> = elements
                        .iter()
                        .map(|element| (element.pid, element.words))
                        .collect();
                    let known = pids.iter().filter_map(|pid| Some((*pid, all.get(pid)?)));
                    return Ok(known.map(|(pid, words)| (pid, counts(words))).collect());
                }
                Err(error) => tracing::debug!(%error, "processes are asked for one by one"),
            }
        }
        let map = self.ebpf.map(MAP).ok_or(KernelError::Missing(MAP))?;
        let admissions: HashMap<&MapData, u32, Words> = map.try_into()?;
        let mut known = BTreeMap::new();
        for pid in pids {
            match admissions.get(pid, 0) {
                Ok(words) => _ = known.insert(*pid, counts(&words)),
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(known)
    }

    /// The signal that ended a process which the programs may look at; `None` of one that runs, has exited, or is not known.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn ended_by(&mut self, pid: u32) -> Result<Option<u32>, KernelError> {
        match admissions(&mut self.ebpf)?.get(&pid, 0) {
            Ok(words) => Ok(u32::try_from(words[ENDED_BY]).ok().filter(|signal| *signal != 0)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn admit(admissions: &mut Admissions<'_>, state: &ProcessState, any_rights: bool) -> Result<(), KernelError> {
    let any_rights = if any_rights { Admission::ANY_RIGHTS } else { 0 };
    // It may be ending. Another process may have had its number before.
    let [ended_by, children] = match admissions.get(&state.tgid, 0) {
        Ok(known) if known[START] == state.image.start_ns => [known[ENDED_BY], known[CHILDREN]],
        Ok(_) | Err(MapError::KeyNotFound) => [0; 2],
        Err(error) => return Err(error.into()),
    };
    let admission = Admission {
        image: state.image,
        rights: state.rights,
        flags: Admission::OPEN | any_rights,
        refused: 0,
        ended_by,
        children,
    };
    Ok(admissions.insert(state.tgid, words(&admission), 0)?)
}

fn counts(words: &Words) -> AdmissionCounts {
    AdmissionCounts {
        refusals: words[REFUSED],
        children: words[CHILDREN],
    }
}

/// The map of all of them.
type Admissions<'a> = HashMap<&'a mut MapData, u32, Words>;

fn admissions(ebpf: &mut Ebpf) -> Result<Admissions<'_>, KernelError> {
    let map = ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
    Ok(map.try_into()?)
}

/// Field by field, in the order of [`Admission`], whose offsets are asserted.
fn words(admission: &Admission) -> Words {
    let Admission {
        image,
        rights,
        flags,
        refused,
        ended_by,
        children,
    } = admission;
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    [
        image.start_ns,
        image.execs,
        image.memory,
        rights.user_namespace,
        rights.permitted,
        pair(rights.user, rights.effective_user),
        pair(rights.saved_user, rights.group),
        pair(rights.effective_group, rights.saved_group),
        pair(rights.dumpable, rights.zero),
        *flags,
        *refused,
        *ended_by,
        *children,
    ]
}

/// The rows that the iterator writes.
fn parse(bytes: &[u8]) -> Vec<ProcessState> {
    let mut reader = Reader(bytes);
    // Field by field, in the order of `ProcessState`, whose offsets are asserted.
    let mut row = || {
        Some(ProcessState {
            tgid: reader.u32()?,
            namespace_owner: reader.u32()?,
            namespace_level: reader.u32()?,
            zero: reader.u32()?,
            first_thread: reader.u64()?,
            image: Image {
                start_ns: reader.u64()?,
                execs: reader.u64()?,
                memory: reader.u64()?,
            },
            rights: Rights {
                user_namespace: reader.u64()?,
                permitted: reader.u64()?,
                user: reader.u32()?,
                effective_user: reader.u32()?,
                saved_user: reader.u32()?,
                group: reader.u32()?,
                effective_group: reader.u32()?,
                saved_group: reader.u32()?,
                dumpable: reader.u32()?,
                zero: reader.u32()?,
            },
        })
    };
    std::iter::from_fn(&mut row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_cut_off_is_left_out() {
        let row: Vec<u8> = (0..size_of::<ProcessState>())
            .map(|byte| byte.to_le_bytes()[0])
            .collect();
        let rows = [row.as_slice(), &row[..row.len() - 1]].concat();
        let states = parse(&rows);
        let [state] = states.as_slice() else {
            panic!("{states:?}")
        };
        assert_eq!(state.tgid, 0x0302_0100);
        assert_eq!(state.image.start_ns, 0x1f1e_1d1c_1b1a_1918);
        assert_eq!(state.rights.dumpable, 0x5b5a_5958);
    }

    #[test]
    fn an_admission_has_its_fields_where_the_programs_read_them() {
        let admission = Admission {
            image: Image {
                start_ns: 1,
                execs: 2,
                memory: 3,
            },
            rights: Rights {
                user_namespace: 4,
                permitted: 5,
                user: 6,
                effective_user: 7,
                saved_user: 8,
                group: 9,
                effective_group: 10,
                saved_group: 11,
                dumpable: 12,
                zero: 0,
            },
            flags: 13,
            refused: 14,
            ended_by: 15,
            children: 16,
        };
        let two = |low: u64, high: u64| high << 32 | low;
        assert_eq!(
            words(&admission),
            [
                1,
                2,
                3,
                4,
                5,
                two(6, 7),
                two(8, 9),
                two(10, 11),
                12,
                13,
                14,
                15,
                16
            ]
        );
        assert_eq!(words(&admission)[FLAGS], 13);
        assert_eq!(words(&admission)[REFUSED], 14);
        assert_eq!(words(&admission)[ENDED_BY], 15);
        assert_eq!(words(&admission)[CHILDREN], 16);
    }
}
