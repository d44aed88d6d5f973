//! When groups of stored responses were last invalidated (RFC 9875), without a list of their members.
//!
//! Invalidations are numbered. A stored response keeps how many there had been when it was asked for, and the names of
//! what it belongs to; a table keeps the number of each name's last invalidation. If that is greater, the response is
//! older than the invalidation. The table has a fixed size: the longest unmentioned name of a set makes room for a new
//! one, and from then on responses older than its invalidation are outdated in that set, whatever they belong to. So too
//! much may be validated, and nothing is used that was invalidated. A table takes 0.6 MiB.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use caching::groups::{Group, Groups, write_identity};
use caching::invalidation::Target;
use parking_lot::Mutex;
use store::backing::{LogCursor, LogId, LogOffset};

/// The number of the last invalidation of each name.
pub(crate) struct Epochs {
    /// Names this list of invalidations among those of other processes, and of this one before it was started anew.
    log: LogId,
    count: AtomicU64,
    groups: Table,
    keys: Table,
    /// Of those, what is to be as if it had never been stored.
    removed: Table,
    /// Whether anything depends on keys.
    keys_watched: AtomicBool,
    hasher: RandomState,
}

/// What becomes of responses that depend on a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// They are not there any more: no validation makes them usable, and no part completes them.
    Away,
    /// They are used only after validation.
    OutOfUse,
}

/// How many invalidations there had been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Before the first invalidation.
    pub(crate) const OLDEST: Self = Self(0);
}

/// A name by its hash: of 64 bits that nobody can foretell (SipHash, with a key of the process), so that two of a million in use are the same with a chance
/// of less than one in ten million. Then they are invalidated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(u64);

/// A look-up: under the key of which URL, and when. What was taken away since is to be as if it had not been found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookUp {
    url: Name,
    stamp: Stamp,
}

/// What a stored response belongs to, and when it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    stamp: Stamp,
    /// Those that a response names itself, and before them the one for all, or any, of its origin.
    groups: Box<[Name]>,
    key: Option<Name>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self::with_sets(SETS)
    }

    fn with_sets(sets: usize) -> Self {
        let drawn = || u128::from(RandomState::new().hash_one(sets));
        Self {
            log: LogId((drawn() << 64 | drawn()).to_le_bytes()),
            count: AtomicU64::new(0),
            groups: Table::new(sets),
            keys: Table::new(sets),
            removed: Table::new(sets),
            keys_watched: AtomicBool::new(false),
            hasher: RandomState::new(),
        }
    }

    /// To be taken before a request is sent: what is invalidated while it is under way is newer than its response.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::Acquire))
    }

    /// A stamp as others keep it.
    pub(crate) fn place_of(&self, stamp: Stamp) -> LogCursor {
        LogCursor { id: self.log, offset: LogOffset(stamp.0) }
    }

    /// The stamp of a response that was asked for at this place. Of a place in the list of another process nobody here
    /// knows more than that all of this one's invalidations may have come since.
    pub(crate) fn stamp_at(&self, place: Option<LogCursor>) -> Stamp {
        place.filter(|place| place.id == self.log).map_or(Stamp::OLDEST, |place| Stamp(place.offset.0))
    }

    /// Whether something that the response belongs to was invalidated since it was asked for. Allocates nothing.
    pub(crate) fn is_outdated(&self, membership: &Membership) -> bool {
        let Membership { stamp, groups, key } = membership;
        groups.iter().any(|name| self.groups.last(*name) > stamp.0)
            || key.is_some_and(|name| self.keys.last(name) > stamp.0)
    }

    /// Whether it is to be as if it had never been stored.
    pub(crate) fn is_removed(&self, membership: &Membership) -> bool {
        membership.key.is_some_and(|name| self.removed.last(name) > membership.stamp.0)
    }

    /// What a response to a request for `target` belongs to; `None` where it has no groups.
    pub(crate) fn membership(
        &self,
        groups: &Groups,
        target: &Target<'_>,
        stamp: Stamp,
    ) -> Option<Membership> {
        let name = |group: Group<'_>| self.group(target, group);
        let groups = match groups {
            Groups::Named(names) if names.is_empty() => return None,
            Groups::Named(names) => {
                let named = names.iter().map(|named| name(Group::Named(named)));
                std::iter::once(name(Group::All)).chain(named).collect()
            }
            Groups::TooMany => Box::new([name(Group::Any)]) as Box<[Name]>,
        };
        Some(Membership { stamp, groups, key: None })
    }

    /// With it, a response is outdated when what lies under this cache key is invalidated. For responses of the same
    /// URI that lie under other keys, of which there is no list. [`Self::watch_keys`] comes first.
    pub(crate) fn with_key(&self, membership: Option<Membership>, key: &[u8], stamp: Stamp) -> Membership {
        let of_none = || Membership { stamp, groups: Box::new([]), key: None };
        Membership { key: Some(self.key(key)), ..membership.unwrap_or_else(of_none) }
    }

    /// A look-up under the cache key of a URL, or under one that has this one as a part. The stamp is one from before it.
    pub(crate) fn look_up(&self, url_key: &[u8], stamp: Stamp) -> LookUp {
        LookUp { url: self.key(url_key), stamp }
    }

    /// Whether what the look-up found is to be as if it had never been stored.
    pub(crate) fn is_taken_away(&self, look_up: LookUp) -> bool {
        self.removed.last(look_up.url) > look_up.stamp.0
    }

    /// Whether what the look-up found was invalidated by its key, and what was asked for then is.
    pub(crate) fn is_overtaken(&self, look_up: LookUp) -> bool {
        self.keys.last(look_up.url) > look_up.stamp.0 || self.is_taken_away(look_up)
    }

    /// To be called before the stamp of the first response that depends on a key.
    pub(crate) fn watch_keys(&self) {
        self.keys_watched.store(true, Ordering::Release);
    }

    /// Invalidates what depends on a cache key; whether there can be anything that does.
    pub(crate) fn invalidate_key(&self, key: &[u8], taken: Taken) -> bool {
        let is_watched = self.keys_watched.load(Ordering::Acquire);
        let (name, number) = (self.key(key), self.next());
        if is_watched {
            self.keys.mark(name, number);
        }
        if taken == Taken::Away {
            self.removed.mark(name, number);
        }
        is_watched
    }

    /// Invalidates these groups of the target's origin.
    pub(crate) fn invalidate(&self, groups: &Groups, target: &Target<'_>) {
        match groups {
            Groups::Named(names) if names.is_empty() => return,
            Groups::Named(names) => {
                names.iter().for_each(|name| self.mark(self.group(target, Group::Named(name))));
            }
            Groups::TooMany => self.mark(self.group(target, Group::All)),
        }
        self.mark(self.group(target, Group::Any));
    }

    /// Invalidates the groups that a stored response belongs to, of `target`'s origin.
    //= RFC 9875 section 2.2.1: invalidation of a group
    pub(crate) fn invalidate_groups_of(&self, membership: &Membership, target: &Target<'_>) {
        let [_, named @ ..] = &membership.groups[..] else { return };
        if !named.is_empty() {
            named.iter().for_each(|name| self.mark(*name));
            self.mark(self.group(target, Group::Any));
        }
    }

    fn group(&self, target: &Target<'_>, group: Group<'_>) -> Name {
        let mut identity = Vec::new();
        write_identity(target, group, &mut identity);
        Name(self.hasher.hash_one(identity))
    }

    fn key(&self, key: &[u8]) -> Name {
        Name(self.hasher.hash_one(key))
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn mark(&self, name: Name) {
        self.groups.mark(name, self.next());
    }
}

impl LookUp {
    /// The same, at another time.
    pub(crate) fn at(self, stamp: Stamp) -> Self {
        Self { stamp, ..self }
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
        size_of_val::<[Name]>(&self.groups)
    }
}

/// Sets of names, by hash.
struct Table {
    sets: Box<[Mutex<Set>]>,
}

const SETS: usize = 1 << 12;
const WAYS: usize = 8;

#[derive(Default)]
struct Set {
    /// The greatest number of a name that made room for another.
    forgotten: u64,
    /// Names with their numbers; 0 is a free place.
    names: [(u64, u64); WAYS],
}

impl Table {
    fn new(sets: usize) -> Self {
        Self { sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// The number of the name's last invalidation, or a greater one.
    fn last(&self, name: Name) -> u64 {
        let set = self.set(name).lock();
        set.names.iter().find(|(known, _)| *known == name.0).map_or(set.forgotten, |(_, number)| *number)
    }

    fn mark(&self, name: Name, number: u64) {
        let mut set = self.set(name).lock();
        let place = match set.names.iter().position(|(known, _)| *known == name.0) {
            Some(place) => place,
            None => set.make_room(),
        };
        let (known, last) = &mut set.names[place];
        (*known, *last) = (name.0, number.max(*last));
    }

    fn set(&self, name: Name) -> &Mutex<Set> {
        &self.sets[(name.0 >> 32) as usize % self.sets.len()]
    }
}

impl Set {
    fn make_room(&mut self) -> usize {
        let oldest = (0..WAYS).min_by_key(|place| self.names[*place].1).unwrap_or_default();
        let (_, number) = std::mem::take(&mut self.names[oldest]);
        self.forgotten = self.forgotten.max(number);
        oldest
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
        let epochs = Epochs::new();
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
        let epochs = Epochs::new();
        let member = |names: &[&str]| epochs.membership(&named(names), &TARGET, epochs.stamp()).unwrap();
        let [cause, shares, apart] = [&["x"][..], &["x", "y"], &["y"]].map(member);
        let any = epochs.membership(&Groups::TooMany, &TARGET, epochs.stamp()).unwrap();
        epochs.invalidate_groups_of(&cause, &TARGET);
        assert_eq!(
            [&cause, &shares, &apart, &any].map(|one| epochs.is_outdated(one)),
            [true, true, false, true]
        );
    }

    /// Random invalidations of more names than the table has room for, beside an exact list.
    #[test]
    fn nothing_invalidated_is_ever_current() {
        let epochs = Epochs::with_sets(2);
        let name = |number: u64| named(&[&format!("group {}", number % 40)]);
        let mut last = [0_u64; 40];
        let mut members = Vec::new();
        let mut random = 1_u64;
        for round in 1..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let group = random >> 33;
            if random >> 62 == 0 {
                epochs.invalidate(&name(group), &TARGET);
                last[group as usize % 40] = round;
            } else {
                members.push((
                    round,
                    group,
                    epochs.membership(&name(group), &TARGET, epochs.stamp()).unwrap(),
                ));
            }
            let newest = members.last().filter(|(asked, ..)| *asked == round);
            assert!(newest.is_none_or(|(.., member)| !epochs.is_outdated(member)), "what is new is current");
        }
        let outdated = members.iter().filter(|(asked, group, _)| last[*group as usize % 40] > *asked);
        assert!(outdated.clone().count() > 1000);
        assert!(outdated.into_iter().all(|(.., member)| epochs.is_outdated(member)));
    }

    #[test]
    fn keys_count_once_they_are_watched() {
        let epochs = Epochs::new();
        epochs.watch_keys();
        let [own, other] = [b"a", b"b"].map(|key| epochs.with_key(None, key, epochs.stamp()));
        epochs.invalidate_key(b"a", Taken::OutOfUse);
        assert!(epochs.is_outdated(&own) && !epochs.is_outdated(&other));
        assert!(!epochs.is_outdated(&own.asked_at(epochs.stamp())));
    }
}
