//! Stored responses for tests, created by the production code.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use caching::partial::is_of_one_message;
use caching::post::may_store_for_get;
use caching::tags::TagRules;
use caching::{
    Codings, ExchangeTimes, FieldLine, MethodClass, RequestFacts, ResponseFacts, Rules, Timestamp, date,
    may_store,
};
use message::clock::corrected_by_ms;
use message::fields::PackedFields;
use message::head::{Content, Nominations, OwnedRequest, Peer, Scheme, Trust, Version};
use origin::{OriginBody, OriginResponse};
use store::{Memory, MemoryConfig};
use tokio::sync::SetOnce;

use crate::entry::segmented::Segmented;
use crate::entry::stored::{CacheEntry, StoredBody, StoredHead, StoredResponse};
use crate::head_maker::{Arrived, ForwardedRequest, HeadMaker};
use crate::invalidation::{Invalidations, Purgers};
use crate::membership::Stamp;
use crate::portable::{Decoded, Encoded, Merge, Reader, Writing, decode, encode};
use crate::settings::StorageRules;

pub const KEY: &[u8] = b"site\0http\0a.example\0/x?y=1";
pub const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_123);
const URL: (&str, &str) = ("a.example", "/x?y=1");

/// Rules, a memory, and the invalidations that apply to its entries.
pub struct World {
    pub rules: Rules,
    /// Fields that are removed from responses.
    pub hidden: Vec<String>,
    pub invalidations: Arc<Invalidations>,
    pub memory: Arc<Memory<CacheEntry>>,
    pub tags: TagRules,
    pub codings: Codings,
}

/// A request in its forwarded form.
struct Forwarded {
    request: OwnedRequest,
    place_wanted: SetOnce<()>,
}

impl ForwardedRequest for Forwarded {
    fn received(&self) -> &OwnedRequest {
        &self.request
    }

    fn sent(&self) -> &PackedFields {
        &self.request.fields
    }

    fn place_wanted(&self) -> &SetOnce<()> {
        &self.place_wanted
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub method: &'a str,
    pub lines: &'a [FieldLine<'a>],
}

impl World {
    pub fn new(rules: Rules) -> Self {
        let invalidations = Arc::new(Invalidations::new(Purgers::This));
        invalidations.watch_keys();
        Self {
            rules,
            hidden: Vec::new(),
            invalidations,
            memory: Arc::new(Memory::new(MemoryConfig::with_bytes_max(64 << 20))),
            tags: TagRules::default(),
            codings: Codings::new(["zstd", "br", "gzip"]),
        }
    }

    fn forwarded(&self, asked: Asked<'_>) -> (Forwarded, RequestFacts) {
        let address = SocketAddr::from(([192, 0, 2, 1], 1234));
        let request = OwnedRequest {
            method: asked.method.to_owned(),
            scheme: Scheme::Http,
            authority: URL.0.to_owned(),
            path_and_query: URL.1.to_owned(),
            version: Version::Http11,
            fields: PackedFields::from_lines(asked.lines.iter().copied()),
            nominations: Nominations::None,
            keyed: Vec::new(),
            content: Content::None,
            upgrade: None,
            peer: Peer { address, trust: Trust::Untrusted, scheme: Scheme::Http },
            record: None,
            timeline: None,
            tls: None,
        };
        let facts = RequestFacts::parse(asked.method, asked.lines);
        let facts = facts.with_credentials_of(asked.lines, &self.rules);
        (Forwarded { request, place_wanted: SetOnce::new() }, facts)
    }

    fn maker<'a>(&'a self, request: &'a Forwarded, facts: &'a RequestFacts, stamp: Stamp) -> HeadMaker<'a> {
        HeadMaker {
            rules: self.rules(),
            request,
            facts,
            site_key: (facts.method == MethodClass::Query).then(|| KEY.to_vec()),
            invalidations: &self.invalidations,
            stamp,
            keeps_inputs: true,
        }
    }

    fn arrived<'a>(&self, response: &'a OriginResponse, times: ExchangeTimes) -> Arrived<'a> {
        let mut end_to_end = response.fields.clone();
        let is_hidden = |name: &[u8]| self.hidden.iter().any(|hidden| hidden.as_bytes() == name);
        end_to_end.retain(|name| name != b"content-length" && !is_hidden(name));
        if end_to_end.value("date").is_none() {
            end_to_end.push("date", &date::format(times.response));
        }
        end_to_end.push("via", b"1.1 larder");
        Arrived { response, end_to_end, times }
    }

    /// Returns the head that is stored for a response.
    pub fn stored(
        &self,
        asked: Asked<'_>,
        (status, lines): (u16, &[FieldLine<'_>]),
        times: ExchangeTimes,
    ) -> Option<StoredHead> {
        let rules = &self.rules;
        let (request, facts) = self.forwarded(asked);
        let received = ResponseFacts::parse(status, lines, times, rules);
        let (storable, facts) = match asked.method {
            "POST" => (
                may_store_for_get(&facts, &received, lines, &request.request.target(), rules, times.response),
                facts.as_get(),
            ),
            _ => (may_store(&facts, &received, rules, times.response), facts),
        };
        let maker = self.maker(&request, &facts, self.invalidations.stamp());
        let response = response(status, lines);
        let (head, _) = maker.made(&storable.ok()?, lines, self.arrived(&response, times)).ok()?;
        Some(head)
    }

    /// Returns the head after a 304; `None` if the result may not be stored.
    pub fn freshened(
        &self,
        stored: &StoredHead,
        asked: Asked<'_>,
        lines: &[FieldLine<'_>],
        times: ExchangeTimes,
    ) -> Option<StoredHead> {
        let (request, facts) = self.forwarded(asked);
        let (facts, stamp) = match facts.method {
            MethodClass::Head => (RequestFacts { method: MethodClass::Get, ..facts }, stored.checked.stamp()),
            _ => (facts, self.invalidations.stamp()),
        };
        let response = response(304, lines);
        let freshened = self.maker(&request, &facts, stamp).freshen(stored, &self.arrived(&response, times));
        freshened.storable.ok()?;
        Some(freshened.head)
    }

    /// Returns the head after another part of the response.
    pub fn combined(
        &self,
        stored: &StoredHead,
        asked: Asked<'_>,
        lines: &[FieldLine<'_>],
        times: ExchangeTimes,
    ) -> Option<StoredHead> {
        let head = self.freshened(stored, asked, lines, times)?;
        let of_whole = head.fields.lines().filter(|(name, _)| !is_of_one_message(name));
        let fields = PackedFields::from_lines(of_whole);
        Some(head.with_fields(fields, Some(100_000)).for_requests_of(stored))
    }

    pub fn rules(&self) -> StorageRules<'_> {
        StorageRules {
            caching: &self.rules,
            tags: &self.tags,
            codings: &self.codings,
            object_bytes_max: u64::MAX,
            imprint: None,
            groups_max: 32,
        }
    }

    pub fn entry(&self, variants: Vec<StoredResponse>) -> CacheEntry {
        CacheEntry::new(self.memory.budget(), variants, None).unwrap()
    }

    pub fn reader(&self) -> Reader<'_> {
        Reader {
            memory: &self.memory,
            invalidations: &self.invalidations,
            rules: self.rules(),
            site_key: None,
            clock_ahead_ms: WRITING.clock_ahead_ms,
            outdated_to_ms: 0,
        }
    }

    /// Returns the record that a reader with these rules gets from a tier that has all parts.
    pub fn read(&self, encoded: &Encoded) -> Option<CacheEntry> {
        gathered(encoded).entry(&small_bodies(encoded), &self.reader())
    }

    /// Returns the record that a reader with these rules gets for the key of requests with this method.
    pub fn read_as(&self, method: &str, encoded: &Encoded) -> Option<CacheEntry> {
        let site_key = (method == "QUERY").then_some(KEY);
        gathered(encoded).entry(&small_bodies(encoded), &Reader { site_key, ..self.reader() })
    }
}

pub const WRITING: Writing<'_> =
    Writing { key: KEY, given: &[], invalidations: None, now: NOW, clock_ahead_ms: 5_000 };

/// Encodes for a tier that has received all bodies in full.
pub fn encode_given(writing: &Writing<'_>, entry: &CacheEntry, merge: Merge<'_>) -> Option<Encoded> {
    let bodies = entry.variants().iter().filter_map(|variant| variant.body.segmented());
    let given: Vec<_> = bodies.filter_map(Segmented::layout).collect();
    encode(&Writing { given: &given, ..*writing }, entry, merge)
}

pub fn written(entry: &CacheEntry) -> Encoded {
    encode_given(&WRITING, entry, Merge::default()).expect("there is something")
}

/// Decodes the record with all responses that are stored apart.
pub fn gathered(encoded: &Encoded) -> Decoded<'_> {
    let mut decoded = decode(&encoded.primary, KEY).unwrap();
    for (id, bytes) in &encoded.apart {
        decoded.add_apart(*id, bytes).unwrap();
    }
    assert_eq!(decoded.apart().count(), 0);
    decoded
}

pub fn small_bodies(encoded: &Encoded) -> Vec<(store::FillId, Bytes)> {
    encoded.segments.iter().map(|segment| (segment.id.fill, segment.data.clone())).collect()
}

pub fn inline(head: StoredHead, body: &[u8]) -> StoredResponse {
    StoredResponse { head: Arc::new(head), body: StoredBody::Inline(Bytes::copy_from_slice(body)) }
}

pub fn at(time: Timestamp) -> ExchangeTimes {
    let clock_ahead_ms = corrected_by_ms(WRITING.clock_ahead_ms);
    ExchangeTimes { request: time.plus_ms(-77), response: time, clock_ahead_ms }
}

fn response(status: u16, lines: &[FieldLine<'_>]) -> OriginResponse {
    OriginResponse {
        status: http::StatusCode::from_u16(status).unwrap(),
        reason: Some(Bytes::from_static(b"As it says")),
        version: http::Version::HTTP_11,
        fields: PackedFields::from_lines(lines.iter().copied()),
        body: OriginBody::empty(),
        upgraded: None,
        unknown_transfer_coding: false,
    }
}
