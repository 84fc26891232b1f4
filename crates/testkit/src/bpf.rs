//! What a process holds in the kernel, and whether it is still there after the process has let go.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    time::{Duration, Instant},
};

/// Time in which the kernel has to be rid of what nobody holds any more.
pub const GONE_WITHIN: Duration = Duration::from_secs(10);

/// A program, map, link or set of types, by the number that the kernel gives it; numbers are not used again soon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Held {
    kind: Kind,
    id: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Program,
    Map,
    Types,
    Link,
}

impl Kind {
    /// The line of `/proc/PID/fdinfo/FD` that holds the number.
    fn of_line(line: &str) -> Option<(Self, &str)> {
        [
            ("prog_id:", Self::Program),
            ("map_id:", Self::Map),
            ("btf_id:", Self::Types),
            ("link_id:", Self::Link),
        ]
        .into_iter()
        .find_map(|(key, kind)| Some((kind, line.strip_prefix(key)?)))
    }

    /// The command of `bpf(2)` that opens one by its number (`include/uapi/linux/bpf.h`).
    fn open_command(self) -> libc::c_long {
        match self {
            Self::Program => 13,
            Self::Map => 14,
            Self::Types => 19,
            Self::Link => 30,
        }
    }
}

/// Everything of the kind that a process has open.
pub fn held_by(pid: u32) -> BTreeSet<Held> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return BTreeSet::new();
    };
    descriptors
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .flat_map(|text| text.lines().filter_map(held_in).collect::<Vec<_>>())
        .collect()
}

fn held_in(line: &str) -> Option<Held> {
    let (kind, id) = Kind::of_line(line)?;
    let id = id.trim().parse().ok().filter(|id| *id > 0)?;
    Some(Held { kind, id })
}

/// Links among them.
pub fn links(held: &BTreeSet<Held>) -> usize {
    held.iter().filter(|held| held.kind == Kind::Link).count()
}

impl Held {
    fn exists(self) -> bool {
        let attributes: [u32; 4] = [self.id, 0, 0, 0];
        // SAFETY: the attributes live through the call, which reads as many bytes as it is told.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                self.kind.open_command(),
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{self:?}: {error}");
            return false;
        }
        // SAFETY: the descriptor has just been made for us, and nobody else has it.
        unsafe { libc::close(i32::try_from(fd).unwrap()) };
        true
    }
}

/// A hash map that this process has open, by its descriptor.
pub struct HashMapOf {
    descriptor: u32,
}

/// All whose keys and values have these sizes.
pub fn hash_maps(key_size: usize, value_size: usize) -> Vec<HashMapOf> {
    let is_one = |text: &str| {
        let fields = [
            ("map_type:", 1),
            ("key_size:", key_size),
            ("value_size:", value_size),
        ];
        fields.into_iter().all(|(field, wanted)| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
            value == Some(wanted)
        })
    };
    let descriptors = fs::read_dir("/proc/self/fdinfo").unwrap();
    descriptors
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path()).ok()?;
            let descriptor = entry.file_name().to_str()?.parse().ok()?;
            is_one(&text).then_some(HashMapOf { descriptor })
        })
        .collect()
}

impl HashMapOf {
    /// Adds an element; whether its key was not there.
    pub fn insert_new<K, V>(&self, key: &K, value: &V) -> bool {
        /// As `bpf(2)` takes it to change an element (`include/uapi/linux/bpf.h`).
        #[repr(C)]
        struct Attributes<K, V> {
            descriptor: u64,
            key: *const K,
            value: *const V,
            flags: u64,
        }
        const UPDATE: libc::c_long = 2;
        const NOT_THERE: u64 = 1;
        let attributes = Attributes {
            descriptor: self.descriptor.into(),
            key,
            value,
            flags: NOT_THERE,
        };
        // SAFETY: key, value and attributes live through the call, and are as large as the map says.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                UPDATE,
                &raw const attributes,
                size_of_val(&attributes),
            )
        };
        if result != 0 {
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}");
        }
        result == 0
    }
}

/// Waits until none of these exist any more; gives the time that it took.
pub fn wait_until_gone(held: &BTreeSet<Held>) -> Duration {
    let start = Instant::now();
    loop {
        let left: Vec<Held> = held.iter().copied().filter(|held| held.exists()).collect();
        if left.is_empty() {
            return start.elapsed();
        }
        assert!(start.elapsed() < GONE_WITHIN, "left behind: {left:?}");
        // Nothing can be awaited: the kernel tells nobody that it has freed something.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes of a process's executable that differ from its file in what it has mapped as code.
pub fn changed_code(pid: u32) -> usize {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let mut file = fs::File::open(format!("/proc/{pid}/exe")).unwrap();
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let part = |source: &mut fs::File, offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        source.seek(SeekFrom::Start(offset)).unwrap();
        source.read_exact(&mut bytes).unwrap();
        bytes
    };
    let end_of_file = file.metadata().unwrap().len();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let code: Vec<(u64, u64, u64)> = maps
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let executable_part = fields.next()?.contains('x');
            let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
            let of_executable = executable_part && fields.nth(2)? == executable.to_str()?;
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            of_executable.then(|| (hex(start), hex(end), offset))
        })
        .collect();
    assert!(!code.is_empty(), "no code of {} in\n{maps}", executable.display());
    code.into_iter()
        .map(|(start, end, offset)| {
            let length = usize::try_from((end - start).min(end_of_file - offset)).unwrap();
            let (is, should) = (part(&mut memory, start, length), part(&mut file, offset, length));
            is.iter().zip(&should).filter(|(is, should)| is != should).count()
        })
        .sum()
}

/// Waits until a process's code is that of its file, for as long as it comes nearer to that: of many probes the kernel may take off one
/// after another.
pub fn wait_until_unchanged(pid: u32) {
    let (mut fewest, mut since) = (usize::MAX, Instant::now());
    loop {
        let changed = changed_code(pid);
        if changed == 0 {
            return;
        }
        if changed < fewest {
            (fewest, since) = (changed, Instant::now());
        }
        assert!(
            since.elapsed() < GONE_WITHIN,
            "{changed} bytes of its code are changed"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
