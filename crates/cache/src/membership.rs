//! Data of a stored response that determines whether it was invalidated.

use std::sync::atomic::{AtomicU64, Ordering};

use store::purge::Name;

/// Number of invalidations so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub(super) u64);

impl Stamp {
    /// Before the first invalidation.
    pub const OLDEST: Self = Self(0);
}

/// Key and time of a look-up. An entry that is removed after the look-up counts as not found.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    pub(super) url: Name,
    pub(super) stamp: Stamp,
}

impl LookUp {
    /// Returns this look-up with another stamp.
    pub fn at(self, stamp: Stamp) -> Self {
        Self { stamp, ..self }
    }
}

/// Stamp up to which a stored response is known not to be invalidated. Advances with each check.
#[derive(Debug)]
pub struct Checked(pub(super) AtomicU64);

impl Checked {
    pub fn at(stamp: Stamp) -> Self {
        Self(AtomicU64::new(stamp.0))
    }

    pub fn stamp(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Relaxed))
    }
}

impl Clone for Checked {
    fn clone(&self) -> Self {
        Self::at(self.stamp())
    }
}

/// Groups, tags and key of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Groups that the response names, preceded by the group for all, or any, responses of its origin.
    pub(super) groups: Box<[Name]>,
    /// `None` if there are too many to be listed.
    pub(super) tags: Option<Box<[Name]>>,
    pub(super) key: Option<Name>,
}

impl Default for Membership {
    fn default() -> Self {
        Self { groups: Box::default(), tags: Some(Box::default()), key: None }
    }
}

impl Membership {
    /// Adds the tags of `other`. If the sum exceeds `tags_max`, the tags are no longer listed.
    pub fn add_tags(&mut self, other: &Self, tags_max: usize) {
        self.tags = self.tags.take().zip(other.tags.as_deref()).and_then(|(own, others)| {
            let more = others.iter().filter(|tag| !own.contains(tag));
            let all: Box<[Name]> = own.iter().chain(more).copied().collect();
            (all.len() <= tags_max).then_some(all)
        });
    }

    /// Returns the tags; `None` if there are too many to be listed.
    pub fn tags(&self) -> Option<&[Name]> {
        self.tags.as_deref()
    }

    pub fn heap_bytes(&self) -> usize {
        size_of_val::<[Name]>(&self.groups) + self.tags.as_deref().map_or(0, size_of_val::<[Name]>)
    }
}
