//! Many clients at the memory limit, half of them slow readers.

use std::time::Duration;

use testkit::{Crowd, Kv, raise_open_files_limit};

use crate::LARDER;

/// What the process has before the first key, but its code, which is three times as much where it is not optimised: threads, sockets.
const BASE_BYTES: u64 = 8 << 20;

/// `memory_mib` has to be less than their keys need together, so that it is full all the time.
pub(crate) fn run(clients: usize, duration: Duration, memory_mib: u64) {
    raise_open_files_limit();
    let mut kv = Kv::start(LARDER, &["--maxmemory", &format!("{memory_mib}MiB"), "--workers", "1"]);
    // The one who measures is a client as well.
    let report = Crowd { clients: clients - 1, duration }.visit(kv.address());
    let data = kv.service.data_bytes();
    eprintln!(
        "{clients} clients for {duration:?}: {} replies, p99.9 {:?}, longest {:?}, {} MiB of data",
        report.replies,
        report.p999,
        report.longest,
        data >> 20
    );
    kv.service.assert_runs();
    assert!(data <= (memory_mib << 20) * 11 / 10 + BASE_BYTES, "{} MiB of data", data >> 20);
    assert!(
        kv.ask(&["INFO stats"]).lines().any(|line| is_above_zero(line, "evicted_keys:")),
        "memory was never full"
    );
}

fn is_above_zero(line: &str, field: &str) -> bool {
    line.strip_prefix(field).is_some_and(|number| number.trim() != "0")
}
