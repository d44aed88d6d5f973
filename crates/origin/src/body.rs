//! Response bodies, and the exchange around each: complete or an error, never silently short.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use h2::RecvStream;
use http1::{BodyDecoder, Decoded, ResponseFraming};
use message::trailers;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::admission::{Held, Pacing, Permit};
use super::error::OriginError;
use super::http1::Http1Connection;
use super::http2::StreamSlot;
use super::pool::{Pool, Reuse};
use super::request_body::BodyFrame;
use super::stats::Working;
use super::timing::Limits;

/// A response body that is being received. Dropping it before its end closes the connection (HTTP/1) or resets the stream
/// (HTTP/2).
#[derive(Debug)]
pub struct OriginBody {
    source: Source,
    framing: ResponseFraming,
    received_bytes: u64,
    /// Length from the head, if the framing does not imply it.
    expected_bytes: Option<u64>,
    /// Maximum length in bytes.
    bytes_max: Option<u64>,
    exchange: Option<Exchange>,
    failed: Option<OriginError>,
}

/// Source of the bytes of a body that have not been read yet.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most are HTTP/1, and a box would cost an allocation for each response"
)]
pub(super) enum Source {
    Ended,
    Http1(Http1Body),
    Http2(Http2Body),
}

/// A body on an HTTP/1 connection.
#[derive(Debug)]
pub(super) struct Http1Body {
    pub(super) connection: Http1Connection,
    /// `None` if the body ends with the connection.
    pub(super) decoder: Option<BodyDecoder>,
    pub(super) reuse: Reuse,
}

/// The receiving half of an HTTP/2 stream.
#[derive(Debug)]
pub(super) struct Http2Body {
    pub(super) receive: RecvStream,
    pub(super) slot: StreamSlot,
    /// Task that sends the request body; aborted when the exchange is dropped.
    pub(super) _upload: Option<JoinSet<()>>,
}

/// Resources of an exchange, held until the response body has ended.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) pool: Arc<Pool>,
    pub(super) limits: Limits,
    pub(super) permit: Option<Arc<Permit>>,
    /// `None` for a health check, which isn't counted as a request.
    pub(super) working: Option<Working>,
    pub(super) watch: Option<Watch>,
}

impl Exchange {
    /// Ends the exchange, and returns its entry among the tunnels.
    pub(super) fn into_tunnel(self) -> Option<(Held, Option<Working>)> {
        Some((self.permit?.take_tunnel()?, self.working))
    }
}

/// Callback for the end of a response's content.
pub(super) struct Watch {
    tell: Box<dyn Fn(Ending) + Send + Sync>,
    ending: Ending,
}

/// End of a response's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The content arrived in full, or the rest was not needed.
    Fine,
    /// The origin cut it short, or framed it wrongly.
    Broken,
    /// The rest did not arrive in time.
    Late,
}

impl Watch {
    pub(super) fn new(tell: impl Fn(Ending) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), ending: Ending::Fine }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        (self.tell)(self.ending);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl OriginBody {
    pub fn empty() -> Self {
        Self {
            source: Source::Ended,
            framing: ResponseFraming::None,
            received_bytes: 0,
            expected_bytes: None,
            bytes_max: None,
            exchange: None,
            failed: None,
        }
    }

    /// Returns a body that has a length but no content; the caller delivers the content by other means.
    #[cfg(any(test, feature = "test-double"))]
    pub fn announced(bytes: u64) -> Self {
        Self { framing: ResponseFraming::Length(bytes), ..Self::empty() }
    }

    pub(super) fn started(source: Source, framing: ResponseFraming, exchange: Exchange) -> Self {
        let exchange = Some(exchange);
        let mut body = Self { source, framing, exchange, ..Self::empty() };
        if body.is_at_end() {
            body.finish();
        }
        body
    }

    /// Requires a body of exactly `bytes` bytes, regardless of its framing. Any other length is an error. Call this before the
    /// body is read.
    pub fn expect(&mut self, bytes: u64) {
        self.expected_bytes = Some(bytes);
        if self.is_over() && bytes > 0 {
            self.failed = Some(OriginError::BodyTruncated);
        }
    }

    /// Limits the length: more bytes are an error, immediately if the framing announces them, otherwise when they arrive.
    ///
    /// # Errors
    /// [`OriginError::BodyTooLarge`], if the framing announces more bytes.
    pub fn limit(&mut self, bytes_max: u64) -> Result<(), OriginError> {
        self.bytes_max = Some(bytes_max);
        match self.content_length() {
            Some(bytes) if bytes > bytes_max => Err(self.fail(OriginError::BodyTooLarge { bytes_max })),
            _ => Ok(()),
        }
    }

    /// Reports the end of the body to `watch`, unless it has already ended.
    pub(super) fn watch(&mut self, watch: Watch) {
        if let Some(exchange) = &mut self.exchange {
            exchange.watch = Some(watch);
        }
    }

    /// Returns the framing of the body.
    #[must_use]
    pub fn framing(&self) -> ResponseFraming {
        self.framing
    }

    /// Returns the length of the body in bytes, if it was announced; 0 for responses without a body.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        match self.framing {
            ResponseFraming::None => Some(0),
            ResponseFraming::Length(length) => Some(length),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
        }
    }

    /// Returns whether the body has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.exchange.is_none()
    }

    /// Returns the number of bytes received so far.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Moves the exchange from the requests in flight to the deliveries, if there is room. Call this while the client does not
    /// accept the bytes that have arrived, before reading more.
    #[must_use]
    pub fn wait_for_client(&self) -> Pacing {
        let permit = self.exchange.as_ref().and_then(|exchange| exchange.permit.as_ref());
        permit.map_or(Pacing::Allowed, |permit| permit.wait_for_client())
    }

    /// Waits until a piece has been passed on, but no longer than the time limit of the whole exchange. After that limit,
    /// [`Self::frame`] returns a time-out.
    pub async fn pass_on<T>(&self, passing: impl Future<Output = T>) -> Option<T> {
        match self.exchange.as_ref().and_then(|exchange| exchange.limits.total_at) {
            Some(total_at) => timeout_at(total_at, passing).await.ok(),
            None => Some(passing.await),
        }
    }

    /// Returns the next piece; `None` at the end of the body. Cancel safe.
    ///
    /// # Errors
    /// Time-outs, and [`OriginError::BodyTruncated`] if the body ends before it is complete. Later calls return the same error.
    pub async fn frame(&mut self) -> Option<Result<BodyFrame, OriginError>> {
        if let Some(error) = &self.failed {
            return Some(Err(error.clone()));
        }
        let limits = self.exchange.as_ref()?.limits;
        let next = limits.next_piece(std::future::poll_fn(|cx| self.source.poll_frame(cx))).await;
        match next {
            Ok(Some(Ok(frame))) => self.received(frame),
            Ok(None) if self.is_complete() => {
                self.finish();
                None
            }
            Ok(None) => Some(Err(self.fail(OriginError::BodyTruncated))),
            Ok(Some(Err(error))) | Err(error) => Some(Err(self.fail(error))),
        }
    }

    fn received(&mut self, frame: BodyFrame) -> Option<Result<BodyFrame, OriginError>> {
        match &frame {
            BodyFrame::Data(data) => {
                self.received_bytes += data.len() as u64;
                if self.expected_bytes.is_some_and(|bytes| self.received_bytes > bytes) {
                    let error = OriginError::protocol("a part longer than its Content-Range");
                    return Some(Err(self.fail(error)));
                }
                if let Some(bytes_max) = self.bytes_max.filter(|bytes_max| self.received_bytes > *bytes_max) {
                    return Some(Err(self.fail(OriginError::BodyTooLarge { bytes_max })));
                }
                if self.is_at_end() {
                    self.finish();
                }
            }
            BodyFrame::Trailers(_) if self.is_complete() => self.finish(),
            BodyFrame::Trailers(_) => return Some(Err(self.fail(OriginError::BodyTruncated))),
        }
        Some(Ok(frame))
    }

    /// Returns whether the end is known without another poll.
    fn is_at_end(&self) -> bool {
        let ended = match &self.source {
            Source::Ended => true,
            Source::Http1(body) => body.decoder.as_ref().is_some_and(BodyDecoder::is_complete),
            Source::Http2(body) => body.receive.is_end_stream(),
        };
        ended && self.is_complete()
    }

    /// Returns whether a body that ends at this point is complete.
    //= RFC 9112 section 8: an incomplete response is recorded as incomplete
    //= RFC 9112 section 8: what the close ends is complete if its header section is
    fn is_complete(&self) -> bool {
        let is_as_expected = self.expected_bytes.is_none_or(|bytes| self.received_bytes == bytes);
        let is_framed = match self.framing {
            ResponseFraming::Length(length) => self.received_bytes == length,
            ResponseFraming::None | ResponseFraming::Chunked | ResponseFraming::UntilClose => true,
        };
        is_framed && is_as_expected
    }

    fn finish(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        if let Source::Http1(Http1Body { connection, reuse: Reuse::Allowed, .. }) =
            std::mem::replace(&mut self.source, Source::Ended)
            && self.framing != ResponseFraming::UntilClose
        {
            exchange.pool.release(connection);
        }
    }

    fn fail(&mut self, error: OriginError) -> OriginError {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.pool.counters.count_error(&error);
            exchange.watch.iter_mut().for_each(|watch| watch.ending = ending(&error));
        }
        if let (Source::Http2(body), OriginError::BetweenBytesTimeout) = (&self.source, &error) {
            body.slot.suspect();
        }
        self.source = Source::Ended;
        self.failed = Some(error.clone());
        error
    }
}

/// Classifies the failure of a body, to judge its server. A body that is too large is the fault of its URL rather than of the
/// server. A slow body may be too, but a hanging server must not pass as healthy.
fn ending(error: &OriginError) -> Ending {
    match error {
        OriginError::BodyTruncated | OriginError::Protocol(_) => Ending::Broken,
        OriginError::BetweenBytesTimeout | OriginError::TotalTimeout => Ending::Late,
        _ => Ending::Fine,
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, OriginError>>> {
        match self {
            Self::Ended => Poll::Ready(None),
            Self::Http1(body) => body.poll_frame(cx),
            Self::Http2(body) => body.poll_frame(cx),
        }
    }
}

/// Next step for the received bytes.
enum Step {
    Piece(BodyFrame),
    NeedMore,
    End,
}

impl Http1Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, OriginError>>> {
        loop {
            match self.step() {
                Ok(Step::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::NeedMore) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            match ready!(self.connection.poll_fill(cx)) {
                Ok(1..) => {}
                //= RFC 9112 section 8: what the close ends is complete if its header section is
                Ok(0) if self.decoder.is_none() => return Poll::Ready(None),
                //= RFC 9112 section 8: an incomplete response is recorded as incomplete
                Ok(0) | Err(_) => return Poll::Ready(Some(Err(OriginError::BodyTruncated))),
            }
        }
    }

    fn step(&mut self) -> Result<Step, OriginError> {
        let connection = &mut self.connection;
        let arrived = connection.input.len();
        let Some(decoder) = &mut self.decoder else {
            return Ok(match arrived {
                0 => Step::NeedMore,
                bytes => Step::Piece(BodyFrame::Data(connection.take(bytes))),
            });
        };
        let decoded = decoder.decode(&connection.input).map_err(|_| OriginError::BodyTruncated)?;
        let Decoded::Data(range) = decoded else {
            connection.input.advance(decoded.consumed());
            let Decoded::End { .. } = decoded else { return Ok(Step::NeedMore) };
            let trailers = trailers::of_lines(decoder.trailers()).map(BodyFrame::Trailers);
            return Ok(trailers.map_or(Step::End, Step::Piece));
        };
        connection.input.advance(range.start);
        Ok(Step::Piece(BodyFrame::Data(connection.take(range.len()))))
    }
}

impl Http2Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, OriginError>>> {
        while let Some(data) = ready!(self.receive.poll_data(cx)) {
            let Ok(data) = data else { return Poll::Ready(Some(Err(OriginError::BodyTruncated))) };
            // This fails only if the stream has ended, which the next poll reports.
            let _ = self.receive.flow_control().release_capacity(data.len());
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
            }
        }
        let trailers = ready!(self.receive.poll_trailers(cx)).map_err(|_| OriginError::BodyTruncated);
        Poll::Ready(trailers.map(|trailers| trailers.map(BodyFrame::Trailers)).transpose())
    }
}
