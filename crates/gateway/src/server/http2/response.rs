//! A response in HTTP/2 form.

use caching::{CacheName, CacheStatus};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use origin::Interim;

use crate::request::reply::{HeadSink, Length, Reply};
use crate::server::Wanted;

/// Whether data frames follow the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    Data,
}

/// Maximum number of lines added by the gateway: `Age`, `Cache-Status`, `X-Cache` and `Content-Length`.
const MADE_LINES_MAX: usize = 4;

/// A head under construction.
#[derive(Clone, Default)]
pub(super) struct Http2Head {
    status: StatusCode,
    fields: HeaderMap,
}

impl HeadSink for Http2Head {
    fn status(&mut self, status: u16, _reason: Option<&[u8]>) {
        self.status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        // The parser has already refused invalid lines.
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) else { return };
        if !is_connection_specific(&name) {
            self.fields.append(name, value);
        }
    }

    fn cache_status(&mut self, status: &CacheStatus<'_>, cache: &CacheName) {
        let mut value = Vec::with_capacity(64);
        status.write(cache, &mut value);
        self.field("cache-status", &value);
    }
}

impl Http2Head {
    pub(super) fn of(reply: &Reply, cache: &CacheName) -> Self {
        let fields = HeaderMap::with_capacity(reply.lines_max() + MADE_LINES_MAX);
        let mut head = Self { status: StatusCode::OK, fields };
        reply.write_head(&mut head, cache);
        if let Length::Known(bytes) = reply.length {
            head.content_length(bytes);
        }
        head
    }

    pub(super) fn content_length(&mut self, bytes: u64) {
        self.fields.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    }

    pub(super) fn into_response(self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.fields;
        response
    }
}

/// Returns whether data follows the head of a reply.
pub(super) fn follows(length: Length, wanted: Wanted) -> Follows {
    match (length, wanted) {
        (_, Wanted::HeadOnly) | (Length::None | Length::Known(0), _) => Follows::Nothing,
        (Length::Known(_) | Length::Unknown, Wanted::HeadAndBody) => Follows::Data,
    }
}

pub(super) fn interim(interim: &Interim) -> Response<()> {
    let mut head = Http2Head::default();
    head.status(interim.status.as_u16(), None);
    interim.fields.lines().for_each(|(name, value)| head.field(name, value));
    head.into_response()
}

//= RFC 9110 section 15.2.1: 100 tells a client that waits to send its content
pub(super) fn go_on() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    response
}

//= RFC 9113 section 8.2.2: connection-specific fields are not sent
fn is_connection_specific(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 9113 section 8.2.2: connection-specific fields are not sent
    #[test]
    fn connection_specific_fields_are_left_out() {
        let mut head = Http2Head::default();
        head.status(200, Some(b"Fine"));
        for name in [
            "Connection",
            "Keep-Alive",
            "Transfer-Encoding",
            "Upgrade",
            "Proxy-Connection",
            "X-Kept",
            "x-kept",
        ] {
            head.field(name, b"v");
        }
        let response = head.into_response();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers().keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-kept"]);
        assert_eq!(response.headers().len(), 2);
    }

    #[test]
    fn what_follows_a_head() {
        for (length, wanted, expected) in [
            (Length::Known(3), Wanted::HeadAndBody, Follows::Data),
            (Length::Known(3), Wanted::HeadOnly, Follows::Nothing),
            (Length::Known(0), Wanted::HeadAndBody, Follows::Nothing),
            (Length::Unknown, Wanted::HeadAndBody, Follows::Data),
            (Length::Unknown, Wanted::HeadOnly, Follows::Nothing),
            (Length::None, Wanted::HeadAndBody, Follows::Nothing),
        ] {
            assert_eq!(follows(length, wanted), expected, "{length:?} {wanted:?}");
        }
    }
}
