//! One row: its servers side by side, in interleaved rounds.

use serde::{Deserialize, Serialize};

use anyhow::Context as _;

use crate::cores::Busy;
use crate::load::{self, Load, Protocol};
use crate::output;
use crate::peers::Peer;
use crate::plan::{AnsweredBy, CoreTime, What};
use crate::stage::{SERVER_CORE, Server, Stage};
use crate::statistics::Summary;

/// How long and how often.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    pub(crate) seconds_each: u32,
}

/// What came out of one row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: What,
    pub(crate) title: String,
    pub(crate) series: Vec<Series>,
}

/// One server in a row, over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) subject: Subject,
    /// Non-idle microseconds of the server's core per request.
    pub(crate) core_us_per_request: Summary,
    pub(crate) requests_per_second: Summary,
    pub(crate) body_bytes: u64,
    pub(crate) errors: u64,
    /// What each round said, in order.
    pub(crate) rounds_us: Vec<f64>,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    Peer(Peer),
    /// Larder's plain hit beside another row.
    PlainHit,
}

/// Requests at a time, in every row.
const CONNECTIONS: u32 = 64;

/// A warm-up before the first round, to fill pools of threads, connections and buffers.
const WARM_UP_SECONDS: u32 = 1;

/// Answers that may come from the origin during a row of hits: somebody may look once more.
const STRAY_REQUESTS_MAX: u64 = 10;

/// A server and what it is asked in this row.
struct Entrant<'a> {
    subject: Subject,
    server: &'a Server,
    request: CoreTime,
    rounds: Vec<Round>,
}

struct Round {
    busy_us: f64,
    requests: u64,
    errors: u64,
}

/// Measures the row with those of its peers that run.
///
/// # Errors
/// When a server doesn't do what the row is about, or the generator fails.
pub(crate) fn row(stage: &Stage, servers: &[Server], what: What, effort: Effort) -> anyhow::Result<Row> {
    let mut entrants = entrants(servers, what);
    for entrant in &entrants {
        entrant.prepare(stage).with_context(|| entrant.subject.title())?;
    }
    for round in 1..=effort.rounds {
        output::progress(&format!("{}: round {round} of {}", what.core_time().title, effort.rounds));
        for entrant in &mut entrants {
            entrant.measure(stage, effort).with_context(|| entrant.subject.title())?;
        }
    }
    let series = entrants.iter().filter_map(|entrant| entrant.series(effort)).collect();
    Ok(Row { what, title: what.core_time().title.to_owned(), series })
}

fn entrants(servers: &[Server], what: What) -> Vec<Entrant<'_>> {
    let row = what.core_time();
    let takes_part = |server: &&Server| row.peers.contains(&server.peer);
    let entrant = |subject, server, request| Entrant { subject, server, request, rounds: Vec::new() };
    let mut entrants: Vec<Entrant<'_>> = servers
        .iter()
        .filter(takes_part)
        .map(|server| entrant(Subject::Peer(server.peer), server, what.core_time()))
        .collect();
    let larder = servers.iter().find(|server| server.peer == Peer::Larder);
    if let Some(server) = larder.filter(|_| row.beside_plain_hit) {
        entrants.push(entrant(Subject::PlainHit, server, What::Hit.core_time()));
    }
    entrants
}

impl Entrant<'_> {
    /// Fills the cache, sees that it is used, and warms up.
    fn prepare(&self, stage: &Stage) -> anyhow::Result<()> {
        if self.request.answered_by == AnsweredBy::Cache && self.server.peer != Peer::Null {
            self.server.prime(&stage.origin, self.request.path, &self.vary_fields())?;
        }
        load::run(&self.load(WARM_UP_SECONDS))?;
        Ok(())
    }

    /// The fields that choose a variant; a condition would turn the answer into a 304, and there is nothing to compare.
    fn vary_fields(&self) -> Vec<&'static str> {
        self.request.fields.iter().copied().filter(|field| !field.starts_with("If-")).collect()
    }

    fn measure(&mut self, stage: &Stage, effort: Effort) -> anyhow::Result<()> {
        let asked_before = stage.origin.requests();
        let busy = Busy::now(SERVER_CORE)?;
        let outcome = load::run(&self.load(effort.seconds_each))?;
        let busy_us = busy.elapsed_us(SERVER_CORE)?;
        let asked = stage.origin.requests() - asked_before;
        self.check(asked, outcome.requests)?;
        self.rounds.push(Round { busy_us, requests: outcome.requests, errors: outcome.errors });
        Ok(())
    }

    /// What the origin saw must fit what the row is about.
    fn check(&self, asked: u64, requests: u64) -> anyhow::Result<()> {
        anyhow::ensure!(requests > 0, "not one request was answered");
        match self.request.answered_by {
            AnsweredBy::Cache => anyhow::ensure!(
                asked <= STRAY_REQUESTS_MAX,
                "of {requests} answers {asked} came from the origin, not from the cache"
            ),
            // Answers that were on their way when the time was over are not in the generator's count.
            AnsweredBy::Origin => anyhow::ensure!(
                asked >= requests,
                "the origin saw {asked} of {requests} requests: some were answered from the cache"
            ),
        }
        Ok(())
    }

    fn load(&self, seconds: u32) -> Load<'_> {
        let addresses = self.server.addresses;
        let address = match self.request.protocol {
            Protocol::Http1 => addresses.http,
            Protocol::Http1Tls => addresses.tls,
            Protocol::Http2 => addresses.http2,
        };
        Load {
            address,
            protocol: self.request.protocol,
            path: self.request.path,
            fields: self.request.fields,
            connections: CONNECTIONS,
            seconds,
        }
    }

    fn series(&self, effort: Effort) -> Option<Series> {
        let rounds_us: Vec<f64> =
            self.rounds.iter().map(|round| round.busy_us / round.requests as f64).collect();
        let rates: Vec<f64> =
            self.rounds.iter().map(|round| round.requests as f64 / f64::from(effort.seconds_each)).collect();
        Some(Series {
            subject: self.subject,
            core_us_per_request: Summary::of(&rounds_us)?,
            requests_per_second: Summary::of(&rates)?,
            body_bytes: crate::origin::body_of(self.request.path).map_or(0, |body| body.len() as u64),
            errors: self.rounds.iter().map(|round| round.errors).sum(),
            rounds_us,
        })
    }
}

impl Subject {
    pub(crate) fn title(self) -> String {
        match self {
            Self::Peer(peer) => peer.recipe().title.to_owned(),
            Self::PlainHit => "Larder, plain hit beside".to_owned(),
        }
    }
}
