//! The load generator of `larder-bench http`, in this process and on its core.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bench::http::{self, HttpLoad, Target, TlsSettings, Trust, Until};
use bench::peers::Addresses;
use bench::result::Run;

/// The protocol between generator and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http1Tls,
    /// HTTP/2 with prior knowledge, without TLS.
    Http2,
}

impl Protocol {
    fn address(self, addresses: Addresses) -> SocketAddr {
        match self {
            Self::Http1 => addresses.http,
            Self::Http1Tls => addresses.tls,
            Self::Http2 => addresses.http2,
        }
    }
}

/// Concurrent requests in every row.
const CONCURRENCY: usize = 64;
/// Streams on each of the 16 HTTP/2 connections.
const HTTP2_STREAMS: usize = 4;

/// Returns a closed loop that requests each path in turn with GET, and expects status 200. Callers can change its fields.
///
/// # Errors
/// Returns an error if a path is invalid.
pub(crate) fn gets(
    protocol: Protocol,
    addresses: Addresses,
    paths: &[impl AsRef<str>],
    seconds: f64,
) -> anyhow::Result<HttpLoad> {
    let (address, scheme) =
        (protocol.address(addresses), if protocol == Protocol::Http1Tls { "https" } else { "http" });
    let target = |path: &str| {
        let target = Target::at(&format!("{scheme}://{address}{path}"))?;
        anyhow::Ok(Target { status: Some(200), ..target })
    };
    let targets = paths.iter().map(|path| target(path.as_ref())).collect::<anyhow::Result<_>>()?;
    let (protocol, connections) = match protocol {
        Protocol::Http1 | Protocol::Http1Tls => (http::Protocol::Http1 { pipelining: 1 }, CONCURRENCY),
        Protocol::Http2 => (http::Protocol::Http2 { streams: HTTP2_STREAMS }, CONCURRENCY / HTTP2_STREAMS),
    };
    Ok(HttpLoad {
        protocol,
        connections,
        tls: TlsSettings { trust: Trust::Anyone, ..TlsSettings::default() },
        until: Until::Elapsed(Duration::from_secs_f64(seconds)),
        ..HttpLoad::of(targets)
    })
}

/// Runs the load to its end.
///
/// # Errors
/// Returns an error if the server can't be reached, or the generator can't follow the settings.
pub(crate) fn run(load: &HttpLoad) -> anyhow::Result<Run> {
    http::run(load, &mut ()).with_context(|| format!("load on {}", load.targets[0].url.authority()))
}

/// Wrong responses, broken connections, time-outs, and requests that found no free connection in time.
pub(crate) fn errors(run: &Run) -> u64 {
    run.errors.total() + run.unsent
}
