//! The plan of a load: addresses, the bytes of each request, and the part of each worker.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::LoadError;
use super::load::{Detail, HttpLoad, Pace, Protocol, Reuse, Scheme, Target, Until, Url};
use super::prepare::{self, Prepared};
use super::tickets::Tickets;
use super::tls::Tls;

/// Maximum number of connections of a load. Each holds buffers and a file descriptor.
pub(super) const CONNECTIONS_MAX: usize = 65_536;
pub(super) const DEPTH_MAX: usize = 10_000;
const THREADS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) servers: Vec<Arc<Server>>,
    /// Keys of the figures: distinct URLs, in the order of the list.
    pub(super) figures: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Server {
    /// Host and port as in the URL.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Tls>,
    /// Distinct requests.
    pub(super) requests: Vec<Prepared>,
    sequence: Arc<Vec<u32>>,
}

/// The part of one thread.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) server: Arc<Server>,
    pub(super) connections: usize,
    pub(super) tickets: Tickets,
}

impl Plan {
    pub(super) fn of(load: &HttpLoad) -> Result<Self, LoadError> {
        check(load)?;
        let mut drafts: Vec<Draft> = Vec::new();
        let mut figures = Figures::default();
        for target in &load.targets {
            let at = match drafts.iter().position(|draft| draft.is_at(&target.url)) {
                Some(at) => at,
                None => {
                    drafts.push(Draft::at(&target.url, load)?);
                    drafts.len() - 1
                }
            };
            drafts[at].take(target, load, &mut figures)?;
        }
        let servers = drafts.into_iter().map(|draft| Arc::new(draft.server)).collect();
        Ok(Self { servers, figures: figures.names })
    }

    /// The parts of all threads.
    pub(super) fn parts(&self, load: &HttpLoad, until: Until) -> Vec<Part> {
        let threads = load.threads.max(self.servers.len());
        (0..threads).map(|thread| self.part(load, until, thread, threads)).collect()
    }

    fn part(&self, load: &HttpLoad, until: Until, thread: usize, threads: usize) -> Part {
        let place = thread % self.servers.len();
        let server = &self.servers[place];
        let (first, step) = (thread / self.servers.len(), (threads - place).div_ceil(self.servers.len()));
        let limit = match until {
            Until::Requests(requests) => Some(self.share(requests, place)),
            Until::Elapsed(_) => None,
        };
        let connections = load.connections / threads + usize::from(thread < load.connections % threads);
        let (first, step) = (first as u64, step as u64);
        let tickets = Tickets {
            first,
            step,
            limit: limit.map(|limit| limit.saturating_sub(first).div_ceil(step)),
            order: load.order,
            seed: load.seed,
            sequence: server.sequence.clone(),
            pace: self.pace(load.pace, place),
            taken: 0,
        };
        Part { server: server.clone(), connections: connections.max(1), tickets }
    }

    fn pace(&self, pace: Pace, place: usize) -> Pace {
        let Pace::Open { per_second } = pace else { return pace };
        #[expect(clippy::cast_precision_loss, reason = "lists are shorter than 2^52")]
        let part = self.servers[place].sequence.len() as f64 / self.targets() as f64;
        Pace::Open { per_second: per_second * part }
    }

    /// The share of `requests` for a server, in proportion to its share of the list.
    fn share(&self, requests: u64, place: usize) -> u64 {
        let upto = |place: usize| {
            let targets: usize = self.servers[..place].iter().map(|server| server.sequence.len()).sum();
            u128::from(requests) * targets as u128 / self.targets() as u128
        };
        u64::try_from(upto(place + 1) - upto(place)).expect("a part of a u64")
    }

    fn targets(&self) -> usize {
        self.servers.iter().map(|server| server.sequence.len()).sum()
    }
}

/// A server whose requests are still being collected.
#[derive(Debug)]
struct Draft {
    /// The first URL of the server.
    url: Url,
    known: HashMap<Target, u32>,
    server: Server,
}

impl Draft {
    fn at(url: &Url, load: &HttpLoad) -> Result<Self, LoadError> {
        let tls = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(Tls::new(&load.tls, &url.host, load.protocol)?),
        };
        let server = Server {
            name: format!("{}:{}", url.host, url.port),
            address: resolve(url, load.timeout)?,
            tls,
            requests: Vec::new(),
            sequence: Arc::default(),
        };
        Ok(Self { url: url.clone(), known: HashMap::new(), server })
    }

    fn is_at(&self, url: &Url) -> bool {
        (self.url.scheme, self.url.port, &self.url.host) == (url.scheme, url.port, &url.host)
    }

    fn take(&mut self, target: &Target, load: &HttpLoad, figures: &mut Figures) -> Result<(), LoadError> {
        let requests = &mut self.server.requests;
        let place = match self.known.get(target) {
            Some(place) => *place,
            None => {
                let figure = figures.of(target, load.detail);
                let place = u32::try_from(requests.len()).expect("lists are shorter than 2^32");
                requests.push(prepare::request(target, load, figure)?);
                self.known.insert(target.clone(), place);
                place
            }
        };
        Arc::make_mut(&mut self.server.sequence).push(place);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Figures {
    names: Vec<String>,
    known: HashMap<String, usize>,
}

impl Figures {
    fn of(&mut self, target: &Target, detail: Detail) -> usize {
        if detail == Detail::Total {
            return 0;
        }
        let name = match target.method.as_str() {
            "GET" => target.url.to_string(),
            method => format!("{method} {}", target.url),
        };
        *self.known.entry(name.clone()).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}

/// The first address of the host that accepts connections. A single address isn't tried.
fn resolve(url: &Url, timeout: Duration) -> Result<SocketAddr, LoadError> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let resolved = |source| LoadError::Resolve { host: host.into(), source };
    let addresses: Vec<SocketAddr> = (host, url.port).to_socket_addrs().map_err(resolved)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    match addresses[..] {
        [] => return Err(LoadError::Resolve { host: host.into(), source: last }),
        [only] => return Ok(only),
        _ => {}
    }
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(LoadError::Unreachable { address: format!("{host}:{}", url.port), source: last })
}

/// Refuses settings that no run could follow.
fn check(load: &HttpLoad) -> Result<(), LoadError> {
    if load.targets.is_empty() {
        return Err(LoadError::NoTargets);
    }
    let depth = load.protocol.depth();
    let is_h2 = matches!(load.protocol, Protocol::Http2 { .. });
    let broken = [
        (!(1..=CONNECTIONS_MAX).contains(&load.connections), "connections have to be 1 to 65536"),
        (!(1..=THREADS_MAX).contains(&load.threads), "threads have to be 1 to 256"),
        (load.threads > load.connections, "expected at least as many connections as threads"),
        (!(1..=DEPTH_MAX).contains(&depth), "expected 1 to 10000 requests in flight on a connection"),
        (load.timeout.is_zero(), "the time limit of a request has to be above zero"),
        (
            depth > 1 && load.reuse == Reuse::OnePerRequest,
            "one connection per request leaves nothing to pipeline",
        ),
        (is_h2 && load.reuse == Reuse::OnePerRequest, "one connection per request needs HTTP/1.1"),
        (load.think.is_some() && load.pace != Pace::Closed, "think times need the closed loop"),
        (load.think.as_ref().is_some_and(|think| think.is_empty()), "the range of think times is empty"),
        (load.think.is_some() && depth > 1, "think times and pipelining exclude each other"),
        (!is_rate_possible(load.pace), "the rate has to be 0.001 to 10000000 per second"),
        (load.until == Until::Requests(0), "the number of requests has to be above zero"),
        (load.until == Until::Elapsed(Duration::ZERO), "the duration has to be above zero"),
    ];
    if let Some((_, what)) = broken.iter().find(|(is_broken, _)| *is_broken) {
        return Err(LoadError::Settings((*what).into()));
    }
    Ok(())
}

fn is_rate_possible(pace: Pace) -> bool {
    let Pace::Open { per_second } = pace else { return true };
    (0.001..=10_000_000.0).contains(&per_second)
}
