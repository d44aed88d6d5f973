//! Forwards of instances that share a tier: one asks the origin, and the others wait for what it writes there.
//!
//! A forward takes the lease on its key before it asks, and stores what it brings under that. All that goes wrong with the
//! tier, or takes too long, makes it a forward as any other: nobody but this process knows of it then.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use caching::explain::Finding;
use caching::{Reuse, StoredFacts, reuse, sharing};
use message::timeline::{Stage, measure};
use store::backing::Version;
use telemetry::trace::TraceContext;
use tokio::time::Instant;

use crate::cache::inflight::answer::Answer;
use crate::cache::inflight::scope::FetchScope;
use crate::cache::inflight::table::{InFlight, LeaderGuard};
use crate::cache::inflight::turn::{self, Found, Happened, Patience, Step};
use crate::cache::inflight::wanted::Sharing;
use crate::cache::key::site_key;
use crate::cache::publish::job::Job;
use crate::cache::record::stored::{CacheEntry, Hit, StoredHead};
use crate::cache::tiers::answer::Answer as Looked;
use crate::cache::tiers::leases::{Held, Wanted};
use crate::cache::tiers::load::Asker;
use crate::cache::tiers::taking::{Awaited, Holder, Taking, Variant};
use crate::clock::now;
use crate::config::Collapse;

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
    /// Where the forward is recorded that is waited for, or was last.
    awaited_trace: Option<TraceContext>,
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
        match Seeking::new(&self, awaiting).turn().await {
            Turn::Over(hit) => leader.land(Answer::FoundElsewhere(hit)),
            Turn::Own(lease) => {
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
    fn new(job: &'a Job, awaiting: Awaiting) -> Self {
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
            awaited_trace: None,
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
            let (found, hit) = if self.read(happened).await { self.look() } else { (Found::Same, None) };
            happened = match (turn::next(happened, found, self.patience()), hit) {
                (Step::Take, _) => self.take().await,
                (Step::Wait, _) => self.wait().await,
                (Step::Use, Some(hit)) => {
                    self.let_go();
                    return Turn::Over(hit);
                }
                (Step::Ask, _) => return Turn::Own(self.lease.take()),
                (Step::AskAlone | Step::Use, _) => {
                    self.let_go();
                    return Turn::Own(None);
                }
            };
        }
    }

    fn patience(&self) -> Patience {
        if Instant::now() < self.end { Patience::Left } else { Patience::Over }
    }

    async fn take(&mut self) -> Happened {
        let job = self.job;
        let (variant, known) = (&*self.variant, self.loaded.as_ref());
        let trace = job.request.timeline.as_ref().and_then(|timeline| timeline.recorded_context());
        let wanted = Wanted { key: &job.fetch.key, variant, known, trace };
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
            Taking::Held(Holder { variant, trace }) => {
                self.awaited_trace = trace;
                match variant {
                    Variant::This => Happened::Held,
                    Variant::Another => self.held_for_others(),
                }
            }
            Taking::Failed => Happened::Failed,
        }
    }

    fn held_for_others(&mut self) -> Happened {
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
        match job.cache().await_other(&job.fetch.key, self.seen, limit).await {
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

    /// Reads what the tier has now, where that may be something else than before. Whether it is.
    async fn read(&mut self, happened: Happened) -> bool {
        // One that has freed the lease may have written before: what lies there says which variants there are, too.
        let may_differ = [Happened::Taken, Happened::Changed, Happened::Free, Happened::StillHeld];
        if !may_differ.contains(&happened) {
            return false;
        }
        let loaded = match self.looked.take() {
            Some(looked) => looked,
            None => {
                let site_key = self.site_key();
                self.job.cache().load_anew(&self.job.fetch.key, self.asker(site_key.as_deref())).await
            }
        };
        if let Some(lease) = &self.lease {
            lease.is_upon(loaded.there);
        }
        if loaded.entry.is_some() {
            self.loaded = loaded.entry;
        }
        true
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
