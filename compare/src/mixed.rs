//! Effect of misses on hits: the tail latency of hits at a fixed rate, alone and with a thousand misses per second.

use std::thread;

use anyhow::{Context as _, anyhow};
use bench::http::{HttpLoad, Pace};
use bench::peers::{Peer, Shaping};
use bench::result::Run;

use crate::Effort;
use crate::load::{self, Protocol};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// Well below the capacity of every server and of the generator, so that queues aren't measured.
const HITS_PER_SECOND: f64 = 4000.0;

const MISSES_PER_SECOND: f64 = 1000.0;

/// # Errors
/// Returns an error if a server doesn't answer from its cache, or the generator fails.
pub(crate) fn measure(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "hits beside 1,000 misses/s";
    let measures = [("added p99", "µs"), ("p99 alone", "µs"), ("p99 beside misses", "µs")];
    let mut row = Row::new(What::Mixed, title, &measures);
    for server in &servers {
        theatre.prime(server, PATH, &[], Shaping::None)?;
    }
    for round in output::rounds(title, effort.rounds) {
        for server in &servers {
            let alone = load::run(&hits(server, effort)?)?;
            let (beside, misses) =
                together(server, effort, round).with_context(|| server.peer.recipe().title)?;
            let [without, with] = [&alone, &beside].map(|run| run.latency.p99_us as f64);
            let errors = [&alone, &beside, &misses].map(load::errors).iter().sum();
            row.add(Subject::Peer(server.peer), vec![with - without, without, with], errors);
        }
    }
    Ok(row)
}

const PATH: &str = "/small";

fn hits(server: &Server, effort: Effort) -> anyhow::Result<HttpLoad> {
    at_rate(HITS_PER_SECOND, &[PATH.to_owned()], server, effort)
}

fn at_rate(per_second: f64, paths: &[String], server: &Server, effort: Effort) -> anyhow::Result<HttpLoad> {
    let load = load::gets(Protocol::Http1, server.addresses, paths, f64::from(effort.seconds_each))?;
    Ok(HttpLoad { pace: Pace::Open { per_second }, ..load })
}

/// Runs hits and misses at the same time.
fn together(server: &Server, effort: Effort, round: u32) -> anyhow::Result<(Run, Run)> {
    // More URLs than requests, so that no URL is requested twice.
    let count = MISSES_PER_SECOND as u32 * (effort.seconds_each + 1);
    let paths: Vec<String> = (0..count).map(|number| format!("/1k/mixed-{round}-{number}")).collect();
    let misses = at_rate(MISSES_PER_SECOND, &paths, server, effort)?;
    thread::scope(|scope| {
        let misses = scope.spawn(|| load::run(&misses));
        let hits = load::run(&hits(server, effort)?)?;
        let misses = misses.join().map_err(|_| anyhow!("the miss generator panicked"))??;
        Ok((hits, misses))
    })
}
