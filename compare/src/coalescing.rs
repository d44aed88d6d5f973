//! Many clients, one stored response: how soon waiters have it, and how often the origin is asked when it expires.

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

/// How often a response is waited for, of each server in each round.
const WAITS: u32 = 5;

/// Few, so that writing to all of them is not what is measured.
const WAITERS: usize = 4;

/// After the first request and long before its answer.
const BEFORE_WAITERS: Duration = Duration::from_millis(60);

/// How long after the first client that has the answer the waiting ones have it.
///
/// # Errors
/// When a server breaks a connection.
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

/// Microseconds between the first answer to anybody and that to each waiter.
fn delays_us(server: &Server, path: &str) -> anyhow::Result<Vec<f64>> {
    let address = server.addresses.http;
    let mut first = Client::connect(address)?;
    let mut others = Vec::new();
    for _ in 0..WAITERS {
        let mut client = Client::connect(address)?;
        // Accepted, and served before: only the waiting is left.
        client.get("/small", &[])?;
        others.push(client);
    }
    first.send(path, &[])?;
    bench::pause::pass(BEFORE_WAITERS);
    others.iter_mut().try_for_each(|client| client.send(path, &[]))?;
    others.push(first);
    let mut arrivals = arrivals(&others)?;
    // Not that of the client that asked first: a waiter may be ahead of it.
    let begin = arrivals.iter().copied().min().context("there is a client")?;
    arrivals.pop();
    Ok(arrivals.iter().map(|at| at.duration_since(begin).as_secs_f64() * 1e6).collect())
}

/// When each client's answer began to arrive. Looks all the time instead of waiting: a thread that has to be woken would
/// be later than the answer, by as much as is measured here.
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

/// Longer than a freshness lifetime of a second and the origin's delay allow to see a few expiries.
const EXPIRY_SECONDS: f64 = 7.0;

/// Requests to the origin nearer to each other than this are for the same expiry.
const SAME_EXPIRY: Duration = Duration::from_millis(600);

/// How many requests the origin sees each time a hot response expires.
///
/// # Errors
/// When the generator fails.
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

/// How many requests belong together, by the time between them.
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
