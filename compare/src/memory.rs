//! Memory of an idle connection, and of a stored response beyond its body.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use bench::http::{self, Until};
use bench::peers::{Client, Peer, Shaping};
use bench::server::memory_bytes;

use crate::load::{self, Protocol};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};
use bench::pause::pass;

/// Connections that are open before the first measurement, so that initial pools and buffers aren't counted.
const CONNECTIONS_BEFORE: usize = 200;

const CONNECTIONS: usize = 2000;

/// Think time of each connection between two requests.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

const HELD_SECONDS: f64 = 5.0;

/// Time of the measurement: after all connections have sent at least one request, and before the first is closed.
const LOOK_AFTER: Duration = Duration::from_millis(4500);

/// # Errors
/// Returns an error if a server can't hold the connections, or its memory can't be read.
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
            // Each figure has its own server, since freed memory doesn't always return to the OS.
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

/// Resident memory in bytes with this many open connections.
fn resident_with(server: &Server, protocol: Protocol, connections: usize) -> anyhow::Result<u64> {
    let mut load = load::gets(protocol, server.addresses, &["/small"], HELD_SECONDS)?;
    load.connections = connections;
    load.think = Some(REST.0..=REST.1);
    if protocol == Protocol::Http2 {
        load.protocol = http::Protocol::Http2 { streams: 1 };
    }
    thread::scope(|scope| {
        let asking = scope.spawn(|| load::run(&load));
        pass(LOOK_AFTER);
        let bytes = memory_bytes(server.pid)?;
        let run = asking.join().map_err(|_| anyhow!("the generator panicked"))??;
        let errors = load::errors(&run);
        ensure!(errors == 0, "{errors} of {connections} connections failed");
        ensure!(run.requests >= connections as u64, "only {} requests", run.requests);
        Ok(bytes)
    })
}

const RESPONSES_BEFORE: u32 = 2000;
const RESPONSES: u32 = 100_000;
const BODY_BYTES: f64 = 1024.0;

/// Number of stored responses that are requested again.
const SAMPLES: u32 = 200;

/// Freed memory returns to the OS within this time.
const SETTLE: Duration = Duration::from_secs(1);

/// # Errors
/// Returns an error if a server doesn't answer, or its memory can't be read.
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
    let before = settled_bytes(server.pid)?;
    errors += fill(server, "stored", RESPONSES)?;
    let after = settled_bytes(server.pid)?;
    let each = (after - before) / f64::from(RESPONSES) - BODY_BYTES;
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
    let paths: Vec<String> = (0..responses).map(|number| path(name, number)).collect();
    let mut load = load::gets(Protocol::Http1, server.addresses, &paths, HELD_SECONDS)?;
    load.connections = 16;
    load.until = Until::Requests(u64::from(responses));
    Ok(load::errors(&load::run(&load)?))
}

/// Resident memory in bytes, after freed memory has returned to the OS.
pub(crate) fn settled_bytes(pid: u32) -> anyhow::Result<f64> {
    pass(SETTLE);
    Ok(memory_bytes(pid)? as f64)
}
