//! Pieces of a body, and how its end is told.

use bytes::Bytes;
use http::header::HeaderMap;

/// How the end of a response body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none: HEAD, 204, 304, 101.
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
