//! Hit-for-miss: forwards for a key that has a note that its responses aren't stored. Each forward is for a single request, and
//! isn't listed among the fetches in progress. If a response may be stored after all, it is processed like any other.

use std::sync::Arc;

use cache::collapse::order::Sequence;
use cache::collapse::table::{InvalidationCount, LeaderGuard};
use cache::entry::stored::Uncacheable;
use cache::failure::FailureCause;
use caching::{Asked, ExchangeTimes, ResponseFacts, may_store_by_directives};
use message::clock::now;
use message::reason::Detail;
use origin::{OriginError, OriginResponse};

use crate::request::fetch::fetch_spec::Fetch;
use crate::request::fetch::job::Job;
use crate::request::origin_call::OriginCall;
use crate::request::plan::Interims;
use crate::request::plan::{ForwardReason, Next, Plan};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::{findings, private};
use crate::rewrite::Purpose;

/// A forward that no other request waits for.
pub(crate) struct HitForMiss<'a> {
    plan: &'a Plan,
    job: Job,
    known: Uncacheable,
    /// Position of the forward in the order of events. The next field is the number of earlier invalidations of the key.
    began: Sequence,
    invalidations: InvalidationCount,
}

impl<'a> HitForMiss<'a> {
    pub(crate) fn new(plan: &'a Plan, fetch: &Arc<Fetch>, known: Uncacheable) -> Self {
        let fetch_table = &plan.cache().fetches;
        let (began, invalidations) = (fetch_table.turn(), fetch_table.invalidations(&fetch.key));
        Self { plan, job: Job::new(plan, Arc::clone(fetch)), known, began, invalidations }
    }

    pub(crate) async fn run(self, interims: &Interims) -> Next {
        if let Err(error) = self.job.spend() {
            return Next::Reply(self.failed(&error));
        }
        let job = &self.job;
        let call = OriginCall { owned: job, validated: None, probe: None };
        let fields = call.fields(Purpose::Store);
        let mut interim = |interim| interims.push(Arc::new(interim));
        let (asked, asked_at) = (Asked::by(|name| fields.value(name).is_some()), now());
        match call.send(fields, job.fetch.body(), &mut interim).await {
            Err(error) => Next::Reply(self.failed(&error)),
            Ok(response) => {
                // The response is a 304 or 206 that the request didn't ask for.
                if let Some(error) = job.unasked(asked, response.status) {
                    return Next::Reply(self.failed(&error));
                }
                let times = job.times_since(asked_at);
                match self.judge(&response, times) {
                    Err(reason) => Next::Reply(self.refused(response, reason, times)),
                    Ok(()) => self.stored(response, times),
                }
            }
        }
    }

    fn judge(&self, response: &OriginResponse, times: ExchangeTimes) -> Result<(), Detail> {
        let (status, lines) = (response.status.as_u16(), response.fields.to_lines());
        let rules = &self.job.rule().caching;
        // If the last response wasn't stored, this one usually isn't either, for the same reason.
        let storable = match may_store_by_directives(&self.job.facts, status, &lines, rules) {
            Err(reason) => Err(reason.into()),
            Ok(()) => {
                let facts = ResponseFacts::parse(status, &lines, times, rules);
                self.job.storable(&facts, response, times)
            }
        };
        self.job.note(|| findings::storing(storable.as_ref().map_err(|reason| *reason), times.response));
        storable.map(drop)
    }

    fn refused(self, response: Box<OriginResponse>, reason: Detail, times: ExchangeTimes) -> Reply {
        let is_outdated =
            || self.job.cache().fetches.invalidations(&self.job.fetch.key) != self.invalidations;
        self.job.remember_refusal(reason, times.response, Some(self.known), is_outdated);
        self.job.not_stored(reason);
        let reason = ForwardReason { fwd: self.job.fetch.reason.fwd(), detail: reason };
        private::reply(self.plan, response, reason)
    }

    /// Continues as a forward that other requests may join. If the key has been invalidated since the forward began, the response
    /// isn't stored.
    fn stored(self, response: Box<OriginResponse>, times: ExchangeTimes) -> Next {
        let Self { job, began, invalidations, .. } = self;
        let (fetch_table, fetch) = (&job.cache().fetches, Arc::clone(&job.fetch));
        let waiter = fetch_table.alone_since(&fetch.key, began, invalidations);
        let leader = LeaderGuard::new(&waiter, fetch_table);
        drop(tokio::spawn(async move { job.take(response, times, leader).await }));
        Next::Follow { fetch, waiter }
    }

    fn failed(&self, error: &OriginError) -> Reply {
        let cause = FailureCause::of_error(error);
        self.job.note(|| findings::failure(None, false, cause, now()));
        let reason =
            ForwardReason { fwd: self.job.fetch.reason.fwd(), detail: Detail::Origin(error.reason()) };
        private::failed(self.plan, &Problem::origin(error, None), reason)
    }
}
