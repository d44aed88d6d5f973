//! Context of a request, for every step of the pipeline. The context is borrowed while the request is in the
//! buffer of its connection, and owned after that.

use std::ops::Deref;
use std::sync::Arc;

use cache::Cache;
use cache::head_maker::{Arrived, HeadMaker};
use cache::membership::Stamp;
use cache::settings::StorageRules;
use caching::explain::Finding;
use caching::{ExchangeTimes, MethodClass, RequestFacts, Timestamp};
use fleet::Tier;
use message::client::{Client, named_address_of};
use message::clock::now;
use message::explain_record::note;
use message::head::{RequestHead, Version};
use origin::{OriginError, OriginResponse};
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::config::CacheRule;
use crate::rewrite;
use crate::rewrite::reading::Inbound;
use crate::routing::{LiveSite, RuleMatch, key_of};
use crate::stores::Store;
use crate::worker::Worker;

/// A request with its site, before its rule is known.
#[derive(Clone, Copy)]
pub(crate) struct SiteContext<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) live: &'a Arc<ActiveConfig>,
    pub(crate) site: &'a Arc<LiveSite>,
    /// Time at which the header section was complete.
    pub(crate) started: Instant,
}

/// A request with its cache rule.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) at: SiteContext<'a>,
    /// Position of the rule in the site.
    pub(crate) matched: RuleMatch,
    pub(crate) rule: &'a CacheRule,
    pub(crate) request: &'a RequestHead<'a>,
    pub(crate) facts: &'a RequestFacts,
    /// Time for which the freshness of stored responses is evaluated.
    pub(crate) now: Timestamp,
}

/// A request that outlives the buffer of its connection, with its cache rule.
#[derive(Clone)]
pub(crate) struct OwnedContext {
    pub(crate) worker: Arc<Worker>,
    pub(crate) live: Arc<ActiveConfig>,
    pub(crate) site: Arc<LiveSite>,
    /// Position of the rule in the site.
    pub(crate) rule: RuleMatch,
    pub(crate) request: Arc<Inbound>,
    pub(crate) facts: RequestFacts,
}

impl<'a> Deref for RequestContext<'a> {
    type Target = SiteContext<'a>;

    #[inline]
    fn deref(&self) -> &SiteContext<'a> {
        &self.at
    }
}

impl<'a> RequestContext<'a> {
    #[inline]
    pub(crate) fn new(
        at: SiteContext<'a>,
        matched: RuleMatch,
        request: &'a RequestHead<'a>,
        facts: &'a RequestFacts,
    ) -> Self {
        Self { at, matched, rule: at.site.rule_at(matched), request, facts, now: now() }
    }

    #[inline]
    pub(crate) fn store(&self) -> &'a Store {
        self.worker.shared.stores.of(&self.site.config)
    }

    #[inline]
    pub(crate) fn cache(&self) -> &'a Cache {
        &self.store().cache
    }

    /// Returns the client of the request; `None` if it came through a trusted proxy that names no client.
    pub(crate) fn client(&self) -> Option<Client> {
        named_address_of(self.request, &self.live.config.trusted_proxies).map(Client::of)
    }

    /// Returns a copy that outlives the buffer of the connection.
    pub(crate) fn into_owned(self) -> OwnedContext {
        let Self { at: SiteContext { worker, live, site, .. }, matched, request, facts, .. } = self;
        OwnedContext {
            worker: Arc::clone(worker),
            live: Arc::clone(live),
            site: Arc::clone(site),
            rule: matched,
            request: Arc::new(Inbound::new(request, live, site, matched)),
            facts: *facts,
        }
    }
}

impl OwnedContext {
    /// Store of the site.
    pub(crate) fn store(&self) -> &Store {
        self.worker.store(&self.site)
    }

    /// Cache of the site.
    pub(crate) fn cache(&self) -> &Cache {
        &self.store().cache
    }

    /// Tier behind memory, if any.
    pub(crate) fn tier(&self) -> Option<&Tier> {
        self.store().tier.as_deref()
    }

    /// Cache rule of the request.
    pub(crate) fn rule(&self) -> &CacheRule {
        self.site.rule_at(self.rule)
    }

    /// Returns the client to which a forward is attributed.
    pub(crate) fn client(&self) -> Option<Client> {
        Client::of_request(&self.request, &self.live.config.trusted_proxies)
    }

    pub(crate) fn storage_rules(&self) -> StorageRules<'_> {
        self.live.config.storage_rules(&self.site.config, self.rule())
    }

    /// Returns the key of the request's URL alone, if the key of the request has more parts.
    pub(crate) fn site_key(&self) -> Option<Vec<u8>> {
        let request = &self.request;
        let has_more = self.facts.method == MethodClass::Query || !request.keyed.is_empty();
        has_more.then(|| key_of(&self.site, request.scheme, &request.authority, &request.path_and_query))
    }

    /// Returns a maker of stored heads for the responses to this request.
    pub(crate) fn head_maker(&self, stamp: Stamp) -> HeadMaker<'_> {
        HeadMaker {
            rules: self.storage_rules(),
            request: &*self.request,
            facts: &self.facts,
            site_key: self.site_key(),
            invalidations: &self.cache().invalidations,
            stamp,
            keeps_inputs: self.cache().keeps_inputs,
        }
    }

    /// Returns an origin's response with only the fields that the site forwards.
    pub(crate) fn arrived<'a>(&self, response: &'a OriginResponse, times: ExchangeTimes) -> Arrived<'a> {
        let (received, server_name) = (Version::received(response.version), &self.live.config.server_name);
        let (fields, site) = (response.fields.clone(), &self.site.config);
        let end_to_end = rewrite::response_fields(fields, site, received, server_name, || times.response);
        Arrived { response, end_to_end, times }
    }

    /// Returns the times of an exchange with the origin whose response has just arrived.
    pub(crate) fn times_since(&self, request: Timestamp) -> ExchangeTimes {
        ExchangeTimes { request, response: now(), clock_ahead_ms: self.store().clock_ahead_ms() }
    }

    pub(crate) fn note(&self, finding: impl FnOnce() -> Finding) {
        note(self.request.record.as_ref(), finding);
    }

    /// Takes one forward from the budget of the rule.
    ///
    /// # Errors
    /// [`OriginError::MissBudget`], if the budget is used up.
    pub(crate) fn spend(&self) -> Result<(), OriginError> {
        self.site.spend(self.rule, &self.worker.recorder, self.request.record.as_ref())
    }
}
