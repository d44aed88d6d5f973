//! A client connection of HTTP/1.x as the loop ([`super`]) and a delivery share it.

use std::sync::Arc;

use caching::MethodClass;
use http1::{Framing, HeadScanner, Persistence, Version as WireVersion};
use message::head::ClientEnd;

use super::response::{Chunking, Wanted};
use crate::active::ActiveConfig;
use crate::request::plan::Plan;
use crate::server::doorway::Seat;
use crate::server::wire::{Farewell, Input, Stream, Wire, WireError};
use crate::worker::{IdleEnd, Worker};

/// A refused request body is read to its end only up to this size, to keep the connection.
pub(super) const DRAINED_BYTES_MAX: u64 = 64 * 1024;

/// A client connection.
pub(crate) struct Connection<S> {
    pub(super) wire: Wire<S>,
    pub(super) input: Input,
    pub(super) out: Vec<u8>,
    pub(super) idle_end: IdleEnd,
    pub(super) scanner: HeadScanner,
    pub(super) codec: http1::Limits,
    pub(super) worker: Arc<Worker>,
    pub(super) live: Arc<ActiveConfig>,
    pub(super) client: ClientEnd,
    pub(super) key: Vec<u8>,
    pub(super) answered: u64,
    /// How it would be closed after the request that was read last.
    pub(super) farewell: Farewell,
    pub(super) seat: Arc<Seat>,
}

/// What of a request is needed after its head is gone from the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) framing: Framing,
    pub(super) persistence: Persistence,
    pub(super) chunking: Chunking,
    pub(super) wanted: Wanted,
    pub(super) expects_continue: bool,
    pub(super) accepts_trailers: bool,
}

/// Whether the connection goes on.
pub(super) type Next = Result<Persistence, WireError>;

impl<S: Stream> Connection<S> {
    /// Resolves when the client is gone before its reply, or may be: one that has closed its sending side is believed to wait as
    /// long as nobody else waits for the place that it takes from the origin, or for its turn to ask for the same.
    /// So is the forward of an unsafe request: what it has changed is invalidated when it is answered.
    pub(super) async fn client_gave_up(&mut self, plan: &Plan) {
        let may_be_there = matches!(self.input_ended().await, WireError::Closed);
        if may_be_there || plan.facts.method == MethodClass::Unsafe {
            // On the heap: hardly any client goes, and each request would need room for this.
            Box::pin(async {
                tokio::select! {
                    () = plan.site.upstream.permit_wanted(plan.client()) => {}
                    _ = plan.request.place_wanted.wait() => {}
                }
            })
            .await;
        }
    }

    /// Resolves when the client is gone; pipelined requests that arrive meanwhile are kept.
    pub(super) async fn client_left(&mut self) {
        if let WireError::Closed = self.input_ended().await {
            self.nothing_more_to_send().await;
        }
    }

    /// Reads on until there is nothing more to read, and tells why.
    async fn input_ended(&mut self) -> WireError {
        // Enough is waiting: what comes after it is read when it's its turn.
        while self.input.filled().len() < self.codec.head_bytes_max {
            let read = std::future::poll_fn(|context| self.wire.poll_read(context, &mut self.input));
            if let Err(end) = read.await {
                return end;
            }
        }
        std::future::pending().await
    }

    /// A client that closed its sending side may be gone, or may still wait for its response: only the answer to
    /// bytes sent to it tells. So it is given up only after a while in which there were none.
    //= RFC 9112 section 9.6: a client may close its sending side and go on reading
    async fn nothing_more_to_send(&mut self) {
        self.wire.allow(self.live.config.limits.write_timeout);
        std::future::poll_fn(|context| self.wire.poll_deadline(context)).await;
    }

    /// Writes what is gathered.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.wire.write_all(&[&self.out], self.live.config.limits.write_pace()).await;
        self.out.clear();
        written
    }
}

impl Traits {
    pub(super) fn of(head: &http1::Head<'_, '_>, persistence: Persistence) -> Self {
        Self {
            framing: head.framing,
            persistence,
            chunking: match head.version {
                WireVersion::Http10 => Chunking::NotUnderstood,
                WireVersion::Http11 => Chunking::Understood,
            },
            wanted: if head.method == "HEAD" { Wanted::HeadOnly } else { Wanted::HeadAndBody },
            expects_continue: head.expects_continue,
            accepts_trailers: head.accepts_trailers,
        }
    }

    /// Of a reply that comes before the content of its request, and without having asked for it. The connection ends where that is long, where it is
    /// more than anybody may send, or where a client that expects 100 may send it or not.
    //= RFC 9110 section 10.1.1: Expect
    pub(super) fn before_content(self, body_bytes_max: u64) -> Self {
        let bytes_max = DRAINED_BYTES_MAX.min(body_bytes_max);
        let is_long = matches!(self.framing, Framing::Length(bytes) if bytes > bytes_max);
        let ends = is_long || (self.expects_continue && !self.has_no_body());
        if ends { self.closing() } else { self }
    }

    /// Of a reply that ends the connection.
    pub(super) fn closing(self) -> Self {
        Self { persistence: Persistence::Close, ..self }
    }

    pub(super) fn has_no_body(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }
}
