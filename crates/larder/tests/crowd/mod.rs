//! Many clients at the memory limit, half of them slow readers.

use std::time::Duration;

use testkit::{Crowd, Kv, raise_open_files_limit};

use crate::LARDER;

/// What the process has before the first key: code, threads, sockets.
const BASE_BYTES: u64 = 24 << 20;

/// `memory_mib` has to be less than their keys need together, so that it is full all the time.
pub(crate) fn run(clients: usize, duration: Duration, memory_mib: u64) {
    raise_open_files_limit();
    let mut kv = Kv::start(LARDER, &["--maxmemory", &format!("{memory_mib}MiB"), "--workers", "1"]);
    // The one who measures is a client as well.
    let report = Crowd { clients: clients - 1, duration }.visit(kv.address());
    let resident = kv.service.resident_bytes();
    eprintln!(
        "{clients} clients for {duration:?}: {} replies, p99.9 {:?}, longest {:?}, {} MiB resident",
        report.replies,
        report.p999,
        report.longest,
        resident >> 20
    );
    kv.service.assert_runs();
    assert!(resident <= (memory_mib << 20) * 11 / 10 + BASE_BYTES, "{} MiB are resident", resident >> 20);
    assert!(
        kv.ask(&["INFO stats"]).lines().any(|line| is_above_zero(line, "evicted_keys:")),
        "memory was never full"
    );
}

fn is_above_zero(line: &str, field: &str) -> bool {
    line.strip_prefix(field).is_some_and(|number| number.trim() != "0")
}
