//! A worker with one site, a scripted origin, and two kinds of client: `h2`, and raw frames.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::ClientLimits;

pub(in crate::server::http2) use crate::config::sample::limits;
use message::head::{ClientEnd, Peer, Scheme, Trust};

use crate::config::sample::site;
use crate::connection_table::{Holder, OpenConnection};
use crate::server::wire::Stream;
use crate::worker::{self, Worker};

pub(in crate::server::http2) fn client() -> ClientEnd {
    let address = SocketAddr::from(([192, 0, 2, 1], 1234));
    ClientEnd { peer: Peer { address, trust: Trust::Untrusted, scheme: Scheme::Http }, tls: None }
}

/// A step of the origin's script for a path; after the last step, the origin closes the connection.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Write(&'static str),
    /// Reads until these bytes have arrived.
    Until(&'static str),
    /// Writes this many bytes, or as many as the gateway reads.
    Flood(usize),
    /// Waits for [`Origin::open_gate`].
    Gate,
    /// Waits until the gateway closes.
    Hold,
}

/// A scripted origin. The path of a request selects the script.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    requests: watch::Receiver<Vec<String>>,
    flooded: watch::Receiver<usize>,
    gate: watch::Sender<bool>,
}

type Script = &'static [(&'static str, &'static [Act])];

impl Origin {
    pub(super) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, requests) = watch::channel(Vec::new());
        let (flood, flooded) = watch::channel(0);
        let (gate, opened) = watch::channel(false);
        let (seen, flood) = (Arc::new(seen), Arc::new(flood));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(follow(stream, script, Arc::clone(&seen), Arc::clone(&flood), opened.clone()));
            }
        });
        Self { address, requests, flooded, gate }
    }

    /// Waits for `count` requests, and returns the heads of all requests so far.
    pub(super) async fn requests(&self, count: usize) -> Vec<String> {
        self.requests.clone().wait_for(|requests| requests.len() >= count).await.unwrap().clone()
    }

    pub(super) fn request_count(&self) -> usize {
        self.requests.borrow().len()
    }

    pub(super) fn flooded_bytes(&self) -> usize {
        *self.flooded.borrow()
    }

    pub(super) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    pub(super) fn close_gate(&self) {
        self.gate.send_replace(false);
    }
}

async fn follow(
    mut stream: TcpStream,
    script: Script,
    seen: Arc<watch::Sender<Vec<String>>>,
    flood: Arc<watch::Sender<usize>>,
    mut gate: watch::Receiver<bool>,
) {
    let head = read_until(&mut stream, "\r\n\r\n").await;
    let path = head.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
    seen.send_modify(|requests| requests.push(head));
    let steps = script.iter().find(|(prefix, _)| path == *prefix).map_or(&[][..], |(_, steps)| steps);
    for step in steps {
        match step {
            Act::Write(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Act::Until(end) => drop(read_until(&mut stream, end).await),
            Act::Gate => drop(gate.wait_for(|opened| *opened).await),
            Act::Hold => drop(read_until(&mut stream, "\0never\0").await),
            Act::Flood(bytes) => {
                for _ in 0..bytes / 4096 {
                    if stream.write_all(&[b'x'; 4096]).await.is_err() {
                        return;
                    }
                    flood.send_modify(|flooded| *flooded += 4096);
                }
            }
        }
    }
}

/// Reads byte by byte, so that no bytes after `end` are lost.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(read).unwrap()
}

pub(super) fn seat(worker: &Worker) -> Arc<OpenConnection> {
    worker.shared.doorway.enter(0, Holder::Client(message::client::Client::of(client().peer.ip()))).0
}

pub(super) fn worker(origin: SocketAddr, limits: ClientLimits) -> Arc<Worker> {
    worker::sample::of_site(site(origin), limits, None)
}

/// A response as received by a client.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: HeaderMap,
    /// Whether END_STREAM was set on the head.
    pub(super) ended_with_head: bool,
    pub(super) body: String,
    pub(super) trailers: Option<HeaderMap>,
    /// Code of the RST_STREAM received in place of END_STREAM.
    pub(super) reset: Option<Reason>,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A client that follows the protocol.
pub(super) struct Client {
    pub(super) send: SendRequest<Bytes>,
    pub(super) connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub(super) async fn connect(worker: &Arc<Worker>) -> Self {
        Self::connect_with(worker, &h2::client::Builder::new()).await
    }

    pub(super) async fn connect_with(worker: &Arc<Worker>, builder: &h2::client::Builder) -> Self {
        let (near, far) = duplex(64 * 1024);
        tokio::spawn(super::super::serve(near, Arc::clone(worker), client(), seat(worker)));
        let (send, connection) = builder.handshake(far).await.unwrap();
        Self { send, connection: tokio::spawn(connection) }
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[]).await
    }

    pub(super) async fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let (response, _) = self.send.send_request(request(method, path, fields), true).unwrap();
        answer(response.await.unwrap()).await
    }

    /// Sends a head, and data, which ends the stream if `end` is set.
    pub(super) async fn upload(&mut self, path: &str, data: &'static [u8], end: bool) -> Answer {
        let (response, mut stream) = self.send.send_request(request("POST", path, &[]), false).unwrap();
        stream.send_data(Bytes::from_static(data), end).unwrap();
        answer(response.await.unwrap()).await
    }
}

pub(super) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder().method(method).uri(format!("http://a.example{path}"));
    fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
}

pub(super) async fn answer(response: Response<h2::RecvStream>) -> Answer {
    let (parts, mut stream) = response.into_parts();
    let mut answer = Answer {
        status: parts.status.as_u16(),
        fields: parts.headers,
        ended_with_head: stream.is_end_stream(),
        body: String::new(),
        trailers: None,
        reset: None,
    };
    while let Some(data) = stream.data().await {
        match data {
            Ok(data) => {
                stream.flow_control().release_capacity(data.len()).unwrap();
                answer.body.push_str(std::str::from_utf8(&data).unwrap());
            }
            Err(error) => {
                answer.reset = error.reason();
                return answer;
            }
        }
    }
    answer.trailers = stream.trailers().await.unwrap();
    answer
}

/// A frame in wire form (RFC 9113 section 4.1).
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
const END_STREAM_AND_HEADERS: u8 = 0x5;
const ACK: u8 = 0x1;

/// A stream that counts writes, and accepts at most `bytes_max` bytes per write.
pub(in crate::server::http2) struct Counted<S> {
    io: S,
    bytes_max: usize,
    writes: Arc<AtomicUsize>,
}

impl<S> Counted<S> {
    pub(in crate::server::http2) fn new(io: S, bytes_max: usize) -> Self {
        Self { io, bytes_max, writes: Arc::default() }
    }

    pub(in crate::server::http2) fn writes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.writes)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let taken = bytes.len().min(self.bytes_max);
        Pin::new(&mut self.io).poll_write(context, &bytes[..taken])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.poll_write(context, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<S: Stream> Stream for Counted<S> {}

/// A client that can send any frames.
pub(super) struct RawClient {
    io: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl RawClient {
    pub(super) async fn connect(worker: &Arc<Worker>) -> Self {
        let (near, io) = duplex(64 * 1024);
        let near = Counted::new(near, usize::MAX);
        let writes = near.writes();
        tokio::spawn(super::super::serve(near, Arc::clone(worker), client(), seat(worker)));
        let mut client = Self { io, writes };
        client.io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.send(&[frame(SETTINGS, 0, 0, &[])]).await;
        client
    }

    /// Sends frames in one write, so that they arrive together.
    pub(super) async fn send(&mut self, frames: &[Vec<u8>]) {
        // The server may already be gone, which the next read detects.
        let _ = self.io.write_all(&frames.concat()).await;
    }

    /// Returns the next frame of this kind; `None` at the end of the connection. Settings received meanwhile are acknowledged.
    pub(super) async fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.receive().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    async fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.io.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.io.read_exact(&mut payload).await.ok()?;
        let received = Frame { kind, flags, stream: u32::from_be_bytes(stream), payload };
        if received.kind == SETTINGS && received.flags & ACK == 0 {
            self.send(&[frame(SETTINGS, ACK, 0, &[])]).await;
        }
        Some(received)
    }

    /// Returns the number of writes by the server so far.
    pub(super) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// Waits until the server has read all frames sent so far.
    pub(super) async fn ping(&mut self) {
        self.send(&[frame(PING, 0, 0, b"has read")]).await;
        self.until(PING).await.unwrap();
    }

    pub(super) async fn pong(&mut self, ping: &Frame) {
        self.send(&[frame(PING, ACK, 0, &ping.payload)]).await;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(super) fn get_frame(stream: u32, authority: &str, path: &str) -> Vec<u8> {
    head_frame(2, stream, authority, path)
}

pub(super) fn post_frame(stream: u32, authority: &str, path: &str) -> Vec<u8> {
    head_frame(3, stream, authority, path)
}

/// Encodes a request without content; HPACK with literals that are not indexed (RFC 7541 section 6.2.2). `method` is the index of the
/// method in the static table (appendix A).
fn head_frame(method: u8, stream: u32, authority: &str, path: &str) -> Vec<u8> {
    let mut block = vec![0x80 | method, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    if !authority.is_empty() {
        block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap()]);
        block.extend_from_slice(authority.as_bytes());
    }
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
}

pub(super) fn reset_frame(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// Returns the error code of a GOAWAY.
pub(super) fn goaway_code(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())
}
