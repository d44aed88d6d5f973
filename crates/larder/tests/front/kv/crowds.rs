//! `larder kv` and many clients: a small form of what `make soak` does for ten minutes with ten thousand, and what
//! strangers can do who come in crowds.

use std::collections::VecDeque;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use testkit::{Client, KvService};

use super::access::{let_in, locked};
use super::sessions::Talker;
use crate::LARDER;
use crate::kv::crowd;

#[test]
fn a_thousand_clients_at_the_memory_limit_lose_no_reply() {
    crowd::run(1000, Duration::from_secs(10), 64);
}

/// How many files and sockets the server has open.
fn descriptors(kv: &KvService) -> usize {
    fs::read_dir(format!("/proc/{}/fd", kv.service.id())).expect("it runs").count()
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
    // Beside those of the limits: files of the process, 64 connections that were ended and are not closed yet, and some that wait for their
    // clients to read the last reply.
    const MORE: usize = 110;
    for limits in
        ["clients_max = 40\nunauthenticated_max = 20", "clients_max = 40\nunauthenticated_max = 1000"]
    {
        let kv = locked(&format!("workers = 1\n[kv.limits]\n{limits}"));
        let _guest = let_in(kv.address());
        let mut most = 0;
        while_strangers_come(kv.address(), 4_000, || most = most.max(descriptors(&kv)));
        assert!(most <= 40 + MORE, "{limits}: {most} descriptors");
    }
    // Nor do clients that are refused.
    let kv = KvService::start(LARDER, "workers = 1\n[kv.limits]\nclients_max = 40");
    let _guests: Vec<_> = (0..40).map(|_| Talker::connect(kv.address())).collect();
    let mut most = 0;
    while_strangers_come(kv.address(), 4_000, || most = most.max(descriptors(&kv)));
    assert!(most <= 40 + 60, "{most} descriptors");
}

#[test]
fn clients_are_served_and_let_in_while_strangers_come() {
    let kv = locked("workers = 1");
    let mut guest = let_in(kv.address());
    let mut longest = Duration::ZERO;
    let mut logins = 0;
    while_strangers_come(kv.address(), 8_000, || {
        for _ in 0..20 {
            longest = longest.max(kv.service.waited_for(|| guest.expect("PING", "+PONG\r\n")));
        }
        drop(let_in(kv.address()));
        logins += 1;
    });
    assert!(logins > 2, "{logins} were let in");
    assert!(longest < Duration::from_millis(500), "{longest:?} for a PING");
}

/// The oldest made way for a flood: all that had connected before it, and had not said the password yet.
#[test]
fn a_flood_from_one_address_pushes_out_nobody_from_another() {
    let kv = locked("workers = 1\n[kv.limits]\nunauthenticated_max = 20");
    let mut slow: Vec<_> = (0..5).map(|_| Talker::connect(kv.address())).collect();
    let flood = IpAddr::from([127, 0, 0, 2]);
    let mut flood: Vec<_> = (0..100).map(|_| Client::connect_from(flood, kv.address())).collect();
    flood[..80].iter_mut().for_each(|client| assert_eq!(client.rest(), b"", "it made way"));
    slow.iter_mut().for_each(|client| client.expect("AUTH one", "+OK\r\n"));
}
