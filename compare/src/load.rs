//! The load generator: that of `larder bench http`, in this process, on its core. What it is called stays in this file.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Context as _;
use bench::http::{self, HttpLoad, Pace, Target, TlsSettings, Trust, Until};
use bench::result::Run;

/// What is asked, of whom, how.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Asked for in turn.
    pub(crate) paths: Vec<String>,
    /// Name and value of the fields of each request.
    pub(crate) fields: Vec<(String, String)>,
    /// Another one is an error.
    pub(crate) status: u16,
    /// Requests at a time.
    pub(crate) concurrency: usize,
    /// Each connection rests so long before each request.
    pub(crate) rest: Option<RangeInclusive<Duration>>,
    /// Requests per second of an open loop; a closed one without.
    pub(crate) per_second: Option<f64>,
    pub(crate) until: Until,
}

/// How the generator speaks to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http1Tls,
    /// By prior knowledge, without TLS.
    Http2,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    /// Wrong answers, broken connections, time-outs.
    pub(crate) errors: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

/// Streams at a time on each HTTP/2 connection: with 64 requests at a time in all rows, these are 16 connections.
const HTTP2_STREAMS: usize = 4;

impl Load {
    /// A GET of one path in a closed loop for some seconds; change the fields from here.
    pub(crate) fn of(address: SocketAddr, path: &str, seconds: f64) -> Self {
        Self {
            address,
            protocol: Protocol::Http1,
            paths: vec![path.to_owned()],
            fields: Vec::new(),
            status: 200,
            concurrency: 64,
            rest: None,
            per_second: None,
            until: Until::Elapsed(Duration::from_secs_f64(seconds)),
        }
    }

    /// Asks to the end.
    ///
    /// # Errors
    /// When the server can't be reached, or the generator can't follow the settings.
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let run =
            http::run(&self.settings()?, &mut ()).with_context(|| format!("load on {}", self.address))?;
        Ok(Outcome::of(&run))
    }

    fn settings(&self) -> anyhow::Result<HttpLoad> {
        let streams = self.streams();
        let protocol = match self.protocol {
            Protocol::Http1 | Protocol::Http1Tls => http::Protocol::Http1 { pipelining: 1 },
            Protocol::Http2 => http::Protocol::Http2 { streams },
        };
        let targets = self.paths.iter().map(|path| self.target(path)).collect::<anyhow::Result<_>>()?;
        Ok(HttpLoad {
            protocol,
            tls: TlsSettings { trust: Trust::Anyone, ..TlsSettings::default() },
            connections: (self.concurrency / streams).max(1),
            pace: self.per_second.map_or(Pace::Closed, |per_second| Pace::Open { per_second }),
            until: self.until,
            think: self.rest.clone(),
            ..HttpLoad::of(targets)
        })
    }

    /// Requests at a time on each connection; a connection that rests has one.
    fn streams(&self) -> usize {
        if self.protocol == Protocol::Http2 && self.rest.is_none() { HTTP2_STREAMS } else { 1 }
    }

    fn target(&self, path: &str) -> anyhow::Result<Target> {
        let scheme = if self.protocol == Protocol::Http1Tls { "https" } else { "http" };
        let target = Target::at(&format!("{scheme}://{}{path}", self.address))?;
        Ok(Target { fields: self.fields.clone(), status: Some(self.status), ..target })
    }
}

impl Outcome {
    fn of(run: &Run) -> Self {
        Self {
            requests: run.requests,
            errors: run.errors.total() + run.unsent,
            per_second: run.requests_per_s,
            p50_us: run.latency.p50_us as f64,
            p99_us: run.latency.p99_us as f64,
            p999_us: run.latency.p999_us as f64,
        }
    }
}
