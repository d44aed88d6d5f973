//! Who takes part in which forward.

use crate::cache::inflight::table::{Join, Waiter};
use crate::cache::publish::job::Job;

/// Whether a request started the forward that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Waiter,
}

/// Takes part in the forward that `job` wants, or is the one to start it.
pub(crate) fn join_or_lead(job: &Job, variant: &[u8]) -> (Waiter, Role) {
    let cache = job.cache();
    let (fetch_table, now) = (cache.fetches(), job.fetch.look_up.at(job.stamp));
    let variant_and_scope = [variant, &job.fetch.scope.scope_suffix()].concat();
    let joined = match job.site.config.collapse.limits() {
        None => Join::Full,
        Some(limits) => {
            let place = (&*job.fetch.key, &*variant_and_scope);
            fetch_table.join(place, limits.waiters_max, now, |began| cache.is_overtaken(began))
        }
    };
    match joined {
        Join::Wait(waiter) => (waiter, Role::Waiter),
        Join::Lead(waiter) => (waiter, Role::Leader),
        Join::Full => (fetch_table.alone(&job.fetch.key), Role::Leader),
    }
}
