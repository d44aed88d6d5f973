//! The plan of a load: the server's address, the bytes of each request, and the part of each worker.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::LoadError;
use super::load::{Detail, HttpLoad, Order, Pace, Protocol, Reuse, Scheme, Target, Until, Url};
use super::prepare::{self, Prepared};
use super::tls::Tls;
use crate::drive::{self, Conduct, Tickets, scramble};

const DEPTH_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Plan {
    /// Host and port as in the URLs.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Tls>,
    /// Distinct requests.
    pub(super) requests: Vec<Prepared>,
    /// The request at each position of the list.
    sequence: Vec<usize>,
    order: Order,
    seed: u64,
    /// Keys of the figures: distinct URLs, in the order of the list.
    pub(super) figures: Vec<String>,
}

impl Plan {
    pub(super) fn of(load: &HttpLoad) -> Result<Arc<Self>, LoadError> {
        check(load)?;
        let url = &load.targets.first().ok_or(LoadError::NoTargets)?.url;
        let mut figures = Figures::default();
        let (requests, sequence) = requests(load, &mut figures)?;
        Ok(Arc::new(Self {
            name: format!("{}:{}", url.host, url.port),
            address: resolve(url, load.timeout)?,
            tls: match url.scheme {
                Scheme::Http => None,
                Scheme::Https => Some(Tls::new(&load.tls, &url.host, load.protocol)?),
            },
            requests,
            sequence,
            order: load.order,
            seed: load.seed,
            figures: figures.names,
        }))
    }

    /// Returns the request at a position in the schedule.
    pub(super) fn request_at(&self, place: u64) -> usize {
        let places = self.sequence.len() as u64;
        let place = match self.order {
            Order::InTurn => place % places,
            Order::Random => scramble(self.seed ^ scramble(place)) % places,
        };
        self.sequence[usize::try_from(place).expect("less than the length of a slice")]
    }

    /// Returns the part of one thread.
    pub(super) fn part(&self, load: &HttpLoad, until: Until, thread: usize) -> (Conduct, Tickets) {
        let (share, rest) = (load.connections / load.threads, load.connections % load.threads);
        let conduct = Conduct {
            address: self.address,
            tls: self.tls.clone(),
            connections: share + usize::from(thread < rest),
            reuse: load.reuse,
            until,
            timeout: load.timeout,
            think: load.think.clone(),
            seed: load.seed,
        };
        let (first, step) = (thread as u64, load.threads as u64);
        let limit = match until {
            Until::Requests(requests) => Some(requests.saturating_sub(first).div_ceil(step)),
            Until::Elapsed(_) => None,
        };
        (conduct, Tickets { first, step, limit, pace: load.pace, taken: 0 })
    }
}

/// The distinct requests of a load, and the one at each position of its list.
fn requests(load: &HttpLoad, figures: &mut Figures) -> Result<(Vec<Prepared>, Vec<usize>), LoadError> {
    let (mut requests, mut sequence) = (Vec::new(), Vec::new());
    let mut known: HashMap<&Target, usize> = HashMap::new();
    for target in &load.targets {
        let place = match known.get(target) {
            Some(place) => *place,
            None => {
                requests.push(prepare::request(target, load, figures.of(target, load.detail))?);
                known.insert(target, requests.len() - 1);
                requests.len() - 1
            }
        };
        sequence.push(place);
    }
    Ok((requests, sequence))
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

/// Returns the first address of the host that accepts connections. A single address is not tried.
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

/// Refuses invalid settings.
fn check(load: &HttpLoad) -> Result<(), LoadError> {
    let depth = load.protocol.depth();
    let is_h2 = matches!(load.protocol, Protocol::Http2 { .. });
    let broken = [
        (!is_one_server(&load.targets), "expected URLs of one server"),
        (!(1..=DEPTH_MAX).contains(&depth), "expected 1 to 10000 requests in flight on a connection"),
        (
            depth > 1 && load.reuse == Reuse::OnePerRequest,
            "one connection per request leaves nothing to pipeline",
        ),
        (is_h2 && load.reuse == Reuse::OnePerRequest, "one connection per request needs HTTP/1.1"),
        (load.think.is_some() && load.pace != Pace::Closed, "think times need the closed loop"),
        (load.think.as_ref().is_some_and(|think| think.is_empty()), "the range of think times is empty"),
        (load.think.is_some() && depth > 1, "think times and pipelining exclude each other"),
    ];
    let broken = broken.iter().find(|(is_broken, _)| *is_broken).map(|(_, what)| *what);
    let amount = || drive::broken((load.connections, load.threads), (load.until, load.timeout), load.pace);
    match broken.or_else(amount) {
        Some(what) => Err(LoadError::Settings(what.into())),
        None => Ok(()),
    }
}

fn is_one_server(targets: &[Target]) -> bool {
    let is_same =
        |one: &Url, other: &Url| (one.scheme, one.port, &one.host) == (other.scheme, other.port, &other.host);
    targets.windows(2).all(|pair| is_same(&pair[0].url, &pair[1].url))
}
