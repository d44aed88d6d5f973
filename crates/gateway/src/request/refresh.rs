//! Background validations, and the stored responses that are used during a validation.
//!
//! If the circuit breaker of an origin isn't closed, requests with a usable stored response don't wait for the origin: when a probe is
//! due, a background validation serves as the probe.

use std::sync::Arc;
use std::time::Duration;

use cache::collapse::answer::Answer;
use cache::collapse::table::{Asker, Join, LeaderGuard};
use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use cache::membership::Stamp;
use cache::settings::{CollapseLimits, LeaderFailure};
use caching::explain::Finding;
use caching::{FwdReason, Outcome, may_serve_stale};
use message::client::Client;
use message::clock::now;
use message::explain_record::note;
use message::head::RequestHead;
use origin::{OriginError, Probe};
use telemetry::CacheResult;

use crate::events::{self, Event};
use crate::request::context::RequestContext;
use crate::request::fetch::fetch_spec::{Fetch, Sharing};
use crate::request::fetch::job::Awaiting;
use crate::request::fetch::job::Job;
use crate::request::lookup::Lookup;
use crate::request::plan::{ForwardMode, StandIn};
use crate::request::reply::Reply;
use crate::request::serve::Use;
use crate::request::{findings, origin_call};

/// Starts a background validation of a stored response, which is used in the meantime.
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
pub(crate) fn behind(lookup: &Lookup<'_>, event: &'static str, hit: &Hit, key: &[u8]) {
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
    // The validation starts only if no fetch is in progress.
    if let Join::Lead(waiter) = joined {
        let leader = LeaderGuard::new(&waiter, fetch_table);
        // Another fetch may have ended between the look-up and the join.
        if let Some(newer) = stored_since(lookup, hit, key) {
            return leader.land(Answer::Found(newer));
        }
        lookup.worker.recorder.background_validation(event);
        drop(tokio::spawn(run(job(lookup, fetch, stamp), leader, lookup.client(), None)));
    }
}

/// Limits on waiting for sites whose requests don't wait for each other.
const NOBODY_WAITS: CollapseLimits = CollapseLimits {
    wait_max: Duration::ZERO,
    waiters_max: 0,
    on_failure: LeaderFailure::HandOver,
    uncacheable_for: Duration::ZERO,
};

/// Returns the response that has replaced `hit` since the look-up.
fn stored_since(lookup: &Lookup<'_>, hit: &Hit, key: &[u8]) -> Option<Hit> {
    let newest = lookup.cache().look_up(key)?.select(lookup.selecting())?;
    (!Arc::ptr_eq(&newest.head, &hit.head)).then_some(newest)
}

/// Starts a background validation that probes an origin whose circuit breaker isn't closed, while the stored response is used. Other
/// requests can't join the validation, because they shouldn't wait for it.
fn probe(lookup: &Lookup<'_>, probe: Probe, hit: &Hit, key: &[u8]) {
    let (cache, fetch) = (lookup.cache(), Arc::new(lookup.validation(hit, key)));
    let (fetch_table, stamp) = (&cache.fetches, cache.invalidations.stamp());
    let waiter = fetch_table.alone(key);
    lookup.worker.recorder.background_validation("probe");
    let leader = LeaderGuard::new(&waiter, fetch_table);
    drop(tokio::spawn(run(job(lookup, fetch, stamp), leader, lookup.client(), Some(probe))));
}

fn job(lookup: &Lookup<'_>, fetch: Arc<Fetch>, stamp: Stamp) -> Job {
    // The request doesn't wait for the validation, so the validation has its own timeline.
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
        // Each instance sends its own probes, because results of other instances don't affect this circuit breaker.
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

const OPEN: OriginError = OriginError::CircuitOpen { retry: Duration::ZERO };

/// Replies with a stored response if the circuit breaker of the origin isn't closed, or returns how to load that response. Returns
/// `None` if the request must wait for the origin, or be refused.
pub(crate) fn instead(
    lookup: &Lookup<'_>,
    (StandIn { hit, look_up }, fwd): (&StandIn, FwdReason),
    key: &[u8],
) -> Option<Result<Reply, ForwardMode>> {
    let RequestContext { at, request, rule, facts, now, .. } = lookup.context;
    let (circuit, cause) = (at.site.upstream.open_circuit()?, FailureCause::of_error(&OPEN));
    if !may_serve_stale(facts, &hit.head.facts, &rule.caching, now, cause.failure)
        || !lookup.cache().may_stand_in(key, *look_up, &hit.head)
    {
        return None;
    }
    let leave = circuit.probe(lookup.client());
    note(request.record, || tried(lookup, &leave));
    note(request.record, || findings::failure(Some(hit), true, cause, now));
    let outcome = Outcome::Forwarded { reason: fwd, status: None, stored: false, collapsed: false };
    let used = Use::Asked { outcome, result: CacheResult::Stale };
    let way = match lookup.stale(hit, cause, used) {
        Some(reply) => Ok(reply),
        None if lookup.is_within_reach(hit) => Err(lookup.loading(hit, used, Some(cause), key)),
        None => return None,
    };
    // The request counts as one that the circuit breaker has refused.
    origin_call::count(at.worker, at.site, request.method, Err(&OPEN), Duration::ZERO);
    match leave {
        Ok(permit) => probe(lookup, permit, hit, key),
        // No request was sent to the origin.
        Err(error) => {
            let event = Event::OriginFailed { error: &error, server: None };
            events::emit(at.site, request.path_and_query, &event);
        }
    }
    Some(way)
}

/// Returns a finding about whether the origin is probed in the background.
fn tried(lookup: &Lookup<'_>, leave: &Result<Probe, OriginError>) -> Finding {
    let says = match leave {
        Ok(_) => "the circuit breaker probes the origin in the background".to_owned(),
        Err(error) => format!("the origin fails: {error}"),
    };
    let origin = lookup.site.config.origin.name.as_str();
    Finding::new("forward", says, "RFC 9209 section 2.3").with("origin", origin, "")
}
