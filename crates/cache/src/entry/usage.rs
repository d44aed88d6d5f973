//! Usage of variants: frequency, clients, and the choice of the variant that a new one replaces.
//!
//! A key has room for a few variants, and any client can request more. Variants in use therefore stay: new variants aren't stored, however
//! many clients request them. No client can displace the variants of other clients with more than its share.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use caching::Timestamp;
use message::client::Client;

/// Usage of a variant, in 8 bytes. It is part of the head, and changes while the head is shared.
#[derive(Debug, Default)]
pub struct Usage {
    /// A time in seconds, which each use advances, at most to the present: see [`after_use`]. 0: not in use yet.
    score_s: AtomicU32,
    owner: AtomicU32,
}

/// The only client that has requested a variant, as a hash with a secret key, so that collisions can't be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u32);

/// Snapshot of a variant's use, by which one of several variants is chosen for removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Higher for more use and for later use.
    pub score_s: u32,
    owner: Owner,
}

/// Initial handicap of a new variant, so that variants used within this time rank higher.
const PROBATION_S: u32 = 60;
/// Seconds of the handicap that each use removes: after three uses, a variant counts as used just now. Further uses cost only a comparison.
const USE_S: u32 = 20;
/// Number of shares into which the room for variants is divided. A client is limited to one share only if other clients need the room.
const SHARES: usize = 4;

impl Owner {
    /// Several clients, or clients that this instance doesn't know.
    pub const SEVERAL: Self = Self(0);

    /// Hashes a client. Clients that can't be told apart count as one.
    pub fn of(client: Option<Client>) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(HASHER.hash_one(client) as u32 | 1)
    }

    fn with(self, other: Self) -> Self {
        if self == other { self } else { Self::SEVERAL }
    }
}

impl Usage {
    /// Starts the usage of a variant that this client caused, if it hasn't started.
    pub fn begin(&self, now: Timestamp, owner: Owner) {
        if self.score_s.load(Ordering::Relaxed) == 0 {
            self.set(Mark::of_new(now, owner));
        }
    }

    /// Takes over the usage of the variant that this one replaces. A variant that a second client has requested no longer has a single
    /// owner.
    pub fn take_over(&self, before: &Self) {
        let (own, before) = (self.mark(), before.mark());
        self.set(Mark { score_s: own.score_s.max(before.score_s), owner: own.owner.with(before.owner) });
    }

    /// Copies the usage of the same variant, after the record was read again.
    pub fn copy(&self, known: &Self) {
        self.set(known.mark());
    }

    fn set(&self, Mark { score_s, owner }: Mark) {
        self.owner.store(owner.0, Ordering::Relaxed);
        self.score_s.store(score_s, Ordering::Relaxed);
    }

    /// Counts a use. Calls `client` only if its result matters: a few times at first, then at most once a second.
    #[inline]
    pub fn note(&self, now: Timestamp, client: impl FnOnce() -> Owner) {
        let (score_s, now_s) = (self.score_s.load(Ordering::Relaxed), seconds(now));
        if score_s < now_s {
            self.score_s.store(after_use(score_s, now_s), Ordering::Relaxed);
            let owner = Owner(self.owner.load(Ordering::Relaxed));
            if owner != Owner::SEVERAL {
                self.owner.store(owner.with(client()).0, Ordering::Relaxed);
            }
        }
    }

    pub fn mark(&self) -> Mark {
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
    /// Mark of a response that answers every request.
    pub const ALWAYS: Self = Self { score_s: u32::MAX, owner: Owner::SEVERAL };

    /// Returns the mark of a new variant that this client caused.
    pub fn of_new(now: Timestamp, owner: Owner) -> Self {
        Self { score_s: seconds(now).saturating_sub(PROBATION_S), owner }
    }
}

fn seconds(now: Timestamp) -> u32 {
    u32::try_from(now.as_ms() / 1000).unwrap_or(0)
}

fn after_use(score_s: u32, now_s: u32) -> u32 {
    let still = score_s.max(now_s.saturating_sub(PROBATION_S));
    still.saturating_add(USE_S).min(now_s)
}

/// Chooses the variant that a client's new variant replaces: the least used, or the oldest of equals. `marks` are ordered newest first. If
/// the client has its share of `room`, it loses one of its own variants; otherwise, a client with more than its share loses one. `None` if
/// neither applies and all variants are used more than the new one. Without this rule, clients that use each other's variants could
/// displace everyone else's.
pub fn makes_room(marks: &[Mark], new: Mark, room: usize) -> Option<usize> {
    let share = (room / SHARES).max(1);
    let mut counts: HashMap<Owner, usize> = HashMap::new();
    let owned = marks.iter().filter(|mark| mark.owner != Owner::SEVERAL);
    owned.for_each(|mark| *counts.entry(mark.owner).or_default() += 1);
    let count = |owner: &Owner| counts.get(owner).copied().unwrap_or_default();
    let gives_own = count(&new.owner) >= share;
    let is_anyone_over = counts.values().any(|count| *count > share);
    let may_go = |mark: &Mark| match (gives_own, is_anyone_over) {
        (true, _) => mark.owner == new.owner,
        (false, true) => count(&mark.owner) > share,
        (false, false) => true,
    };
    let candidates = marks.iter().enumerate().rev().filter(|(_, mark)| may_go(mark));
    let (index, least) = candidates.min_by_key(|(_, mark)| mark.score_s)?;
    (gives_own || is_anyone_over || least.score_s <= new.score_s).then_some(index)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const A: Owner = Owner(1);
    const B: Owner = Owner(3);
    const C: Owner = Owner(5);
    const SEVERAL: Owner = Owner::SEVERAL;

    /// Score of a new variant.
    const NEW_S: u32 = 5;

    #[test]
    fn the_least_used_goes_but_nobody_takes_more_than_a_share() {
        #[track_caller]
        fn check(marks: &[(u32, Owner)], brought_by: Owner, room: usize, expected: Option<usize>) {
            let marks: Vec<Mark> = marks.iter().map(|&(score_s, owner)| Mark { score_s, owner }).collect();
            let new = Mark { score_s: NEW_S, owner: brought_by };
            assert_eq!(makes_room(&marks, new, room), expected, "{marks:?} for {brought_by:?}");
        }
        check(&[], A, 1, None);
        check(&[(5, B)], A, 1, Some(0));
        check(&[(5, B), (4, B), (4, B), (9, B)], A, 4, Some(2));
        // The share of A is one of four variants.
        check(&[(9, A), (4, SEVERAL), (4, B), (5, SEVERAL)], A, 4, Some(0));
        check(&[(9, A), (4, SEVERAL), (4, B), (5, SEVERAL)], A, 8, Some(2));
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], A, 8, Some(1));
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], B, 4, Some(2));
        // A has more than its share, so other clients get room.
        check(&[(9, A), (8, A), (4, B), (5, SEVERAL)], C, 4, Some(1));
        // Variants of several clients count toward no client's share.
        check(&[(9, A), (4, SEVERAL), (5, SEVERAL)], C, 4, Some(1));
        // Variants in use stay.
        check(&[(9, A), (6, SEVERAL), (6, B), (6, SEVERAL)], C, 4, None);
        check(&[(9, A), (6, SEVERAL), (6, B), (6, SEVERAL)], A, 4, Some(0));
        check(&[(9, A), (8, A), (6, B), (6, SEVERAL)], C, 4, Some(1));
    }

    proptest! {
        /// Any number of clients create variants and use each other's.
        #[test]
        fn what_is_used_by_several_or_within_a_share_stays(
            marks in vec((0..12_u32, 0..6_u32), 1..40),
            brought_by in 1..6_u32,
        ) {
            let marks: Vec<_> =
                marks.into_iter().map(|(score_s, owner)| Mark { score_s, owner: Owner(owner) }).collect();
            let new = Mark { score_s: NEW_S, owner: Owner(brought_by) };
            let Some(index) = makes_room(&marks, new, marks.len()) else {
                prop_assert!(marks.iter().all(|mark| mark.score_s > NEW_S));
                return Ok(());
            };
            let gone = marks[index];
            let own = marks.iter().filter(|mark| mark.owner == gone.owner).count();
            let is_of_one = gone.owner == new.owner || own > (marks.len() / SHARES).max(1);
            prop_assert!(gone.score_s <= NEW_S || (gone.owner != SEVERAL && is_of_one));
        }
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
        assert_eq!(usage.mark().score_s, 1_000_000);
        usage.note(later(100), || B);
        assert_eq!(usage.mark(), Mark { score_s: 1_000_060, owner: SEVERAL });
        usage.note(later(101), nobody_asks);
        let next = Usage::default();
        next.begin(later(101), A);
        next.take_over(&usage);
        assert_eq!(next.mark(), Mark { score_s: 1_000_080, owner: SEVERAL });
    }
}
