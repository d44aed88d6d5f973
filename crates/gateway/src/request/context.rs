//! Context of a request that every step of the pipeline reads.

use std::sync::Arc;

use cache::Cache;
use caching::RequestFacts;
use message::client::{Client, named_address_of};
use message::head::RequestHead;
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::config::CacheRule;
use crate::request::reply::Reply;
use crate::request::respond::{self, Problem};
use crate::routing::{LiveSite, RuleMatch};
use crate::stores::Store;
use crate::worker::Worker;

/// A request at its site, before a rule is known.
#[derive(Clone, Copy)]
pub(crate) struct SiteContext<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) live: &'a Arc<ActiveConfig>,
    pub(crate) site: &'a Arc<LiveSite>,
    /// Time at which the header section was complete.
    pub(crate) started: Instant,
}

/// A request with the rule that it goes by.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) live: &'a Arc<ActiveConfig>,
    pub(crate) site: &'a Arc<LiveSite>,
    pub(crate) started: Instant,
    /// Place of the rule in the site.
    pub(crate) matched: RuleMatch,
    pub(crate) rule: &'a CacheRule,
    pub(crate) request: &'a RequestHead<'a>,
    pub(crate) facts: &'a RequestFacts,
}

impl SiteContext<'_> {
    /// Reply that this gateway makes itself.
    pub(crate) fn reply(&self, problem: &Problem) -> Reply {
        respond::reply(problem, Some(self.site), self.started, self.worker).locally()
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
        let SiteContext { worker, live, site, started } = at;
        Self { worker, live, site, started, matched, rule: site.rule_at(matched), request, facts }
    }

    #[inline]
    pub(crate) fn store(&self) -> &'a Store {
        self.worker.shared.stores.of(&self.site.config)
    }

    #[inline]
    pub(crate) fn cache(&self) -> &'a Cache {
        &self.store().cache
    }

    /// Client of the request; `None` if it came by a trusted proxy that names none.
    pub(crate) fn client(&self) -> Option<Client> {
        named_address_of(self.request, &self.live.config.trusted_proxies).map(Client::of)
    }
}
