//! Programs of the `uprobe_multi` kind, loaded from the same object and onto the same maps.
//!
//! aya 0.14 cannot load these, so the object is parsed once more and its programs are relocated with
//! the maps that aya has made.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use aya::{Ebpf, maps::Map};
use aya_obj::{Object, ProgramSection, generated::bpf_insn};

use super::{
    KernelError,
    attach::Site,
    opening::{self, Opened, Opening},
    syscall,
};

/// Oldest kernel whose PID filter of `uprobe_multi` links covers all threads of a process.
const OLDEST: (u32, u32) = (6, 10);

/// From this many bytes of stack, Linux 6.13 and later give a function a stack per CPU
/// (`BPF_PRIV_STACK_MIN_SIZE` in `include/linux/bpf_verifier.h`). A uprobe program can be preempted by
/// another thread's, and the two would overwrite each other's.
const SHARED_STACK: u32 = 64;

/// `r0 = 0` and `exit`.
const RETURN_ZERO: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// The programs of an object, ready to be loaded for multi links.
pub struct MultiPrograms {
    object: Object,
    license: CString,
    btf: OwnedFd,
    loaded: HashMap<&'static str, OwnedFd>,
    /// How long the kernel may take to attach a program, beside what it may for each site.
    pub(super) patience: Duration,
}

impl MultiPrograms {
    /// Parses the object and binds it to the maps.
    ///
    /// # Errors
    /// Where the object does not parse or does not match the maps.
    pub fn new(bytes: &[u8], ebpf: &Ebpf, patience: Duration) -> Result<Self, KernelError> {
        let parse = |error: &dyn std::fmt::Display| KernelError::Parse(error.to_string());
        let mut object = Object::parse(bytes).map_err(|error| parse(&error))?;
        let features = aya::features()
            .btf()
            .ok_or_else(|| parse(&"the kernel takes no BTF"))?;
        let types = object
            .fixup_and_sanitize_btf(features)
            .map_err(|error| parse(&error))?
            .ok_or_else(|| parse(&"it has no BTF"))?
            .to_bytes();
        let btf = syscall::load_btf(&types).map_err(|error| KernelError::system("loading BTF", error))?;
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let descriptors: HashMap<&str, RawFd> = ebpf
            .maps()
            .filter_map(|(name, map)| Some((name, descriptor(map)?.as_raw_fd())))
            .collect();
        let maps = std::mem::take(&mut object.maps);
        object
            .relocate_maps(
                maps.iter()
                    .filter_map(|(name, map)| Some((name.as_str(), *descriptors.get(name.as_str())?, map))),
                &text,
            )
            .map_err(|error| parse(&error))?;
        object.relocate_calls(&text).map_err(|error| parse(&error))?;
        let license = object.license.clone();
        Ok(Self {
            object,
            license,
            btf,
            loaded: HashMap::new(),
            patience,
        })
    }

    /// The program's descriptor, loading it when first asked for.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn load(&mut self, name: &'static str) -> Result<BorrowedFd<'_>, KernelError> {
        if !self.loaded.contains_key(name) {
            let (descriptor, statistics) = self.load_as(name, syscall::Kind::UprobeMulti)?;
            if let Some(bytes) = deepest_stack(&statistics).filter(|bytes| *bytes >= SHARED_STACK) {
                return Err(KernelError::SharedStack { program: name, bytes });
            }
            self.loaded.insert(name, descriptor);
        }
        Ok(self.loaded[name].as_fd())
    }

    /// One more copy of a program for tracepoints: to one of these, the kernel attaches a program once.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn load_for_tracepoint(&self, name: &'static str) -> Result<OwnedFd, KernelError> {
        let (descriptor, _statistics) = self.load_as(name, syscall::Kind::Tracepoint)?;
        Ok(descriptor)
    }

    /// A program for functions of the kernel: by links of many, or by perf events.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn load_for_functions(&self, name: &'static str, by_links: bool) -> Result<OwnedFd, KernelError> {
        let kind = if by_links {
            syscall::Kind::FunctionSession
        } else {
            syscall::Kind::FunctionEvent
        };
        // These are never preempted, so that it does not matter what of their stack is shared.
        let (descriptor, _statistics) = self.load_as(name, kind)?;
        Ok(descriptor)
    }

    /// Loads a program, and gives what the verifier counted.
    fn load_as(&self, name: &'static str, kind: syscall::Kind) -> Result<(OwnedFd, String), KernelError> {
        let program = self.object.programs.get(name).ok_or(KernelError::Missing(name))?;
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .ok_or(KernelError::Missing(name))?;
        let code = syscall::Code {
            instructions: &function.instructions,
            license: &self.license,
            btf: self.btf.as_fd(),
            functions: &function.func_info.func_info_bytes(),
            function_size: function.func_info_rec_size,
            may_wait: matches!(program.section, ProgramSection::UProbe { sleepable: true }),
        };
        syscall::load_program(name, kind, &code).map_err(|(source, log)| KernelError::Program {
            program: name,
            source,
            log,
        })
    }

    /// Whether this kernel has multi links whose PID filter is right. Asked with a program that does nothing: to verify one
    /// of the object's takes a tenth of a second.
    pub fn supported(&self) -> bool {
        if super::engine::kernel_release() < OLDEST {
            return false;
        }
        let instruction = |code| bpf_insn {
            code,
            _bitfield_align_1: [],
            _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
            off: 0,
            imm: 0,
        };
        let code = syscall::Code {
            instructions: &[instruction(RETURN_ZERO), instruction(EXIT)],
            license: &self.license,
            btf: self.btf.as_fd(),
            functions: &[],
            function_size: 0,
            may_wait: false,
        };
        let program = match syscall::load_program("nothing", syscall::Kind::UprobeMulti, &code) {
            Ok((program, _statistics)) => program,
            Err((error, _log)) => {
                tracing::debug!(%error, "no multi links");
                return false;
            }
        };
        // The kernel looks at the path before it looks at the program: `/` is no regular file.
        let refused = syscall::create_multi_link(program.as_fd(), c"/", &[0], &[0], 0, false);
        matches!(refused, Err(error) if error.raw_os_error() == Some(libc::EBADF))
    }

    /// Attaches a program at many offsets of one file, for one process.
    ///
    /// # Errors
    /// Where the kernel refuses, as one bad offset fails them all, or takes too long: the link is to be closed with the others then.
    pub fn attach(
        &mut self,
        program: &'static str,
        file: &CString,
        sites: &[Site],
        pid: u32,
        at_return: bool,
        links: &mut Vec<Opened<OwnedFd>>,
    ) -> Result<(), KernelError> {
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
        let descriptor = self.load(program)?.try_clone_to_owned();
        let path = file.clone();
        let open = move || {
            let descriptor = descriptor?;
            syscall::create_multi_link(descriptor.as_fd(), &path, &offsets, &cookies, pid, at_return)
        };
        let opening = Opening {
            patience: opening::patience_at(sites, self.patience),
            are_events: false,
            opens: vec![open],
        };
        opening::open(opening, links).map_err(|error| {
            let what = format!(
                "attaching {program} at {} places of {}",
                sites.len(),
                file.to_string_lossy()
            );
            opening::refused(what, error)
        })
    }
}

/// The most stack that any function of a program uses, from the verifier's `stack depth 24+56+8`. It says so when it has
/// expanded loops, which use some that it has not rounded up before it compared: what the object's build looks at is
/// stricter.
fn deepest_stack(statistics: &str) -> Option<u32> {
    let depths = statistics
        .lines()
        .find_map(|line| line.strip_prefix("stack depth "))?;
    depths
        .split('+')
        .filter_map(|bytes| bytes.trim().parse().ok())
        .max()
}

/// The descriptor of a map of any of the kinds that the object has.
fn descriptor(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data)
        | Map::PerCpuArray(data)
        | Map::HashMap(data)
        | Map::ArrayOfMaps(data)
        | Map::Queue(data)
        | Map::RingBuf(data)
        | Map::Unsupported(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_stack_counts() {
        let statistics = "verification time 2380 usec\nstack depth 24+56+8\nprocessed 1151 insns\n";
        assert_eq!(deepest_stack(statistics), Some(56));
        assert_eq!(deepest_stack(""), None);
    }
}
