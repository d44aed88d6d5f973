//! Memory: of an idle connection, and of a stored response beyond its body.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use bench::http::Until;
use bench::peers::{Client, Peer, Shaping};

use crate::load::{Load, Protocol};
use crate::origin::pause;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// What is there before is not counted: pools and buffers for some connections.
const CONNECTIONS_BEFORE: usize = 200;

const CONNECTIONS: usize = 2000;

/// Each connection asks again after about this time, and is idle otherwise.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

const HELD_SECONDS: f64 = 5.0;

/// When all connections have asked at least once, before the first is closed.
const LOOK_AFTER: Duration = Duration::from_millis(4500);

/// # Errors
/// When a server can't hold the connections, or its memory can't be read.
pub(crate) fn idle(theatre: &Theatre, peers: &[Peer]) -> anyhow::Result<Vec<Row>> {
    let kinds = [
        ("memory per idle connection, HTTP/1.1", Protocol::Http1),
        ("memory per idle connection, HTTP/2", Protocol::Http2),
        ("memory per idle connection, TLS", Protocol::Http1Tls),
    ];
    let mut rows = Vec::new();
    for (title, protocol) in kinds {
        let mut row = Row::new(What::Memory, title, &[("memory", "KiB")]);
        for peer in peers {
            output::progress(&format!("{title}: {}", peer.recipe().title));
            // A server of its own for each figure: memory that was freed is not always given back.
            let Ok(server) = theatre.start(*peer, Shaping::None) else { continue };
            let kib = idle_kib(&server, protocol).with_context(|| peer.recipe().title)?;
            row.add(Subject::Peer(*peer), vec![kib], 0);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn idle_kib(server: &Server, protocol: Protocol) -> anyhow::Result<f64> {
    let before = resident_with(server, protocol, CONNECTIONS_BEFORE)?;
    let after = resident_with(server, protocol, CONNECTIONS_BEFORE + CONNECTIONS)?;
    Ok(after.saturating_sub(before) as f64 / 1024.0 / CONNECTIONS as f64)
}

/// Bytes of memory while so many connections are open.
fn resident_with(server: &Server, protocol: Protocol, connections: usize) -> anyhow::Result<u64> {
    let addresses = server.addresses;
    let address = match protocol {
        Protocol::Http1 => addresses.http,
        Protocol::Http1Tls => addresses.tls,
        Protocol::Http2 => addresses.http2,
    };
    let load = Load {
        protocol,
        concurrency: connections,
        rest: Some(REST.0..=REST.1),
        ..Load::of(address, "/small", HELD_SECONDS)
    };
    thread::scope(|scope| {
        let load = scope.spawn(|| load.run());
        pause(LOOK_AFTER);
        let bytes = memory_bytes(server.pid)?;
        let outcome = load.join().map_err(|_| anyhow!("the generator panicked"))??;
        ensure!(outcome.errors == 0, "{} of {connections} connections failed", outcome.errors);
        ensure!(outcome.requests >= connections as u64, "only {} requests", outcome.requests);
        Ok(bytes)
    })
}

const RESPONSES_BEFORE: u32 = 2000;
const RESPONSES: u32 = 100_000;
const BODY_BYTES: f64 = 1024.0;

/// Of those that were stored, so many are looked for again.
const SAMPLES: u32 = 200;

/// Freed memory goes back to the system within this time.
const SETTLE: Duration = Duration::from_secs(1);

/// # Errors
/// When a server doesn't answer, or its memory can't be read.
pub(crate) fn overhead(theatre: &Theatre, peers: &[Peer]) -> anyhow::Result<Row> {
    let title = "memory per stored response beyond its body, 100,000 of 1 KiB";
    let mut row = Row::new(What::Overhead, title, &[("memory", "bytes"), ("still stored", "%")]);
    for peer in peers {
        output::progress(&format!("{title}: {}", peer.recipe().title));
        let Ok(server) = theatre.start(*peer, Shaping::None) else { continue };
        let (figures, errors) = stored(theatre, &server).with_context(|| peer.recipe().title)?;
        row.add(Subject::Peer(*peer), figures, errors);
    }
    Ok(row)
}

fn stored(theatre: &Theatre, server: &Server) -> anyhow::Result<(Vec<f64>, u64)> {
    let mut errors = fill(server, "before", RESPONSES_BEFORE)?;
    let before = settled_bytes(server)?;
    errors += fill(server, "stored", RESPONSES)?;
    let after = settled_bytes(server)?;
    let each = (after as f64 - before as f64) / f64::from(RESPONSES) - BODY_BYTES;
    let asked_before = theatre.origin.requests();
    let mut client = Client::connect(server.addresses.http)?;
    for sample in 0..SAMPLES {
        client.get(&path("stored", sample * (RESPONSES / SAMPLES)), &[])?;
    }
    let gone = (theatre.origin.requests() - asked_before) as f64;
    Ok((vec![each, 100.0 * (1.0 - gone / f64::from(SAMPLES))], errors))
}

fn path(name: &str, number: u32) -> String {
    format!("/1k/{name}-{number}")
}

fn fill(server: &Server, name: &str, responses: u32) -> anyhow::Result<u64> {
    let load = Load {
        paths: (0..responses).map(|number| path(name, number)).collect(),
        concurrency: 16,
        until: Until::Requests(u64::from(responses)),
        ..Load::of(server.addresses.http, "", 0.0)
    };
    Ok(load.run()?.errors)
}

fn settled_bytes(server: &Server) -> anyhow::Result<u64> {
    pause(SETTLE);
    memory_bytes(server.pid)
}

/// Memory of a process and all that descends from it; what several share is counted once.
pub(crate) fn memory_bytes(root: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in tree(root, &parents()) {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        sum += proportional_bytes(&text).with_context(|| format!("no Pss in {path}"))?;
    }
    Ok(sum)
}

fn proportional_bytes(smaps: &str) -> Option<u64> {
    let line = smaps.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn tree(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut members = vec![root];
    let mut next = 0;
    while let Some(parent) = members.get(next).copied() {
        members.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    members
}

/// The parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent_in(&stat)?))
    })
    .collect()
}

/// The fourth field; the second is a name in parentheses that may contain anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses_and_spaces() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (nginx) S 1 12"), Some(1));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn all_that_descends_is_counted() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (6, 5)]);
        assert_eq!(tree(2, &parents), [2, 3, 4]);
        assert_eq!(proportional_bytes("Rss:  90 kB\nPss:   12 kB\nPss_Dirty: 1 kB\n"), Some(12_288));
    }
}
