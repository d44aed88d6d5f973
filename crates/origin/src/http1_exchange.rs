//! HTTP/1.1 towards an origin: one exchange at a time on a connection.
//!
//! The task that waits for the response polls the exchange, which has no separate task or channel. The head is written together
//! with the first piece of the body. A response head is parsed in place in the input buffer, and the pieces of the body are cut
//! off it.

use std::borrow::Cow;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::StatusCode;
use http1::{
    Asked, BodyDecoder, Input, Limits, LineSpace, Persistence, ResponseError, ResponseFraming, ResponseHead,
    ResponseReader, TransferCoding,
};
use message::fields::PackedFields;
use message::head::Nominations;

use super::body::{Exchange, Http1Body, OriginBody, Source};
use super::error::OriginError;
use super::pool::Reuse;
use super::request::{Binding, KeepAlive, RequestFraming, RequestHead};
use super::request_body::RequestBody;
use super::response::{EndToEnd, Failure, OriginResponse, OriginTunnel, Processing};
use super::timing::{Asking, HeadWait, Interim, UploadProgress};
use crate::settings::{FIELDS_MAX, HEAD_BYTES_MAX};

use super::http1::{Http1Connection, Sending, Sent};

const LIMITS: Limits = Limits {
    head_bytes_max: HEAD_BYTES_MAX,
    target_bytes_max: 0,
    fields_max: FIELDS_MAX,
    chunk_extension_bytes_max: 16 * 1024,
    trailer_bytes_max: 128 * 1024,
};

/// An exchange that waits for its response head.
struct Conversation {
    connection: Http1Connection,
    sending: Sending,
    reader: ResponseReader,
    asked: Asked,
    content: Content,
    binding: Binding,
    interim_count: u64,
}

/// How an origin may treat the content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    None,
    /// The method gives content no meaning, so the origin may not expect any.
    Meaningless,
    Meaningful,
}

impl Content {
    fn of(head: &RequestHead<'_>) -> Self {
        match head.framing {
            RequestFraming::Bodyless | RequestFraming::Length(0) => Self::None,
            _ if matches!(head.request.method.as_str(), "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE") => {
                Self::Meaningless
            }
            RequestFraming::Length(_) | RequestFraming::Unknown => Self::Meaningful,
        }
    }

    /// Returns whether the origin may have answered without reading the content. It would then parse the unread content as the
    /// next request, and the response to that would reach another client. There is no certain sign. The content may be unread
    /// if the origin answers before it has arrived, refuses or redirects the request, or expects no content.
    fn may_be_unread(self, status: StatusCode, sent: Option<Sent>) -> bool {
        match self {
            Self::None => false,
            Self::Meaningless => true,
            Self::Meaningful => sent != Some(Sent::Whole) || !status.is_success(),
        }
    }
}

/// A parsed response head, in its own memory.
struct Received {
    status: StatusCode,
    reason: Bytes,
    version: http::Version,
    /// End-to-end fields.
    fields: PackedFields,
    /// Value of `Upgrade`.
    upgrade: Option<Vec<u8>>,
    framing: ResponseFraming,
    coding: TransferCoding,
    persistence: Persistence,
}

/// Sends the request and waits for the response head.
pub(super) async fn run(
    connection: Http1Connection,
    head: &RequestHead<'_>,
    body: RequestBody,
    waiting: &mut HeadWait<'_>,
    exchange: Exchange,
) -> Result<Box<OriginResponse>, Failure> {
    let mut conversation = Conversation {
        connection,
        sending: Sending::new(head, body, exchange.pool.keep_alive()),
        reader: ResponseReader::default(),
        asked: if head.request.method == http::Method::HEAD { Asked::Head } else { Asked::Content },
        content: Content::of(head),
        binding: head.binding,
        interim_count: 0,
    };
    let possible = |error| Failure { error, body: None, processing: Processing::Possible };
    match waiting.head(&mut conversation).await {
        Err(late) => Err(possible(late)),
        Ok(Err(error)) => Err(conversation.failed(error)),
        Ok(Ok(received)) if received.status == StatusCode::SWITCHING_PROTOCOLS => {
            accept_upgrade(received, head, conversation, exchange).map_err(possible)
        }
        Ok(Ok(received)) => Ok(accept(received, conversation, exchange)),
    }
}

impl Asking for Conversation {
    type Head = Result<Received, OriginError>;

    fn progress(&self) -> &UploadProgress {
        self.sending.progress()
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        on_interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Poll<Self::Head> {
        match self.connection.poll_send(&mut self.sending, cx) {
            Poll::Ready(Sent::Incomplete) => return Poll::Ready(Err(OriginError::RequestBody)),
            Poll::Ready(Sent::Broken) if self.sending.is_unsent() => {
                return Poll::Ready(Err(OriginError::ClosedBeforeResponse));
            }
            // An origin that has stopped reading may still have answered.
            Poll::Ready(Sent::Broken | Sent::Whole) | Poll::Pending => {}
        }
        loop {
            let interim_count = self.interim_count;
            if let Some(received) = self.received(Input::Open, on_interim)? {
                return Poll::Ready(Ok(received));
            }
            // Yield, so that an origin that sends without a pause can't prevent time-outs.
            if self.interim_count > interim_count {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(self.connection.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    let last = self.received(Input::Ended, on_interim).transpose();
                    return Poll::Ready(last.unwrap_or(Err(OriginError::ClosedBeforeResponse)));
                }
            }
        }
    }
}

impl Conversation {
    /// Returns the final response head, if it has arrived. Interim responses before it are passed on.
    fn received(
        &mut self,
        input: Input,
        on_interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Option<Received>, OriginError> {
        while !self.connection.input.is_empty() {
            let mut space = LineSpace::default();
            let arrived = &self.connection.input;
            let read = self.reader.read(arrived, input, self.asked, &LIMITS, &mut space).map_err(refused)?;
            let Some(head) = read else { return Ok(None) };
            let bytes = head.bytes;
            let malformed = |_| refused(ResponseError::MalformedStatusLine);
            let status = StatusCode::from_u16(head.status).map_err(malformed)?;
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                on_interim(Interim {
                    status,
                    fields: EndToEnd::WithoutLength.of(nominations(&head), || head.lines()),
                });
                self.reader = ResponseReader::default();
                self.connection.input.advance(bytes);
                self.interim_count += 1;
                continue;
            }
            let received = Received::new(status, &head);
            self.connection.input.advance(bytes);
            return Ok(Some(received));
        }
        Ok(None)
    }

    fn failed(self, error: OriginError) -> Failure {
        if self.sending.is_unsent() && error == OriginError::ClosedBeforeResponse {
            let body = Some(self.sending.into_unsent_body());
            return Failure { error, body, processing: Processing::Never };
        }
        Failure { error, body: None, processing: Processing::Possible }
    }
}

fn nominations(head: &ResponseHead<'_, '_>) -> Nominations {
    if head.nominates_fields { Nominations::Some } else { Nominations::None }
}

fn refused(error: ResponseError) -> OriginError {
    OriginError::Protocol(error.to_string().into())
}

impl Received {
    fn new(status: StatusCode, head: &ResponseHead<'_, '_>) -> Self {
        let kind = match (head.transfer_coding, head.framing) {
            (TransferCoding::None, ResponseFraming::Length(bytes)) => EndToEnd::WithLength(bytes),
            (TransferCoding::None, _) => EndToEnd::AsTheyAre,
            _ => EndToEnd::WithoutLength,
        };
        Self {
            status,
            reason: reason(head.reason),
            version: match head.version {
                http1::Version::Http10 => http::Version::HTTP_10,
                http1::Version::Http11 => http::Version::HTTP_11,
            },
            fields: kind.of(nominations(head), || head.lines()),
            upgrade: match status {
                StatusCode::SWITCHING_PROTOCOLS => head.values("upgrade").next().map(Cow::into_owned),
                _ => None,
            },
            framing: head.framing,
            coding: head.transfer_coding,
            persistence: head.persistence,
        }
    }

    fn reuse(&self, exchange: &Exchange, asked: (Content, Binding), sent: Option<Sent>) -> Reuse {
        let (content, binding) = asked;
        let is_bound = [binding, Binding::of_response(&self.fields)].contains(&Binding::Exchange);
        if is_bound || content.may_be_unread(self.status, sent) {
            return Reuse::Forbidden;
        }
        match (self.coding, exchange.pool.keep_alive(), self.persistence, sent) {
            (
                TransferCoding::None | TransferCoding::Chunked,
                KeepAlive::On,
                Persistence::KeepAlive,
                None | Some(Sent::Whole),
            ) => Reuse::Allowed,
            _ => Reuse::Forbidden,
        }
    }
}

/// Returns the phrase as received. Common phrases are static.
fn reason(phrase: &str) -> Bytes {
    match phrase {
        "OK" => Bytes::from_static(b"OK"),
        "Not Found" => Bytes::from_static(b"Not Found"),
        "Not Modified" => Bytes::from_static(b"Not Modified"),
        other => Bytes::copy_from_slice(other.as_bytes()),
    }
}

/// Builds the response, whose body continues the exchange.
fn accept(received: Received, conversation: Conversation, exchange: Exchange) -> Box<OriginResponse> {
    let Conversation { mut connection, sending, content, binding, .. } = conversation;
    let sent = sending.outcome();
    let reuse = received.reuse(&exchange, (content, binding), sent);
    // The rest of the request is sent even if the response isn't read.
    if sent.is_none() {
        connection.share(sending);
    }
    let decoder = BodyDecoder::of_response(received.framing, &LIMITS);
    let body = Source::Http1(Http1Body { connection, decoder, reuse });
    Box::new(OriginResponse {
        status: received.status,
        reason: Some(received.reason),
        version: received.version,
        fields: received.fields,
        body: OriginBody::started(body, received.framing, exchange),
        upgraded: None,
        unknown_transfer_coding: received.coding == TransferCoding::Unknown,
    })
}

//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
//= RFC 9110 section 15.2.2: 101 only answers a request that asked for an upgrade
fn accept_upgrade(
    mut received: Received,
    head: &RequestHead<'_>,
    conversation: Conversation,
    exchange: Exchange,
) -> Result<Box<OriginResponse>, OriginError> {
    let Some(offered) = &head.request.upgrade else {
        return Err(OriginError::protocol("101 without a request for an upgrade"));
    };
    let is_offered = |chosen: &[u8]| chosen.trim_ascii().eq_ignore_ascii_case(offered.as_bytes());
    if !received.upgrade.as_deref().is_some_and(is_offered) {
        return Err(OriginError::protocol("101 with a protocol that was not offered"));
    }
    if conversation.sending.outcome() != Some(Sent::Whole) {
        return Err(OriginError::protocol("101 before the end of the request"));
    }
    let Some((io, early)) = conversation.connection.into_parts() else {
        return Err(OriginError::ClosedBeforeResponse);
    };
    let Some(held) = exchange.into_tunnel() else { return Err(OriginError::TunnelsFull) };
    if let Some(protocol) = &received.upgrade {
        received.fields.push("upgrade", protocol);
    }
    Ok(Box::new(OriginResponse {
        status: received.status,
        reason: None,
        version: received.version,
        fields: received.fields,
        body: OriginBody::empty(),
        upgraded: Some(Box::new(OriginTunnel { io, early: early.into(), _held: held })),
        unknown_transfer_coding: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_may_be_unread() {
        use Content::{Meaningful, Meaningless, None as Without};
        let check = |content: Content, status: u16, sent: Option<Sent>, expected: bool| {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(content.may_be_unread(status, sent), expected, "{content:?} {status} {sent:?}");
        };
        let whole = Some(Sent::Whole);
        for status in [200, 204, 301, 404, 500] {
            check(Without, status, whole, false);
            check(Meaningless, status, whole, true);
            for sent in [None, Some(Sent::Broken), Some(Sent::Incomplete)] {
                check(Meaningful, status, sent, true);
            }
        }
        for (status, may_be_unread) in
            [(200, false), (201, false), (204, false), (303, true), (404, true), (413, true), (500, true)]
        {
            check(Meaningful, status, whole, may_be_unread);
        }
    }
}
