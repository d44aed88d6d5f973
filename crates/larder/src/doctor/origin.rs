//! Checks of origin servers with the gateway's requests: a HEAD request to each, and two GETs if the site leaves
//! compression to its origin.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use futures_util::{StreamExt as _, stream};
use gateway::config::{Config, Site};
use http::header::{ACCEPT_ENCODING, AGE, CONTENT_ENCODING, DATE, HOST, USER_AGENT, VIA};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use origin::settings::{
    AddressFamily, EndpointConfig, OriginAddress, OriginConfig, OriginProtocol, OriginTls,
};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::certificate;
use super::checks::{Advice, Finding, told};

/// Checks each server of each origin of the sites.
pub(super) fn findings(config: &Config, now: SystemTime) -> Vec<Finding> {
    // Each origin is checked as one of its sites requests it, with the host that the origin expects.
    let sites: BTreeMap<&str, &Site> =
        config.sites.iter().rev().map(|site| (site.origin.name.as_str(), &**site)).collect();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return vec![unreachable("origins".to_owned(), &told(&error))],
    };
    let look = |asked| async move { judge(asked, ask(asked).await, now) };
    let findings = stream::iter(sites.into_values().flat_map(servers)).map(look).buffered(AT_ONCE_MAX);
    runtime.block_on(findings.collect::<Vec<_>>()).concat()
}

fn servers(site: &Site) -> impl Iterator<Item = Asked<'_>> {
    site.origin.servers.iter().map(move |server| Asked { site, endpoint: &server.endpoint })
}

/// One server of a site's origin.
#[derive(Clone, Copy)]
struct Asked<'a> {
    site: &'a Site,
    endpoint: &'a EndpointConfig,
}

/// The response of a server.
struct Seen {
    status: StatusCode,
    took: Duration,
    /// The server's clock, and the local one at that moment.
    clocks: Option<(SystemTime, SystemTime)>,
    certificate: Option<CertificateDer<'static>>,
    compression: Compression,
}

/// The origin's response to a request that accepts gzip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// The origin's first page is the same with and without `Via`.
    Alike,
    /// The origin compresses for clients, but not for proxies.
    StopsForProxies,
}

fn judge(asked: Asked<'_>, seen: anyhow::Result<Seen>, now: SystemTime) -> Vec<Finding> {
    let name = format!("origin {}", shown(asked));
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => return vec![unreachable(name, &told(error.as_ref()))],
    };
    let found = format!("answers HEAD with {} after {:.1} ms", seen.status, seen.took.as_secs_f64() * 1e3);
    let answers = Finding { setting: name.clone().into(), found, advice: None };
    let clock = seen.clocks.map(|(its, ours)| clock(format!("clock of {name}"), its, ours));
    let certificate = seen.certificate.and_then(|certificate| {
        certificate::expiry(
            format!("certificate of {name}"),
            &certificate,
            now,
            "a renewed certificate on the origin",
        )
    });
    let compression = (seen.compression == Compression::StopsForProxies).then(|| compression(&name));
    [Some(answers), clock, certificate, compression].into_iter().flatten().collect()
}

fn compression(name: &str) -> Finding {
    let advice = Advice { set: COMPRESSING.to_owned(), why: UNCOMPRESSED };
    let found = "gzip for clients, none for requests with `Via`".to_owned();
    Finding { setting: format!("compression of {name}").into(), found, advice: Some(advice) }
}

/// Returns the origin's name, if it has one, and the server's address.
fn shown(Asked { site, endpoint }: Asked<'_>) -> String {
    match site.origin.name.as_str() {
        name if name.contains("//") || name.starts_with("unix:") => endpoint.to_string(),
        name => format!("{name} ({endpoint})"),
    }
}

fn unreachable(setting: String, error: &str) -> Finding {
    // Error name of rustls: the connection works, but the authority of the certificate is unknown here.
    let (error, set) = match error.contains("UnknownIssuer") {
        true => ("the certificate's issuer isn't trusted", TRUSTED),
        false => (error, REACHABLE),
    };
    let advice = Advice { set: set.to_owned(), why: FAILS };
    Finding { setting: setting.into(), found: format!("no answer ({error})"), advice: Some(advice) }
}

/// `Date` has a resolution of one second.
fn clock(setting: String, its: SystemTime, ours: SystemTime) -> Finding {
    let (apart, word) = match its.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    let advice = Advice { set: "both clocks by NTP".to_owned(), why: CLOCK };
    Finding {
        setting: setting.into(),
        found: format!("{} s {word} this machine", apart.as_secs()),
        advice: (apart > CLOCK_MAX).then_some(advice),
    }
}

async fn ask(asked: Asked<'_>) -> anyhow::Result<Seen> {
    let site = asked.site;
    let limit = (site.timeouts.connect + site.timeouts.first_byte).min(LIMIT_MAX);
    timeout(limit, exchange(asked)).await.map_err(|_| anyhow!("no reply within {} ms", limit.as_millis()))?
}

async fn exchange(asked: Asked<'_>) -> anyhow::Result<Seen> {
    let endpoint = asked.endpoint;
    let began = Instant::now();
    let (stream, certificate) = connect(endpoint).await?;
    let (status, fields) = head(stream, endpoint.protocol, request(asked, Method::HEAD)?).await?;
    let took = began.elapsed();
    let compression =
        if asked.site.compression.is_some() { Compression::Alike } else { compressing(asked).await };
    let date = fields.get(DATE).filter(|_| !fields.contains_key(AGE));
    let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    Ok(Seen { status, took, clocks: date.map(|date| (date, SystemTime::now())), certificate, compression })
}

/// Compares the first page as sent to clients with the page as sent to proxies. Uses GET, because nginx doesn't
/// compress responses to HEAD.
async fn compressing(asked: Asked<'_>) -> Compression {
    let of_clients = is_compressed(asked, None).await.unwrap_or_default();
    match of_clients
        && !is_compressed(asked, Some(HeaderValue::from_static("1.1 larder"))).await.unwrap_or(true)
    {
        true => Compression::StopsForProxies,
        false => Compression::Alike,
    }
}

async fn is_compressed(asked: Asked<'_>, via: Option<HeaderValue>) -> anyhow::Result<bool> {
    let mut request = request(asked, Method::GET)?;
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    via.map(|via| request.headers_mut().insert(VIA, via));
    let (stream, _) = connect(asked.endpoint).await?;
    let (_, fields) = head(stream, asked.endpoint.protocol, request).await?;
    Ok(fields.contains_key(CONTENT_ENCODING))
}

fn request(Asked { site, endpoint }: Asked<'_>, method: Method) -> anyhow::Result<Request<Empty<Bytes>>> {
    let OriginConfig { base_path, host_override, .. } = &*site.origin;
    let address = match &endpoint.address {
        OriginAddress::Tcp { host, port } => format!("{host}:{port}"),
        OriginAddress::Unix(_) => "localhost".to_owned(),
    };
    let of_site = || site.hosts.iter().find(|host| !host.contains('*')).cloned();
    let of_override = host_override.as_ref().and_then(|host| Some(host.to_str().ok()?.to_owned()));
    let host = of_override.or_else(of_site).unwrap_or(address);
    let path = format!("{base_path}/");
    let agent = concat!("larder-doctor/", env!("CARGO_PKG_VERSION"));
    let request = Request::builder().method(method).uri(path.as_str()).header(USER_AGENT, agent);
    if endpoint.protocol != OriginProtocol::Http2 {
        return Ok(request.header(HOST, host).body(Empty::new())?);
    }
    let scheme = if endpoint.tls.is_some() { "https" } else { "http" };
    let target = Uri::builder().scheme(scheme).authority(host).path_and_query(path).build()?;
    Ok(request.uri(target).body(Empty::new())?)
}

async fn head(
    stream: Box<dyn Stream>,
    protocol: OriginProtocol,
    request: Request<Empty<Bytes>>,
) -> anyhow::Result<(StatusCode, HeaderMap)> {
    let stream = TokioIo::new(stream);
    let response = if protocol == OriginProtocol::Http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    let (head, _) = response.into_parts();
    Ok((head.status, head.headers))
}

/// A TCP or Unix socket stream, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(
    endpoint: &EndpointConfig,
) -> anyhow::Result<(Box<dyn Stream>, Option<CertificateDer<'static>>)> {
    let (stream, host): (Box<dyn Stream>, &str) = match &endpoint.address {
        OriginAddress::Tcp { host, port } => (Box::new(connect_tcp(endpoint, host, *port).await?), host),
        OriginAddress::Unix(path) => (Box::new(UnixStream::connect(path).await?), ""),
    };
    let Some(OriginTls { server_name, client, .. }) = &endpoint.tls else { return Ok((stream, None)) };
    let name = server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).context("no valid server name")?;
    let mut client = rustls::ClientConfig::clone(client);
    client.alpn_protocols = match endpoint.protocol {
        OriginProtocol::Http2 => vec![b"h2".to_vec()],
        OriginProtocol::Http1 | OriginProtocol::Auto => vec![b"http/1.1".to_vec()],
    };
    let connector = TlsConnector::from(Arc::new(client));
    let stream = connector.connect(name, stream).await.context("TLS handshake failed")?;
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = chain.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
    Ok((Box::new(stream), certificate))
}

async fn connect_tcp(endpoint: &EndpointConfig, host: &str, port: u16) -> anyhow::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = lookup_host((host, port)).await.with_context(|| format!("can't resolve {host}"))?;
    let mut failure = anyhow!("{host} has no address of the chosen family");
    for address in addresses.filter(|address| is_tried(endpoint, address)) {
        match connect_address(endpoint, address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

fn is_tried(endpoint: &EndpointConfig, address: &SocketAddr) -> bool {
    match endpoint.address_family {
        AddressFamily::Any => true,
        AddressFamily::Ipv4 => address.is_ipv4(),
        AddressFamily::Ipv6 => address.is_ipv6(),
    }
}

async fn connect_address(endpoint: &EndpointConfig, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(local) = endpoint.local_address {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    socket.connect(address).await
}

const AT_ONCE_MAX: usize = 64;
/// The gateway's limit of a minute is too long for a command at a terminal.
const LIMIT_MAX: Duration = Duration::from_secs(10);
const CLOCK_MAX: Duration = Duration::from_secs(5);
const REACHABLE: &str =
    "the URL of a running server, with its certificate authority in `ca_file` if it has a private one";
const TRUSTED: &str = "`ca_file` to the certificate authority that signed it";
const FAILS: &str = "requests that the cache can't answer get 502 or 504";
const COMPRESSING: &str = "`gzip_proxied any;` if it is nginx, or `compress = true` for the site";
const UNCOMPRESSED: &str = "clients get uncompressed responses";
const CLOCK: &str = "responses count as older, or younger, than they are";
