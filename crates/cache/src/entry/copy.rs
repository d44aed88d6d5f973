//! State of an entry in memory as a copy of a record in the tier.
//!
//! A copy is *own* until the tier has acknowledged it; *followed* if the tier will report its next change; *alone* if the tier no longer
//! has a record for its key; *refused* if the tier has no memory for it. A reader sets the state that it found before the tier can report a
//! later change, so a later [`TierCopy::suspect`] is never overwritten: see `crates/fleet/src/tier/copies.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use store::backing::{CopyStatus, Source, Version};

/// State of a copy, in 16 bytes. It is part of an entry, and changes while the entry is shared.
#[derive(Debug, Default)]
pub struct TierCopy {
    /// Generation (32 bits), flush (24), suspicion (1), state (7).
    word: AtomicU64,
    /// Version of the tier's record, if the copy is followed.
    version: AtomicU64,
}

/// Whether a copy can be used without a query to the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliance {
    /// The copy is current, or the tier's state doesn't matter.
    Trusted,
    /// The tier may have another record, and can be queried.
    Suspect,
    /// The tier may have another record, and can't be queried.
    Unverified,
}

/// Number of reports, modulo 2^24, that any record of the tier may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    Own,
    Followed,
    Alone,
    Refused,
}

const SUSPECT: u64 = 0x80;
const STATE: u64 = 0x7f;
const FLUSH_BITS: u32 = 24;

impl Flush {
    pub fn of_count(count: u32) -> Self {
        Self(count & ((1 << FLUSH_BITS) - 1))
    }
}

impl TierCopy {
    /// Returns the reliance on the copy. Every hit calls this. It calls `standing` only for a copy with a source.
    pub fn reliance(&self, flush: Flush, standing: impl FnOnce(Source) -> CopyStatus) -> Reliance {
        let word = self.word.load(Ordering::Acquire);
        let is_marked = word & SUSPECT != 0 || flush_of(word) != flush;
        match state_of(word) {
            CopyState::Own => Reliance::Trusted,
            CopyState::Alone | CopyState::Refused if !is_marked => Reliance::Trusted,
            CopyState::Followed | CopyState::Alone | CopyState::Refused => match standing(source_of(word)) {
                CopyStatus::Verified if !is_marked => Reliance::Trusted,
                CopyStatus::Verified | CopyStatus::Ended => Reliance::Suspect,
                CopyStatus::Unverified => Reliance::Unverified,
            },
        }
    }

    /// Marks the copy as followed: the tier has this record, and will report its next change.
    pub fn follow(&self, source: Source, flush: Flush, version: Version) {
        self.version.store(version.0, Ordering::Release);
        self.set(CopyState::Followed, source, flush);
    }

    /// Marks the copy as alone: the tier has no record for the key.
    pub fn leave_alone(&self, source: Source, flush: Flush) {
        let state = if self.is_refused() { CopyState::Refused } else { CopyState::Alone };
        self.set(state, source, flush);
    }

    /// Marks the copy as suspect, because the tier has a newer record.
    pub fn overtaken(&self, source: Source, flush: Flush) {
        // Version 0 belongs to no record.
        self.follow(source, flush, Version(0));
        self.suspect();
    }

    /// Marks a copy that won't be written to the tier. The tier won't report it when another record takes its place.
    pub fn give_up(&self) {
        self.word.store(SUSPECT | CopyState::Alone as u64, Ordering::Release);
    }

    /// Marks a copy for which the tier has no memory. If the tier has an empty record in its place, that counts like a missing one.
    pub fn refuse(&self) {
        self.word.store(SUSPECT | CopyState::Refused as u64, Ordering::Release);
    }

    /// Returns whether the tier had no memory for the copy.
    pub fn is_refused(&self) -> bool {
        state_of(self.word.load(Ordering::Acquire)) == CopyState::Refused
    }

    /// Marks the copy as suspect, because the tier has reported a change.
    pub fn suspect(&self) {
        self.word.fetch_or(SUSPECT, Ordering::AcqRel);
    }

    /// Takes over the state of the copy that this one replaces. Both have the same responses.
    pub fn take_over(&self, before: &Self) {
        self.version.store(before.version.load(Ordering::Acquire), Ordering::Release);
        self.word.store(before.word.load(Ordering::Acquire), Ordering::Release);
    }

    /// Returns the version of the tier's record, if the copy is followed.
    pub fn version(&self) -> Option<Version> {
        let is_followed = state_of(self.word.load(Ordering::Acquire)) == CopyState::Followed;
        is_followed.then(|| Version(self.version.load(Ordering::Acquire)))
    }

    fn set(&self, state: CopyState, source: Source, flush: Flush) {
        let word = u64::from(source.generation) << 32 | u64::from(flush.0) << 8 | state as u64;
        self.word.store(word, Ordering::Release);
    }
}

fn state_of(word: u64) -> CopyState {
    match word & STATE {
        0 => CopyState::Own,
        1 => CopyState::Followed,
        2 => CopyState::Alone,
        _ => CopyState::Refused,
    }
}

fn flush_of(word: u64) -> Flush {
    Flush::of_count((word >> 8) as u32)
}

/// Returns the source of a copy. The node is always 0, because tiers have one node.
fn source_of(word: u64) -> Source {
    Source { node: 0, generation: (word >> 32) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source { node: 0, generation: 7 };

    fn check(copy: &TierCopy, flush: u32, expected: [Reliance; 3]) {
        let standings = [CopyStatus::Verified, CopyStatus::Ended, CopyStatus::Unverified];
        let found = standings.map(|standing| {
            copy.reliance(Flush::of_count(flush), |source| {
                assert_eq!(source, SOURCE);
                standing
            })
        });
        assert_eq!(found, expected, "{copy:?} at flush {flush}");
    }

    #[test]
    fn copies_are_relied_upon_as_far_as_the_tier_vouches_for_them() {
        use Reliance::{Suspect, Trusted, Unverified};
        let flush = Flush::of_count(1);
        let own = TierCopy::default();
        check(&own, 1, [Trusted; 3]);
        own.suspect();
        check(&own, 1, [Trusted; 3]);
        let followed = TierCopy::default();
        followed.follow(SOURCE, flush, Version(9));
        check(&followed, 1, [Trusted, Suspect, Unverified]);
        check(&followed, 2, [Suspect, Suspect, Unverified]);
        assert_eq!(followed.version(), Some(Version(9)));
        followed.suspect();
        check(&followed, 1, [Suspect, Suspect, Unverified]);
        followed.follow(SOURCE, flush, Version(10));
        check(&followed, 1, [Trusted, Suspect, Unverified]);
        let alone = TierCopy::default();
        alone.leave_alone(SOURCE, flush);
        assert_eq!(alone.version(), None);
        check(&alone, 1, [Trusted; 3]);
        check(&alone, 2, [Suspect, Suspect, Unverified]);
        alone.suspect();
        check(&alone, 1, [Suspect, Suspect, Unverified]);
        let refused = TierCopy::default();
        refused.refuse();
        refused.leave_alone(SOURCE, flush);
        assert!(refused.is_refused() && !alone.is_refused());
        check(&refused, 1, [Trusted; 3]);
        check(&refused, 2, [Suspect, Suspect, Unverified]);
        let given_up = TierCopy::default();
        given_up.give_up();
        let none = Source { node: 0, generation: 0 };
        for (standing, expected) in [(CopyStatus::Ended, Suspect), (CopyStatus::Unverified, Unverified)] {
            let found = given_up
                .reliance(flush, |source| if source == none { standing } else { CopyStatus::Verified });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn flushes_wrap() {
        assert_eq!(Flush::of_count(1 << FLUSH_BITS), Flush::of_count(0));
    }
}
