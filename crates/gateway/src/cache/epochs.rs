//! When groups of stored responses were last invalidated (RFC 9875), without a list of their members.
//!
//! A stored response keeps the number of invalidations that there had been when it was asked for, and the slots of what it
//! belongs to. A slot holds the number of the last invalidation that concerned it: if that is greater, the response is
//! older than the invalidation. Names share slots by their hash, so that the table never grows: then one invalidation
//! concerns the other name as well, which costs a validation and never serves what was invalidated.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use caching::groups::{Group, Groups, write_identity};
use caching::invalidation::Target;
use foldhash::quality::FixedState;

/// Half a MiB. Two of a thousand names in use share a slot with a chance of less than one percent each.
const SLOTS: usize = 1 << 16;

/// The table.
pub(crate) struct Epochs {
    slots: Box<[AtomicU64]>,
    count: AtomicU64,
    hasher: FixedState,
}

/// How many invalidations there had been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Before the first invalidation.
    pub(crate) const OLDEST: Self = Self(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u32);

/// What a stored response belongs to, and when it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    stamp: Stamp,
    /// Those of named groups come last.
    slots: Box<[Slot]>,
    named: usize,
}

impl Epochs {
    /// With slots that nobody can foretell.
    pub(crate) fn new() -> Self {
        Self::seeded(RandomState::new().hash_one(SLOTS))
    }

    fn seeded(seed: u64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            hasher: FixedState::with_seed(seed),
        }
    }

    /// To be taken before a request is sent: what is invalidated while it is under way is newer than its response.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::Acquire))
    }

    /// Whether something that the response belongs to was invalidated since it was asked for. Allocates nothing.
    pub(crate) fn is_outdated(&self, membership: &Membership) -> bool {
        membership.slots.iter().any(|slot| self.last(*slot) > membership.stamp.0)
    }

    /// What a response to a request for `target` belongs to; `None` where it has no groups.
    pub(crate) fn membership(
        &self,
        groups: &Groups,
        target: &Target<'_>,
        stamp: Stamp,
    ) -> Option<Membership> {
        let slot = |group: Group<'_>| self.slot(target, group);
        let slots: Box<[Slot]> = match groups {
            Groups::Named(names) if names.is_empty() => return None,
            Groups::Named(names) => {
                let names = names.iter().map(|name| slot(Group::Named(name)));
                std::iter::once(slot(Group::All)).chain(names).collect()
            }
            Groups::TooMany => Box::new([slot(Group::Any)]),
        };
        let named = slots.len() - 1;
        Some(Membership { stamp, slots, named })
    }

    /// Invalidates these groups of the target's origin.
    pub(crate) fn invalidate(&self, groups: &Groups, target: &Target<'_>) {
        match groups {
            Groups::Named(names) if names.is_empty() => return,
            Groups::Named(names) => {
                names.iter().for_each(|name| self.mark(self.slot(target, Group::Named(name))));
            }
            Groups::TooMany => self.mark(self.slot(target, Group::All)),
        }
        self.mark(self.slot(target, Group::Any));
    }

    /// Invalidates the groups that a stored response belongs to, of `target`'s origin.
    //= RFC 9875 section 2.2.1: invalidation of a group
    pub(crate) fn invalidate_groups_of(&self, membership: &Membership, target: &Target<'_>) {
        let named = &membership.slots[membership.slots.len() - membership.named..];
        if !named.is_empty() {
            named.iter().for_each(|slot| self.mark(*slot));
            self.mark(self.slot(target, Group::Any));
        }
    }

    fn slot(&self, target: &Target<'_>, group: Group<'_>) -> Slot {
        let mut identity = Vec::new();
        write_identity(target, group, &mut identity);
        Slot((self.hasher.hash_one(&identity) % SLOTS as u64) as u32)
    }

    fn last(&self, slot: Slot) -> u64 {
        self.slots[slot.0 as usize].load(Ordering::Acquire)
    }

    fn mark(&self, slot: Slot) {
        let number = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.slots[slot.0 as usize].fetch_max(number, Ordering::AcqRel);
    }
}

impl Membership {
    /// The same, of a response that was asked for at `stamp`.
    pub(crate) fn asked_at(&self, stamp: Stamp) -> Self {
        Self { stamp, ..self.clone() }
    }

    /// When the response was asked for.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val::<[Slot]>(&self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'_> = Target { scheme: b"http", authority: b"a.example", path: b"/", query: None };
    const OTHER: Target<'_> = Target { scheme: b"http", authority: b"b.example", path: b"/", query: None };

    fn named(names: &[&str]) -> Groups {
        Groups::Named(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn check(member_of: &Groups, invalidated: &Groups, target: &Target<'_>, expected: bool) {
        let epochs = Epochs::seeded(1);
        let before = epochs.membership(member_of, &TARGET, epochs.stamp()).unwrap();
        assert!(!epochs.is_outdated(&before));
        epochs.invalidate(invalidated, target);
        assert_eq!(epochs.is_outdated(&before), expected, "{member_of:?} {invalidated:?}");
        let after = before.asked_at(epochs.stamp());
        assert!(!epochs.is_outdated(&after), "what is asked for later is new");
    }

    //= RFC 9875 section 2.1: the same String and the same origin
    #[test]
    fn what_was_asked_for_before_is_outdated() {
        check(&named(&["x", "y"]), &named(&["y"]), &TARGET, true);
        check(&named(&["x", "y"]), &named(&["z"]), &TARGET, false);
        check(&named(&["x"]), &named(&["x"]), &OTHER, false);
        check(&named(&["x"]), &named(&[]), &TARGET, false);
        check(&named(&["x"]), &Groups::TooMany, &TARGET, true);
        check(&Groups::TooMany, &named(&["x"]), &TARGET, true);
        check(&Groups::TooMany, &Groups::TooMany, &TARGET, true);
        check(&Groups::TooMany, &Groups::TooMany, &OTHER, false);
    }

    #[test]
    fn groups_of_a_response_are_invalidated_and_no_others() {
        let epochs = Epochs::seeded(1);
        let member = |names: &[&str]| epochs.membership(&named(names), &TARGET, epochs.stamp()).unwrap();
        let [cause, shares, apart] = [&["x"][..], &["x", "y"], &["y"]].map(member);
        let any = epochs.membership(&Groups::TooMany, &TARGET, epochs.stamp()).unwrap();
        epochs.invalidate_groups_of(&cause, &TARGET);
        assert_eq!(
            [&cause, &shares, &apart, &any].map(|one| epochs.is_outdated(one)),
            [true, true, false, true]
        );
    }
}
