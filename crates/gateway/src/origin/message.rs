//! Requests to an origin and the parts of its answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use caching::hop_by_hop::{is_connection_specific, is_for_this_proxy};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http1::encode;
use smallvec::SmallVec;
use store::{Budget, Charge};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::UNCHARGED_PIECE_BYTES_MAX;
use super::binding::Binding;
use super::body::{BodyFrame, OriginBody};
use super::error::OriginError;
use super::upgrade::UpgradeHandle;
use crate::client::Client;
use crate::config::OriginConfig;
use crate::fields::PackedFields;

/// One request to forward.
#[derive(Debug)]
pub struct OriginRequest {
    /// Method.
    pub method: http::Method,
    /// Path and query in origin form, or `*`. The origin's base path is put before it.
    pub path_and_query: String,
    /// `Host` or `:authority`, unless the origin overrides it.
    pub authority: HeaderValue,
    /// `:scheme`.
    pub scheme: Scheme,
    /// End-to-end fields only: the caller has removed those that belong to the client's connection.
    /// Framing fields and `Host` in here are ignored. Names are sent as they are.
    pub(crate) fields: PackedFields,
    /// Content.
    pub body: RequestBody,
    /// Whether trailers of the response can be used (`TE: trailers`).
    pub accepts_trailers: bool,
    /// Protocol to upgrade to. Asks for an HTTP/1.1 connection.
    pub upgrade: Option<HeaderValue>,
    /// Whom it is counted for; absent: nobody in particular.
    pub(crate) client: Option<Client>,
}

/// Content of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// None.
    Empty,
    /// All of it at hand.
    Full(Bytes),
    /// Arrives piece by piece from a [`RequestBodySender`].
    Channel(ChannelBody),
}

/// The receiving end of a request body that arrives piece by piece.
#[derive(Debug)]
pub struct ChannelBody {
    parts: mpsc::Receiver<BodyPart>,
    /// Received, and given back by whoever read it: the first piece of the body.
    unread: Option<Bytes>,
    /// What has arrived ahead and is behind `unread`, in one place: pieces may be of one byte.
    arrived: BytesMut,
    charge: Option<Charge>,
    /// The trailers, where they have arrived ahead.
    trailers: Option<HeaderMap>,
    remaining_bytes: Option<u64>,
    state: ChannelState,
}

/// How much of a body has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Whole,
    Partial,
}

/// What comes of reading a body to its end.
#[derive(Debug)]
pub enum Gathered {
    /// All of it. Trailers are discarded.
    Whole(Bytes),
    /// It is larger than wanted, or there is no room for it; nothing of it is lost.
    TooLarge(RequestBody),
    /// It broke off.
    Incomplete,
}

/// The sending end of a request body. Dropping it without [`RequestBodySender::finish`] tells that the
/// body is incomplete: the forward is then broken off, never ended as if it were whole.
#[derive(Debug)]
pub struct RequestBodySender {
    parts: mpsc::Sender<BodyPart>,
}

/// Room for one piece of a request body.
#[derive(Debug)]
pub(crate) struct Room<'a>(mpsc::Permit<'a, BodyPart>);

/// The forward doesn't read the request body any more; the rest is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body is no longer read")]
pub struct RequestBodyClosed;

/// The request body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body is incomplete")]
pub struct RequestBodyIncomplete;

/// An interim (1xx) response other than 101.
#[derive(Clone, Debug)]
pub struct Interim {
    /// 100, 102 to 199.
    pub status: http::StatusCode,
    /// Its fields, without those of the origin's connection.
    pub(crate) fields: PackedFields,
}

/// The head of a response, and its body to be read.
#[derive(Debug)]
pub struct OriginResponse {
    /// Status.
    pub status: http::StatusCode,
    /// Reason phrase of HTTP/1, which may be empty; HTTP/2 has none.
    pub reason: Option<Bytes>,
    /// Version that the origin answered with.
    pub version: http::Version,
    /// Fields without those of the origin's connection (RFC 9110 section 7.6.1), their names in lower case. A 101
    /// response keeps `Upgrade`.
    pub(crate) fields: PackedFields,
    /// Content and how it's framed.
    pub body: OriginBody,
    /// The connection after a 101 response.
    pub upgraded: Option<UpgradeHandle>,
    /// Whether a transfer coding other than chunked was applied: the content can't be understood, so the
    /// response is never stored.
    pub unknown_transfer_coding: bool,
}

#[derive(Debug)]
enum BodyPart {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelState {
    Open,
    Ended,
}

impl RequestBody {
    /// A body that arrives through the sender, at most `parts_max` pieces ahead. With `length_bytes` it's
    /// sent with `Content-Length`, without in chunks.
    #[must_use]
    pub fn channel(parts_max: usize, length_bytes: Option<u64>) -> (RequestBodySender, Self) {
        let (sender, parts) = mpsc::channel(parts_max.max(1));
        let body = ChannelBody {
            parts,
            unread: None,
            arrived: BytesMut::new(),
            charge: None,
            trailers: None,
            remaining_bytes: length_bytes,
            state: ChannelState::Open,
        };
        (RequestBodySender { parts: sender }, Self::Channel(body))
    }

    /// Reads the body to its end, if that is not more than `bytes_max` away and `memory` has room for it.
    pub async fn gather(self, bytes_max: u64, memory: &Arc<Budget>) -> Gathered {
        match self {
            Self::Empty => Gathered::Whole(Bytes::new()),
            Self::Full(bytes) if bytes.len() as u64 <= bytes_max => Gathered::Whole(bytes),
            Self::Channel(channel) if channel.remaining_bytes.is_none_or(|bytes| bytes <= bytes_max) => {
                channel.gather(bytes_max, memory).await
            }
            body @ (Self::Full(_) | Self::Channel(_)) => Gathered::TooLarge(body),
        }
    }

    /// Waits until all of it is here, or so many bytes are, or so much time has passed.
    ///
    /// # Errors
    /// It breaks off.
    pub(super) async fn arrive(
        &mut self,
        bytes_max: usize,
        at_most: Duration,
        memory: Option<&Arc<Budget>>,
    ) -> Result<Arrival, OriginError> {
        let Self::Channel(channel) = self else { return Ok(Arrival::Whole) };
        if channel.is_whole() {
            return Ok(Arrival::Whole);
        }
        // On the heap: most requests are here as a whole, and need no room for this.
        match Box::pin(timeout(at_most, channel.arrive(bytes_max, memory))).await {
            Ok(arrival) => arrival.map_err(|RequestBodyIncomplete| OriginError::RequestBody),
            Err(_) => Ok(Arrival::Partial),
        }
    }

    /// Another copy for a retry, where the body is at hand as a whole.
    pub(super) fn replay(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(bytes) => Some(Self::Full(bytes.clone())),
            Self::Channel(_) => None,
        }
    }

    fn length_bytes(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Full(bytes) => Some(bytes.len() as u64),
            Self::Channel(channel) => channel.remaining_bytes,
        }
    }

    /// Whether nothing more comes.
    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Channel(channel) => {
                channel.is_whole() && channel.unread.is_none() && channel.has_nothing_ahead()
            }
        }
    }

    /// The next piece; `None` at the end.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(BodyFrame::Data(bytes))))
            }
            Self::Channel(channel) => channel.poll_part(cx),
        }
    }

    /// Takes back a piece that was read and not used.
    pub(super) fn give_back(&mut self, data: Bytes) {
        match self {
            _ if data.is_empty() => {}
            Self::Empty | Self::Full(_) => *self = Self::Full(data),
            Self::Channel(channel) => {
                debug_assert!(channel.unread.is_none(), "one piece is read at a time");
                channel.unread = Some(data);
            }
        }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl RequestBodySender {
    /// Hands over a piece, waiting while the origin is slower than the client.
    ///
    /// # Errors
    /// The forward has ended.
    pub async fn send_data(&mut self, data: Bytes) -> Result<(), RequestBodyClosed> {
        self.parts.send(BodyPart::Data(data)).await.map_err(|_| RequestBodyClosed)
    }

    /// Waits for room for a piece. May be dropped and called again.
    ///
    /// # Errors
    /// The forward has ended.
    pub(crate) async fn room(&self) -> Result<Room<'_>, RequestBodyClosed> {
        self.parts.reserve().await.map(Room).map_err(|_| RequestBodyClosed)
    }

    /// Room for a piece, if there is some.
    pub(crate) fn room_at_once(&self) -> Option<Room<'_>> {
        self.parts.try_reserve().ok().map(Room)
    }

    /// Ends the body. Trailers go out on a chunked HTTP/1 request only for the names in its `Trailer` field.
    ///
    /// # Errors
    /// The forward has ended.
    pub async fn finish(self, trailers: Option<HeaderMap>) -> Result<(), RequestBodyClosed> {
        let last = trailers.map_or(BodyPart::End, BodyPart::Trailers);
        self.parts.send(last).await.map_err(|_| RequestBodyClosed)
    }

    /// Resolves when the forward doesn't read the body any more.
    pub async fn closed(&self) {
        self.parts.closed().await;
    }
}

impl Room<'_> {
    pub(crate) fn fill(self, data: Bytes) {
        self.0.send(BodyPart::Data(data));
    }
}

impl ChannelBody {
    async fn gather(mut self, bytes_max: u64, memory: &Arc<Budget>) -> Gathered {
        match self.arrive(usize::try_from(bytes_max).unwrap_or(usize::MAX), Some(memory)).await {
            Ok(Arrival::Whole) if self.arrived.len() as u64 <= bytes_max => {
                Gathered::Whole(self.take_arrived())
            }
            Ok(Arrival::Whole | Arrival::Partial) => Gathered::TooLarge(RequestBody::Channel(self)),
            Err(RequestBodyIncomplete) => Gathered::Incomplete,
        }
    }

    /// Waits until all of it is here, or more than so many bytes are. May be dropped and called again.
    async fn arrive(
        &mut self,
        bytes_max: usize,
        memory: Option<&Arc<Budget>>,
    ) -> Result<Arrival, RequestBodyIncomplete> {
        while !self.is_whole() {
            if self.arrived.len() > bytes_max || !self.is_charged(memory) {
                return Ok(Arrival::Partial);
            }
            match poll_fn(|cx| self.poll_next(cx)).await {
                Some(Ok(BodyFrame::Data(data))) => self.arrived.extend_from_slice(&data),
                Some(Ok(BodyFrame::Trailers(trailers))) => self.trailers = Some(trailers),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        Ok(Arrival::Whole)
    }

    /// Whether what has arrived is charged, as far as it has to be.
    fn is_charged(&mut self, memory: Option<&Arc<Budget>>) -> bool {
        let Some(budget) = memory else { return true };
        // Memory grows ahead of what arrives.
        let bytes = self.arrived.capacity();
        match &mut self.charge {
            None if bytes < UNCHARGED_PIECE_BYTES_MAX => true,
            None => {
                self.charge = budget.reserve(bytes).ok();
                self.charge.is_some()
            }
            Some(charge) if charge.bytes() >= bytes => true,
            Some(charge) => charge.grow(bytes - charge.bytes()).is_ok(),
        }
    }

    /// What has arrived, charged as long as anybody has it.
    fn take_arrived(&mut self) -> Bytes {
        let arrived = std::mem::take(&mut self.arrived);
        match self.charge.take() {
            Some(charge) => charge.hold(arrived),
            None => arrived.freeze(),
        }
    }

    /// Whether nothing more is to be received.
    fn is_whole(&self) -> bool {
        self.state == ChannelState::Ended || self.remaining_bytes == Some(0)
    }

    fn has_nothing_ahead(&self) -> bool {
        self.arrived.is_empty() && self.trailers.is_none()
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        if let Some(data) = self.unread.take() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
        }
        if !self.arrived.is_empty() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(self.take_arrived()))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(BodyFrame::Trailers(trailers))));
        }
        self.poll_next(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>> {
        if self.state == ChannelState::Ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(part) = self.parts.poll_recv(cx) else { return Poll::Pending };
        Poll::Ready(match part {
            Some(BodyPart::Data(data)) => Some(self.take_data(data)),
            Some(BodyPart::Trailers(_) | BodyPart::End) | None if self.remaining_bytes.unwrap_or(0) > 0 => {
                Some(Err(RequestBodyIncomplete))
            }
            Some(BodyPart::Trailers(trailers)) => {
                self.state = ChannelState::Ended;
                Some(Ok(BodyFrame::Trailers(trailers)))
            }
            Some(BodyPart::End) => {
                self.state = ChannelState::Ended;
                None
            }
            None => Some(Err(RequestBodyIncomplete)),
        })
    }

    fn take_data(&mut self, data: Bytes) -> Result<BodyFrame, RequestBodyIncomplete> {
        if let Some(remaining_bytes) = &mut self.remaining_bytes {
            *remaining_bytes = remaining_bytes.checked_sub(data.len() as u64).ok_or(RequestBodyIncomplete)?;
        }
        Ok(BodyFrame::Data(data))
    }
}

/// Everything of a request but its body, with the origin's settings applied; sent once or twice.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: http::Method,
    /// Of [`is_target`].
    pub(super) target: String,
    pub(super) authority: HeaderValue,
    pub(super) scheme: Scheme,
    pub(super) upgrade: Option<HeaderValue>,
    /// Without `Host`.
    fields: PackedFields,
    pub(super) framing: RequestFraming,
    pub(super) binding: Binding,
    accepts_trailers: bool,
}

/// How the request body's end is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestFraming {
    Bodyless,
    Length(u64),
    Unknown,
}

/// Fields that belong to one connection, framing and `Host`, which we write ourselves.
const OWN_FIELDS: [&str; 6] = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];

impl RequestHead {
    pub(super) fn new(
        config: &OriginConfig,
        request: OriginRequest,
    ) -> Result<(Self, RequestBody), OriginError> {
        let OriginRequest { method, path_and_query, authority, scheme, fields, body, .. } = request;
        let authority = config.host_override.clone().unwrap_or(authority);
        let fields = own_fields_applied(config, fields);
        let head = Self {
            binding: Binding::of_request(&fields),
            target: target(&config.base_path, path_and_query)?,
            framing: request_framing(&method, &body),
            method,
            scheme,
            upgrade: request.upgrade,
            fields,
            authority,
            accepts_trailers: request.accepts_trailers,
        };
        Ok((head, body))
    }

    /// Appends the head as HTTP/1.1 sends it.
    //= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
    pub(super) fn write_http1(&self, out: &mut Vec<u8>, connection: KeepAlive) {
        for part in [self.method.as_str(), " ", &self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        //= RFC 9112 section 3.2: Host is the first field
        write_line(out, "host", self.authority.as_bytes());
        out.extend_from_slice(self.fields.view().wire());
        match self.framing {
            RequestFraming::Bodyless => {}
            RequestFraming::Length(length) => encode::write_field_number(out, "content-length", length),
            RequestFraming::Unknown => write_line(out, "transfer-encoding", b"chunked"),
        }
        self.write_connection_options(out, connection);
        encode::end_head(out);
    }

    fn write_connection_options(&self, out: &mut Vec<u8>, connection: KeepAlive) {
        let mut options: SmallVec<[&[u8]; 3]> = SmallVec::new();
        if let Some(protocol) = &self.upgrade {
            write_line(out, "upgrade", protocol.as_bytes());
            options.push(b"upgrade");
        }
        if self.accepts_trailers {
            //= RFC 9110 section 10.1.4: TE needs the TE connection option
            write_line(out, "te", b"trailers");
            options.push(b"TE");
        }
        if connection == KeepAlive::Off {
            options.push(b"close");
        }
        if !options.is_empty() {
            write_line(out, "connection", &options.join(&b", "[..]));
        }
    }

    /// The names in `Trailer`.
    //= RFC 9110 section 6.6.2: Trailer names what may come
    pub(super) fn announced_trailers(&self) -> Vec<HeaderName> {
        let names = self.fields.values("trailer").flat_map(http1::elements);
        names.filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
    }

    /// The header section as HTTP/2 sends it: no connection-specific fields (RFC 9113 section 8.2.2).
    pub(super) fn http2_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(self.fields.len() + 2);
        for (name, value) in self.fields.lines() {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
                fields.append(name, value);
            }
        }
        if let RequestFraming::Length(length) = self.framing {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        if self.accepts_trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        fields
    }
}

/// Whether an HTTP/1 connection is to be kept after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    Off,
    On,
}

fn own_fields_applied(config: &OriginConfig, mut fields: PackedFields) -> PackedFields {
    let is_own = |name: &[u8]| {
        // The lengths of those.
        let may_be = matches!(name.len(), 2 | 4 | 7 | 10 | 14 | 17);
        may_be && OWN_FIELDS.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(name))
            || config.credentials.is_some() && name.eq_ignore_ascii_case(b"authorization")
    };
    let is_fixed = |name: &[u8]| {
        config.fixed_fields.iter().any(|(fixed, _)| fixed.as_str().as_bytes().eq_ignore_ascii_case(name))
    };
    // Hardly ever: what forwards has left out its own.
    if fields.has_any(|name| is_own(name) || is_fixed(name)) {
        fields.retain(|name| !is_own(name) && !is_fixed(name));
    }
    for (name, value) in config.fixed_fields.iter().filter(|(name, _)| !is_own(name.as_str().as_bytes())) {
        fields.push(name.as_str(), value.as_bytes());
    }
    if let Some(credentials) = &config.credentials {
        fields.push("authorization", credentials.0.as_bytes());
    }
    fields
}

fn request_framing(method: &http::Method, body: &RequestBody) -> RequestFraming {
    let expects_content = ["POST", "PUT", "PATCH", "QUERY"].iter().any(|known| *known == method.as_str());
    match body {
        //= RFC 9110 section 8.6: Content-Length 0 where the method gives content a meaning
        RequestBody::Empty if expects_content => RequestFraming::Length(0),
        RequestBody::Empty => RequestFraming::Bodyless,
        RequestBody::Full(_) | RequestBody::Channel(_) => {
            body.length_bytes().map_or(RequestFraming::Unknown, RequestFraming::Length)
        }
    }
}

/// The target to send.
fn target(base_path: &str, path_and_query: String) -> Result<String, OriginError> {
    let full = match path_and_query.as_str() {
        _ if base_path.is_empty() => path_and_query,
        "*" => path_and_query,
        path if path.starts_with('/') => format!("{base_path}{path}"),
        query => format!("{base_path}/{query}"),
    };
    if is_target(&full) { Ok(full) } else { Err(OriginError::invalid_request("characters in the target")) }
}

/// Whether this can be sent as a target: a path with or without a query, or `*`, and no byte that ends it early for
/// somebody, a fragment among them.
fn is_target(target: &str) -> bool {
    let can_stand = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'<' | b'>');
    if target == "*" {
        return true;
    }
    if !target.starts_with('/') || !target.bytes().all(can_stand) {
        return false;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    !path.contains('`') && !query.contains('"')
}

/// Appends a line whose parts have been looked at.
fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Whether `Connection` may name fields of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nominations {
    None,
    Possible,
}

/// Which fields of a response go beyond the origin's connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndToEnd {
    /// All that belong neither to the connection nor to a proxy, which this is.
    AsTheyAre,
    /// With one `Content-Length` line of one number in place of all.
    //= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
    WithLength(u64),
    /// Without `Content-Length`.
    //= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
    //= RFC 9110 section 15.2: a 1xx response ends with its header section
    WithoutLength,
}

impl EndToEnd {
    /// These of the lines that were received, with names in lower case.
    //= RFC 9110 section 7.6.1: fields named in Connection are removed with it
    pub(super) fn of<'a, V: AsRef<[u8]>, I: Iterator<Item = (&'a str, V)>>(
        mut self,
        nominations: Nominations,
        received: impl Fn() -> I,
    ) -> PackedFields {
        let nominated = match nominations {
            Nominations::None => Vec::new(),
            Nominations::Possible => nominated(received()),
        };
        let lines = received();
        let is_nominated =
            |name: &str| nominated.iter().any(|other| other.eq_ignore_ascii_case(name.as_bytes()));
        let mut packed = PackedFields::with_capacity(lines.size_hint().0);
        for (name, value) in lines {
            let is_kept = !(is_connection_specific(name) || is_for_this_proxy(name) || is_nominated(name));
            if is_kept && !name.eq_ignore_ascii_case("content-length") {
                packed.push_lowercase(name, value.as_ref());
            } else if is_kept {
                self.push_length(&mut packed, value.as_ref());
            }
        }
        packed
    }

    fn push_length(&mut self, packed: &mut PackedFields, value: &[u8]) {
        match *self {
            Self::AsTheyAre => packed.push("content-length", value),
            Self::WithLength(bytes) => {
                packed.push("content-length", itoa::Buffer::new().format(bytes).as_bytes());
                *self = Self::WithoutLength;
            }
            Self::WithoutLength => {}
        }
    }
}

/// The names in `Connection` that are names of fields.
fn nominated<'a, V: AsRef<[u8]>>(lines: impl Iterator<Item = (&'a str, V)>) -> Vec<Box<[u8]>> {
    let mut nominated = Vec::new();
    for (_, value) in lines.filter(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        let names = http1::elements(value.as_ref()).filter(|option| !is_never_nominated(option));
        nominated.extend(names.map(Box::from));
    }
    nominated
}

/// A field that never goes on anyway, and one that is never appropriate here: removing it could turn no-store into
/// cacheable.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
fn is_never_nominated(option: &[u8]) -> bool {
    [&b"keep-alive"[..], b"cache-control"].iter().any(|known| option.eq_ignore_ascii_case(known))
}

/// What of an error is worth showing: fixed texts of the protocol libraries, no field values.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Arc<str> {
    match error.source() {
        Some(source) => format!("{error}: {source}").into(),
        None => error.to_string().into(),
    }
}
