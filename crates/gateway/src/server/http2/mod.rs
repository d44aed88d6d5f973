//! An HTTP/2 client connection: streams in, responses out.
//!
//! The connection's task reads frames and sends immediately available responses (a fresh hit, a 304, a refusal) itself. All other
//! requests get a task per stream.
//!
//! Limits on clients:
//!
//! | attack | bound |
//! |---|---|
//! | many streams | `http2_streams_max` |
//! | streams that are reset immediately (rapid reset) | [`Resets`], and `h2` for streams not yet accepted |
//! | frames that make the server reset streams | `http2_resets_max` |
//! | large and endless header sections (CONTINUATION flood) | `head_bytes_max`: 431; at several times that size, the connection ends |
//! | uploads that the origin doesn't read | their window, and the memory budget: 503 |
//! | open windows and an unread socket | `http2_send_buffer_bytes_max` for the connection, in the memory budget: [`send_memory`] |
//! | a closed flow-control window | `write_timeout` in [`stream`]; the data waits at its source |
//! | bytes left unread in the socket | `write_timeout` in [`cork`] |
//! | silence | `head_read_timeout` for the preface, `idle_timeout` without a stream; PING doesn't count |

mod cork;
mod prepared;
mod request;
mod request_body;
mod response;
mod send_memory;
mod stream;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use message::head::{ClientEnd, RequestHead};
use tokio::time::Instant;

use self::cork::{Cork, Corked};
use self::request::Stage;
use self::request_body::BodyPump;
use self::send_memory::SendMemory;
use self::stream::{Exchange, Responder};
use super::Wanted;
use super::deadline::PauseLimit;
use super::wire::Stream;
use crate::active::ActiveConfig;
use crate::config::ClientLimits;
use crate::connection_table::OpenConnection;
use crate::request::account::{self, Delivered, LoggedRequest};
use crate::request::otel;
use crate::request::pipeline::{self};
use crate::request::plan::Step;
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::worker::Worker;

/// Maximum number of bytes of one request body that a client may send before the origin has read any. A slow origin makes the gateway hold
/// this memory, so it only covers the bytes in flight on a path with a round-trip time of 20 ms and a rate of 100 Mbit/s.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes that HTTP/2 counts for each field line in addition to its name and value.
const LINE_BYTES: usize = 32;
/// Maximum number of cookie crumbs: several times the number of cookies that browsers keep for a site.
const CRUMBS_MAX: usize = 1024;
/// Maximum flow-control window (RFC 9113 section 6.9.1).
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// Maximum number of streams remembered for a second after this side has reset them, at a few hundred bytes each. A client on loopback
/// has at most a few thousand uploads refused in that time.
const RESET_STREAMS_MAX: usize = 4096;
/// Maximum time until a client without streams closes an ending connection.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves a connection until it ends.
pub(crate) async fn serve<S: Stream + 'static>(
    io: S,
    worker: Arc<Worker>,
    client: ClientEnd,
    seat: Arc<OpenConnection>,
) {
    let live = worker.live();
    let limits = &live.config.limits;
    let cork = Cork::default();
    let io = Corked::new(io, limits.write_timeout, cork.clone());
    let handshake = builder(limits).handshake::<_, Bytes>(io);
    let h2 = match tokio::time::timeout(limits.head_read_timeout, Box::pin(handshake)).await {
        Ok(Ok(h2)) => h2,
        Ok(Err(error)) => {
            refuse_malformed(&worker, &client, &error);
            return tracing::debug!(client = %client.peer.address, %error, "no HTTP/2 preface");
        }
        Err(_) => return worker.recorder.client_error("preface-timeout"),
    };
    let connection = Connection {
        h2,
        cork,
        idle: PauseLimit::new(limits.idle_timeout),
        phase: Phase::Open,
        // A client may cancel all of its requests once; repeated cancellation is an attack.
        resets: Arc::new(Resets::new(limits.http2_streams_max as usize + limits.http2_resets_max)),
        key: Vec::new(),
        answered: 0,
        memory: SendMemory::new(worker.shared.memory(), limits.http2_send_buffer_bytes_max),
        worker,
        live,
        client,
        seat,
    };
    connection.run().await;
}

fn builder(limits: &ClientLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(connection_window_bytes(limits))
        .max_concurrent_streams(limits.http2_streams_max)
        .max_header_list_size(u32::try_from(header_list_bytes_max(limits)).unwrap_or(u32::MAX))
        .max_send_buffer_size(limits.http2_send_buffer_bytes_max.min(u32::MAX as usize))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_local_error_reset_streams(Some(limits.http2_resets_max))
        // Each upload refused early, and each stream reset by this side (on a drain or an origin failure), may still have frames in
        // flight. A forgotten stream would count as a client error and end the connection.
        .max_concurrent_reset_streams(RESET_STREAMS_MAX.max(limits.http2_streams_max as usize));
    builder
}

/// Returns the limit on header sections. HTTP/2 counts 32 bytes for each line in addition to its contents, and crumbs of cookies as
/// lines (RFC 9113 section 6.5.2). With that room, every head within the HTTP/1.1 limits fits; [`request`] refuses heads beyond these
/// limits.
fn header_list_bytes_max(limits: &ClientLimits) -> usize {
    limits.head_bytes_max + LINE_BYTES * (limits.fields_max + CRUMBS_MAX)
}

/// Returns the window of a connection. It covers full windows of all streams, so that no stream blocks another: behind a load balancer,
/// they belong to many clients. The window is credit, not a buffer; the data is charged to the budget ([`request_body`]).
fn connection_window_bytes(limits: &ClientLimits) -> u32 {
    STREAM_WINDOW_BYTES.saturating_mul(limits.http2_streams_max).min(WINDOW_BYTES_MAX)
}

struct Connection<S> {
    h2: h2::server::Connection<Corked<S>, Bytes>,
    /// Gathers output while received requests are being answered.
    cork: Cork,
    worker: Arc<Worker>,
    live: Arc<ActiveConfig>,
    client: ClientEnd,
    /// Limit on the time without streams.
    idle: PauseLimit,
    phase: Phase,
    resets: Arc<Resets>,
    /// Scratch space for cache keys.
    key: Vec<u8>,
    answered: u64,
    seat: Arc<OpenConnection>,
    memory: Arc<SendMemory>,
}

/// Whether new requests are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// GOAWAY has been sent; requests in flight are still answered.
    Leaving,
}

#[expect(
    clippy::large_enum_variant,
    reason = "created and matched immediately; a box would cost more than the move"
)]
enum StreamEvent {
    Request(Request<RecvStream>, SendResponse<Bytes>),
    /// The connection had no stream for the time limit.
    Idle,
    Closed,
    Broken(h2::Error),
}

impl<S: Stream + 'static> Connection<S> {
    async fn run(mut self) {
        let shared = Arc::clone(&self.worker.shared);
        let mut drain = pin!(shared.drain.begun());
        loop {
            let event = tokio::select! {
                biased;
                event = self.next() => event,
                () = &mut drain, if self.phase == Phase::Open => {
                    self.leave();
                    continue;
                }
            };
            match event {
                StreamEvent::Request(request, respond) => self.request(request, respond),
                StreamEvent::Idle if self.phase == Phase::Open => self.leave(),
                StreamEvent::Idle | StreamEvent::Closed => return,
                StreamEvent::Broken(error) => return self.broken(&error),
            }
        }
    }

    async fn next(&mut self) -> StreamEvent {
        poll_fn(|context| {
            let mut accepted = poll_accept(&mut self.h2, context);
            if accepted.is_pending() && self.cork.pull() {
                // This second poll flushes the responses to all received requests.
                accepted = poll_accept(&mut self.h2, context);
            }
            match accepted {
                Poll::Ready(Some(Ok(_))) if !self.seat.begins() => Poll::Ready(StreamEvent::Closed),
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.cork.push();
                    Poll::Ready(StreamEvent::Request(request, respond))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(StreamEvent::Broken(error)),
                Poll::Ready(None) => Poll::Ready(StreamEvent::Closed),
                Poll::Pending if self.h2.has_streams() => {
                    self.idle.stop();
                    Poll::Pending
                }
                Poll::Pending => {
                    self.seat.waits();
                    self.idle.poll_passed(context).map(|()| StreamEvent::Idle)
                }
            }
        })
        .await
    }

    /// Asks the client to send no more requests on this connection.
    //= RFC 9113 section 6.8: a graceful shutdown
    fn leave(&mut self) {
        self.phase = Phase::Leaving;
        self.idle = PauseLimit::new(GOODBYE);
        self.h2.graceful_shutdown();
    }

    fn broken(&self, error: &h2::Error) {
        match error.reason() {
            Some(Reason::ENHANCE_YOUR_CALM) => self.worker.recorder.client_error("http2-flood"),
            _ => refuse_malformed(&self.worker, &self.client, error),
        }
        tracing::debug!(client = %self.client.peer.address, %error, "connection ended");
    }

    fn request(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        if self.resets.are_too_many() {
            self.worker.recorder.client_error("http2-flood");
            return self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        self.worker.refresh(&mut self.live);
        self.answered += 1;
        if self.answered >= self.live.config.limits.requests_per_connection_max && self.phase == Phase::Open {
            self.leave();
        }
        let (worker, live) = (Arc::clone(&self.worker), Arc::clone(&self.live));
        let (client, memory) = (self.client.clone(), Arc::clone(&self.memory));
        self.answer(request, Responder { respond, worker, live, client, memory });
    }

    /// Answers a request if the response is immediately available, and otherwise starts a task.
    fn answer(&mut self, request: Request<RecvStream>, responder: Responder) {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, ());
        let wanted = Wanted::by(request.method().as_str());
        let limits = &self.live.config.limits;
        let stage = if body.is_end_stream() { Stage::HeadOnly } else { Stage::BodyFollows };
        let cookies = request::joined_cookies(request.headers());
        let lines = match request::lines(&request, cookies.as_deref(), limits) {
            Ok(lines) => lines,
            Err(problem) => return responder.refuse(&problem, wanted),
        };
        let normal = request::normal_target(&request);
        let target = (&lines[..], normal.as_deref());
        let mut head = match request::head(&request, target, stage, &self.client, &self.live.config) {
            Ok(head) => head,
            Err(problem) => return responder.refuse(&problem, wanted),
        };
        let started = Instant::now();
        let timeline = otel::begin(&self.worker, &self.live, &head, started);
        head.timeline = timeline.as_ref();
        let mut step = pipeline::begin(&self.worker, &self.live, &head, &mut self.key, started);
        otel::tell(head.timeline, &mut step);
        match step {
            Step::Reply(reply) => self.reply(reply, &head, responder),
            Step::Forward(plan) => {
                let budget = self.worker.shared.memory();
                let content = plan.request().content;
                let (pump, body) = BodyPump::start(body, content, plan.body_limits(), budget);
                let resets = Arc::clone(&self.resets);
                drop(tokio::spawn(Exchange { responder, plan, pump, resets, is_reset: false }.run(body)));
            }
        }
    }

    fn reply(&self, reply: Reply, head: &RequestHead<'_>, responder: Responder) {
        let wanted = Wanted::by(head.method);
        let mut open = match responder.open(reply, wanted) {
            Ok(open) => open,
            Err(reply) => {
                let sent = reply.sent().with_bytes(0, 0, Delivered::Broken);
                account::record(&self.worker, head, &reply, sent);
                return;
            }
        };
        match open.finish_at_once() {
            Some(sent) => {
                self.resets.answered();
                account::record(&self.worker, head, &open.reply, sent);
            }
            None => {
                let request = head.into_owned();
                let in_flight = self.worker.recorder.in_flight();
                self.resets.answered();
                drop(tokio::spawn(async move {
                    open.deliver(LoggedRequest::at_once(&request), BodyPump::idle()).await;
                    drop(in_flight);
                }));
            }
        }
    }
}

/// Counts and logs a connection that `h2` has ended because of the client's frames. `h2` doesn't report streams that it resets for this
/// reason.
fn refuse_malformed(worker: &Worker, client: &ClientEnd, error: &h2::Error) {
    if !error.is_library() || error.is_io() {
        return;
    }
    let problem = Problem::new(400, "http2-malformed", error.to_string());
    worker.recorder.client_error(problem.reason);
    account::record_refused(worker, client, &problem, 0);
}

type Incoming = Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>;

fn poll_accept<S: Stream>(
    h2: &mut h2::server::Connection<Corked<S>, Bytes>,
    context: &mut Context<'_>,
) -> Poll<Option<Incoming>> {
    // The future has no state between polls, so a new one for each poll is equivalent.
    pin!(h2.accept()).poll(context)
}

/// Number of requests that the client cancelled before their responses began, minus requests answered since. `h2` counts only streams
/// that were reset before they were accepted; here, streams are accepted immediately, and each may have cost a forward.
struct Resets {
    balance: AtomicUsize,
    balance_max: usize,
}

impl Resets {
    fn new(balance_max: usize) -> Self {
        Self { balance: AtomicUsize::new(0), balance_max }
    }

    fn given_up(&self) {
        self.balance.fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self) {
        // For most connections, the balance is 0.
        if self.balance.load(Ordering::Relaxed) > 0 {
            let less_one = |balance: usize| Some(balance.saturating_sub(1));
            let _ = self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one);
        }
    }

    fn are_too_many(&self) -> bool {
        self.balance.load(Ordering::Relaxed) > self.balance_max
    }
}
