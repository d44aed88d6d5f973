//! `larder kv --save-file`: keys after a stop, a kill or damage to the file, and the owner of the file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use testkit::{Kv, Signal, wait};

use super::sessions::{Talker, ask_all};
use crate::LARDER;

const KEYS: usize = 3000;

/// A folder with a save file, for servers that use it one after the other.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    fn start(&self, arguments: &[&str]) -> Kv {
        start(&self.file(), arguments)
    }

    fn filled(&self) -> Kv {
        let kv = self.start(&[]);
        fill(&kv);
        kv
    }
}

fn start(file: &Path, arguments: &[&str]) -> Kv {
    let file = file.to_str().expect("a path in UTF-8");
    let basics = ["--save-file", file, "--workers", "2", "--maxmemory", "64MiB"];
    let given = |name: &str| arguments.contains(&name);
    let basics = basics.chunks(2).filter(|pair| !given(pair[0])).flatten().copied();
    Kv::start(LARDER, &basics.chain(arguments.iter().copied()).collect::<Vec<_>>())
}

fn filled() -> (Place, Kv) {
    let place = Place::new();
    let kv = place.filled();
    (place, kv)
}

fn value(number: usize) -> String {
    format!("{number}-").repeat(number % 60 + 1)
}

/// Keys in two databases, one with an expiry, and values of up to 600 kB.
fn fill(kv: &Kv) {
    let replies = ask_all(kv, (0..KEYS).map(|number| format!("SET key-{number} {}", value(number))));
    let more =
        ["SET session token PXAT 4102444800000", "SETRANGE long 600000 end", "SELECT 9", "SET key-1 other"];
    let replies = replies + &kv.ask(&more);
    assert!(!replies.contains('-'), "{replies}");
}

#[track_caller]
fn assert_filled(kv: &Kv) {
    let replies = ask_all(kv, (0..KEYS).map(|number| format!("GET key-{number}")));
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    assert!(replies == (0..KEYS).map(|number| bulk(&value(number))).collect::<String>());
    let others =
        ["DBSIZE", "PEXPIRETIME session", "STRLEN long", "GETRANGE long -4 -1", "SELECT 9", "GET key-1"];
    let expected =
        format!(":{}\r\n:4102444800000\r\n:600003\r\n$4\r\n\0end\r\n+OK\r\n$5\r\nother\r\n", KEYS + 2);
    assert_eq!(kv.ask(&others), expected);
}

#[track_caller]
fn assert_empty(kv: &Kv, says: &str) {
    assert_eq!(kv.ask(&["DBSIZE", "GET key-1", "SET key-1 works", "DBSIZE"]), ":0\r\n$-1\r\n+OK\r\n:1\r\n");
    assert_says(kv, says);
}

#[track_caller]
fn assert_says(kv: &Kv, words: &str) {
    wait::until_true(&format!("the log says {words:?}"), || kv.service.stderr().contains(words));
}

#[track_caller]
fn end(mut kv: Kv, signal: Signal) {
    kv.service.signal(signal);
    let status = kv.service.end();
    assert!(signal == Signal::KILL || status.success(), "{status}: {}", kv.service.stderr());
}

/// Bytes of a save file with the keys of [`fill`] and a number of long values.
fn saved(long: usize) -> (Place, Vec<u8>) {
    let place = Place::new();
    let kv = place.start(if long > 0 { &LARGE } else { &[] });
    ask_all(&kv, (0..long).map(|number| format!("SETRANGE long-{number} 500000 {number}")));
    fill(&kv);
    end(kv, Signal::TERM);
    let bytes = fs::read(place.file()).expect("the file was written");
    (place, bytes)
}

const LARGE: [&str; 2] = ["--maxmemory", "1GiB"];

#[test]
fn a_stopped_server_comes_back_as_it_was_and_a_killed_one_empty() {
    let place = Place::new();
    let mut kv = place.start(&[]);
    assert_empty(&kv, "no save file yet, starting empty");
    fill(&kv);
    for _ in 0..3 {
        end(kv, Signal::TERM);
        kv = place.start(&[]);
        assert_says(&kv, "starts with saved data");
        assert_filled(&kv);
        assert_says(&kv, "all saved data is loaded");
        assert!(!place.file().exists(), "old data would come back after a crash");
    }
    end(kv, Signal::KILL);
    assert_empty(&place.start(&[]), "no save file yet, starting empty");
}

#[test]
fn swapped_databases_stay_swapped() {
    let place = Place::new();
    let gets = ["GET key", "SELECT 9", "GET key", "SELECT 15", "GET key"];
    let fill = ["SET key zero", "SELECT 9", "SET key nine", "SWAPDB 0 9", "SWAPDB 15 0"];
    let mut kv = place.start(&[]);
    assert_eq!(kv.ask(&fill), "+OK\r\n".repeat(5));
    // With another size, the server sorts the keys anew.
    for size in ["64MiB", "64MiB", "256MiB"] {
        end(kv, Signal::TERM);
        kv = place.start(&["--maxmemory", size]);
        let expected = "$-1\r\n+OK\r\n$4\r\nzero\r\n+OK\r\n$4\r\nnine\r\n";
        assert_eq!(kv.ask(&gets), expected, "{size}");
    }
}

/// Until everything is loaded, the file is the only complete copy.
#[test]
fn a_server_that_is_killed_while_it_loads_leaves_its_file() {
    let (place, bytes) = saved(100);
    // A fast machine may finish loading before the signal arrives.
    let is_left = (0..20).any(|_| {
        fs::write(place.file(), &bytes).expect("a file");
        end(place.start(&LARGE), Signal::KILL);
        place.file().exists()
    });
    assert!(is_left && fs::read(place.file()).expect("it is there") == bytes);
    let kv = place.start(&LARGE);
    assert_eq!(kv.ask(&["DBSIZE", "GETRANGE long-99 500000 -1"]), ":3102\r\n$2\r\n99\r\n");
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(path).expect("it is there");
    (found.uid(), found.gid(), found.mode() & 0o777)
}

#[test]
fn a_file_keeps_its_mode() {
    let (place, kv) = filled();
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n");
    assert_eq!(owner(&place.file()).2, 0o600);
    chmod(place.file(), 0o640);
    end(kv, Signal::TERM);
    assert_eq!(owner(&place.file()).2, 0o640);
    let kv = place.start(&[]);
    assert_says(&kv, "all saved data is loaded");
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n");
    assert_eq!(owner(&place.file()).2, 0o640, "the file was removed meanwhile");
}

/// ID of a user that doesn't exist on this machine.
const OTHER: u32 = 4_100_100_100;

/// A server that root starts by hand must not lock out the service, which runs as its own user. Only root can change the owner of a file.
#[test]
fn files_of_root_belong_to_the_user_of_before() {
    if !geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let lock = place.folder.path().join("saved.lock");
    chown(place.folder.path(), Some(OTHER), Some(OTHER)).expect("we are root");
    let kv = place.filled();
    end(kv, Signal::TERM);
    let owned = (OTHER, OTHER, 0o600);
    assert_eq!((owner(&place.file()), owner(&lock)), (owned, owned), "the owner of the folder");

    chown(place.file(), Some(OTHER + 1), Some(OTHER + 2)).expect("we are root");
    for _ in 0..2 {
        let kv = place.start(&[]);
        assert_filled(&kv);
        end(kv, Signal::TERM);
        assert_eq!(owner(&place.file()), (OTHER + 1, OTHER + 2, 0o600), "the owner of the previous file");
    }
}

#[test]
fn a_file_that_can_not_be_given_back_is_told_of() {
    if !geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let file = place.folder.path().join("it's $HOME");
    let kv = start(&file, &[]);
    assert_eq!(kv.ask(&["SET key value", "SAVE"]), "+OK\r\n+OK\r\n");
    chown(&file, Some(OTHER), Some(OTHER + 1)).expect("we are root");
    chmod(&file, 0o640);
    end(kv, Signal::KILL);
    let path = file.to_str().expect("a path in UTF-8");
    // Root without the capability to change owners.
    let tool = ["setpriv", "--bounding-set", "-chown"];
    let kv = Kv::start_under(&tool, LARDER, &["--save-file", path]);
    assert_eq!(kv.ask(&["SET key value", "SAVE"]), "+OK\r\n+OK\r\n");
    assert_eq!(owner(&file), (0, 0, 0o600));
    let folder = place.folder.path().display();
    let path = format!("'{folder}/it'\\''s $HOME'");
    let commands = format!("sudo chown {OTHER}:{} {path} && sudo chmod 640 {path}", OTHER + 1);
    assert_says(&kv, &format!("run `{commands}`"));
    run_in_shell(&commands.replace("sudo ", ""));
    assert_eq!(owner(&file), (OTHER, OTHER + 1, 0o640), "the commands restore owner and mode");
}

/// Wrapper that lets a command read other users' files only if their modes allow it.
fn without_rights() -> &'static [&'static str] {
    let is_root = geteuid().is_root();
    if is_root { &["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-chown"] } else { &["env"] }
}

fn told_under(tool: &[&str], arguments: &[&str]) -> (i32, String) {
    let words = [tool, &[LARDER], arguments].concat();
    let output = testkit::run(words[0], &words[1..]);
    (output.status, format!("{}{}", output.text(), output.stderr))
}

/// Status and output of a check and of two starts with the same path.
fn all_told(place: &Place, tool: &[&str], path: &str) -> [(i32, String); 3] {
    let config = place.folder.path().join("larder.toml");
    fs::write(&config, format!("[kv]\nlisten = [\"127.0.0.1:0\"]\nsave_file = {path:?}\n")).expect("a file");
    let config = config.display().to_string();
    let direct = ["kv", "--listen", "127.0.0.1:0", "--save-file", path];
    [&["check", &config][..], &["kv", "--config", &config], &direct]
        .map(|arguments| told_under(tool, arguments))
}

/// Starting without the file would lose its keys, or move a file that another program needs.
#[test]
fn a_file_that_can_not_be_read_stops_the_start() {
    let (place, bytes) = saved(0);
    let file = place.file().display().to_string();
    let refused = |advice: &str| {
        let reason = format!("{file} can't be read: Permission denied (os error 13); {advice}");
        for (status, text) in all_told(&place, without_rights(), &file) {
            let is_refused = status == 1 && text.contains(&format!("error: kv.save_file: {reason}"));
            assert!(is_refused, "{status}: {text}");
        }
        assert!(!place.folder.path().join("saved.refused").exists(), "the file stays in place");
    };
    chmod(&file, 0o000);
    refused(&format!("run `chmod u+rw {file}`, move it, or choose another path"));
    if geteuid().is_root() {
        chown(&file, Some(OTHER), Some(OTHER)).expect("we are root");
        refused(&format!(
            "it belongs to user {OTHER}, and this process runs as user 0: run larder as user {OTHER}, \
            change its owner with `sudo chown 0:0 {file}`, move it, or choose another path"
        ));
        run_in_shell(&format!("chown 0:0 {file}"));
    }
    run_in_shell(&format!("chmod u+rw {file}"));
    assert!(fs::read(&file).expect("it is ours") == bytes);
    assert_filled(&place.start(&[]));
}

/// Another program may create a file at the path while the server runs.
#[test]
fn a_save_replaces_nothing_that_is_not_its_own() {
    let place = Place::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = place.file().display().to_string();
    let mut kv = Kv::start_under(without_rights(), LARDER, &["--save-file", &file]);
    assert_eq!(kv.ask(&["SET key value"]), "+OK\r\n");
    let refused = |bytes: &[u8], mode: u32, reason: &str| {
        fs::write(&file, bytes).expect("a file");
        chmod(&file, mode);
        let told = kv.ask(&["SAVE"]);
        assert!(told.starts_with("-ERR the data set was not saved: ") && told.contains(reason), "{told}");
        run_in_shell(&format!("mv {file} {}", folder.path().display()));
        run_in_shell(&format!("chmod 600 {}/saved", folder.path().display()));
        assert_eq!(fs::read(folder.path().join("saved")).expect("it is there"), bytes);
    };
    refused(b"REDIS0009", 0o600, "saved is not a save file of larder kv: move it");
    refused(b"\x89LARDER\n", 0o000, "saved can't be read: Permission denied (os error 13)");
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n", "it was moved");
    fs::remove_file(&file).expect("it is ours");
    mkfifo(place.file());
    assert!(kv.ask(&["SAVE"]).contains("expected a file, found a named pipe"));
    assert!(!fs::symlink_metadata(&file).expect("it is there").is_file());
    fs::remove_file(&file).expect("it is ours");
    fs::write(&file, "notes").expect("a file");
    kv.service.signal(Signal::TERM);
    assert_eq!(kv.service.end().code(), Some(1));
    assert_says(&kv, "saved is not a save file of larder kv");
    assert_eq!(fs::read(&file).expect("it is there"), b"notes");
}

/// An operator may copy a backup there, then stop the server so that the next start loads it.
#[test]
fn a_save_file_that_is_put_there_meanwhile_is_kept() {
    let (place, backup) = saved(0);
    let kept = |name: &str| place.folder.path().join(name);
    let kv = place.start(&[]);
    assert_eq!(kv.ask(&["SET key-1 newer", "SAVE", "SAVE"]), "+OK\r\n+OK\r\n+OK\r\n");
    assert!(!kept("saved.replaced").exists(), "the server's own files aren't kept");
    fs::write(place.file(), &backup).expect("a file");
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n");
    assert!(fs::read(kept("saved.replaced")).expect("it is kept") == backup);
    assert_says(&kv, "the save file that appeared while the server was running is kept");
    // A file in an unknown format is kept too: another version may have written it.
    let mut other_format = backup.clone();
    other_format[8] = 77;
    fs::write(place.file(), &other_format).expect("a file");
    end(kv, Signal::TERM);
    assert!(fs::read(kept("saved.replaced.2")).expect("it is kept") == other_format);
    assert!(fs::read(kept("saved.replaced")).expect("it is kept") == backup);
    assert_eq!(place.start(&[]).ask(&["GET key-1"]), "$5\r\nnewer\r\n");
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

#[track_caller]
fn run_in_shell(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().expect("a shell");
    assert!(status.success(), "{command}: {status}");
}

/// The next save doesn't replace a file that an operator may want to repair.
#[test]
fn damaged_files_are_refused_as_a_whole_and_kept_beside_each_other() {
    let (place, bytes) = saved(0);
    let changed = |at: usize, by: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= by;
        bytes
    };
    let damaged = [
        (changed(30, 4), "the saved data is refused"),
        (changed(bytes.len() / 2, 4), "the saved data is refused"),
        (changed(bytes.len() - 5000, 4), "the saved data is refused"),
        (changed(bytes.len() - 1, 4), "the saved data is refused"),
        (bytes[..1].to_vec(), "refused"),
        (bytes[..1000].to_vec(), "refused"),
        (bytes[..bytes.len() - 1].to_vec(), "refused"),
        (bytes.repeat(2), "the end is missing"),
        (changed(8, 77 ^ bytes[8]), "unsupported format 77: this version of Larder reads format"),
    ];
    let kept = |number: usize| match number {
        0 => place.folder.path().join("saved.refused"),
        _ => place.folder.path().join(format!("saved.refused.{}", number + 1)),
    };
    for (number, (bytes, says)) in damaged.iter().enumerate() {
        fs::write(place.file(), bytes).expect("a file");
        let kv = place.start(&[]);
        assert_empty(&kv, says);
        assert_says(&kv, "starts empty");
        assert_says(&kv, if number < 8 { "the refused file is kept" } else { "replaces an earlier one" });
        end(kv, Signal::TERM);
        let kept = fs::read(kept(number.min(7))).expect("it is kept");
        assert!(kept == *bytes, "{number}: a different file is kept");
    }
    (0..7).for_each(|number| assert!(fs::read(kept(number)).expect("it is kept") == damaged[number].0));
    assert!(!kept(8).exists());
}

#[test]
fn half_a_file_is_never_taken() {
    let (place, bytes) = saved(0);
    let part = place.folder.path().join("saved.part");
    fs::rename(place.file(), &part).expect("a new name");
    fs::write(&part, &bytes[..bytes.len() / 2]).expect("a file");
    assert_empty(&place.start(&[]), "no save file yet");
    assert!(!part.exists());
}

#[test]
fn commands_save_and_tell_of_it() {
    let (place, kv) = filled();
    let persistence = |kv: &Kv| kv.ask(&["INFO persistence"]);
    assert!(persistence(&kv).contains("rdb_changes_since_last_save:300"), "{}", persistence(&kv));
    assert_eq!(kv.ask(&["BGSAVE NOW", "SAVE 1"]).matches("-ERR").count(), 2);
    assert_eq!(kv.ask(&["BGSAVE"]), "+Background saving started\r\n");
    for part in ["rdb_saves:1\r\n", "rdb_bgsave_in_progress:0\r\n"] {
        wait::until_true(part, || persistence(&kv).contains(part));
    }
    end(kv, Signal::KILL);
    let kv = place.start(&[]);
    assert_filled(&kv);
    assert_eq!(kv.ask(&["SET key-1 other", "DEL key-2", "SAVE"]), "+OK\r\n:1\r\n+OK\r\n");
    let text = persistence(&kv);
    let last_save = format!("rdb_last_save_time{}", kv.ask(&["LASTSAVE"]));
    for part in ["rdb_changes_since_last_save:0\r\n", "rdb_last_bgsave_status:ok", &last_save] {
        assert!(text.contains(part), "{part}: {text}");
    }
    end(kv, Signal::KILL);
    let kv = place.start(&[]);
    assert_eq!(kv.ask(&["GET key-1", "GET key-2"]), "$5\r\nother\r\n$-1\r\n");
}

#[test]
fn a_client_ends_the_server_with_or_without_saving() {
    let twice = "-ERR syntax error\r\n-ERR No shutdown in progress.\r\n";
    // A background save is in progress, and may lack keys that the client wants saved.
    let again = ["DEL key-2", "SET key-2 2-2-2-", "BGSAVE"];
    let told = ":1\r\n+OK\r\n+Background saving started\r\n";
    for (before, reply, command, is_saved) in [
        (&["SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT"][..], twice, "SHUTDOWN", true),
        (&[], "", "SHUTDOWN SAVE NOW", true),
        (&[], "", "SHUTDOWN NOSAVE", false),
        (&again, told, "SHUTDOWN", true),
        (&again, told, "SHUTDOWN SAVE", true),
        (&again, told, "SHUTDOWN NOW", true),
    ] {
        let (place, mut kv) = filled();
        assert_eq!(kv.ask(&[before, &[command]].concat()), reply, "{command}");
        assert!(kv.service.end().success());
        assert_eq!(place.file().exists(), is_saved, "{command}");
        if is_saved {
            assert_filled(&place.start(&[]));
        }
    }
}

/// Sends reads whose replies exceed the socket buffers, then a write and a SHUTDOWN with another option. Returns the client, which delays
/// the end of the server until it reads.
fn hold_up(kv: &Kv) -> Talker {
    let mut slow = Talker::connect(kv.address());
    slow.send(format!("{}SET late 1\r\nSHUTDOWN NOSAVE\r\n", "GET long\r\n".repeat(50)));
    assert_eq!(slow.line(), "$600003");
    slow
}

/// A SHUTDOWN command doesn't count as the first signal: the operator may not know that a client sent it.
#[test]
fn one_signal_does_not_cut_short_what_a_client_began() {
    let place = Place::new();
    for signals in [0, 1, 2] {
        let mut kv = place.filled();
        let mut slow = hold_up(&kv);
        assert_eq!(kv.ask(&["SHUTDOWN"]), "");
        assert_says(&kv, "stopping: requests in flight may finish");
        if signals > 0 {
            kv.service.signal(Signal::TERM);
            assert_says(&kv, "already stopping: another signal stops it at once");
        }
        if signals == 2 {
            // Signals that arrive right after the first belong to the same request.
            let status = wait::until("it ends at once", || {
                kv.service.signal(Signal::TERM);
                kv.service.status()
            });
            assert_eq!(status.code(), Some(1));
            assert_says(&kv, "stopped before the data set was saved");
            assert_filled(&place.start(&[]));
            return;
        }
        assert!(slow.rest().ends_with("+OK\r\n-ERR the server is stopping already\r\n"), "{signals}");
        assert!(kv.service.end().success());
        let kv = place.start(&[]);
        assert_eq!(kv.ask(&["GETDEL late"]), "$1\r\n1\r\n", "it was acknowledged");
        assert_filled(&kv);
        end(kv, Signal::KILL);
    }
}

#[test]
fn without_a_file_nothing_is_saved() {
    let mut kv = Kv::start(LARDER, &[]);
    let refused = "-ERR there is no save file: start the server with --save-file PATH\r\n";
    assert_eq!(kv.ask(&["SAVE", "BGSAVE", "SHUTDOWN SAVE"]), refused.repeat(3));
    assert_eq!(kv.ask(&["SHUTDOWN"]), "");
    assert!(kv.service.end().success());
}

/// Error for a file that has reached its size limit. The server treats it like a full disk.
const FULL: &str = "File too large";

fn limit_files(kv: &Kv, limit: &str) {
    let process = kv.service.id().to_string();
    testkit::run("prlimit", ["--pid", &process, &format!("--fsize={limit}:")]).succeeded();
}

#[test]
fn a_full_disk_costs_the_save_and_nothing_else() {
    let (place, bytes) = saved(0);
    let kv = place.start(&[]);
    assert_filled(&kv);
    assert_says(&kv, "all saved data is loaded");
    fs::write(place.file(), &bytes).expect("a file");
    limit_files(&kv, "65536");
    let told = kv.ask(&["SAVE"]);
    assert!(told.starts_with("-ERR the data set was not saved: ") && told.contains(FULL), "{told}");
    assert_says(&kv, FULL);
    assert_eq!(kv.ask(&["SHUTDOWN"]), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    assert_filled(&kv);
    assert_eq!(kv.ask(&["BGSAVE"]), "+Background saving started\r\n");
    let persistence = || kv.ask(&["INFO persistence"]);
    wait::until_true("it has failed", || persistence().contains("rdb_last_bgsave_status:err\r\n"));
    assert!(fs::read(place.file()).expect("the previous file") == bytes);
    limit_files(&kv, "unlimited");
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n");
}

/// Data would be lost at shutdown, so startup fails.
#[test]
fn a_place_that_takes_no_file_is_refused() {
    let place = Place::new();
    let folder = place.folder.path();
    fs::write(folder.join("file"), "").expect("a file");
    mkfifo(folder.join("pipe"));
    let _socket = UnixListener::bind(folder.join("socket")).expect("a socket");
    symlink("pipe", folder.join("link")).expect("a link");
    symlink("circle", folder.join("circle")).expect("a link");
    symlink("/proc/self/mem", folder.join("memory")).expect("a link");
    // A server creates files with these names next to its save file.
    mkfifo(folder.join("waits.lock"));
    symlink("elsewhere", folder.join("linked.lock")).expect("a link");
    fs::create_dir(folder.join("half.part")).expect("a folder");
    let foreign = [("dump.rdb", &b"REDIS0009"[..]), ("notes", b"x"), ("picture", b"\x89PNG\r\n")];
    for (name, bytes) in foreign {
        fs::write(folder.join(name), bytes).expect("a file");
    }
    for (path, reason) in [
        ("none/saved", "none doesn't exist"),
        ("file/saved", "file doesn't exist"),
        (".", "is a directory"),
        // Root may write anywhere, so its error is about missing space.
        ("/proc/saved", "/proc"),
        // A save would replace these with a file.
        ("pipe", "pipe is a named pipe, not a file"),
        ("socket", "socket is a socket, not a file"),
        ("link", "pipe is a named pipe, not a file"),
        ("circle", "circle can't be found"),
        // Its contents can't be checked.
        ("memory", "mem can't be read: Input/output error (os error 5); move it"),
        ("waits", "waits.lock is a named pipe, not a file"),
        ("linked", "linked.lock is a link, not a file"),
        ("half", "half.part is a directory, not a file"),
        // A save would overwrite files of other programs.
        ("dump.rdb", "dump.rdb is not a save file of larder kv"),
        ("notes", "notes is not a save file of larder kv"),
        ("picture", "picture is not a save file of larder kv"),
    ] {
        for (status, text) in all_told(&place, &["env"], &folder.join(path).display().to_string()) {
            assert_eq!(status, 1, "{path}: {text}");
            assert!(text.contains("error: kv.save_file: ") && text.contains(reason), "{path}: {text}");
        }
    }
    for (name, bytes) in foreign {
        assert_eq!(fs::read(folder.join(name)).expect("it is there"), bytes, "{name}");
    }
}

fn mkfifo(path: PathBuf) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
}

#[track_caller]
fn assert_in_use(file: &Path) {
    let file = file.display().to_string();
    let (status, text) = told_under(&["env"], &["kv", "--listen", "127.0.0.1:0", "--save-file", &file]);
    assert!(status == 1 && text.contains("saved is in use by another process"), "{status}: {text}");
}

#[test]
fn a_file_belongs_to_one_server() {
    let (place, kv) = filled();
    assert_in_use(&place.file());
    let lock = place.folder.path().join("saved.lock");
    fs::remove_file(&lock).expect("the lock file exists");
    wait::until_true("it is locked again", || lock.exists());
    assert_in_use(&place.file());
    end(kv, Signal::TERM);
    assert_filled(&place.start(&[]));
}

/// Servers may use the path of the link or of its target. The link stays, and its target is the file that is written.
#[test]
fn a_file_behind_a_link_is_one_file() {
    let place = Place::new();
    let link = place.folder.path().join("link");
    symlink("saved", &link).expect("a link");
    let kv = start(&link, &[]);
    fill(&kv);
    assert_in_use(&place.file());
    assert_in_use(&link);
    end(kv, Signal::TERM);
    assert_eq!(fs::read_link(&link).expect("it is still a link"), Path::new("saved"));
    assert!(fs::symlink_metadata(place.file()).expect("it is there").is_file());
    assert_filled(&start(&link, &[]));
}

/// An attacker may place a link at the path of the temporary file, so that the server overwrites another file.
#[test]
fn nothing_behind_a_link_is_written() {
    let (place, kv) = filled();
    let other = place.folder.path().join("other");
    fs::write(&other, "of somebody else").expect("a file");
    symlink(&other, place.folder.path().join("saved.part")).expect("a link");
    assert_eq!(kv.ask(&["SAVE"]), "+OK\r\n");
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "of somebody else");
    assert!(fs::symlink_metadata(place.file()).expect("it is there").is_file());
    end(kv, Signal::KILL);
    assert_filled(&place.start(&[]));
}

#[test]
fn data_that_is_lost_at_the_end_is_a_failure() {
    let lose = |message: &str, hinder: &dyn Fn(&Place, &Kv)| {
        let (place, mut kv) = filled();
        hinder(&place, &kv);
        kv.service.signal(Signal::TERM);
        assert_eq!(kv.service.end().code(), Some(1), "{message}");
        assert_says(&kv, message);
    };
    lose("larder: the data set is not saved: ", &|place, _| {
        fs::remove_dir_all(place.folder.path()).expect("it is ours");
    });
    lose(FULL, &|_, kv| limit_files(kv, "65536"));
}
