//! The answer of a forward, from the point of view of one request that takes part in it. The answer determines the facts for the next
//! move of the request, and the reply.

use std::sync::Arc;

use cache::Cache;
use cache::collapse::answer::{Answer, Failed, Filling, PrivateAnswer};
use cache::entry::stored::{Hit, StoredHead};
use cache::failure::FailureCause;
use caching::{
    ContentRange, Outcome, RequestFacts, Reuse, StoredFacts, Timestamp, range, reuse, was_shared_lately,
};
use message::clock::now;
use message::reason::{Detail, Reason};
use origin::OriginResponse;
use telemetry::CacheResult;

use crate::request::context::RequestContext;
use crate::request::fetch::assembly::{Arriving, Assembly};
use crate::request::fetch::fetch_spec::{Fetch, TierLookUp};
use crate::request::fetch::fetch_spec::{FetchScope, MissingRange};
use crate::request::fetch::job::Job;
use crate::request::fetch::job::Role;
use crate::request::plan::Interims;
use crate::request::plan::{Assemble, ForwardReason, Next, Plan};
use crate::request::private;
use crate::request::reply::Reply;
use crate::request::serve::Use;
use crate::request::steps::collapse::next_move::{
    Again, Ask, Facts, Move, NO_REST, OutcomeKind, Status, next_move,
};

/// A request that takes part in forwards.
pub(super) struct Participant<'a> {
    pub(super) plan: &'a Plan,
    pub(super) fetch: Arc<Fetch>,
    pub(super) interims: &'a Interims,
}

/// Next step of a request after an answer.
pub(super) enum WaiterAction {
    Reply(Next),
    Failed(Failed),
    GivenUp,
    Again(Again, WantedAnswer),
}

/// Target of the next attempt.
pub(super) enum WantedAnswer {
    Same,
    Variant(Vec<u8>),
    Scope(FetchScope),
}

/// An answer, from the point of view of one request.
pub(super) struct ParticipantView<'a> {
    seeking: &'a Participant<'a>,
    answer: &'a Answer,
    role: Role,
    /// Response of a private answer. Only the leader gets this response.
    response: Option<Box<OriginResponse>>,
}

impl<'a> Participant<'a> {
    pub(super) fn new(plan: &'a Plan, fetch: &Arc<Fetch>, interims: &'a Interims) -> Self {
        Self { plan, fetch: Arc::clone(fetch), interims }
    }
}

impl Participant<'_> {
    /// Cache of the site.
    pub(super) fn cache(&self) -> &Cache {
        self.plan.cache()
    }

    pub(super) fn next_step(&self, answer: &Answer, role: Role) -> WaiterAction {
        let response = match answer {
            Answer::Private(answer) if role == Role::Leader => answer.response.lock().take(),
            _ => None,
        };
        ParticipantView { seeking: self, answer, role, response }.step()
    }

    /// Returns the time at which the request began, or up to a few milliseconds earlier.
    fn came(&self) -> Timestamp {
        let ago_ms = i64::try_from(self.plan.started.elapsed().as_millis()).unwrap_or(i64::MAX - 1);
        now().plus_ms(-(ago_ms + 1))
    }

    pub(super) fn job(&self) -> Job {
        Job::new(self.plan, Arc::clone(&self.fetch))
    }

    pub(super) fn is_fresh_for_this(&self, head: &StoredHead) -> bool {
        self.is_fresh_at(now(), &head.facts) && !self.cache().is_invalidated(&self.fetch.key, head)
    }

    fn is_fresh_at(&self, now: Timestamp, stored: &StoredFacts) -> bool {
        let rules = &self.plan.rule().caching;
        reuse(&self.plan.facts, stored, rules, now) == Reuse::Fresh
    }

    /// Returns a reply from a stored response, or the step that loads the bytes missing from memory. `cause` is the failure that the
    /// response replaces, if any.
    pub(super) fn stored(&self, hit: &Hit, used: Use, cause: Option<FailureCause>) -> Option<Next> {
        self.with_context(|context| {
            let reply = match cause {
                Some(cause) => context.stale(hit, cause, used),
                None => context.stored(hit, used),
            };
            reply.map(Next::Reply).or_else(|| {
                // If the tier has already been queried, the missing bytes have to come from the origin.
                let may_load = self.fetch.tier == TierLookUp::Unasked && context.is_within_reach(hit);
                let (hit, fetch) = (may_load.then(|| hit.clone())?, &self.fetch);
                Some(Next::Assemble(Arc::new(Assemble { hit, used, cause, fetch: Arc::clone(fetch) })))
            })
        })
    }

    fn with_context<T>(&self, act: impl FnOnce(&RequestContext<'_>) -> T) -> T {
        //= RFC 9111 section 4.3.2: preconditions where nothing is stored
        let unconditional = RequestFacts { has_conditions: false, ..self.plan.facts };
        let facts = match self.fetch.scope {
            FetchScope::AsAsked => &unconditional,
            FetchScope::Whole | FetchScope::Range(_) | FetchScope::MissingRange(_) => &self.plan.facts,
        };
        self.plan.with_context(|context| act(&RequestContext { facts, ..context }))
    }
}

impl ParticipantView<'_> {
    fn step(mut self) -> WaiterAction {
        let kind = self.seeking.fetch.scope.kind();
        let again = match next_move(self.role, kind, came(self.answer), &self.facts()) {
            Move::Reply(otherwise) => match self.reply() {
                Some(next) => return WaiterAction::Reply(next),
                None => otherwise,
            },
            Move::Failed => return self.answer.failed().map_or(WaiterAction::GivenUp, WaiterAction::Failed),
            Move::GivenUp => return WaiterAction::GivenUp,
            Move::Again(again) => again,
        };
        match again {
            Again::Join => WaiterAction::Again(again, WantedAnswer::Variant(self.variant())),
            Again::Ask(Ask::Rest) => match self.rest() {
                Some(scope) => WaiterAction::Again(again, WantedAnswer::Scope(scope)),
                None => WaiterAction::Again(NO_REST, WantedAnswer::Same),
            },
            _ => WaiterAction::Again(again, WantedAnswer::Same),
        }
    }

    /// Returns the facts for the next move. Facts that are costly to determine are left out if they make no difference.
    fn facts(&self) -> Facts {
        match (self.role, self.answer) {
            (Role::Leader, Answer::Private(_)) => Facts {
                has_if_range: self.seeking.plan.request.fields.value("if-range").is_some(),
                wants_part: self.wants_part(),
                ..Facts::default()
            },
            (Role::Leader, _) => Facts::default(),
            (Role::Waiter, Answer::Private(answer)) => {
                Facts { may_share: self.may_share(answer), ..Facts::default() }
            }
            (Role::Waiter, _) => self.head().map_or_else(Facts::default, |head| self.facts_of(head)),
        }
    }

    fn facts_of(&self, head: &StoredHead) -> Facts {
        let (seeking, facts) = (self.seeking, &head.facts);
        let is_selected = self.is_selected(head);
        let is_fresh = is_selected && self.is_fresh(head);
        let was_fresh = || seeking.is_fresh_at(facts.response_time, &facts.awaited(u64::MAX));
        Facts {
            is_selected,
            is_fresh,
            was_fresh: is_selected && !is_fresh && was_fresh(),
            is_in_window: matches!(self.answer, Answer::Filling(filling) if filling.fill.began_in_window()),
            ..Facts::default()
        }
    }

    /// Returns a reply from the answer, if it has the bytes that this request asks for.
    fn reply(&mut self) -> Option<Next> {
        match self.answer {
            Answer::Filling(filling) => self.filling(filling).map(Next::Reply),
            Answer::Found(hit) => self.seeking.stored(hit, Use::Fresh, None),
            Answer::FoundElsewhere(hit) => self.found_elsewhere(hit),
            Answer::Freshened(hit, storing) => self.freshened(hit, *storing),
            Answer::Stale(hit, cause, _) => {
                let used = self.asked(cause.status, CacheResult::Stale, &Err::<(), _>(()));
                self.seeking.stored(hit, used, Some(*cause))
            }
            Answer::Private(answer) => {
                let fwd = self.seeking.fetch.reason.fwd();
                let reason = ForwardReason { fwd, detail: answer.reason };
                Some(Next::Reply(private::reply(self.seeking.plan, self.response.take()?, reason)))
            }
            Answer::Discarded | Answer::Failed(_) | Answer::GivenUp => None,
        }
    }

    /// Returns the scope for the bytes that the answer lacks; `None` for several ranges.
    fn rest(&self) -> Option<FetchScope> {
        let (Answer::Found(hit) | Answer::FoundElsewhere(hit) | Answer::Freshened(hit, _)) = self.answer
        else {
            return None;
        };
        self.seeking.with_context(|context| FetchScope::for_rest(context, hit))
    }

    /// Returns the variant key of this request, now that the nominated fields are known.
    fn variant(&self) -> Vec<u8> {
        let mut variant = Vec::new();
        if let Some(head) = self.head() {
            let sent = self.seeking.plan.request.sent().to_lines();
            head.nominated().write_variant_key(self.seeking.plan.rule().selecting(&sent), &mut variant);
        }
        variant
    }

    fn head(&self) -> Option<&StoredHead> {
        match self.answer {
            Answer::Filling(filling) => Some(&filling.head),
            Answer::Found(hit)
            | Answer::FoundElsewhere(hit)
            | Answer::Freshened(hit, _)
            | Answer::Stale(hit, ..) => Some(&hit.head),
            Answer::Private(_) | Answer::Discarded | Answer::Failed(_) | Answer::GivenUp => None,
        }
    }

    fn is_selected(&self, head: &StoredHead) -> bool {
        let sent = || self.seeking.plan.request.sent().to_lines();
        head.nominated().is_empty() || head.is_selected_by(self.seeking.plan.rule().selecting(&sent()))
    }

    /// Returns whether the response is fresh for this request, not counting the time that the request had to wait. A response that
    /// has been purged in the meantime only answers the requests that waited for it.
    fn is_fresh(&self, head: &StoredHead) -> bool {
        let fetch = &self.seeking.fetch;
        let waited_ms = head.facts.response_time.ms_since(self.seeking.came()).max(0).unsigned_abs();
        self.seeking.is_fresh_at(now(), &head.facts.awaited(waited_ms))
            && self.seeking.cache().invalidations.answers(fetch.look_up, &fetch.key, head)
    }

    //= RFC 9110 section 14.2: an invalid or unknown Range is ignored
    fn wants_part(&self) -> bool {
        let plan = self.seeking.plan;
        let range = plan.request.fields.value("range").filter(|_| plan.facts.has_range);
        range.is_some_and(|range| range::parse(range).is_some())
    }

    /// Returns whether waiters may share another forward after a private answer. The request of one client must not cause all other
    /// requests to be forwarded individually.
    fn may_share(&self, answer: &PrivateAnswer) -> bool {
        let seeking = self.seeking;
        let lately_ms = seeking.plan.site.config.collapse.uncacheable_for_ms().unsigned_abs();
        let stale = seeking.fetch.stale.as_ref().map(|hit| &hit.head.facts);
        !answer.scope.has(&seeking.plan.facts) || was_shared_lately(stale, now(), lately_ms)
    }

    /// Replies with a freshened response, even if the 304 forbids storing, for example with `private`.
    fn freshened(&self, hit: &Hit, storing: Result<(), Detail>) -> Option<Next> {
        let used = self.asked(Some(304), CacheResult::Revalidated, &storing);
        let mut next = self.seeking.stored(hit, used, None);
        if let (Some(Next::Reply(reply)), Err(why_not)) = (&mut next, storing) {
            reply.cache_status.detail = Some(why_not.as_str());
        }
        next
    }

    /// Replies with a response from another instance. The request counts as collapsed, because all requests for this response have
    /// waited.
    //= RFC 9211 section 2.6: collapsed
    fn found_elsewhere(&self, hit: &Hit) -> Option<Next> {
        let reason = self.seeking.fetch.reason.fwd();
        let outcome = Outcome::Forwarded { reason, status: None, stored: true, collapsed: true };
        self.seeking.stored(hit, Use::FoundElsewhere(outcome), None)
    }

    fn filling(&self, filling: &Filling) -> Option<Reply> {
        let result = if self.role == Role::Leader { CacheResult::Miss } else { CacheResult::Collapsed };
        let used = self.asked(Some(filling.status), result, &filling.storing());
        let mut reply =
            self.seeking.with_context(|context| match (&filling.part, &self.seeking.fetch.scope) {
                (None, _) => context.filling(filling, used),
                (Some(part), FetchScope::MissingRange(hole)) => {
                    self.assembled(context, hole, filling, part, used)
                }
                (Some(_), _) => {
                    context.filling(filling, used).or_else(|| context.shorter_part(filling, used))
                }
            })?;
        if let Err(why_not) = filling.storing() {
            reply.cache_status.detail = why_not.map(Reason::as_str);
        }
        if self.role == Role::Leader {
            filling.unshared.lines().for_each(|(name, value)| reply.extra.push(name, value));
        }
        Some(reply)
    }

    /// Returns a reply from bytes in memory and bytes that are arriving.
    fn assembled(
        &self,
        context: &RequestContext<'_>,
        hole: &MissingRange,
        filling: &Filling,
        part: &ContentRange,
        used: Use,
    ) -> Option<Reply> {
        if self.seeking.cache().invalidations.is_taken_away(self.seeking.fetch.look_up) {
            return None;
        }
        let extent = context.extent(&hole.hit);
        let first = Arriving::new(filling, part, extent.bytes()?.last + 1)?;
        let assembly = Assembly::new(self.seeking.job(), hole.hit.clone(), extent, Some(first))?;
        context.assembled(&filling.head, hole.hit.body.complete_bytes()?, (extent, assembly), used)
    }

    //= RFC 9211 section 2.5: stored
    fn asked(&self, status: Option<u16>, result: CacheResult, storing: &Result<(), impl Sized>) -> Use {
        let reason = self.seeking.fetch.reason.fwd();
        let outcome = Outcome::Forwarded {
            reason,
            status,
            stored: storing.is_ok(),
            collapsed: self.role == Role::Waiter,
        };
        Use::Asked { outcome, result }
    }
}

fn came(answer: &Answer) -> OutcomeKind {
    match answer {
        Answer::Filling(filling) if filling.part.is_some() => OutcomeKind::FillingPart,
        Answer::Filling(_) => OutcomeKind::Filling,
        Answer::Found(_) | Answer::Freshened(..) => OutcomeKind::Stored,
        Answer::FoundElsewhere(_) => OutcomeKind::Elsewhere,
        Answer::Stale(..) => OutcomeKind::Stale,
        Answer::Private(answer) => OutcomeKind::Private(status(answer.status), answer.reason),
        Answer::Discarded => OutcomeKind::Discarded,
        Answer::Failed(_) => OutcomeKind::Failed,
        Answer::GivenUp => OutcomeKind::GivenUp,
    }
}

fn status(status: u16) -> Status {
    match status {
        200 => Status::Whole,
        206 => Status::Part,
        416 => Status::Unsatisfiable,
        500.. => Status::ServerError,
        _ => Status::Other,
    }
}
