//! Joins requests to forwards.

use cache::collapse::table::{Asker, Join, Waiter, Waiting};

use crate::request::fetch::job::Job;

/// Role of a request in the forward that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Waiter,
}

/// Role of a request, with its handle on the forward.
pub(crate) enum Part {
    Leads(Waiter),
    Waits(Waiting),
}

/// Joins the forward that `job` asks for, or becomes its leader.
pub(crate) fn join_or_lead(job: &Job, variant: &[u8]) -> Part {
    let cache = job.cache();
    let (fetch_table, now) = (cache.fetches(), job.fetch.look_up.at(job.stamp));
    let variant_and_scope = [variant, &job.fetch.scope.scope_suffix()].concat();
    let joined = match job.site.config.collapse.limits() {
        None => Join::Full,
        Some(limits) => {
            let place = (&*job.fetch.key, &*variant_and_scope);
            let asker = Asker { client: job.client(), request: Some(job.request.clone()) };
            fetch_table.join(place, (asker, limits), now, |began| cache.record_overtaken(began))
        }
    };
    match joined {
        Join::Wait(waiting) => Part::Waits(waiting),
        Join::Lead(waiter) => Part::Leads(waiter),
        Join::Full => Part::Leads(fetch_table.alone(&job.fetch.key)),
    }
}
