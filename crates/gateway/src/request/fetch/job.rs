//! Fetches with all they need to run on their own.

use std::sync::Arc;

use cache::Cache;
use cache::fill::FillLimits;
use cache::head_maker::{Arrived, HeadMaker};
use cache::membership::Stamp;
use cache::settings::StorageRules;
use caching::explain::Finding;
use caching::{ExchangeTimes, RefusalScope, RequestFacts};
use fleet::Tier;
use fleet::leases::HeldLease;
use message::explain_record::{OpenRecord, Record, note};
use message::head::{Scheme, Version};
use message::reason::Detail;
use origin::{OriginError, OriginResponse};
use store::Place;

use crate::active::ActiveConfig;
use crate::config::CacheRule;
use crate::request::fetch::fetch_spec::Fetch;
use crate::request::plan::Plan;
use crate::rewrite;
use crate::rewrite::reading::Inbound;
use crate::routing::key::site_key;
use crate::routing::{LiveSite, RuleMatch};
use crate::stores::Store;
use crate::worker::Worker;

/// A fetch with all it needs to run on its own.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) worker: Arc<Worker>,
    pub(crate) live: Arc<ActiveConfig>,
    pub(crate) site: Arc<LiveSite>,
    pub(crate) rule: RuleMatch,
    pub(crate) request: Arc<Inbound>,
    /// Keeps the record of the exchange open to the end of the job, if one is kept.
    #[expect(dead_code, reason = "its end is what counts")]
    pub(crate) noting: Option<OpenRecord>,
    pub(crate) facts: RequestFacts,
    pub(crate) fetch: Arc<Fetch>,
    /// Stamp taken before the origin is asked.
    pub(crate) stamp: Stamp,
    /// Lease under which the origin is asked, for all instances that share the tier behind memory.
    pub(crate) lease: Option<Arc<HeldLease>>,
}

impl Job {
    /// Creates a job for the request of a plan.
    pub(crate) fn new(plan: &Plan, fetch: Arc<Fetch>) -> Self {
        Self {
            worker: Arc::clone(&plan.worker),
            live: Arc::clone(&plan.live),
            site: Arc::clone(&plan.site),
            rule: plan.rule,
            request: Arc::clone(&plan.request),
            noting: plan.request.record.as_ref().map(Record::open),
            facts: plan.facts,
            fetch,
            stamp: plan.cache().stamp(),
            lease: None,
        }
    }

    /// Returns the cache of the site.
    pub(crate) fn cache(&self) -> &Cache {
        self.worker.cache(&self.site)
    }

    pub(crate) fn store(&self) -> &Store {
        self.worker.store(&self.site)
    }

    /// Returns the tier behind memory, if any.
    pub(crate) fn tier(&self) -> Option<&Tier> {
        self.store().tier.as_deref()
    }

    pub(crate) fn storage_rules(&self) -> StorageRules<'_> {
        self.live.config.storage_rules(&self.site.config, self.rule())
    }

    /// Returns what makes heads that are stored of the responses to this request.
    pub(crate) fn head_maker(&self) -> HeadMaker<'_> {
        HeadMaker {
            rules: self.storage_rules(),
            request: &*self.request,
            facts: &self.facts,
            site_key: site_key(&self.site, &self.request, &self.facts),
            invalidations: self.cache().invalidations(),
            stamp: self.stamp,
            inputs: self.cache().keeps_inputs(),
        }
    }

    /// Returns a response with the fields that go on from here.
    pub(crate) fn arrived<'a>(&self, response: &'a OriginResponse, times: ExchangeTimes) -> Arrived<'a> {
        arrived(&self.live, &self.site, response, times)
    }

    pub(crate) fn note(&self, finding: impl FnOnce() -> Finding) {
        note(self.request.record.as_ref(), finding);
    }

    /// Returns whether the responses of the look-up count as never stored.
    pub(crate) fn is_taken_away(&self) -> bool {
        self.cache().is_taken_away(self.fetch.look_up)
    }

    pub(crate) fn rule(&self) -> &CacheRule {
        self.site.rule_at(self.rule)
    }

    /// Takes a forward out of the budget of the rule.
    ///
    /// # Errors
    /// [`OriginError::MissBudget`], if nothing is left.
    pub(crate) fn spend(&self) -> Result<(), OriginError> {
        self.site.spend(self.rule, &self.worker.recorder, self.request.record.as_ref())
    }

    pub(crate) fn limits(&self) -> FillLimits {
        let cache = self.cache();
        FillLimits {
            body_bytes_max: self.rule().object_bytes_max.min(cache.body_bytes_max()),
            segment_bytes: cache.segment_bytes_max(),
            first_segment_bytes: cache.segment_bytes_max(),
            place: self.place(),
        }
    }

    /// Returns the place of the body. The scheme is part of the key: if one client can be sent a file, the others that ask for the key
    /// usually can too.
    pub(crate) fn place(&self) -> Place {
        let is_plain = self.request.peer.scheme == Scheme::Http && self.request.version != Version::Http2;
        if is_plain { Place::File } else { Place::Heap }
    }

    pub(crate) fn refusal_scope(&self, reason: Detail) -> RefusalScope {
        let stored = match reason {
            Detail::Store(reason) => Some(reason),
            Detail::Reuse(_) | Detail::Here(_) | Detail::Origin(_) => None,
        };
        RefusalScope::of(&self.facts, stored)
    }
}

/// Returns a response with the fields that a site passes on.
pub(crate) fn arrived<'a>(
    live: &ActiveConfig,
    site: &LiveSite,
    response: &'a OriginResponse,
    times: ExchangeTimes,
) -> Arrived<'a> {
    let (received, server_name) = (Version::received(response.version), &live.config.server_name);
    let fields = response.fields.clone();
    let end_to_end = rewrite::response_fields(fields, &site.config, received, server_name, || times.response);
    Arrived { response, end_to_end, times }
}
