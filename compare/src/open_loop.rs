//! Latency at half of each server's capacity, in an open loop: a slow response doesn't delay the next request.

use anyhow::{Context as _, ensure};
use bench::http::Pace;
use bench::peers::{Peer, Shaping};

use crate::Effort;
use crate::load::{self, Protocol};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// Duration of the load that finds a server's capacity.
const CAPACITY_SECONDS: f64 = 2.0;

/// Share of the capacity that the open loop requests.
const SHARE: f64 = 0.5;

/// # Errors
/// Returns an error if a server doesn't answer from its cache, or the generator fails.
pub(crate) fn measure(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "open loop at half of the capacity, hit, 14 bytes";
    let measures = [("p99.9", "µs"), ("p99", "µs"), ("p50", "µs"), ("requests/s", "")];
    let mut row = Row::new(What::OpenLoop, title, &measures);
    let rates: Vec<f64> =
        servers.iter().map(|server| rate(theatre, server)).collect::<anyhow::Result<_>>()?;
    for _ in output::rounds(title, effort.rounds) {
        for (server, rate) in servers.iter().zip(&rates) {
            let seconds = f64::from(effort.seconds_each);
            let mut load = load::gets(Protocol::Http1, server.addresses, &[PATH], seconds)?;
            load.pace = Pace::Open { per_second: *rate };
            let run = load::run(&load).with_context(|| server.peer.recipe().title)?;
            let latencies = [run.latency.p999_us, run.latency.p99_us, run.latency.p50_us];
            let figures = latencies.map(|us| us as f64).into_iter().chain([run.requests_per_s]);
            row.add(Subject::Peer(server.peer), figures.collect(), load::errors(&run));
        }
    }
    Ok(row)
}

const PATH: &str = "/small";

fn rate(theatre: &Theatre, server: &Server) -> anyhow::Result<f64> {
    theatre.prime(server, PATH, &[], Shaping::None)?;
    let run = load::run(&load::gets(Protocol::Http1, server.addresses, &[PATH], CAPACITY_SECONDS)?)?;
    ensure!(run.requests_per_s > 0.0, "{} answered nothing", server.peer.recipe().title);
    Ok(run.requests_per_s * SHARE)
}
