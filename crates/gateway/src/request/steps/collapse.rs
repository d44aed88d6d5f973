//! Several requests for the same response: each leads a forward, or waits for the forwards of others until it may lead
//! one.

mod next_move;
mod participant;

use std::sync::Arc;

use cache::collapse::answer::{Answer, Failed};
use cache::collapse::table::{LeaderGuard, Learned, News, Waiter, Waiting};
use cache::entry::stored::Hit;
use caching::explain::Finding;
use caching::{NotReused, Outcome};
use message::clock::now;
use message::explain_record::note;
use message::reason::{Detail, Reason};
use message::timeline::{Stage, measure};
use telemetry::CacheResult;

use self::next_move::{Again, Ask, Attempts};
use self::participant::{Participant, WaiterAction, WantedAnswer};
use crate::request::fetch::fetch_spec::FetchScope;
use crate::request::fetch::fetch_spec::{Fetch, Sharing};
use crate::request::fetch::job::LeaderTask;
use crate::request::fetch::job::{Part, Role, join_or_lead};
use crate::request::plan::Interims;
use crate::request::plan::{ForwardReason, Next, Plan};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::serve::Use;
use crate::request::{findings, private};

/// Reason why an attempt had no reply as its result, and the target of the next attempt.
type Retry = (Again, WantedAnswer);

/// Fetches a response for `plan` that may be shared with others.
pub(crate) async fn run(plan: &Plan, fetch: &Arc<Fetch>, interims: &Interims) -> Next {
    let mut seeking = Participant::new(plan, fetch, interims);
    let mut attempts = Attempts::new(fetch.sharing);
    let mut variant = fetch.variant.clone();
    let detail = loop {
        let (again, wanted) = match seeking.attempt(attempts.sharing(), &variant).await {
            Ok(next) => return next,
            Err(retry) => retry,
        };
        let next = attempts.after(again);
        if let next_move::RetryDecision::Forward(detail) = next {
            break detail;
        }
        seeking.prepare(again, wanted, &mut variant);
        if next == next_move::RetryDecision::GivenUp {
            break Reason::CollapseGivenUp.into();
        }
    };
    let reason = ForwardReason { fwd: fetch.reason.fwd(), detail };
    note(plan.request.record.as_ref(), || {
        findings::because("pass", "forwarded for this client alone", detail)
    });
    Next::Forward { body: fetch.body(), reason }
}

/// Replies to a request whose own forward already has a response. The forward must not be repeated.
pub(crate) async fn follow(plan: &Plan, fetch: &Arc<Fetch>, mut waiter: Waiter, interims: &Interims) -> Next {
    let seeking = Participant::new(plan, fetch, interims);
    let answer = seeking.answer(&mut waiter, None).await;
    // The waiter stays registered until its reader exists, so that no bytes are released before then.
    seeking.reply(&answer).unwrap_or_else(|_| Next::Reply(seeking.given_up()))
}

impl Participant<'_> {
    async fn attempt(&self, sharing: Sharing, variant: &[u8]) -> Result<Next, Retry> {
        match self.take_part(sharing, variant) {
            Part::Leads(waiter) => {
                let leader = LeaderGuard::new(&waiter, &self.cache().fetches);
                self.lead(waiter, leader, sharing).await
            }
            Part::Waits(waiting) => self.wait(waiting).await,
        }
    }

    /// Leads a forward until its answer.
    async fn lead(&self, mut waiter: Waiter, leader: LeaderGuard, sharing: Sharing) -> Result<Next, Retry> {
        let job = self.begin(leader, sharing);
        let answer = self.answer(&mut waiter, job).await;
        // The waiter stays registered until its reader exists, so that no bytes are released before then.
        self.reply(&answer)
    }

    /// Replies to the leader.
    fn reply(&self, answer: &Answer) -> Result<Next, Retry> {
        match self.next_step(answer, Role::Leader) {
            WaiterAction::Reply(next) => Ok(next),
            WaiterAction::Failed(failed) => Ok(Next::Reply(self.failure(&failed, Role::Leader))),
            WaiterAction::GivenUp => Ok(Next::Reply(self.given_up())),
            WaiterAction::Again(again, wanted) => Err((again, wanted)),
        }
    }

    /// Waits for the forward of another request. If the forward fails or takes too long, waits for later forwards.
    async fn wait(&self, mut waiting: Waiting) -> Result<Next, Retry> {
        self.tell("waiting for the forward of another request");
        let gauge = self.plan.worker.recorder.collapsed();
        let mut measuring = measure(self.plan.request.timeline.as_ref(), Stage::Collapse);
        measuring.iter_mut().for_each(|measuring| measuring.linked(waiting.leader_trace()));
        let failed = loop {
            match waiting.learn().await {
                Learned::Interim(interim) => self.interims.push(interim),
                Learned::Answer(answer) => match self.next_step(&answer, Role::Waiter) {
                    WaiterAction::Reply(next) => {
                        if waiting.is_kept(&answer).await {
                            return Ok(next);
                        }
                        self.tell("the body doesn't arrive: waiting requests are forwarded one by one");
                    }
                    WaiterAction::Failed(failed) => break failed,
                    WaiterAction::GivenUp => return Ok(Next::Reply(self.given_up())),
                    WaiterAction::Again(again, wanted) => {
                        if again == Again::Newer {
                            waiting.make_room();
                        }
                        return Err((again, wanted));
                    }
                },
                // If the request may use a stale response, it doesn't wait for a forward of its own.
                Learned::Failure(failed) => {
                    if let Some(next) = self.stale_instead(&failed) {
                        return Ok(next);
                    }
                }
                Learned::Turn(leader) => {
                    self.tell("the forward failed or is slow: this request is forwarded for all waiters");
                    drop((gauge, measuring, waiting));
                    return self.take_turn(leader).await;
                }
                Learned::NoTurn(failed) => {
                    let stale = failed.as_ref().and_then(|failed| self.stale_instead(failed));
                    return Ok(stale.unwrap_or_else(|| Next::Reply(self.no_turn())));
                }
            }
        };
        let stale = self.stale_instead(&failed);
        Ok(stale.unwrap_or_else(|| Next::Reply(self.failure(&failed, Role::Waiter))))
    }

    /// Leads a forward after another one has failed or taken too long. The forward doesn't wait for other instances.
    async fn take_turn(&self, leader: LeaderGuard) -> Result<Next, Retry> {
        leader.begins_now();
        self.lead(leader.waiter(), leader, Sharing::Alone).await
    }

    /// Returns a stale response in place of a failure, if this request permits it. A directive of another request
    /// doesn't permit it.
    //= RFC 5861 section 4: of a request or of a response
    fn stale_instead(&self, failed: &Failed) -> Option<Next> {
        let cause = failed.cause();
        let stale = self.fetch.stale.as_ref()?;
        if !self.job().may_stand_in(stale, cause, now()) {
            return None;
        }
        let reason = self.fetch.reason.fwd();
        let outcome = Outcome::Forwarded { reason, status: cause.status, stored: false, collapsed: true };
        self.stored(stale, Use::Asked { outcome, result: CacheResult::Stale }, Some(cause))
    }

    /// Joins a forward, or leads a new one.
    fn take_part(&self, sharing: Sharing, variant: &[u8]) -> Part {
        match sharing {
            Sharing::Joined => join_or_lead(&self.job(), variant),
            Sharing::Alone | Sharing::Unlikely(_) => Part::Leads(self.cache().fetches.alone(&self.fetch.key)),
        }
    }

    /// Prepares the next attempt for the new target.
    fn prepare(&mut self, again: Again, wanted: WantedAnswer, variant: &mut Vec<u8>) {
        match again {
            Again::Join => self.tell("the response to the other request can't answer this one: retrying"),
            Again::Newer => self.tell("the response to the other request is too old for this one: retrying"),
            Again::Alone => {
                self.tell("the response to the other request can't answer this one: forwarded alone");
            }
            Again::Ask(_) => {
                self.tell("the other response answers at most a part: the missing bytes are requested");
            }
            Again::Anew(_) => self
                .tell("the response is for the other request alone, but a later one may be shared: retrying"),
            Again::Forward(_) => {}
        }
        match (again, wanted) {
            (_, WantedAnswer::Variant(known)) => *variant = known,
            (_, WantedAnswer::Scope(scope)) => self.ask(scope),
            (Again::Ask(Ask::Whole), _) => self.ask(FetchScope::Whole),
            (Again::Ask(Ask::Anew), _) => self.ask(self.ask_anew()),
            _ => {}
        }
    }

    /// Continues with a fetch of a different scope.
    fn ask(&mut self, scope: FetchScope) {
        let reason =
            if matches!(scope, FetchScope::MissingRange(_)) { NotReused::Partial } else { self.fetch.reason };
        self.fetch = Arc::new(Fetch { reason, ..self.fetch.with_scope(scope) });
    }

    /// Returns the job of a forward that this request leads; `None` if a usable response has been stored in the
    /// meantime.
    fn begin(&self, leader: LeaderGuard, sharing: Sharing) -> Option<LeaderTask> {
        let timeline = self.plan.request.timeline.as_ref();
        if let Some(trace) = timeline.and_then(|timeline| timeline.recorded_context()) {
            let _ = leader.in_flight.trace.set(trace);
        }
        // Between the look-up and the join, another forward may have stored the response.
        if let Some(hit) = self.stored_meanwhile() {
            self.tell("another request has just stored the response for this one");
            leader.land(Answer::Found(hit));
            return None;
        }
        Some(LeaderTask::new(self.job(), leader, sharing))
    }

    fn tell(&self, says: &str) {
        note(self.plan.request.record.as_ref(), || Finding::new("collapse", says, "RFC 9111 section 4"));
    }

    fn stored_meanwhile(&self) -> Option<Hit> {
        let entry = self.cache().look_up(&self.fetch.key)?;
        if entry.variants().is_empty() {
            return None;
        }
        let hit = entry.select(self.plan.rule().selecting(&self.plan.request.sent().to_lines()))?;
        // A response that the look-up found but couldn't use isn't new.
        let is_new = self.fetch.stale.as_ref().is_none_or(|found| !Arc::ptr_eq(&found.head, &hit.head));
        let is_usable = self.is_fresh_for_this(&hit.head) && self.stored(&hit, Use::Fresh, None).is_some();
        (is_new && is_usable).then_some(hit)
    }

    /// Returns the answer of the forward that this request leads.
    async fn answer(&self, waiter: &mut Waiter, job: Option<LeaderTask>) -> Answer {
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

    /// Returns the scope to fetch if the stored response can't be used.
    fn ask_anew(&self) -> FetchScope {
        let range_miss = self.plan.rule().range_miss;
        FetchScope::on_miss(&self.plan.facts, &self.plan.request.fields.to_lines(), range_miss, || None)
    }

    /// Returns the reply to a request if its forward, or the forward that it waited for, failed.
    fn failure(&self, failed: &Failed, role: Role) -> Reply {
        let (problem, detail) = match failed {
            Failed::Error(error) => {
                (Problem::origin(error, self.fetch.stale.as_ref()), Detail::Origin(error.reason()))
            }
            // The response is only for the leader; the other requests get its status.
            Failed::Status(status) => {
                let text = format!("the origin answered {status} to the request that this one waited for");
                let problem = Problem::new(*status, Reason::CollapseFailed.as_str(), text);
                (problem, Reason::CollapseFailed.into())
            }
        };
        self.failed(&problem, detail, role)
    }

    /// Returns the reply to a request that waited for too long and was not forwarded.
    fn no_turn(&self) -> Reply {
        let text = "the origin failed for other requests, and this request had no turn to be forwarded";
        let problem = Problem::new(503, Reason::CollapseFailed.as_str(), text);
        self.failed(&problem, Reason::CollapseFailed.into(), Role::Waiter)
    }

    fn failed(&self, problem: &Problem, detail: Detail, role: Role) -> Reply {
        let reason = ForwardReason { fwd: self.fetch.reason.fwd(), detail };
        let mut reply = private::failed(self.plan, problem, reason);
        if let Outcome::Forwarded { collapsed, .. } = &mut reply.cache_status.outcome {
            *collapsed = role == Role::Waiter;
        }
        reply
    }

    fn given_up(&self) -> Reply {
        let problem = Problem::new(503, "forward-given-up", "the forward was abandoned");
        self.plan.at().failure(&problem)
    }
}
