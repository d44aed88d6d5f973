//! Connections of `larder kv`: clients that read slowly, end half-way, or are there when the server ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use testkit::{Kv, Signal, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

fn connect(kv: &Kv) -> TcpStream {
    let stream = TcpStream::connect(kv.address()).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream.set_write_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

fn read_exactly(stream: &mut TcpStream, expected: &[u8]) {
    let mut given = vec![0; expected.len()];
    stream.read_exact(&mut given).expect("a reply");
    assert!(given == expected, "{} instead of {}", text(&given), text(expected));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

/// `SET big` with a value of so many bytes, and the reply to `GET big`.
fn set_big(kv: &Kv, bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes);
    let mut stream = connect(kv);
    stream
        .write_all(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${bytes}\r\n{value}\r\n").as_bytes())
        .expect("sent");
    read_exactly(&mut stream, b"+OK\r\n");
    format!("${bytes}\r\n{value}\r\n").into_bytes()
}

#[test]
fn those_who_do_not_read_wait_and_lose_nothing() {
    let mut kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let reply = set_big(&kv, 100_000);
    let mut slow: Vec<_> = (0..50).map(|_| connect(&kv)).collect();
    let before = kv.service.resident_bytes();
    // 20 MB of replies to each.
    for stream in &mut slow {
        stream.write_all("GET big\r\nPING\r\n".repeat(200).as_bytes()).expect("sent");
    }
    // Others are served meanwhile, and what waits stays small.
    for _ in 0..100 {
        let mut other = connect(&kv);
        other.write_all(b"PING\r\n").expect("sent");
        read_exactly(&mut other, b"+PONG\r\n");
    }
    let grown = kv.service.resident_bytes().saturating_sub(before);
    assert!(grown < 50 * 400_000, "{grown} bytes for 50 clients that do not read");
    let pair = [&reply[..], b"+PONG\r\n"].concat();
    for mut stream in slow {
        (0..200).for_each(|_| read_exactly(&mut stream, &pair));
    }
    kv.service.assert_runs();
}

#[test]
fn requests_larger_than_a_read_wait_with_those_behind_them() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB"]);
    let reply = set_big(&kv, 3_000_000);
    let mut stream = connect(&kv);
    stream.write_all("GET big\r\nECHO between\r\n".repeat(20).as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let pair = [&reply[..], b"$7\r\nbetween\r\n"].concat();
    (0..20).for_each(|_| read_exactly(&mut stream, &pair));
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
}

/// A number of `INFO` or `CLIENT LIST`: what stands behind its name.
fn number(text: &str, name: &str) -> u64 {
    let (_, behind) = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    let digits = behind.split(|other: char| !other.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number in {text}"))
}

#[test]
fn a_value_that_is_only_announced_takes_little_memory() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let mut stream = connect(&kv);
    let begin = "CLIENT SETNAME sender\r\n*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$100000000\r\n";
    stream.write_all(format!("{begin}{}", "v".repeat(200_000)).as_bytes()).expect("sent");
    read_exactly(&mut stream, b"+OK\r\n");
    let kept = || {
        let clients = testkit::converse(kv.address(), b"CLIENT LIST\r\nQUIT\r\n", usize::MAX);
        let clients = String::from_utf8_lossy(&clients).into_owned();
        let sender = clients.lines().find(|line| line.contains("name=sender")).map(str::to_owned);
        number(&sender.expect("it is there"), "qbuf=")
    };
    wait::until_true("what it has sent is kept", || kept() >= 200_000);
    assert!(kept() <= 2 << 20, "{} bytes for 200,000", kept());
}

#[test]
fn bytes_of_long_values_are_counted() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let received = || {
        let stats = testkit::converse(kv.address(), b"INFO stats\r\nQUIT\r\n", usize::MAX);
        number(&String::from_utf8_lossy(&stats), "total_net_input_bytes:")
    };
    let before = received();
    set_big(&kv, 3_000_000);
    let more = received() - before;
    assert!((3_000_000..3_001_000).contains(&more), "{more} bytes");
}

/// What a client sends while its command waits is read later, and with it that there is no more.
#[test]
fn a_client_that_leaves_while_its_command_waits_is_answered_and_gone() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let mut other = connect(&kv);
    let mut ask = |command: &str| {
        other.write_all(format!("{command}\r\n").as_bytes()).expect("sent");
        read_exactly(&mut other, if command == "PING" { b"+PONG\r\n" } else { b"+OK\r\n" });
    };
    ask("CLIENT PAUSE 600000 WRITE");
    let mut leaving = connect(&kv);
    leaving.write_all(b"PING\r\nSET key value\r\n").expect("sent");
    // The reply says that both were read.
    read_exactly(&mut leaving, b"+PONG\r\n");
    leaving.write_all(b"GET key\r\n").expect("sent");
    leaving.shutdown(Shutdown::Write).expect("half closed");
    // Its worker has had the event of that when it answers this.
    (0..2).for_each(|_| ask("PING"));
    ask("CLIENT UNPAUSE");
    read_exactly(&mut leaving, b"+OK\r\n$5\r\nvalue\r\n");
    assert_eq!(leaving.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn what_was_asked_is_answered_when_it_ends() {
    let mut kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    const ASKED: usize = 5_000;
    let streams: Vec<_> = (0..8).map(|_| connect(&kv)).collect();
    for mut stream in &streams {
        // All of it is on its way when the call returns: the server need not have read it.
        stream.write_all("PING\r\n".repeat(ASKED).as_bytes()).expect("sent");
    }
    kv.service.signal(Signal::TERM);
    let readers = streams.into_iter().map(|mut stream| {
        thread::spawn(move || {
            let mut replies = Vec::new();
            stream.read_to_end(&mut replies).map(|_| replies)
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        let replies = reader.join().expect("no panic").expect("an end without a reset");
        assert_eq!(replies.len(), ASKED * b"+PONG\r\n".len());
    }
    assert!(kv.service.end().success());
}

#[test]
fn info_tells_each_fact_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("saved").display().to_string();
    for arguments in [&[][..], &["--save-file", &saved]] {
        let kv = Kv::start(LARDER, &[&["--maxmemory", "64MiB"], arguments].concat());
        let text = kv.ask(&["SET key value", "INFO everything"]);
        let mut names: Vec<_> =
            text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty() && names.contains(&"async_loading"), "{twice:?}");
    }
}

#[test]
fn a_save_that_fails_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    let saved = place.join("saved").display().to_string();
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--save-file", &saved]);
    std::fs::remove_dir_all(&place).expect("it is gone");
    let told = kv.ask(&["SAVE"]);
    assert!(told.starts_with("-ERR the data set was not saved: "), "{told}");
    assert!(told.contains("No such file or directory"), "{told}");
}

/// What workers share may be half-way through a change: the process ends, says so, and writes nothing of it.
#[test]
fn a_worker_that_panics_ends_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\nenable_debug_command = \"local\"\nsave_file = \"saved\"\n")
        .expect("a file");
    let config = config.to_str().expect("a path in UTF-8");
    let mut kv = Kv::start(LARDER, &["--config", config, "--maxmemory", "64MiB", "--workers", "3"]);
    assert_eq!(kv.ask(&["SET key value"]), "+OK\r\n");
    let mut other = connect(&kv);
    assert_eq!(kv.ask(&["DEBUG PANIC"]), "");
    assert_eq!(other.read(&mut [0]).unwrap_or_default(), 0, "nobody is left alone");
    assert_eq!(kv.service.end().code(), Some(1));
    let log = kv.service.stderr();
    assert!(log.contains("DEBUG PANIC") && log.contains("a worker has failed: the process ends"), "{log}");
    assert!(!folder.path().join("saved").exists());
}
