//! Validations that no client waits for.

use std::sync::Arc;

use crate::cache::inflight::table::{Join, LeaderGuard};
use crate::cache::inflight::wanted::{Fetch, Sharing};
use crate::cache::lookup::Lookup;
use crate::cache::publish::in_turn::Awaiting;
use crate::cache::publish::job::Job;
use crate::cache::record::stored::Hit;
use crate::cache::using::Use;
use crate::clock::now;
use crate::message::head::RequestHead;
use crate::trace::Record;
use crate::transform::reading::Inbound;

/// Starts the validation behind a response that is used while it runs.
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
pub(crate) fn behind(lookup: &Lookup<'_>, used: Use, hit: &Hit, key: &[u8]) {
    let event = match used {
        Use::RefreshAhead => "ahead",
        Use::StaleWhileRevalidate => "stale",
        Use::Fresh | Use::Stale(_) | Use::Asked { .. } | Use::FoundElsewhere(_) => return,
    };
    if !lookup.cache().pauses().has(key, lookup.now) {
        start(lookup, Arc::new(lookup.validation(hit, key)), event);
    }
}

/// Unless one is under way.
fn start(lookup: &Lookup<'_>, fetch: Arc<Fetch>, event: &'static str) {
    let cache = lookup.cache();
    let (fetch_table, stamp) = (cache.fetches(), cache.stamp());
    let place = (&*fetch.key, &*fetch.variant);
    let joined =
        fetch_table.join(place, usize::MAX, fetch.look_up.at(stamp), |began| cache.is_overtaken(began));
    if let Join::Lead(waiter) = joined {
        // It is no part of a request, which does not wait for it.
        let timeline = lookup.request.timeline.and_then(|timeline| timeline.behind("larder.refresh"));
        let timeline = timeline.map(Arc::new);
        let request = RequestHead { timeline: timeline.as_ref(), ..*lookup.request };
        let job = Job {
            worker: Arc::clone(lookup.worker),
            live: Arc::clone(lookup.live),
            site: Arc::clone(lookup.site),
            rule: lookup.rule,
            request: Arc::new(Inbound::new(&request, lookup.live, lookup.site, lookup.rule)),
            noting: lookup.request.record.map(Record::open),
            facts: *lookup.facts,
            fetch,
            stamp,
            lease: None,
        };
        let leader = LeaderGuard::new(&waiter, fetch_table);
        lookup.worker.recorder.background_validation(event);
        drop(tokio::spawn(run(job, leader)));
    }
}

async fn run(job: Job, leader: LeaderGuard) {
    let (worker, site, fetch) = (Arc::clone(&job.worker), Arc::clone(&job.site), Arc::clone(&job.fetch));
    match job.takes_turn(Sharing::Joined, Awaiting::News) {
        false => job.run(leader).await,
        true => job.run_in_turn(leader, Awaiting::News).await,
    }
    let cache = worker.cache(&site);
    let is_unchanged = |hit: &Hit| {
        let entry = cache.look_up(&fetch.key);
        entry
            .is_some_and(|entry| entry.variants().iter().any(|variant| Arc::ptr_eq(&variant.head, &hit.head)))
    };
    if fetch.stale.as_ref().is_some_and(is_unchanged) {
        worker.recorder.background_validation("in_vain");
        cache.pauses().begin(&fetch.key, now());
    }
}
