//! Replies with a stored response if memory lacks some of its bytes, but the tier behind memory may have them.
//!
//! If the origin can supply bytes that the tier lacks, the reply begins with the first bytes, and the others are loaded
//! later. Otherwise, all bytes are loaded first, because a reply that has begun must be completed.

use std::sync::Arc;

use cache::entry::stored::Hit;
use caching::{MethodClass, Miss, NotReused, Reuse, on_miss};
use message::reason::{Detail, Reason};

use crate::request::fetch::assembly::Assembly;
use crate::request::fetch::fetch_spec::{Fetch, TierLookUp};
use crate::request::fetch::fetch_spec::{FetchScope, MissingRange, ReplyOfParts};
use crate::request::fetch::job::Job;
use crate::request::plan::{Assemble, ForwardReason, Next, Plan};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::serve::Extent;

/// A request that is answered with a stored response of this kind.
struct Assembling<'a> {
    plan: &'a Plan,
    asked: &'a Assemble,
}

/// Replies from memory and the tier, or returns the step that fetches bytes missing from the tier.
pub(crate) async fn run(plan: &Plan, asked: &Assemble) -> Next {
    let assembling = Assembling { plan, asked };
    let extent = plan.with_context(|context| context.extent(&asked.hit));
    let next = match assembling.may_ask_for_rest(extent) {
        true => assembling.begin(extent).await,
        false => assembling.load_all().await,
    };
    // The response may have been purged while its bytes were loaded.
    if assembling.is_taken_away() { assembling.without() } else { next }
}

impl Assembling<'_> {
    /// Returns whether the origin can supply bytes that the tier lacks while the reply is being sent.
    fn may_ask_for_rest(&self, extent: Extent) -> bool {
        let (facts, rules) = (&self.plan.facts, &self.plan.rule().caching);
        extent.bytes().is_some()
            && facts.method == MethodClass::Get
            && MissingRange::can_be_part_of(&self.asked.hit)
            && !(facts.directives.no_store && rules.honour_request_directives)
            && self.is_forwarding_allowed()
    }

    /// Returns whether the request permits forwarding.
    fn is_forwarding_allowed(&self) -> bool {
        let rules = &self.plan.rule().caching;
        !matches!(on_miss(&self.plan.facts, rules, Miss::Bytes), Reuse::Unavailable(_))
    }

    async fn begin(&self, extent: Extent) -> Next {
        let job = Job::new(self.plan, Arc::clone(&self.asked.fetch));
        let Some(mut assembly) = Assembly::new(job, self.asked.hit.clone(), extent, None) else {
            return self.without();
        };
        if let Err(range) = assembly.begin().await {
            let (hit, reply) = (self.asked.hit.clone(), ReplyOfParts::ToCome);
            let hole = MissingRange { hit, range, reply };
            return self.ask(FetchScope::MissingRange(hole));
        }
        let (hit, used) = (&self.asked.hit, self.asked.used);
        let Some(bytes) = hit.body.complete_bytes() else { return self.without() };
        let source = (extent, assembly);
        let reply = self.plan.with_context(|context| context.assembled(&hit.head, bytes, source, used));
        self.described(reply)
    }

    async fn load_all(&self) -> Next {
        let Some(hit) = self.loaded().await else { return self.without() };
        let reply = self.plan.with_context(|context| context.stored(&hit, self.asked.used));
        self.described(reply)
    }

    /// Loads all bytes that this request needs.
    async fn loaded(&self) -> Option<Hit> {
        let (hit, store) = (&self.asked.hit, self.plan.store());
        let wanted = self.plan.with_context(|context| context.wanted(hit));
        let place = Job::new(self.plan, Arc::clone(&self.asked.fetch)).place();
        let body = store.tier.as_ref()?.segments.complete(hit.body.segmented()?, &wanted, place).await?;
        hit.with_body(store.cache.budget(), body).ok()
    }

    fn described(&self, reply: Option<Reply>) -> Next {
        let Some(mut reply) = reply else { return self.without() };
        if let Some(cause) = self.asked.cause {
            reply.cache_status.detail = Some(cause.detail.as_str());
        }
        Next::Reply(reply)
    }

    /// Returns the step that answers the request without the tier.
    fn without(&self) -> Next {
        if !self.is_forwarding_allowed() {
            return Next::Reply(self.plan.at().reply(&Problem::only_if_cached()));
        }
        let scope = self.plan.with_context(|context| match self.is_taken_away() {
            true => Some(FetchScope::on_miss(
                context.facts,
                context.request.fields,
                context.rule.range_miss,
                || None,
            )),
            false => FetchScope::for_rest(&context, &self.asked.hit),
        });
        match scope.filter(|_| self.plan.facts.method == MethodClass::Get) {
            Some(scope) => self.ask(scope),
            None => self.forward(NotReused::Partial.into()),
        }
    }

    fn is_taken_away(&self) -> bool {
        self.plan.cache().invalidations.is_taken_away(self.asked.fetch.look_up)
    }

    fn ask(&self, scope: FetchScope) -> Next {
        // The origin has just failed, and the stored response should have replaced the failure.
        if self.asked.cause.is_some() {
            return self.forward(Reason::SegmentEvicted.into());
        }
        let fetch = self.asked.fetch.with_scope(scope);
        Next::Fetch(Arc::new(Fetch { reason: NotReused::Partial, tier: TierLookUp::Asked, ..fetch }))
    }

    fn forward(&self, detail: Detail) -> Next {
        let reason = ForwardReason { fwd: self.asked.fetch.reason.fwd(), detail };
        Next::Forward { body: self.asked.fetch.body(), reason }
    }
}
