//! A scripted origin server, and a client for it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use http::{HeaderValue, Method};
use message::fields::PackedFields;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::settings::{
    AddressFamily, AdmissionConfig, Balance, EndpointConfig, OriginAddress, OriginConfig, OriginProtocol,
    OriginTimeouts, PoolConfig, RetryConfig, ServerConfig,
};
use crate::{
    BodyFrame, Interim, OriginError, OriginRequest, OriginResponse, RequestBody, Upstream, Upstreams,
};

/// A step of the server on a connection. After the last step, the server closes the connection.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Reads until these bytes have arrived.
    Until(&'static [u8]),
    Write(Vec<u8>),
    /// Closes with a reset.
    Reset,
    /// Reads until the client closes.
    Hold,
    /// Stops reading and writing.
    Stall,
}

pub(super) const REQUEST: Step = Step::Until(b"\r\n\r\n");

pub(super) fn write(bytes: &str) -> Step {
    Step::Write(bytes.as_bytes().to_vec())
}

/// Returns the steps that answer requests one after the other.
pub(super) fn answers(responses: &[&str]) -> Vec<Step> {
    responses.iter().flat_map(|response| [REQUEST, write(response)]).chain([Step::Hold]).collect()
}

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that runs the next script on each connection, and closes further connections
/// immediately.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(super) async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut scripts = VecDeque::from(scripts);
            while let Ok((stream, _)) = listener.accept().await {
                let index = {
                    let mut seen = shared.lock();
                    seen.push(String::new());
                    seen.len() - 1
                };
                let script = scripts.pop_front().unwrap_or_default();
                tokio::spawn(follow(stream, script, Arc::clone(&shared), index));
            }
        });
        Self { address, seen }
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.lock().len()
    }

    /// Returns the text read on a connection so far.
    pub(super) fn seen(&self, connection: usize) -> String {
        self.seen.lock()[connection].clone()
    }
}

async fn follow(mut stream: TcpStream, script: Vec<Step>, seen: Arc<Mutex<Vec<String>>>, index: usize) {
    for step in script {
        match step {
            Step::Until(end) => {
                let read = read_until(&mut stream, end).await;
                seen.lock()[index].push_str(&String::from_utf8_lossy(&read));
            }
            Step::Write(bytes) => stream.write_all(&bytes).await.unwrap(),
            Step::Reset => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                return;
            }
            Step::Stall => std::future::pending().await,
            Step::Hold => drop(read_until(&mut stream, b"\0never\0").await),
        }
    }
}

/// Reads byte by byte until the end marker, or the end of the stream.
pub(super) async fn read_until<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    read
}

pub(super) const TIMEOUTS: OriginTimeouts = OriginTimeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(5),
    between_bytes: Duration::from_secs(5),
    total: None,
};

pub(super) fn config(address: SocketAddr) -> OriginConfig {
    OriginConfig {
        name: "origin".to_owned(),
        servers: vec![ServerConfig {
            endpoint: EndpointConfig {
                address: OriginAddress::Tcp { host: address.ip().to_string(), port: address.port() },
                protocol: OriginProtocol::Http1,
                tls: None,
                local_address: None,
                address_family: AddressFamily::Any,
                pool: PoolConfig { idle_connections_max: 8, idle_timeout: Duration::from_secs(30) },
            },
            weight: 1,
        }],
        balance: Balance::RoundRobin,
        slow_start: Duration::ZERO,
        retries: RetryConfig { attempts_max: 3, budget_percent: 20, budget_per_second_min: 10 },
        ejection: None,
        health: None,
        breaker: None,
        base_path: String::new(),
        host_override: None,
        fixed_fields: Vec::new(),
        credentials: None,
        interim_responses_max: 3,
        admission: AdmissionConfig {
            requests_in_flight_max: 64,
            queue_max: 64,
            queue_timeout: Duration::from_secs(5),
            transfers_max: 64,
            tunnels_max: 64,
            client_share_percent: 50,
        },
    }
}

pub(super) fn origin(config: &OriginConfig) -> Arc<Upstream> {
    Upstreams::new(Handle::current()).upstream(config)
}

pub(super) fn request(method: Method, body: RequestBody) -> OriginRequest {
    OriginRequest {
        method,
        path_and_query: "/path?query".to_owned(),
        authority: HeaderValue::from_static("example.org"),
        scheme: http::uri::Scheme::HTTP,
        fields: PackedFields::default(),
        body,
        accepts_trailers: false,
        upgrade: None,
        key: 0,
        client: None,
        timeline: None,
        record: None,
        probe: None,
    }
}

pub(super) fn get() -> OriginRequest {
    request(Method::GET, RequestBody::Empty)
}

pub(super) async fn send(
    origin: &Upstream,
    request: OriginRequest,
) -> Result<Box<OriginResponse>, OriginError> {
    origin.send(request, &TIMEOUTS, &mut |_: Interim| {}, None).await
}

/// A response with its whole body.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) status: u16,
    pub(super) fields: HeaderMap,
    pub(super) body: String,
    pub(super) trailers: Option<HeaderMap>,
}

pub(super) async fn fetch(origin: &Upstream, request: OriginRequest) -> Result<Whole, OriginError> {
    whole(send(origin, request).await?).await
}

pub(super) async fn whole(mut response: Box<OriginResponse>) -> Result<Whole, OriginError> {
    let mut body = Vec::new();
    let mut trailers = None;
    while let Some(frame) = response.body.frame().await {
        match frame? {
            BodyFrame::Data(data) => body.extend_from_slice(&data),
            BodyFrame::Trailers(fields) => trailers = Some(fields),
        }
    }
    let body = String::from_utf8(body).unwrap();
    Ok(Whole { status: response.status.as_u16(), fields: map(&response.fields), body, trailers })
}

/// Converts the fields to a map for look-ups in tests.
pub(super) fn map(fields: &PackedFields) -> HeaderMap {
    let lines = fields.lines();
    let typed = |(name, value): (&str, &[u8])| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
    };
    HeaderMap::from_iter(lines.map(typed))
}
