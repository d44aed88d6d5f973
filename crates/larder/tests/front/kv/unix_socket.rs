//! `larder kv` on a socket in the file system.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

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

fn options(path: &Path) -> String {
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    format!("{listen}\nunix_socket_mode = \"600\"\nworkers = 2")
}

/// Why a server does not start that is to listen there.
fn refused(path: &Path) -> String {
    let output = Command::new(LARDER)
        .args(["kv", "--save-file", "off", "--listen"])
        .arg(format!("unix:{}", path.display()))
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn clients_come_by_a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kv.sock");
    let mut kv = KvService::start(LARDER, &options(&path));
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
    assert_eq!(ask(&path, "PING\r\n"), "+PONG\r\n", "what was left is replaced");
    kv.service.signal(Signal::TERM);
    kv.service.end();
    assert!(!path.exists(), "it goes with the server");
}

/// Another server may have more clients that wait for it than it lets wait.
#[test]
fn a_socket_of_a_busy_server_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kv.sock");
    let busy = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&busy, 0).expect("one may wait");
    let _waiting = UnixStream::connect(&path).expect("the one");
    let told = refused(&path);
    assert!(told.contains("in use by another process"), "{told}");
}

#[test]
fn nothing_but_a_socket_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kv.sock");
    // The second is where a socket gets its permissions before it gets its name.
    for file in [path.clone(), folder.path().join("kv.sock.part")] {
        fs::write(&file, "precious").expect("a file");
        let told = refused(&path);
        assert!(told.contains("expected a socket, found a file"), "{told}");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "precious");
        fs::remove_file(&file).expect("it is there");
    }
}

#[test]
fn what_is_no_path_or_mode_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, place) = (folder.path().join("kv.toml"), folder.path().display().to_string());
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    symlink("a", folder.path().join("link")).expect("a link");
    for (lines, expected) in [
        ("listen = [\"unix:kv.sock\"]", "expected the absolute path of a file"),
        ("listen = [\"unix:/run/kv.sock/\"]", "expected the absolute path of a file"),
        ("listen = [\"unix:/run/.\"]", "expected the absolute path of a file"),
        ("listen = [\"unix:/run/kv.sock\"]\nunix_socket_mode = \"+77\"", "expected three octal digits"),
        ("listen = [\"unix:@dir@/folder\"]", "at @dir@/folder: expected a socket, found a directory"),
        (
            "listen = [\"unix:@dir@/a\"]\nsave_file = \"@dir@/link\"",
            "listen[1]: @dir@/a is already used by `kv.save_file`",
        ),
        ("listen = [\"unix:/run/kv.sock\"]\nunix_socket_mode = \"68\"", "expected three octal digits"),
        ("listen = [\"unix:/run/kv.sock\"]\nunix_socket_mode = \"689\"", "expected three octal digits"),
        ("[kv.tls]\nlisten = [\"unix:/run/kv.sock\"]", "expected an address and port"),
        (
            "listen = [\"unix:@dir@/a\"]\nsave_file = \"a\"",
            "listen[1]: @dir@/a is already used by `kv.save_file`",
        ),
        (
            "listen = [\"unix:@dir@/a.lock\"]\nsave_file = \"@dir@/a\"",
            "@dir@/a.lock is already used by `kv.save_file`",
        ),
        (
            "listen = [\"unix:@dir@/a\"]\nsave_file = \"a.part\"",
            "@dir@/a.part is already used by `kv.save_file`",
        ),
        (
            "listen = [\"unix:@dir@/a\", \"unix:@dir@/a\"]",
            "listen[2]: @dir@/a is already used by `kv.listen[1]`",
        ),
        (
            "listen = [\"unix:@dir@/a\"]\nsave_file = \"@dir@/folder/../a\"",
            "listen[1]: @dir@/a is already used by `kv.save_file`",
        ),
        ("listen = [\"unix:@dir@/@long@\"]", "expected a path of at most 102 bytes"),
    ] {
        let lines = lines.replace("@dir@", &place).replace("@long@", &"x".repeat(102 - place.len()));
        let expected = expected.replace("@dir@", &place);
        fs::write(&file, format!("[kv]\n{lines}\n")).expect("a file");
        let output = Command::new(LARDER).arg("check").arg(&file).output().expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(!output.status.success() && told.contains(&expected), "{lines}: {told}");
    }
}

/// The service manager may make it before the server starts.
#[test]
fn a_folder_that_is_missing_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, place) = (folder.path().join("kv.toml"), folder.path().display());
    fs::write(&file, format!("[kv]\nlisten = [\"unix:{place}/run/kv.sock\"]\n")).expect("a file");
    let output = Command::new(LARDER).arg("check").arg(&file).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let expected = format!("warning: kv.listen[1]: the directory {place}/run doesn't exist");
    assert!(output.status.success() && told.contains(&expected), "{told}");
}
