//! Detects the protocol of a connection: PROXY protocol, TLS, HTTP/1 or HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use ::http1::proxy_protocol::{ClientTransport, ProxiedPeer, ProxyHeader, parse_proxy_header};
use message::client::{Client, is_within};
use message::clock::now;
use message::head::{ClientEnd, Peer, Scheme, Trust};
use message::read_ahead::ReadAhead;
use rustls::ServerConfig;
use telemetry::ConnectionKind;

use super::client_socket::ClientSocket;
use super::tls::Negotiated;
use super::wire::{Farewell, Input, Stream, Wire, WireError};
use super::{http1, http2, tls};
use crate::active::ActiveConfig;
use crate::config::{ClientLimits, Config, Http2, ProxyProtocol};
use crate::connection_table::{Holder, OpenConnection};
use crate::request::account;
use crate::request::respond::Problem;
use crate::worker::{IdleEnd, Worker};

/// Response to clients that use plain HTTP on a TLS port. The first byte of a TLS handshake record can't be that of a method.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 80\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\n\
400 Bad Request\nplain HTTP was sent to an HTTPS port: write https:// in the URL\n";
/// Body size, equal to the `Content-Length`.
const PLAIN_HTTP_BODY_BYTES: u64 = 80;
/// Client connection preface (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Detects the protocol of a connection from its first bytes, and serves it.
pub(super) async fn connection(
    worker: &Arc<Worker>,
    live: &Arc<ActiveConfig>,
    socket: ClientSocket,
    address: SocketAddr,
    index: usize,
    seat: &Arc<OpenConnection>,
) -> Result<(), WireError> {
    let listener = live.listener(index);
    let limit = live.config.limits.head_read_timeout;
    let mut read = (Wire::new(socket, limit), Input::with_capacity(0));
    let (address, transport) = match listener.proxy_protocol {
        ProxyProtocol::Off => (address, ClientTransport::Unsaid),
        ProxyProtocol::Required if !is_within(&listener.proxy_protocol_from, address.ip()) => {
            worker.recorder.connection_refused("proxy-peer");
            warn_unproxied(worker, address, "the peer is not in `proxy_protocol_from`");
            return Ok(());
        }
        ProxyProtocol::Required => {
            let header = Box::pin(proxied(worker, &mut read, address)).await?;
            read.0.allow(limit);
            let named = match header.peer {
                ProxiedPeer::Tcp { source, .. } => source,
                // Health checks by a proxy don't name a TCP client.
                ProxiedPeer::Local | ProxiedPeer::Unknown | ProxiedPeer::Unix => address,
            };
            worker.shared.doorway.name(seat, holder(&live.config, named));
            (named, header.transport)
        }
    };
    let is_secured = listener.tls.is_some() || transport == ClientTransport::Tls;
    let scheme = if is_secured { Scheme::Https } else { Scheme::Http };
    let peer = Peer { address, trust: trust(&live.config, address), scheme };
    match live.tls.get(index).and_then(Option::as_ref) {
        Some(config) => secured(worker, &live.config.limits, (config, read), peer, seat).await,
        None => cleartext(worker, read, ClientEnd { peer, tls: None }, seat, (listener.http2, limit)).await,
    }
}

/// A connection, and the bytes read from it.
type Begun<S> = (Wire<S>, Input);

/// Performs the TLS handshake, and serves the negotiated protocol.
async fn secured<S: Stream + 'static>(
    worker: &Arc<Worker>,
    limits: &ClientLimits,
    (config, read): (&Arc<ServerConfig>, Begun<S>),
    peer: Peer,
    seat: &Arc<OpenConnection>,
) -> Result<(), WireError> {
    let _gauge = worker.recorder.connection(ConnectionKind::Tls);
    let limit = limits.head_read_timeout;
    let handshake = async {
        let Some(io) = hello(worker, read, peer, limits).await? else { return Ok(None) };
        Ok::<_, WireError>(Some(tls::accept(Arc::clone(config), io).await))
    };
    let accepted = match tokio::time::timeout(limit, Box::pin(handshake)).await {
        Ok(greeted) => match greeted? {
            Some(accepted) => accepted,
            None => return Ok(()),
        },
        Err(elapsed) => Err(elapsed.into()),
    };
    let accepted = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            let failure = tls::failure(&error);
            worker.recorder.tls_handshake_failed(failure);
            tracing::debug!(client = %peer.address, reason = failure.as_str(), %error, "TLS handshake failed");
            return Ok(());
        }
    };
    let client = ClientEnd { peer, tls: Some(Arc::new(accepted.session)) };
    match accepted.protocol {
        Negotiated::Http2 => {
            Box::pin(speak_http2(worker, accepted.stream, client, seat)).await;
        }
        Negotiated::Http1 => {
            let wire = Wire::new(accepted.stream, limit);
            Box::pin(speak_http1(worker, wire, Input::with_capacity(0), client, seat)).await;
        }
    }
    Ok(())
}

/// Waits for the first bytes of a connection, unless they have already arrived. Until then, the connection counts as idle, as between
/// two requests.
async fn first_bytes<S: Stream>(
    worker: &Worker,
    wire: &mut Wire<S>,
    input: &mut Input,
) -> Result<(), WireError> {
    if !input.is_empty() {
        return Ok(());
    }
    let mut idle_end = IdleEnd::new(worker);
    let first = |context: &mut Context<'_>| wire.poll_first_read(context, &worker.arrivals, input);
    idle_end.or(first).await.unwrap_or(Err(WireError::Closed)).map(drop)
}

/// Waits for the first bytes of a TLS handshake. A client that sends a method instead used the wrong scheme in a URL: it gets a response
/// that explains this, unlike a failed handshake, and the function returns `None`.
async fn hello<S: Stream>(
    worker: &Worker,
    (mut wire, mut input): Begun<S>,
    peer: Peer,
    limits: &ClientLimits,
) -> Result<Option<(Vec<u8>, S)>, WireError> {
    first_bytes(worker, &mut wire, &mut input).await?;
    if input.filled().first().is_none_or(|byte| !byte.is_ascii_alphabetic()) {
        return Ok(Some((input.take(), wire.io)));
    }
    let problem = Problem::new(400, "plain-http", "plain HTTP on a TLS port");
    worker.recorder.client_error(problem.reason);
    account::record_refused(worker, &ClientEnd { peer, tls: None }, &problem, PLAIN_HTTP_BODY_BYTES);
    wire.write_last(PLAIN_HTTP, limits.write_pace()).await?;
    wire.close(Farewell::Lingering).await;
    Ok(None)
}

/// Serves a cleartext connection. HTTP/2 begins with the preface (prior knowledge, RFC 9113 section 3.3).
async fn cleartext<S: Stream + 'static>(
    worker: &Arc<Worker>,
    (mut wire, mut input): Begun<S>,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
    (http2, limit): (Http2, Duration),
) -> Result<(), WireError> {
    let opening = match http2 {
        Http2::Off => Negotiated::Http1,
        Http2::On => opening(worker, &mut wire, &mut input, limit).await?,
    };
    match opening {
        Negotiated::Http1 => speak_http1(worker, wire, input, client, seat).await,
        Negotiated::Http2 => {
            let io = ReadAhead::behind(input.take(), wire.io);
            Box::pin(speak_http2(worker, io, client, seat)).await;
        }
    }
    Ok(())
}

/// Detects the protocol from the first bytes of a connection.
async fn opening<S: Stream>(
    worker: &Arc<Worker>,
    wire: &mut Wire<S>,
    input: &mut Input,
    limit: Duration,
) -> Result<Negotiated, WireError> {
    first_bytes(worker, wire, input).await?;
    wire.allow_since_seen(limit);
    loop {
        let filled = input.filled();
        let compared = filled.len().min(HTTP2_PREFACE.len());
        if filled[..compared] != HTTP2_PREFACE[..compared] {
            return Ok(Negotiated::Http1);
        }
        if compared == HTTP2_PREFACE.len() {
            return Ok(Negotiated::Http2);
        }
        match wire.read(input).await {
            // HTTP/1 has a response for an incomplete head.
            Err(WireError::Closed | WireError::TimedOut) => return Ok(Negotiated::Http1),
            read => read?,
        };
    }
}

async fn speak_http1<S: Stream>(
    worker: &Arc<Worker>,
    wire: Wire<S>,
    input: Input,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http1);
    http1::Connection::new(wire, input, Arc::clone(worker), client, Arc::clone(seat)).serve().await;
}

async fn speak_http2<S: Stream + 'static>(
    worker: &Arc<Worker>,
    io: S,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http2);
    http2::serve(io, Arc::clone(worker), client, Arc::clone(seat)).await;
}

/// Any peer can cause these warnings, so their rate is limited.
fn warn_unproxied(worker: &Worker, peer: SocketAddr, reason: &str) {
    if let Some(left_out) = worker.shared.unproxied.take(now().whole_seconds().unsigned_abs()) {
        tracing::warn!(peer = %peer.ip(), left_out, "connection closed: {reason}");
    }
}

/// Reads the PROXY protocol header.
async fn proxied<S: Stream>(
    worker: &Worker,
    (wire, input): &mut Begun<S>,
    proxy: SocketAddr,
) -> Result<ProxyHeader, WireError> {
    first_bytes(worker, wire, input).await?;
    loop {
        let header = parse_proxy_header(input.filled()).map_err(|error| {
            worker.recorder.connection_refused("proxy-header");
            warn_unproxied(worker, proxy, &format!("it has no PROXY protocol header: {error}"));
            io::Error::other(error)
        })?;
        if let Some(header) = header {
            input.consume(header.bytes);
            return Ok(header);
        }
        wire.read(input).await?;
    }
}

pub(super) fn holder(config: &Config, address: SocketAddr) -> Holder {
    let client = Client::of(address.ip());
    match trust(config, address) {
        Trust::Trusted => Holder::Proxy(client),
        Trust::Untrusted => Holder::Client(client),
    }
}

fn trust(config: &Config, address: SocketAddr) -> Trust {
    match config.trusted_proxies.contains(address.ip()) {
        true => Trust::Trusted,
        false => Trust::Untrusted,
    }
}
