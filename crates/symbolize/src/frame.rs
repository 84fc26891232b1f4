//! Functions, interned: equal functions have equal numbers.

use std::{collections::HashMap, sync::Arc};

use super::{frame_table::FrameTable, reason::Reason, shares::Shares, word::Word};
pub use profiler_aggregate::calltree::FrameId;

/// Most frames that are told apart; further ones are all [`FrameId::OTHER`].
pub const FRAMES_MAX: usize = 1 << 20;

/// What [`FrameId::OTHER`] is called, which also stands for stacks that were folded together.
const OTHER: &str = "[other]";

/// Where the outermost function of a thread in user space begins.
const ROOTS_USER: [&str; 14] = [
    "_start",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "thread_start",
    "_dl_start_user",
    // Of Go, whose functions have no unwind information that could say so: a goroutine's, a thread's, and the program's.
    "runtime.goexit",
    "runtime.clone",
    "runtime.rt0_go",
    "_rt0_amd64_linux",
    // Of musl in a static executable: without unwind information, and entered by a jump.
    "libc_start_main_stage2",
    // Of Erlang, in its perf map: what a process returns to. A caller's address is one before, in what stands before that code.
    "$erts_beamasm:normal_exit/0",
    "$erts_beamasm:normal_exit/0-CodeInfoPrologue",
];
/// The same for threads that never leave the kernel.
const ROOTS_KERNEL: [&str; 2] = ["ret_from_fork", "ret_from_fork_asm"];

/// A function as flame graphs show it. Two addresses in one function give equal frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name: demangled, without parameters, with template arguments; without Rust's hash. Where it is
    /// not known, the module and the address in it at which the function begins, as far as unwind rows say, with the reason
    /// (`libfoo.so+0x1234 (no symbols)`), or a word in brackets.
    pub function: Arc<str>,
    /// The source file that declares it; empty where it is not known.
    pub file: Arc<str>,
    /// The line of its declaration; 0 where it is not known.
    pub line: u32,
    /// The file name of the module, or a word in brackets.
    pub module: Arc<str>,
    /// Whether its code is part of the next outer frame's.
    pub inlined: bool,
    /// Whether it runs in the kernel.
    pub kernel: bool,
    /// Why the function is not known; `None` where it is.
    pub unresolved: Option<Reason>,
    /// Where a debug file of the module would have the name; `None` where the name is known, or none is to be had.
    pub nameable: Option<Nameable>,
}

/// What lies at an address of data.
#[derive(Clone, Copy)]
pub(super) enum Data {
    /// Something of a module.
    Named(FrameId),
    /// Nothing of the module that was asked, or of any.
    Elsewhere,
}

impl Data {
    pub fn name(self) -> Option<FrameId> {
        match self {
            Self::Named(name) => Some(name),
            Self::Elsewhere => None,
        }
    }
}

/// An address whose name is in a file that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nameable {
    /// The module's build-id.
    pub build_id: Arc<[u8]>,
    /// In the numbering of the module's file: where the function begins, or the very address where that is not known or its
    /// line is asked for.
    pub address: u64,
}

impl Frame {
    /// A frame of which only a name is known.
    pub(super) fn named(function: &str, module: &Arc<str>, kernel: bool) -> Self {
        Self {
            function: function.into(),
            file: "".into(),
            line: 0,
            module: Arc::clone(module),
            inlined: false,
            kernel,
            unresolved: None,
            nameable: None,
        }
    }

    /// A frame of which it is only known where it lies; `build_id` is that of the module that it lies in.
    pub(super) fn unresolved(
        module: &Arc<str>,
        build_id: Option<&Arc<[u8]>>,
        address: u64,
        reason: Reason,
    ) -> Self {
        let nameable = build_id.filter(|_| reason.is_of_missing_files());
        Self {
            unresolved: Some(reason),
            nameable: nameable.map(|build_id| Nameable {
                build_id: Arc::clone(build_id),
                address,
            }),
            ..Self::named(&format!("{module}+{address:#x} ({reason})"), module, false)
        }
    }

    /// A frame that no stack has: it says which build a module is.
    pub(super) fn of_build(module: &Arc<str>, build_id: &Arc<[u8]>) -> Self {
        Self {
            nameable: Some(Nameable {
                build_id: Arc::clone(build_id),
                address: 0,
            }),
            ..Self::named("", module, false)
        }
    }

    /// The build-id of the frame's module, where that is what it stands for.
    #[must_use]
    pub fn build(&self) -> Option<&[u8]> {
        let nameable = self.nameable.as_ref().filter(|_| self.function.is_empty());
        nameable.map(|nameable| &*nameable.build_id)
    }

    fn is_root(&self) -> bool {
        let roots: &[&str] = if self.kernel { &ROOTS_KERNEL } else { &ROOTS_USER };
        // As Go's linker calls assembly in the symbol table.
        let name = self.function.strip_suffix(".abi0").unwrap_or(&self.function);
        !self.inlined && roots.contains(&name)
    }
}

/// The table of frames: a frame's number is its index. The first is [`FrameId::OTHER`], the words are next.
pub struct Frames {
    table: FrameTable,
    roots: Vec<bool>,
    index: HashMap<Frame, FrameId>,
    modules_of: HashMap<FrameId, FrameId>,
    shares: Shares,
}

impl Default for Frames {
    fn default() -> Self {
        let mut frames = Self {
            table: FrameTable::default(),
            roots: Vec::new(),
            index: HashMap::new(),
            modules_of: HashMap::new(),
            shares: Shares::default(),
        };
        frames.intern(Frame::named(OTHER, &"".into(), false));
        for word in Word::ALL {
            frames.intern(word.as_frame());
        }
        frames
    }
}

impl Frames {
    /// All frames, in the order of their numbers.
    #[must_use]
    pub fn table(&self) -> &FrameTable {
        &self.table
    }

    /// Frames that are made from now on are of a process of this user's, which have a share of the table; `None` of others'.
    pub(super) fn turn_to(&mut self, user: Option<u32>) {
        self.shares.turn_to(user);
    }

    /// How often a frame had no room: what has come of an address meanwhile may come out otherwise for others.
    pub(super) fn refused(&self) -> u64 {
        self.shares.refused()
    }

    /// The number of a frame; [`FrameId::OTHER`] where there are too many, or their names are too long, or too much of that is of
    /// processes of the user's whom it is made for.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.index.get(&frame) {
            return id;
        }
        let text_bytes = frame.function.len() + frame.file.len() + frame.module.len();
        if !self.shares.take(text_bytes) {
            return FrameId::OTHER;
        }
        let id = FrameId(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.roots.push(frame.is_root());
        self.table.push(frame.clone());
        self.index.insert(frame, id);
        id
    }

    /// Folds a stack by module: consecutive frames of one become a frame of its name.
    pub fn fold_by_module(&mut self, stack: &[FrameId]) -> Vec<FrameId> {
        let mut folded: Vec<FrameId> = stack.iter().map(|frame| self.module_of(*frame)).collect();
        folded.dedup();
        folded
    }

    fn module_of(&mut self, frame: FrameId) -> FrameId {
        if let Some(known) = self.modules_of.get(&frame) {
            return *known;
        }
        let refused = self.refused();
        let of = self.table.get(frame.0 as usize);
        let module = match of.filter(|of| !of.module.is_empty()) {
            Some(of) => {
                let (module, kernel) = (Arc::clone(&of.module), of.kernel);
                self.intern(Frame::named(&module, &module, kernel))
            }
            None => FrameId::OTHER,
        };
        if self.refused() == refused {
            self.modules_of.insert(frame, module);
        }
        module
    }

    /// Notes that nothing calls this function.
    pub(super) fn set_root(&mut self, id: FrameId) {
        if let Some(root) = self.roots.get_mut(id.0 as usize).filter(|_| id != FrameId::OTHER) {
            *root = true;
        }
    }

    pub(super) fn is_root(&self, id: FrameId) -> bool {
        self.roots.get(id.0 as usize).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_fixed_frame_numbers() {
        let mut frames = Frames::default();
        assert_eq!(frames.table().len(), 1 + Word::ALL.len());
        for word in Word::ALL {
            assert_eq!(frames.intern(word.as_frame()), word.frame());
        }
    }

    #[test]
    fn first_functions_of_threads_are_roots() {
        let mut frames = Frames::default();
        let module = "module".into();
        for (name, is_root) in [
            ("_start", true),
            ("runtime.goexit", true),
            ("runtime.goexit.abi0", true),
            ("runtime.clone", true),
            ("libc_start_main_stage2", true),
            ("$erts_beamasm:normal_exit/0-CodeInfoPrologue", true),
            ("runtime.main", false),
            ("main", false),
            ("ret_from_fork", false),
        ] {
            let id = frames.intern(Frame::named(name, &module, false));
            assert_eq!(frames.is_root(id), is_root, "{name}");
        }
    }

    #[test]
    fn what_one_users_processes_have_no_room_for_others_have() {
        let mut frames = Frames::default();
        let module: Arc<str> = "module".into();
        let long = "x".repeat(1 << 20);
        frames.turn_to(Some(7));
        let name = |number: usize| Frame::named(&format!("{number}{long}"), &module, false);
        let ids: Vec<FrameId> = (0..300).map(|number| frames.intern(name(number))).collect();
        assert_eq!(ids[299], FrameId::OTHER);
        let library: Arc<str> = format!("library{long}").into();
        let function = Frame::named("function", &library, false);
        assert_eq!(frames.intern(function.clone()), FrameId::OTHER);
        assert_eq!(frames.intern(name(0)), ids[0], "what is there costs nothing more");
        frames.turn_to(Some(8));
        let function = frames.intern(function);
        assert_ne!(function, FrameId::OTHER);
        frames.turn_to(Some(7));
        assert_eq!(frames.fold_by_module(&[function]), [FrameId::OTHER]);
        frames.set_root(FrameId::OTHER);
        assert!(!frames.is_root(FrameId::OTHER), "it stands for everything");
        frames.turn_to(Some(8));
        assert_ne!(frames.fold_by_module(&[function]), [FrameId::OTHER]);
    }

    #[test]
    fn long_names_without_end_are_bounded() {
        let mut frames = Frames::default();
        let long = "x".repeat(1 << 20);
        let module = "module".into();
        let name = |number: usize| Frame::named(&format!("{number}{long}"), &module, false);
        let ids: Vec<FrameId> = (0..300).map(|number| frames.intern(name(number))).collect();
        assert!(ids[..200].iter().all(|id| *id != FrameId::OTHER));
        assert_eq!(ids[299], FrameId::OTHER);
        assert_eq!(frames.intern(name(7)), ids[7]);
        assert_ne!(
            frames.intern(Frame::named("main", &module, false)),
            FrameId::OTHER
        );
    }
}
