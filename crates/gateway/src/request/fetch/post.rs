//! Stores the response to a POST for later GETs, where the rule and the response permit it (RFC 9110 section 9.3.3).

use std::sync::Arc;

use cache::collapse::table::{LeaderGuard, Waiter};
use caching::post::may_store_for_get;
use caching::{ExchangeTimes, NotReused, ResponseFacts};
use origin::OriginResponse;

use crate::config::OverrideFields;
use crate::request::context::OwnedContext;
use crate::request::fetch::fetch_spec::FetchScope;
use crate::request::fetch::fetch_spec::{Fetch, Sharing};
use crate::request::fetch::job::Job;
use crate::request::plan::{Next, Plan};
use crate::routing::key_of;

/// A POST on its way to the origin, whose response may be stored. It is listed under the key of the GET from the beginning: if another
/// request invalidates the key meanwhile, the response is older than that request's effect and is not stored.
pub(crate) struct PostStore {
    waiter: Waiter,
    leader: LeaderGuard,
    job: Job,
}

impl PostStore {
    /// Lists the POST. `None` if its response can't be stored in any case.
    pub(crate) fn begin(plan: &Plan) -> Option<Self> {
        let rule = plan.rule();
        let request = plan.request();
        let is_permitted = request.method == "POST" && rule.caching.enabled && rule.caching.store_post;
        if !is_permitted || request.upgrade.is_some() || plan.facts.has_range {
            return None;
        }
        // Override fields that are forwarded may have changed the method or the target.
        let is_replaced =
            rule.override_fields != OverrideFields::Forward && plan.request.has_unkeyed_overrides();
        if is_replaced || !request.keyed.is_empty() {
            return None;
        }
        let key = key_of(&plan.site, request.scheme, &request.authority, &request.path_and_query);
        let fetch_table = plan.cache().fetches();
        let waiter = fetch_table.alone(&key);
        let leader = LeaderGuard::new(&waiter, fetch_table);
        Some(Self { waiter, leader, job: job(plan, key) })
    }

    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Returns whether this response may be stored.
    pub(crate) fn may_store(&self, response: &OriginResponse, times: ExchangeTimes) -> bool {
        let (job, rules) = (&self.job, &self.job.rule().caching);
        let lines = response.fields.to_lines();
        let facts = ResponseFacts::parse(response.status.as_u16(), &lines, times, rules);
        let target = job.request.target();
        may_store_for_get(&job.facts, &facts, &lines, &target, rules, times.response).is_ok()
            && job.storable(&facts, response, times).is_ok()
    }

    /// Stores the response; the client that posted follows. Call this after the invalidations of the POST itself: its response is newer.
    /// The forward knows of other invalidations since it began.
    pub(crate) fn take(self, response: Box<OriginResponse>, times: ExchangeTimes) -> Next {
        let Self { waiter, leader, job } = self;
        let stamp = job.cache().stamp();
        let look_up = job.fetch.look_up.at(stamp);
        let fetch = Arc::new(Fetch { look_up, ..job.fetch.with_scope(FetchScope::Whole) });
        let job = Job { stamp, fetch: Arc::clone(&fetch), ..job };
        drop(tokio::spawn(async move { job.take(response, times, leader).await }));
        Next::Follow { fetch, waiter }
    }
}

fn job(plan: &Plan, key: Vec<u8>) -> Job {
    let cache = plan.cache();
    let look_up = cache.invalidations().look_up(&key, cache.stamp());
    let fetch = Fetch { sharing: Sharing::Alone, ..Fetch::new(key, look_up, NotReused::Method) };
    let owned = OwnedContext { facts: plan.facts.as_get(), ..OwnedContext::clone(plan) };
    Job::new(&owned, Arc::new(fetch))
}
