//! HTTP/2 towards an origin: many exchanges on one connection, with the `h2` crate.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::Version;
use http::header::{self, HeaderMap};
use http::uri::{Authority, Parts, Uri};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::body::{BodyFrame, BodyFraming, OriginBody};
use super::connect::Stream;
use super::driver::{self, DriverState};
use super::error::OriginError;
use super::exchange::{Exchange, Failure, Processing};
use super::http1::FIELDS_MAX;
use super::message::{
    EndToEnd, Interim, Nominations, OriginResponse, RequestBody, RequestBodyIncomplete, RequestHead, cause,
};
use super::stats::Counters;
use super::timing::{Asking, HeadWait, UploadProgress};
use crate::fields::map_lines;

/// Flow-control window of one response body: what an origin may send ahead of a slow reader. It is memory, so the requests
/// in flight bound it: 256 MiB for 1024 of them that nobody reads. At 20 ms to the origin it is 12 MiB/s for each body.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Flow-control window of a connection: all that there can be. The windows of the streams bound what it holds; a smaller
/// one would be used up by readers that do not read, and others on the connection would wait for them.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Streams of a connection, so that their windows never add up to more than its own.
const STREAMS_MAX: usize = (CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES) as usize;
/// Header section of a response, by the count of RFC 9113 section 10.5.1.
const FIELD_SECTION_BYTES_MAX: u32 = 128 * 1024;

/// A connection that carries many exchanges.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    driver: Arc<DriverState>,
    active: AtomicUsize,
    /// Set when the peer stopped answering: a dead connection must not swallow request after request.
    suspect: AtomicBool,
    opened_at: Instant,
    idle_since: Mutex<Instant>,
}

/// A place for one exchange on a connection; given back on drop.
#[derive(Debug)]
pub(super) struct StreamSlot {
    connection: Arc<Http2Connection>,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(super) struct Http2Body {
    receive: RecvStream,
    state: ReceiveState,
    slot: StreamSlot,
    _upload: Option<UploadTask>,
}

#[derive(Debug, PartialEq, Eq)]
enum ReceiveState {
    Data,
    Trailers,
}

/// Stops sending the request body when the exchange is given up.
#[derive(Debug)]
struct UploadTask(AbortHandle);

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Http2Connection {
    /// Starts HTTP/2 on a stream.
    pub(super) async fn open(stream: Stream, counters: &Arc<Counters>) -> Result<Arc<Self>, OriginError> {
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(FIELD_SECTION_BYTES_MAX)
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(|_| OriginError::ClosedBeforeResponse)?;
        let driven = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "origin connection ended");
            }
        };
        Ok(Arc::new(Self {
            sender,
            driver: driver::spawn(Box::pin(driven), driver::opened(counters)),
            active: AtomicUsize::new(0),
            suspect: AtomicBool::new(false),
            opened_at: Instant::now(),
            idle_since: Mutex::new(Instant::now()),
        }))
    }

    /// Whether new streams may be opened: false after GOAWAY, an error, or a time-out.
    pub(super) fn is_usable(&self) -> bool {
        if self.suspect.load(Ordering::Relaxed) || self.driver.is_over() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        !matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// A place within the peer's limit on concurrent streams (RFC 9113 section 5.1.2).
    pub(super) fn reserve(self: &Arc<Self>) -> Option<StreamSlot> {
        let streams_max = self.sender.current_max_send_streams().min(STREAMS_MAX);
        self.active
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |active| {
                (active < streams_max).then_some(active + 1)
            })
            .ok()?;
        Some(StreamSlot { connection: Arc::clone(self) })
    }

    /// The opener's own place. The peer's limit isn't known yet; h2 holds the stream back if it is lower.
    pub(super) fn reserve_first(self: &Arc<Self>) -> StreamSlot {
        self.active.fetch_add(1, Ordering::AcqRel);
        StreamSlot { connection: Arc::clone(self) }
    }

    pub(super) fn is_idle_for(&self, now: Instant, limit: Duration) -> bool {
        self.active.load(Ordering::Acquire) == 0 && now.duration_since(*self.idle_since.lock()) >= limit
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.connection.idle_since.lock() = Instant::now();
        self.connection.active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends the request and waits for the response head.
pub(super) async fn exchange(
    slot: StreamSlot,
    head: &RequestHead,
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
    let upload = (!body.is_end_stream())
        .then(|| UploadTask(tokio::spawn(send_body(stream, body, Arc::clone(&progress))).abort_handle()));
    match waiting.head(&mut Conversation { response, progress: Arc::clone(&progress) }).await {
        Err(late) => {
            if late == OriginError::FirstByteTimeout {
                slot.connection.suspect.store(true, Ordering::Relaxed);
            }
            Err(possible(late))
        }
        Ok(Err(error)) => {
            Err(Failure { processing: processing(&error), error: classify(&error, &progress), body: None })
        }
        Ok(Ok(response)) => accept(response, head, slot, upload, exchange).map_err(possible),
    }
}

//= RFC 9113 section 8.3.1: request pseudo-header fields
fn request(head: &RequestHead) -> Result<http::Request<()>, OriginError> {
    let authority = Authority::try_from(head.authority.as_bytes())
        .map_err(|_| OriginError::invalid_request("characters in the authority"))?;
    let mut parts = Parts::default();
    parts.scheme = Some(head.scheme.clone());
    parts.authority = Some(authority);
    let target = head.target.parse().map_err(|_| OriginError::invalid_request("characters in the target"))?;
    parts.path_and_query = Some(target);
    let uri = Uri::from_parts(parts).map_err(|_| OriginError::invalid_request("target"))?;
    let mut request = http::Request::new(());
    *request.method_mut() = head.method.clone();
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
    let mut sender = slot.connection.sender.clone();
    poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|_| OriginError::ClosedBeforeResponse)?;
    sender.send_request(request, body.is_end_stream()).map_err(|error| {
        if error.is_go_away() || error.is_io() {
            OriginError::ClosedBeforeResponse
        } else {
            OriginError::InvalidRequest(cause(&error))
        }
    })
}

/// An exchange whose response head is waited for.
struct Conversation {
    response: ResponseFuture,
    progress: Arc<UploadProgress>,
}

impl Asking for Conversation {
    type Head = Result<http::Response<RecvStream>, h2::Error>;

    fn progress(&self) -> &UploadProgress {
        &self.progress
    }

    /// h2 drops an interim response that is still queued when the final one is asked for, so that happens only once no
    /// interim response can be ahead.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        on_interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Poll<Self::Head> {
        while let Some(interim) = ready!(self.response.poll_informational(cx)) {
            let (parts, ()) = interim?.into_parts();
            let fields = EndToEnd::WithoutLength.of(Nominations::Possible, || map_lines(&parts.headers));
            on_interim(Interim { status: parts.status, fields });
        }
        Pin::new(&mut self.response).poll(cx)
    }
}

fn processing(error: &h2::Error) -> Processing {
    //= RFC 9113 section 8.7: REFUSED_STREAM and streams above GOAWAY's last identifier were not processed
    let refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
    let above_last = error.is_go_away() && error.is_remote();
    if refused || above_last { Processing::Never } else { Processing::Possible }
}

fn classify(error: &h2::Error, progress: &UploadProgress) -> OriginError {
    if progress.is_incomplete() {
        return OriginError::RequestBody;
    }
    if error.is_library() { OriginError::Protocol(cause(error)) } else { OriginError::ClosedBeforeResponse }
}

fn accept(
    response: http::Response<RecvStream>,
    head: &RequestHead,
    slot: StreamSlot,
    upload: Option<UploadTask>,
    exchange: Exchange,
) -> Result<Box<OriginResponse>, OriginError> {
    let (parts, receive) = response.into_parts();
    let fields = parts.headers;
    if fields.len() > FIELDS_MAX {
        return Err(OriginError::protocol("too many fields"));
    }
    let bodyless = head.method == http::Method::HEAD || matches!(parts.status.as_u16(), 204 | 304);
    let framing = match content_length(&fields) {
        _ if bodyless => BodyFraming::None,
        Some(length) => BodyFraming::Length(length),
        None if receive.is_end_stream() => BodyFraming::Length(0),
        None => BodyFraming::Chunked,
    };
    let body = Http2Body { receive, state: ReceiveState::Data, slot, _upload: upload };
    Ok(Box::new(OriginResponse {
        status: parts.status,
        reason: None,
        version: parts.version,
        fields: EndToEnd::AsTheyAre.of(Nominations::Possible, || map_lines(&fields)),
        body: OriginBody::http2(body, framing, exchange),
        upgraded: None,
        unknown_transfer_coding: false,
    }))
}

impl Http2Body {
    pub(super) fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }

    /// No new streams on this connection: its peer stopped answering.
    pub(super) fn suspect(&self) {
        self.slot.connection.suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, OriginError>>> {
        while self.state == ReceiveState::Data {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Fails only when the stream is gone, which the next poll tells.
                    let _ = self.receive.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(OriginError::BodyTruncated))),
                None => self.state = ReceiveState::Trailers,
            }
        }
        Poll::Ready(match ready!(self.receive.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(BodyFrame::Trailers(trailers))),
            Err(_) => Some(Err(OriginError::BodyTruncated)),
        })
    }
}

/// What `Content-Length` says, which h2 has found to be one number.
fn content_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Sends the request body as flow control allows. Failures to send need no report: the response tells.
async fn send_body(mut stream: SendStream<Bytes>, mut body: RequestBody, progress: Arc<UploadProgress>) {
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
            Some(Ok(BodyFrame::Trailers(trailers))) => return drop(stream.send_trailers(trailers)),
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
}

/// Sends all of a piece; an error means that the stream is over.
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
