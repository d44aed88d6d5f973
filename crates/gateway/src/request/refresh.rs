//! Validations that no client waits for.

use std::sync::Arc;
use std::time::Duration;

use cache::collapse::answer::Answer;
use cache::collapse::table::{Asker, Join, LeaderGuard};
use cache::entry::stored::Hit;
use cache::membership::Stamp;
use cache::settings::{CollapseLimits, LeaderFailure};
use message::client::Client;
use message::clock::now;
use message::head::RequestHead;
use origin::Probe;

use crate::request::context::RequestContext;
use crate::request::fetch::fetch_spec::{Fetch, Sharing};
use crate::request::fetch::fleet_fetch::Awaiting;
use crate::request::fetch::job::Job;
use crate::request::lookup::Lookup;
use crate::request::serve::Use;

/// Starts the validation behind a response that is used while it runs.
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
pub(crate) fn behind(lookup: &Lookup<'_>, used: Use, hit: &Hit, key: &[u8]) {
    let event = match used {
        Use::RefreshAhead => "ahead",
        Use::StaleWhileRevalidate => "stale",
        Use::Fresh | Use::Stale(_) | Use::Asked { .. } | Use::FoundElsewhere(_) => return,
    };
    if lookup.cache().backoff.holds_back(key, lookup.client(), lookup.now) {
        return;
    }
    let (cache, fetch) = (lookup.cache(), Arc::new(lookup.validation(hit, key)));
    let (fetch_table, stamp) = (&cache.fetches, cache.invalidations.stamp());
    let place = (&*fetch.key, &*fetch.variant);
    let limits = lookup.site.config.collapse.limits().unwrap_or(NOBODY_WAITS);
    let who = (Asker { client: lookup.client(), ..Asker::default() }, limits);
    let joined = fetch_table
        .join(place, who, fetch.look_up.at(stamp), |began| cache.invalidations.record_overtaken(began));
    // Unless a fetch is under way.
    if let Join::Lead(waiter) = joined {
        let leader = LeaderGuard::new(&waiter, fetch_table);
        // Another one may have ended between the look-up and the join.
        if let Some(newer) = stored_since(lookup, hit, key) {
            return leader.land(Answer::Found(newer));
        }
        lookup.worker.recorder.background_validation(event);
        drop(tokio::spawn(run(job(lookup, fetch, stamp), leader, lookup.client(), None)));
    }
}

/// Limits where requests don't wait for each other.
const NOBODY_WAITS: CollapseLimits = CollapseLimits {
    wait_max: Duration::ZERO,
    waiters_max: 0,
    on_failure: LeaderFailure::HandOver,
    uncacheable_for: Duration::ZERO,
};

/// Response that has replaced a stored one since the look-up.
fn stored_since(lookup: &Lookup<'_>, hit: &Hit, key: &[u8]) -> Option<Hit> {
    let newest = lookup.cache().look_up(key)?.select(lookup.selecting())?;
    (!Arc::ptr_eq(&newest.head, &hit.head)).then_some(newest)
}

/// Starts the validation that probes an origin whose circuit breaker isn't closed, behind a response that stands in for it. No other
/// request can join it, because none should wait for it.
pub(crate) fn probe(lookup: &Lookup<'_>, probe: Probe, hit: &Hit, key: &[u8]) {
    let (cache, fetch) = (lookup.cache(), Arc::new(lookup.validation(hit, key)));
    let (fetch_table, stamp) = (&cache.fetches, cache.invalidations.stamp());
    let waiter = fetch_table.alone(key);
    lookup.worker.recorder.background_validation("probe");
    let leader = LeaderGuard::new(&waiter, fetch_table);
    drop(tokio::spawn(run(job(lookup, fetch, stamp), leader, lookup.client(), Some(probe))));
}

fn job(lookup: &Lookup<'_>, fetch: Arc<Fetch>, stamp: Stamp) -> Job {
    // The validation isn't part of the request, which doesn't wait for it.
    let timeline = lookup.request.timeline.and_then(|timeline| timeline.behind("larder.refresh"));
    let timeline = timeline.map(Arc::new);
    let request = RequestHead { timeline: timeline.as_ref(), ..*lookup.request };
    let context = RequestContext { request: &request, ..lookup.context };
    Job { stamp, ..Job::new(&context.into_owned(), fetch) }
}

async fn run(job: Job, leader: LeaderGuard, client: Option<Client>, probe: Option<Probe>) {
    let (worker, site, fetch) = (Arc::clone(&job.worker), Arc::clone(&job.site), Arc::clone(&job.fetch));
    let in_flight = Arc::clone(&leader.in_flight);
    match probe {
        None if job.takes_turn(Sharing::Joined, Awaiting::News) => {
            job.run_in_turn(leader, Awaiting::News).await;
        }
        // Each instance probes for itself: the result of another one says nothing to this circuit breaker.
        probe => job.run(probe, leader).await,
    }
    let cache = worker.cache(&site);
    let is_unchanged = |hit: &Hit| {
        let entry = cache.look_up(&fetch.key);
        entry
            .is_some_and(|entry| entry.variants().iter().any(|variant| Arc::ptr_eq(&variant.head, &hit.head)))
    };
    if fetch.stale.as_ref().is_some_and(is_unchanged) {
        worker.recorder.background_validation("in_vain");
        let refused = client.filter(|_| in_flight.has_no_answer_for_others());
        cache.backoff.begin(&fetch.key, refused, now());
    }
}
