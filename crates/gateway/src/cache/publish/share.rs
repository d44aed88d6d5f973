//! Gives a body to other instances while it is fetched here, if one of them waits for it.
//!
//! Nothing is asked of the tier for a body that is complete soon. For any other one it is asked once whether somebody waits, and tells
//! when somebody does later. From then on what arrives goes there in fragments: the first byte after a pause at once, and so much at once
//! otherwise as arrives in a moment, so that neither many bytes nor few make many operations.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use store::format::{Layout, Progress, ProgressState};
use store::{FillId, SegmentId};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cache::Cache;
use crate::cache::inflight::answer::Filling;
use crate::cache::inflight::fill::{Fill, FillReader};
use crate::cache::inflight::table::{InFlight, LeaderGuard};
use crate::cache::publish::job::Job;
use crate::cache::record::portable::FRAGMENT_BYTES_MAX;
use crate::cache::record::stored::StoredHead;
use crate::cache::tiers::Tiers;
use crate::cache::tiers::leases::Held;
use crate::message::piece::PieceMax;
use crate::route::LiveSite;
use crate::worker::Worker;

/// A body that is complete within this costs nothing, and nobody says before that it waits.
pub(super) const QUICK: Duration = Duration::from_millis(20);
/// What arrives within this goes out together.
const TOGETHER: Duration = Duration::from_millis(20);
/// After an operation that failed.
const PAUSE: Duration = Duration::from_millis(50);
const PIECE_BYTES_MAX: usize = FRAGMENT_BYTES_MAX as usize;

/// A body that others may want.
struct Sharing {
    worker: Arc<Worker>,
    site: Arc<LiveSite>,
    key: Box<[u8]>,
    head: Arc<StoredHead>,
    source: Arc<Fill>,
    in_flight: Arc<InFlight>,
    /// The lease ends with what is written, and not here.
    lease: Weak<Held>,
}

/// One that somebody wants.
struct Sending<'a> {
    sharing: &'a Sharing,
    tiers: &'a Tiers,
    reader: FillReader,
    /// What has arrived and is in no fragment yet.
    open: BytesMut,
    /// The next fragment, until the tier has it: under one index never goes anything else.
    closed: Option<Bytes>,
    progress: Progress,
    pace: Pace,
    head: HeadStands,
}

/// Whether those who come now find the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadStands {
    Until(Instant),
    /// It is not for requests that come now.
    Withdrawn,
}

/// When what goes out.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Since then another fragment was begun.
    closed_at: Instant,
    /// When the others were told last how far it has come.
    said_at: Instant,
    /// How long they believe that.
    silence_max: Duration,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// Less than a fragment.
    Some,
    /// A whole one.
    Full,
    /// What failed, or was not told.
    Again,
}

impl Pace {
    /// When something is to be said.
    fn due(&self, waiting: Waiting) -> Instant {
        match waiting {
            Waiting::Full => self.closed_at,
            Waiting::Some => self.closed_at + TOGETHER,
            Waiting::Again => self.closed_at + PAUSE,
            // So that it is known to go on.
            Waiting::Nothing => self.said_at + self.silence_max / 3,
        }
    }

    /// Whether the others have given it up meanwhile: this process stood still, or the tier was away.
    fn is_given_up(&self, now: Instant) -> bool {
        now.duration_since(self.said_at) >= self.silence_max
    }
}

impl Job {
    /// Has others get what is filled here, if they want it. Behind the exchange.
    pub(super) fn share(&self, filling: &Filling, leader: &LeaderGuard) {
        let Some(lease) = self.lease.as_ref() else { return };
        if filling.part.is_some() || filling.fill.began_in_window() {
            return;
        }
        let sharing = Sharing {
            worker: Arc::clone(&self.worker),
            site: Arc::clone(&self.site),
            key: self.fetch.key.clone(),
            head: Arc::clone(&filling.head),
            source: Arc::clone(&filling.fill),
            in_flight: Arc::clone(leader.shared_in_flight()),
            lease: Arc::downgrade(lease),
        };
        drop(tokio::spawn(async move { sharing.run().await }));
    }
}

impl Sharing {
    fn cache(&self) -> &Cache {
        self.worker.cache(&self.site)
    }

    async fn run(&self) {
        let Some(tiers) = self.cache().tiers() else { return };
        let is_wanted = async {
            sleep(QUICK).await;
            tiers.wanted(&self.key).await;
        };
        tokio::select! {
            biased;
            () = self.source.ended() => return,
            () = is_wanted => {}
        }
        let budget = self.cache().budget();
        // What is open, and what is closed.
        let (Some(_room), Ok(_bytes)) = (tiers.room_to_share(), budget.reserve(3 * PIECE_BYTES_MAX)) else {
            return;
        };
        if let Some(sending) = Sending::new(self, tiers) {
            sending.run().await;
        }
    }

    fn is_lost(&self) -> bool {
        self.lease.upgrade().is_some_and(|lease| lease.is_lost())
    }

    /// What was purged meanwhile is nothing for requests that come now.
    fn is_outdated(&self) -> bool {
        self.in_flight.is_invalidated() || self.cache().is_invalidated(&self.key, &self.head)
    }
}

impl<'a> Sending<'a> {
    fn new(sharing: &'a Sharing, tiers: &'a Tiers) -> Option<Self> {
        if sharing.is_outdated() || sharing.is_lost() || !sharing.source.may_be_stored() {
            return None;
        }
        let now = Instant::now();
        Some(Self {
            sharing,
            tiers,
            reader: sharing.source.reader(0, None)?,
            open: BytesMut::new(),
            closed: None,
            progress: Progress { fill: FillId::next(), state: ProgressState::GoesOn, fragments: 0, bytes: 0 },
            pace: Pace { closed_at: now - TOGETHER, said_at: now, silence_max: tiers.silence_max() },
            head: HeadStands::Until(now),
        })
    }

    async fn run(mut self) {
        // Whoever finds the head finds that somebody stands behind it.
        self.say().await;
        self.stand_by().await;
        self.tiers.is_shared();
        let tiers = self.tiers;
        let state = tokio::select! {
            biased;
            // The process ends, and what fetches the body with it: who follows it is not to wait for more.
            () = tiers.sharing_ends() => ProgressState::BrokenOff,
            state = self.give() => state,
        };
        self.end(state).await;
    }

    /// Gives what arrives. How the body has ended.
    async fn give(&mut self) -> ProgressState {
        loop {
            if self.is_over() {
                return ProgressState::BrokenOff;
            }
            if let Some(state) = self.take().await {
                return state;
            }
            self.stand_by().await;
            self.send().await;
        }
    }

    fn is_over(&self) -> bool {
        !self.sharing.source.may_be_stored()
            || self.sharing.is_lost()
            || self.pace.is_given_up(Instant::now())
            || self.progress.fragments >= Layout::CELLS_MAX
    }

    fn waiting(&self) -> Waiting {
        match self.open.len() {
            _ if self.closed.is_some() => Waiting::Again,
            0 => Waiting::Nothing,
            PIECE_BYTES_MAX.. => Waiting::Full,
            _ => Waiting::Some,
        }
    }

    /// Takes what arrives until something is to be said. How the body has ended, if it has.
    async fn take(&mut self) -> Option<ProgressState> {
        loop {
            let due = self.pace.due(self.waiting());
            let has_room = self.open.len() < PIECE_BYTES_MAX;
            let arrived = tokio::select! {
                biased;
                () = sleep_until(due) => return None,
                arrived = self.reader.chunk(PieceMax::of(PIECE_BYTES_MAX)), if has_room => arrived,
            };
            match arrived.map(|data| data.map(store::Slice::into_bytes)) {
                Ok(Some(Ok(data))) => self.open.extend_from_slice(&data),
                Ok(None) => return Some(ProgressState::Complete),
                Ok(Some(Err(_))) | Err(_) => return Some(ProgressState::BrokenOff),
            }
        }
    }

    /// Has those who come find the head, as long as it is for them.
    async fn stand_by(&mut self) {
        let (sharing, now) = (self.sharing, Instant::now());
        let HeadStands::Until(again) = self.head else { return };
        if sharing.is_outdated() {
            self.head = HeadStands::Withdrawn;
            self.tiers.withdraw(&sharing.key).await;
            // Nothing is stored: whoever waits for the record is not to wait for the end.
            sharing.lease.upgrade().iter().for_each(|lease| lease.free());
        } else if now >= again {
            let is_there = self.tiers.announce(&sharing.key, &sharing.head, self.progress.fill).await;
            self.head = HeadStands::Until(now + if is_there { self.tiers.head_time() } else { PAUSE });
        }
    }

    /// Gives the tier a fragment, where there is something for one, and says so.
    async fn send(&mut self) {
        if self.closed.is_none() && !self.open.is_empty() {
            let bytes = self.open.len().min(PIECE_BYTES_MAX);
            self.closed = Some(self.open.split_to(bytes).freeze());
        }
        self.pace.closed_at = Instant::now();
        if let Some(data) = &self.closed {
            let id = SegmentId { fill: self.progress.fill, index: self.progress.fragments };
            // Where there is no room now there may be later, and others wait until they give up.
            if !matches!(self.tiers.give_fragment(id, data).await, Ok(true)) {
                return;
            }
            self.progress.fragments += 1;
            self.progress.bytes += data.len() as u64;
            self.closed = None;
        }
        self.say().await;
    }

    async fn say(&mut self) {
        let now = Instant::now();
        if self.tiers.say(&self.progress).await {
            self.pace.said_at = now;
        }
    }

    /// Gives the rest, and says how it ended.
    async fn end(mut self, state: ProgressState) {
        while state == ProgressState::Complete && self.waiting() != Waiting::Nothing && !self.is_over() {
            self.send().await;
            if self.closed.is_some() {
                sleep(PAUSE).await;
            }
        }
        let is_whole = self.waiting() == Waiting::Nothing;
        self.progress.state = if is_whole { state } else { ProgressState::BrokenOff };
        if !self.tiers.say(&self.progress).await {
            sleep(PAUSE).await;
            self.say().await;
        }
        self.tiers.withdraw(&self.sharing.key).await;
        self.tiers.clear(&self.progress).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_at_once_after_a_pause_and_together_otherwise() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let pace = Pace { closed_at: at(100), said_at: at(101), silence_max: Duration::from_secs(3) };
        for (waiting, due) in [
            (Waiting::Full, at(100)),
            (Waiting::Some, at(120)),
            (Waiting::Again, at(150)),
            (Waiting::Nothing, at(1101)),
        ] {
            assert_eq!(pace.due(waiting), due, "{waiting:?}");
        }
        assert!(pace.due(Waiting::Some) < at(400), "what comes after a pause is due when it comes");
    }

    #[test]
    fn who_has_said_nothing_for_too_long_says_nothing_more() {
        let said_at = Instant::now();
        let silence_max = Duration::from_secs(3);
        let pace = Pace { closed_at: said_at, said_at, silence_max };
        assert!(!pace.is_given_up(said_at + silence_max / 3));
        assert!(pace.is_given_up(said_at + silence_max));
    }
}
