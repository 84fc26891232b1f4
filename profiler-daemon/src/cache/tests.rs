use std::{
    cell::Cell,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
};

use profiler_plan::{Outline, Outlines as _, Part};

use super::*;

/// Of the file that something is kept of.
const LENGTH: u64 = 4096;

/// A large file without debug information, the folder of its outlines, and how to get one: whether it was made.
fn get(folder: &Path, file: &Path) -> bool {
    let key = FileKey::of(&fs::metadata(file).unwrap());
    let folder = Arc::new(Folder::new(folder.to_path_buf()));
    let place = folder.place(Some(&[1, 2, 3]), &key).unwrap();
    let made = Cell::new(false);
    let outline = place.outline(Part::Names, &|| {
        made.set(true);
        Outline::of_file(b"", Part::Names)
    });
    assert_eq!(outline.bytes(), Outline::of_file(b"", Part::Names).bytes());
    made.get()
}

#[test]
fn what_is_stale_or_damaged_is_made_anew() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
    let sparse = File::create(&file).unwrap();
    sparse.set_len(LENGTH).unwrap();
    assert!(get(&folder, &file));
    assert!(!get(&folder, &file));
    let path = folder.join(format!("010203-{}.names", rustix::process::geteuid().as_raw()));
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        assert!(get(&folder, &file), "byte {at}");
        assert!(!get(&folder, &file));
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(get(&folder, &file), "{length} bytes");
    }
    // One that others can have written.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(get(&folder, &file));
    assert!(!get(&folder, &file));
    // The file is built anew, and says that it is the same build.
    sparse
        .set_modified(SystemTime::now() + Duration::from_secs(7))
        .unwrap();
    assert!(get(&folder, &file));
    sparse.set_len(LENGTH + 1).unwrap();
    assert!(get(&folder, &file));
    assert!(!get(&folder, &file));
}

#[test]
fn a_folder_that_cannot_be_made_is_done_without() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    File::create(&file).unwrap().set_len(LENGTH).unwrap();
    assert!(get(&file.join("cache"), &file));
}

/// A large file in a folder, and how long ago it was used.
fn put(folder: &Path, name: &str, age: Duration) {
    let file = File::create(folder.join(name)).unwrap();
    file.set_len(MAX_BYTES / 2).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn what_was_not_used_for_longest_goes() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::new(parent.path().to_path_buf());
    let names = ["00ff-0.places", "00ff-0.names", "01ff-1000.places"];
    for (name, age) in names.into_iter().zip([300, 200, 100]) {
        put(parent.path(), name, Duration::from_secs(age));
    }
    folder.make_room().unwrap();
    let left = names.map(|name| parent.path().join(name).exists());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn what_was_never_finished_goes() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::new(parent.path().to_path_buf());
    let names = ["00ff-0.names.new-1-0-5", "00ff-0.names.new-1-1-5"];
    put(parent.path(), names[0], ABANDONED + Duration::from_mins(1));
    put(parent.path(), names[1], Duration::ZERO);
    folder.make_room().unwrap();
    let left = names.map(|name| parent.path().join(name).exists());
    assert_eq!(left, [false, true]);
}

#[test]
fn what_else_is_in_the_folder_stays() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::new(parent.path().to_path_buf());
    let names = ["film.mkv", "photos-2026.names", "00ff.names", "-0.names"];
    for name in names {
        put(parent.path(), name, Duration::from_secs(1_000_000));
    }
    put(parent.path(), "00ff-0.names", Duration::ZERO);
    folder.make_room().unwrap();
    let left = names.map(|name| parent.path().join(name).exists());
    assert_eq!(left, [true; 4]);
}

#[test]
fn a_folder_that_others_may_write_to_is_done_without() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
    File::create(&file).unwrap().set_len(LENGTH).unwrap();
    assert!(get(&folder, &file));
    assert!(!get(&folder, &file));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(get(&folder, &file));
    assert!(get(&folder, &file));
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
    File::create(&file).unwrap().set_len(LENGTH).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.join(format!("010203-{}.names", rustix::process::geteuid().as_raw()));
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Reading it would wait for somebody who writes.
    assert!(get(&folder, &file));
    assert!(!get(&folder, &file));
}

/// What is kept of a file, if it is whole; else it is made: whether it was.
fn get_table(folder: &Path, file: &Path) -> bool {
    let key = FileKey::of(&fs::metadata(file).unwrap());
    let place = Arc::new(Folder::new(folder.to_path_buf())).place(Some(&[1, 2, 3]), &key);
    let place = place.unwrap();
    let is_whole = |kept: Kept| (kept.as_ref() == b"whole").then_some(());
    if place.read(Kind::Unwind, is_whole).is_some() {
        return false;
    }
    place.keep(Kind::Unwind, b"whole");
    true
}

#[test]
fn rejects_cached_data_of_another_file_with_same_build_id() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
    File::create(&file).unwrap().set_len(LENGTH).unwrap();
    assert!(get_table(&folder, &file));
    assert!(!get_table(&folder, &file));
    // Who owns a file can choose its contents, its length and when it was written.
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    let set_back = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"other", 0).unwrap();
        file.set_modified(written).unwrap();
    };
    set_back(&file);
    assert!(get_table(&folder, &file), "another content");
    let other = parent.path().join("other");
    fs::copy(&file, &other).unwrap();
    set_back(&other);
    fs::rename(&other, &file).unwrap();
    assert!(get_table(&folder, &file), "another file at its path");
    assert!(!get_table(&folder, &file));
}

#[test]
fn services_that_keep_the_same_at_once_see_it_whole() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
    File::create(&file).unwrap().set_len(LENGTH).unwrap();
    let key = FileKey::of(&fs::metadata(&file).unwrap());
    let contents = [vec![1_u8; 1 << 16], vec![2_u8; 1 << 17]];
    std::thread::scope(|scope| {
        for own in &contents {
            let (folder, contents) = (&folder, &contents);
            scope.spawn(move || {
                let place = Arc::new(Folder::new(folder.clone())).place(Some(&[1, 2, 3]), &key);
                let place = place.unwrap();
                for _ in 0..200 {
                    place.keep(Kind::Unwind, own);
                    let read = |kept: Kept| contents.iter().any(|one| one == kept.as_ref()).then_some(());
                    place.read(Kind::Unwind, read).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
