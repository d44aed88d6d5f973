//! Sends one response whose body is not at hand, while the rest of the request body may still be arriving.

use std::pin::pin;

use cache::readers::WaitingReader;
use http::HeaderMap;
use http1::{Persistence, Version, encode};
use message::client::Client;
use message::piece::PieceMax;
use store::Slice;
use tokio::time::Instant;

use super::connection::{Connection, DRAINED_BYTES_MAX, Next, Traits};
use super::request_body::{BodyPump, Pumped, Rest};
use super::response::{BodyFraming, Chunk, Http1Head, write_framing};
use crate::active::ActiveConfig;
use crate::request::account::{self, Delivered, LoggedRequest};
use crate::request::reply::{Body, BrokenBody, Reply};
use crate::request::respond::Problem;
use crate::server::tunnel::{self, TunnelEnd};
use crate::server::wire::{Ending, Stream, WireError};
use crate::server::{BodyProblem, Wanted, at_once};

/// Bytes sent of one response before other connections of the core get their turn.
const TURN_BYTES_MAX: usize = 256 << 10;

/// A response that is being sent.
pub(super) struct Delivery<'a, S> {
    connection: &'a mut Connection<S>,
    asked: LoggedRequest<'a>,
    traits: Traits,
    pump: Option<BodyPump>,
    reply: Box<Reply>,
    sent_bytes: u64,
    is_accounted: bool,
    /// Bytes sent since the last yield.
    turn_bytes: usize,
    tunnelled_bytes: u64,
    rest: Rest,
}

/// Event while a response is being sent.
enum Moved {
    Data(Slice),
    End,
    Broken(&'static str),
    RequestBody,
    /// The request body broke its limits, or the client is gone.
    RequestBodyBroken(BodyProblem),
    ClientGone,
}

impl<'a, S: Stream> Delivery<'a, S> {
    pub(super) fn new(
        connection: &'a mut Connection<S>,
        asked: LoggedRequest<'a>,
        traits: Traits,
        pump: Option<BodyPump>,
        reply: Box<Reply>,
    ) -> Self {
        Self {
            connection,
            asked,
            traits,
            pump,
            reply,
            sent_bytes: 0,
            is_accounted: false,
            turn_bytes: 0,
            tunnelled_bytes: 0,
            rest: Rest::Short,
        }
    }

    pub(super) async fn run(mut self) -> Next {
        let head = match &self.reply.body {
            Body::Tunnel(_) => return self.tunnel().await,
            _ => {
                self.look_at_the_rest();
                self.write_head()
            }
        };
        let outcome = match head {
            BodyFraming::None => self.connection.flush().await.map(|()| Persistence::KeepAlive),
            framing => self.body(framing).await,
        };
        let delivered = if outcome.is_ok() { Delivered::Whole } else { Delivered::Broken };
        self.account(delivered);
        let persistence = outcome?;
        match (persistence, self.traits.persistence, self.rest) {
            // The origin may still want the rest, whatever its length.
            (Persistence::KeepAlive, Persistence::Close, Rest::Unknown) => {
                self.drain_request().await.map(|_| Persistence::Close)
            }
            (Persistence::KeepAlive, Persistence::KeepAlive, _) => self.drain_request().await,
            _ => Ok(Persistence::Close),
        }
    }

    /// Decides whether the connection ends with a response that comes before the end of its request, so that the head can say so.
    //= RFC 9112 section 9.6: close is said
    fn look_at_the_rest(&mut self) {
        let Connection { input, worker, .. } = &mut *self.connection;
        let Some(pump) = self.pump.as_mut().filter(|pump| !pump.is_complete()) else { return };
        self.rest = pump.rest(input, worker);
        pump.answered();
        if self.rest != Rest::Short {
            self.traits = self.traits.closing();
        }
    }

    fn write_head(&mut self) -> BodyFraming {
        let live = std::sync::Arc::clone(&self.connection.live);
        write_head(&mut self.connection.out, &self.reply, self.traits, &live)
    }

    /// Sends the body. After an error the connection must end in the middle of it, so that the client sees a broken body.
    async fn body(&mut self, framing: BodyFraming) -> Next {
        let mut trailers = None;
        //= RFC 9112 section 8: what the close ends is complete if its header section is
        if framing == BodyFraming::Close {
            self.connection.wire.io.end_by(Ending::Reset);
        }
        loop {
            // The head waits for the first data only if there is some at once.
            match self.next(&mut trailers).await {
                Moved::Data(data) => {
                    self.send(&data, framing).await?;
                    self.take_turns(data.len()).await;
                }
                Moved::RequestBody => {}
                Moved::End => return self.end(framing, trailers).await,
                Moved::Broken(reason) => {
                    self.connection.worker.recorder.fill_aborted(reason);
                    self.connection.flush().await?;
                    return Err(WireError::Closed);
                }
                Moved::RequestBodyBroken(problem) => {
                    self.request_body_broken(&problem);
                    return Err(WireError::Closed);
                }
                Moved::ClientGone => return Err(WireError::Closed),
            }
        }
    }

    async fn next(&mut self, trailers: &mut Option<HeaderMap>) -> Moved {
        let body = &mut self.reply.body;
        let is_awaited = body.is_awaited();
        let data = async {
            match S::SENDS_FILES {
                true => body.data(trailers, PieceMax::SENT).await,
                false => Ok(body.bytes(trailers).await?.map(Slice::from)),
            }
        };
        tokio::pin!(data);
        if !self.connection.out.is_empty() {
            // The head goes out with the first data if there is some at once; otherwise it doesn't wait.
            if let Some(at_once) = at_once(data.as_mut()).await {
                return moved(at_once);
            }
            if self.connection.flush().await.is_err() {
                return Moved::ClientGone;
            }
        }
        let connection = &mut *self.connection;
        let receiving = self.pump.as_mut().filter(|pump| !pump.is_complete());
        match receiving {
            Some(pump) => tokio::select! {
                biased;
                data = &mut data => moved(data),
                step = pump.step(&mut connection.wire, &mut connection.input, &connection.worker) => {
                    step.map_or_else(Moved::RequestBodyBroken, |_| Moved::RequestBody)
                }
            },
            None => tokio::select! {
                biased;
                data = &mut data => moved(data),
                () = connection.client_left(), if is_awaited => Moved::ClientGone,
            },
        }
    }

    fn request_body_broken(&self, problem: &BodyProblem) {
        if let BodyProblem::Refused(Problem { reason, .. }) = problem {
            let Connection { worker, live, .. } = &*self.connection;
            let site = self.reply.account.site.as_deref();
            account::record_cut(worker, live, (site, self.asked.request), reason);
        }
    }

    async fn send(&mut self, data: &Slice, framing: BodyFraming) -> Result<(), WireError> {
        let (connection, reply) = (&mut *self.connection, &mut *self.reply);
        let (worker, live) = (&connection.worker, &connection.live);
        let limits = live.config.limits.write_pace();
        let mut chunk_head = [0; 18];
        let chunk = Chunk::around(data.len(), framing, &mut chunk_head);
        let request = self.asked.request;
        let before_waiting = || {
            reply.wait_for_client(worker);
            let client = Client::of_request(request, &live.config.trusted_proxies);
            Some(reply.store(worker).readers.wait(client?, reply.body.held()?))
        };
        match (data.in_place(), data.file()) {
            (Some(bytes), _) => {
                let parts = [&connection.out, chunk.head, bytes, chunk.end];
                unless_at_once(connection.wire.write_all(&parts, limits), before_waiting).await?;
                connection.out.clear();
            }
            (None, Some(file)) => {
                connection.out.extend_from_slice(chunk.head);
                let write = connection.wire.send_file(&connection.out, file, limits);
                unless_at_once(write, before_waiting).await?;
                connection.out.clear();
                connection.out.extend_from_slice(chunk.end);
            }
            (None, None) => unreachable!("bytes are in place or in a file"),
        }
        self.sent_bytes += data.len() as u64;
        self.pump.iter_mut().for_each(BodyPump::waits_anew);
        Ok(())
    }

    /// Yields now and then, because a client that takes its body as fast as it is sent must not hold up other connections of the
    /// core.
    async fn take_turns(&mut self, sent_bytes: usize) {
        self.turn_bytes += sent_bytes;
        if self.turn_bytes >= TURN_BYTES_MAX {
            self.turn_bytes = 0;
            tokio::task::yield_now().await;
        }
    }

    async fn end(&mut self, framing: BodyFraming, trailers: Option<HeaderMap>) -> Next {
        match framing {
            BodyFraming::Length(bytes) if bytes != self.sent_bytes => return Err(WireError::Closed),
            BodyFraming::Chunked => self.write_last_chunk(trailers),
            _ => {}
        }
        self.connection.flush().await?;
        if framing == BodyFraming::Close {
            self.connection.wire.io.end_by(Ending::Orderly);
            return Ok(Persistence::Close);
        }
        Ok(Persistence::KeepAlive)
    }

    //= RFC 9110 section 6.5.1: trailers only to clients that said TE: trailers
    fn write_last_chunk(&mut self, trailers: Option<HeaderMap>) {
        let accepted = trailers.filter(|_| self.traits.accepts_trailers);
        let passing = accepted.and_then(|trailers| self.reply.passing(trailers));
        let lines = passing.iter().flat_map(message::fields::map_lines);
        if encode::write_last_chunk(&mut self.connection.out, lines).is_err() {
            self.connection.out.extend_from_slice(b"0\r\n\r\n");
        }
    }

    /// Reads the rest of the request body, up to the next request. A long rest isn't worth it: the connection closes instead.
    async fn drain_request(&mut self) -> Next {
        let Some(mut pump) = self.pump.take() else { return Ok(Persistence::KeepAlive) };
        let connection = &mut *self.connection;
        if self.traits.has_no_body() || pump.is_complete() {
            return Ok(Persistence::KeepAlive);
        }
        pump.mark_drained();
        let limit = pump.received_bytes() + DRAINED_BYTES_MAX;
        while pump.received_bytes() < limit {
            match pump.step(&mut connection.wire, &mut connection.input, &connection.worker).await {
                Ok(Pumped::More) => {}
                Ok(Pumped::Done) => return Ok(Persistence::KeepAlive),
                Err(_) => return Ok(Persistence::Close),
            }
        }
        Ok(Persistence::Close)
    }

    async fn tunnel(mut self) -> Next {
        let Body::Tunnel(mut origin) = std::mem::replace(&mut self.reply.body, Body::Empty) else {
            return Ok(Persistence::Close);
        };
        write_upgrade_head(&mut self.connection.out, &self.reply, &self.connection.live);
        self.connection.flush().await?;
        let early = self.connection.input.take();
        let idle_max = self.connection.live.config.limits.tunnel_idle_timeout;
        let Connection { wire, worker, .. } = &mut *self.connection;
        let carried = tunnel::run((&mut wire.io, early), &mut *origin, idle_max, &worker.arrivals).await;
        if carried.end == TunnelEnd::Idle {
            self.connection.worker.recorder.client_error("tunnel-idle");
        }
        self.sent_bytes = carried.to_client_bytes;
        self.tunnelled_bytes = carried.from_client_bytes;
        self.account(Delivered::Whole);
        Ok(Persistence::Close)
    }

    fn account(&mut self, delivered: Delivered) {
        let ended = self.record(delivered);
        self.connection.wire.saw(ended);
    }
}

impl<S> Delivery<'_, S> {
    fn record(&mut self, delivered: Delivered) -> Instant {
        self.is_accounted = true;
        let received = self.pump.as_ref().map_or(0, BodyPump::received_bytes) + self.tunnelled_bytes;
        let sent = self.reply.sent().with_bytes(self.sent_bytes, received, delivered);
        account::record_owned(&self.connection.worker, self.asked, &self.reply, sent)
    }
}

/// Accounts for a delivery that the drain limit drops while it waits.
impl<S> Drop for Delivery<'_, S> {
    fn drop(&mut self) {
        if !self.is_accounted {
            self.record(Delivered::Broken);
        }
    }
}

/// Completes a write. If it has to wait for the client, `before_waiting` is called first, and the wait ends early when others
/// need the memory in use.
async fn unless_at_once<'a>(
    write: impl Future<Output = Result<(), WireError>>,
    before_waiting: impl FnOnce() -> Option<WaitingReader<'a>>,
) -> Result<(), WireError> {
    let mut write = pin!(write);
    if let Some(written) = at_once(write.as_mut()).await {
        return written;
    }
    let Some(reader) = before_waiting() else { return write.await };
    tokio::select! {
        biased;
        written = write => written,
        () = reader.dismissed() => Err(WireError::Dismissed),
    }
}

fn moved(data: Result<Option<Slice>, BrokenBody>) -> Moved {
    match data {
        Ok(Some(data)) => Moved::Data(data),
        Ok(None) => Moved::End,
        Err(broken) => Moved::Broken(broken.reason()),
    }
}

/// Writes the head of a response with its framing and connection fields.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    reply: &Reply,
    traits: Traits,
    live: &ActiveConfig,
) -> BodyFraming {
    reply.write_head(&mut Http1Head { out }, &live.cache_name);
    //= RFC 9112 section 6.1: no Transfer-Encoding to HTTP/1.0
    let framing = write_framing(out, reply.length, traits.version, traits.wanted);
    let closes = traits.persistence == Persistence::Close || framing == BodyFraming::Close;
    match (closes, traits.version) {
        //= RFC 9112 section 9.6: close is said
        (true, _) => out.extend_from_slice(b"connection: close\r\n"),
        //= RFC 9112 section 9.3: an HTTP/1.0 client must be told that the connection stays
        (false, Version::Http10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, Version::Http11) => {}
    }
    encode::end_head(out);
    if traits.wanted == Wanted::HeadOnly { BodyFraming::None } else { framing }
}

//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
fn write_upgrade_head(out: &mut Vec<u8>, reply: &Reply, live: &ActiveConfig) {
    reply.write_head(&mut Http1Head { out }, &live.cache_name);
    out.extend_from_slice(b"connection: upgrade\r\n");
    encode::end_head(out);
}
