//! What a stored response keeps for those who ask whether it was taken out of use.

use std::sync::atomic::{AtomicU64, Ordering};

use store::purge::Name;

/// How many invalidations there had been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(pub(super) u64);

impl Stamp {
    /// Before the first invalidation.
    pub(crate) const OLDEST: Self = Self(0);
}

/// A look-up: under the key of which URL, and when. What was taken away since is to be as if it had not been found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookUp {
    pub(super) url: Name,
    pub(super) stamp: Stamp,
}

impl LookUp {
    /// The same, at another time.
    pub(crate) fn at(self, stamp: Stamp) -> Self {
        Self { stamp, ..self }
    }
}

/// Up to where a stored response is known to be good. Moves on as it is looked at.
#[derive(Debug)]
pub(crate) struct Checked(pub(super) AtomicU64);

impl Checked {
    pub(crate) fn at(stamp: Stamp) -> Self {
        Self(AtomicU64::new(stamp.0))
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Relaxed))
    }
}

impl Clone for Checked {
    fn clone(&self) -> Self {
        Self::at(self.stamp())
    }
}

/// What a stored response belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Those that a response names itself, and before them the one for all, or any, of its origin.
    pub(super) groups: Box<[Name]>,
    /// `None`: more than are told apart.
    pub(super) tags: Option<Box<[Name]>>,
    pub(super) key: Option<Name>,
}

impl Default for Membership {
    fn default() -> Self {
        Self { groups: Box::default(), tags: Some(Box::default()), key: None }
    }
}

impl Membership {
    /// With what `other` belongs to as well, where that says more.
    #[must_use]
    pub(crate) fn with_tags_of(mut self, other: &Self, tags_max: usize) -> Self {
        self.tags = self.tags.zip(other.tags.as_deref()).and_then(|(own, others)| {
            let more = others.iter().filter(|tag| !own.contains(tag));
            let all: Box<[Name]> = own.iter().chain(more).copied().collect();
            (all.len() <= tags_max).then_some(all)
        });
        self
    }

    /// With the groups of `other` in place of its own.
    #[must_use]
    pub(crate) fn with_groups_of(self, other: &Self) -> Self {
        Self { groups: other.groups.clone(), ..self }
    }

    /// `None`: more than are told apart.
    pub(crate) fn tags(&self) -> Option<&[Name]> {
        self.tags.as_deref()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val::<[Name]>(&self.groups) + self.tags.as_deref().map_or(0, size_of_val::<[Name]>)
    }
}
