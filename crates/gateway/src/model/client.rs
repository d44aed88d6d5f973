//! Clients of an instance. Look-ups, loads, decisions and publications use the code of the gateway. The
//! connection to the origin is part of the model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cache::collapse::table::LeaderGuard;
use cache::entry::stored::{Hit, StoredHead};
use cache::fill::CompleteBody;
use caching::{ExchangeTimes, FieldLine, RequestFacts, ResponseFacts};
use fleet::tier::load::Asker;
use message::clock::now;
use message::fields::PackedFields;
use message::head::{Content, Nominations, Peer, RequestHead, Scheme, Trust, Version};
use origin::{OriginBody, OriginResponse};
use store::Change;
use tokio::time::{Instant, sleep};

use super::Rule;
use super::book::{FetchId, Served};
use super::origin::{Answered, Origin, body};
use super::process::Process;
use super::urls::{HOST, URLS, key};
use crate::active::ActiveConfig;
use crate::request::context::{OwnedContext, RequestContext, SiteContext};
use crate::request::fetch::fetch_spec::{Fetch, TierLookUp};
use crate::request::fetch::job::Job;
use crate::request::invalidate;
use crate::request::lookup::{Found, Lookup};
use crate::request::plan::{ForwardMode, Plan};
use crate::rewrite::reading::{self, Inbound, Terms};
use crate::routing::{LiveSite, RuleMatch};
use crate::stores::Store;

/// Response times of the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) answer: Duration,
    pub(super) body: Duration,
}

/// A client with its instance and the origin.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) process: Arc<Process>,
    pub(super) origin: Arc<Origin>,
    pub(super) planted: Option<Rule>,
}

/// A request after the gateway has parsed it.
struct Read {
    live: Arc<ActiveConfig>,
    site: Arc<LiveSite>,
    rule: RuleMatch,
    facts: RequestFacts,
}

fn head<'a>(method: &'a str, url: &'a str) -> RequestHead<'a> {
    let address = SocketAddr::from(([192, 0, 2, 1], 1234));
    RequestHead {
        method,
        scheme: Scheme::Http,
        authority: HOST,
        path_and_query: url,
        version: Version::Http11,
        fields: &[],
        nominations: Nominations::None,
        sent: None,
        keyed: &[],
        content: Content::None,
        upgrade: None,
        peer: Peer { address, trust: Trust::Untrusted, scheme: Scheme::Http },
        record: None,
        timeline: None,
        tls: None,
    }
}

impl Client {
    fn read(&self, head: &RequestHead<'_>) -> Read {
        let live = self.process.worker.live();
        let site = Arc::clone(live.routes.site(HOST, head.path_and_query).expect("there is one"));
        let rule = site.rule(head.method, head.path_and_query);
        let facts = reading::facts(head, &site.config);
        let terms = Terms { site: &site.config, rule: site.rule_at(rule) };
        let facts = reading::with_credentials(facts, head, terms);
        Read { live, site, rule, facts }
    }

    /// Requests a URL. Returns the answer if it is a stored response.
    pub(super) async fn get(self, url: &'static str, pace: Pace) -> Option<Served> {
        let (worker, head, asked) = (&self.process.worker, head("GET", url), Instant::now());
        let read = self.read(&head);
        let (mut key, mut tier, mut held) = (Vec::new(), TierLookUp::Unasked, None);
        loop {
            let at = SiteContext { worker, live: &read.live, site: &read.site, started: asked };
            let context = RequestContext::new(at, read.rule, &head, &read.facts);
            let lookup = Lookup { tier, ..Lookup::new(context) };
            key.clear();
            match lookup.run(&mut key) {
                Found::Load => {
                    let rule = read.site.rule_at(read.rule);
                    let rules = read.live.config.storage_rules(&read.site.config, rule);
                    let store = worker.shared.stores.first();
                    let remote = store.tier.as_ref().expect("all instances share one");
                    held = remote.load(&key, Asker { rules, site_key: None }).await.entry;
                    tier = TierLookUp::Asked;
                }
                Found::Use(hit, _) => return self.served((url, &key), (asked, tier), &hit),
                Found::Fetch(fetch) => {
                    self.fetch(url, &read, (&head, fetch), pace).await;
                    drop(held);
                    return None;
                }
                Found::Forward(..) | Found::NeedContent | Found::Unavailable => {
                    unreachable!("a plain GET has none of these results")
                }
            }
        }
    }

    fn served(
        &self,
        (url, key): (&'static str, &[u8]),
        (asked, tier): (Instant, TierLookUp),
        hit: &Hit,
    ) -> Option<Served> {
        let number = |name: &str| -> Option<u64> {
            std::str::from_utf8(hit.head.fields.value(name)?).ok()?.parse().ok()
        };
        let bytes = hit.body.complete_bytes()?;
        // This model ignores incomplete bodies; other tests cover them.
        let pieces = hit.pieces(0, bytes)?;
        let found: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.into_bytes().unwrap()).collect();
        let version = number("x-version").expect("all have one");
        assert!(found == body(url, version), "{url}: bytes of another version than {version}");
        let Store { cache, tier: remote, .. } = self.process.worker.shared.stores.first();
        Some(Served {
            instance: self.process.wire.index,
            url,
            name: [b"r", key].concat(),
            asked,
            is_loaded: tier == TierLookUp::Asked,
            place: format!(
                "asked at {:?}, with {:?} read of it",
                hit.head.inputs().and_then(|inputs| inputs.asked_at),
                cache.invalidations.log_read()
            ),
            fetch: number("x-fetch").expect("all have one") as FetchId,
            body: number("x-body").expect("all have one") as FetchId,
            is_pending: remote.as_ref().is_some_and(|tier| tier.is_pending(key)),
        })
    }

    /// Sends a request to the origin and stores its answer, like a forward.
    async fn fetch(
        &self,
        url: &'static str,
        read: &Read,
        (head, fetch): (&RequestHead<'_>, Arc<Fetch>),
        pace: Pace,
    ) {
        let worker = &self.process.worker;
        let fetches = &worker.shared.stores.first().cache.fetches;
        let waiter = fetches.alone(&fetch.key);
        let leader = LeaderGuard::new(&waiter, fetches);
        let owned = OwnedContext {
            worker: Arc::clone(worker),
            live: Arc::clone(&read.live),
            site: Arc::clone(&read.site),
            rule: read.rule,
            request: Arc::new(Inbound::new(head, &read.live, &read.site, read.rule)),
            facts: read.facts,
        };
        let mut job = Job::new(&owned, fetch);
        let versions: Vec<u64> = match job.is_taken_away() {
            true => Vec::new(),
            false => job.fetch.candidates.iter().filter_map(version_of).collect(),
        };
        let (mut answered, mut times) = self.ask(url, &versions, pace).await;
        if let Answered::Same { fetch } = answered {
            if self.freshened(&job, &leader, fetch, times) {
                return;
            }
            (answered, times) = self.ask(url, &[], pace).await;
        }
        let Answered::Whole { fetch, version } = answered else { return };
        sleep(pace.body).await;
        if self.planted == Some(Rule::FillsNoteTheirPlace) {
            job.stamp = worker.shared.stores.first().cache.invalidations.stamp();
        }
        self.store(&job, &leader, (url, version, fetch), times);
    }

    async fn ask(&self, url: &'static str, versions: &[u64], pace: Pace) -> (Answered, ExchangeTimes) {
        let request = now();
        sleep(pace.answer / 2).await;
        let answered = self.origin.answer(self.process.wire.index, url, versions);
        sleep(pace.answer / 2).await;
        (answered, ExchangeTimes { request, response: now(), clock_ahead_ms: 0 })
    }

    fn freshened(&self, job: &Job, leader: &LeaderGuard, fetch: FetchId, times: ExchangeTimes) -> bool {
        let news = [("x-fetch".to_owned(), fetch.to_string())];
        let response = response(304, &news, 0);
        let first = job.fetch.candidates.first();
        let hit = job.publication(leader).freshen_all(first.into_iter(), &response, times);
        hit.is_some() && !job.is_taken_away()
    }

    fn store(
        &self,
        job: &Job,
        leader: &LeaderGuard,
        (url, version, fetch): (&'static str, u64, FetchId),
        times: ExchangeTimes,
    ) {
        let body = body(url, version);
        let groups = URLS.iter().find(|(known, _)| *known == url).map_or("", |(_, groups)| groups);
        let fields = [
            ("cache-control", "max-age=3600".to_owned()),
            ("etag", format!("\"{version}\"")),
            ("cache-groups", groups.to_owned()),
            ("x-version", version.to_string()),
            ("x-fetch", fetch.to_string()),
            ("x-body", fetch.to_string()),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        let response = response(200, &fields, body.len() as u64);
        let lines = response.fields.to_lines();
        let facts = ResponseFacts::parse(200, &lines, times, &job.rule().caching);
        let Ok(storable) = job.storable(&facts, &response, times) else { unreachable!("it may be stored") };
        let publication = job.publication(leader);
        let made = job.head_maker().made(&storable, &lines, job.arrived(&response, times));
        let Ok((head, _)) = made else { unreachable!("it varies by nothing") };
        let head: Arc<StoredHead> = Arc::new(head);
        let _ = publication.store(&head, CompleteBody::Inline(body));
    }

    /// Sends an unsafe request that changes a URL and optionally a group.
    pub(super) async fn change(&self, url: &'static str, group: Option<&'static str>) {
        let head = head("POST", url);
        let Read { live, site, rule, facts } = self.read(&head);
        let request = Arc::new(Inbound::new(&head, &live, &site, rule));
        let mode = ForwardMode::Query;
        let worker = Arc::clone(&self.process.worker);
        let plan = Plan {
            owned: OwnedContext { worker, live, site, rule, request, facts },
            started: Instant::now(),
            mode,
            quota: PackedFields::default(),
            asked: None,
            loaded: None,
        };
        let news = group.map(|group| ("cache-group-invalidation".to_owned(), format!("\"{group}\"")));
        let response = response(200, news.as_slice(), 0);
        invalidate::apply(&plan, &response, None).await;
    }

    /// Removes a URL from memory.
    pub(super) fn forget(&self, url: &'static str) {
        self.process.worker.shared.stores.first().cache.memory.update(&key(url), |_| Change::Remove);
    }
}

fn version_of(hit: &Hit) -> Option<u64> {
    std::str::from_utf8(hit.head.fields.value("x-version")?).ok()?.parse().ok()
}

fn response(status: u16, fields: &[(String, String)], bytes: u64) -> OriginResponse {
    let lines = fields.iter().map(|(name, value)| -> FieldLine<'_> { (name, value.as_bytes()) });
    OriginResponse {
        status: http::StatusCode::from_u16(status).unwrap(),
        reason: None,
        version: http::Version::HTTP_11,
        fields: PackedFields::from_lines(lines),
        body: OriginBody::announced(bytes),
        upgraded: None,
        unknown_transfer_coding: false,
    }
}
