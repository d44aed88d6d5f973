//! HTTP/1.1 towards an origin: one exchange at a time on hyper's client connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::Uri;
use http::{StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use tokio::runtime::{Handle, Id};

use super::body::{BodyFraming, OriginBody};
use super::connect::Stream;
use super::driver::{self, Drive};
use super::error::OriginError;
use super::exchange::{Exchange, Failure, Processing};
use super::message::{
    Interim, KeepAlive, OriginResponse, RequestBody, RequestHead, cause, remove_connection_fields,
};
use super::pool::Reuse;
use super::stats::Counters;
use super::timing::{HeadWait, Interims, Upload, UploadProgress};
use super::upgrade::UpgradeHandle;

/// Header field lines in a response.
pub(super) const FIELDS_MAX: usize = 200;
/// Head of a response, and read-ahead of its body.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// A connection that carries one exchange at a time.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<Upload>,
    drive: Drive,
    /// The runtime whose events move it.
    home: Id,
}

/// Whether a kept connection can carry the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The last exchange isn't quite over.
    Busy,
    Closed,
}

impl Http1Connection {
    /// Starts HTTP/1.1 on a stream.
    pub(super) async fn open(stream: Stream, counters: &Arc<Counters>) -> Result<Self, OriginError> {
        let (sender, connection) = Builder::new()
            //= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
            .allow_obsolete_multiline_headers_in_responses(true)
            //= RFC 9112 section 5.1: a proxy removes whitespace before the colon of a response's field
            .allow_spaces_after_header_name_in_responses(true)
            .max_headers(FIELDS_MAX)
            .max_header_size(BUFFER_BYTES_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| OriginError::ClosedBeforeResponse)?;
        let driven = async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "origin connection ended");
            }
        };
        let drive = Drive::new(Box::pin(driven), driver::opened(counters));
        Ok(Self { sender, drive, home: Handle::current().id() })
    }

    pub(super) fn home(&self) -> Id {
        self.home
    }

    /// Whether it can carry a request, by what has arrived on it until now.
    pub(super) fn readiness(&mut self) -> Readiness {
        self.drive.turn(&mut Context::from_waker(Waker::noop()));
        match () {
            () if self.sender.is_closed() || self.drive.is_over() => Readiness::Closed,
            () if self.sender.is_ready() => Readiness::Ready,
            () => Readiness::Busy,
        }
    }

    /// Polls a part of a response together with the connection that it arrives on.
    pub(super) fn poll_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        part: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.drive.poll_for(cx, part)
    }
}

/// Sends the request and waits for the response head.
pub(super) async fn exchange(
    mut connection: Http1Connection,
    head: &RequestHead,
    body: RequestBody,
    waiting: &mut HeadWait<'_>,
    exchange: Exchange,
) -> Result<OriginResponse, Failure> {
    let (upload, progress) = Upload::new(body);
    let request = request(head, upload, exchange.keep_alive(), waiting.interims());
    let mut response = pin!(connection.sender.try_send_request(request));
    let drive = &mut connection.drive;
    let brought = poll_fn(|cx| drive.poll_for(cx, |cx| response.as_mut().poll(cx)));
    let answer = waiting.head(brought, &progress).await;
    // The rest of the request goes on whether somebody reads the response or not.
    if !progress.is_over() {
        connection.drive.detach();
    }
    match answer {
        Err(late) => Err(Failure { error: late, body: None, processing: Processing::Possible }),
        Ok(Err(mut failed)) => {
            let unsent = failed.take_message().map(|request| request.into_body().body);
            let processing = if unsent.is_some() { Processing::Never } else { Processing::Possible };
            let error = classify(&failed.into_error(), &progress);
            Err(Failure { error, body: unsent, processing })
        }
        Ok(Ok(response)) => accept(response, head, connection, exchange).map_err(|error| Failure {
            error,
            body: None,
            processing: Processing::Possible,
        }),
    }
}

fn request(
    head: &RequestHead,
    upload: Upload,
    keep_alive: KeepAlive,
    interims: Arc<Interims>,
) -> http::Request<Upload> {
    let mut request = http::Request::new(upload);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = Uri::from(head.target.clone());
    *request.headers_mut() = head.http1_fields(keep_alive);
    hyper::ext::on_informational(&mut request, move |response| {
        interims.push(Interim::new(response.status(), response.headers().clone()));
    });
    request
}

fn classify(error: &hyper::Error, progress: &UploadProgress) -> OriginError {
    if progress.is_incomplete() {
        return OriginError::RequestBody;
    }
    if error.is_parse() {
        return OriginError::Protocol(cause(error));
    }
    OriginError::ClosedBeforeResponse
}

/// Turns hyper's response into ours.
fn accept(
    mut response: http::Response<Incoming>,
    head: &RequestHead,
    connection: Http1Connection,
    exchange: Exchange,
) -> Result<OriginResponse, OriginError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return accept_upgrade(response, head, connection, exchange);
    }
    let reason = Some(take_reason(&mut response));
    let (parts, incoming) = response.into_parts();
    let mut fields = parts.headers;
    let transfer = transfer_coding(&fields);
    let framing = framing(&head.method, parts.status, &fields, transfer);
    normalize_length(&mut fields, framing, transfer);
    remove_connection_fields(&mut fields);
    let keep = match (transfer, exchange.keep_alive(), parts.version) {
        (
            TransferCoding::None | TransferCoding::Chunked,
            KeepAlive::On,
            Version::HTTP_10 | Version::HTTP_11,
        ) => Reuse::Allowed,
        _ => Reuse::Forbidden,
    };
    Ok(OriginResponse {
        status: parts.status,
        reason,
        version: parts.version,
        fields,
        body: OriginBody::http1(incoming, framing, connection, keep, exchange),
        upgraded: None,
        unknown_transfer_coding: transfer == TransferCoding::Unknown,
    })
}

//= RFC 9110 section 15.2.2: 101 only answers a request that asked for an upgrade
fn accept_upgrade(
    mut response: http::Response<Incoming>,
    head: &RequestHead,
    mut connection: Http1Connection,
    exchange: Exchange,
) -> Result<OriginResponse, OriginError> {
    if head.upgrade.is_none() {
        return Err(OriginError::protocol("101 without a request for an upgrade"));
    }
    let on_upgrade = hyper::upgrade::on(&mut response);
    connection.drive.detach();
    let protocol = response.headers().get(header::UPGRADE).cloned();
    let (parts, _) = response.into_parts();
    let mut fields = parts.headers;
    remove_connection_fields(&mut fields);
    if let Some(protocol) = protocol {
        fields.insert(header::UPGRADE, protocol);
    }
    Ok(OriginResponse {
        status: parts.status,
        reason: None,
        version: parts.version,
        fields,
        body: OriginBody::empty(),
        upgraded: Some(UpgradeHandle::new(on_upgrade, exchange)),
        unknown_transfer_coding: false,
    })
}

/// The reason phrase as it came. hyper leaves it out where it is the one that its own table has, which is not always
/// the registered one (413), and gives an empty one in place of bytes beyond ASCII.
fn take_reason<B>(response: &mut http::Response<B>) -> Bytes {
    let own = response.extensions_mut().remove::<ReasonPhrase>();
    let usual = || response.status().canonical_reason().unwrap_or_default();
    own.map_or_else(|| Bytes::from_static(usual().as_bytes()), |own| Bytes::copy_from_slice(own.as_bytes()))
}

/// What `Transfer-Encoding` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferCoding {
    None,
    Chunked,
    /// Chunked and `Content-Length`: a hint at response smuggling. The connection isn't used again.
    ChunkedWithLength,
    /// Another coding, alone or under chunked: its content can't be understood.
    Unknown,
}

fn transfer_coding(fields: &HeaderMap) -> TransferCoding {
    let mut lines = fields.get_all(header::TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => TransferCoding::None,
        (Some(only), None) if only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            if fields.contains_key(header::CONTENT_LENGTH) {
                TransferCoding::ChunkedWithLength
            } else {
                TransferCoding::Chunked
            }
        }
        _ => TransferCoding::Unknown,
    }
}

//= RFC 9112 section 6.3: message body length of a response
fn framing(
    method: &http::Method,
    status: StatusCode,
    fields: &HeaderMap,
    transfer: TransferCoding,
) -> BodyFraming {
    if *method == http::Method::HEAD || matches!(status.as_u16(), 204 | 304) {
        return BodyFraming::None;
    }
    match transfer {
        TransferCoding::Chunked | TransferCoding::ChunkedWithLength => BodyFraming::Chunked,
        //= RFC 9112 section 6.3: a response whose final coding is not chunked ends with the connection
        TransferCoding::Unknown => {
            let mut lines = fields.get_all(header::TRANSFER_ENCODING).iter();
            let last = lines.next_back().map_or(&b""[..], |line| line.as_bytes());
            let coding = last.rsplit(|byte| *byte == b',').next().unwrap_or(last).trim_ascii();
            if coding.eq_ignore_ascii_case(b"chunked") {
                BodyFraming::Chunked
            } else {
                BodyFraming::CloseDelimited
            }
        }
        TransferCoding::None => {
            //= RFC 9112 section 6.3: a response ended by the close of the connection
            content_length(fields).map_or(BodyFraming::CloseDelimited, BodyFraming::Length)
        }
    }
}

/// The first of what hyper has found to be equal numbers.
pub(super) fn content_length(fields: &HeaderMap) -> Option<u64> {
    let line = fields.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    line.split(',').next()?.trim().parse().ok()
}

/// One `Content-Length` line with one number, and none beside a transfer coding.
//= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
//= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
fn normalize_length(fields: &mut HeaderMap, framing: BodyFraming, transfer: TransferCoding) {
    if transfer != TransferCoding::None {
        fields.remove(header::CONTENT_LENGTH);
    } else if let BodyFraming::Length(length) = framing
        && !is_one_number(fields, length)
    {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
}

fn is_one_number(fields: &HeaderMap, length: u64) -> bool {
    let mut lines = fields.get_all(header::CONTENT_LENGTH).iter();
    let first = lines.next().map(HeaderValue::as_bytes);
    first == Some(itoa::Buffer::new().format(length).as_bytes()) && lines.next().is_none()
}
