//! Transfer of a request body from the client's connection to the origin.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http1::{BodyDecoder, Decoded, Framing, Limits};
use message::trailers;
use origin::{RequestBodySender, UNCHARGED_PIECE_BYTES_MAX};
use store::{Budget, OverBudget};
use tokio::time::Instant;

use crate::pace::{BodyLimits, Pace, PaceLimits};
use crate::request::respond::Problem;
use crate::server::BodyProblem;
use crate::server::wire::{Input, Stream, Wire};
use crate::worker::Worker;

/// Reason code for a client that left before a response was available.
pub(super) const CLIENT_CLOSED: &str = "client-closed";

/// Maximum size of the rest of a refused request body that is read to keep the connection.
pub(super) const DRAINED_BYTES_MAX: u64 = 64 * 1024;

/// Size of a read if the budget has no room for more.
const READ_BYTES_MIN: usize = 16 * 1024;

/// Maximum number of bytes read of one body before other connections of the core get their turn.
const TURN_BYTES_MAX: u64 = 256 << 10;

/// Moves a request body piece by piece. Each step may be dropped and repeated without losing bytes.
pub(super) struct BodyPump {
    decoder: BodyDecoder,
    sender: Option<RequestBodySender>,
    pending: Option<Bytes>,
    /// Maximum size of a read, and therefore of a piece.
    read_bytes_max: usize,
    bytes_left: u64,
    received_bytes: u64,
    /// Value of `received_bytes` at the last yield.
    turn_began_bytes: u64,
    limits: BodyLimits,
    awaited: Awaited,
    pace: Pace,
    /// Start of the wait for the client.
    waiting_since: Option<Instant>,
}

/// Event that is awaited while the rest of the body arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Response,
    /// The end of the response, which is being sent.
    EndOfResponse,
    /// No other event: the rest of the body is read to reach the next request.
    NextRequest,
}

/// Length of the part of a body that hasn't been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Short,
    Unknown,
    Long,
}

/// Result of a step of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    More,
    /// The body is complete, or the rest of it won't be read.
    Done,
}

impl BodyPump {
    pub(super) fn new(
        framing: Framing,
        codec: &Limits,
        limits: BodyLimits,
        sender: Option<RequestBodySender>,
    ) -> Self {
        Self {
            decoder: BodyDecoder::new(framing, codec),
            sender,
            pending: None,
            read_bytes_max: usize::MAX,
            bytes_left: limits.bytes_max,
            received_bytes: 0,
            turn_began_bytes: 0,
            limits,
            awaited: Awaited::Response,
            pace: Pace::default(),
            waiting_since: None,
        }
    }

    /// Returns whether all of the body has been read from the connection.
    pub(super) fn is_complete(&self) -> bool {
        self.decoder.is_complete() && self.pending.is_none()
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Reads, decodes or hands over one piece.
    pub(super) async fn step<S: Stream>(
        &mut self,
        wire: &mut Wire<S>,
        input: &mut Input,
        worker: &Worker,
    ) -> Result<Pumped, BodyProblem> {
        if let (Some(data), Some(sender)) = (&self.pending, &mut self.sender) {
            // The piece stays pending until it is handed over, so that dropping this step loses no bytes.
            let taken = sender.send_data(data.clone()).await;
            self.pending = None;
            if taken.is_err() {
                self.sender = None;
            }
        } else if input.is_empty() && !self.decoder.is_complete() {
            self.read(wire, input, worker).await?;
        } else {
            self.take(input, worker)?;
        }
        if !self.is_complete() {
            return Ok(Pumped::More);
        }
        self.finish();
        Ok(Pumped::Done)
    }

    /// Processes the bytes that have arrived, and returns the length of the unread part of the body.
    pub(super) fn rest(&mut self, input: &mut Input, worker: &Worker) -> Rest {
        if self.pending.is_none() && self.take(input, worker).is_err() {
            return Rest::Long;
        }
        if self.is_complete() {
            self.finish();
        }
        match self.decoder.remaining() {
            Some(bytes) if bytes > DRAINED_BYTES_MAX => Rest::Long,
            Some(_) => Rest::Short,
            // No origin needs the rest of the body, so it isn't awaited.
            None if self.sender.is_none() => Rest::Long,
            None => Rest::Unknown,
        }
    }

    /// Switches to the time limits that apply while the response is sent.
    pub(super) fn answered(&mut self) {
        (self.awaited, self.pace) = (Awaited::EndOfResponse, Pace::default());
        self.waits_anew();
    }

    /// Switches to reading the rest after the response.
    pub(super) fn mark_drained(&mut self) {
        self.awaited = Awaited::NextRequest;
        self.waits_anew();
    }

    /// Restarts the wait for the client, because the connection couldn't be read meanwhile.
    pub(super) fn waits_anew(&mut self) {
        self.waiting_since = None;
    }

    /// Reads more bytes once all received ones are used up. Reads into the worker's buffer: the connection's own is only as large as
    /// the head, and an idle upload holds no memory. Bytes after the body go to `input`.
    async fn read<S: Stream>(
        &mut self,
        wire: &mut Wire<S>,
        input: &mut Input,
        worker: &Worker,
    ) -> Result<(), BodyProblem> {
        self.take_turns().await;
        let (now, limits) = (Instant::now(), self.pace_limits());
        let since = *self.waiting_since.get_or_insert(now);
        wire.allow(self.pace.patience(limits).saturating_sub(now - since));
        poll_fn(|context| {
            let mut arrivals = worker.arrivals.lock();
            let room = arrivals.len().min(self.read_bytes_max);
            let Poll::Ready(read) = wire.poll_read_into(context, &mut arrivals[..room]) else {
                return wire.poll_deadline(context).map(|late| Err(late.into()));
            };
            let read = read?;
            self.waiting_since = None;
            self.pace.waited(wire.seen() - since, read as u64, limits);
            let consumed = self.find(&arrivals[..read], worker.shared.memory())?;
            input.extend(&arrivals[consumed..read]);
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Yields regularly, because a client that sends as fast as it is read must not block other connections of the core.
    async fn take_turns(&mut self) {
        if self.received_bytes - self.turn_began_bytes >= TURN_BYTES_MAX {
            self.turn_began_bytes = self.received_bytes;
            tokio::task::yield_now().await;
        }
    }

    fn pace_limits(&self) -> PaceLimits {
        match self.awaited {
            Awaited::Response | Awaited::NextRequest => self.limits.pace,
            Awaited::EndOfResponse => PaceLimits { stall_max: self.limits.answered_idle_max, rate_min: 0 },
        }
    }

    fn take(&mut self, input: &mut Input, worker: &Worker) -> Result<(), BodyProblem> {
        let consumed = self.find(input.filled(), worker.shared.memory())?;
        input.consume(consumed);
        Ok(())
    }

    /// Decodes all available bytes, and hands them over as one piece, because chunks may be tiny. Returns the number of bytes used.
    fn find(&mut self, arrived: &[u8], memory: &Arc<Budget>) -> Result<usize, BodyProblem> {
        let mut data = Vec::new();
        let mut consumed = 0;
        loop {
            let rest = &arrived[consumed..];
            let decoded = self.decoder.decode(rest)?;
            consumed += decoded.consumed();
            let Decoded::Data(range) = decoded else { break };
            self.count(range.len() as u64)?;
            if self.sender.is_some() {
                data.extend_from_slice(&rest[range]);
            }
        }
        self.hand_over(data, memory);
        Ok(consumed)
    }

    fn count(&mut self, bytes: u64) -> Result<(), BodyProblem> {
        self.received_bytes += bytes;
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| BodyProblem::Refused(Problem::request_body_too_large(self.limits.bytes_max)))?;
        Ok(())
    }

    /// Hands data over immediately if the channel has room, otherwise in the next step.
    fn hand_over(&mut self, data: Vec<u8>, memory: &Arc<Budget>) {
        let (Some(sender), false) = (&self.sender, data.is_empty()) else { return };
        let piece = match data.len() < UNCHARGED_PIECE_BYTES_MAX {
            true => Bytes::from(data),
            false => match memory.reserve(data.len()) {
                Ok(charge) => charge.hold(data),
                Err(OverBudget { .. }) => {
                    self.read_bytes_max = READ_BYTES_MIN;
                    Bytes::from(data)
                }
            },
        };
        match sender.room_at_once() {
            Some(room) => room.fill(piece),
            None => self.pending = Some(piece),
        }
    }

    fn finish(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        let trailers = trailers::of_lines(self.decoder.trailers());
        // The channel may be full; a connection with a response to send must not wait for it.
        tokio::spawn(async move { sender.finish(trailers).await });
    }
}
