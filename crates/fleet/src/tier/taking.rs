//! Taking leases, and waiting while another instance holds one.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::backing::{LeaseMode, LeaseRequest, TakeOutcome, Version, WaitOutcome};
use telemetry::trace::TraceContext;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::counts::Event;
use crate::leases::{HeldLease, VARIANT_DIGITS, WantedLease};
use crate::tier::load::Asker;
use crate::turn::LeaseEvent;
use crate::{Tier, names};

/// Result of taking a lease.
pub enum Taking {
    Taken(Arc<HeldLease>),
    /// Another instance holds the lease.
    Held(Holder),
    /// The tier didn't answer, or was not contacted.
    Failed,
}

/// Information from the note that the holder of a lease has stored in the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whether the lease is held for the wanted variant, or for one that may be the same.
    pub is_same_variant: bool,
    /// Trace of the holder's forward, if it is recorded.
    pub trace: Option<TraceContext>,
}

impl Tier {
    /// Takes the lease on a key if it is free.
    pub async fn take_lease(&self, wanted: WantedLease<'_>) -> Taking {
        let name = names::of_record(wanted.key).filter(|_| self.may_give_leases());
        let Some(name) = name else { return Taking::Failed };
        let leases = &self.leases;
        let note = leases.note(&wanted);
        let (ttl, note_bytes) = (leases.limits.time, note.as_bytes());
        let request = LeaseRequest { ttl, note: note_bytes, mode: LeaseMode::IfFree };
        match self.backing.take_lease(&name, request).await {
            Ok(TakeOutcome::Taken(lease)) => {
                self.counts.add(Event::LeaseTaken);
                Taking::Taken(Arc::new(HeldLease::new(leases, lease, wanted)))
            }
            Ok(TakeOutcome::Held { note: theirs, .. }) => Taking::Held(holder_of(&theirs, &note)),
            Err(_) => {
                self.counts.add(Event::LeaseFailed);
                Taking::Failed
            }
        }
    }

    /// Takes the lease on a key and reads its record. The read is sent right after the lease request, without waiting for its answer, so it
    /// sees everything that was written before the lease was taken. If a tier answers the read before the lease request, the origin may get
    /// a redundant request.
    pub async fn take_lease_and_look(
        &self,
        wanted: WantedLease<'_>,
        asker: Asker<'_>,
    ) -> (Taking, Option<Answer>) {
        if !self.may_give_leases() {
            return (Taking::Failed, None);
        }
        let (taking, looked) = tokio::join! {
            biased;
            self.take_lease(wanted),
            self.load_anew(wanted.key, asker),
        };
        (taking, Some(looked))
    }

    fn may_give_leases(&self) -> bool {
        self.log.is_read() && !self.is_silent.load(Ordering::Relaxed)
    }

    /// Waits for another instance's fetch while the record has the version `seen`, and stores a newer version in `seen`.
    pub async fn await_other(&self, key: &[u8], seen: &mut Option<Version>, limit: Duration) -> LeaseEvent {
        let Some(name) = names::of_record(key) else { return LeaseEvent::Failed };
        let began = Instant::now();
        self.counts.add(Event::LeaseWaited);
        let waited = self.backing.wait(&name, *seen, limit).await;
        self.counts.add_ms(Event::LeaseWaitedMs, began.elapsed());
        match waited {
            Ok(WaitOutcome::Changed(there)) => {
                *seen = there.map(|there| there.version);
                LeaseEvent::Changed
            }
            Ok(WaitOutcome::Told) => LeaseEvent::Changed,
            Ok(WaitOutcome::Free) => LeaseEvent::Free,
            Ok(WaitOutcome::Expired) => {
                self.counts.add(Event::LeaseExpired);
                LeaseEvent::Free
            }
            Ok(WaitOutcome::StillHeld) => LeaseEvent::StillHeld,
            Err(_) => {
                self.counts.add(Event::LeaseFailed);
                LeaseEvent::Failed
            }
        }
    }

    /// Returns the maximum wait for another instance's fetch.
    pub fn lease_wait_max(&self) -> Duration {
        self.leases.limits.wait_max
    }
}

fn holder_of(theirs: &[u8], ours: &str) -> Holder {
    let is_same_variant = theirs.get(..VARIANT_DIGITS) == ours.as_bytes().get(..VARIANT_DIGITS);
    let trace = std::str::from_utf8(theirs).unwrap_or_default().split(' ').nth(2);
    Holder { is_same_variant, trace: trace.and_then(|word| TraceContext::parse(word.as_bytes())) }
}
