//! Forwards of instances that share a tier: one instance forwards the request, and the others wait for the response that it writes to
//! the tier.
//!
//! A forward acquires the lease on its key before it contacts the origin, and stores its response under the lease. If the tier fails or
//! takes too long, the forward continues without a lease, and other instances don't wait for it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use cache::collapse::answer::Answer;
use cache::collapse::table::{InFlight, LeaderGuard};
use cache::entry::stored::{CacheEntry, Hit, StoredHead};
use caching::explain::Finding;
use caching::{Reuse, reuse};
use fleet::Tier;
use fleet::answer::Answer as Looked;
use fleet::leases::{HeldLease, WantedLease};
use fleet::tier::load::Asker;
use fleet::tier::taking::{Holder, Taking};
use fleet::turn::{self, Found, LeaseAction, LeaseEvent, Patience};
use message::clock::now;
use message::timeline::{Stage, measure};
use store::backing::Version;
use telemetry::trace::TraceContext;
use tokio::time::Instant;

use crate::request::fetch::job::{Awaiting, Job, is_never_fresh};

/// Outcome of waiting for the turn to contact the origin.
enum LeaseOutcome {
    /// This instance contacts the origin, with the lease if the tier granted one.
    Own(Option<Arc<HeldLease>>),
    /// This instance doesn't have to contact the origin, because another one has stored this response in the meantime.
    Over(Hit),
}

/// A forward that waits for its turn.
struct LeaseWait<'a> {
    job: &'a Job,
    tier: &'a Tier,
    awaiting: Awaiting,
    end: Instant,
    /// Version of the record that this request can't use.
    seen: Option<Version>,
    /// Loaded record. The record is held here because memory may drop it at any time.
    loaded: Option<Arc<CacheEntry>>,
    lease: Option<Arc<HeldLease>>,
    /// Contents of the key when the lease was acquired.
    looked: Option<Looked>,
    /// Trace of the forward for which this one waits or last waited.
    awaited_trace: Option<TraceContext>,
    /// Variant key from the values of the nominated fields, as far as known.
    variant: Vec<u8>,
    /// Whether to wait for forwards of other variants.
    others: OtherVariants,
}

/// Limit on waiting for forwards of other variants, because one lease covers all variants of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherVariants {
    /// Wait for one such forward. After that, this forward may contact the origin.
    Awaited,
    /// Don't wait again, because with many variants, a request would wait for all of them.
    Passed,
}

impl Job {
    /// Waits until this instance may contact the origin, and then runs like [`Self::run`].
    pub(crate) async fn run_in_turn(mut self, leader: LeaderGuard, awaiting: Awaiting) {
        let Some(tier) = self.tier() else { return self.run(None, leader).await };
        match LeaseWait::new(&self, tier, awaiting).turn().await {
            LeaseOutcome::Over(hit) => leader.land(Answer::FoundElsewhere(hit)),
            LeaseOutcome::Own(lease) => {
                // The request hasn't been forwarded yet, so purges during the wait don't affect its response.
                leader.begins_now();
                self.stamp = self.cache().invalidations.stamp();
                self.lease = lease.clone();
                let in_flight = Arc::clone(&leader.in_flight);
                tokio::select! {
                    biased;
                    () = self.run(None, leader) => {}
                    never = freed_once_doomed(&in_flight, lease) => match never {},
                }
            }
        }
    }
}

/// Frees the lease when a purge dooms the fetch, so that any instance can forward later requests immediately.
async fn freed_once_doomed(in_flight: &InFlight, lease: Option<Arc<HeldLease>>) -> Infallible {
    in_flight.doomed().await;
    lease.iter().for_each(|lease| lease.free());
    pending().await
}

impl<'a> LeaseWait<'a> {
    fn new(job: &'a Job, tier: &'a Tier, awaiting: Awaiting) -> Self {
        let loaded = job.fetch.in_use.clone();
        let seen = loaded.as_ref().and_then(|entry| entry.copy.version());
        let end = Instant::now() + tier.lease_wait_max();
        let variant = job.fetch.variant.clone();
        let others = OtherVariants::Awaited;
        Self {
            job,
            tier,
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

    async fn turn(mut self) -> LeaseOutcome {
        // A request that has waited in this process for another variant now knows the nominated fields. The lease then contains the
        // request's values of these fields, so that other instances can distinguish the variants.
        if let Some(entry) = self.job.cache().look_up(&self.job.fetch.key) {
            self.name_variant(&entry);
        }
        let mut happened = self.take().await;
        loop {
            let (found, hit) = if self.read(happened).await { self.look() } else { (Found::Same, None) };
            let patience = if Instant::now() < self.end { Patience::Left } else { Patience::Over };
            happened = match (turn::next(happened, found, patience), hit) {
                (LeaseAction::Take, _) => self.take().await,
                (LeaseAction::Wait, _) => self.wait().await,
                (LeaseAction::Use, Some(hit)) => {
                    self.let_go();
                    return LeaseOutcome::Over(hit);
                }
                (LeaseAction::Ask, _) => return LeaseOutcome::Own(self.lease.take()),
                (LeaseAction::AskAlone | LeaseAction::Use, _) => {
                    self.let_go();
                    return LeaseOutcome::Own(None);
                }
            };
        }
    }

    async fn take(&mut self) -> LeaseEvent {
        let job = self.job;
        let (variant, known) = (&*self.variant, self.loaded.as_ref());
        let trace = job.request.timeline.as_ref().and_then(|timeline| timeline.recorded_context());
        let wanted = WantedLease { key: &job.fetch.key, variant, known, trace };
        let (taking, looked) = match self.awaiting {
            Awaiting::Answer => {
                let site_key = self.job.site_key();
                self.tier.take_lease_and_look(wanted, self.asker(site_key.as_deref())).await
            }
            // The stored response may still be fresh, and a look-up would make the copy suspect for other requests.
            Awaiting::News => (self.tier.take_lease(wanted).await, None),
        };
        match taking {
            Taking::Taken(lease) => {
                (self.lease, self.looked) = (Some(lease), looked);
                LeaseEvent::Taken
            }
            Taking::Held(Holder { is_same_variant, trace }) => {
                self.awaited_trace = trace;
                if is_same_variant { LeaseEvent::Held } else { self.held_for_others() }
            }
            Taking::Failed => LeaseEvent::Failed,
        }
    }

    fn held_for_others(&mut self) -> LeaseEvent {
        match std::mem::replace(&mut self.others, OtherVariants::Passed) {
            OtherVariants::Awaited => LeaseEvent::Held,
            OtherVariants::Passed => LeaseEvent::StillHeld,
        }
    }

    async fn wait(&mut self) -> LeaseEvent {
        let says = "waiting for the response that another instance fetches";
        self.job.note(|| Finding::new("collapse", says, "RFC 9111 section 4"));
        let limit = self.end.saturating_duration_since(Instant::now());
        let job = self.job;
        let mut waiting = measure(job.request.timeline.as_ref(), Stage::Lease);
        waiting.iter_mut().for_each(|waiting| waiting.linked(self.awaited_trace));
        self.tier.await_other(&job.fetch.key, &mut self.seen, limit).await
    }

    fn asker<'b>(&'b self, site_key: Option<&'b [u8]>) -> Asker<'b> {
        Asker { rules: self.job.storage_rules(), site_key }
    }

    /// Reads the tier again if its contents may have changed. Returns whether the contents were read.
    async fn read(&mut self, happened: LeaseEvent) -> bool {
        // An instance may have written a response before freeing the lease. The record also contains the variants.
        let may_differ = [LeaseEvent::Taken, LeaseEvent::Changed, LeaseEvent::Free, LeaseEvent::StillHeld];
        if !may_differ.contains(&happened) {
            return false;
        }
        let loaded = match self.looked.take() {
            Some(looked) => looked,
            None => {
                let site_key = self.job.site_key();
                self.tier.load_anew(&self.job.fetch.key, self.asker(site_key.as_deref())).await
            }
        };
        if let Some(lease) = &self.lease {
            lease.attach(loaded.remote);
        }
        if loaded.entry.is_some() {
            self.loaded = loaded.entry;
        }
        true
    }

    /// Returns the contents of the key as seen by this request.
    fn look(&mut self) -> (Found, Option<Hit>) {
        let (job, now) = (self.job, now());
        let Some(entry) = job.cache().look_up(&job.fetch.key) else { return (Found::Same, None) };
        let request = job.request.sent().to_lines();
        self.name_variant(&entry);
        let hit = entry.select(job.rule().selecting(&request));
        if let Some(hit) = hit.as_ref().filter(|hit| self.is_answer(hit)) {
            return (Found::Answer, Some(hit.clone()));
        }
        let found = match hit {
            _ if entry.uncacheable_for(&job.facts, now).is_some() => Found::NotShared,
            // If the response has already expired, all waiting requests can share the next forward.
            Some(hit) if self.is_another(&hit) && !self.has_expired(&hit) => Found::Another,
            Some(_) | None => Found::Same,
        };
        (found, None)
    }

    /// Sets the variant key from the nominated fields of the newest response.
    fn name_variant(&mut self, entry: &CacheEntry) {
        let Some(newest) = entry.variants().first() else { return };
        let request = self.job.request.sent().to_lines();
        self.variant.clear();
        newest.head.nominated().write_variant_key(self.job.rule().selecting(&request), &mut self.variant);
    }

    /// Returns whether the response answers the request. A response that was purged while this forward waited still answers the waiting
    /// requests, because they arrived before the purge.
    fn is_answer(&self, hit: &Hit) -> bool {
        let job = self.job;
        let is_fresh = || reuse(&job.facts, &hit.head.facts, &job.rule().caching, now()) == Reuse::Fresh;
        self.is_another(hit)
            && hit.body.complete_bytes().is_some()
            && job.cache().invalidations.answers(job.fetch.look_up, &job.fetch.key, &hit.head)
            && (self.awaiting == Awaiting::News || is_fresh())
    }

    /// Returns whether the response was fresh and has expired.
    fn has_expired(&self, hit: &Hit) -> bool {
        !is_never_fresh(&hit.head.facts) && !hit.head.facts.is_fresh(now())
    }

    /// Returns whether the response was stored after the decision for this forward. Responses stored before couldn't answer the
    /// request.
    fn is_another(&self, hit: &Hit) -> bool {
        let id = |head: &StoredHead| head.inputs().map(|inputs| inputs.id);
        let known = self.job.fetch.in_use.as_ref().map(|entry| entry.variants()).unwrap_or_default();
        !known.iter().any(|variant| id(&variant.head) == id(&hit.head))
    }

    /// Releases the lease without a write, so that waiting instances continue.
    fn let_go(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back_unused();
        }
    }
}
