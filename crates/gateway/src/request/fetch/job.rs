//! Fetches with all they need to run on their own, and the requests that join them.

use std::ops::Deref;
use std::sync::Arc;

use cache::collapse::table::{Asker, Join, Waiter, Waiting};
use cache::fill::FillLimits;
use cache::head_maker::HeadMaker;
use cache::membership::Stamp;
use caching::RefusalScope;
use fleet::leases::HeldLease;
use message::explain_record::{OpenRecord, Record};
use message::head::{Scheme, Version};
use message::reason::Detail;
use store::Place;

use crate::request::context::OwnedContext;
use crate::request::fetch::fetch_spec::Fetch;

/// A fetch with all it needs to run on its own.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) owned: OwnedContext,
    /// Keeps the record of the exchange open to the end of the job, if one is kept.
    #[expect(dead_code, reason = "its end is what counts")]
    pub(crate) noting: Option<OpenRecord>,
    pub(crate) fetch: Arc<Fetch>,
    /// Stamp taken before the origin is asked.
    pub(crate) stamp: Stamp,
    /// Lease under which the origin is asked, for all instances that share the tier behind memory.
    pub(crate) lease: Option<Arc<HeldLease>>,
}

impl Deref for Job {
    type Target = OwnedContext;

    fn deref(&self) -> &OwnedContext {
        &self.owned
    }
}

impl Job {
    /// Creates a job for a request.
    pub(crate) fn new(owned: &OwnedContext, fetch: Arc<Fetch>) -> Self {
        let noting = owned.request.record.as_ref().map(Record::open);
        Self { owned: owned.clone(), noting, fetch, stamp: owned.cache().invalidations.stamp(), lease: None }
    }

    /// Returns what makes heads that are stored of the responses to this request.
    pub(crate) fn head_maker(&self) -> HeadMaker<'_> {
        self.owned.head_maker(self.stamp)
    }

    /// Returns whether the responses of the look-up count as never stored.
    pub(crate) fn is_taken_away(&self) -> bool {
        self.cache().invalidations.is_taken_away(self.fetch.look_up)
    }

    pub(crate) fn limits(&self) -> FillLimits {
        let cache = self.cache();
        FillLimits {
            body_bytes_max: self.rule().object_bytes_max.min(cache.body_bytes_max()),
            segment_bytes: cache.memory.segment_bytes_max(),
            first_segment_bytes: cache.memory.segment_bytes_max(),
            place: self.place(),
        }
    }

    /// Returns the place of the body. The scheme is part of the key: if one client can be sent a file, the others that ask for the key
    /// usually can too.
    pub(crate) fn place(&self) -> Place {
        let is_plain = self.request.peer.scheme == Scheme::Http && self.request.version != Version::Http2;
        if is_plain { Place::File } else { Place::Heap }
    }

    pub(crate) fn refusal_scope(&self, reason: Detail) -> RefusalScope {
        let stored = match reason {
            Detail::Store(reason) => Some(reason),
            Detail::Reuse(_) | Detail::Here(_) | Detail::Origin(_) => None,
        };
        RefusalScope::of(&self.facts, stored)
    }
}

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
    let (fetch_table, now) = (&cache.fetches, job.fetch.look_up.at(job.stamp));
    let variant_and_scope = [variant, &job.fetch.scope.scope_suffix()].concat();
    let joined = match job.site.config.collapse.limits() {
        None => Join::Full,
        Some(limits) => {
            let place = (&*job.fetch.key, &*variant_and_scope);
            let asker = Asker { client: job.client(), request: Some(job.request.clone()) };
            fetch_table.join(place, (asker, limits), now, |began| cache.invalidations.record_overtaken(began))
        }
    };
    match joined {
        Join::Wait(waiting) => Part::Waits(waiting),
        Join::Lead(waiter) => Part::Leads(waiter),
        Join::Full => Part::Leads(fetch_table.alone(&job.fetch.key)),
    }
}
