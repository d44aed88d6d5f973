//! HTTP/2 towards an origin: many exchanges on one connection, with the `h2` crate.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::Version;
use http::header::{self, HeaderMap, HeaderName};
use http::uri::{Authority, Parts, Uri};
use http1::ResponseFraming;
use message::fields::map_lines;
use message::head::Nominations;
use message::trailers;
use tokio::task::JoinSet;

use super::body::{Exchange, Http2Body, OriginBody, Source};
use super::error::{OriginError, cause};
use super::http2::{StreamSlot, broken};
use super::request::RequestHead;
use super::request_body::{BodyFrame, RequestBody, RequestBodyIncomplete};
use super::response::{EndToEnd, Failure, OriginResponse, Processing};
use super::timing::{Asking, HeadWait, Interim, UploadProgress};
use crate::settings::FIELDS_MAX;

/// Sends the request and waits for the response head.
pub(super) async fn run(
    slot: StreamSlot,
    head: &RequestHead<'_>,
    body: RequestBody,
    waiting: &mut HeadWait<'_>,
    exchange: Exchange,
) -> Result<Box<OriginResponse>, Failure> {
    let possible = |error| Failure { error, body: None, processing: Processing::Possible };
    let request = request(head).map_err(possible)?;
    let (response, stream) = match open_stream(&slot, request, &body).await {
        Ok(opened) => opened,
        Err(error) => return Err(Failure { error, body: Some(body), processing: Processing::Never }),
    };
    let progress = Arc::new(UploadProgress::of(&body));
    let announced = head.announced_trailers();
    let upload = (!body.is_end_stream()).then(|| {
        let mut upload = JoinSet::new();
        upload.spawn(send_body(stream, body, announced, Arc::clone(&progress)));
        upload
    });
    match waiting.head(&mut Conversation { response, progress: Arc::clone(&progress) }).await {
        Err(late) => {
            if late == OriginError::FirstByteTimeout {
                slot.suspect();
            }
            Err(possible(late))
        }
        Ok(Err(error)) => Err(failed(&error, &progress)),
        Ok(Ok(response)) => accept(response, head, slot, upload, exchange).map_err(possible),
    }
}

//= RFC 9113 section 8.3.1: request pseudo-header fields
fn request(head: &RequestHead<'_>) -> Result<http::Request<()>, OriginError> {
    let authority = Authority::try_from(head.authority.as_bytes())
        .map_err(|_| OriginError::invalid_request("characters in the authority"))?;
    let mut parts = Parts::default();
    parts.scheme = Some(head.request.scheme.clone());
    parts.authority = Some(authority);
    let target = head.target.parse().map_err(|_| OriginError::invalid_request("characters in the target"))?;
    parts.path_and_query = Some(target);
    let uri = Uri::from_parts(parts).map_err(|_| OriginError::invalid_request("target"))?;
    let mut request = http::Request::new(());
    *request.method_mut() = head.request.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = head.http2_fields();
    Ok(request)
}

/// Opens the stream. An error means that nothing was sent.
async fn open_stream(
    slot: &StreamSlot,
    request: http::Request<()>,
    body: &RequestBody,
) -> Result<(ResponseFuture, SendStream<Bytes>), OriginError> {
    let mut sender = slot.sender();
    poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|_| OriginError::ClosedBeforeResponse)?;
    sender.send_request(request, body.is_end_stream()).map_err(|error| {
        if error.is_go_away() || error.is_io() {
            OriginError::ClosedBeforeResponse
        } else {
            OriginError::InvalidRequest(cause(&error))
        }
    })
}

/// An exchange that waits for its response head.
struct Conversation {
    response: ResponseFuture,
    progress: Arc<UploadProgress>,
}

impl Asking for Conversation {
    type Head = Result<http::Response<RecvStream>, h2::Error>;

    fn progress(&self) -> &UploadProgress {
        &self.progress
    }

    /// h2 discards an interim response that is still queued when the final response is polled, so the final response is
    /// polled only when no interim response can precede it.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        on_interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Poll<Self::Head> {
        while let Some(interim) = ready!(self.response.poll_informational(cx)) {
            let (parts, ()) = interim?.into_parts();
            let fields = EndToEnd::WithoutLength.of(Nominations::Some, || map_lines(&parts.headers));
            on_interim(Interim { status: parts.status, fields });
        }
        Pin::new(&mut self.response).poll(cx)
    }
}

fn failed(error: &h2::Error, progress: &UploadProgress) -> Failure {
    let (error, processing) = match error {
        error if is_refusal(error) => (OriginError::StreamRefused, Processing::Never),
        _ if progress.is_incomplete() => (OriginError::RequestBody, Processing::Possible),
        error => (broken(error), Processing::Possible),
    };
    Failure { error, body: None, processing }
}

//= RFC 9113 section 8.7: REFUSED_STREAM and streams above GOAWAY's last identifier were not processed
fn is_refusal(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_refused || error.is_go_away())
}

fn accept(
    response: http::Response<RecvStream>,
    head: &RequestHead<'_>,
    slot: StreamSlot,
    upload: Option<JoinSet<()>>,
    exchange: Exchange,
) -> Result<Box<OriginResponse>, OriginError> {
    let (parts, receive) = response.into_parts();
    let fields = parts.headers;
    if fields.len() > FIELDS_MAX {
        return Err(OriginError::protocol("too many fields"));
    }
    let bodyless = head.request.method == http::Method::HEAD || matches!(parts.status.as_u16(), 204 | 304);
    let framing = match content_length(&fields) {
        _ if bodyless => ResponseFraming::None,
        Some(length) => ResponseFraming::Length(length),
        None if receive.is_end_stream() => ResponseFraming::Length(0),
        None => ResponseFraming::Chunked,
    };
    let body = Source::Http2(Http2Body { receive, slot, _upload: upload });
    Ok(Box::new(OriginResponse {
        status: parts.status,
        reason: None,
        version: parts.version,
        fields: EndToEnd::AsTheyAre.of(Nominations::Some, || map_lines(&fields)),
        body: OriginBody::started(body, framing, exchange),
        upgraded: None,
        unknown_transfer_coding: false,
    }))
}

/// Returns the value of `Content-Length`; h2 has checked that it is one number.
fn content_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Sends the request body as flow control allows. Failures to send aren't reported, because the response shows them.
async fn send_body(
    mut stream: SendStream<Bytes>,
    mut body: RequestBody,
    announced: Vec<HeaderName>,
    progress: Arc<UploadProgress>,
) {
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| {
            let polled = body.poll_frame(cx);
            progress.note(&polled, &body);
            polled
        });
        let sent = match frame.await {
            None => break,
            Some(Err(RequestBodyIncomplete)) => return stream.send_reset(Reason::CANCEL),
            Some(Ok(BodyFrame::Data(data))) => send_data(&mut stream, data).await,
            Some(Ok(BodyFrame::Trailers(trailers))) => match trailers::announced(trailers, &announced) {
                Some(trailers) => return drop(stream.send_trailers(trailers)),
                None => break,
            },
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
}

/// Sends all of a piece; an error means that the stream has ended.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(capacity) => capacity?,
            None => return Err(Reason::CANCEL.into()),
        };
        stream.send_data(data.split_to(capacity.min(data.len())), false)?;
    }
    Ok(())
}
