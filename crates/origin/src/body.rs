//! Response bodies: complete or an error, never silently short.

use std::task::{Context, Poll};

use tokio::time::timeout_at;

use super::admission::Pacing;
use super::error::OriginError;
use super::exchange::{Ending, Exchange, Watch};
use super::frame::{BodyFrame, BodyFraming};
use super::http1::Http1Body;
use super::http2::Http2Body;
use super::pool::Reuse;

/// A response body that is being received. Dropping it before its end closes the connection (HTTP/1) or resets the stream
/// (HTTP/2).
#[derive(Debug)]
pub struct OriginBody {
    source: Source,
    framing: BodyFraming,
    received_bytes: u64,
    /// Length from the head, where the framing does not tell it.
    expected_bytes: Option<u64>,
    /// Limit on the length.
    bytes_max: Option<u64>,
    exchange: Option<Exchange>,
    failed: Option<OriginError>,
}

#[derive(Debug)]
enum Source {
    Ended,
    Http1 { body: Http1Body, reuse: Reuse },
    Http2(Http2Body),
}

impl OriginBody {
    pub fn empty() -> Self {
        Self {
            source: Source::Ended,
            framing: BodyFraming::None,
            received_bytes: 0,
            expected_bytes: None,
            bytes_max: None,
            exchange: None,
            failed: None,
        }
    }

    /// Returns a body that is only announced: its content is delivered by other means.
    #[cfg(any(test, feature = "test-double"))]
    pub fn announced(bytes: u64) -> Self {
        Self { framing: BodyFraming::Length(bytes), ..Self::empty() }
    }

    pub(super) fn http1(body: Http1Body, framing: BodyFraming, reuse: Reuse, exchange: Exchange) -> Self {
        Self::started(Source::Http1 { body, reuse }, framing, exchange)
    }

    pub(super) fn http2(body: Http2Body, framing: BodyFraming, exchange: Exchange) -> Self {
        Self::started(Source::Http2(body), framing, exchange)
    }

    fn started(source: Source, framing: BodyFraming, exchange: Exchange) -> Self {
        let exchange = Some(exchange);
        let mut body = Self { source, framing, exchange, ..Self::empty() };
        if body.is_at_end() {
            body.finish();
        }
        body
    }

    /// Makes a body of any other length an error, whatever its framing says. To be called before the body is read.
    pub fn expect(&mut self, bytes: u64) {
        self.expected_bytes = Some(bytes);
        if self.is_over() && bytes > 0 {
            self.failed = Some(OriginError::BodyTruncated);
        }
    }

    /// Limits the length: more bytes are an error, at once if the framing announces them, otherwise when they arrive.
    ///
    /// # Errors
    /// [`OriginError::BodyTooLarge`].
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

    /// Framing of the body.
    #[must_use]
    pub fn framing(&self) -> BodyFraming {
        self.framing
    }

    /// Length of the body in bytes, if it was announced; 0 for responses without one.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        match self.framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked | BodyFraming::CloseDelimited => None,
        }
    }

    /// Whether the body has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.exchange.is_none()
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Moves the exchange from the requests in flight to the deliveries, if there is room. To be called while the client does not
    /// take the bytes that have arrived, before more are read.
    #[must_use]
    pub fn wait_for_client(&self) -> Pacing {
        self.exchange.as_ref().map_or(Pacing::Allowed, Exchange::wait_for_client)
    }

    /// Waits until a piece has been passed on, at most until the end of the time for the whole exchange; the next piece is then a
    /// time-out.
    pub async fn pass_on<T>(&self, passing: impl Future<Output = T>) -> Option<T> {
        match self.exchange.as_ref().and_then(|exchange| exchange.limits.total_at) {
            Some(total_at) => timeout_at(total_at, passing).await.ok(),
            None => Some(passing.await),
        }
    }

    /// Returns the next piece; `None` at the end of the body. Cancel safe.
    ///
    /// # Errors
    /// Time-outs, and [`OriginError::BodyTruncated`] when the body ends before it is complete. Later calls return the same error
    /// again.
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
                    let error = OriginError::protocol("a part that is longer than its Content-Range");
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

    /// Whether the end is known without another poll.
    fn is_at_end(&self) -> bool {
        let ended = match &self.source {
            Source::Ended => true,
            Source::Http1 { body, .. } => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        };
        ended && self.is_complete()
    }

    /// Whether a body that ends at this point is complete.
    //= RFC 9112 section 8: an incomplete response is recorded as incomplete
    //= RFC 9112 section 8: what the close ends is complete if its header section is
    fn is_complete(&self) -> bool {
        let is_as_expected = self.expected_bytes.is_none_or(|bytes| self.received_bytes == bytes);
        let is_framed = match self.framing {
            BodyFraming::Length(length) => self.received_bytes == length,
            BodyFraming::None | BodyFraming::Chunked | BodyFraming::CloseDelimited => true,
        };
        is_framed && is_as_expected
    }

    fn finish(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        if let Source::Http1 { body, reuse: Reuse::Allowed } =
            std::mem::replace(&mut self.source, Source::Ended)
            && self.framing != BodyFraming::CloseDelimited
        {
            exchange.pool.release(body.into_connection());
        }
    }

    fn fail(&mut self, error: OriginError) -> OriginError {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.pool.counters().count_error(&error);
            let watch = exchange.watch.take();
            watch.into_iter().for_each(|watch| watch.tell(ending(&error)));
        }
        if let (Source::Http2(body), OriginError::BetweenBytesTimeout) = (&self.source, &error) {
            body.suspect();
        }
        self.source = Source::Ended;
        self.failed = Some(error.clone());
        error
    }
}

/// Classifies the end of a body for its server. A body that is too large tells more about its URL than about the server. So may
/// one that is too slow, but a hanging server must not pass as healthy.
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
            Self::Http1 { body, .. } => body.poll_frame(cx),
            Self::Http2(body) => body.poll_frame(cx),
        }
    }
}
