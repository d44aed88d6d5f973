//! A response to a client, independent of the protocol version.
//!
//! Heads are written straight from the stored response into a [`HeadSink`]; no header map is built on a hit.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cache::entry::stored::{Hit, StoredBody, StoredHead};
use cache::fill::{Aborted, FillRanges, FillReader, read_ahead};
use cache::readers::HeldBody;
use caching::partial::is_of_one_message;
use caching::{CacheName, CacheStatus, Outcome};
use http::HeaderMap;
use message::fields::{Fields, PackedFields};
use message::piece::PieceMax;
use message::trailers;
use origin::{BodyFrame, OriginBody, OriginError, OriginResponse, OriginTunnel};
use store::{Budget, Slice};
use telemetry::{CacheResult, RuleId};
use tokio::time::Instant;

use crate::config::{Site, XCache};
use crate::request::fetch::assembly::Assembly;
use crate::routing::LiveSite;
use crate::stores::Store;
use crate::worker::Worker;

/// A response to a client, whose body has not been read yet.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: ReplyHead,
    /// Fields in addition to those of the head: `Content-Range`, `Content-Type` of a multipart, ...
    pub(crate) extra: PackedFields,
    pub(crate) length: Length,
    pub(crate) body: Body,
    pub(crate) age_s: Option<u64>,
    pub(crate) cache_status: CacheStatus<'static>,
    pub(crate) x_cache: Option<&'static str>,
    pub(crate) account: Account,
}

/// Source of the fields of a response.
pub(crate) enum ReplyHead {
    /// All fields of a stored response.
    Whole(Arc<StoredHead>),
    /// The fields of a stored response that a 304 carries.
    NotModified(Arc<StoredHead>),
    /// All fields of a stored response except those that describe the whole content, for a 206.
    Range(Arc<StoredHead>),
    /// The fields of [`Self::Range`] without `Content-Type`, for a multipart 206.
    Ranges(Arc<StoredHead>),
    /// Fields that were created for this response. The fields are boxed to keep other replies small, because a reply is moved
    /// several times.
    Own(Box<OwnHead>),
}

impl ReplyHead {
    /// Creates a head with these fields and the default reason phrase.
    pub(crate) fn own(fields: PackedFields) -> Self {
        Self::Own(Box::new(OwnHead { reason: None, fields }))
    }

    /// Returns the stored response that supplies the head.
    pub(crate) fn stored(&self) -> Option<&Arc<StoredHead>> {
        match self {
            Self::Whole(stored) | Self::NotModified(stored) | Self::Range(stored) | Self::Ranges(stored) => {
                Some(stored)
            }
            Self::Own(_) => None,
        }
    }

    /// Returns all fields, including those that this form of the head omits.
    pub(crate) fn fields(&self) -> Fields<'_> {
        match self {
            Self::Whole(stored) | Self::NotModified(stored) | Self::Range(stored) | Self::Ranges(stored) => {
                stored.fields.view()
            }
            Self::Own(own) => own.fields.view(),
        }
    }
}

/// Length of a body before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// `Content-Length`.
    Known(u64),
    /// The length is known only when the body ends.
    Unknown,
    /// The status allows no body (204, 304).
    None,
}

/// The body of a response.
pub(crate) enum Body {
    Empty,
    /// A stored body inside its record, or a part of it.
    Inline {
        hit: Hit,
        start: usize,
        end: usize,
    },
    /// A sequence of pieces, all of them in memory or in a file.
    Pieces(VecDeque<Slice>),
    Fill(FillReader),
    /// Several ranges of a body that is being filled.
    FillRanges(Box<FillRanges>),
    /// A sequence of parts, of which some are in memory and others have to be loaded or fetched.
    Assembled(Box<Assembly>),
    /// Body of an origin response whose head has been read.
    Origin(Box<OriginResponse>),
    /// Body of an origin response, which is read ahead of a slow client.
    Ahead(FillReader),
    /// 101: the connection becomes a tunnel.
    Tunnel(Box<OriginTunnel>),
}

/// The body was cut short; the client must be able to detect it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenBody {
    #[error(transparent)]
    Fill(#[from] Aborted),
    #[error("the rest of a stored response could not be fetched")]
    Rest,
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("stored bytes can't be read")]
    Unreadable(#[source] io::Error),
}

impl Body {
    /// Returns a body in memory with its length.
    pub(crate) fn of(content: Bytes) -> (Length, Self) {
        (Length::Known(content.len() as u64), Self::Pieces(VecDeque::from([content.into()])))
    }

    /// Returns the bytes of an empty or inline body.
    pub(crate) fn at_hand(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Inline { hit, start, end } => match &hit.body {
                StoredBody::Inline(data) => data.get(*start..*end),
                StoredBody::Segments(_) => None,
            },
            _ => None,
        }
    }

    /// Returns the bytes of an inline body as a shared slice.
    pub(crate) fn inline(&self) -> Option<Bytes> {
        match self {
            Self::Inline { hit, start, end } => inline_slice(hit, *start, *end),
            _ => None,
        }
    }

    /// Takes the bytes of an inline body. The record of the body counts towards the budget as long as these bytes exist.
    fn take_inline(&mut self) -> Option<Bytes> {
        let Self::Inline { hit, start, end } = std::mem::replace(self, Self::Empty) else { return None };
        let data = inline_slice(&hit, start, end)?;
        Some(Bytes::from_owner(OfRecord { data, _hit: hit }))
    }

    /// Returns whether the body may have to wait for data. During such a wait, the client may leave.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self, Self::Empty | Self::Inline { .. } | Self::Pieces(_) | Self::Tunnel(_))
    }

    /// Returns the body's memory that is held for a client that has stopped reading, if it may be large.
    pub(crate) fn held(&self) -> Option<HeldBody> {
        match self {
            Self::Pieces(pieces) => {
                let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
                pieces.back().map(|last| HeldBody::Segments { last: last.clone(), bytes })
            }
            Self::Fill(reader) | Self::Ahead(reader) => Some(HeldBody::Fill(Arc::clone(&reader.fill))),
            Self::Assembled(source) => source.held(),
            Self::Empty | Self::Inline { .. } | Self::FillRanges(_) | Self::Origin(_) | Self::Tunnel(_) => {
                None
            }
        }
    }

    /// Starts to read the origin's body ahead of the client, because the client hasn't read the last data and the origin shouldn't
    /// wait for it.
    pub(crate) fn wait_for_client(&mut self, memory: &Arc<Budget>) {
        let Self::Origin(response) = self else { return };
        if response.body.is_over() {
            return;
        }
        if let Self::Origin(response) = std::mem::replace(self, Self::Empty)
            && let Some(reader) = read_ahead(response.body, memory)
        {
            *self = Self::Ahead(reader);
        }
    }

    /// Returns the next piece of data, in memory; `None` at the end of a complete body.
    ///
    /// # Errors
    /// If the body is cut short.
    pub(crate) async fn bytes(
        &mut self,
        trailers: &mut Option<HeaderMap>,
    ) -> Result<Option<Bytes>, BrokenBody> {
        let data = self.data(trailers, PieceMax::COPIED).await?;
        data.map(Slice::into_bytes).transpose().map_err(BrokenBody::Unreadable)
    }

    /// Returns the next piece of data, in memory or in a file; `None` at the end of a complete body.
    ///
    /// # Errors
    /// If the body is cut short.
    pub(crate) async fn data(
        &mut self,
        trailers: &mut Option<HeaderMap>,
        piece_max: PieceMax,
    ) -> Result<Option<Slice>, BrokenBody> {
        match self {
            Self::Empty | Self::Tunnel(_) => Ok(None),
            Self::Inline { .. } => Ok(self.take_inline().map(Slice::from)),
            Self::Pieces(pieces) => Ok(next_of(pieces, piece_max)),
            Self::Fill(reader) | Self::Ahead(reader) => match reader.chunk(piece_max).await? {
                Some(data) => Ok(Some(data)),
                None => {
                    *trailers = reader.trailers().map(|trailers| HeaderMap::clone(&trailers));
                    Ok(None)
                }
            },
            Self::FillRanges(ranges) => Ok(ranges.data(piece_max).await?),
            Self::Assembled(source) => Box::pin(source.data(piece_max)).await,
            Self::Origin(response) => Ok(origin_data(&mut response.body, trailers).await?.map(Slice::from)),
        }
    }
}

/// Bytes of a record. As long as these bytes exist, the record counts in the budget.
struct OfRecord {
    data: Bytes,
    _hit: Hit,
}

impl AsRef<[u8]> for OfRecord {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

fn inline_slice(hit: &Hit, start: usize, end: usize) -> Option<Bytes> {
    match &hit.body {
        StoredBody::Inline(data) if start < end => Some(data.slice(start..end)),
        _ => None,
    }
}

fn next_of(pieces: &mut VecDeque<Slice>, piece_max: PieceMax) -> Option<Slice> {
    let first = pieces.front_mut()?;
    let bytes = piece_max.bytes(first);
    if bytes == first.len() { pieces.pop_front() } else { Some(first.split_to(bytes)) }
}

async fn origin_data(
    body: &mut OriginBody,
    trailers: &mut Option<HeaderMap>,
) -> Result<Option<Bytes>, BrokenBody> {
    while let Some(frame) = body.frame().await {
        match frame? {
            BodyFrame::Data(data) => return Ok(Some(data)),
            BodyFrame::Trailers(map) => *trailers = Some(map),
        }
    }
    Ok(None)
}

/// Receives the parts of a head in the order in which they are sent.
pub(crate) trait HeadSink {
    fn status(&mut self, status: u16, reason: Option<&[u8]>);
    fn field(&mut self, name: &str, value: &[u8]);
    fn number(&mut self, name: &'static str, value: u64) {
        self.field(name, itoa::Buffer::new().format(value).as_bytes());
    }
    fn cache_status(&mut self, status: &CacheStatus<'_>, cache: &CacheName);

    fn fields(&mut self, fields: Fields<'_>) {
        fields.lines().for_each(|(name, value)| self.field(name, value));
    }

    /// Writes the fields that a 304 repeats.
    fn fields_of_304(&mut self, fields: Fields<'_>) {
        fields.lines_of_304().for_each(|(name, value)| self.field(name, value));
    }
}

impl Reply {
    /// Creates a reply with a head that doesn't come from a stored response.
    pub(crate) fn new(
        status: u16,
        head: OwnHead,
        (length, body): (Length, Body),
        (outcome, detail): (Outcome, Option<&'static str>),
        account: Account,
    ) -> Self {
        Self {
            status,
            head: ReplyHead::Own(Box::new(head)),
            extra: PackedFields::default(),
            length,
            body,
            age_s: None,
            cache_status: CacheStatus { outcome, ttl_s: None, key: None, detail },
            x_cache: account.site.as_ref().and_then(|site| x_cache(&site.config, account.result)),
            account,
        }
    }

    /// Returns the trailers of the body that may be sent to the client.
    pub(crate) fn passing(&self, trailers: HeaderMap) -> Option<HeaderMap> {
        let hidden = self.account.site.as_ref().map(|site| &site.config.response_fields_hidden);
        trailers::passing(trailers, hidden.map_or(&[], Vec::as_slice))
    }

    /// Returns the store of the site that replied, or the first store.
    pub(crate) fn store<'a>(&self, worker: &'a Worker) -> &'a Store {
        worker.shared.store_of(self.account.site.as_deref())
    }

    /// Starts to read the origin's body ahead of the client, because the client hasn't read the last data.
    pub(crate) fn wait_for_client(&mut self, worker: &Worker) {
        self.body.wait_for_client(self.store(worker).cache.budget());
    }

    /// Marks the reply as generated by the gateway without a failure of cache or origin.
    pub(crate) fn locally(mut self) -> Self {
        self.account.result = CacheResult::Local;
        self.x_cache = self.account.site.as_ref().and_then(|site| x_cache(&site.config, self.account.result));
        self
    }

    /// Returns the maximum number of lines of the head and the extra fields.
    pub(crate) fn lines_max(&self) -> usize {
        self.head.fields().line_count() + self.extra.len()
    }

    /// Returns a copy of the head to be sent, without the fields that are written last. Changes to the copy don't affect the stored
    /// response.
    pub(crate) fn own_head(&self) -> OwnHead {
        let mut own = OwnHead::default();
        self.write_own(&mut own);
        own
    }

    /// Replaces all fields with this head.
    pub(crate) fn take_head(&mut self, own: OwnHead) {
        self.head = ReplyHead::Own(Box::new(own));
        self.extra = PackedFields::default();
    }

    /// Writes status and fields, except those of the connection and the framing.
    pub(crate) fn write_head(&self, sink: &mut impl HeadSink, cache: &CacheName) {
        self.write_own(sink);
        self.write_cache_fields(sink, cache);
    }

    /// Writes the head without the fields that the cache adds.
    #[inline]
    pub(crate) fn write_own(&self, sink: &mut impl HeadSink) {
        match &self.head {
            ReplyHead::Whole(stored) => {
                sink.status(self.status, reason_of(stored, self.status));
                sink.fields(stored.fields.view());
            }
            ReplyHead::NotModified(stored) => {
                sink.status(self.status, None);
                sink.fields_of_304(stored.fields.view());
            }
            ReplyHead::Range(stored) => {
                sink.status(self.status, None);
                write_selected(sink, stored, |name| !is_of_one_message(name));
            }
            ReplyHead::Ranges(stored) => {
                let is_kept =
                    |name: &str| !is_of_one_message(name) && !name.eq_ignore_ascii_case("content-type");
                sink.status(self.status, None);
                write_selected(sink, stored, is_kept);
            }
            ReplyHead::Own(own) => {
                sink.status(self.status, own.reason.as_deref());
                sink.fields(own.fields.view());
            }
        }
        sink.fields(self.extra.view());
    }

    fn write_cache_fields(&self, sink: &mut impl HeadSink, cache: &CacheName) {
        if let Some(age_s) = self.age_s {
            sink.number("age", age_s);
        }
        sink.cache_status(&self.cache_status, cache);
        if let Some(x_cache) = self.x_cache {
            sink.field("x-cache", x_cache.as_bytes());
        }
    }
}

/// Head that was created for one reply, with its reason phrase.
#[derive(Default)]
pub(crate) struct OwnHead {
    pub(crate) reason: Option<Bytes>,
    pub(crate) fields: PackedFields,
}

impl HeadSink for OwnHead {
    fn status(&mut self, _: u16, reason: Option<&[u8]>) {
        self.reason = reason.map(Bytes::copy_from_slice);
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.fields.push(name, value);
    }

    fn cache_status(&mut self, _: &CacheStatus<'_>, _: &CacheName) {}
}

/// Returns the stored reason phrase, which applies only to the stored status.
//= RFC 9112 section 4: the reason phrase means nothing
fn reason_of(stored: &StoredHead, status: u16) -> Option<&[u8]> {
    stored.reason().filter(|_| stored.facts.status == status)
}

fn write_selected(sink: &mut impl HeadSink, stored: &StoredHead, belongs: impl Fn(&str) -> bool) {
    stored.fields.lines().filter(|(name, _)| belongs(name)).for_each(|(name, value)| sink.field(name, value));
}

/// Facts about an exchange for the access log and the metrics.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) site: Option<Arc<LiveSite>>,
    /// [`crate::request::pipeline`] sets it when it has chosen a rule.
    pub(crate) rule: RuleId,
    pub(crate) result: CacheResult,
    pub(crate) started: Instant,
}

/// Returns whether responses with this status have no content (RFC 9110 section 6.4.1).
//= RFC 9110 section 15.4.5: a 304 ends with its header section
pub(crate) fn has_no_content(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

impl Account {
    #[inline]
    pub(crate) fn new(site: Option<&Arc<LiveSite>>, result: CacheResult, started: Instant) -> Self {
        Self { site: site.cloned(), rule: RuleId::NONE, result, started }
    }
}

impl BrokenBody {
    /// Returns a stable kebab-case word for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Fill(aborted) => aborted.because.unwrap_or("fill-aborted"),
            Self::Rest => "rest-failed",
            Self::Unreadable(_) => "store-unreadable",
            Self::Origin(error) => error.reason(),
        }
    }
}

/// Returns the value of `X-Cache`, if the site sends it.
pub(crate) fn x_cache(site: &Site, result: CacheResult) -> Option<&'static str> {
    if site.x_cache == XCache::Off {
        return None;
    }
    Some(match result {
        CacheResult::Hit => "HIT",
        CacheResult::Stale => "STALE",
        CacheResult::Revalidated => "REVALIDATED",
        CacheResult::Collapsed => "COLLAPSED",
        CacheResult::Miss => "MISS",
        CacheResult::Bypass => "BYPASS",
        CacheResult::Local => "LOCAL",
        CacheResult::Error => "ERROR",
    })
}
