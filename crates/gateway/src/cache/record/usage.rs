//! How much a variant is used, by whom, and which of several goes when one more comes.
//!
//! A key has room for a few variants, and any client can ask for more of them. So what is used stays, and no client puts more than its
//! share in the place of what others use.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use caching::Timestamp;

use crate::client::Client;

/// Part of a variant's head, and changed while it is shared: 8 bytes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Seconds of the clock, moved on by each use up to now: see [`after_use`]. 0: not in use yet.
    score_s: AtomicU32,
    owner: AtomicU32,
}

/// The one client that has asked for a variant, as a hash with a secret key: nobody can choose to meet another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u32);

/// What counts where one of several goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    score_s: u32,
    owner: Owner,
}

/// A variant that nobody has used since it came counts as unused for so long: one that was used meanwhile stays before it.
const PROBATION_S: u32 = 60;
/// So much of that each use takes back: after three it counts as used now. More uses cost a comparison.
const USE_S: u32 = 20;
/// One client's variants are at most one of so many, where others need the room.
const SHARES: usize = 4;

impl Owner {
    /// Several clients, or others than this instance knows.
    pub(crate) const SEVERAL: Self = Self(0);

    /// All clients that can't be told apart are one.
    pub(crate) fn of(client: Option<Client>) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(HASHER.hash_one(client) as u32 | 1)
    }

    fn with(self, other: Self) -> Self {
        if self == other { self } else { Self::SEVERAL }
    }
}

impl Usage {
    /// It is put among others for this client, unless it is already.
    pub(crate) fn begin(&self, now: Timestamp, owner: Owner) {
        if self.score_s.load(Ordering::Relaxed) == 0 {
            self.owner.store(owner.0, Ordering::Relaxed);
            self.score_s.store(seconds(now).saturating_sub(PROBATION_S), Ordering::Relaxed);
        }
    }

    /// It takes the place of another one, and is used as much. What a second client has asked for is not one client's any more.
    pub(crate) fn take_over(&self, before: &Self) {
        let (own, before) = (self.mark(), before.mark());
        self.score_s.store(own.score_s.max(before.score_s), Ordering::Relaxed);
        self.owner.store(own.owner.with(before.owner).0, Ordering::Relaxed);
    }

    /// The same again, after it was read anew.
    pub(crate) fn copy(&self, known: &Self) {
        let Mark { score_s, owner } = known.mark();
        self.score_s.store(score_s, Ordering::Relaxed);
        self.owner.store(owner.0, Ordering::Relaxed);
    }

    /// It has answered a request. `client` is only asked about where that changes something: a few times, and then once a second.
    #[inline]
    pub(crate) fn note(&self, now: Timestamp, client: impl FnOnce() -> Owner) {
        let (score_s, now_s) = (self.score_s.load(Ordering::Relaxed), seconds(now));
        if score_s < now_s {
            self.score_s.store(after_use(score_s, now_s), Ordering::Relaxed);
            let owner = Owner(self.owner.load(Ordering::Relaxed));
            if owner != Owner::SEVERAL {
                self.owner.store(owner.with(client()).0, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        let owner = Owner(self.owner.load(Ordering::Relaxed));
        Mark { score_s: self.score_s.load(Ordering::Relaxed), owner }
    }
}

impl Clone for Usage {
    fn clone(&self) -> Self {
        let copy = Self::default();
        copy.copy(self);
        copy
    }
}

impl Mark {
    /// Of what answers every request.
    pub(crate) const ALWAYS: Self = Self { score_s: u32::MAX, owner: Owner::SEVERAL };

    /// The more, the more and the later it was used.
    pub(crate) fn score(self) -> u32 {
        self.score_s
    }
}

fn seconds(now: Timestamp) -> u32 {
    u32::try_from(now.as_ms() / 1000).unwrap_or(0)
}

fn after_use(score_s: u32, now_s: u32) -> u32 {
    let still = score_s.max(now_s.saturating_sub(PROBATION_S));
    still.saturating_add(USE_S).min(now_s)
}

/// Which of these, the newest first, makes room for one that a client brings: the least used, and the oldest of several. A client that has
/// its share of `room` gives one of its own; else one goes of those who have more than theirs, or any.
pub(crate) fn least_used(marks: &[Mark], brought_by: Owner, room: usize) -> Option<usize> {
    let share = (room / SHARES).max(1);
    let mut counts: HashMap<Owner, usize> = HashMap::new();
    let owned = marks.iter().filter(|mark| mark.owner != Owner::SEVERAL);
    owned.for_each(|mark| *counts.entry(mark.owner).or_default() += 1);
    let count = |owner: &Owner| counts.get(owner).copied().unwrap_or_default();
    let gives_own = count(&brought_by) >= share;
    let is_anyone_over = counts.values().any(|count| *count > share);
    let may_go = |mark: &Mark| match (gives_own, is_anyone_over) {
        (true, _) => mark.owner == brought_by,
        (false, true) => count(&mark.owner) > share,
        (false, false) => true,
    };
    let candidates = marks.iter().enumerate().rev().filter(|(_, mark)| may_go(mark));
    candidates.min_by_key(|(_, mark)| mark.score_s).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner(1);
    const B: Owner = Owner(3);
    const C: Owner = Owner(5);
    const SEVERAL: Owner = Owner::SEVERAL;

    #[test]
    fn the_least_used_goes_but_nobody_takes_more_than_a_share() {
        #[track_caller]
        fn check(marks: &[(u32, Owner)], brought_by: Owner, room: usize, expected: Option<usize>) {
            let marks: Vec<Mark> = marks.iter().map(|&(score_s, owner)| Mark { score_s, owner }).collect();
            assert_eq!(least_used(&marks, brought_by, room), expected, "{marks:?} for {brought_by:?}");
        }
        check(&[], A, 1, None);
        check(&[(5, B)], A, 1, Some(0));
        check(&[(5, B), (4, B), (4, B), (9, B)], A, 4, Some(2));
        // One of four is its share.
        check(&[(9, A), (4, SEVERAL), (4, B), (5, SEVERAL)], A, 4, Some(0));
        check(&[(9, A), (4, SEVERAL), (4, B), (5, SEVERAL)], A, 8, Some(2));
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], A, 8, Some(1));
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], B, 4, Some(2));
        // It has more than its share: others get the room back.
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], C, 4, Some(1));
        // What several use is nobody's.
        check(&[(9, A), (4, SEVERAL), (5, SEVERAL)], C, 4, Some(1));
    }

    #[test]
    fn each_use_counts_up_to_now() {
        let now = Timestamp::from_seconds(1_000_000);
        let later = |seconds: i64| now.plus_ms(seconds * 1000);
        let nobody_asks = || unreachable!("it is known");
        let usage = Usage::default();
        usage.begin(now, A);
        usage.begin(later(5), B);
        assert_eq!(usage.mark(), Mark { score_s: 999_940, owner: A });
        for expected in [999_960, 999_980, 1_000_000] {
            usage.note(now, || A);
            assert_eq!(usage.mark(), Mark { score_s: expected, owner: A });
        }
        usage.note(now, nobody_asks);
        usage.note(later(-7), nobody_asks);
        assert_eq!(usage.mark().score(), 1_000_000);
        usage.note(later(100), || B);
        assert_eq!(usage.mark(), Mark { score_s: 1_000_060, owner: SEVERAL });
        usage.note(later(101), nobody_asks);
        let next = Usage::default();
        next.begin(later(101), A);
        next.take_over(&usage);
        assert_eq!(next.mark(), Mark { score_s: 1_000_080, owner: SEVERAL });
    }
}
