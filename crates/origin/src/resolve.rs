//! Name resolution: addresses are used for the TTL of their records, and somewhat longer if the name servers fail.
//!
//! Look-ups run on the background runtime, one per name at a time. So a cancelled request doesn't cancel a look-up that other
//! requests wait for, and the tasks of hickory survive the end of a worker.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::error::OriginError;

/// The loopback addresses, for `localhost` (RFC 6761 section 6.3).
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Addresses of one name, in the order to try them.
pub(super) type Addresses = Arc<[IpAddr]>;
type Outcome = Result<Addresses, Arc<str>>;

/// The permitted addresses of connections to a host.
#[derive(Debug)]
pub(super) enum Lead {
    /// Any address: the host isn't a name whose addresses can change, or no addresses are known.
    Anywhere,
    To(Addresses),
}

/// Minimum time before addresses are looked up again, regardless of the TTL of the records.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Maximum time before addresses are looked up again, regardless of the TTL of the records.
const TTL_MAX: Duration = Duration::from_secs(3600);
/// Entries of the hosts file have no TTL; the file is read again after this time.
const HOSTS_FILE_TTL: Duration = Duration::from_secs(5);
/// Time for which addresses are used after their TTL if name servers fail (RFC 8767 section 4).
const STALE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Time for which a request waits for a new look-up if expired addresses are available (RFC 8767 section 5).
const STALE_AFTER: Duration = Duration::from_millis(1800);
/// Pause between look-ups of a name that fails.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Name resolution for all origins.
pub(super) struct Resolver {
    settings: Settings,
    background: Handle,
    names: Mutex<HashMap<String, Entry>>,
    dns: Mutex<Option<TokioResolver>>,
}

/// Source of the name servers and their settings. If they can't be read, only the hosts file and literals work; the next look-up
/// tries again.
pub(super) type Settings = Box<dyn Fn() -> Result<(ResolverConfig, ResolverOpts), NetError> + Send + Sync>;

/// Settings from `/etc/resolv.conf`.
pub(super) fn system_settings() -> Settings {
    Box::new(hickory_resolver::system_conf::read_system_conf)
}

#[derive(Default)]
struct Entry {
    known: Option<Known>,
    failed: Option<Failed>,
    lookup: Option<watch::Receiver<Option<Outcome>>>,
}

struct Known {
    addresses: Addresses,
    fresh_until: Instant,
}

struct Failed {
    cause: Arc<str>,
    quiet_until: Instant,
}

/// Reply of the cache to a request: an outcome, or a look-up to wait for.
enum Answer {
    Now(Outcome),
    Wait { lookup: watch::Receiver<Option<Outcome>>, stale: Option<Addresses> },
}

/// Result of a look-up.
enum Found {
    Addresses(Vec<IpAddr>, Duration),
    /// The name servers answered that the name has no address.
    Nothing(Arc<str>),
    /// The name servers did not answer.
    Failure(Arc<str>),
}

impl Lead {
    pub(super) fn leads_to(&self, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Self::To(addresses), Some(address)) => addresses.contains(&address),
            (Self::Anywhere, _) | (Self::To(_), None) => true,
        }
    }
}

impl Resolver {
    /// Returns the runtime for background work.
    pub(super) fn background(&self) -> &Handle {
        &self.background
    }

    pub(super) fn new(settings: Settings, background: Handle) -> Arc<Self> {
        Arc::new(Self { settings, background, names: Mutex::default(), dns: Mutex::default() })
    }

    /// Resolves a host: literals directly, names from the cache or by a look-up.
    pub(super) async fn resolve(self: &Arc<Self>, host: &str) -> Result<Addresses, OriginError> {
        if let Some(literal) = literal(host) {
            return Ok(Arc::from([literal]));
        }
        let outcome = match self.answer(host, Instant::now()) {
            Answer::Now(outcome) => outcome,
            Answer::Wait { lookup, stale } => waited(lookup, stale).await,
        };
        outcome.map_err(OriginError::Resolve)
    }

    /// Returns the permitted addresses of kept connections to a name, without waiting: if they are too old, a look-up begins.
    pub(super) fn lead(self: &Arc<Self>, name: &str, now: Instant) -> Lead {
        match self.answer(name, now) {
            Answer::Now(Ok(addresses)) | Answer::Wait { stale: Some(addresses), .. } => Lead::To(addresses),
            Answer::Now(Err(_)) | Answer::Wait { stale: None, .. } => Lead::Anywhere,
        }
    }

    fn answer(self: &Arc<Self>, host: &str, now: Instant) -> Answer {
        let mut names = self.names.lock();
        if !names.contains_key(host) {
            names.insert(host.to_owned(), Entry::default());
        }
        let entry = names.get_mut(host).expect("it was put there");
        if let Some(known) = entry.known.as_ref().filter(|known| now < known.fresh_until) {
            return Answer::Now(Ok(Arc::clone(&known.addresses)));
        }
        let stale = entry.stale(now);
        if let Some(failed) = entry.failed.as_ref().filter(|failed| now < failed.quiet_until) {
            return Answer::Now(stale.ok_or_else(|| Arc::clone(&failed.cause)));
        }
        // A closed channel without an outcome means that the look-up's runtime has ended.
        let running = entry.lookup.take().filter(|lookup| lookup.has_changed().is_ok());
        let lookup = running.unwrap_or_else(|| self.start(host.to_owned()));
        entry.lookup = Some(lookup.clone());
        Answer::Wait { lookup, stale }
    }

    fn start(self: &Arc<Self>, host: String) -> watch::Receiver<Option<Outcome>> {
        let (sender, receiver) = watch::channel(None);
        let resolver = Arc::clone(self);
        self.background.spawn(async move {
            let found = resolver.look_up(&host).await;
            let outcome = resolver.note(&host, found, Instant::now());
            sender.send_replace(Some(outcome));
        });
        receiver
    }

    /// Keeps the result of a look-up. Failures are logged, and leave the last known addresses in place. If the answer is that the
    /// name has no addresses, they are removed: stale addresses are for failures only (RFC 8767 section 4).
    fn note(&self, host: &str, found: Found, now: Instant) -> Outcome {
        let mut names = self.names.lock();
        let entry = names.entry(host.to_owned()).or_default();
        entry.lookup = None;
        let failed = |cause: &Arc<str>| Failed { cause: Arc::clone(cause), quiet_until: now + FAILURE_PAUSE };
        match found {
            Found::Addresses(addresses, ttl) => {
                let addresses: Addresses = addresses.into();
                let fresh_until = now + ttl.clamp(TTL_MIN, TTL_MAX);
                entry.known = Some(Known { addresses: Arc::clone(&addresses), fresh_until });
                entry.failed = None;
                Ok(addresses)
            }
            Found::Nothing(cause) => {
                *entry = Entry { failed: Some(failed(&cause)), ..Entry::default() };
                drop(names);
                tracing::warn!(host, %cause, "a name has no address");
                Err(cause)
            }
            Found::Failure(cause) => {
                entry.failed = Some(failed(&cause));
                let stale = entry.stale(now);
                drop(names);
                let is_stale = stale.is_some();
                tracing::warn!(host, %cause, last_known_addresses_used = is_stale, "name resolution failed");
                stale.ok_or(cause)
            }
        }
    }

    async fn look_up(&self, host: &str) -> Found {
        let addresses = from_hosts_file(host);
        if !addresses.is_empty() {
            return Found::Addresses(addresses, HOSTS_FILE_TTL);
        }
        if is_localhost(host) {
            return Found::Addresses(LOOPBACK.to_vec(), TTL_MAX);
        }
        let dns = match self.dns() {
            Ok(dns) => dns,
            Err(cause) => return Found::Failure(cause),
        };
        match dns.lookup_ip(host).await {
            Ok(found) => {
                let ttl = found.valid_until().saturating_duration_since(std::time::Instant::now());
                let addresses: Vec<IpAddr> = found.iter().collect();
                if addresses.is_empty() {
                    Found::Nothing("the name has no address".into())
                } else {
                    Found::Addresses(addresses, ttl)
                }
            }
            Err(error) if is_negative(&error) => Found::Nothing(error.to_string().into()),
            Err(error) => Found::Failure(error.to_string().into()),
        }
    }

    /// Returns the DNS client; created on first use, and again while the system's settings are unusable.
    fn dns(&self) -> Result<TokioResolver, Arc<str>> {
        let mut dns = self.dns.lock();
        if let Some(dns) = &*dns {
            return Ok(dns.clone());
        }
        let made = self.make_dns().map_err(|error| Arc::from(error.to_string()))?;
        *dns = Some(made.clone());
        Ok(made)
    }

    fn make_dns(&self) -> Result<TokioResolver, NetError> {
        let (config, mut options) = (self.settings)()?;
        // This module has its own cache, and reads the hosts file itself, because hickory reads it only once.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
    }
}

impl Entry {
    /// Returns the last known addresses, as long as they may still be used.
    fn stale(&self, now: Instant) -> Option<Addresses> {
        let known = self.known.as_ref()?;
        (now < known.fresh_until + STALE_MAX).then(|| Arc::clone(&known.addresses))
    }
}

//= RFC 8767 section 5: stale data after the client response timer
async fn waited(mut lookup: watch::Receiver<Option<Outcome>>, stale: Option<Addresses>) -> Outcome {
    let outcome = async {
        let outcome = lookup.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    };
    match stale {
        None => outcome.await.unwrap_or_else(|| Err("resolver stopped".into())),
        Some(stale) => timeout(STALE_AFTER, outcome).await.ok().flatten().unwrap_or(Ok(stale)),
    }
}

/// Returns whether the name servers answered that the name has no address.
fn is_negative(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(NoRecords { response_code, .. })) = error else {
        return false;
    };
    matches!(response_code, ResponseCode::NXDomain | ResponseCode::NoError)
}

/// Parses a host that is an address literal.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn from_hosts_file(host: &str) -> Vec<IpAddr> {
    let (Ok(hosts), Ok(name)) = (Hosts::from_system(), Name::from_utf8(host)) else { return Vec::new() };
    [RecordType::A, RecordType::AAAA]
        .into_iter()
        .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)))
        .flat_map(|lookup| {
            lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
        })
        .collect()
}
