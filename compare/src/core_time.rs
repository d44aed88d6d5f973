//! Rows of core time per request: servers side by side, in interleaved rounds.

use anyhow::{Context as _, ensure};
use bench::http::HttpLoad;
use bench::peers::{Peer, Shaping};
use bench::server::ServerProbe;

use crate::Effort;
use crate::load;
use crate::origin;
use crate::output;
use crate::plan::{AnsweredBy, CoreTime, What};
use crate::row::{Row, Subject};
use crate::stage::{SERVER_CORE, Server, Theatre, check};

/// Warm-up before the first round, which fills thread pools, connections and buffers.
const WARM_UP_SECONDS: f64 = 1.0;

/// Maximum number of responses from the origin during a row of hits, such as validations.
const STRAY_REQUESTS_MAX: u64 = 10;

/// From this body size on, copying the body costs more than handling the request.
const LARGE_BYTES: usize = 10 << 10;

/// A server and its load in this row.
struct Entrant<'a> {
    subject: Subject,
    server: &'a Server,
    request: &'a CoreTime,
    body_bytes: usize,
}

/// Measures the row with every peer that could be started.
///
/// # Errors
/// Returns an error if a server doesn't behave as the row requires, or the generator fails.
pub(crate) fn measure(
    theatre: &Theatre,
    what: What,
    settings: &CoreTime,
    peers: &[Peer],
    effort: Effort,
) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, settings.shaping);
    let others: &[Peer] = if settings.shaping == Shaping::None { &[] } else { peers };
    let unshaped = theatre.start_all(others, Shaping::None);
    let bare = CoreTime { shaping: Shaping::None, ..*settings };
    let plain = What::Hit.core_time().context("a hit is a row of core time")?;
    let mut entrants: Vec<Entrant<'_>> =
        servers.iter().map(|server| Entrant::new(Subject::Peer(server.peer), server, settings)).collect();
    let larder = servers.iter().find(|server| server.peer == Peer::Larder && settings.beside_plain_hit);
    entrants.extend(larder.map(|server| Entrant::new(Subject::PlainHit, server, &plain)));
    let without = unshaped.iter().map(|server| Entrant::new(Subject::Without(server.peer), server, &bare));
    entrants.extend(without);
    for entrant in &entrants {
        entrant.prepare(theatre).with_context(|| entrant.subject.title())?;
    }
    let mut row = Row::new(what, settings.title, measures(&entrants));
    for _ in output::rounds(settings.title, effort.rounds) {
        for entrant in &entrants {
            entrant.measure(theatre, effort, &mut row).with_context(|| entrant.subject.title())?;
        }
    }
    Ok(row)
}

fn measures(entrants: &[Entrant<'_>]) -> &'static [(&'static str, &'static str)] {
    let is_large = entrants.iter().any(|entrant| entrant.body_bytes >= LARGE_BYTES);
    let all = &[("core time per request", "µs"), ("requests/s", ""), ("bytes per core second", "MiB/s")];
    if is_large { all } else { &all[..2] }
}

impl<'a> Entrant<'a> {
    fn new(subject: Subject, server: &'a Server, request: &'a CoreTime) -> Self {
        let body_bytes = origin::body_of(request.path).map_or(0, |body| body.len());
        Self { subject, server, request, body_bytes }
    }

    /// Fills the cache, checks that it is used, and warms up.
    fn prepare(&self, theatre: &Theatre) -> anyhow::Result<()> {
        // A conditional request would get a 304, which has no body to compare.
        let chosen = self.request.fields.iter().filter(|(name, _)| !name.starts_with("If-"));
        let lines: Vec<String> = chosen.map(|(name, value)| format!("{name}: {value}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let CoreTime { path, shaping, answered_by, .. } = *self.request;
        match answered_by {
            AnsweredBy::Cache => theatre.prime(self.server, path, &lines, shaping)?,
            AnsweredBy::Origin => check(self.server, path, &lines, shaping)?,
        }
        load::run(&self.load(WARM_UP_SECONDS)?)?;
        Ok(())
    }

    fn measure(&self, theatre: &Theatre, effort: Effort, row: &mut Row) -> anyhow::Result<()> {
        let asked_before = theatre.origin.requests();
        let measuring = ServerProbe::new(&[], Some(SERVER_CORE))?.begin()?;
        let run = load::run(&self.load(f64::from(effort.seconds_each))?)?;
        let spent = measuring.end()?.core_busy_us.context("the core wasn't measured")?;
        self.check(theatre.origin.requests() - asked_before, run.requests)?;
        let us_per_request = spent / run.requests as f64;
        let mib_per_second = self.body_bytes as f64 / f64::from(1 << 20) / (us_per_request / 1e6);
        let mut figures = vec![us_per_request, run.requests_per_s, mib_per_second];
        figures.truncate(row.measures.len());
        row.add(self.subject, figures, load::errors(&run));
        Ok(())
    }

    /// Checks that the number of requests at the origin fits the row.
    fn check(&self, asked: u64, requests: u64) -> anyhow::Result<()> {
        ensure!(requests > 0, "no request was answered");
        match self.request.answered_by {
            AnsweredBy::Cache => ensure!(
                asked <= STRAY_REQUESTS_MAX,
                "{asked} of {requests} answers came from the origin, not from the cache"
            ),
            // Responses in flight at the end of the run are missing from the generator's count.
            AnsweredBy::Origin => ensure!(
                asked >= requests,
                "the origin saw {asked} of {requests} requests: some were answered from the cache"
            ),
        }
        Ok(())
    }

    fn load(&self, seconds: f64) -> anyhow::Result<HttpLoad> {
        let CoreTime { path, fields, protocol, status, .. } = *self.request;
        let mut load = load::gets(protocol, self.server.addresses, &[path], seconds)?;
        let target = &mut load.targets[0];
        target.fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        // The null server ignores conditions.
        target.status = Some(if self.server.peer == Peer::Null { 200 } else { status });
        Ok(load)
    }
}
