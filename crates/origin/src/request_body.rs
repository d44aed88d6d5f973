//! The content of a request, from the client's connection to the origin's.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::HeaderMap;
use store::{Budget, Charge};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::OriginError;
use crate::settings::UNCHARGED_PIECE_BYTES_MAX;

/// Content of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// No content.
    Empty,
    /// All content, in memory.
    Full(Bytes),
    /// Arrives piece by piece from a [`RequestBodySender`].
    Channel(ChannelBody),
}

/// A piece of a body, of a request or of a response.
#[derive(Clone, Debug)]
pub enum BodyFrame {
    /// Content, not empty.
    Data(Bytes),
    /// Trailer section; the last piece.
    Trailers(HeaderMap),
}

/// The receiving end of a request body that arrives piece by piece.
#[derive(Debug)]
pub struct ChannelBody {
    parts: mpsc::Receiver<BodyPart>,
    /// A piece that was read and then returned by its reader; the next read gets it first.
    unread: Option<Bytes>,
    /// Bytes received ahead, after `unread`, in one buffer, because a piece may be a single byte.
    arrived: BytesMut,
    charge: Option<Charge>,
    /// Trailers received ahead.
    trailers: Option<HeaderMap>,
    remaining_bytes: Option<u64>,
    state: ChannelState,
}

/// How much of a body has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Whole,
    Partial,
}

/// Result of reading a body to its end.
#[derive(Debug)]
pub enum Gathered {
    /// The whole body. Trailers are discarded.
    Whole(Bytes),
    /// The body is larger than `bytes_max`, or too large for the budget. It contains all bytes that were read.
    TooLarge(RequestBody),
    /// The body was cut short.
    Incomplete,
}

/// The sending end of a request body. Dropping it without [`RequestBodySender::finish`] marks the body as incomplete: the forward
/// is then aborted, never ended as if it were complete.
#[derive(Debug)]
pub struct RequestBodySender {
    parts: mpsc::Sender<BodyPart>,
}

/// A permit to send one piece of a request body.
#[derive(Debug)]
pub struct Room<'a>(mpsc::Permit<'a, BodyPart>);

/// Error: the forward no longer reads the request body, so the rest is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body is no longer read")]
pub struct RequestBodyClosed;

/// The request body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body is incomplete")]
pub struct RequestBodyIncomplete;

#[derive(Debug)]
enum BodyPart {
    Data(Bytes),
    End(Option<HeaderMap>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelState {
    Open,
    Ended,
}

impl RequestBody {
    /// Creates a body that arrives through the sender, at most `parts_max` pieces ahead. It is sent with `Content-Length` if
    /// `length_bytes` is given, and otherwise in chunks.
    #[must_use]
    pub fn channel(parts_max: usize, length_bytes: Option<u64>) -> (RequestBodySender, Self) {
        let (sender, parts) = mpsc::channel(parts_max.max(1));
        let body = ChannelBody {
            parts,
            unread: None,
            arrived: BytesMut::new(),
            charge: None,
            trailers: None,
            remaining_bytes: length_bytes,
            state: ChannelState::Open,
        };
        (RequestBodySender { parts: sender }, Self::Channel(body))
    }

    /// Reads the body to its end, if at most `bytes_max` bytes are left and `memory` has room for them.
    pub async fn gather(self, bytes_max: u64, memory: &Arc<Budget>) -> Gathered {
        match self {
            Self::Empty => Gathered::Whole(Bytes::new()),
            Self::Full(bytes) if bytes.len() as u64 <= bytes_max => Gathered::Whole(bytes),
            Self::Channel(channel) if channel.remaining_bytes.is_none_or(|bytes| bytes <= bytes_max) => {
                channel.gather(bytes_max, memory).await
            }
            body @ (Self::Full(_) | Self::Channel(_)) => Gathered::TooLarge(body),
        }
    }

    /// Waits until the whole body or more than `bytes_max` of it has arrived, or the time has passed.
    ///
    /// # Errors
    /// If the body is cut short.
    pub(super) async fn arrive(
        &mut self,
        bytes_max: usize,
        at_most: Duration,
        memory: Option<&Arc<Budget>>,
    ) -> Result<Arrival, OriginError> {
        let Self::Channel(channel) = self else { return Ok(Arrival::Whole) };
        if channel.is_whole() {
            return Ok(Arrival::Whole);
        }
        // On the heap, so that the future stays small: most requests are complete by now.
        match Box::pin(timeout(at_most, channel.arrive(bytes_max, memory))).await {
            Ok(arrival) => arrival.map_err(|RequestBodyIncomplete| OriginError::RequestBody),
            Err(_) => Ok(Arrival::Partial),
        }
    }

    /// Returns a copy for a retry, if the whole body is in memory.
    pub(super) fn replay(&mut self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(bytes) => Some(Self::Full(bytes.clone())),
            Self::Channel(channel) => channel.replay().map(Self::Full),
        }
    }

    /// Returns the number of bytes left to send, if it was announced or all of them have arrived. A body with trailers is sent in
    /// chunks, because only chunked framing has a place for them.
    pub(super) fn length_bytes(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Full(bytes) => Some(bytes.len() as u64),
            Self::Channel(channel) => channel.length_bytes(),
        }
    }

    /// Returns whether the body has no more pieces.
    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Channel(channel) => {
                channel.is_whole() && channel.unread.is_none() && channel.has_nothing_ahead()
            }
        }
    }

    /// Returns the next piece; `None` at the end.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(BodyFrame::Data(bytes))))
            }
            Self::Channel(channel) => channel.poll_part(cx),
        }
    }

    /// Takes back a piece that was read but not used.
    pub(super) fn give_back(&mut self, data: Bytes) {
        match self {
            _ if data.is_empty() => {}
            Self::Empty | Self::Full(_) => *self = Self::Full(data),
            Self::Channel(channel) => {
                debug_assert!(channel.unread.is_none(), "one piece is read at a time");
                channel.unread = Some(data);
            }
        }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl RequestBodySender {
    /// Passes on a piece, waiting while the origin is slower than the client.
    ///
    /// # Errors
    /// If the forward has ended.
    pub async fn send_data(&mut self, data: Bytes) -> Result<(), RequestBodyClosed> {
        self.parts.send(BodyPart::Data(data)).await.map_err(|_| RequestBodyClosed)
    }

    /// Waits for room for a piece. The call may be cancelled and repeated.
    ///
    /// # Errors
    /// If the forward has ended.
    pub async fn room(&self) -> Result<Room<'_>, RequestBodyClosed> {
        self.parts.reserve().await.map(Room).map_err(|_| RequestBodyClosed)
    }

    /// Returns room for a piece, if there is room now.
    pub fn room_at_once(&self) -> Option<Room<'_>> {
        self.parts.try_reserve().ok().map(Room)
    }

    /// Ends the body. A chunked HTTP/1 request sends only the trailers that its `Trailer` field names.
    ///
    /// # Errors
    /// If the forward has ended.
    pub async fn finish(self, trailers: Option<HeaderMap>) -> Result<(), RequestBodyClosed> {
        self.parts.send(BodyPart::End(trailers)).await.map_err(|_| RequestBodyClosed)
    }

    /// Resolves when the forward no longer reads the body.
    pub async fn closed(&self) {
        self.parts.closed().await;
    }
}

impl Room<'_> {
    pub fn fill(self, data: Bytes) {
        self.0.send(BodyPart::Data(data));
    }
}

impl ChannelBody {
    async fn gather(mut self, bytes_max: u64, memory: &Arc<Budget>) -> Gathered {
        match self.arrive(usize::try_from(bytes_max).unwrap_or(usize::MAX), Some(memory)).await {
            Ok(Arrival::Whole) if self.arrived.len() as u64 <= bytes_max => {
                Gathered::Whole(self.take_arrived())
            }
            Ok(Arrival::Whole | Arrival::Partial) => Gathered::TooLarge(RequestBody::Channel(self)),
            Err(RequestBodyIncomplete) => Gathered::Incomplete,
        }
    }

    /// Waits until the whole body or more than `bytes_max` of it has arrived. The call may be cancelled and repeated.
    async fn arrive(
        &mut self,
        bytes_max: usize,
        memory: Option<&Arc<Budget>>,
    ) -> Result<Arrival, RequestBodyIncomplete> {
        while !self.is_whole() {
            if self.arrived.len() > bytes_max || !self.is_charged(memory) {
                return Ok(Arrival::Partial);
            }
            match poll_fn(|cx| self.poll_next(cx)).await {
                Some(Ok(BodyFrame::Data(data))) => self.arrived.extend_from_slice(&data),
                Some(Ok(BodyFrame::Trailers(trailers))) => self.trailers = Some(trailers),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        Ok(Arrival::Whole)
    }

    /// Charges the received bytes to `memory`, and returns whether it had room.
    fn is_charged(&mut self, memory: Option<&Arc<Budget>>) -> bool {
        let Some(budget) = memory else { return true };
        // The capacity is charged, because it may be larger than the content.
        let bytes = self.arrived.capacity();
        match &mut self.charge {
            None if bytes < UNCHARGED_PIECE_BYTES_MAX => true,
            None => {
                self.charge = budget.reserve(bytes).ok();
                self.charge.is_some()
            }
            Some(charge) if charge.bytes() >= bytes => true,
            Some(charge) => charge.grow(bytes - charge.bytes()).is_ok(),
        }
    }

    /// Returns the whole body if it arrived before anything was read. The copy shares its bytes.
    fn replay(&mut self) -> Option<Bytes> {
        if !self.is_whole() || self.unread.is_some() || self.trailers.is_some() {
            return None;
        }
        if self.arrived.is_empty() {
            return Some(Bytes::new());
        }
        let bytes = self.take_arrived();
        self.unread = Some(bytes.clone());
        Some(bytes)
    }

    /// Takes the received bytes; they stay charged until they are dropped.
    fn take_arrived(&mut self) -> Bytes {
        let arrived = std::mem::take(&mut self.arrived);
        match self.charge.take() {
            Some(charge) => charge.hold(arrived),
            None => arrived.freeze(),
        }
    }

    fn length_bytes(&self) -> Option<u64> {
        let is_over = self.state == ChannelState::Ended && self.trailers.is_none();
        let to_come = match self.remaining_bytes {
            None if is_over => 0,
            remaining_bytes => remaining_bytes?,
        };
        let unread_bytes = self.unread.as_ref().map_or(0, Bytes::len) + self.arrived.len();
        Some(unread_bytes as u64 + to_come)
    }

    /// Returns whether there is nothing left to receive.
    fn is_whole(&self) -> bool {
        self.state == ChannelState::Ended || self.remaining_bytes == Some(0)
    }

    fn has_nothing_ahead(&self) -> bool {
        self.arrived.is_empty() && self.trailers.is_none()
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        if let Some(data) = self.unread.take() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
        }
        if !self.arrived.is_empty() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(self.take_arrived()))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(BodyFrame::Trailers(trailers))));
        }
        self.poll_next(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        if self.state == ChannelState::Ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(part) = self.parts.poll_recv(cx) else { return Poll::Pending };
        Poll::Ready(match part {
            Some(BodyPart::Data(data)) => Some(self.take_data(data)),
            Some(BodyPart::End(trailers)) if self.remaining_bytes.unwrap_or(0) == 0 => {
                self.state = ChannelState::Ended;
                trailers.map(|trailers| Ok(BodyFrame::Trailers(trailers)))
            }
            Some(BodyPart::End(_)) | None => Some(Err(RequestBodyIncomplete)),
        })
    }

    fn take_data(&mut self, data: Bytes) -> Result<BodyFrame, RequestBodyIncomplete> {
        if let Some(remaining_bytes) = &mut self.remaining_bytes {
            *remaining_bytes = remaining_bytes.checked_sub(data.len() as u64).ok_or(RequestBodyIncomplete)?;
        }
        Ok(BodyFrame::Data(data))
    }
}
