//! `larder kv` and many clients: a small form of what `make soak` does for ten minutes with ten thousand, and what
//! strangers can do who come in crowds.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use testkit::{Client, KvService, KvSetup, wait};

use crate::LARDER;
use crate::kv::crowd;

#[test]
fn a_thousand_clients_at_the_memory_limit_lose_no_reply() {
    crowd::run(1000, Duration::from_secs(30), 64);
}

/// A server with a password and one worker, and a client that has given it.
fn locked(limits: &str) -> (KvService, TcpStream) {
    let kv = KvSetup::new(LARDER)
        .file("password", "one\n")
        .start(&format!("password_files = [\"password\"]\nworkers = 1\n[kv.limits]\n{limits}"));
    let guest = let_in(kv.address());
    (kv, guest)
}

fn let_in(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    ask(&mut stream, "AUTH one", "+OK\r\n");
    stream
}

#[track_caller]
fn ask(stream: &mut TcpStream, command: &str, expected: &str) {
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
    let mut told = vec![0; expected.len()];
    stream.read_exact(&mut told).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&told), expected);
}

/// While so many connections are opened, of which nobody says anything, `body` is done again and again.
fn while_strangers_come(address: SocketAddr, count: usize, mut body: impl FnMut()) {
    const OPEN: usize = 300;
    let flood = thread::spawn(move || {
        let mut open = VecDeque::new();
        for _ in 0..count {
            open.extend(TcpStream::connect(address));
            open.drain(..open.len().saturating_sub(OPEN));
        }
    });
    while !flood.is_finished() {
        body();
    }
    flood.join().expect("no panic");
}

#[test]
fn strangers_do_not_pass_the_limits_however_fast_they_come() {
    // Beside those of the limits: what the process has open anyway, 64 connections that were ended and are not closed yet, and some that wait
    // for their clients to read the last reply.
    const MORE: usize = 110;
    for limits in
        ["clients_max = 40\nunauthenticated_max = 20", "clients_max = 40\nunauthenticated_max = 1000"]
    {
        let (kv, _guest) = locked(limits);
        let folder = format!("/proc/{}/fd", kv.service.id());
        let mut most = 0;
        while_strangers_come(kv.address(), 4_000, || {
            most = most.max(fs::read_dir(&folder).expect("it runs").count());
        });
        assert!(most <= 40 + MORE, "{limits}: {most} descriptors");
    }
}

#[test]
fn who_is_refused_does_not_pass_the_limits_either() {
    let kv = KvService::start(LARDER, "workers = 1\n[kv.limits]\nclients_max = 40");
    let folder = format!("/proc/{}/fd", kv.service.id());
    let _guests: Vec<_> = (0..40).map(|_| TcpStream::connect(kv.address()).expect("it listens")).collect();
    let mut most = 0;
    while_strangers_come(kv.address(), 4_000, || {
        most = most.max(fs::read_dir(&folder).expect("it runs").count());
    });
    assert!(most <= 40 + 60, "{most} descriptors");
}

#[test]
fn clients_are_served_and_let_in_while_strangers_come() {
    let (kv, mut guest) = locked("");
    let mut longest = Duration::ZERO;
    let mut logins = 0;
    while_strangers_come(kv.address(), 8_000, || {
        for _ in 0..20 {
            longest = longest.max(kv.service.waited_for(|| ask(&mut guest, "PING", "+PONG\r\n")));
        }
        drop(let_in(kv.address()));
        logins += 1;
    });
    assert!(logins > 2, "{logins} were let in");
    assert!(longest < Duration::from_millis(500), "{longest:?} for a PING");
}

/// The oldest made way for a flood: whoever had connected before it, and had not said the password yet.
#[test]
fn a_flood_from_one_address_pushes_out_nobody_from_another() {
    let (kv, _guest) = locked("unauthenticated_max = 20");
    let mut slow: Vec<_> = (0..5).map(|_| TcpStream::connect(kv.address()).expect("it listens")).collect();
    let flood = IpAddr::from([127, 0, 0, 2]);
    let mut flood: Vec<_> = (0..100).map(|_| Client::connect_from(flood, kv.address())).collect();
    flood[..80].iter_mut().for_each(|client| assert_eq!(client.rest(), b"", "it made way"));
    for client in &mut slow {
        client.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
        ask(client, "AUTH one", "+OK\r\n");
    }
}

/// A client with as many subscriptions as one may have.
fn subscribed(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    for first in (0..100_000).step_by(1000) {
        let names: Vec<_> = (first..first + 1000).map(|number| format!("channel-{number}")).collect();
        let reply = |(count, name): (usize, &String)| {
            format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:{count}\r\n", name.len())
        };
        let replies: String = (first + 1..).zip(&names).map(reply).collect();
        ask(&mut stream, &format!("SUBSCRIBE {}", names.join(" ")), &replies);
    }
    stream
}

/// What they had subscribed to was taken out of the tables in one go, and all others waited.
#[test]
fn nobody_waits_for_the_end_of_subscribers() {
    let kv = KvService::start(LARDER, "workers = 1\nmaxmemory = \"512MiB\"");
    let subscribers: Vec<_> = (0..5).map(|_| subscribed(kv.address())).collect();
    let mut other = TcpStream::connect(kv.address()).expect("it listens");
    other.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    drop(subscribers);
    let mut longest = Duration::ZERO;
    wait::until_true("all are forgotten", || {
        let mut told = [0; 23];
        longest = longest.max(kv.service.waited_for(|| {
            other.write_all(b"PUBSUB NUMSUB channel-0\r\n").expect("it reads");
            other.read_exact(&mut told).expect("it answers");
        }));
        told.ends_with(b":0\r\n")
    });
    eprintln!("{longest:?} for an answer");
    assert!(longest < Duration::from_millis(500), "{longest:?} for an answer");
    ask(&mut other, "PUBSUB CHANNELS", "*0\r\n");
}
