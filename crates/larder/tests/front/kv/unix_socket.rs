//! `larder kv` on a Unix socket.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use testkit::{KvService, Signal};

use crate::LARDER;

fn ask(path: &Path, requests: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(requests.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("it replies");
    replies
}

/// Returns the error of a server that can't start on this path.
fn refused(path: &Path) -> String {
    let listen = format!("unix:{}", path.display());
    let output = testkit::run(LARDER, ["kv", "--save-file", "off", "--listen", &listen]);
    assert_ne!(output.status, 0);
    output.stderr
}

/// A folder, and a path for a socket in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kv.sock");
    (folder, path)
}

#[test]
fn clients_come_by_a_socket_in_the_file_system() {
    let (_folder, path) = place();
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let mut kv = KvService::start(LARDER, &format!("{listen}\nunix_socket_mode = \"600\"\nworkers = 2"));
    assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    let many = ask(&path, &"SET k v\r\nGET k\r\n".repeat(2_000));
    assert_eq!(many, "+OK\r\n$1\r\nv\r\n".repeat(2_000));
    let value = "x".repeat(300_000);
    let long = ask(&path, &format!("*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$300000\r\n{value}\r\nGET l\r\n"));
    assert!(long == format!("+OK\r\n$300000\r\n{value}\r\n"), "{} bytes", long.len());
    assert_eq!(kv.ask("GET k\r\n"), "$1\r\nv\r\n", "the same keys");
    assert!(ask(&path, "CLIENT INFO\r\n").contains(" addr=127.0.0.1:0 laddr=127.0.0.1:0 "));
    let told = refused(&path);
    assert!(told.contains("in use by another process"), "{told}");
    kv.crash();
    assert_eq!(ask(&path, "PING\r\n"), "+PONG\r\n", "the old socket is replaced");
    kv.service.signal(Signal::TERM);
    kv.service.end();
    assert!(!path.exists(), "it is removed with the server");
}

/// The listen queue of another server may be full.
#[test]
fn a_socket_of_a_busy_server_is_not_waited_for() {
    let (_folder, path) = place();
    let busy = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&busy, 0).expect("one may wait");
    let _waiting = UnixStream::connect(&path).expect("the one");
    let told = refused(&path);
    assert!(told.contains("in use by another process"), "{told}");
}

#[test]
fn nothing_but_a_socket_is_replaced() {
    let (folder, path) = place();
    // At the second path, a socket gets its permissions before it is renamed.
    for file in [path.clone(), folder.path().join("kv.sock.part")] {
        fs::write(&file, "precious").expect("a file");
        let told = refused(&path);
        assert!(told.contains("expected a socket, found a file"), "{told}");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "precious");
        fs::remove_file(&file).expect("it is there");
    }
}

/// The service manager may create a missing folder before the server starts.
#[test]
fn a_bad_path_or_mode_is_refused_and_a_missing_folder_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, place) = (folder.path().join("kv.toml"), folder.path().display().to_string());
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    symlink("a", folder.path().join("link")).expect("a link");
    let check = |lines: &str| {
        let lines = lines.replace("@dir@", &place).replace("@long@", &"x".repeat(102 - place.len()));
        fs::write(&file, format!("[kv]\n{lines}\n")).expect("a file");
        let output = testkit::run(LARDER, ["check", &file.display().to_string()]);
        (output.status, (output.text() + &output.stderr).replace(&place, "@dir@"))
    };
    let (status, told) = check("listen = [\"unix:@dir@/run/kv.sock\"]");
    let expected = "warning: kv.listen[1]: the directory @dir@/run doesn't exist";
    assert!(status == 0 && told.contains(expected), "{told}");
    let [path, mode] = ["expected the absolute path of a file", "expected three octal digits"];
    let used = |place: &str| format!("{place} is already used by `kv.save_file`");
    for (listens, more, expected) in [
        ("unix:kv.sock", "", path),
        ("unix:/run/kv.sock/", "", path),
        ("unix:/run/.", "", path),
        ("unix:@dir@/@long@", "", "expected a path of at most 102 bytes"),
        ("unix:@dir@/folder", "", "at @dir@/folder: expected a socket, found a directory"),
        ("unix:@dir@/a\", \"unix:@dir@/a", "", "listen[2]: @dir@/a is already used by `kv.listen[1]`"),
        ("unix:/run/kv.sock", "unix_socket_mode = \"+77\"", mode),
        ("unix:/run/kv.sock", "unix_socket_mode = \"68\"", mode),
        ("unix:/run/kv.sock", "unix_socket_mode = \"689\"", mode),
        ("127.0.0.1:0", "[kv.tls]\nlisten = [\"unix:/run/kv.sock\"]", "expected an address and port"),
        ("unix:@dir@/a", "save_file = \"a\"", &used("listen[1]: @dir@/a")),
        ("unix:@dir@/a", "save_file = \"@dir@/link\"", &used("listen[1]: @dir@/a")),
        ("unix:@dir@/a", "save_file = \"@dir@/folder/../a\"", &used("listen[1]: @dir@/a")),
        ("unix:@dir@/a.lock", "save_file = \"@dir@/a\"", &used("@dir@/a.lock")),
        ("unix:@dir@/a", "save_file = \"a.part\"", &used("@dir@/a.part")),
    ] {
        let (status, told) = check(&format!("listen = [\"{listens}\"]\n{more}"));
        assert!(status != 0 && told.contains(expected), "{listens} {more}: {told}");
    }
}
