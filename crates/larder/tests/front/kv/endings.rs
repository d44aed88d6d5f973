//! How connections of `larder kv` end when the server ends them: what it replied before arrives, whatever the client sends behind it. A
//! connection that is closed with input unread is reset, and what is on its way to the client is lost with it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use testkit::{Authority, KvService, KvSetup, wait};

use crate::LARDER;

/// Each way is gone so often.
const CLIENTS: usize = 200;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream.set_write_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut told = Vec::new();
    let read = stream.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told).into_owned();
    read.unwrap_or_else(|error| panic!("{error} after {told:?}"));
    told
}

/// The end comes after these replies, and no reset, though the client goes on to speak.
#[track_caller]
fn assert_ends(stream: &mut TcpStream, replies: &str) {
    assert_eq!(read_to_end(stream), replies);
    // The first would be answered with a reset, which the second would find.
    for _ in 0..2 {
        stream.write_all(b"PING\r\n").expect("nobody listens, but it is read");
    }
    assert_eq!(read_to_end(stream), "");
}

/// Requests after which the server ends a connection by itself, with much behind them.
#[track_caller]
fn check(address: SocketAddr, requests: &str, replies: &str) {
    let more = "x".repeat(512 << 10);
    for _ in 0..CLIENTS {
        let mut stream = connect(address);
        stream.write_all(format!("{requests}{more}").as_bytes()).expect("all of it is read");
        assert_ends(&mut stream, replies);
    }
}

/// A server that asks for a password.
fn locked(more: &str) -> KvService {
    KvSetup::new(LARDER)
        .file("password", "one\n")
        .start(&format!("password_files = [\"password\"]\nworkers = 2\n{more}"))
}

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[test]
fn after_a_request_that_ends_it() {
    let kv = KvService::start(LARDER, "workers = 2");
    check(kv.address(), "PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n");
    check(kv.address(), "*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n");
    check(kv.address(), "PING\r\nCLIENT KILL TYPE normal SKIPME no\r\n", "+PONG\r\n:1\r\n");
    check(kv.address(), "PING\r\nPOST / HTTP/1.1\r\n", "+PONG\r\n");
}

#[test]
fn after_a_request_that_a_stranger_may_not_make() {
    let kv = locked("");
    let too_many = "-ERR Protocol error: unauthenticated multibulk length\r\n";
    check(kv.address(), "AUTH wrong\r\n*11\r\n", &format!("{WRONG}{too_many}"));
    let too_long = "-ERR Protocol error: unauthenticated bulk length\r\n";
    check(kv.address(), "AUTH wrong\r\n*1\r\n$16385\r\n", &format!("{WRONG}{too_long}"));
    let kv = locked("text_protocol = \"unit-separator\"");
    check(kv.address(), "", "ERROR: NOAUTH Authentication required.\x1f");
}

#[test]
fn after_a_request_that_is_too_large() {
    let kv = KvService::start(LARDER, "workers = 2\n[kv.limits]\nrequest_bytes_max = \"1MiB\"");
    let mut large = "PING\r\n*2\r\n$4\r\nECHO\r\n$9999999\r\n".to_owned();
    large.push_str(&"x".repeat(2 << 20));
    check(kv.address(), &large, "+PONG\r\n");
}

#[test]
fn without_having_been_let_in() {
    let kv = KvService::start(LARDER, "workers = 2\n[kv.limits]\nclients_max = 1");
    let mut only = connect(kv.address());
    only.write_all(b"PING\r\n").expect("it reads");
    only.read_exact(&mut [0; 7]).expect("it answers");
    check(kv.address(), "PING\r\n", "-ERR max number of clients reached\r\n");
}

/// An alert is told to who doesn't speak TLS.
#[test]
fn after_what_is_no_tls() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"]);
    let (cert, key) = (identity.certificate.display(), identity.key.display());
    let kv = KvService::start(
        LARDER,
        &format!("listen = []\n[kv.tls]\nlisten = [\"127.0.0.1:0\"]\ncert = \"{cert}\"\nkey = \"{key}\""),
    );
    let more = "x".repeat(512 << 10);
    for _ in 0..CLIENTS {
        let mut stream = connect(kv.address());
        stream.write_all(format!("PING\r\n{more}").as_bytes()).expect("all of it is read");
        let told = read_to_end(&mut stream);
        assert!(told.starts_with('\x15'), "{told:?}");
    }
}

#[test]
fn because_another_client_wants_it() {
    let kv = KvService::start(LARDER, "workers = 2");
    let mut other = connect(kv.address());
    for _ in 0..CLIENTS {
        let mut stream = connect(kv.address());
        stream.write_all(b"PING\r\n").expect("it reads");
        stream.peek(&mut [0; 1]).expect("it answers");
        let address = stream.local_addr().expect("it is connected");
        other.write_all(format!("CLIENT KILL ADDR {address}\r\n").as_bytes()).expect("it reads");
        other.read_exact(&mut [0; 4]).expect("it answers");
        assert_ends(&mut stream, "+PONG\r\n");
    }
}

#[test]
fn because_others_come_who_may_be_anybody() {
    let kv = locked("[kv.limits]\nunauthenticated_max = 1");
    let stranger = || {
        let mut stream = connect(kv.address());
        stream.write_all(b"AUTH wrong\r\n").expect("it reads");
        stream.peek(&mut [0; 1]).expect("it answers");
        stream
    };
    let mut stream = stranger();
    for _ in 0..CLIENTS {
        let mut before = std::mem::replace(&mut stream, stranger());
        assert_ends(&mut before, WRONG);
    }
}

#[test]
fn because_no_password_came_or_nothing_at_all() {
    let silent = ["[kv.limits]\nauth_timeout = \"300ms\"", "[kv.limits]\nidle_timeout = \"300ms\""];
    for limits in silent {
        let kv = locked(limits);
        let address = kv.address();
        let say = move || {
            let mut stream = connect(address);
            stream.write_all(b"AUTH wrong\r\n").expect("it reads");
            assert_ends(&mut stream, WRONG);
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(say)).collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
    }
}
