//! The carrier of a region: the instance that appends the purges of other regions to the log of its own.
//!
//! A lease makes it one instance, to save work alone: nothing depends on it (`origins.rs`). The record of the region is written under the
//! lease, so that a carrier that was stopped for longer doesn't overwrite its successor's.

use std::time::Duration;

use bytes::Bytes;
use cache::changed::until;
use futures_util::future::join;
use store::backing::{
    Continuity, Expected, LOG_APPEND_BYTES_MAX, LastRecord, Lease, LeaseMode, LeaseRequest, LogCursor, LogId,
    LogOffset, PutOutcome, RenewOutcome, Replication, TakeOutcome, Tracking, Write,
};
use store::fleet::{Following, PeerRecord, REFUSAL_BYTES_MAX, REGION, RegionRecord, cut};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::peer::{Confirmations, News, Refusal};
use super::{Peer, Region};
use crate::purge_log::read_behind;

/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum wait for replicas.
const REPLICATION_WAIT_MAX: Duration = Duration::from_secs(1);

impl Region {
    /// Keeps the lease of the carrier, and the record of the region. It never returns.
    pub async fn lead(&self) {
        let verification = self.log.verification;
        let mut ticks = interval(verification / 4);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_tick = tokio::select! {
                biased;
                _ = ticks.tick() => true,
                () = self.changed.notified() => false,
            };
            if is_tick {
                self.keep_lease().await;
            }
            if self.is_carrier() {
                self.publish().await;
            } else if let (true, Some(record)) = (is_tick, self.read_record().await) {
                *self.record.lock() = Some(record);
            }
            self.note_lag();
        }
    }

    /// Takes or renews the lease.
    async fn keep_lease(&self) {
        if !self.log.is_read() {
            return;
        }
        let mut lease = self.lease.lock().await;
        let ttl = self.log.verification;
        match &*lease {
            Some(held) => match self.log.backing.renew_lease(held, ttl).await {
                Ok(RenewOutcome::Renewed) | Err(_) => {}
                Ok(RenewOutcome::Lost) => *lease = None,
            },
            None => {
                let request = LeaseRequest { ttl, note: self.name.as_bytes(), mode: LeaseMode::IfFree };
                if let Ok(TakeOutcome::Taken(taken)) = self.log.backing.take_lease(REGION, request).await {
                    let record = self.read_record().await;
                    let peers = record.iter().flat_map(|record| &record.peers);
                    peers.for_each(|known| {
                        let peer = self.peers.iter().find(|peer| peer.name == known.name);
                        peer.iter().for_each(|peer| peer.take_over(known));
                    });
                    *lease = Some(taken);
                }
            }
        }
        self.set_carrier(lease.is_some());
    }

    async fn read_record(&self) -> Option<RegionRecord> {
        let loaded = self.log.backing.load(&[REGION], Tracking::Off).await.ok()?;
        RegionRecord::decode(&loaded.into_iter().next()??.bytes).ok()
    }

    /// Writes the record of the region.
    async fn publish(&self) {
        let mut lease = self.lease.lock().await;
        let (Some(held), Some(near)) = (&*lease, self.near_log()) else { return };
        let record = self.own_record(near);
        let write = Write { lease: Some(held), ..self.record_write(&record) };
        if let Ok(PutOutcome::LeaseLost) = self.log.backing.put(REGION, write).await {
            *lease = None;
            self.set_carrier(false);
        }
        *self.record.lock() = Some(record);
    }

    fn record_write(&self, record: &RegionRecord) -> Write<'static> {
        let bytes = record.encode().into();
        Write { bytes, expected: Expected::Any, ttl: self.log.fleet.lifetime(), lease: None }
    }

    /// Gives the lease back at the end of the process, so that another instance takes over.
    pub(crate) async fn resign(&self) {
        let lease: Option<Lease> = self.lease.lock().await.take();
        self.set_carrier(false);
        if let (Some(lease), Some(near)) = (lease, self.near_log()) {
            let write = self.record_write(&self.own_record(near));
            // Otherwise the lease expires.
            let _ = self.log.backing.release_lease(&lease, write).await;
        }
    }

    /// Carries the purges of a peer for as long as this instance is the carrier. It never returns.
    pub async fn follow(&self, peer: &Peer) {
        let mut ticks = interval(self.log.verification / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_carrier = self.is_carrier.subscribe();
        loop {
            // The sender lives as long as the region.
            let _ = is_carrier.wait_for(|is_carrier| *is_carrier).await;
            let outcome = self.carry(peer).await;
            self.note(peer, outcome.as_ref());
            match outcome {
                Ok(_) => tokio::select! {
                    _ = ticks.tick() => {}
                    () = peer.hearing.0.notified() => {}
                },
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    /// Records why a peer isn't followed, or confirms nothing.
    fn note(&self, peer: &Peer, outcome: Result<&Option<Refusal>, &Refusal>) {
        let (following, refusal) = match outcome {
            Ok(obstacle) => (Following::Yes, obstacle.as_ref()),
            Err(refusal @ Refusal::Reset) => (Following::Reset, Some(refusal)),
            Err(refusal) => (Following::No, Some(refusal)),
        };
        if refusal.is_some_and(Refusal::is_without_cause) && peer.is_refused() {
            return;
        }
        let described = |refusal: &Refusal| refusal.described(&self.name, &peer.name);
        let text = refusal.map(described).unwrap_or_default();
        if peer.set_refusal(following, cut(&text, REFUSAL_BYTES_MAX)) {
            match refusal {
                Some(_) => {
                    tracing::warn!(peer = %peer.name, why = text, "purges between this region and another one are pending");
                }
                None => tracing::info!(peer = %peer.name, "purges apply in this region and in another one"),
            }
            self.changed.notify_one();
        }
    }

    /// Reads the log of a peer to its end, and appends its purges to the log of this region. Returns the reason why the peer confirms
    /// nothing now, if there is one.
    async fn carry(&self, peer: &Peer) -> Result<Option<Refusal>, Refusal> {
        loop {
            let near =
                self.invalidations.log_read().filter(|_| self.log.is_read()).ok_or(Refusal::NearUnread)?;
            let asked_at_ms = self.now_ms();
            let position = |log: LogId| self.log.origins.lock().position(log);
            let (news, confirmations) =
                join(peer.read_on(near.id, position), peer.confirmations(&self.name)).await;
            if let Ok(Confirmations { of_us: Some(of_us), .. }) = &confirmations {
                self.take_confirmation(peer, near, of_us).await?;
            }
            let News { records, is_all } = news?;
            let obstacle = confirmations?.obstacle;
            self.append(&records).await?;
            if !records.is_empty() {
                self.carried.notify_one();
            }
            if is_all {
                peer.note_current(asked_at_ms);
                self.record_position(peer).await?;
                return Ok(obstacle);
            }
        }
    }

    /// Takes over how far a peer has applied the purges of this region. If the peer knows another log with the same id, this region's log
    /// was set back; it gets another id, by which all instances notice that.
    async fn take_confirmation(
        &self,
        peer: &Peer,
        near: LogCursor,
        of_us: &PeerRecord,
    ) -> Result<(), Refusal> {
        if of_us.log != near.id {
            return Ok(());
        }
        let cursor = LogCursor { offset: of_us.complete.end(), ..near };
        let continuity = self.compared(peer, near, of_us.complete).await?;
        if of_us.following == Following::Reset || continuity == Continuity::Lost {
            tracing::warn!(peer = %peer.name, "the purge log of the shared store was reset to an earlier state: another region knows more");
            let beyond = LogCursor { offset: LogOffset(u64::MAX), ..near };
            return self.log.backing.rename_log(beyond).await.map(drop).map_err(Refusal::Near);
        }
        if peer.confirm(cursor) {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Compares the log of this region with the record up to which a peer knows it.
    async fn compared(
        &self,
        peer: &Peer,
        near: LogCursor,
        complete: LastRecord,
    ) -> Result<Continuity, Refusal> {
        if !peer.is_doubtful(near, complete) {
            return Ok(Continuity::Whole);
        }
        let cursor = LogCursor { offset: complete.end(), ..near };
        let last = Some(complete).filter(LastRecord::is_there);
        let read = read_behind(&*self.log.backing, cursor, last).await;
        let (_, continuity) = read.map_err(Refusal::Near)?;
        peer.note_compared(near.id);
        Ok(continuity)
    }

    /// Appends records to the log of this region, and waits until this instance has read them.
    async fn append(&self, records: &[Bytes]) -> Result<(), Refusal> {
        let mut rest = records;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|record| {
                bytes += record.len();
                bytes <= LOG_APPEND_BYTES_MAX
            });
            let (some, behind) = rest.split_at(fit.count().max(1));
            let place = self.log.append(some).await.map_err(Refusal::Near)?;
            let is_read =
                || self.invalidations.log_read().is_none_or(|read| has_passed(read, place)).then_some(());
            let reading = timeout(self.log.verification, until(&self.log.heard, is_read)).await;
            reading.map_err(|_| Refusal::NearUnread)?;
            rest = behind;
        }
        Ok(())
    }

    async fn record_position(&self, peer: &Peer) -> Result<(), Refusal> {
        let known = peer.log().and_then(|log| self.log.origins.lock().position(log));
        let (Some(known), Some(read)) = (known, self.invalidations.log_read()) else { return Ok(()) };
        match peer.position(known, read.offset) {
            Some(record) => self.append(&[record]).await,
            None => Ok(()),
        }
    }

    /// Confirms to the peers that all instances of this region have applied their purges. It never returns.
    pub async fn confirm(&self) {
        let mut is_carrier = self.is_carrier.subscribe();
        loop {
            // The sender lives as long as the region.
            let _ = is_carrier.wait_for(|is_carrier| *is_carrier).await;
            if !self.confirm_once().await {
                sleep(RETRY).await;
                continue;
            }
            let _ = timeout(self.log.verification, self.carried.notified()).await;
        }
    }

    /// Returns whether all that was carried before is confirmed.
    async fn confirm_once(&self) -> bool {
        let Some(near) = self.near_log() else { return false };
        let unconfirmed = self.peers.iter().filter_map(|peer| {
            let known = self.log.origins.lock().position(peer.log()?)?;
            (!peer.is_complete(known)).then_some((peer, known))
        });
        let unconfirmed: Vec<_> = unconfirmed.collect();
        let Some(offset) = unconfirmed.iter().map(|(_, known)| known.noted_at).max() else { return true };
        let place = LogCursor { id: near, offset };
        let (arrivals, replicated) =
            join(self.log.reach(place), self.log.backing.replicate_log(REPLICATION_WAIT_MAX)).await;
        let is_confirmed = arrivals.is_complete
            && arrivals.instances.iter().all(|instance| instance.after.is_some())
            && matches!(replicated, Ok(Replication::Complete));
        if is_confirmed {
            unconfirmed.iter().for_each(|(peer, known)| peer.set_complete(*known));
            self.changed.notify_one();
        }
        is_confirmed
    }

    fn set_carrier(&self, is_carrier: bool) {
        let has_changed =
            self.is_carrier.send_if_modified(|was| std::mem::replace(was, is_carrier) != is_carrier);
        match (has_changed, is_carrier) {
            (true, true) => {
                tracing::info!(region = %self.name, "this instance carries purges between regions")
            }
            (true, false) => {
                tracing::info!(region = %self.name, "this instance carries no more purges between regions");
            }
            (false, _) => {}
        }
    }

    fn own_record(&self, near: LogId) -> RegionRecord {
        RegionRecord {
            name: self.name.clone(),
            log: near,
            peers: self.peers.iter().map(Peer::record).collect(),
        }
    }
}

/// Returns whether a log has been read up to a place, or was replaced.
fn has_passed(read: LogCursor, place: LogCursor) -> bool {
    read.id != place.id || read.offset >= place.offset
}
