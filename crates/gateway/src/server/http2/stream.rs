//! The response side of one stream.
//!
//! Data is passed to `h2`, or read from a file, only as far as the client's windows and the send buffer have room. The rest waits at
//! its source: in the store, in a fill, or in the origin's socket. An incomplete body ends with RST_STREAM, never with END_STREAM.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use caching::MethodClass;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::HeaderMap;
use message::client::Client;
use message::head::{ClientEnd, Version};
use message::piece::PieceMax;
use origin::{Interim, RequestBody};
use store::Slice;
use tokio::time::{Instant, timeout};

use super::Resets;
use super::prepared;
use super::request_body::BodyPump;
use super::response::{self, Follows, Http2Head, follows};
use super::send_memory::{Counted, SendMemory};
use crate::active::ActiveConfig;
use crate::config::ErrorExposure;
use crate::pace::Pace;
use crate::request::account::{self, Delivered, LoggedRequest, Sent};
use crate::request::pipeline;
use crate::request::plan::Plan;
use crate::request::plan::{Awaited, Coming, Interims};
use crate::request::reply::{Body, BrokenBody, HeadSink, Length, Reply};
use crate::request::respond::{self, Problem};
use crate::server::{BodyProblem, Wanted, at_once};
use crate::worker::Worker;

/// Reason code for a client that reset the stream before the response began.
const CLIENT_RESET: &str = "client-reset";

/// A stream before its response.
pub(super) struct Responder {
    pub(super) respond: SendResponse<Bytes>,
    pub(super) worker: Arc<Worker>,
    pub(super) live: Arc<ActiveConfig>,
    pub(super) client: ClientEnd,
    pub(super) memory: Arc<SendMemory>,
}

/// A stream whose response head has been sent.
pub(super) struct Open {
    stream: SendStream<Bytes>,
    worker: Arc<Worker>,
    live: Arc<ActiveConfig>,
    pub(super) reply: Reply,
    follows: Follows,
    sent_bytes: u64,
    /// Pace of the client in opening its windows.
    pace: Pace,
    memory: Arc<SendMemory>,
}

/// A request whose reply isn't available immediately.
pub(super) struct Exchange {
    pub(super) responder: Responder,
    pub(super) plan: Box<Plan>,
    pub(super) pump: BodyPump,
    pub(super) resets: Arc<Resets>,
    /// Whether the client has reset the stream before its response began.
    pub(super) is_reset: bool,
}

/// A response that is being sent. The response is accounted for on drop, because the drain limit may drop it while it waits.
struct Delivery<'a> {
    open: Open,
    asked: LoggedRequest<'a>,
    pump: BodyPump,
    delivered: Delivered,
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        let sent = self.open.sent(self.pump.received_bytes(), self.delivered);
        account::record_owned(&self.open.worker, self.asked, &self.open.reply, sent);
    }
}

/// The reason why a response is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The body was cut short.
    Body(&'static str),
    /// The body is longer or shorter than its `Content-Length`.
    Length,
    /// The client didn't open a window in time.
    Stalled,
    /// Other clients need the memory that this client keeps in use.
    Dismissed,
    /// The request body exceeded its limits.
    Upload(&'static str),
    /// The stream or the connection is gone.
    Client,
}

impl From<BodyProblem> for Broken {
    fn from(problem: BodyProblem) -> Self {
        match problem {
            BodyProblem::Refused(problem) => Self::Upload(problem.reason),
            BodyProblem::ClientLeft => Self::Client,
        }
    }
}

impl Responder {
    /// Sends the head. Returns the reply as the error if the stream is gone.
    pub(super) fn open(mut self, reply: Reply, wanted: Wanted) -> Result<Open, Box<Reply>> {
        let reply = self.final_reply(reply);
        let follows = follows(reply.length, wanted);
        let response = prepared::response(&reply, &self.live);
        let Ok(stream) = self.respond.send_response(response, follows == Follows::Nothing) else {
            return Err(Box::new(reply));
        };
        let (worker, live, memory, pace) = (self.worker, self.live, self.memory, Pace::default());
        Ok(Open { stream, worker, live, reply, follows, sent_bytes: 0, pace, memory })
    }

    //= RFC 9113 section 8.6: HTTP/2 has no 101 (Switching Protocols)
    fn final_reply(&self, reply: Reply) -> Reply {
        if reply.status >= 200 && !matches!(reply.body, Body::Tunnel(_)) {
            return reply;
        }
        let problem =
            Problem::new(502, "unexpected-upgrade", "the origin switched protocols without being asked");
        respond::reply(&problem, reply.account.site.as_ref(), reply.account.started, &self.worker)
    }

    /// Answers a request whose head is malformed or exceeds a limit.
    pub(super) fn refuse(mut self, problem: &Problem, wanted: Wanted) {
        self.worker.recorder.client_error(problem.reason);
        let body = problem.body(ErrorExposure::Expose);
        let mut head = Http2Head::default();
        head.status(problem.status, None);
        head.fields(problem.fields(&self.worker.date()).view());
        if problem.status == 405 {
            //= RFC 9110 section 10.2.1: an empty Allow means that the resource allows no methods
            head.field("allow", b"");
        }
        head.content_length(body.len() as u64);
        let ends = wanted == Wanted::HeadOnly;
        let sent_bytes = if ends { 0 } else { body.len() as u64 };
        account::record_refused(&self.worker, &self.client, problem, sent_bytes);
        let Ok(mut stream) = self.respond.send_response(head.into_response(), ends) else { return };
        if ends {
            return;
        }
        // If the client's window has no room for a line of text, the stream is reset.
        stream.reserve_capacity(body.len());
        if stream.capacity() < body.len() || stream.send_data(body, true).is_err() {
            stream.send_reset(Reason::CANCEL);
        }
    }
}

impl Exchange {
    pub(super) async fn run(mut self, body: RequestBody) {
        let _in_flight = self.responder.worker.recorder.in_flight();
        self.go_on_if_expected(&body);
        let reply = match self.answer(body).await {
            Ok(reply) => reply,
            Err(BodyProblem::Refused(problem)) => pipeline::refuse_content(&self.plan, &problem),
            Err(BodyProblem::ClientLeft) => return self.left(),
        };
        match self.is_reset {
            true => self.responder.worker.recorder.client_error(CLIENT_RESET),
            false => self.resets.answered(),
        }
        let asked = LoggedRequest::of(&self.plan);
        let wanted = Wanted::by(&asked.request.method);
        let worker = Arc::clone(&self.responder.worker);
        match self.responder.open(reply, wanted) {
            Ok(open) => {
                self.pump.answered();
                open.deliver(asked, self.pump).await;
            }
            Err(reply) => {
                let sent = reply.sent().with_bytes(0, self.pump.received_bytes(), Delivered::Broken);
                account::record_owned(&worker, asked, &reply, sent);
            }
        }
    }

    /// Records a client that didn't wait for its response.
    fn left(&self) {
        self.plan.place_given_up();
        self.responder.worker.recorder.client_error(CLIENT_RESET);
        account::record_left(&self.plan, CLIENT_RESET, self.pump.received_bytes());
    }

    //= RFC 9110 section 10.1.1: Expect
    fn go_on_if_expected(&mut self, body: &RequestBody) {
        let expect = self.plan.request().fields.value("expect");
        let expects = expect.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        if expects && !matches!(body, RequestBody::Empty) {
            // If the stream is gone, the next wait on it detects that.
            let _ = self.responder.respond.send_informational(response::go_on());
        }
    }

    /// Awaits the reply while passing on interim responses.
    async fn answer(&mut self, body: RequestBody) -> Result<Reply, BodyProblem> {
        let interims = Interims::default();
        let respond = &mut self.responder.respond;
        let waiting = account::AwaitedReply::new(&self.plan);
        let reply = pin!(pipeline::finish(&self.plan, body, &interims));
        let mut awaited = Awaited::new(reply, &interims);
        let plan = &self.plan;
        let wanted = plan.site.config.interim_responses;
        let passes = |interim: &Interim| wanted.passes(interim.status, Version::Http2);
        let answered = loop {
            tokio::select! {
                biased;
                problem = self.pump.problem() => break Err(problem),
                coming = awaited.next() => match coming {
                    Coming::Interim(interim) if passes(&interim) => {
                        drop(respond.send_informational(response::interim(&interim)));
                    }
                    Coming::Interim(_) => {}
                    Coming::Reply(reply) => break Ok(*reply),
                },
                _ = poll_fn(|context| respond.poll_reset(context)), if !self.is_reset => {
                    self.is_reset = true;
                    self.resets.given_up();
                    // The response to an unsafe request triggers invalidations, so its forward continues.
                    if plan.facts.method != MethodClass::Unsafe {
                        break Err(BodyProblem::ClientLeft);
                    }
                }
                // Boxed, and only when polled, because few clients leave early, and each stream would otherwise reserve room for this
                // future.
                () = async { Box::pin(plan.others_wait()).await }, if self.is_reset => break Err(BodyProblem::ClientLeft),
            }
        };
        waiting.end();
        if !self.is_reset && matches!(answered, Err(BodyProblem::ClientLeft)) {
            self.resets.given_up();
        }
        answered
    }
}

impl Open {
    /// Sends the whole body if it is in memory and the client's window has room for it.
    pub(super) fn finish_at_once(&mut self) -> Option<Sent> {
        if self.follows == Follows::Nothing {
            return Some(self.sent(0, Delivered::Whole));
        }
        let bytes = self.reply.body.at_hand()?.len();
        self.stream.reserve_capacity(bytes);
        if self.stream.capacity() < bytes {
            return None;
        }
        let data = self.memory.note(self.reply.body.inline()?)?;
        self.sent_bytes = data.len() as u64;
        let delivered = match self.stream.send_data(data, true) {
            Ok(()) => Delivered::Whole,
            Err(_) => Delivered::Broken,
        };
        Some(self.sent(0, delivered))
    }

    /// Sends the body, then accounts for the exchange.
    pub(super) async fn deliver(self, asked: LoggedRequest<'_>, pump: BodyPump) {
        let mut delivery = Delivery { open: self, asked, pump, delivered: Delivered::Broken };
        let Delivery { open, pump, .. } = &mut delivery;
        let ended = match open.follows {
            Follows::Nothing => Ok(()),
            Follows::Data => {
                let client = Client::of_request(asked.request, &open.live.config.trusted_proxies);
                open.send_body(client, pump).await
            }
        };
        match ended {
            Ok(()) => delivery.delivered = Delivered::Whole,
            Err(broken) => open.break_off(broken, asked),
        }
    }

    fn sent(&self, received_bytes: u64, delivered: Delivered) -> Sent {
        self.reply.sent().with_bytes(self.sent_bytes, received_bytes, delivered)
    }

    //= RFC 9113 section 8.1: an incomplete response ends in RST_STREAM
    fn break_off(&mut self, broken: Broken, asked: LoggedRequest<'_>) {
        let reason = match broken {
            Broken::Body(reason) => {
                self.worker.recorder.fill_aborted(reason);
                Reason::INTERNAL_ERROR
            }
            Broken::Length => Reason::INTERNAL_ERROR,
            Broken::Stalled => {
                self.worker.recorder.client_error("write-timeout");
                Reason::CANCEL
            }
            Broken::Dismissed => {
                self.worker.recorder.client_error("memory-share");
                Reason::CANCEL
            }
            Broken::Upload(reason) => {
                let site = self.reply.account.site.as_deref();
                account::record_cut(&self.worker, &self.live, (site, asked.request), reason);
                Reason::CANCEL
            }
            Broken::Client => Reason::CANCEL,
        };
        self.stream.send_reset(reason);
    }

    async fn send_body(&mut self, client: Option<Client>, pump: &mut BodyPump) -> Result<(), Broken> {
        let mut trailers = None;
        while let Some(data) = self.next(pump, &mut trailers).await? {
            self.check_length(data.len() as u64)?;
            self.send(data, client, pump).await?;
        }
        if matches!(self.reply.length, Length::Known(bytes) if bytes != self.sent_bytes) {
            return Err(Broken::Length);
        }
        let ended = match trailers.and_then(|trailers| self.reply.passing(trailers)) {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        };
        ended.map_err(|_| Broken::Client)
    }

    async fn next(
        &mut self,
        pump: &mut BodyPump,
        trailers: &mut Option<HeaderMap>,
    ) -> Result<Option<Slice>, Broken> {
        let (body, stream) = (&mut self.reply.body, &mut self.stream);
        tokio::select! {
            biased;
            data = body.data(trailers, PieceMax::SENT) => data.map_err(|broken| Broken::Body(broken.reason())),
            _ = poll_fn(|context| stream.poll_reset(context)) => Err(Broken::Client),
            problem = pump.problem() => Err(problem.into()),
        }
    }

    fn check_length(&self, more_bytes: u64) -> Result<(), Broken> {
        match self.reply.length {
            Length::Known(bytes) if self.sent_bytes + more_bytes > bytes => Err(Broken::Length),
            _ => Ok(()),
        }
    }

    async fn send(
        &mut self,
        mut data: Slice,
        client: Option<Client>,
        pump: &mut BodyPump,
    ) -> Result<(), Broken> {
        let counted = Counted::of(&data);
        while !data.is_empty() {
            let piece = match at_once(self.piece(&mut data, counted)).await {
                Some(piece) => piece?,
                None => self.awaited_piece(&mut data, counted, client, pump).await?,
            };
            self.sent_bytes += piece.len() as u64;
            pump.sent(piece.len() as u64);
            self.stream.send_data(piece, false).map_err(|_| Broken::Client)?;
        }
        Ok(())
    }

    /// Returns the next piece once the client has room for it, unless the client is dismissed first.
    async fn awaited_piece(
        &mut self,
        data: &mut Slice,
        counted: Counted,
        client: Option<Client>,
        pump: &mut BodyPump,
    ) -> Result<Bytes, Broken> {
        let worker = Arc::clone(&self.worker);
        let readers = &self.reply.store(&worker).readers;
        let waiting = client.zip(self.reply.body.held()).map(|(client, body)| readers.wait(client, body));
        let dismissed = async {
            match &waiting {
                Some(reader) => reader.dismissed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            piece = self.piece(data, counted) => piece,
            problem = pump.problem() => Err(problem.into()),
            () = dismissed => Err(Broken::Dismissed),
        }
    }

    /// Waits until room for some of the data is available, and takes a piece from its source.
    async fn piece(&mut self, data: &mut Slice, counted: Counted) -> Result<Bytes, Broken> {
        let room = self.room(data.len()).await?;
        let (since, limits) = (Instant::now(), self.live.config.limits.write_pace());
        let mut cut = pin!(self.memory.cut(data, room, counted));
        let piece = match at_once(cut.as_mut()).await {
            Some(piece) => piece,
            None => {
                self.reply.wait_for_client(&self.worker);
                timeout(self.pace.patience(limits), cut).await.map_err(|_| Broken::Stalled)?
            }
        };
        let piece = piece.map_err(|error| Broken::Body(BrokenBody::Unreadable(error).reason()))?;
        self.pace.waited(since.elapsed(), piece.len() as u64, limits);
        Ok(piece)
    }

    /// Waits until the client's windows and the send buffer have room for some of the data.
    async fn room(&mut self, wanted_bytes: usize) -> Result<usize, Broken> {
        let limits = &self.live.config.limits;
        self.stream.reserve_capacity(wanted_bytes.min(limits.http2_send_buffer_bytes_max));
        let at_once = self.stream.capacity();
        if at_once > 0 {
            return Ok(at_once);
        }
        self.reply.wait_for_client(&self.worker);
        let (since, limits) = (Instant::now(), limits.write_pace());
        let room = poll_fn(|context| self.stream.poll_capacity(context));
        match timeout(self.pace.patience(limits), room).await {
            Err(_) => Err(Broken::Stalled),
            Ok(Some(Ok(bytes))) => {
                self.pace.waited(since.elapsed(), bytes as u64, limits);
                Ok(bytes)
            }
            Ok(Some(Err(_)) | None) => Err(Broken::Client),
        }
    }
}
