//! Forwards of other methods that change stored GET responses: a HEAD updates them (RFC 9111 section 4.3.5), and the response to a POST
//! is stored for later GETs if the rule and the response permit it (RFC 9110 section 9.3.3).

use std::sync::Arc;

use cache::collapse::order::{Exchanged, Sequence};
use cache::collapse::table::{LeaderGuard, Waiter};
use cache::entry::stored::{CacheEntry, StoredHead, StoredResponse};
use caching::head_update::{self, Stored};
use caching::post::may_store_for_get;
use caching::{
    ExchangeTimes, HeadUpdate, MethodClass, NotReused, RequestFacts, ResponseFacts, StoredFacts, sharing,
};
use message::clock::now;
use origin::OriginResponse;
use store::Change;

use crate::config::OverrideFields;
use crate::request::context::OwnedContext;
use crate::request::fetch::fetch_spec::{Fetch, FetchScope, Sharing};
use crate::request::fetch::job::Job;
use crate::request::fetch::publication::is_gone;
use crate::request::plan::{Next, Plan};
use crate::routing::{Keyed, key_of, write_site_key};

/// A HEAD in flight to the origin, with the responses that were stored when it was sent. A purge or invalidation in the meantime may be
/// newer than the origin's response. Therefore the response doesn't freshen stored responses that the purge or invalidation made stale.
pub(crate) struct HeadExchange {
    key: Vec<u8>,
    began: Sequence,
    /// Record that is held until the response is applied. Otherwise, memory might drop a record that the tier still has; the record
    /// would then not be found, and be removed as unknown.
    stored: Option<Arc<CacheEntry>>,
}

impl HeadExchange {
    /// Records the stored responses. Returns `None` for other methods, and for a HEAD that changes its target by content or by fields
    /// outside the cache key, because its response doesn't apply to the stored responses.
    pub(crate) fn begin(plan: &Plan) -> Option<Self> {
        let request = &plan.request;
        let is_about_target = !plan.facts.has_content && !request.has_unkeyed_overrides();
        if plan.facts.method != MethodClass::Head || !is_about_target {
            return None;
        }
        let mut key = Vec::new();
        let of_get = Keyed {
            site: &plan.site,
            scheme: request.scheme,
            authority: &request.authority,
            fields: &request.keyed,
        };
        write_site_key(&of_get, &request.path_and_query, &plan.rule().query, &mut key);
        let cache = plan.cache();
        let began = cache.fetches.turn();
        let stored = cache.look_up(&key);
        Some(Self { key, began, stored })
    }

    /// Updates or invalidates each stored response that could have answered this HEAD. The response to the HEAD itself is never stored,
    /// since it has no content. A response that may be personal doesn't change stored responses for others.
    pub(crate) fn apply(&self, plan: &Plan, response: &OriginResponse, times: ExchangeTimes) {
        let facts = RequestFacts { method: MethodClass::Get, ..plan.facts };
        let of_get = OwnedContext { facts, ..OwnedContext::clone(plan) };
        let rules = &plan.rule().caching;
        let lines = response.fields.to_lines();
        let news = ResponseFacts::parse(response.status.as_u16(), &lines, times, rules);
        if !sharing::may_inform(&facts, &news, rules) {
            return;
        }
        let cache = plan.cache();
        let update = Update { asked: self, of_get: &of_get, response, times };
        if response.status == http::StatusCode::OK {
            update.supersede(&news);
        }
        let mut is_known = true;
        cache.update(&self.key, |current| {
            is_known = current.is_some_and(|entry| !entry.variants().is_empty());
            let Some(entry) = current else { return Change::Keep };
            let Some(variants) = update.variants(entry) else { return Change::Keep };
            if variants.is_empty() && entry.uncacheable().is_none() {
                return Change::Remove;
            }
            entry.changed_to(cache.budget(), variants)
        });
        // An earlier read of the tier may have failed, so the tier may still have responses to update.
        if !is_known {
            cache.remove_unknown(&self.key);
        }
    }

    /// Returns whether this response was stored when the HEAD was sent.
    fn is_about(&self, head: &Arc<StoredHead>) -> bool {
        let mut known = self.stored.iter().flat_map(|entry| entry.variants());
        known.any(|known| Arc::ptr_eq(&known.head, head))
    }
}

struct Update<'a> {
    asked: &'a HeadExchange,
    /// Context of a GET for the same target.
    of_get: &'a OwnedContext,
    response: &'a OriginResponse,
    times: ExchangeTimes,
}

impl Update<'_> {
    /// Prevents fetches in progress from storing older responses with a different representation.
    fn supersede(&self, news: &ResponseFacts) {
        let Self { of_get, response, times, .. } = *self;
        let (rule, fetches) = (of_get.rule(), &of_get.cache().fetches);
        let maker = of_get.head_maker(of_get.cache().invalidations.stamp());
        let fields = of_get.arrived(response, times).end_to_end;
        let facts = StoredFacts::new(&of_get.facts, news, &rule.caching);
        let Ok(head) = maker.head(facts, fields, None, None) else { return };
        let head = Arc::new(head);
        let request = of_get.request.sent().to_lines();
        let selecting = rule.selecting(&request);
        let exchanged = Exchanged { began: self.asked.began, answered: Some(fetches.turn()) };
        fetches.supersede((&self.asked.key, exchanged), &head, |other| {
            other.is_selected_by(selecting) && !other.is_same_representation(&head)
        });
    }

    /// Returns all variants under the key after the update, or `None` if none changes.
    fn variants(&self, entry: &CacheEntry) -> Option<Vec<StoredResponse>> {
        let request = self.of_get.request.sent().to_lines();
        let selecting = self.of_get.rule().selecting(&request);
        let mut changes = 0;
        let mut updated = Vec::with_capacity(entry.variants().len());
        for variant in entry.variants() {
            let change = match variant.head.is_selected_by(selecting) {
                true => self.change(variant),
                false => Changed::No,
            };
            changes += usize::from(!matches!(change, Changed::No));
            match change {
                Changed::No => updated.push(variant.clone()),
                Changed::To(head) => {
                    updated.push(StoredResponse { head, body: variant.body.clone() });
                }
                Changed::Gone => {}
            }
        }
        (changes > 0).then_some(updated)
    }

    //= RFC 9111 section 4.3.5: fields of the HEAD response
    fn change(&self, variant: &StoredResponse) -> Changed {
        let head = &variant.head;
        let answer = self.response.fields.to_lines();
        let stored = Stored {
            facts: &head.facts,
            validators: &head.validators(),
            content_bytes: variant.body.complete_bytes(),
        };
        match head_update::judge(self.response.status.as_u16(), &answer, &stored, self.times) {
            HeadUpdate::Keep => Changed::No,
            // The response is removed: if it were only stale, it could still be used under `stale-while-revalidate`, or in place of an
            // error.
            HeadUpdate::Invalidate if is_gone(self.response.status) => Changed::Gone,
            HeadUpdate::Invalidate => Changed::To(Arc::new(head.expired(now()))),
            HeadUpdate::Freshen if self.asked.is_about(head) => self.freshened(head),
            HeadUpdate::Freshen => Changed::No,
        }
    }

    fn freshened(&self, stored: &StoredHead) -> Changed {
        // A response to HEAD without validators proves too little, so an invalidated response stays invalidated until the next GET.
        let maker = self.of_get.head_maker(stored.checked.stamp());
        let freshened = maker.freshen(stored, &self.of_get.arrived(self.response, self.times));
        if let (Some(usage), Some(before)) = (freshened.head.usage(), stored.usage()) {
            usage.take_over(before);
        }
        match freshened.storable {
            Ok(_) => Changed::To(Arc::new(freshened.head)),
            Err(reason) if reason.is_of_request() => Changed::No,
            Err(_) => Changed::Gone,
        }
    }
}

/// Change of one variant.
enum Changed {
    No,
    To(Arc<StoredHead>),
    Gone,
}

/// A POST in flight to the origin whose response may be stored. The POST is listed under the key of the GET from the start. If another
/// request invalidates the key in the meantime, the response is older than the invalidation, and isn't stored.
pub(crate) struct PostStore {
    pub(crate) waiter: Waiter,
    leader: LeaderGuard,
    job: Job,
}

impl PostStore {
    /// Lists the POST. Returns `None` if the response to the POST can't be stored.
    pub(crate) fn begin(plan: &Plan) -> Option<Self> {
        let rule = plan.rule();
        let request = plan.request();
        let is_permitted = request.method == "POST" && rule.caching.enabled && rule.caching.store_post;
        if !is_permitted || request.upgrade.is_some() || plan.facts.has_range {
            return None;
        }
        // Forwarded override fields may change the method or the target.
        let is_replaced =
            rule.override_fields != OverrideFields::Forward && plan.request.has_unkeyed_overrides();
        if is_replaced || !request.keyed.is_empty() {
            return None;
        }
        let key = key_of(&plan.site, request.scheme, &request.authority, &request.path_and_query);
        let fetch_table = &plan.cache().fetches;
        let waiter = fetch_table.alone(&key);
        let leader = LeaderGuard::new(&waiter, fetch_table);
        Some(Self { waiter, leader, job: job(plan, key) })
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

    /// Stores the response; the client of the POST reads it from the fill. Call this after the invalidations of the POST itself,
    /// because the response is newer. Other invalidations since the POST was sent still apply to the forward.
    pub(crate) fn take(self, response: Box<OriginResponse>, times: ExchangeTimes) -> Next {
        let Self { waiter, leader, job } = self;
        let stamp = job.cache().invalidations.stamp();
        let look_up = job.fetch.look_up.at(stamp);
        let fetch = Arc::new(Fetch { look_up, ..job.fetch.with_scope(FetchScope::Whole) });
        let job = Job { stamp, fetch: Arc::clone(&fetch), ..job };
        drop(tokio::spawn(async move { job.take(response, times, leader).await }));
        Next::Follow { fetch, waiter }
    }
}

fn job(plan: &Plan, key: Vec<u8>) -> Job {
    let cache = plan.cache();
    let look_up = cache.invalidations.look_up(&key, cache.invalidations.stamp());
    let fetch = Fetch { sharing: Sharing::Alone, ..Fetch::new(key, look_up, NotReused::Method) };
    let owned = OwnedContext { facts: plan.facts.as_get(), ..OwnedContext::clone(plan) };
    Job::new(&owned, Arc::new(fetch))
}
