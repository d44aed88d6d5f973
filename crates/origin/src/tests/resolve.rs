//! Names, their TTL, and failing name servers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts,
};
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;

use super::super::resolve::Resolver;
use super::scripted::*;
use crate::settings::{AddressFamily, OriginAddress, OriginConfig};
use crate::{OriginError, Upstreams};

/// Answer of a name server to every query.
#[derive(Clone, Debug)]
enum Says {
    Addresses(Vec<Ipv4Addr>),
    /// The name does not exist.
    NxDomain,
    /// The name exists, without an address.
    NoData,
    ServFail,
}

struct NameServer {
    address: SocketAddr,
    answer: Arc<Mutex<Says>>,
    asked_for_a: Arc<AtomicUsize>,
}

impl NameServer {
    async fn start(answer: &[Ipv4Addr], ttl_s: u8) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(Says::Addresses(answer.to_vec())));
        let asked_for_a = Arc::new(AtomicUsize::new(0));
        let (shared, asked) = (Arc::clone(&answer), Arc::clone(&asked_for_a));
        tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((_, peer)) = socket.recv_from(&mut query).await {
                let (response, kind) = reply(&query, &shared.lock(), ttl_s);
                asked.fetch_add(usize::from(kind == A), Ordering::Relaxed);
                socket.send_to(&response, peer).await.unwrap();
            }
        });
        Self { address, answer, asked_for_a }
    }

    fn resolver(&self) -> Arc<Resolver> {
        let mut connection = ConnectionConfig::new(ProtocolConfig::Udp);
        connection.port = self.address.port();
        let server = NameServerConfig::new(self.address.ip(), true, vec![connection]);
        let mut options = ResolverOpts::default();
        options.timeout = Duration::from_millis(500);
        options.attempts = 1;
        let config = ResolverConfig::from_parts(None, vec![], vec![server]);
        Resolver::new(Box::new(move || Ok((config.clone(), options.clone()))), Handle::current())
    }

    fn asked(&self) -> usize {
        self.asked_for_a.load(Ordering::Relaxed)
    }
}

const A: u8 = 1;

/// Encodes a reply; addresses are only in answers to A queries.
fn reply(query: &[u8; 512], says: &Says, ttl_s: u8) -> (Vec<u8>, u8) {
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap();
    let kind = query[name_end + 2];
    let (code, addresses) = match says {
        Says::Addresses(addresses) => (0x80, &addresses[..]),
        Says::NoData => (0x80, &[][..]),
        Says::ServFail => (0x82, &[][..]),
        Says::NxDomain => (0x83, &[][..]),
    };
    let records = if kind == A { addresses } else { &[] };
    let mut response = vec![query[0], query[1], 0x81, code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
    response.extend_from_slice(&query[12..name_end + 5]);
    for address in records {
        response.extend_from_slice(&[0xc0, 12, 0, A, 0, 1, 0, 0, 0, ttl_s, 0, 4]);
        response.extend_from_slice(&address.octets());
    }
    (response, kind)
}

async fn addresses(resolver: &Arc<Resolver>, host: &str) -> Result<Vec<IpAddr>, OriginError> {
    resolver.resolve(host).await.map(|addresses| addresses.to_vec())
}

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[tokio::test]
async fn addresses_change_when_their_ttl_ends_and_not_before() {
    let server = NameServer::start(&[FIRST], 1).await;
    let resolver = server.resolver();
    assert_eq!(addresses(&resolver, "origin.test").await, Ok(vec![IpAddr::V4(FIRST)]));
    *server.answer.lock() = Says::Addresses(vec![SECOND]);
    assert_eq!(addresses(&resolver, "origin.test").await, Ok(vec![IpAddr::V4(FIRST)]));
    assert_eq!(server.asked(), 1);
    let began = tokio::time::Instant::now();
    while addresses(&resolver, "origin.test").await != Ok(vec![IpAddr::V4(SECOND)]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    assert!(took > Duration::from_millis(700) && took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn the_last_known_addresses_serve_while_name_servers_fail() {
    let server = NameServer::start(&[FIRST], 1).await;
    let resolver = server.resolver();
    addresses(&resolver, "origin.test").await.unwrap();
    *server.answer.lock() = Says::ServFail;
    while server.asked() < 2 {
        assert_eq!(addresses(&resolver, "origin.test").await, Ok(vec![IpAddr::V4(FIRST)]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(addresses(&resolver, "origin.test").await, Ok(vec![IpAddr::V4(FIRST)]));
    assert_eq!(addresses(&resolver, "never.test").await.unwrap_err().reason(), "dns-error");
}

#[tokio::test]
async fn the_last_known_addresses_go_when_name_servers_say_that_there_are_none() {
    for says in [Says::NxDomain, Says::NoData] {
        let server = NameServer::start(&[FIRST], 1).await;
        let resolver = server.resolver();
        addresses(&resolver, "origin.test").await.unwrap();
        *server.answer.lock() = says.clone();
        while addresses(&resolver, "origin.test").await == Ok(vec![IpAddr::V4(FIRST)]) {
            assert!(server.asked() < 3, "{says:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let error = addresses(&resolver, "origin.test").await.unwrap_err();
        assert_eq!(error.reason(), "dns-error", "{says:?}");
    }
}

/// A name is looked up again even if its connections are never idle, and connections to an address that no longer
/// belongs to it are closed.
#[tokio::test]
async fn kept_connections_follow_a_name() {
    let names = NameServer::start(&[Ipv4Addr::LOCALHOST], 1).await;
    let old = Scripted::start(vec![answers(&[OK; 500])]).await;
    let origin = Upstreams::with_resolver(names.resolver()).upstream(&named(&old));
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
    *names.answer.lock() = Says::Addresses(vec![FIRST]);
    let began = tokio::time::Instant::now();
    // No server listens at the new address.
    while fetch(&origin, get()).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(5), "the old address is still in use");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((old.connections(), origin.stats().connections_open), (1, 0));
}

#[tokio::test]
async fn one_look_up_serves_all_who_wait() {
    let server = NameServer::start(&[FIRST], 60).await;
    let resolver = server.resolver();
    let (a, b, c) = tokio::join!(
        resolver.resolve("origin.test"),
        resolver.resolve("origin.test"),
        resolver.resolve("origin.test")
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn literals_and_localhost_need_no_name_server() {
    let server = NameServer::start(&[FIRST], 1).await;
    let resolver = server.resolver();
    for (host, expected) in
        [("127.0.0.7", "127.0.0.7"), ("::1", "::1"), ("[::1]", "::1"), ("localhost", "127.0.0.1")]
    {
        let got = addresses(&resolver, host).await.unwrap();
        assert!(got.contains(&expected.parse().unwrap()), "{host}");
    }
    assert_eq!(server.asked(), 0);
}

fn named(server: &Scripted) -> OriginConfig {
    let mut config = config(server.address);
    config.servers[0].endpoint.address =
        OriginAddress::Tcp { host: "origin.test".to_owned(), port: server.address.port() };
    config
}

#[tokio::test]
async fn requests_follow_a_name_and_pass_over_dead_addresses() {
    let names = NameServer::start(&[FIRST, SECOND, Ipv4Addr::LOCALHOST], 60).await;
    let server = Scripted::start(vec![answers(&[OK])]).await;
    let origin = Upstreams::with_resolver(names.resolver()).upstream(&named(&server));
    assert_eq!(fetch(&origin, get()).await.unwrap().body, "ok");
}

#[tokio::test]
async fn only_the_chosen_address_family_is_tried() {
    let names = NameServer::start(&[Ipv4Addr::LOCALHOST], 60).await;
    let server = Scripted::start(vec![answers(&[OK])]).await;
    let cases = [
        (AddressFamily::Ipv4, None, Ok(200)),
        (AddressFamily::Ipv6, None, Err("dns-error")),
        (AddressFamily::Any, Some("::1"), Err("dns-error")),
    ];
    for (family, local_address, expected) in cases {
        let mut config = named(&server);
        config.servers[0].endpoint.address_family = family;
        config.servers[0].endpoint.local_address = local_address.map(|address| address.parse().unwrap());
        let got = fetch(&Upstreams::with_resolver(names.resolver()).upstream(&config), get()).await;
        assert_eq!(got.as_ref().map(|whole| whole.status).map_err(OriginError::reason), expected);
    }
}

#[tokio::test]
async fn without_usable_settings_literals_and_the_hosts_file_still_work() {
    let unusable = || Err(std::io::Error::from(std::io::ErrorKind::NotFound).into());
    let resolver = Resolver::new(Box::new(unusable), Handle::current());
    assert!(
        addresses(&resolver, "127.0.0.7").await.is_ok() && addresses(&resolver, "localhost").await.is_ok()
    );
    assert_eq!(addresses(&resolver, "origin.test").await.unwrap_err().reason(), "dns-error");
}

#[tokio::test]
async fn a_stopped_background_runtime_is_an_error_and_no_hang() {
    let background = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let unused = || Err(std::io::Error::from(std::io::ErrorKind::NotFound).into());
    let resolver = Resolver::new(Box::new(unused), background.handle().clone());
    background.shutdown_background();
    for _ in 0..2 {
        assert_eq!(addresses(&resolver, "origin.test").await.unwrap_err().reason(), "dns-error");
    }
}
