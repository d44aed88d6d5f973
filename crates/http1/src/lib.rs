//! An HTTP/1.0 and HTTP/1.1 codec: requests for a server, responses for a client. Pure: no IO, no clock, no allocation
//! for a message without trailers and folded lines.
//!
//! It determines the start and end of each request, its target and authority, and whether its bytes are a valid
//! request. It never decides about the response, never decodes or normalises a path, never drops or joins field lines,
//! and keeps no state from one request to the next.
//!
//! - [`HeadScanner`] finds the end of a head in a growing buffer and returns the [`Head`]; [`parse_head`] does both in
//!   one call.
//! - [`BodyDecoder`] finds the data of the body that [`Head::framing`] announces.
//! - [`ResponseReader`] reads the head of a response; [`BodyDecoder::of_response`] finds the data of its body.
//! - [`encode`] writes response heads, interim responses and chunks.
//! - [`Authority`] implements the grammar of hosts; [`proxy_protocol`] parses the header that a load balancer sends
//!   first.
//!
//! A gateway needs features that HTTP libraries hide from a server: interim responses on demand, a 408 for slow heads,
//! the exact target, and refusal of ambiguous framing. Hence this codec.
//!
//! `httparse` tokenizes names and values; the rules below are Larder's own, and stricter. A request that two parsers
//! interpret differently can smuggle another request past the first, so ambiguous requests are refused and the
//! connection closes. Each refusal is a [`RequestError`] or [`BodyError`] with its status and a stable reason.
//!
//! The codec refuses these, although the RFCs allow a server to accept them:
//!
//! | refused | reason |
//! |---|---|
//! | a line that ends in LF alone, in the head, a chunk line or a trailer (RFC 9112 2.2) | others see no line end |
//! | obsolete line folding (5.2) | others see two fields |
//! | both Content-Length and Transfer-Encoding (6.3) | others use the other field |
//! | several Content-Length values, even equal ones (6.3) | no honest client needs them |
//! | an absolute-form target whose authority differs from Host (3.2.2) | others use Host |
//! | HTTP/1.2 to HTTP/1.9 (2.3) | its framing would be a guess |
//! | `#` or bytes outside visible ASCII in the target (3.2) | others cut it there |
//! | percent-encoding or sub-delimiters (comma) in a host (RFC 9110 4.2) | others decode or split |
//! | an expectation other than 100-continue (RFC 9110 10.1.1) | the client relies on it |
//!
//! Refused, as the RFCs demand: whitespace before a colon, at the start of a line or around the parts of the request
//! line; names that are not tokens; control bytes; no Host or several in HTTP/1.1; targets of the wrong form for their
//! method; Transfer-Encoding in HTTP/1.0; any transfer coding but one final `chunked`; Content-Length that is not plain
//! digits; chunk sizes that are not plain hexadecimal digits; chunk data without its CRLF.
//!
//! The codec accepts one empty line before the request line; any method that is a token; a body with any method;
//! visible ASCII in targets that should be percent-encoded (`|`, `{`, `"`), because browsers send it; bytes above 127
//! in field values; empty elements in `Connection`, `TE` and `Expect`, but not in `Transfer-Encoding`; chunk extensions
//! and trailers within their limits.
//!
//! Responses are parsed more leniently: the operator chose their servers, only this reader interprets them, and some
//! servers are old. Fields that determine the end of a response are interpreted as in RFC 9112 6.3; see
//! [`ResponseReader`].
//!
//! ```
//! use http1::{BodyDecoder, Decoded, EMPTY_LINE, Framing, HeadScanner, Limits};
//!
//! let limits = Limits::default();
//! let buf = b"POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
//! let mut lines = [EMPTY_LINE; 100];
//! let head = HeadScanner::default().parse(buf, &limits, &mut lines)?.expect("a complete head");
//! assert_eq!((head.path_and_query, head.framing), ("/a?b", Framing::Chunked));
//!
//! let mut rest = &buf[head.bytes..];
//! let mut body = BodyDecoder::new(head.framing, &limits);
//! let mut data = Vec::new();
//! loop {
//!     let decoded = body.decode(rest)?;
//!     match &decoded {
//!         Decoded::Data(range) => data.extend_from_slice(&rest[range.clone()]),
//!         Decoded::NeedMore { .. } => unreachable!("the body is complete"),
//!         Decoded::End { .. } => break,
//!     }
//!     rest = &rest[decoded.consumed()..];
//! }
//! assert_eq!(data, b"hi");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod authority;
mod body;
mod chunk_line;
pub mod encode;
mod error;
mod fields;
mod framing;
mod head;
mod limits;
pub mod proxy_protocol;
mod request_line;
mod response;
mod scan;
mod status;
mod trailers;

pub use authority::Authority;
pub use body::{BodyDecoder, Decoded};
pub use error::{BodyError, RequestError, ResponseError};
pub use fields::{EMPTY_LINE, FieldLine, elements, is_field_value, is_token};
pub use framing::{Framing, Persistence, is_end_to_end};
pub use head::Head;
pub use limits::{Limits, METHOD_BYTES_MAX};
pub use request_line::{Scheme, TargetForm, Version};
pub use response::{Asked, Input, LineSpace, ResponseFraming, ResponseHead, ResponseReader, TransferCoding};
pub use scan::{HeadScanner, parse_head};
pub use status::reason_phrase;
pub use trailers::is_forbidden_trailer;
