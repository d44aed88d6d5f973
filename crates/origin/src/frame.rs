//! Pieces and framing of a body.

use bytes::Bytes;
use http::header::HeaderMap;

/// Framing of a response body: how its end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// No body: HEAD, 204, 304, 101.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunked, or an HTTP/2 stream without `Content-Length`: the end is marked.
    Chunked,
    /// Ends with the connection, so an early end may go unnoticed.
    CloseDelimited,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum BodyFrame {
    /// Content, not empty.
    Data(Bytes),
    /// Trailer section; the last piece.
    Trailers(HeaderMap),
}
