//! Latency at half of what each server can do: an open loop, in which a slow answer does not hold up the next request.

use anyhow::{Context as _, ensure};
use bench::peers::{Peer, Shaping};

use crate::Effort;
use crate::load::Load;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// To find out what a server can do.
const CAPACITY_SECONDS: f64 = 2.0;

/// The share of it that is asked for.
const SHARE: f64 = 0.5;

/// # Errors
/// When a server doesn't answer from its cache, or the generator fails.
pub(crate) fn measure(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "open loop at half of the capacity, hit, 14 bytes";
    let measures = [("p99.9", "µs"), ("p99", "µs"), ("p50", "µs"), ("requests/s", "")];
    let mut row = Row::new(What::OpenLoop, title, &measures);
    let rates: Vec<f64> =
        servers.iter().map(|server| rate(theatre, server)).collect::<anyhow::Result<_>>()?;
    for round in 1..=effort.rounds {
        output::progress(&format!("{title}: round {round} of {}", effort.rounds));
        for (server, rate) in servers.iter().zip(&rates) {
            let load = Load {
                per_second: Some(*rate),
                ..Load::of(server.addresses.http, PATH, f64::from(effort.seconds_each))
            };
            let outcome = load.run().with_context(|| server.peer.recipe().title)?;
            let figures = vec![outcome.p999_us, outcome.p99_us, outcome.p50_us, outcome.per_second];
            row.add(Subject::Peer(server.peer), figures, outcome.errors);
        }
    }
    Ok(row)
}

const PATH: &str = "/small";

fn rate(theatre: &Theatre, server: &Server) -> anyhow::Result<f64> {
    theatre.prime(server, PATH, &[], Shaping::None)?;
    let outcome = Load::of(server.addresses.http, PATH, CAPACITY_SECONDS).run()?;
    ensure!(outcome.per_second > 0.0, "{} answered nothing", server.peer.recipe().title);
    Ok(outcome.per_second * SHARE)
}
