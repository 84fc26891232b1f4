//! Against servers on loopback, good and bad.

use std::{
    process::Command,
    sync::LazyLock,
    time::{Duration, Instant},
};

use super::*;

#[path = "../../../tests/web/mod.rs"]
mod web;

use web::{Answer, Web};

/// A file with debug information, and its build-id.
static DEBUG_FILE: LazyLock<(Vec<u8>, BuildId)> = LazyLock::new(|| compile("-O2"));

fn compile(flag: &str) -> (Vec<u8>, BuildId) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/symbolize/tests/fixtures/inlined.c"
    );
    let built = Command::new("gcc")
        .args(["-g", flag, "-o"])
        .args([&path, Path::new(source)])
        .status();
    assert!(built.unwrap().success());
    let build_id = BuildId::new(DebugFile::open(&path, "").unwrap().build_id()).unwrap();
    (fs::read(&path).unwrap(), build_id)
}

/// A store in a folder of its own.
struct Stored {
    folder: tempfile::TempDir,
    store: Store,
    said: Vec<String>,
}

impl Stored {
    fn new(servers: &[&str]) -> Self {
        Self::with(servers, |_| {})
    }

    fn with(servers: &[&str], change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            servers: servers.iter().map(|&url| url.to_owned()).collect(),
            unprotected: Vec::new(),
            cache: folder.path().join("cache"),
            timeout: Some(Duration::from_secs(20)),
            time_max: Duration::from_mins(1),
            size_max: 1 << 20,
        };
        change(&mut settings);
        Self {
            folder,
            store: Store::new(settings),
            said: Vec::new(),
        }
    }

    fn get(&mut self) -> Option<PathBuf> {
        let Self { store, said, .. } = self;
        store.get(&DEBUG_FILE.1, |text| said.push(text))
    }

    /// Names of all files that it has left.
    fn files(&self) -> Vec<PathBuf> {
        let Ok(folders) = fs::read_dir(self.folder.path().join("cache")) else {
            return Vec::new();
        };
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }

    /// Asserts that nothing comes, that it is said why, and that nothing is left.
    #[track_caller]
    fn refuses(&mut self, why: &str) {
        assert_eq!(self.get(), None);
        assert!(self.said.concat().contains(why), "{:?}", self.said);
        assert!(self.files().is_empty(), "{:?}", self.files());
    }
}

fn path_of(build_id: &BuildId) -> String {
    format!("/buildid/{}/debuginfo", build_id.hex())
}

#[test]
fn a_file_is_got_once_and_kept() {
    let empty = Web::start(|_| Answer::Status(404));
    let full = Web::start(|_| Answer::Bytes(DEBUG_FILE.0.clone()));
    let mut stored = Stored::new(&[&empty.url, &full.url]);
    assert_eq!(stored.store.known(&DEBUG_FILE.1), None);
    let path = stored.get().unwrap();
    assert_eq!(fs::read(&path).unwrap(), DEBUG_FILE.0);
    assert!(path.ends_with(format!("{}/debuginfo", DEBUG_FILE.1.hex())));
    assert_eq!(stored.files(), std::slice::from_ref(&path));
    assert_eq!(stored.store.known(&DEBUG_FILE.1), Some(path.clone()));
    for server in [&empty, &full] {
        assert_eq!(server.asked(), [path_of(&DEBUG_FILE.1)]);
    }
    assert_eq!(stored.said, [""; 0]);
    // What another client leaves where it got nothing.
    fs::write(&path, "").unwrap();
    assert_eq!(stored.store.known(&DEBUG_FILE.1), None);
    assert_eq!(stored.get().as_ref(), Some(&path));
}

#[test]
fn what_no_server_has_is_asked_for_once() {
    let empty = Web::start(|_| Answer::Status(404));
    let mut stored = Stored::new(&[&empty.url]);
    for _ in 0..3 {
        stored.refuses("");
    }
    assert_eq!((empty.asked().len(), stored.said.len()), (1, 0));
}

#[test]
fn redirections_are_followed_and_bounded() {
    let web = Web::start(|path| match path {
        "/there" => Answer::Bytes(DEBUG_FILE.0.clone()),
        _ => Answer::Redirect("/there".to_owned()),
    });
    assert!(Stored::new(&[&web.url]).get().is_some());
    let round = Web::start(|_| Answer::Redirect("/again".to_owned()));
    Stored::new(&[&round.url]).refuses("redirect");
    assert!((2..10).contains(&round.asked().len()), "{:?}", round.asked());
    let elsewhere = Web::start(|_| Answer::Redirect("http://debuginfod.invalid/there".to_owned()));
    Stored::new(&[&elsewhere.url])
        .refuses("redirects to `http://debuginfod.invalid/there`, which is not reached by TLS");
    let nowhere = Web::start(|_| Answer::Redirect("ftp:there".to_owned()));
    Stored::new(&[&nowhere.url]).refuses("redirects to `ftp:there`");
}

#[test]
fn files_of_another_build_and_what_is_no_file_are_refused() {
    let other = compile("-O1").0;
    let cut = DEBUG_FILE.0[..DEBUG_FILE.0.len() / 2].to_vec();
    for bytes in [other, cut, b"<html>".to_vec(), Vec::new()] {
        let web = Web::start(move |_| Answer::Bytes(bytes.clone()));
        Stored::new(&[&web.url]).refuses("not the debug information of this build");
    }
    let short = Web::start(|_| Answer::Short(DEBUG_FILE.0.clone()));
    Stored::new(&[&short.url]).refuses(&short.url);
    let broken = Web::start(|_| Answer::Status(500));
    Stored::new(&[&broken.url]).refuses("status 500");
}

#[test]
fn too_much_is_refused() {
    let large = Web::start(|_| Answer::Bytes(vec![0; (1 << 20) + 1]));
    Stored::new(&[&large.url]).refuses("more than 1048576 bytes");
    let endless = Web::start(|_| Answer::Endless);
    Stored::new(&[&endless.url]).refuses("more than 1048576 bytes");
    let change = |settings: &mut Settings| {
        settings.size_max = u64::MAX;
        settings.time_max = Duration::from_secs(1);
    };
    Stored::with(&[&endless.url], change).refuses("too long");
}

#[test]
fn servers_that_are_slow_are_asked_once() {
    for answer in [|| Answer::Silence, || Answer::Drip] {
        let slow = Web::start(move |_| answer());
        let short = |settings: &mut Settings| settings.timeout = Some(Duration::from_secs(1));
        let mut stored = Stored::with(&[&slow.url], short);
        let began = Instant::now();
        stored.refuses("too slowly");
        assert!(began.elapsed() < Duration::from_secs(20));
        let another = BuildId::new(&[7; 20]).unwrap();
        assert_eq!(stored.store.get(&another, |text| panic!("{text}")), None);
        assert_eq!(slow.asked().len(), 1);
    }
    let nobody = "http://127.0.0.1:1";
    Stored::new(&[nobody]).refuses(nobody);
}

#[test]
fn a_folder_that_cannot_be_written_is_said() {
    let web = Web::start(|_| Answer::Bytes(DEBUG_FILE.0.clone()));
    let mut stored = Stored::with(&[&web.url], |settings| settings.cache = "/dev/null/x".into());
    stored.refuses("/dev/null/x");
    assert_eq!(web.asked().len(), 0);
}
