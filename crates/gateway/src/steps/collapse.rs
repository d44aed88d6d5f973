//! One request among those that want the same response: it starts the forward, or waits for whoever did.

mod arrived;

use std::sync::Arc;

use caching::explain::Finding;
use caching::{NotReused, Outcome};
use tokio::time::{Instant, sleep_until};

use crate::cache::findings;
use crate::cache::inflight::answer::{Answer, Failed};
use crate::cache::inflight::driven::Driven;
use crate::cache::inflight::joining::{Role, join_or_lead};
use crate::cache::inflight::next_move::{self, Ask, Attempts, Move};
use crate::cache::inflight::places::{Place, Places};
use crate::cache::inflight::relief::{self, Happened, Waiting};
use crate::cache::inflight::scope::FetchScope;
use crate::cache::inflight::table::{Join, LeaderGuard, News, Waiter};
use crate::cache::inflight::wanted::{Fetch, Sharing};
use crate::cache::publish::in_turn::Awaiting;
use crate::cache::record::stored::Hit;
use crate::cache::using::Use;
use crate::config::CollapseLimits;
use crate::message::interims::Interims;
use crate::message::private;
use crate::message::reply::Reply;
use crate::message::respond::{self, Problem};
use crate::plan::{ForwardReason, Next, Plan};
use crate::reason::{Detail, Reason};
use crate::timeline::{Stage, measure};
use crate::trace::note;
use crate::worker::Worker;

use self::arrived::CollapsedRequest;

type Again = next_move::Again<Vec<u8>, FetchScope>;

/// Gets a response for `plan` that may be shared with others.
pub(crate) async fn run(worker: &Arc<Worker>, plan: &Plan, fetch: &Arc<Fetch>, interims: &Interims) -> Next {
    let mut seeking = CollapsedRequest::new(worker, plan, fetch, interims);
    let mut attempts = Attempts::new(fetch.sharing);
    let mut variant = fetch.variant.clone();
    let detail = loop {
        let again = match seeking.attempt(attempts.sharing(), &variant).await {
            Ok(next) => return next,
            Err(again) => again,
        };
        let next = attempts.after(&again);
        if let next_move::Next::Forward(detail) = next {
            break detail;
        }
        seeking.prepare(again, &mut variant);
        if next == next_move::Next::GivenUp {
            break Reason::CollapseGivenUp.into();
        }
    };
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
) -> Next {
    let seeking = CollapsedRequest::new(worker, plan, fetch, interims);
    let answer = seeking.answer(&mut waiter, None).await;
    // The waiter keeps its place until its reader stands, so that nothing is let go before.
    seeking.reply(&answer).unwrap_or_else(|_| Next::Reply(seeking.given_up()))
}

impl CollapsedRequest<'_> {
    async fn attempt(&self, sharing: Sharing, variant: &[u8]) -> Result<Next, Again> {
        let (waiter, role) = self.take_part(sharing, variant);
        match (role, self.plan.site.config.collapse.limits()) {
            (Role::Waiter, Some(limits)) => self.wait(waiter, limits).await,
            _ => self.lead(waiter, sharing).await,
        }
    }

    /// Leads a forward to its answer.
    async fn lead(&self, mut waiter: Waiter, sharing: Sharing) -> Result<Next, Again> {
        let job = self.begin(&waiter, sharing);
        let answer = self.answer(&mut waiter, job).await;
        // The waiter keeps its place until its reader stands, so that nothing is let go before.
        self.reply(&answer)
    }

    /// The reply to the request that leads.
    fn reply(&self, answer: &Answer) -> Result<Next, Again> {
        match self.next_move(answer, Role::Leader) {
            Move::Reply(next) => Ok(next),
            Move::Failed(failed) => Ok(Next::Reply(self.failure(&failed, Role::Leader))),
            Move::GivenUp => Ok(Next::Reply(self.given_up())),
            Move::Again(again) => Err(again),
        }
    }

    /// Waits for the forward of another request, and for the one that relieves it if it fails or is late.
    async fn wait(&self, waiter: Waiter, limits: CollapseLimits) -> Result<Next, Again> {
        self.tell("it waits for the forward of another request, which is under way");
        let gauge = self.worker.recorder.collapsed();
        let mut measuring = measure(self.plan.request.timeline.as_ref(), Stage::Collapse);
        measuring.iter_mut().for_each(|measuring| measuring.linked(waiter.leader_trace()));
        let mut waiting = Waiting::of(waiter.order(), limits.on_failure);
        let mut late_at = Instant::now().checked_add(limits.wait_max);
        let mut places = Places { first: Place::of(waiter), relief: None };
        loop {
            let (happened, failed) = match self.learn(&mut places, late_at).await {
                Some(answer) => match self.next_move(&answer, Role::Waiter) {
                    Move::Failed(failed) => (Happened::Failed, Some(failed)),
                    Move::Reply(next) => return Ok(next),
                    Move::GivenUp => return Ok(Next::Reply(self.given_up())),
                    Move::Again(again) => {
                        if matches!(again, Again::Newer) {
                            places.answered().for_each(|waiter| self.cache().fetches().make_room(waiter));
                        }
                        return Err(again);
                    }
                },
                None => (Happened::Late, None),
            };
            if happened == Happened::Late {
                late_at = None;
            }
            match (waiting.learns(happened), failed) {
                (relief::Next::Relieve, _) => match self.relieve(&places.first.waiter) {
                    Join::Lead(relief) => {
                        self.tell(
                            "that failed, or takes too long: this request is forwarded, for all who wait",
                        );
                        drop((gauge, measuring));
                        // Those who have waited for one forward wait for no other instance.
                        return self.lead(relief, Sharing::Alone).await;
                    }
                    Join::Wait(relief) => places.relief = Some(Place::of(relief)),
                    Join::Full => unreachable!("those who wait are not counted again"),
                },
                (relief::Next::WaitOn, _) | (relief::Next::SeeFailure, None) => {}
                (relief::Next::SeeFailure, Some(failed)) => {
                    return Ok(Next::Reply(self.failure(&failed, Role::Waiter)));
                }
            }
        }
    }

    fn relieve(&self, waiter: &Waiter) -> Join {
        let cache = self.cache();
        cache.fetches().relieve(waiter, self.fetch.look_up.at(cache.stamp()))
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
                (self.cache().fetches().alone(&self.fetch.key), Role::Leader)
            }
        }
    }

    /// Makes another attempt one for what is wanted now.
    fn prepare(&mut self, again: Again, variant: &mut Vec<u8>) {
        match again {
            Again::Join(known) => {
                self.tell("the other request's answer is no answer to this one: once more");
                *variant = known;
            }
            Again::Newer => {
                self.tell("the other request's answer is too old for this one: once more");
            }
            Again::Alone => {
                self.tell("the other request's answer is no answer to this one: forwarded alone");
            }
            Again::Ask(ask) => {
                self.tell("that answers a part of the request at most: asked for what is missing");
                self.ask(ask);
            }
            Again::Anew(_) => self
                .tell("the other request's answer is for that one alone, others may still share: once more"),
            Again::Forward(_) => {}
        }
    }

    /// Goes on with a request for other bytes.
    fn ask(&mut self, ask: Ask<FetchScope>) {
        let scope = match ask {
            Ask::Rest(scope) => scope,
            Ask::Anew => self.ask_anew(),
            Ask::Whole => FetchScope::Whole,
        };
        let reason =
            if matches!(scope, FetchScope::MissingRange(_)) { NotReused::Partial } else { self.fetch.reason };
        self.fetch = Arc::new(Fetch { reason, ..self.fetch.with_scope(scope) });
    }

    /// The job of a forward that this request leads.
    fn begin(&self, waiter: &Waiter, sharing: Sharing) -> Option<Driven> {
        let leader = LeaderGuard::new(waiter, self.cache().fetches());
        let timeline = self.plan.request.timeline.as_ref();
        leader.in_flight().is_led_by(timeline.and_then(|timeline| timeline.recorded_context()));
        // Between the look-up and the join another forward may have ended and stored what we want.
        if let Some(hit) = self.stored_meanwhile() {
            self.tell("another request has just stored what this one wants");
            leader.land(Answer::Found(hit));
            return None;
        }
        let job = self.job();
        Some(match job.takes_turn(sharing, Awaiting::Answer) {
            false => Driven::new(job, leader),
            true => Driven::in_turn(job, leader),
        })
    }

    fn tell(&self, says: &str) {
        note(self.plan.request.record.as_ref(), || Finding::new("collapse", says, "RFC 9111 section 4"));
    }

    fn stored_meanwhile(&self) -> Option<Hit> {
        let entry = self.cache().look_up(&self.fetch.key)?;
        if entry.variants().is_empty() {
            return None;
        }
        let hit = entry.select(self.selecting(&self.plan.request.sent().to_lines()))?;
        // What the look-up has found, and would not use as it is, was there before.
        let is_new = self.fetch.stale.as_ref().is_none_or(|found| !Arc::ptr_eq(&found.head, &hit.head));
        let is_usable = self.is_fresh_for_this(&hit.head) && self.stored(&hit, Use::Fresh, None).is_some();
        (is_new && is_usable).then_some(hit)
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

    /// What to ask for where what is stored turned out to be of no use.
    fn ask_anew(&self) -> FetchScope {
        let range_miss = self.plan.site.rule_at(self.plan.rule).range_miss;
        FetchScope::on_miss(&self.plan.facts, &self.plan.request.fields.to_lines(), range_miss, || None)
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
        if role == Role::Waiter {
            set_collapsed(&mut reply.cache_status.outcome);
        }
        reply
    }

    fn given_up(&self) -> Reply {
        let problem = Problem::new(503, "forward-given-up", "the forward was given up");
        respond::reply(&problem, Some(&self.plan.site), self.plan.started, self.worker)
    }
}

async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn set_collapsed(outcome: &mut Outcome) {
    if let Outcome::Forwarded { collapsed, .. } = outcome {
        *collapsed = true;
    }
}
