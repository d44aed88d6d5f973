//! One request among those that want the same response: it starts the forward, or waits for whoever did.

use std::sync::Arc;

use caching::explain::Finding;
use caching::range;
use caching::{
    ContentRange, FieldLine, NotReused, Outcome, RequestFacts, Reuse, Selecting, may_serve_stale, reuse,
    was_shared_lately,
};
use telemetry::CacheResult;
use tokio::time::{Instant, sleep_until};

use crate::cache::findings;
use crate::cache::inflight::assemble::{Arriving, Assembly};
use crate::cache::inflight::driven::Driven;
use crate::cache::inflight::joining::{Role, join_or_lead};
use crate::cache::inflight::places::{Place, Places};
use crate::cache::inflight::relief::{self, Happened, Waiting};
use crate::cache::inflight::scope::{FetchScope, MissingRange};
use crate::cache::inflight::table::{
    Answer, Failed, Filling, Join, LeaderGuard, News, PrivateAnswer, Waiter,
};
use crate::cache::inflight::wanted::{Fetch, Sharing};
use crate::cache::publish::job::Job;
use crate::cache::record::stored::{Hit, StoredHead};
use crate::cache::serve::Serving;
use crate::cache::using::Use;
use crate::config::{Collapse, CollapseLimits};
use crate::failure::FailureCause;
use crate::message::head::RequestHead;
use crate::message::interims::Interims;
use crate::message::private;
use crate::message::reply::Reply;
use crate::message::respond::{self, Problem};
use crate::plan::{ForwardReason, Next, Plan};
use crate::reason::{Detail, Reason};
use crate::trace::note;
use crate::worker::Worker;

/// Forwards that one request may take part in before it goes its own way.
const ATTEMPTS_MAX: usize = 4;

/// Whether a response is stored, or on its way there, as far as is known when its head is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Yes,
    No,
}

/// Whether a request may go on waiting with others after an answer that nobody shares. Once: what is for one client alone
/// is to keep nobody waiting for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Allowed,
    Used,
}

/// What to do after an answer that is not for this request.
enum Again {
    /// Join, or start, the forward for the variant that is now known.
    Join { variant: Vec<u8> },
    /// Start a forward that nobody can join.
    Alone,
    /// Ask for other bytes: those that a stored response lacks, or the whole.
    FetchScope(FetchScope),
    /// Forward as it is: the answer won't be stored.
    Forward { detail: Detail },
    /// Nothing to share came of the request that led, which says little about this one: once more, together.
    Anew { detail: Detail },
    /// The forward failed, and what comes next depends on what else this request waits for.
    Failed(Failed),
}

/// A request on its way to a shared response.
struct CollapsedRequest<'a> {
    worker: &'a Arc<Worker>,
    plan: &'a Plan,
    fetch: Arc<Fetch>,
    interims: &'a Interims,
    /// Those of the request, but without preconditions.
    unconditional: RequestFacts,
}

/// Gets a response for `plan` that may be shared with others.
pub(crate) async fn run(worker: &Arc<Worker>, plan: &Plan, fetch: &Arc<Fetch>, interims: &Interims) -> Next {
    let mut seeking = CollapsedRequest::new(worker, plan, fetch, interims);
    let mut sharing = fetch.sharing;
    let mut variant = fetch.variant.clone();
    let mut detail = Detail::from(Reason::CollapseGivenUp);
    let mut renewal = Renewal::Allowed;
    for _ in 0..ATTEMPTS_MAX {
        match seeking.attempt(sharing, &variant).await {
            Ok(reply) => return Next::Reply(reply),
            Err(Again::Join { variant: known }) => {
                seeking.tell("the other request's answer is no answer to this one: once more");
                variant = known;
            }
            Err(Again::Alone) => {
                seeking.tell("the other request's answer is no answer to this one: forwarded alone");
                sharing = Sharing::Alone;
            }
            Err(Again::FetchScope(scope)) => {
                seeking.tell("that answers a part of the request at most: asked for what is missing");
                seeking.ask(scope);
            }
            Err(Again::Anew { .. }) if renewal == Renewal::Allowed => {
                seeking.tell(
                    "the other request's answer is for that one alone, others may still share: once more",
                );
                renewal = Renewal::Used;
            }
            Err(Again::Anew { detail: why } | Again::Forward { detail: why }) => {
                detail = why;
                break;
            }
            Err(Again::Failed(failed)) => return Next::Reply(seeking.failure(&failed, Role::Waiter)),
        }
    }
    let reason = ForwardReason { fwd: fetch.reason.fwd(), detail };
    note(plan.request.record.as_ref(), || {
        findings::because("pass", "forwarded for this client alone", detail)
    });
    Next::Forward { body: fetch.body(), reason }
}

/// The reply to a request whose own forward has brought a response already, and is never repeated.
pub(crate) async fn follow(
    worker: &Arc<Worker>,
    plan: &Plan,
    fetch: &Arc<Fetch>,
    mut waiter: Waiter,
    interims: &Interims,
) -> Reply {
    let seeking = CollapsedRequest::new(worker, plan, fetch, interims);
    let answer = seeking.answer(&mut waiter, None).await;
    // The waiter keeps its place until its reader stands, so that nothing is let go before.
    seeking.reply(answer, Role::Leader).unwrap_or_else(|_| seeking.given_up())
}

impl<'a> CollapsedRequest<'a> {
    fn new(worker: &'a Arc<Worker>, plan: &'a Plan, fetch: &Arc<Fetch>, interims: &'a Interims) -> Self {
        let unconditional = RequestFacts { has_conditions: false, ..plan.facts };
        Self { worker, plan, fetch: Arc::clone(fetch), interims, unconditional }
    }
}

impl CollapsedRequest<'_> {
    async fn attempt(&self, sharing: Sharing, variant: &[u8]) -> Result<Reply, Again> {
        let (waiter, role) = self.take_part(sharing, variant);
        match (role, self.limits()) {
            (Role::Waiter, Some(limits)) => self.wait(waiter, limits).await,
            _ => self.lead(waiter).await,
        }
    }

    /// Leads a forward to its answer.
    async fn lead(&self, mut waiter: Waiter) -> Result<Reply, Again> {
        let job = self.begin(&waiter);
        let answer = self.answer(&mut waiter, job).await;
        // The waiter keeps its place until its reader stands, so that nothing is let go before.
        self.reply(answer, Role::Leader)
    }

    /// Waits for the forward of another request, and for the one that relieves it if it fails or is late.
    async fn wait(&self, waiter: Waiter, limits: CollapseLimits) -> Result<Reply, Again> {
        self.tell("it waits for the forward of another request, which is under way");
        let gauge = self.worker.recorder.collapsed();
        let mut waiting = Waiting::of(waiter.order(), limits.on_failure);
        let mut late_at = Instant::now().checked_add(limits.wait_max);
        let mut places = Places { first: Place::of(waiter), relief: None };
        loop {
            let (happened, failed) = match self.learn(&mut places, late_at).await {
                Some(answer) => match self.reply(answer, Role::Waiter) {
                    Err(Again::Failed(failed)) => (Happened::Failed, Some(failed)),
                    settled => return settled,
                },
                None => (Happened::Late, None),
            };
            if happened == Happened::Late {
                late_at = None;
            }
            match (waiting.learns(happened), failed) {
                (relief::Next::Relieve, _) => {
                    match self.worker.shared.cache.fetches().relieve(&places.first.waiter) {
                        Join::Lead(relief) => {
                            self.tell(
                                "that failed, or takes too long: this request is forwarded, for all who wait",
                            );
                            drop(gauge);
                            return self.lead(relief).await;
                        }
                        Join::Wait(relief) => places.relief = Some(Place::of(relief)),
                        Join::Full => unreachable!("those who wait are not counted again"),
                    }
                }
                (relief::Next::WaitOn, _) | (relief::Next::SeeFailure, None) => {}
                (relief::Next::SeeFailure, Some(failed)) => return Err(Again::Failed(failed)),
            }
        }
    }

    fn limits(&self) -> Option<CollapseLimits> {
        match self.plan.site.config.collapse {
            Collapse::Off => None,
            Collapse::Process(limits) => Some(limits),
        }
    }

    /// The next answer of those that are waited for; `None` where it is late.
    async fn learn(&self, places: &mut Places, late_at: Option<Instant>) -> Option<Answer> {
        loop {
            let news = tokio::select! {
                biased;
                news = places.news() => news,
                () = passed(late_at) => return None,
            };
            match news {
                News::Answer(answer) => return Some(answer),
                News::Interim(interim) => self.interims.push(interim),
            }
        }
    }

    /// A place in the forward.
    fn take_part(&self, sharing: Sharing, variant: &[u8]) -> (Waiter, Role) {
        match sharing {
            Sharing::Joined => join_or_lead(&self.job(), variant),
            Sharing::Alone | Sharing::Unlikely(_) => {
                (self.worker.shared.cache.fetches().alone(&self.fetch.key), Role::Leader)
            }
        }
    }

    /// Goes on with a request for other bytes.
    fn ask(&mut self, scope: FetchScope) {
        let reason =
            if matches!(scope, FetchScope::MissingRange(_)) { NotReused::Partial } else { self.fetch.reason };
        self.fetch = Arc::new(Fetch { reason, ..self.fetch.with_scope(scope) });
    }

    /// The job of a forward that this request leads.
    fn begin(&self, waiter: &Waiter) -> Option<Driven> {
        let leader = LeaderGuard::new(waiter, self.worker.shared.cache.fetches());
        // Between the look-up and the join another forward may have ended and stored what we want.
        if let Some(hit) = self.stored_meanwhile() {
            self.tell("another request has just stored what this one wants");
            leader.land(Answer::Found(hit));
            return None;
        }
        Some(Driven::new(self.job(), leader))
    }

    fn job(&self) -> Job {
        Job::new(self.worker, self.plan, Arc::clone(&self.fetch))
    }

    fn tell(&self, says: &str) {
        note(self.plan.request.record.as_ref(), || Finding::new("collapse", says, "RFC 9111 section 4"));
    }

    fn stored_meanwhile(&self) -> Option<Hit> {
        let entry = self.worker.shared.cache.look_up(&self.fetch.key)?;
        if entry.variants().is_empty() {
            return None;
        }
        let hit = entry.select(self.selecting(&self.plan.request.sent().to_lines()))?;
        let lines = self.plan.request.fields.to_lines();
        let request = self.plan.request.borrow(&lines);
        let is_usable =
            self.is_fresh_for_this(&hit.head) && self.serving(&request).stored(&hit, Use::Fresh).is_some();
        is_usable.then_some(hit)
    }

    fn selecting<'b>(&'b self, request: &'b [FieldLine<'b>]) -> Selecting<'b> {
        self.plan.site.rule_at(self.plan.rule).selecting(request)
    }

    fn is_selected(&self, head: &StoredHead) -> bool {
        head.nominated().is_empty()
            || head.is_selected_by(self.selecting(&self.plan.request.sent().to_lines()))
    }

    fn is_fresh_for_this(&self, head: &StoredHead) -> bool {
        let rules = &self.plan.site.rule_at(self.plan.rule).caching;
        reuse(&self.plan.facts, &head.facts, rules, self.worker.now()) == Reuse::Fresh
            && !self.worker.shared.cache.is_invalidated(head)
    }

    /// The answer of the forward that this request leads.
    async fn answer(&self, waiter: &mut Waiter, job: Option<Driven>) -> Answer {
        let mut news = match job {
            Some(job) => job.first_news(waiter).await,
            None => waiter.news().await,
        };
        loop {
            match news {
                News::Answer(answer) => return answer,
                News::Interim(interim) => self.interims.push(interim),
            }
            news = waiter.news().await;
        }
    }

    fn reply(&self, answer: Answer, role: Role) -> Result<Reply, Again> {
        match answer {
            Answer::Filling(filling) => self.take_filling(&filling, role),
            Answer::Found(hit) => self.take_stored(&hit, Use::Fresh, role),
            Answer::Freshened(hit) => {
                let used = self.asked(role, Some(304), CacheResult::Revalidated, Storing::Yes);
                self.take_stored(&hit, used, role)
            }
            Answer::Stale(hit, cause, failed) => self.take_stale(&hit, cause, failed, role),
            Answer::Private(answer) if role == Role::Waiter && is_server_error(answer.status) => {
                Err(Again::Failed(Failed::Status(answer.status)))
            }
            Answer::Private(answer) if role == Role::Waiter && self.may_share(&answer) => {
                Err(Again::Anew { detail: answer.reason })
            }
            Answer::Private(answer) => {
                let response = if role == Role::Leader { answer.response.lock().take() } else { None };
                let response = response.filter(|response| self.may_have(response.status.as_u16()));
                let response = response.ok_or(Again::Forward { detail: answer.reason })?;
                let reason = ForwardReason { fwd: self.fetch.reason.fwd(), detail: answer.reason };
                Ok(private::reply(self.plan, response, reason))
            }
            Answer::Discarded => Err(Again::FetchScope(self.ask_anew())),
            Answer::Failed(failed) if role == Role::Waiter => Err(Again::Failed(failed)),
            Answer::Failed(failed) => Ok(self.failure(&failed, role)),
            Answer::GivenUp => Ok(self.given_up()),
        }
    }

    /// Whether others may well share what this request gets, although one got an answer for itself. What one client sends must not
    /// send all others to the origin side by side.
    fn may_share(&self, answer: &PrivateAnswer) -> bool {
        let lately_ms = self.plan.site.config.collapse.uncacheable_for_ms().unsigned_abs();
        let stale = self.fetch.stale.as_ref().map(|hit| &hit.head.facts);
        !answer.scope.has(&self.plan.facts) || was_shared_lately(stale, self.worker.now(), lately_ms)
    }

    /// Whether an answer that isn't stored is one to this very request. Where other bytes were asked for than the
    /// client wants, or its `If-Range` was left out, it shall get its own answer from the origin.
    fn may_have(&self, status: u16) -> bool {
        let facts = &self.plan.facts;
        match self.fetch.scope {
            FetchScope::Range(_) => {
                let has_if_range = self.plan.request.fields.value("if-range").is_some();
                !(has_if_range && matches!(status, 206 | 416))
            }
            // The bytes that something stored lacks are nobody's answer.
            FetchScope::MissingRange(_) if matches!(status, 206 | 416) => false,
            FetchScope::Whole | FetchScope::AsAsked | FetchScope::MissingRange(_) => {
                //= RFC 9110 section 14.2: an invalid or unknown Range is ignored
                let range = self.plan.request.fields.value("range").filter(|_| facts.has_range);
                let wants_part = range.is_some_and(|range| range::parse(range).is_some());
                !(wants_part && matches!(status, 200 | 206 | 416))
            }
        }
    }

    /// What to ask for where what is stored turned out to be of no use.
    fn ask_anew(&self) -> FetchScope {
        let range_miss = self.plan.site.rule_at(self.plan.rule).range_miss;
        FetchScope::on_miss(&self.plan.facts, &self.plan.request.fields.to_lines(), range_miss, || None)
    }

    //= RFC 9111 section 4: collapsed requests
    fn take_filling(&self, filling: &Filling, role: Role) -> Result<Reply, Again> {
        let lines = self.plan.request.fields.to_lines();
        let head = &filling.head;
        if role == Role::Waiter && !self.is_selected(head) {
            let mut variant = Vec::new();
            let sent = self.plan.request.sent().to_lines();
            head.nominated().write_variant_key(self.selecting(&sent), &mut variant);
            return Err(Again::Join { variant });
        }
        // In a window, the slowest would set the pace for all.
        let is_in_window = filling.fill.began_in_window();
        if role == Role::Waiter && (is_in_window || !self.is_fresh_for_this(head)) {
            return Err(Again::Alone);
        }
        let result = if role == Role::Leader { CacheResult::Miss } else { CacheResult::Collapsed };
        let storing = if filling.fill.may_be_stored() { Storing::Yes } else { Storing::No };
        let used = self.asked(role, Some(filling.status), result, storing);
        let request = self.plan.request.borrow(&lines);
        let mut reply = match (&filling.part, &self.fetch.scope) {
            (None, _) => self.serving(&request).filling(filling, used).ok_or(Again::Alone)?,
            (Some(part), FetchScope::MissingRange(hole)) => {
                let reply = self.assembled(&self.serving(&request), hole, filling, part, used);
                reply.ok_or(Again::FetchScope(FetchScope::Whole))?
            }
            (Some(_), _) => {
                let serving = self.serving(&request);
                let reply = serving.filling(filling, used).or_else(|| serving.shorter_part(filling, used));
                // No part is what the client gets in the end: its If-Range does not hold.
                reply.ok_or(Again::FetchScope(FetchScope::Whole))?
            }
        };
        if storing == Storing::No {
            reply.cache_status.detail = filling.fill.why_not_stored().map(|why| why.reason().as_str());
        }
        if role == Role::Leader {
            filling.unshared.lines().for_each(|(name, value)| reply.extra.push(name, value));
        }
        Ok(reply)
    }

    /// A reply from what is held and what is arriving.
    fn assembled(
        &self,
        serving: &Serving<'_>,
        hole: &MissingRange,
        filling: &Filling,
        part: &ContentRange,
        used: Use,
    ) -> Option<Reply> {
        let extent = serving.extent(&hole.hit);
        let first = Arriving::new(filling, part, extent.bytes()?.last + 1)?;
        let assembly = Assembly::new(self.job(), hole.hit.clone(), extent, first)?;
        serving.assembled(&filling.head, hole.hit.body.complete_bytes()?, (extent, Box::new(assembly)), used)
    }

    fn take_stored(&self, hit: &Hit, used: Use, role: Role) -> Result<Reply, Again> {
        let lines = self.plan.request.fields.to_lines();
        if role == Role::Waiter && !(self.is_selected(&hit.head) && self.is_fresh_for_this(&hit.head)) {
            return Err(Again::Alone);
        }
        let request = self.plan.request.borrow(&lines);
        let serving = self.serving(&request);
        let rule = self.plan.site.rule_at(self.plan.rule);
        let rest = || match FetchScope::for_rest(&serving, hit, rule) {
            Some(scope) => Again::FetchScope(scope),
            None => Again::Forward { detail: NotReused::Partial.into() },
        };
        serving.stored(hit, used).ok_or_else(rest)
    }

    fn take_stale(&self, hit: &Hit, cause: FailureCause, failed: Failed, role: Role) -> Result<Reply, Again> {
        let lines = self.plan.request.fields.to_lines();
        if role == Role::Waiter && !(self.is_selected(&hit.head) && self.takes_stale(hit, cause)) {
            return Err(Again::Failed(failed));
        }
        let used = self.asked(role, cause.status, CacheResult::Stale, Storing::No);
        let request = self.plan.request.borrow(&lines);
        let reply = self.serving(&request).stale(hit, cause, used);
        reply.ok_or_else(|| Again::Forward { detail: Reason::SegmentEvicted.into() })
    }

    /// Whether this request permits it. The permission that another request brought is its own.
    //= RFC 5861 section 4: of a request or of a response
    fn takes_stale(&self, hit: &Hit, cause: FailureCause) -> bool {
        let rules = &self.plan.site.rule_at(self.plan.rule).caching;
        let (request, stored) = (&self.plan.facts, &hit.head.facts);
        may_serve_stale(request, stored, rules, self.worker.now(), cause.failure)
    }

    /// A reply to a request whose forward, or the one that it waited for, failed.
    fn failure(&self, failed: &Failed, role: Role) -> Reply {
        let (problem, detail) = match failed {
            Failed::Error(error) => {
                (Problem::origin(error, self.fetch.stale.as_ref()), Detail::Origin(error.reason()))
            }
            // The response itself is for the request that led.
            Failed::Status(status) => (Problem::shared(*status), Reason::CollapseFailed.into()),
        };
        let reason = ForwardReason { fwd: self.fetch.reason.fwd(), detail };
        let mut reply = private::failed(self.worker, self.plan, &problem, reason);
        set_collapsed(&mut reply.cache_status.outcome, role);
        reply
    }

    fn given_up(&self) -> Reply {
        let problem = Problem::new(503, "forward-given-up", "the forward was given up");
        respond::reply(&problem, Some(&self.plan.site), self.plan.started, self.worker)
    }

    fn serving<'b>(&'b self, request: &'b RequestHead<'b>) -> Serving<'b> {
        Serving {
            site: &self.plan.site,
            request,
            //= RFC 9111 section 4.3.2: preconditions where nothing is stored
            facts: match self.fetch.scope {
                FetchScope::AsAsked => &self.unconditional,
                FetchScope::Whole | FetchScope::Range(_) | FetchScope::MissingRange(_) => &self.plan.facts,
            },
            now: self.worker.now(),
            started: self.plan.started,
        }
    }

    //= RFC 9211 section 2.5: stored
    fn asked(&self, role: Role, status: Option<u16>, result: CacheResult, storing: Storing) -> Use {
        let reason = self.fetch.reason.fwd();
        let stored = storing == Storing::Yes;
        let outcome = Outcome::Forwarded { reason, status, stored, collapsed: role == Role::Waiter };
        Use::Asked { outcome, result }
    }
}

async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn is_server_error(status: u16) -> bool {
    status >= 500
}

fn set_collapsed(outcome: &mut Outcome, role: Role) {
    if let Outcome::Forwarded { collapsed, .. } = outcome {
        *collapsed = role == Role::Waiter;
    }
}
