//! Save files that are written, damaged and removed.

use engine::{Access, Database, Expiry, Policy, Settings};

use super::*;

const SETTINGS: Settings =
    Settings { bytes_max: 64 << 20, policy: Policy::AllKeysS3Fifo, seed: 1, threads: 2 };
const KEYS: usize = 1000;

fn begin(path: &Path) -> Arc<Shared> {
    let file = Arc::new(SaveFile::reserve(path).expect("nobody else has it"));
    let engine = Arc::new(file.restore(&SETTINGS).expect("it can be read"));
    Arc::new(Shared::new(engine, Some(file), "test".to_owned(), 2))
}

fn file(shared: &Shared) -> &Arc<SaveFile> {
    shared.save_file.as_ref().expect("it has one")
}

fn value(shared: &Shared, number: usize) -> Option<Vec<u8>> {
    let name = format!("key-{number}");
    let key = shared.engine.key(Database::default(), name.as_bytes());
    shared.engine.lock(&key).get(Access::Use, now_ms()).map(|found| found.value.to_vec())
}

fn set(shared: &Shared, number: usize, value: &[u8]) {
    let name = format!("key-{number}");
    let key = shared.engine.key(Database::default(), name.as_bytes());
    shared.engine.lock(&key).set(value, Expiry::Never, now_ms()).expect("there is room");
}

/// A server whose save file was intact at the start and has been damaged since.
fn damaged_later(path: &Path) -> Arc<Shared> {
    let before = begin(path);
    (0..KEYS).for_each(|number| set(&before, number, &[7; 5000]));
    file(&before).write(&before.engine, 0).expect("there is a disk");
    drop(before);
    let shared = begin(path);
    assert!(!file(&shared).is_refused());
    let written = File::options().write(true).open(path).expect("a file");
    let bytes = written.metadata().expect("it is there").len();
    // Damages one of the last shards, so that those before it are intact.
    written.write_all_at(b"?", bytes - 100_000).expect("there is a disk");
    shared
}

fn keys(shared: &Shared) -> u64 {
    shared.engine.counts().keys.iter().sum()
}

#[test]
fn damage_that_is_found_late_costs_all_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("late");
    let shared = damaged_later(&path);
    assert_eq!(keys(&shared), KEYS as u64, "nobody knows yet");
    file(&shared).began(&shared).expect("a thread");
    file(&shared).load.lock().take().expect("it was begun").join().expect("it does not panic");
    assert_eq!((keys(&shared), shared.engine.shards().count()), (0, 8));
    assert!(file(&shared).is_refused());
    assert!(!path.exists() && folder.path().join("late.refused").exists(), "it is kept");
    assert!((0..KEYS).all(|number| value(&shared, number).is_none()));
    set(&shared, 5, b"works");
    file(&shared).write(&shared.engine, 0).expect("it was refused before");
    drop(shared);
    let after = begin(&path);
    assert_eq!((value(&after, 5), keys(&after)), (Some(b"works".to_vec()), 1));
}

#[test]
fn the_first_change_removes_what_the_server_has_begun_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let before = begin(&path);
    set(&before, 1, b"old");
    file(&before).write(&before.engine, 1).expect("there is a disk");
    drop(before);
    // Nothing is loaded in the background yet.
    let shared = begin(&path);
    shared.changed(0);
    assert!(path.exists(), "nothing has changed");
    shared.changed(1);
    assert!(!path.exists());
    file(&shared).write(&shared.engine, 1).expect("there is a disk");
    shared.changed(1);
    file(&shared).forget_old();
    assert!(path.exists(), "it is a new one");
}

/// The other file may be a backup.
#[test]
fn the_first_change_removes_nothing_that_others_have_put_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let before = begin(&path);
    let save = || file(&before).write(&before.engine, 1).expect("there is a disk");
    save();
    let backup = fs::read(&path).expect("a file");
    save();
    drop(before);
    let shared = begin(&path);
    fs::write(&path, &backup).expect("a file");
    shared.changed(1);
    assert!(fs::read(&path).expect("it is there") == backup);
    file(&shared).write(&shared.engine, 1).expect("there is a disk");
    assert!(fs::read(folder.path().join("saved.replaced")).expect("it is kept") == backup);
}

/// A disk with temporary errors fails in the same way.
#[test]
fn what_can_not_be_read_stays_where_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let file = SaveFile::reserve(&path).expect("nobody else has it");
    // A directory can be opened, but not read.
    fs::create_dir(&path).expect("a folder");
    let error = file.restore(&SETTINGS).expect_err("it can't be read");
    assert!(matches!(error, ReserveError::Unreadable { .. }), "{error}");
    assert!(path.exists());
}

#[test]
fn what_is_damaged_is_not_saved_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = damaged_later(&folder.path().join("again"));
    // A save loads every shard, so it finds the damage before the background thread.
    let error = file(&shared).write(&shared.engine, 0).expect_err("a part is missing");
    assert!(Chain(&error).to_string().contains("the data that was still being loaded is damaged"), "{error}");
}
