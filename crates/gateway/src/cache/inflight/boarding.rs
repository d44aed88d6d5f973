//! Who takes part in which forward.

use crate::cache::inflight::flight::{Join, Participant};
use crate::cache::publish::job::Job;
use crate::config::Collapse;

/// Whether a request started the forward that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Waiter,
}

/// Takes part in the forward that `job` wants, or is the one to start it.
pub(crate) fn board(job: &Job, variant: &[u8]) -> (Participant, Role) {
    let flights = &job.worker.shared.flights;
    let flight_variant = [variant, &job.fetch.ask.flight_suffix()].concat();
    let joined = match job.site.config.collapse {
        Collapse::Off => Join::Full,
        Collapse::Process(limits) => flights.join(&job.fetch.key, &flight_variant, limits.waiters_max),
    };
    match joined {
        Join::Wait(participant) => (participant, Role::Waiter),
        Join::Lead(participant) => (participant, Role::Leader),
        Join::Full => (flights.alone(&job.fetch.key), Role::Leader),
    }
}
