//! A response body that is being received.

use std::task::{Context, Poll, ready};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http1::{BodyDecoder, Decoded};

use super::super::error::OriginError;
use super::super::frame::BodyFrame;
use super::connection::Http1Connection;

#[derive(Debug)]
pub(crate) struct Http1Body {
    connection: Http1Connection,
    /// `None` if the body ends with the connection.
    decoder: Option<BodyDecoder>,
}

/// Next step with the bytes at hand.
enum Step {
    Piece(BodyFrame),
    NeedMore,
    End,
}

impl Http1Body {
    pub(crate) fn new(connection: Http1Connection, decoder: Option<BodyDecoder>) -> Self {
        Self { connection, decoder }
    }

    /// Whether the whole body was read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.decoder.as_ref().is_some_and(BodyDecoder::is_complete)
    }

    pub(crate) fn into_connection(self) -> Http1Connection {
        self.connection
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, OriginError>>> {
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
        let arrived = self.connection.input().len();
        let Some(decoder) = &mut self.decoder else {
            return Ok(match arrived {
                0 => Step::NeedMore,
                bytes => Step::Piece(BodyFrame::Data(self.connection.take(bytes))),
            });
        };
        let decoded = decoder.decode(self.connection.input()).map_err(|_| OriginError::BodyTruncated)?;
        Ok(match decoded {
            Decoded::Data(range) => {
                self.connection.consume(range.start);
                Step::Piece(BodyFrame::Data(self.connection.take(range.len())))
            }
            Decoded::NeedMore { consumed } => {
                self.connection.consume(consumed);
                Step::NeedMore
            }
            Decoded::End { consumed } => {
                self.connection.consume(consumed);
                trailers(decoder).map_or(Step::End, |trailers| Step::Piece(BodyFrame::Trailers(trailers)))
            }
        })
    }
}

fn trailers(decoder: &BodyDecoder) -> Option<HeaderMap> {
    let mut trailers = HeaderMap::new();
    for (name, value) in decoder.trailers() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            trailers.append(name, value);
        }
    }
    (!trailers.is_empty()).then_some(trailers)
}
