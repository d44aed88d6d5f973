//! An HTTP/1.x client connection: reads a head, answers it, and starts again.
//!
//! An immediately available response (a fresh hit, a 304, a refusal) is written in [`Connection::turn`], without a task or an owned
//! request, and pipelined requests share one write. Other responses are awaited outside of the turn.

mod delivery;
mod request;
mod request_body;
mod response;

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http1::{Framing, HeadScanner, Persistence, RequestError, Version, encode};
use message::head::ClientEnd;

use self::request::{codec_limits, normal_target, refusal, takes_out_what_others_say};
use self::request_body::DRAINED_BYTES_MAX;
use self::response::{Http1Head, write_head};
use super::Wanted;
use super::wire::{Farewell, Input, Stream, Wire, WireError};
use crate::active::ActiveConfig;
use crate::connection_table::OpenConnection;
use crate::request::account;
use crate::request::otel;
use crate::request::pipeline;
use crate::request::plan::{Plan, Step};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::worker::{IdleEnd, Worker};

/// Maximum number of bytes of responses to pipelined requests that are gathered before a write.
const OUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a body that is copied behind its head; larger ones are written from their own memory.
const COPIED_BODY_BYTES_MAX: usize = 16 * 1024;
/// Number of field lines that the first parse has room for. A request with more lines is parsed again, with room for the maximum: creating
/// that room for each request would cost as much as parsing the head.
const LINES_AT_ONCE: usize = 32;
/// Initial capacity for keys, enough for most requests: growing the buffer from zero takes as long as the look-up.
const KEY_BYTES: usize = 128;

/// A client connection.
pub(crate) struct Connection<S> {
    wire: Wire<S>,
    input: Input,
    out: Vec<u8>,
    idle_end: IdleEnd,
    scanner: HeadScanner,
    codec: http1::Limits,
    worker: Arc<Worker>,
    live: Arc<ActiveConfig>,
    client: ClientEnd,
    key: Vec<u8>,
    answered: u64,
    /// How to close the connection after the last request.
    farewell: Farewell,
    seat: Arc<OpenConnection>,
}

/// Properties of a request that are needed after its head has left the buffer.
#[derive(Clone, Copy, Debug)]
struct Traits {
    framing: Framing,
    persistence: Persistence,
    /// HTTP version of the client, which determines whether chunked framing is possible.
    version: Version,
    wanted: Wanted,
    expects_continue: bool,
    accepts_trailers: bool,
}

/// Whether the connection stays open.
type Next = Result<Persistence, WireError>;

enum Turn {
    NeedInput,
    Answered(Persistence),
    /// The head is gathered, and the body is sent after it from its own memory.
    Send(Bytes, Persistence),
    Deliver(Box<Reply>, Box<message::head::OwnedRequest>, Traits),
    Forward(Box<Plan>, Traits),
    Refuse(Problem),
    /// The connection was closed to make room for another.
    Leave,
}

impl<S: Stream> Connection<S> {
    /// `input` holds the bytes read before the protocol was known.
    pub(crate) fn new(
        wire: Wire<S>,
        input: Input,
        worker: Arc<Worker>,
        client: ClientEnd,
        seat: Arc<OpenConnection>,
    ) -> Self {
        let live = worker.live();
        let limits = &live.config.limits;
        Self {
            wire,
            input,
            out: worker.take_buffer(),
            idle_end: IdleEnd::new(&worker),
            scanner: HeadScanner::default(),
            codec: codec_limits(limits),
            worker,
            live,
            client,
            key: Vec::with_capacity(KEY_BYTES),
            answered: 0,
            farewell: Farewell::Lingering,
            seat,
        }
    }

    /// Serves the connection until it ends.
    pub(crate) async fn serve(&mut self) {
        let ended = self.run().await;
        self.out.clear();
        self.worker.give_back_buffer(std::mem::take(&mut self.out));
        match ended {
            Ok(()) => {
                self.seat.waits();
                self.wire.close(self.farewell()).await;
            }
            Err(error) => {
                match error {
                    // Only writes end with this error: read timeouts are answered separately.
                    WireError::TimedOut => self.worker.recorder.client_error("write-timeout"),
                    WireError::Dismissed => self.worker.recorder.client_error("memory-share"),
                    WireError::Closed | WireError::Io(_) => {}
                }
                tracing::debug!(client = %self.client.peer.address, %error, "connection ended");
            }
        }
    }

    async fn run(&mut self) -> Result<(), WireError> {
        loop {
            let next = match self.turn() {
                Turn::Answered(next) => next,
                Turn::NeedInput => {
                    self.flush().await?;
                    if !self.read_more().await? {
                        return Ok(());
                    }
                    continue;
                }
                Turn::Send(body, next) => {
                    self.write_with(&body).await?;
                    next
                }
                // Boxed: the state of a forward takes many KiB, which an idle connection must not reserve.
                Turn::Deliver(reply, request, traits) => {
                    Box::pin(self.deliver(reply, &request, traits)).await?
                }
                Turn::Forward(plan, traits) => Box::pin(self.forward(plan, traits)).await?,
                Turn::Refuse(problem) => {
                    self.refuse(&problem);
                    Persistence::Close
                }
                Turn::Leave => return Ok(()),
            };
            self.scanner = HeadScanner::default();
            if next == Persistence::Close {
                return self.flush_last().await;
            }
            if self.out.len() > OUT_BYTES_MAX {
                self.flush().await?;
            }
        }
    }

    /// Parses the next request in the buffer, and answers it if the response is immediately available.
    //= RFC 9112 section 9.3.2: pipelining
    fn turn(&mut self) -> Turn {
        if self.input.is_empty() {
            return Turn::NeedInput;
        }
        self.worker.refresh(&mut self.live);
        let turn = match self.turn_with_room::<LINES_AT_ONCE>() {
            Err(RequestError::TooManyFields) => {
                self.scanner = HeadScanner::default();
                self.turn_with_room::<{ http1::Limits::FIELDS_CEILING }>()
            }
            turn => turn,
        };
        turn.unwrap_or_else(|error| Turn::Refuse(refusal(error)))
    }

    /// Parses the next request with room for `LINES` field lines, and answers it if the response is immediately available.
    ///
    /// # Errors
    /// Returns an error if the head is invalid or has more than `LINES` field lines.
    fn turn_with_room<const LINES: usize>(&mut self) -> Result<Turn, RequestError> {
        let mut lines = [http1::EMPTY_LINE; LINES];
        let Some(head) = self.scanner.parse(self.input.filled(), &self.codec, &mut lines)? else {
            return Ok(Turn::NeedInput);
        };
        if head.nominates_fields && takes_out_what_others_say(head.fields, &self.live.routes) {
            return Err(RequestError::EndToEndFieldNominated);
        }
        if !self.seat.begins() {
            return Ok(Turn::Leave);
        }
        self.answered += 1;
        let traits = Traits::of(&head, self.persistence_after(head.persistence));
        self.farewell = farewell_after(head.persistence, traits);
        let normal = normal_target(&head);
        let path_and_query = normal.as_deref().unwrap_or(head.path_and_query);
        let mut request = request::head(&head, path_and_query, (&self.client, &self.live.config));
        let timeline = otel::begin(&self.worker, &self.live, &request, self.wire.seen());
        request.timeline = timeline.as_ref();
        let mut step = pipeline::begin(&self.worker, &self.live, &request, &mut self.key, self.wire.seen());
        otel::tell(request.timeline, &mut step);
        let head_bytes = head.bytes;
        // Use the reply in place, because moving it adds to the cost of a hit.
        if let Step::Reply(reply) = &step
            && traits.has_no_body()
            && reply.body.at_hand().is_some()
        {
            let turn = write_at_hand(&mut self.out, reply, traits, &self.live);
            self.wire.saw(account::record(&self.worker, &request, reply, reply.sent()));
            self.input.consume(head_bytes);
            return Ok(turn);
        }
        let turn = match step {
            Step::Reply(reply) => {
                let traits = traits.before_content(self.live.config.limits.body_bytes_max);
                Turn::Deliver(Box::new(reply), Box::new(request.into_owned()), traits)
            }
            Step::Forward(plan) => Turn::Forward(plan, traits),
        };
        self.input.consume(head_bytes);
        Ok(turn)
    }

    //= RFC 9112 section 9.6: close is obeyed
    fn persistence_after(&self, wanted: Persistence) -> Persistence {
        let limit_reached = self.answered >= self.live.config.limits.requests_per_connection_max;
        if limit_reached || self.worker.is_draining() { Persistence::Close } else { wanted }
    }

    /// Waits for more of a request, or for the next one. Returns `false` if the connection is finished.
    async fn read_more(&mut self) -> Result<bool, WireError> {
        self.seat.waits();
        let limits = &self.live.config.limits;
        let between_requests = self.input.is_empty();
        // A client that sends a head slowly gets one deadline for all of it, set when its first byte arrives.
        if between_requests {
            let first = self.answered == 0;
            self.wire.allow_since_seen(if first { limits.head_read_timeout } else { limits.idle_timeout });
        }
        let read = if between_requests {
            self.first_read().await
        } else {
            Some(self.wire.read(&mut self.input).await)
        };
        match read {
            Some(Err(WireError::Closed)) if between_requests => {
                self.farewell = Farewell::AtOnce;
                Ok(false)
            }
            None | Some(Err(WireError::TimedOut)) if between_requests => Ok(false),
            Some(Err(WireError::TimedOut)) => {
                //= RFC 9110 section 15.5.9: 408
                self.refuse(&Problem::new(408, "head-timeout", "the request head did not arrive in time"));
                self.flush().await?;
                Ok(false)
            }
            Some(Ok(_)) => {
                if between_requests {
                    self.wire.allow_since_seen(self.live.config.limits.head_read_timeout);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        }
    }

    /// Waits for the first bytes of a request, without holding buffers. Returns `None` if no further request is expected.
    async fn first_read(&mut self) -> Option<Result<usize, WireError>> {
        self.input.shrink();
        self.worker.give_back_buffer(std::mem::take(&mut self.out));
        let Self { wire, worker, input, .. } = self;
        let first = |context: &mut Context<'_>| wire.poll_first_read(context, &worker.arrivals, input);
        let read = self.idle_end.or(first).await;
        self.out = self.worker.take_buffer();
        read
    }

    /// Answers a request whose head is malformed or exceeds a limit, and ends the connection.
    fn refuse(&mut self, problem: &Problem) {
        self.worker.recorder.client_error(problem.reason);
        self.farewell = Farewell::Lingering;
        let exposure = crate::config::ErrorExposure::Expose;
        let body = problem.body(exposure);
        let mut head = Http1Head { out: &mut self.out };
        crate::request::reply::HeadSink::status(&mut head, problem.status, None);
        crate::request::reply::HeadSink::fields(&mut head, problem.fields(&self.worker.date()).view());
        encode::write_field_number(&mut self.out, "content-length", body.len() as u64);
        self.out.extend_from_slice(b"connection: close\r\n\r\n");
        self.out.extend_from_slice(&body);
        account::record_refused(&self.worker, &self.client, problem, body.len() as u64);
    }

    fn farewell(&self) -> Farewell {
        if self.input.is_empty() { self.farewell } else { Farewell::Lingering }
    }

    /// Writes the gathered output before the connection is closed.
    async fn flush_last(&mut self) -> Result<(), WireError> {
        if self.farewell() == Farewell::Lingering {
            return self.flush().await;
        }
        let written = self.wire.write_last(&self.out, self.live.config.limits.write_pace()).await;
        self.out.clear();
        written
    }

    /// Writes the gathered output.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.wire.write_all(&[&self.out], self.live.config.limits.write_pace()).await;
        self.out.clear();
        written
    }

    /// Writes the gathered output, and a body after it.
    async fn write_with(&mut self, body: &[u8]) -> Result<(), WireError> {
        let limits = self.live.config.limits.write_pace();
        let written = self.wire.write_all(&[&self.out, body], limits).await;
        self.out.clear();
        written
    }
}

/// Chooses how to close the connection. After `close`, a client sends no more requests (RFC 9112 section 9.6), so no lingering close is
/// needed.
fn farewell_after(wanted: Persistence, traits: Traits) -> Farewell {
    match wanted {
        Persistence::Close if traits.has_no_body() => Farewell::AtOnce,
        _ => Farewell::Lingering,
    }
}

/// Gathers the head of a response whose body is in memory, and the body unless it is large.
fn write_at_hand(out: &mut Vec<u8>, reply: &Reply, traits: Traits, live: &ActiveConfig) -> Turn {
    write_head(out, reply, traits, live);
    let body = match traits.wanted {
        Wanted::HeadAndBody => reply.body.at_hand().unwrap_or_default(),
        Wanted::HeadOnly => &[],
    };
    if body.len() > COPIED_BODY_BYTES_MAX {
        return Turn::Send(reply.body.inline().unwrap_or_default(), traits.persistence);
    }
    out.extend_from_slice(body);
    Turn::Answered(traits.persistence)
}

impl Traits {
    fn of(head: &http1::Head<'_, '_>, persistence: Persistence) -> Self {
        Self {
            framing: head.framing,
            persistence,
            version: head.version,
            wanted: Wanted::by(head.method),
            expects_continue: head.expects_continue,
            accepts_trailers: head.accepts_trailers,
        }
    }

    /// Returns the traits for a reply that is sent before the content of its request, without a 100. The connection ends if the content
    /// exceeds the limit or is too long to be read and discarded, and also if the client expects a 100: whether it sends the content then
    /// is unknown.
    //= RFC 9110 section 10.1.1: Expect
    fn before_content(self, body_bytes_max: u64) -> Self {
        let bytes_max = DRAINED_BYTES_MAX.min(body_bytes_max);
        let is_long = matches!(self.framing, Framing::Length(bytes) if bytes > bytes_max);
        let ends = is_long || (self.expects_continue && !self.has_no_body());
        if ends { self.closing() } else { self }
    }

    /// Returns the traits for a reply that ends the connection.
    fn closing(self) -> Self {
        Self { persistence: Persistence::Close, ..self }
    }

    fn has_no_body(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }
}
