//! A request body on its way from the client's connection to the origin.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http1::{BodyDecoder, BodyError, Decoded, Framing, Limits};
use tokio::time::Instant;

use crate::config::ClientLimits;
use crate::server::pace::Pace;
use crate::server::wire::{Input, Stream, Wire, WireError};
use crate::upstream::RequestBodySender;

/// The reason of a client that left before there was a response.
pub(super) const CLIENT_CLOSED: &str = "client-closed";

/// Why a request body can't be read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyProblem {
    /// Malformed framing: 400.
    #[error(transparent)]
    Malformed(#[from] BodyError),
    /// More than the configured limit: 413.
    #[error("the request body is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    /// The client stopped sending (408) or left.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl BodyProblem {
    /// What the client is told, if it is still there.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Malformed(_) => Some(400),
            Self::TooLarge { .. } => Some(413),
            Self::Wire(WireError::TimedOut) => Some(408),
            Self::Wire(_) => None,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(error) => error.reason(),
            Self::TooLarge { .. } => "request-body-too-large",
            Self::Wire(WireError::TimedOut) => "request-body-timeout",
            Self::Wire(_) => CLIENT_CLOSED,
        }
    }
}

/// Moves a request body piece by piece. Each step may be dropped and taken again: nothing is lost.
pub(super) struct BodyPump {
    decoder: BodyDecoder,
    sender: Option<RequestBodySender>,
    pending: Option<Bytes>,
    bytes_left: u64,
    bytes_max: u64,
    received_bytes: u64,
    pace: Pace,
    /// Since when the client is waited for.
    waiting_since: Option<Instant>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    More,
    /// The body is complete, or nobody reads it any more.
    Done,
}

impl BodyPump {
    pub(super) fn new(
        framing: Framing,
        codec: &Limits,
        bytes_max: u64,
        sender: Option<RequestBodySender>,
    ) -> Self {
        Self {
            decoder: BodyDecoder::new(framing, codec),
            sender,
            pending: None,
            bytes_left: bytes_max,
            bytes_max,
            received_bytes: 0,
            pace: Pace::default(),
            waiting_since: None,
        }
    }

    /// Whether all of the body has been read from the connection.
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
        limits: &ClientLimits,
    ) -> Result<Pumped, BodyProblem> {
        if let (Some(data), Some(sender)) = (&self.pending, &mut self.sender) {
            // The piece stays pending until it is taken, so that dropping this step loses nothing.
            let taken = sender.send_data(data.clone()).await;
            self.pending = None;
            if taken.is_err() {
                self.sender = None;
            }
            return Ok(Pumped::More);
        }
        self.pending = None;
        match self.decoder.decode(input.filled())? {
            Decoded::Data(range) => {
                self.take(&input.filled()[range.clone()])?;
                input.consume(range.end);
                Ok(Pumped::More)
            }
            Decoded::End { consumed } => {
                input.consume(consumed);
                self.finish();
                Ok(Pumped::Done)
            }
            Decoded::NeedMore { consumed } => {
                input.consume(consumed);
                let now = Instant::now();
                let since = *self.waiting_since.get_or_insert(now);
                let patience = self.pace.patience(limits.body_pace());
                wire.allow(patience.saturating_sub(now - since));
                let read = wire.read(input).await?;
                self.waiting_since = None;
                self.pace.waited(wire.seen() - since, read as u64, limits.body_pace());
                Ok(Pumped::More)
            }
        }
    }

    /// The client had no chance to send: nobody looked.
    pub(super) fn waits_anew(&mut self) {
        self.waiting_since = None;
    }

    fn take(&mut self, data: &[u8]) -> Result<(), BodyProblem> {
        let bytes = data.len() as u64;
        self.received_bytes += bytes;
        self.bytes_left =
            self.bytes_left.checked_sub(bytes).ok_or(BodyProblem::TooLarge { bytes_max: self.bytes_max })?;
        if self.sender.is_some() {
            self.pending = Some(Bytes::copy_from_slice(data));
        }
        Ok(())
    }

    fn finish(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        let trailers = self.trailers();
        // The channel may be full; the connection must not wait for that while it has a response to send.
        tokio::spawn(async move { sender.finish(trailers).await });
    }

    fn trailers(&self) -> Option<HeaderMap> {
        let mut map = HeaderMap::new();
        for (name, value) in self.decoder.trailers() {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
            {
                map.append(name, value);
            }
        }
        (!map.is_empty()).then_some(map)
    }
}
