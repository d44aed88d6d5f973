//! Awaits a reply that isn't available immediately, and sends it, while the rest of the request body may still be arriving.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use cache::readers::WaitingReader;
use caching::MethodClass;
use http::HeaderMap;
use http1::{Framing, Persistence, ResponseFraming, encode};
use message::client::Client;
use message::head::OwnedRequest;
use message::piece::PieceMax;
use origin::{Interim, RequestBody};
use store::Slice;
use tokio::time::Instant;

use super::request_body::{BodyPump, CLIENT_CLOSED, DRAINED_BYTES_MAX, Pumped, Rest};
use super::response::{Chunk, write_head, write_upgrade_head};
use super::{Connection, Next, Traits};
use crate::request::account::{self, Delivered, LoggedRequest};
use crate::request::pipeline;
use crate::request::plan::Plan;
use crate::request::plan::{Awaited, Coming, Interims};
use crate::request::reply::{Body, BrokenBody, Reply};
use crate::request::respond::Problem;
use crate::server::tunnel::{self, TunnelEnd};
use crate::server::wire::{Ending, Farewell, Stream, WireError};
use crate::server::{BodyProblem, REQUEST_PIECES_MAX, at_once};

/// Maximum number of bytes sent of one response before other connections of the core get their turn.
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
    /// The request body exceeded its limits, or the client is gone.
    RequestBodyBroken(BodyProblem),
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
                let Connection { out, live, .. } = &mut *self.connection;
                write_head(out, &self.reply, self.traits, live)
            }
        };
        let outcome = match head {
            ResponseFraming::None => self.connection.flush().await.map(|()| Persistence::KeepAlive),
            framing => self.body(framing).await,
        };
        let delivered = if outcome.is_ok() { Delivered::Whole } else { Delivered::Broken };
        self.account(delivered);
        let persistence = outcome?;
        match (persistence, self.traits.persistence, self.rest) {
            // The origin may still need the rest, regardless of its length.
            (Persistence::KeepAlive, Persistence::Close, Rest::Unknown) => {
                self.drain_request().await.map(|_| Persistence::Close)
            }
            (Persistence::KeepAlive, Persistence::KeepAlive, _) => self.drain_request().await,
            _ => Ok(Persistence::Close),
        }
    }

    /// Decides whether the connection ends with a response sent before the end of its request, so that the head can announce it.
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

    /// Sends the body. If that fails, the connection must end before the body does, so that the client detects an incomplete body.
    async fn body(&mut self, framing: ResponseFraming) -> Next {
        let mut trailers = None;
        //= RFC 9112 section 8: what the close ends is complete if its header section is
        if framing == ResponseFraming::UntilClose {
            self.connection.wire.io.end_by(Ending::Reset);
        }
        loop {
            // The head is combined with the first data only if data is immediately available.
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
                Moved::RequestBodyBroken(BodyProblem::Refused(Problem { reason, .. })) => {
                    let Connection { worker, live, .. } = &*self.connection;
                    let site = self.reply.account.site.as_deref();
                    account::record_cut(worker, live, (site, self.asked.request), reason);
                    return Err(WireError::Closed);
                }
                Moved::RequestBodyBroken(BodyProblem::ClientLeft) => return Err(WireError::Closed),
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
            // The head is sent with the first data if that is immediately available; otherwise, it is sent alone.
            if let Some(at_once) = at_once(data.as_mut()).await {
                return moved(at_once);
            }
            if self.connection.flush().await.is_err() {
                return Moved::RequestBodyBroken(BodyProblem::ClientLeft);
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
                () = connection.client_left(), if is_awaited => Moved::RequestBodyBroken(BodyProblem::ClientLeft),
            },
        }
    }

    async fn send(&mut self, data: &Slice, framing: ResponseFraming) -> Result<(), WireError> {
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
            (None, None) => unreachable!("bytes are in memory or in a file"),
        }
        self.sent_bytes += data.len() as u64;
        self.pump.iter_mut().for_each(BodyPump::waits_anew);
        Ok(())
    }

    /// Yields regularly, because a client that reads its body as fast as it is sent must not block other connections of the core.
    async fn take_turns(&mut self, sent_bytes: usize) {
        self.turn_bytes += sent_bytes;
        if self.turn_bytes >= TURN_BYTES_MAX {
            self.turn_bytes = 0;
            tokio::task::yield_now().await;
        }
    }

    async fn end(&mut self, framing: ResponseFraming, trailers: Option<HeaderMap>) -> Next {
        match framing {
            ResponseFraming::Length(bytes) if bytes != self.sent_bytes => return Err(WireError::Closed),
            ResponseFraming::Chunked => self.write_last_chunk(trailers),
            _ => {}
        }
        self.connection.flush().await?;
        if framing == ResponseFraming::UntilClose {
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

    /// Reads the rest of the request body, up to the next request. If the rest is long, closes the connection instead.
    async fn drain_request(&mut self) -> Next {
        let Some(mut pump) = self.pump.take() else { return Ok(Persistence::KeepAlive) };
        let connection = &mut *self.connection;
        if pump.is_complete() {
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
        let early = [early, std::mem::take(&mut origin.early)];
        let carried = tunnel::run((&mut wire.io, origin.io()), early, idle_max, &worker.arrivals).await;
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

impl<S: Stream> Connection<S> {
    /// Answers a request whose reply isn't available immediately.
    pub(super) async fn forward(&mut self, plan: Box<Plan>, traits: Traits) -> Next {
        let _in_flight = self.worker.recorder.in_flight();
        let (sender, body) = match traits.framing {
            Framing::None | Framing::Length(0) => (None, RequestBody::Empty),
            Framing::Length(_) | Framing::Chunked => {
                let length = if let Framing::Length(bytes) = traits.framing { Some(bytes) } else { None };
                let (sender, body) = RequestBody::channel(REQUEST_PIECES_MAX, length);
                (Some(sender), body)
            }
        };
        let limits = match sender {
            // The request has no content that rules could limit.
            None => plan.live.config.limits.body_limits(),
            Some(_) => plan.body_limits(),
        };
        let mut pump = BodyPump::new(traits.framing, &self.codec, limits, sender);
        let waiting = account::AwaitedReply::new(&plan);
        let answered = self.answer(&plan, body, &mut pump, traits).await;
        waiting.end();
        match answered {
            Ok(Ok(reply)) => {
                Delivery::new(self, LoggedRequest::of(&plan), traits, Some(pump), reply).run().await
            }
            Ok(Err(problem)) => self.refuse_content(&plan, &problem, traits, &pump).await,
            Err(error) => {
                account::record_left(&plan, CLIENT_CLOSED, pump.received_bytes());
                Err(error)
            }
        }
    }

    /// Awaits the reply while the request body and interim responses are transferred.
    async fn answer(
        &mut self,
        plan: &Plan,
        body: RequestBody,
        pump: &mut BodyPump,
        traits: Traits,
    ) -> Result<Result<Box<Reply>, BodyProblem>, WireError> {
        //= RFC 9110 section 10.1.1: Expect
        if traits.expects_continue && self.input.is_empty() {
            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.flush().await?;
        let interims = Interims::default();
        let worker = Arc::clone(&self.worker);
        let reply = pin!(pipeline::finish(plan, body, &interims));
        let mut awaited = Awaited::new(reply, &interims);
        let mut pumping = !traits.has_no_body();
        loop {
            let from_client = async {
                if pumping {
                    return pump.step(&mut self.wire, &mut self.input, &worker).await;
                }
                // Dropping the future of the reply ends work started for the client.
                self.client_gave_up(plan).await;
                Err(BodyProblem::ClientLeft)
            };
            tokio::select! {
                biased;
                coming = awaited.next() => match coming {
                    Coming::Interim(interim) => self.write_interim(&interim, plan).await?,
                    Coming::Reply(reply) => return Ok(Ok(reply)),
                },
                step = from_client => match step {
                    Ok(pumped) => pumping = pumped == Pumped::More,
                    Err(problem) => return Ok(Err(problem)),
                },
            }
        }
    }

    async fn write_interim(&mut self, interim: &Interim, plan: &Plan) -> Result<(), WireError> {
        if !plan.site.config.interim_responses.passes(interim.status, plan.request().version) {
            return Ok(());
        }
        //= RFC 9110 section 15.2: informational responses
        //= RFC 8297 section 2: several 103
        let lines = interim.fields.lines();
        if encode::write_interim(&mut self.out, interim.status.as_u16(), lines).is_err() {
            self.out.clear();
        }
        self.flush().await
    }

    pub(super) async fn deliver(
        &mut self,
        reply: Box<Reply>,
        request: &OwnedRequest,
        traits: Traits,
    ) -> Next {
        let _in_flight = self.worker.recorder.in_flight();
        let limits = self.live.config.limits.body_limits();
        let pump = BodyPump::new(traits.framing, &self.codec, limits, None);
        Delivery::new(self, LoggedRequest::at_once(request), traits, Some(pump), reply).run().await
    }

    /// Answers a request whose content can't be read to its end, if its client is still connected, and ends the connection.
    async fn refuse_content(
        &mut self,
        plan: &Plan,
        problem: &BodyProblem,
        traits: Traits,
        pump: &BodyPump,
    ) -> Next {
        let BodyProblem::Refused(problem) = problem else {
            plan.place_given_up();
            self.worker.recorder.client_error(CLIENT_CLOSED);
            account::record_left(plan, CLIENT_CLOSED, pump.received_bytes());
            return Ok(Persistence::Close);
        };
        self.farewell = Farewell::Lingering;
        let reply = pipeline::refuse_content(plan, problem);
        Delivery::new(self, LoggedRequest::of(plan), traits.closing(), None, Box::new(reply)).run().await
    }

    /// Resolves when the client has left before its reply, or may have left and delays others. A client that closed only its sending side
    /// counts as connected until another request waits for its permit at the origin, or to fetch the same response. The same applies to
    /// every client that sent an unsafe request, because the response triggers invalidations.
    async fn client_gave_up(&mut self, plan: &Plan) {
        let may_be_there = matches!(self.input_ended().await, WireError::Closed);
        if may_be_there || plan.facts.method == MethodClass::Unsafe {
            // Boxed, because few clients leave early, and each request would otherwise reserve room for this future.
            Box::pin(plan.others_wait()).await;
        }
    }

    /// Resolves when the client is gone; pipelined requests that arrive meanwhile are kept.
    async fn client_left(&mut self) {
        if let WireError::Closed = self.input_ended().await {
            // The client may still wait for its response: only its reaction to sent bytes shows whether it does.
            //= RFC 9112 section 9.6: a client may close its sending side and go on reading
            self.wire.allow(self.live.config.limits.write_timeout);
            poll_fn(|context| self.wire.poll_deadline(context)).await;
        }
    }

    /// Reads until the input ends, and returns the reason.
    async fn input_ended(&mut self) -> WireError {
        // Input beyond this limit is read after the response.
        while self.input.filled().len() < self.codec.head_bytes_max {
            let read = poll_fn(|context| self.wire.poll_read(context, &mut self.input));
            if let Err(end) = read.await {
                return end;
            }
        }
        pending().await
    }
}

/// Completes a write. If the write has to wait for the client, calls `before_waiting` first, and ends the wait early if other clients need
/// the memory in use.
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
