//! A site with one rule, requests to it, and stored responses made by the code that stores them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use caching::partial::is_of_one_message;
use caching::post::may_store_for_get;
use caching::{
    CacheName, ExchangeTimes, FieldLine, MethodClass, RequestFacts, ResponseFacts, Rules, Timestamp,
    may_store,
};
use message::fields::PackedFields;
use message::head::{Content, Nominations, Peer, RequestHead, Scheme, Trust, Version};
use origin::{OriginBody, OriginResponse, Upstreams};
use store::{Memory, MemoryConfig};
use telemetry::Telemetry;
use tokio::runtime::{Builder, Runtime};

use crate::active::ActiveConfig;
use crate::cache::epochs::membership::Stamp;
use crate::cache::epochs::{Invalidations, Purgers};
use crate::cache::record::portable::{Decoded, Encoded, Merge, Reader, Writing, decode, encode};
use crate::cache::record::provenance::KeepInputs;
use crate::cache::record::segmented::Segmented;
use crate::cache::record::stored::{CacheEntry, StoredBody, StoredHead, StoredResponse};
use crate::clock::corrected_by_ms;
use crate::config::{CacheRule, Site, sample};
use crate::request::fetch::freshen::FreshenedHead;
use crate::rewrite::reading::{self, Inbound, Terms};
use crate::routing::key::key_of;
use crate::routing::{LiveSite, Routes, RuleMatch};

pub(crate) const KEY: &[u8] = b"site\0http\0a.example\0/x?y=1";
pub(crate) const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_123);
const URL: (&str, &str) = ("a.example", "/x?y=1");

pub(crate) struct World {
    live: Arc<ActiveConfig>,
    site: Arc<LiveSite>,
    rule: RuleMatch,
    pub(crate) epochs: Arc<Invalidations>,
    pub(crate) memory: Memory<CacheEntry>,
    _runtime: Runtime,
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) lines: &'a [FieldLine<'a>],
}

impl World {
    pub(crate) fn new(rules: Rules) -> Self {
        Self::with_site(rules, |_| {})
    }

    pub(crate) fn with_site(rules: Rules, change: impl FnOnce(&mut Site)) -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let mut site = sample::site(SocketAddr::from(([127, 0, 0, 1], 1)));
        site.rules = vec![CacheRule { caching: rules, ..CacheRule::built_in(site.profile) }];
        change(&mut site);
        let (site, telemetry) = (Arc::new(site), Telemetry::new(1));
        let upstream = Upstreams::new(runtime.handle().clone()).upstream(&site.origin);
        let live_site = Arc::new(LiveSite::new(&site, upstream, &telemetry));
        let live = ActiveConfig {
            config: sample::config(site, sample::limits()),
            routes: Routes::new(vec![Arc::clone(&live_site)]),
            cache_name: CacheName::new("larder").unwrap(),
            has_timelines: false,
            tls: Vec::new(),
        };
        let epochs = Arc::new(Invalidations::new(Purgers::This));
        epochs.watch_keys();
        Self {
            live: Arc::new(live),
            rule: live_site.rule("GET", URL.1),
            site: live_site,
            epochs,
            memory: Memory::new(MemoryConfig::with_bytes_max(64 << 20)),
            _runtime: runtime,
        }
    }

    fn inbound(&self, asked: Asked<'_>) -> (Inbound, RequestFacts) {
        let address = SocketAddr::from(([192, 0, 2, 1], 1234));
        let head = RequestHead {
            method: asked.method,
            scheme: Scheme::Http,
            authority: URL.0,
            path_and_query: URL.1,
            version: Version::Http11,
            fields: asked.lines,
            nominations: Nominations::None,
            sent: None,
            keyed: &[],
            content: Content::None,
            upgrade: None,
            peer: Peer { address, trust: Trust::Untrusted, scheme: Scheme::Http },
            record: None,
            timeline: None,
            tls: None,
        };
        let facts = reading::facts(&head, &self.site.config);
        let terms = Terms { site: &self.site.config, rule: self.site.rule_at(self.rule) };
        let facts = reading::with_credentials(facts, &head, terms);
        (Inbound::new(&head, &self.live, &self.site, self.rule), facts)
    }

    fn freshening<'a>(
        &'a self,
        request: &'a Inbound,
        facts: &'a RequestFacts,
        stamp: Stamp,
    ) -> FreshenedHead<'a> {
        let (live, site, epochs, rule) = (&self.live, &self.site, &self.epochs, self.rule);
        FreshenedHead { live, site, rule, request, facts, epochs, stamp, inputs: KeepInputs::Yes }
    }

    /// Head that is stored of a response.
    pub(crate) fn stored(
        &self,
        asked: Asked<'_>,
        (status, lines): (u16, &[FieldLine<'_>]),
        times: ExchangeTimes,
    ) -> Option<StoredHead> {
        let rules = &self.rule().caching;
        let (request, facts) = self.inbound(asked);
        let received = ResponseFacts::parse(status, lines, times, rules);
        let (storable, facts) = match asked.method {
            "POST" => (
                may_store_for_get(&facts, &received, lines, &request.target(), rules, times.response),
                facts.as_get(),
            ),
            _ => (may_store(&facts, &received, rules, times.response), facts),
        };
        let freshening = self.freshening(&request, &facts, self.epochs.stamp());
        let (head, _) = freshening.made(&storable.ok()?, (lines, times), &response(status, lines)).ok()?;
        Some(head)
    }

    /// Head after a 304; `None` if the result may not be stored.
    pub(crate) fn freshened(
        &self,
        stored: &StoredHead,
        asked: Asked<'_>,
        lines: &[FieldLine<'_>],
        times: ExchangeTimes,
    ) -> Option<StoredHead> {
        let (request, facts) = self.inbound(asked);
        let (facts, stamp) = match facts.method {
            MethodClass::Head => {
                (RequestFacts { method: MethodClass::Get, ..facts }, stored.checked().stamp())
            }
            _ => (facts, self.epochs.stamp()),
        };
        let freshened =
            self.freshening(&request, &facts, stamp).freshen(stored, &response(304, lines), times);
        freshened.storable.ok()?;
        Some(freshened.head)
    }

    /// Head after another part of the response.
    pub(crate) fn combined(
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

    pub(crate) fn rule(&self) -> &CacheRule {
        self.site.rule_at(self.rule)
    }

    pub(crate) fn entry(&self, variants: Vec<StoredResponse>) -> CacheEntry {
        CacheEntry::new(self.memory.budget(), variants, None).unwrap()
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            memory: &self.memory,
            epochs: &self.epochs,
            rule: self.rule(),
            groups_max: self.live.config.stores[0].groups_max,
            site_key: None,
            clock_ahead_ms: WRITING.clock_ahead_ms,
            outdated_to_ms: 0,
        }
    }

    /// Record that this reader gets from a tier with all parts.
    pub(crate) fn read(&self, encoded: &Encoded) -> Option<CacheEntry> {
        gathered(encoded).entry(&small_bodies(encoded), &self.reader())
    }

    /// Record that this reader gets for the key of requests with this method.
    pub(crate) fn read_as(&self, method: &str, encoded: &Encoded) -> Option<CacheEntry> {
        let site_key = key_of(&self.site, Scheme::Http, URL.0, URL.1);
        let site_key = (method == "QUERY").then_some(&site_key[..]);
        gathered(encoded).entry(&small_bodies(encoded), &Reader { site_key, ..self.reader() })
    }
}

pub(crate) const WRITING: Writing<'_> =
    Writing { key: KEY, keys: None, given: &[], epochs: None, now: NOW, clock_ahead_ms: 5_000 };

/// Encodes for a tier that has been given all of all bodies.
pub(crate) fn encode_given(writing: &Writing<'_>, entry: &CacheEntry, merge: Merge<'_>) -> Option<Encoded> {
    let bodies = entry.variants().iter().filter_map(|variant| variant.body.segmented());
    let given: Vec<_> = bodies.filter_map(Segmented::layout).collect();
    encode(&Writing { given: &given, ..*writing }, entry, merge)
}

pub(crate) fn written(entry: &CacheEntry) -> Encoded {
    encode_given(&WRITING, entry, Merge::default()).expect("there is something")
}

/// Decodes with all responses that are stored apart.
pub(crate) fn gathered(encoded: &Encoded) -> Decoded<'_> {
    let mut decoded = decode(&encoded.primary, KEY, None).unwrap();
    for (id, bytes) in &encoded.apart {
        decoded.add_apart(*id, bytes).unwrap();
    }
    assert_eq!(decoded.apart().count(), 0);
    decoded
}

pub(crate) fn small_bodies(encoded: &Encoded) -> Vec<(store::FillId, Bytes)> {
    encoded.segments.iter().map(|segment| (segment.id.fill, segment.data.clone())).collect()
}

pub(crate) fn inline(head: StoredHead, body: &[u8]) -> StoredResponse {
    StoredResponse { head: Arc::new(head), body: StoredBody::Inline(Bytes::copy_from_slice(body)) }
}

pub(crate) fn at(time: Timestamp) -> ExchangeTimes {
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
