//! Connections that the server closes: its last replies arrive, even if the client keeps sending. Closing a connection with unread input
//! resets it, which would lose replies in transit.

use std::thread;

use testkit::{Authority, KvService};

use super::access::{locked, tls};
use super::sessions::Talker;
use crate::LARDER;

/// Number of clients for each kind of end.
const CLIENTS: usize = 200;

/// Asserts that the connection ends after these replies without a reset, although the client keeps sending.
#[track_caller]
fn assert_ends(client: &mut Talker, replies: &str) {
    assert_eq!(client.rest(), replies);
    // If the server reset the connection after the first write, the second would fail.
    (0..2).for_each(|_| std::io::Write::write_all(&mut client.0, b"PING\r\n").expect("it is read"));
    assert_eq!(client.rest(), "");
}

/// Sends requests after which the server closes the connection, followed by a lot of data.
#[track_caller]
fn check(kv: &KvService, requests: &str, replies: &str) {
    let more = "x".repeat(512 << 10);
    for _ in 0..CLIENTS {
        let mut client = Talker::connect(kv.address());
        client.send(format!("{requests}{more}"));
        assert_ends(&mut client, replies);
    }
}

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[test]
fn replies_arrive_before_a_request_that_ends_the_connection() {
    let kv = KvService::start(LARDER, "workers = 2\n[kv.limits]\nrequest_bytes_max = \"1MiB\"");
    let large = format!("PING\r\n*2\r\n$4\r\nECHO\r\n$9999999\r\n{}", "x".repeat(2 << 20));
    for (requests, replies) in [
        ("PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n"),
        ("*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("PING\r\nCLIENT KILL TYPE normal SKIPME no\r\n", "+PONG\r\n:1\r\n"),
        ("PING\r\nPOST / HTTP/1.1\r\n", "+PONG\r\n"),
        ("MULTI\r\nQUIT\r\n", "+OK\r\n+OK\r\n"),
        (&large, "+PONG\r\n"),
    ] {
        check(&kv, requests, replies);
    }
}

#[test]
fn replies_arrive_before_a_refusal() {
    let kv = locked("workers = 2");
    for (request, kind) in [("*11", "multibulk"), ("*1\r\n$16385", "bulk")] {
        let refused = format!("{WRONG}-ERR Protocol error: unauthenticated {kind} length\r\n");
        check(&kv, &format!("AUTH wrong\r\n{request}\r\n"), &refused);
    }
    let kv = locked("workers = 2\ntext_protocol = \"unit-separator\"");
    check(&kv, "", "ERROR: NOAUTH Authentication required.\x1f");
    let kv = KvService::start(LARDER, "workers = 2\n[kv.limits]\nclients_max = 1");
    let mut only = Talker::connect(kv.address());
    only.expect("PING", "+PONG\r\n");
    check(&kv, "PING\r\n", "-ERR max number of clients reached\r\n");
}

/// A client without TLS gets a TLS alert.
#[test]
fn a_client_without_tls_reads_an_alert() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"]);
    let kv = KvService::start(LARDER, &tls(&identity, ""));
    for _ in 0..CLIENTS {
        let mut client = Talker::connect(kv.address());
        client.send(format!("PING\r\n{}", "x".repeat(512 << 10)));
        let told = client.rest();
        assert!(told.starts_with('\x15'), "{told:?}");
    }
}

/// A client whose reply has arrived, but isn't read.
fn answered(kv: &KvService, request: &str) -> Talker {
    let mut client = Talker::connect(kv.address());
    client.send(request);
    client.0.peek(&mut [0; 1]).expect("it answers");
    client
}

#[test]
fn replies_arrive_before_another_client_kills() {
    let kv = KvService::start(LARDER, "workers = 2");
    let mut other = Talker::connect(kv.address());
    for _ in 0..CLIENTS {
        let mut client = answered(&kv, "PING\r\n");
        let address = client.0.local_addr().expect("it is connected");
        other.expect(&format!("CLIENT KILL ADDR {address}"), ":1\r\n");
        assert_ends(&mut client, "+PONG\r\n");
    }
}

#[test]
fn replies_arrive_before_strangers_make_way() {
    let kv = locked("workers = 2\n[kv.limits]\nunauthenticated_max = 1");
    let mut client = answered(&kv, "AUTH wrong\r\n");
    for _ in 0..CLIENTS {
        let mut before = std::mem::replace(&mut client, answered(&kv, "AUTH wrong\r\n"));
        assert_ends(&mut before, WRONG);
    }
}

#[test]
fn replies_arrive_before_a_timeout() {
    for limit in ["auth_timeout", "idle_timeout"] {
        let kv = locked(&format!("workers = 2\n[kv.limits]\n{limit} = \"300ms\""));
        let say = || {
            let mut client = Talker::connect(kv.address());
            client.send("AUTH wrong\r\n");
            assert_ends(&mut client, WRONG);
        };
        thread::scope(|scope| (0..CLIENTS).for_each(|_| drop(scope.spawn(say))));
    }
}
