//! Forwards of instances that share a tier: one asks the origin, and the others wait for what it writes there.
//!
//! A forward takes the lease on its key before it asks, and stores what it brings under that. All that goes wrong with the
//! tier, or takes too long, makes it a forward as any other: nobody but this process knows of it then.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use caching::explain::Finding;
use caching::{Reuse, StoredFacts, Timestamp, reuse, sharing};
use store::backing::Version;
use telemetry::trace::TraceContext;
use tokio::time::{Instant, sleep, timeout};

use crate::cache::inflight::answer::Answer;
use crate::cache::inflight::known::{ForwardId, KnownForward, Told, ToldFailure};
use crate::cache::inflight::scope::FetchScope;
use crate::cache::inflight::table::{InFlight, LeaderGuard};
use crate::cache::inflight::turn::{self, Found, Happened, Patience, Step};
use crate::cache::inflight::wanted::Sharing;
use crate::cache::key::site_key;
use crate::cache::publish::follow::Following;
use crate::cache::publish::job::Job;
use crate::cache::publish::share::QUICK;
use crate::cache::record::stored::{CacheEntry, Hit, StoredHead};
use crate::cache::tiers::answer::{Answer as Looked, There};
use crate::cache::tiers::leases::{Held, Wanted};
use crate::cache::tiers::load::Asker;
use crate::cache::tiers::taking::{Awaited, Holder, Taking, Variant};
use crate::clock::now;
use crate::config::{Collapse, CollapseLimits, LeaderFailure};
use crate::timeline::{Stage, measure};

/// Who waits for the forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaiting {
    /// A client that is to get an answer that is fresh for it.
    Answer,
    /// Nobody: any news of what is stored will do.
    News,
}

/// Whose turn it is to ask the origin.
enum Turn {
    /// This instance's, under a lease where the tier has given it one.
    Own(Option<Arc<Held>>),
    /// Another one has stored this meanwhile.
    Over(Hit),
    /// Another one fetches this, which is on its way.
    Follow(Following),
    /// Another one has failed, for all who waited for it.
    Failed(Told),
}

/// One forward that wants its turn.
struct Seeking<'a> {
    job: &'a Job,
    awaiting: Awaiting,
    end: Instant,
    /// The version of the record that was found to be of no use.
    seen: Option<Version>,
    /// Kept in use: memory may forget it at any time.
    loaded: Option<Arc<CacheEntry>>,
    lease: Option<Arc<Held>>,
    /// What lay under the key when the lease was taken.
    looked: Option<Looked>,
    on_its_way: Option<Following>,
    /// When the first of those came who wait for this turn. Others may have come since, even after the failure that is told.
    since: Timestamp,
    /// The forward that is waited for, or was last: its failure is one of this request.
    awaited: Option<ForwardId>,
    /// Where that is recorded.
    awaited_trace: Option<TraceContext>,
    /// The forward that was waited for and has failed: the next one is the last for all who wait.
    relieves: Option<ForwardId>,
    failure: Option<Told>,
    /// What of the request the response depends on, as far as that is known.
    variant: Vec<u8>,
    /// Whether a forward for another variant was waited for.
    others: OtherVariants,
}

/// How often forwards of other instances are waited for that bring another variant: there is one lease for all of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherVariants {
    /// Once: after that this one's turn may come.
    Awaited,
    /// No more: where there are many variants, nobody is to wait for all of them.
    Passed,
}

impl Job {
    /// Whether this forward takes its turn among those of other instances.
    pub(crate) fn takes_turn(&self, sharing: Sharing, awaiting: Awaiting) -> bool {
        let is_shared = matches!(self.site.config.collapse, Collapse::Fleet(_))
            && self.cache().has_tier()
            && matches!(self.fetch.scope, FetchScope::Whole)
            && self.may_be_for_all();
        let is_never_fresh = || self.fetch.stale.as_ref().is_some_and(|hit| is_never_fresh(&hit.head.facts));
        match sharing {
            // Who waited for another one's response would have to ask all the same.
            Sharing::Joined => is_shared && !(awaiting == Awaiting::Answer && is_never_fresh()),
            // A reload is among them: it asks whatever others bring, and nobody is to wait for one after the other.
            Sharing::Alone | Sharing::Unlikely(_) => false,
        }
    }

    /// Whether others may have a use for what the origin answers. What answers credentials is one user's unless it says otherwise; what is stored
    /// has said so, and the next one is expected to. Whose it really is, each response says for itself.
    fn may_be_for_all(&self) -> bool {
        let (facts, rules) = (&self.facts, &self.rule().caching);
        let is_open =
            |stale: &Hit| sharing::may_name(facts, &stale.head.facts, stale.head.nominated(), rules);
        !sharing::is_personal(facts, rules) || self.fetch.stale.as_ref().is_some_and(is_open)
    }

    /// The same as [`Self::run`], when it is this instance's turn.
    pub(crate) async fn run_in_turn(mut self, leader: LeaderGuard, awaiting: Awaiting) {
        match Seeking::new(&self, awaiting, leader.in_flight()).turn().await {
            Turn::Over(hit) => leader.land(Answer::FoundElsewhere(hit)),
            Turn::Follow(following) => Box::pin(self.follow(following, leader)).await,
            Turn::Failed(told) => self.failed_elsewhere(told, leader),
            Turn::Own(lease) => {
                lease.iter().for_each(|lease| leader.in_flight().is_known_as(lease.forward()));
                // Nothing was asked yet: what was purged while this forward waited says nothing of what it will bring.
                leader.begins_now();
                self.stamp = self.cache().stamp();
                self.lease = lease.clone();
                let in_flight = Arc::clone(leader.shared_in_flight());
                tokio::select! {
                    biased;
                    () = self.run(leader) => {}
                    never = freed_once_doomed(&in_flight, lease) => match never {},
                }
            }
        }
    }
}

/// A purge takes what is fetched before it is there: whoever comes later may ask at once, at any instance.
async fn freed_once_doomed(in_flight: &InFlight, lease: Option<Arc<Held>>) -> Infallible {
    in_flight.doomed().await;
    lease.iter().for_each(|lease| lease.free());
    pending().await
}

fn is_never_fresh(facts: &StoredFacts) -> bool {
    facts.no_cache || facts.freshness_lifetime_ms() == 0
}

impl<'a> Seeking<'a> {
    fn new(job: &'a Job, awaiting: Awaiting, in_flight: &InFlight) -> Self {
        let relieves = in_flight.relieves();
        let loaded = job.fetch.in_use.clone();
        let seen = loaded.as_ref().and_then(|entry| entry.copy().version());
        let end = Instant::now() + job.cache().lease_wait_max();
        let variant = job.fetch.variant.clone();
        let others = OtherVariants::Awaited;
        Self {
            job,
            awaiting,
            end,
            seen,
            loaded,
            lease: None,
            looked: None,
            on_its_way: None,
            since: in_flight.since(),
            awaited: relieves,
            awaited_trace: None,
            relieves,
            failure: None,
            variant,
            others,
        }
    }

    async fn turn(mut self) -> Turn {
        // Who has waited here for another variant knows by now which there are, and others are to know which one this is.
        if let Some(entry) = self.job.cache().look_up(&self.job.fetch.key) {
            self.name_variant(&entry);
        }
        let mut happened = self.take().await;
        loop {
            let (tells, (found, hit)) = match self.read(happened).await {
                Some(there) => (self.what_it_tells(happened, &there), self.look()),
                None => (happened, (Found::Same, None)),
            };
            happened = match (turn::next(tells, found, self.patience()), hit) {
                (Step::Take, _) => self.take().await,
                (Step::Wait, _) => self.wait().await,
                (Step::Use, Some(hit)) => {
                    self.let_go();
                    return Turn::Over(hit);
                }
                (Step::Ask, _) => return Turn::Own(self.lease.take()),
                (Step::SeeFailure, _) => {
                    self.let_go();
                    return self.failure.take().map_or(Turn::Own(None), Turn::Failed);
                }
                (Step::AskAlone | Step::Use | Step::Follow, _) => {
                    self.let_go();
                    return self.on_its_way.take().map_or(Turn::Own(None), Turn::Follow);
                }
            };
        }
    }

    fn patience(&self) -> Patience {
        if Instant::now() < self.end { Patience::Left } else { Patience::Over }
    }

    async fn take(&mut self) -> Happened {
        let job = self.job;
        let forward = KnownForward::next(self.relieves);
        let (variant, known) = (&*self.variant, self.loaded.as_ref());
        let trace = job.request.timeline.as_ref().and_then(|timeline| timeline.recorded_context());
        let wanted = Wanted { key: &job.fetch.key, variant, known, forward, trace };
        let (taking, looked) = match self.awaiting {
            Awaiting::Answer => {
                let site_key = self.site_key();
                job.cache().take_lease_and_look(wanted, self.asker(site_key.as_deref())).await
            }
            // What is there may be fresh, and is not to be doubted by all who want to refresh it.
            Awaiting::News => (job.cache().take_lease(wanted).await, None),
        };
        match taking {
            Taking::Taken(lease) => {
                (self.lease, self.looked) = (Some(lease), looked);
                Happened::Taken
            }
            Taking::Held(Holder { variant: Variant::This, forward, trace }) => {
                (self.awaited, self.awaited_trace) = (forward, trace);
                Happened::Held
            }
            Taking::Held(Holder { variant: Variant::Another, trace, .. }) => {
                self.awaited_trace = trace;
                self.held_for_others()
            }
            Taking::Failed => Happened::Failed,
        }
    }

    /// What has happened by the record as it was read since: it may tell of the failure of a forward that this one waited for.
    fn what_it_tells(&mut self, happened: Happened, there: &There) -> Happened {
        let job = self.job;
        let Some(told) = job.cache().told_failure((&job.fetch.key, self.since), there) else {
            return happened;
        };
        let failure = told.failure;
        let ends = |forward: Option<ForwardId>| forward.is_some_and(|id| failure.forward.ends(id));
        match happened {
            // Who comes late to relieve a forward may find that another one has done so, and failed.
            Happened::Taken if failure.forward.is_relief() && ends(self.relieves) => {}
            Happened::Changed if ends(self.awaited) && self.is_last(&failure) => {}
            Happened::Changed if ends(self.awaited) => {
                self.relieves = Some(failure.forward.id);
                return happened;
            }
            _ => return happened,
        }
        job.cache().shares_told_failure();
        self.failure = Some(told);
        Happened::FailedForAll
    }

    /// Whether nothing is tried after it: as for those who wait within a process.
    fn is_last(&self, failure: &ToldFailure) -> bool {
        let job = self.job;
        let (cause, _) = failure.cause.means();
        let stands_in = |stale: &Hit| job.may_stand_in(stale, cause, now());
        let is_shared = |limits: CollapseLimits| limits.on_failure == LeaderFailure::Share;
        failure.forward.is_relief()
            || self.awaiting == Awaiting::News
            || job.site.config.collapse.limits().is_some_and(is_shared)
            || job.fetch.stale.as_ref().is_some_and(stands_in)
    }

    fn held_for_others(&mut self) -> Happened {
        self.awaited = None;
        match std::mem::replace(&mut self.others, OtherVariants::Passed) {
            OtherVariants::Awaited => Happened::Held,
            OtherVariants::Passed => Happened::StillHeld,
        }
    }

    async fn wait(&mut self) -> Happened {
        let says = "another instance fetches it: its response is waited for";
        self.job.note(|| Finding::new("collapse", says, "RFC 9111 section 4"));
        let limit = self.end.saturating_duration_since(Instant::now());
        let job = self.job;
        let mut waiting = measure(job.request.timeline.as_ref(), Stage::Lease);
        waiting.iter_mut().for_each(|waiting| waiting.linked(self.awaited_trace));
        let awaited = tokio::select! {
            biased;
            awaited = job.cache().await_other(&job.fetch.key, self.seen, limit) => awaited,
            following = self.on_its_way() => {
                self.on_its_way = Some(following);
                return Happened::OnItsWay;
            }
        };
        match awaited {
            Awaited::Changed(version) => {
                self.seen = version;
                Happened::Changed
            }
            Awaited::Told => Happened::Changed,
            Awaited::Free => Happened::Free,
            Awaited::StillHeld => Happened::StillHeld,
            Awaited::Failed => Happened::Failed,
        }
    }

    /// Waits until something is on its way that answers.
    async fn on_its_way(&self) -> Following {
        let (job, cache) = (self.job, self.job.cache());
        let tiers = cache.tiers().filter(|_| self.awaiting == Awaiting::Answer);
        let listening = tiers.and_then(|tiers| tiers.hear_of(&job.fetch.key));
        let (Some(tiers), Some(listening)) = (tiers, listening) else { return pending().await };
        sleep(QUICK).await;
        let site_key = self.site_key();
        let place = (&*job.fetch.key, self.asker(site_key.as_deref()));
        loop {
            let told = listening.told();
            let announced = tiers.on_its_way(cache.home(), place).await;
            let following = announced.and_then(|announced| Following::new(job, announced));
            if let Some(following) = following.filter(|it| self.is_answer_on_its_way(it.hit()))
                && let Some(begun) = following.begun(tiers).await
            {
                return begun;
            }
            let _ = timeout(tiers.silence_max(), told).await;
        }
    }

    fn site_key(&self) -> Option<Vec<u8>> {
        site_key(&self.job.site, &self.job.request, &self.job.facts)
    }

    fn asker<'b>(&'b self, site_key: Option<&'b [u8]>) -> Asker<'b> {
        Asker {
            rule: self.job.rule(),
            groups_max: self.job.live.config.store(&self.job.site.config).groups_max,
            site_key,
        }
    }

    /// Reads what the tier has now, where that may be something else than before.
    async fn read(&mut self, happened: Happened) -> Option<There> {
        // One that has freed the lease may have written before: what lies there says which variants there are, too.
        let may_differ = [Happened::Taken, Happened::Changed, Happened::Free, Happened::StillHeld];
        if !may_differ.contains(&happened) {
            return None;
        }
        let loaded = match self.looked.take() {
            Some(looked) => looked,
            None => {
                let site_key = self.site_key();
                self.job.cache().load_anew(&self.job.fetch.key, self.asker(site_key.as_deref())).await
            }
        };
        if let Some(lease) = &self.lease {
            lease.is_upon(loaded.there.clone());
        }
        if loaded.entry.is_some() {
            self.loaded = loaded.entry;
        }
        Some(loaded.there)
    }

    /// What lies there now, to this request.
    fn look(&mut self) -> (Found, Option<Hit>) {
        let job = self.job;
        let found = job.cache().look_up(&job.fetch.key);
        found.map_or((Found::Same, None), |entry| self.judge(&entry))
    }

    fn judge(&mut self, entry: &Arc<CacheEntry>) -> (Found, Option<Hit>) {
        let (job, now) = (self.job, now());
        let request = job.request.sent().to_lines();
        self.name_variant(entry);
        let hit = entry.select(job.rule().selecting(&request));
        if let Some(hit) = hit.as_ref().filter(|hit| self.is_answer(hit)) {
            return (Found::Answer, Some(hit.clone()));
        }
        let found = match hit {
            _ if entry.uncacheable_for(&job.facts, now).is_some() => Found::NotShared,
            // By the time that this one looked, it had expired: the next forward is for all again.
            Some(hit) if self.is_another(&hit) && !self.has_expired(&hit) => Found::Another,
            Some(_) | None => Found::Same,
        };
        (found, None)
    }

    /// By the fields that the newest response nominates.
    fn name_variant(&mut self, entry: &CacheEntry) {
        let Some(newest) = entry.variants().first() else { return };
        let request = self.job.request.sent().to_lines();
        self.variant.clear();
        newest.head.nominated().write_variant_key(self.job.rule().selecting(&request), &mut self.variant);
    }

    fn is_answer(&self, hit: &Hit) -> bool {
        self.is_another(hit)
            && hit.body.complete_bytes().is_some()
            && self.is_good(&hit.head)
            && (self.awaiting == Awaiting::News || self.is_fresh(hit))
    }

    /// What was purged while this forward waited is for those who wait here: they came before.
    fn is_good(&self, head: &StoredHead) -> bool {
        let fetch = &self.job.fetch;
        self.job.cache().answers(fetch.look_up, &fetch.key, head)
    }

    fn is_fresh(&self, hit: &Hit) -> bool {
        let job = self.job;
        reuse(&job.facts, &hit.head.facts, &job.rule().caching, now()) == Reuse::Fresh
    }

    /// The same for what is not stored yet, of whatever length.
    fn is_answer_on_its_way(&self, hit: &Hit) -> bool {
        let job = self.job;
        let request = job.request.sent().to_lines();
        hit.head.is_selected_by(job.rule().selecting(&request))
            && self.is_good(&hit.head)
            && self.is_fresh(hit)
    }

    /// Whether it would have been an answer for a time.
    fn has_expired(&self, hit: &Hit) -> bool {
        !is_never_fresh(&hit.head.facts) && !hit.head.facts.is_fresh(now())
    }

    /// Whether it was stored since this forward was decided upon: what was there then was found to be no answer.
    fn is_another(&self, hit: &Hit) -> bool {
        let id = |head: &StoredHead| head.inputs().map(|inputs| inputs.id);
        let known = self.job.fetch.in_use.as_ref().map(|entry| entry.variants()).unwrap_or_default();
        !known.iter().any(|variant| id(&variant.head) == id(&hit.head))
    }

    /// What was taken is not needed: nothing is written, and whoever waits goes on.
    fn let_go(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.is_not_needed();
        }
    }
}
