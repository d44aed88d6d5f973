//! Bodies on their way, from the instance that fetches one to those that wait for it.
//!
//! Under a name of its own beside each key lies first that somebody waits, then the head of what comes. Its bytes are fragments, which are
//! segments in order, and how many there are says a small record that changes with each. All of it ends by itself soon after whoever wrote it
//! has died, and none of it is ever what is stored: that comes as any other record.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::backing::{BackingError, Expected, Loaded, Put, Tracking, Write};
use store::format::{Progress, ProgressState, decode_progress, encode_progress};
use store::{FillId, SegmentId};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::counts::Event;
use super::load::{Asker, Home};
use super::segments::Unavailable;
use super::told::{Listening, SHARED_MAX};
use super::{Tiers, names};
use crate::cache::record::portable::{self, Writing};
use crate::cache::record::stored::StoredHead;
use crate::clock::now;

/// The head of a body that another instance fetches.
pub(crate) struct Announced {
    pub(crate) head: StoredHead,
    /// Of its fragments.
    pub(crate) fill: FillId,
}

/// How long a fragment stays at most: who comes later to a body that takes longer waits for its record.
const FRAGMENT_TIME: Duration = Duration::from_secs(300);
/// How long what was said at the end stays, and the fragments with it: for those who have not got there yet.
const END_TIME: Duration = Duration::from_secs(10);
/// How long a head stays. It is written again in half of that.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// For who waits.
impl Tiers {
    /// Hears of what is on its way to a key; `None` where that is too long for the tier.
    pub(crate) fn hear_of(&self, key: &[u8]) -> Option<Listening> {
        names::of_flight(key).map(|name| self.on_their_way.told.listen(&name))
    }

    /// What is on its way to a key, to this reader. Where nothing is, it says that somebody waits. The next change is told.
    pub(crate) async fn on_its_way(
        &self,
        home: Home<'_>,
        (key, asker): (&[u8], Asker<'_>),
    ) -> Option<Announced> {
        let name = names::of_flight(key)?;
        // Who gets no answer asks again; the record is waited for all the same.
        let there = self.want(&name, key).await.ok()??;
        let decoded = portable::decode(&there.bytes, key, None).ok()?;
        let (head, fill) = decoded.on_its_way(&self.reader(home, asker))?;
        Some(Announced { head, fill })
    }

    /// Says that somebody waits, unless something is on its way, and gives what is there. Changes are told from then on.
    async fn want(&self, name: &[u8], key: &[u8]) -> Result<Option<Loaded>, BackingError> {
        let Some(bytes) = portable::nothing(key, None) else { return Ok(None) };
        let bytes = Bytes::from(bytes);
        // Long enough for who looks later, and short enough for the next fetch to find nothing.
        let ttl = self.leases.limits().time * 2;
        let write = |expected| Write { bytes: bytes.clone(), expected, ttl, lease: None };
        if let Put::Conflict(Some(there)) = self.backing.put(name, write(Expected::Absent)).await?
            && self.is_over(&there, key).await?
        {
            self.backing.put(name, write(Expected::Is(&there))).await?;
        }
        self.record(name, Tracking::UntilChanged).await
    }

    /// Whether it is the head of a body that comes no more: whoever fetched it has died.
    async fn is_over(&self, there: &Loaded, key: &[u8]) -> Result<bool, BackingError> {
        let fill = portable::decode(&there.bytes, key, None).ok().and_then(|decoded| decoded.fragments());
        let Some(fill) = fill else { return Ok(false) };
        let progress = self.progress(fill).await?;
        Ok(progress.is_none_or(|progress| progress.state == ProgressState::BrokenOff))
    }

    /// Hears of how far a body has come.
    pub(crate) fn follow(&self, fill: FillId) -> Listening {
        self.on_their_way.told.listen(&names::of_progress(fill))
    }

    /// How far a body has come; the next change is told. `None` where nobody says that any more.
    pub(crate) async fn progress(&self, fill: FillId) -> Result<Option<Progress>, BackingError> {
        let there = self.record(&names::of_progress(fill), Tracking::UntilChanged).await?;
        Ok(there.and_then(|there| decode_progress(&there.bytes, fill, None).ok()))
    }

    /// How long nothing is heard of a body before it counts as lost.
    pub(crate) fn silence_max(&self) -> Duration {
        self.leases.limits().time
    }

    pub(crate) fn is_followed(&self) {
        self.counts.add(Event::BodyFollowed);
    }

    pub(crate) fn is_lost(&self) {
        self.counts.add(Event::BodyLost);
    }
}

/// For who fetches.
impl Tiers {
    /// The right to give one more body to others.
    pub(crate) fn room_to_share(&self) -> Option<SemaphorePermit<'_>> {
        self.on_their_way.room.try_acquire().ok()
    }

    /// Waits until no body is given to others. To be called when none is begun any more: it takes all room.
    pub(crate) async fn nothing_shared(&self) {
        drop(self.on_their_way.room.acquire_many(SHARED_MAX).await);
    }

    /// All that are given to others end now, whole or not.
    pub(crate) fn end_sharing(&self) {
        self.on_their_way.end.send_replace(true);
    }

    /// Waits for that.
    pub(crate) async fn sharing_ends(&self) {
        // The sender is here.
        let _ = self.on_their_way.end.subscribe().wait_for(|is_end| *is_end).await;
    }

    /// Waits until somebody says that it waits for what is fetched under a key.
    pub(crate) async fn wanted(&self, key: &[u8]) {
        let Some(name) = names::of_flight(key) else { return pending().await };
        let listening = self.on_their_way.told.listen(&name);
        loop {
            let told = listening.told();
            let there = self.record(&name, Tracking::UntilChanged).await.ok().flatten();
            let decoded = there.as_ref().and_then(|there| portable::decode(&there.bytes, key, None).ok());
            if decoded.is_some_and(|decoded| decoded.is_of_nothing()) {
                return;
            }
            let _ = timeout(self.leases.limits().time, told).await;
        }
    }

    /// Writes the head of a body, for those who wait and those who come. Whether the tier has it.
    pub(crate) async fn announce(&self, key: &[u8], head: &Arc<StoredHead>, fill: FillId) -> bool {
        let asked_at = head.inputs().and_then(|inputs| inputs.asked_at);
        let (Some(name), true) =
            (names::of_flight(key), asked_at.is_none_or(|place| self.epochs.is_settled(place)))
        else {
            return false;
        };
        let writing = Writing {
            key,
            keys: None,
            given: &[],
            epochs: Some(&self.epochs),
            now: now(),
            clock_ahead_ms: self.clock_ahead_ms(),
        };
        let Some(bytes) = portable::on_its_way(&writing, head, fill) else { return false };
        // Whoever holds the lease is the only one.
        let write = Write { bytes: bytes.into(), expected: Expected::Any, ttl: HEAD_TIME, lease: None };
        matches!(self.backing.put(&name, write).await, Ok(Put::Stored(_)))
    }

    /// How often a head is to be written.
    pub(crate) fn head_time(&self) -> Duration {
        HEAD_TIME / 2
    }

    /// Nobody who comes from now on is to follow it. What can't be removed ends by itself.
    pub(crate) async fn withdraw(&self, key: &[u8]) {
        if let Some(name) = names::of_flight(key) {
            let _ = self.backing.remove(&name).await;
        }
    }

    /// Gives the tier a fragment. Whether it has that then.
    ///
    /// # Errors
    /// When nobody knows.
    pub(crate) async fn give_fragment(&self, id: SegmentId, data: &Bytes) -> Result<bool, Unavailable> {
        self.segments.store_fragment(id, data, FRAGMENT_TIME).await
    }

    /// Says how far a body has come, to all who follow it. Whether they are told.
    pub(crate) async fn say(&self, progress: &Progress) -> bool {
        let mut bytes = Vec::new();
        if encode_progress(progress, None, &mut bytes).is_err() {
            return false;
        }
        let ttl = match progress.state {
            ProgressState::GoesOn => self.silence_max(),
            ProgressState::Complete | ProgressState::BrokenOff => END_TIME,
        };
        let write = Write { bytes: bytes.into(), expected: Expected::Any, ttl, lease: None };
        let name = names::of_progress(progress.fill);
        matches!(self.backing.put(&name, write).await, Ok(Put::Stored(_)))
    }

    /// Fragments stay for a moment after the end.
    pub(crate) async fn clear(&self, progress: &Progress) {
        // They end by themselves, too.
        let _ = self.segments.keep_fragments(progress.fill, progress.fragments, END_TIME).await;
    }

    pub(crate) fn is_shared(&self) {
        self.counts.add(Event::BodyShared);
    }
}
