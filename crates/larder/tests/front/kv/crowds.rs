//! `larder kv` with many clients: a short version of the `make soak` test with ten thousand clients for ten minutes, and floods of
//! unauthenticated clients.

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

/// Number of open files and sockets of the server.
fn descriptors(kv: &KvService) -> usize {
    fs::read_dir(format!("/proc/{}/fd", kv.service.id())).expect("it runs").count()
}

/// Repeats `body` while `count` connections are opened that send nothing.
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
    // Descriptors beyond the limits: files of the process, 64 ended connections that aren't closed yet, and some whose clients haven't read
    // the last reply.
    const MORE: usize = 110;
    for limit in [20, 1000] {
        let limits = format!("clients_max = 40\nunauthenticated_max = {limit}");
        let kv = locked(&format!("workers = 1\n[kv.limits]\n{limits}"));
        let _guest = let_in(kv.address());
        let mut most = 0;
        while_strangers_come(kv.address(), 4_000, || most = most.max(descriptors(&kv)));
        assert!(most <= 40 + MORE, "{limit}: {most} descriptors");
    }
    // Refused clients don't exceed the limits either.
    let kv = KvService::start(LARDER, "workers = 1\n[kv.limits]\nclients_max = 40");
    let _guests: Vec<_> = (0..40).map(|_| Talker::connect(kv.address())).collect();
    let mut most = 0;
    while_strangers_come(kv.address(), 4_000, || most = most.max(descriptors(&kv)));
    assert!(most <= 40 + 60, "{most} descriptors");
}

const FLOODS_MAX: usize = 10;

#[test]
fn clients_are_served_and_let_in_while_strangers_come() {
    let kv = locked("workers = 1");
    let mut guest = let_in(kv.address());
    let mut longest = Duration::ZERO;
    let mut logins = 0;
    // On a busy machine, a flood may pass during one login.
    for _ in 0..FLOODS_MAX {
        while_strangers_come(kv.address(), 8_000, || {
            for _ in 0..20 {
                longest = longest.max(kv.service.waited_for(|| guest.expect("PING", "+PONG\r\n")));
            }
            drop(let_in(kv.address()));
            logins += 1;
        });
        if logins > 2 {
            break;
        }
    }
    assert!(logins > 2, "{logins} logins");
    assert!(longest < Duration::from_millis(500), "{longest:?} for a PING");
}

/// A flood once displaced the oldest unauthenticated connections, even those from other addresses.
#[test]
fn a_flood_from_one_address_pushes_out_nobody_from_another() {
    let kv = locked("workers = 1\n[kv.limits]\nunauthenticated_max = 20");
    let mut slow: Vec<_> = (0..5).map(|_| Talker::connect(kv.address())).collect();
    let flood = IpAddr::from([127, 0, 0, 2]);
    let mut flood: Vec<_> = (0..100).map(|_| Client::connect_from(flood, kv.address())).collect();
    flood[..80].iter_mut().for_each(|client| assert_eq!(client.rest(), b"", "it is closed for another"));
    slow.iter_mut().for_each(|client| client.expect("AUTH one", "+OK\r\n"));
}
