//! An HTTP/1.x client connection, shared by its loop ([`super`]) and a delivery.

use std::sync::Arc;

use caching::MethodClass;
use http1::{Framing, HeadScanner, Persistence, Version};
use message::head::ClientEnd;

use crate::active::ActiveConfig;
use crate::connection_table::OpenConnection;
use crate::request::plan::Plan;
use crate::server::Wanted;
use crate::server::wire::{Farewell, Input, Stream, Wire, WireError};
use crate::worker::{IdleEnd, Worker};

/// Largest rest of a refused request body that is read to keep the connection.
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
    /// How to close it after the last request read.
    pub(super) farewell: Farewell,
    pub(super) seat: Arc<OpenConnection>,
}

/// Facts of a request that outlive its head in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) framing: Framing,
    pub(super) persistence: Persistence,
    /// Version of the client, which decides about chunked framing.
    pub(super) version: Version,
    pub(super) wanted: Wanted,
    pub(super) expects_continue: bool,
    pub(super) accepts_trailers: bool,
}

/// Whether the connection is kept.
pub(super) type Next = Result<Persistence, WireError>;

impl<S: Stream> Connection<S> {
    /// Resolves when the client is gone before its reply, or may be. A client that closed only its sending side is assumed to
    /// wait as long as no other request waits for its place at the origin, or for its turn to fetch the same. The forward of an
    /// unsafe request is kept for as long too: its changes are invalidated when it is answered.
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

    /// Reads until there is nothing more to read, and returns the reason.
    async fn input_ended(&mut self) -> WireError {
        // Enough is waiting: the rest is read when its turn comes.
        while self.input.filled().len() < self.codec.head_bytes_max {
            let read = std::future::poll_fn(|context| self.wire.poll_read(context, &mut self.input));
            if let Err(end) = read.await {
                return end;
            }
        }
        std::future::pending().await
    }

    /// Waits before giving up a client that closed its sending side. It may still wait for its response: only its reaction to
    /// bytes sent to it tells.
    //= RFC 9112 section 9.6: a client may close its sending side and go on reading
    async fn nothing_more_to_send(&mut self) {
        self.wire.allow(self.live.config.limits.write_timeout);
        std::future::poll_fn(|context| self.wire.poll_deadline(context)).await;
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
}

impl Traits {
    pub(super) fn of(head: &http1::Head<'_, '_>, persistence: Persistence) -> Self {
        Self {
            framing: head.framing,
            persistence,
            version: head.version,
            wanted: Wanted::by(head.method),
            expects_continue: head.expects_continue,
            accepts_trailers: head.accepts_trailers,
        }
    }

    /// Traits for a reply that comes before the content of its request, and without having asked for it. The connection ends if
    /// the content is long, if it is over the limit, or if a client that expects 100 may or may not send it.
    //= RFC 9110 section 10.1.1: Expect
    pub(super) fn before_content(self, body_bytes_max: u64) -> Self {
        let bytes_max = DRAINED_BYTES_MAX.min(body_bytes_max);
        let is_long = matches!(self.framing, Framing::Length(bytes) if bytes > bytes_max);
        let ends = is_long || (self.expects_continue && !self.has_no_body());
        if ends { self.closing() } else { self }
    }

    /// Traits for a reply that ends the connection.
    pub(super) fn closing(self) -> Self {
        Self { persistence: Persistence::Close, ..self }
    }

    pub(super) fn has_no_body(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }
}
