//! Fetches that can run independently of a connection, and the requests that join or lead them.
//!
//! A forward belongs to no connection. But most forwards end as soon as their response arrives, and until then a separate task would
//! only add wake-ups. So the leader drives the job until the job has news or the leader is dropped. After that, the job continues as a
//! task.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use cache::collapse::answer::Answer;
use cache::collapse::table::{Asker, InFlight, Join, LeaderGuard, News, Waiter, Waiting};
use cache::entry::stored::Hit;
use cache::fill::FillLimits;
use cache::head_maker::HeadMaker;
use cache::membership::Stamp;
use caching::{RefusalScope, StoredFacts, sharing};
use fleet::leases::HeldLease;
use message::client::Client;
use message::explain_record::{OpenRecord, Record};
use message::head::{Scheme, Version};
use message::reason::Detail;
use origin::Upstream;
use store::Placement;
use tokio::runtime::Handle;

use crate::config::Collapse;
use crate::request::context::OwnedContext;
use crate::request::fetch::fetch_spec::{Fetch, FetchScope, ReplyOfParts, Sharing};
use crate::rewrite::reading::Inbound;

/// A fetch with all the values that it needs to run independently of a connection.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) owned: OwnedContext,
    /// Keeps the record for `larder explain`, if any, open until the end of the job.
    #[expect(dead_code, reason = "dropped at the end of the job")]
    pub(crate) noting: Option<OpenRecord>,
    pub(crate) fetch: Arc<Fetch>,
    /// Stamp taken before the request is forwarded.
    pub(crate) stamp: Stamp,
    /// Lease of this forward, valid for all instances that share the tier behind memory.
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

    /// Returns a maker of stored heads for the responses to this request.
    pub(crate) fn head_maker(&self) -> HeadMaker<'_> {
        self.owned.head_maker(self.stamp)
    }

    /// Returns whether a purge or invalidation has removed the responses that the look-up returned.
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

    /// Returns the placement of the body. If this client can be sent a file, most other clients that request the key can, too, because
    /// the scheme is part of the key.
    pub(crate) fn place(&self) -> Placement {
        let is_plain = self.request.peer.scheme == Scheme::Http && self.request.version != Version::Http2;
        if is_plain { Placement::File } else { Placement::Heap }
    }

    pub(crate) fn refusal_scope(&self, reason: Detail) -> RefusalScope {
        let stored = match reason {
            Detail::Store(reason) => Some(reason),
            Detail::Reuse(_) | Detail::Here(_) | Detail::Origin(_) => None,
        };
        RefusalScope::of(&self.facts, stored)
    }

    /// Returns whether the stored response that this job completes has been purged in the meantime.
    pub(crate) fn lacks_what_it_completes(&self) -> bool {
        self.is_for_hole() && !self.is_for_begun_reply() && self.is_taken_away()
    }

    pub(crate) fn is_for_begun_reply(&self) -> bool {
        matches!(&self.fetch.scope, FetchScope::MissingRange(hole) if hole.reply == ReplyOfParts::Begun)
    }

    pub(crate) fn is_for_hole(&self) -> bool {
        matches!(self.fetch.scope, FetchScope::MissingRange(_))
    }

    /// Returns whether this forward waits for its turn among the forwards of other instances.
    pub(crate) fn takes_turn(&self, sharing: Sharing, awaiting: Awaiting) -> bool {
        let is_shared = matches!(self.site.config.collapse, Collapse::Fleet(_))
            && self.tier().is_some()
            && matches!(self.fetch.scope, FetchScope::Whole)
            && self.may_be_for_all();
        let is_never_fresh = || self.fetch.stale.as_ref().is_some_and(|hit| is_never_fresh(&hit.head.facts));
        match sharing {
            // A response fetched by another instance wouldn't be fresh either, so this instance would have to forward its request
            // anyway.
            Sharing::Joined => is_shared && !(awaiting == Awaiting::Answer && is_never_fresh()),
            // Reloads by clients are included: each needs a new response, so reloads must not wait for each other.
            Sharing::Alone | Sharing::Unlikely(_) => false,
        }
    }

    /// Returns whether the response may serve other requests. A response to a request with credentials is personal unless its fields
    /// say otherwise. If the stored response may be shared, the next one is expected to be sharable, too, but its own fields decide.
    fn may_be_for_all(&self) -> bool {
        let (facts, rules) = (&self.facts, &self.rule().caching);
        let is_open =
            |stale: &Hit| sharing::may_name(facts, &stale.head.facts, stale.head.nominated(), rules);
        !sharing::is_personal(facts, rules) || self.fetch.stale.as_ref().is_some_and(is_open)
    }
}

pub(crate) fn is_never_fresh(facts: &StoredFacts) -> bool {
    facts.no_cache || facts.freshness_lifetime_ms() == 0
}

/// Purpose of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaiting {
    /// A client waits for a response that is fresh for its request.
    Answer,
    /// No client waits: any update of the stored response is sufficient.
    News,
}

/// Role of a request in the forward that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Waiter,
}

/// Role of a request in a forward, with its handle.
pub(crate) enum Part {
    Leads(Waiter),
    Waits(Waiting),
}

/// Joins the forward that `job` needs, or becomes its leader.
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

/// A job driven by its leader instead of a task.
pub(crate) struct LeaderTask {
    left: Option<Running>,
    permit: HeldPermit,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Permit that a job holds while it waits for the origin, with the handles to release it.
#[derive(Clone)]
struct HeldPermit {
    in_flight: Arc<InFlight>,
    upstream: Arc<Upstream>,
    client: Option<Client>,
    request: Arc<Inbound>,
}

impl LeaderTask {
    /// Creates a job that contacts the origin. If instances take turns, it first waits for this instance's turn.
    pub(crate) fn new(job: Job, leader: LeaderGuard, sharing: Sharing) -> Self {
        let permit = HeldPermit {
            in_flight: Arc::clone(&leader.in_flight),
            upstream: Arc::clone(&job.site.upstream),
            client: job.client(),
            request: Arc::clone(&job.request),
        };
        let left: Running = match job.takes_turn(sharing, Awaiting::Answer) {
            false => Box::pin(job.run(None, leader)),
            true => Box::pin(job.run_in_turn(leader, Awaiting::Answer)),
        };
        Self { left: Some(left), permit }
    }

    /// Returns the first news of the fetch. If the job hasn't ended by then, it continues in a task, because the leader may be as slow
    /// as its client, and other requests wait for the job.
    pub(crate) async fn first_news(mut self, waiter: &mut Waiter) -> News {
        poll_fn(|context| {
            let polled = self.left.as_mut().map_or(Poll::Ready(()), |job| job.as_mut().poll(context));
            if polled.is_ready() {
                self.left = None;
            }
            match waiter.poll_news() {
                Some(news) => Poll::Ready(news),
                None => polled.map(|()| News::Answer(Answer::GivenUp)),
            }
        })
        .await
    }
}

impl Drop for LeaderTask {
    fn drop(&mut self) {
        // If the job panicked, its waiters have already been notified.
        let left = self.left.take().filter(|_| !std::thread::panicking());
        if let (Some(job), Ok(runtime)) = (left, Handle::try_current()) {
            let permit = self.permit.clone();
            drop(runtime.spawn(go_on(job, permit)));
        }
    }
}

/// Runs a job to its end. A job without waiters continues in order to store its response, but it ends if another request needs its
/// permit.
async fn go_on(mut job: Running, permit: HeldPermit) {
    let HeldPermit { in_flight, upstream, client, request } = permit;
    let given_up = async {
        loop {
            in_flight.nobody_waits().await;
            tokio::select! {
                () = upstream.permit_wanted(client) => return,
                () = in_flight.somebody_waits() => {}
            }
        }
    };
    // The job also ends if another request waits for its place and its own client has left.
    let left = async {
        request.place_wanted.wait().await;
        in_flight.client_left().await;
    };
    tokio::select! {
        biased;
        () = &mut job => return,
        () = given_up => {}
        () = left => {}
    }
    // The permit is released before it is offered to another request.
    drop(job);
    upstream.permit_given_up(client);
}
