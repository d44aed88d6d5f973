//! Validations that no client waits for.

use std::sync::Arc;

use crate::cache::inflight::table::{Join, LeaderGuard};
use crate::cache::inflight::wanted::{Fetch, Sharing};
use crate::cache::lookup::Lookup;
use crate::cache::publish::in_turn::Awaiting;
use crate::cache::publish::job::Job;
use crate::cache::record::stored::Hit;
use crate::cache::using::Use;
use crate::trace::Record;
use crate::transform::reading::Inbound;

/// Starts the validation behind a response that was served stale while it runs.
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
pub(crate) fn if_stale(lookup: &Lookup<'_>, used: Use, hit: &Hit, key: &[u8]) {
    if used == Use::StaleWhileRevalidate {
        start(lookup, Arc::new(lookup.validation(hit, key)));
    }
}

/// Unless one is under way.
fn start(lookup: &Lookup<'_>, fetch: Arc<Fetch>) {
    let cache = &lookup.worker.shared.cache;
    let (fetch_table, stamp) = (cache.fetches(), cache.stamp());
    let place = (&*fetch.key, &*fetch.variant);
    let joined =
        fetch_table.join(place, usize::MAX, fetch.look_up.at(stamp), |began| cache.is_overtaken(began));
    if let Join::Lead(waiter) = joined {
        let job = Job {
            worker: Arc::clone(lookup.worker),
            live: Arc::clone(lookup.live),
            site: Arc::clone(lookup.site),
            rule: lookup.rule,
            request: Arc::new(Inbound::new(lookup.request, lookup.live, lookup.site, lookup.rule)),
            noting: lookup.request.record.map(Record::open),
            facts: *lookup.facts,
            fetch,
            stamp,
            lease: None,
        };
        let leader = LeaderGuard::new(&waiter, fetch_table);
        match job.takes_turn(Sharing::Joined, Awaiting::News) {
            false => drop(tokio::spawn(job.run(leader))),
            true => drop(tokio::spawn(job.run_in_turn(leader, Awaiting::News))),
        }
    }
}
