//! Collapsed requests: how soon waiters get the response, and how many requests reach the origin when it expires.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bench::peers::{Client, Peer, Shaping};

use crate::Effort;
use crate::load::{self, Protocol};
use crate::origin::Origin;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// Waits per server and round.
const WAITS: u32 = 5;

/// Few waiters, so that the time to write to all of them hardly counts.
const WAITERS: usize = 4;

/// Time from the first request to the waiters, which is long before its response.
const BEFORE_WAITERS: Duration = Duration::from_millis(60);

/// Delay between the first client that gets the response and each waiter.
///
/// # Errors
/// Returns an error if a server breaks a connection.
pub(crate) fn waiters(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "waiters woken, after the first client that has the answer";
    let measures = [("median waiter", "µs"), ("last waiter", "µs"), ("origin requests for each", "")];
    let mut row = Row::new(What::Waiters, title, &measures);
    for round in output::rounds(title, effort.rounds) {
        for server in &servers {
            for wait in 0..WAITS {
                let before = theatre.origin.requests();
                let path = format!("/slow/{round}-{wait}");
                let mut delays = delays_us(server, &path).with_context(|| server.peer.recipe().title)?;
                delays.sort_by(f64::total_cmp);
                let asked = (theatre.origin.requests() - before) as f64;
                let figures = vec![delays[delays.len() / 2], delays[delays.len() - 1], asked];
                row.add(Subject::Peer(server.peer), figures, 0);
            }
        }
    }
    Ok(row)
}

/// Microseconds between the first response to any client and that to each waiter.
fn delays_us(server: &Server, path: &str) -> anyhow::Result<Vec<f64>> {
    let address = server.addresses.http;
    let mut first = Client::connect(address)?;
    let mut others = Vec::new();
    for _ in 0..WAITERS {
        let mut client = Client::connect(address)?;
        // A connection that was accepted and served earlier adds no time to the wait.
        client.get("/small", &[])?;
        others.push(client);
    }
    first.send(path, &[])?;
    bench::pause::pass(BEFORE_WAITERS);
    others.iter_mut().try_for_each(|client| client.send(path, &[]))?;
    others.push(first);
    let mut arrivals = arrivals(&others)?;
    // The earliest arrival of all, because a waiter may be served before the first requester.
    let begin = arrivals.iter().copied().min().context("there is a client")?;
    arrivals.pop();
    Ok(arrivals.iter().map(|at| at.duration_since(begin).as_secs_f64() * 1e6).collect())
}

/// Arrival time of the first byte of each client's response. Polls instead of blocking: waking a thread would add about as
/// much time as the measured delays.
fn arrivals(clients: &[Client]) -> anyhow::Result<Vec<Instant>> {
    let end = Instant::now() + ANSWER_LIMIT;
    let mut arrivals: Vec<Option<Instant>> = vec![None; clients.len()];
    while arrivals.contains(&None) {
        for (client, arrival) in clients.iter().zip(&mut arrivals) {
            if arrival.is_none() && client.is_answered()? {
                *arrival = Some(Instant::now());
            }
        }
        ensure!(Instant::now() < end, "no answer to some of {} clients", clients.len());
    }
    Ok(arrivals.into_iter().flatten().collect())
}

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Duration of the load: long enough for several expiries, at a freshness lifetime of one second and the origin's delay.
const EXPIRY_SECONDS: f64 = 7.0;

/// Requests to the origin that are closer together than this belong to the same expiry.
const SAME_EXPIRY: Duration = Duration::from_millis(600);

/// Number of requests that reach the origin each time a hot response expires.
///
/// # Errors
/// Returns an error if the generator fails.
pub(crate) fn expiry(theatre: &Theatre, peers: &[Peer]) -> anyhow::Result<Row> {
    let title = "origin requests per expiry of a hot response, 64 connections";
    let measures = [("requests per expiry", ""), ("most for one expiry", ""), ("expiries", "")];
    let mut row = Row::new(What::Expiry, title, &measures);
    for server in theatre.start_all(peers, Shaping::None) {
        output::progress(&format!("{title}: {}", server.peer.recipe().title));
        let (figures, errors) = expiries(&theatre.origin, &server)?;
        row.add(Subject::Peer(server.peer), figures, errors);
    }
    Ok(row)
}

fn expiries(origin: &Origin, server: &Server) -> anyhow::Result<(Vec<f64>, u64)> {
    origin.take_hot();
    let run = load::run(&load::gets(Protocol::Http1, server.addresses, &["/hot"], EXPIRY_SECONDS)?)?;
    let groups = groups(&origin.take_hot());
    let most = groups.iter().copied().max().unwrap_or(0) as f64;
    let total: usize = groups.iter().sum();
    let mean = total as f64 / groups.len().max(1) as f64;
    Ok((vec![mean, most, groups.len() as f64], load::errors(&run)))
}

/// Groups requests whose times are less than [`SAME_EXPIRY`] apart, and returns the size of each group.
fn groups(arrivals: &[Instant]) -> Vec<usize> {
    let mut groups: Vec<usize> = Vec::new();
    let mut last: Option<Instant> = None;
    for at in arrivals {
        let is_same = last.is_some_and(|last| at.duration_since(last) < SAME_EXPIRY);
        match groups.last_mut() {
            Some(group) if is_same => *group += 1,
            _ => groups.push(1),
        }
        last = Some(*at);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_expiry_belong_together() {
        let begin = Instant::now();
        let cases: [(&[u64], &[usize]); 4] = [
            (&[], &[]),
            (&[5], &[1]),
            (&[0, 10, 20, 1100, 2300, 2301], &[3, 1, 2]),
            (&[0, 599, 1198, 1798], &[3, 1]),
        ];
        for (arrivals_ms, expected) in cases {
            let arrivals: Vec<Instant> =
                arrivals_ms.iter().map(|at| begin + Duration::from_millis(*at)).collect();
            assert_eq!(groups(&arrivals), expected, "{arrivals_ms:?}");
        }
    }
}
