//! What misses do to hits: the tail of hits at a fixed rate, alone and beside a thousand misses per second.

use std::thread;

use anyhow::{Context as _, anyhow};
use bench::peers::{Peer, Shaping};

use crate::Effort;
use crate::load::{Load, Outcome};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{Server, Theatre};

/// Well below what every server and the generator can do, so that queues are not what is measured.
const HITS_PER_SECOND: f64 = 4000.0;

const MISSES_PER_SECOND: f64 = 1000.0;

/// # Errors
/// When a server doesn't answer from its cache, or the generator fails.
pub(crate) fn measure(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "hits beside 1,000 misses/s";
    let measures = [("added p99", "µs"), ("p99 alone", "µs"), ("p99 beside misses", "µs")];
    let mut row = Row::new(What::Mixed, title, &measures);
    for server in &servers {
        theatre.prime(server, PATH, &[], Shaping::None)?;
    }
    for round in 1..=effort.rounds {
        output::progress(&format!("{title}: round {round} of {}", effort.rounds));
        for server in &servers {
            let alone = hits(server, effort).run()?;
            let (beside, misses) =
                together(server, effort, round).with_context(|| server.peer.recipe().title)?;
            let figures = vec![beside.p99_us - alone.p99_us, alone.p99_us, beside.p99_us];
            row.add(Subject::Peer(server.peer), figures, alone.errors + beside.errors + misses.errors);
        }
    }
    Ok(row)
}

const PATH: &str = "/small";

fn hits(server: &Server, effort: Effort) -> Load {
    let load = Load::of(server.addresses.http, PATH, f64::from(effort.seconds_each));
    Load { per_second: Some(HITS_PER_SECOND), ..load }
}

/// Hits and misses at the same time.
fn together(server: &Server, effort: Effort, round: u32) -> anyhow::Result<(Outcome, Outcome)> {
    // More than are asked for, so that none is asked for twice.
    let count = MISSES_PER_SECOND as u32 * (effort.seconds_each + 1);
    let misses = Load {
        paths: (0..count).map(|number| format!("/1k/mixed-{round}-{number}")).collect(),
        per_second: Some(MISSES_PER_SECOND),
        ..hits(server, effort)
    };
    thread::scope(|scope| {
        let misses = scope.spawn(|| misses.run());
        let hits = hits(server, effort).run()?;
        let misses = misses.join().map_err(|_| anyhow!("the generator of misses panicked"))??;
        Ok((hits, misses))
    })
}
