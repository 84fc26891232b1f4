use std::{io::Write as _, os::unix::fs as unix};

use super::*;

const PATH: &str = "tmp/perf-1.map";

struct Root {
    directory: tempfile::TempDir,
    map: PerfFile,
    writer: Writer,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        let writer = Writer {
            answers: rustix::process::geteuid().as_raw(),
            user: rustix::process::geteuid().as_raw(),
            reader: Reader::OWN,
            began: SystemTime::now(),
        };
        let map = PerfFile::default();
        Self {
            directory,
            map,
            writer,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(PATH)
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn append(&self, text: &str) {
        let mut file = File::options().append(true).open(self.path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn read(&mut self) -> io::Result<()> {
        self.map
            .read(self.directory.path(), Path::new(PATH), &self.writer)
    }

    fn name(&mut self, address: u64) -> Option<String> {
        let mut frames = Frames::default();
        let found = self.map.map.resolve(address, &mut frames);
        // Each look has a table of its own; read anew, the map has forgotten the numbers of the last.
        let name = found.map(|id| {
            frames
                .table()
                .get(id.0 as usize)
                .map(|frame| frame.function.to_string())
        });
        self.map.seen = None;
        name.flatten()
    }
}

#[test]
fn reads_appended_lines_once() {
    let mut root = Root::new();
    root.write("1000 10 first\n");
    root.read().unwrap();
    root.append("2000 10 second\nbad\n");
    root.read().unwrap();
    root.read().unwrap();
    assert_eq!(root.map.seen.as_ref().unwrap().read, 33);
    assert_eq!(
        root.map.map.left_out(),
        LeftOut {
            skipped: 1,
            forgotten: 0
        }
    );
    assert_eq!(root.name(0x2000).as_deref(), Some("second"));
}

#[test]
fn a_file_that_begins_anew_is_read_anew() {
    type Renew = fn(&Root, &str);
    let shorter: Renew = Root::write;
    let renamed: Renew = |root, text| {
        let other = root.directory.path().join("other");
        fs::write(&other, text).unwrap();
        fs::rename(other, root.path()).unwrap();
    };
    for (renew, text) in [
        (shorter, "3000 10 new\n"),
        (renamed, "3000 10 new\n"),
        // As long as the first or longer: only its content tells.
        (shorter, "3000 10 new\n4000 10 more\n5000 10 most\n"),
        (renamed, "3000 10 new\n4000 10 more\n5000 10 most\n"),
    ] {
        let mut root = Root::new();
        root.write("1000 10 first\n2000 10 second\n");
        root.read().unwrap();
        renew(&root, text);
        root.read().unwrap();
        assert_eq!(root.name(0x1000), None, "{text}");
        root.read().unwrap();
        assert_eq!(root.name(0x3000).as_deref(), Some("new"), "{text}");
    }
}

#[test]
fn keeps_names_when_the_file_is_removed() {
    let mut root = Root::new();
    root.write("1000 10 first\n");
    root.read().unwrap();
    fs::remove_file(root.path()).unwrap();
    assert_eq!(root.read().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(root.name(0x1000).as_deref(), Some("first"));
}

#[test]
fn a_file_may_be_of_any_time() {
    let mut root = Root::new();
    // A file system in memory keeps every time, others less.
    if let Ok(directory) = tempfile::tempdir_in("/dev/shm") {
        fs::create_dir(directory.path().join("tmp")).unwrap();
        root.directory = directory;
    }
    root.write("1000 10 later\n");
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.cast_unsigned());
    let file = File::options().write(true).open(root.path()).unwrap();
    file.set_modified(last).unwrap();
    root.read().unwrap();
    assert_eq!(root.name(0x1000).as_deref(), Some("later"));
}

#[test]
fn refuses_planted_perf_maps() {
    let mut root = Root::new();
    let elsewhere = root.directory.path().join("elsewhere");
    fs::write(&elsewhere, "1000 10 secret\n").unwrap();
    unix::symlink(&elsewhere, root.path()).unwrap();
    root.read().unwrap_err();
    // Nor does a folder that is a link lead out of the root.
    fs::remove_file(root.path()).unwrap();
    fs::remove_dir(root.directory.path().join("tmp")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("perf-1.map"), "1000 10 secret\n").unwrap();
    unix::symlink(outside.path(), root.directory.path().join("tmp")).unwrap();
    root.read().unwrap_err();
    fs::remove_file(root.directory.path().join("tmp")).unwrap();
    fs::create_dir(root.directory.path().join("tmp")).unwrap();
    // A pipe would wait for somebody to write.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.path(),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(root.read().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    fs::remove_file(root.path()).unwrap();
    root.write("1000 10 old\n");
    root.writer.began = SystemTime::now() + Duration::from_mins(1);
    assert!(
        root.read()
            .unwrap_err()
            .to_string()
            .contains("older than the process")
    );
    root.writer.began = SystemTime::now();
    if rustix::process::geteuid().is_root() {
        unix::chown(root.path(), Some(4711), None).unwrap();
        assert!(root.read().unwrap_err().to_string().contains("belongs neither"));
    }
    root.writer.user = 4711;
    root.read().unwrap();
    assert_eq!(root.name(0x1000).as_deref(), Some("old"));
}

#[test]
fn an_endless_file_is_read_in_pieces() {
    let mut root = Root::new();
    root.write("1000 10 first\n");
    File::options()
        .write(true)
        .open(root.path())
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    root.read().unwrap();
    assert_eq!(root.map.seen.as_ref().unwrap().read, READ_MAX);
    assert!(root.map.bytes() < 1 << 16);
    assert_eq!(root.name(0x1000).as_deref(), Some("first"));
}

#[test]
fn own_place_is_found() {
    let (path, writer) = place(std::process::id()).unwrap();
    assert_eq!(
        path,
        PathBuf::from(format!("tmp/perf-{}.map", std::process::id()))
    );
    assert_eq!(writer.user, rustix::process::geteuid().as_raw());
    let age = SystemTime::now().duration_since(writer.began).unwrap();
    assert!(age < Duration::from_hours(1), "{age:?}");
}
