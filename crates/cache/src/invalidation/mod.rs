//! Invalidations that select responses by anything other than their own key: purges by operators, and groups that unsafe requests
//! invalidate (RFC 9875). An invalidation doesn't search for responses; instead, a look-up that finds a response checks it.
//!
//! Invalidations are numbered in the order in which this process learns of them. `log_positions` maps the numbers to positions in the purge
//! log that instances share (`docs/internals/purge-log.md`). A stored response keeps the number up to which it was last checked. If that is
//! the last number, the response is current, and the check costs one comparison. Otherwise, it is checked against
//! [`store::purge::PurgeIndex`] and a table of groups; if nothing invalidates it, its number advances.

mod log;
mod log_positions;
pub mod shared;
mod tags_seen;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use caching::groups::{self, Group, Groups, write_identity};
use caching::invalidation::Target;
use caching::{FieldLine, Timestamp, tags};
use parking_lot::Mutex;
use store::backing::{LogCursor, LogId, LogOffset};
use store::purge::{
    Name, NameTable, PurgeEffect, PurgeId, PurgeIndex, PurgeMode, PurgeRecord, PurgeSubject, PurgeTarget,
    Selection, TagsMatch,
};

pub use self::log::{PurgeEntry, Reach};

use self::log::{Recent, place_of_key};
use crate::entry::stored::StoredHead;
use crate::membership::{LookUp, Membership, Stamp};
use crate::settings::StorageRules;
use message::clock::now;

/// Invalidations so far, by number.
#[derive(Default)]
pub struct Invalidations {
    /// Distinguishes this list of invalidations from those of other processes, and from this process's own list before a restart.
    log: OwnLog,
    /// Number of the last invalidation. It advances after the invalidation was added, so that a reader of this number finds all
    /// invalidations up to it.
    count: AtomicU64,
    /// Serialises additions.
    turn: Mutex<()>,
    purges: PurgeIndex,
    groups: NameTable,
    tags_seen: tags_seen::TagsSeen,
    /// Whether any response may depend on a key other than its own.
    keys_watched: AtomicBool,
    /// Whether a URL may have had another key in the past: a reload may have moved it to another site, or changed the rules for its query.
    urls_moved: AtomicBool,
    recent: Recent,
    purgers: Purgers,
    shared: shared::Shared,
    hasher: RandomState,
}

/// Id of this process's list of invalidations, drawn at startup.
struct OwnLog(LogId);

impl Default for OwnLog {
    fn default() -> Self {
        let drawn = || u128::from(RandomState::new().hash_one(0));
        Self(LogId((drawn() << 64 | drawn()).to_le_bytes()))
    }
}

/// Instances that purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purgers {
    /// This instance alone. A purge of a URL changes the records under the URL's keys directly, unless the URL was requested with a port.
    #[default]
    This,
    /// Several instances, and the tier holds responses from before this process started. A look-up checks an entry against the purges of
    /// its URL.
    Several,
}

/// Effect of the invalidations since a stored response was last checked. The numbers identify purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No invalidation.
    Current,
    /// Purged softly: stale.
    Stale(u64),
    /// Invalidated by an unsafe request, through a group: usable only after validation.
    Invalidated,
    /// Purged: neither a validation nor further parts make the response usable.
    Removed(u64),
}

impl Invalidations {
    pub fn new(purgers: Purgers) -> Self {
        Self { purgers, ..Self::default() }
    }

    /// Returns the current stamp. Call this before a request is sent, because invalidations during the request are newer than its response.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::Acquire))
    }

    /// Returns the position that a response stores for this stamp.
    pub fn place_of(&self, stamp: Stamp) -> LogCursor {
        LogCursor { id: self.log.0, offset: LogOffset(stamp.0) }
    }

    /// Returns the matching position in the shared log, once this process has read the log up to that stamp.
    pub fn shared_place(&self, place: LogCursor) -> LogCursor {
        let shared =
            if place.id == self.log.0 { self.shared.places.lock().place_of(place.offset.0) } else { None };
        shared.unwrap_or(place)
    }

    /// Returns the stamp of a response that was requested at this position; all later invalidations have greater stamps. `None` if this
    /// process doesn't know the later invalidations: the position is in the list of another process, or in a part of the log that is gone.
    pub fn stamp_at(&self, place: LogCursor) -> Option<Stamp> {
        match self.purgers {
            _ if place.id == self.log.0 => Some(Stamp(place.offset.0)),
            Purgers::Several => self.shared.places.lock().number_at(place).map(Stamp),
            // An earlier run of this process wrote it, so it is older than all known invalidations.
            Purgers::This => Some(Stamp::OLDEST),
        }
    }

    /// Returns whether no invalidation has arrived since the last check of a response.
    #[inline]
    pub fn is_checked(&self, head: &StoredHead) -> bool {
        head.checked.stamp() >= self.stamp()
    }

    /// Checks the response under a key against the invalidations since its last check. Doesn't allocate.
    #[inline]
    pub fn judge(&self, key: &[u8], head: &StoredHead) -> Verdict {
        if self.is_checked(head) { Verdict::Current } else { self.look_closer(key, head) }
    }

    /// Returns whether a response may answer a request that began with this look-up. Invalidations after the look-up affect only later
    /// requests.
    pub fn answers(&self, look_up: LookUp, key: &[u8], head: &StoredHead) -> bool {
        head.checked.stamp() >= look_up.stamp || self.judge(key, head) == Verdict::Current
    }

    #[cold]
    fn look_closer(&self, key: &[u8], head: &StoredHead) -> Verdict {
        // Invalidations that arrive during this check are left to the next check.
        let (upto, since) = (self.stamp(), head.checked.stamp());
        let membership = head.membership();
        let judged = self.purges.judge(&self.subject(key, membership), since.0);
        let is_outdated = |groups: &[Name]| groups.iter().any(|name| self.groups.last(*name) > since.0);
        if judged.hard > 0 {
            Verdict::Removed(judged.hard)
        } else if membership.is_some_and(|membership| is_outdated(&membership.groups)) {
            Verdict::Invalidated
        } else if judged.last > 0 {
            Verdict::Stale(judged.last)
        } else {
            head.checked.0.fetch_max(upto.0, Ordering::Relaxed);
            Verdict::Current
        }
    }

    /// Returns the groups and tags of a response to a request for `target`; `None` if it has none.
    pub fn membership(&self, groups: &Groups, tags: &Groups, target: &Target<'_>) -> Option<Membership> {
        let name = |group: Group<'_>| self.group(target, group);
        let groups = match groups {
            Groups::Named(names) if names.is_empty() => Box::default(),
            Groups::Named(names) => {
                let named = names.iter().map(|named| name(Group::Named(named)));
                std::iter::once(name(Group::All)).chain(named).collect()
            }
            Groups::TooMany => Box::new([name(Group::Any)]) as Box<[Name]>,
        };
        let tags: Option<Box<[Name]>> = match tags {
            Groups::Named(tags) => Some(tags.iter().map(|tag| self.purges.tag(tag)).collect()),
            Groups::TooMany => None,
        };
        self.tags_seen.see(tags.as_deref());
        let is_none = groups.is_empty() && tags.as_ref().is_some_and(|tags| tags.is_empty());
        (!is_none).then_some(Membership { groups, tags, key: None })
    }

    /// Returns the groups and tags of a response with these fields, with the key of its URL alone if the response's own key has more parts.
    /// An invalidation of the URL then applies to the response too, because no list of a URL's keys exists. Call [`Self::watch_keys`]
    /// first.
    pub fn membership_of(
        &self,
        received: &[FieldLine<'_>],
        rules: &StorageRules<'_>,
        target: Option<&Target<'_>>,
        site_key: Option<&[u8]>,
    ) -> Option<Membership> {
        let groups = groups::of_response(received, rules.groups_max);
        let tags = tags::of_response(received, rules.tags);
        let membership = target.and_then(|target| self.membership(&groups, &tags, target));
        match site_key {
            None => membership,
            Some(key) => Some(Membership { key: Some(self.name(key)), ..membership.unwrap_or_default() }),
        }
    }

    /// Returns whether no stored response of this process can have the tags that a purge names. `false` if other instances store responses
    /// too.
    pub fn lacks(&self, what: &PurgeTarget) -> bool {
        let PurgeTarget::Selected(Selection { tags, tags_match, .. }) = what else { return false };
        let is_absent = |tag: &String| !self.tags_seen.may_have(self.purges.tag(tag));
        let is_lacking = match tags_match {
            TagsMatch::Any => tags.iter().all(is_absent),
            TagsMatch::All => tags.iter().any(is_absent),
        };
        self.purgers == Purgers::This && !tags.is_empty() && is_lacking
    }

    /// Returns a look-up under the cache key of a URL, or under a key that extends it. Take the stamp before the look-up.
    pub fn look_up(&self, url_key: &[u8], stamp: Stamp) -> LookUp {
        LookUp { url: self.name(url_key), stamp }
    }

    /// Returns whether the entry that the look-up found has been removed by an invalidation.
    pub fn is_taken_away(&self, look_up: LookUp) -> bool {
        self.purges.last_of_key(look_up.url).hard > look_up.stamp.0
    }

    /// Returns whether the key has been invalidated since the look-up, so that responses to requests from before don't answer later ones.
    pub fn record_overtaken(&self, look_up: LookUp) -> bool {
        self.purges.last_of_key(look_up.url).last > look_up.stamp.0
    }

    /// Records that responses depend on keys other than their own. Call this before the first such response gets its stamp.
    pub fn watch_keys(&self) {
        self.keys_watched.store(true, Ordering::Release);
    }

    /// Returns whether any response may depend on a key other than its own.
    pub fn watches_keys(&self) -> bool {
        self.keys_watched.load(Ordering::Acquire)
    }

    /// Invalidates responses that depend on the cache key of a URL, regardless of scheme and port. With an id, other instances are
    /// notified.
    pub fn invalidate_key(&self, key: &[u8], force: PurgeEffect, id: Option<PurgeId>) {
        if self.watches_keys() || force == PurgeEffect::Hard {
            self.note(|number| {
                self.begin_own(id, number);
                self.purges.mark_key(self.name(key), force, number);
            });
        }
    }

    /// Records that the entry under an invalidated key has been removed. Look-ups between the invalidation and the removal may have found
    /// the entry, unless they check entries by key.
    pub fn key_is_removed(&self, key: &[u8]) {
        if self.purgers == Purgers::This {
            self.invalidate_key(key, PurgeEffect::Hard, None);
        }
    }

    /// Records a purge. `keys` are the keys of a purged URL; the caller changes the entries under them.
    pub fn purge(&self, record: PurgeRecord, keys: &[&[u8]]) -> Arc<PurgeEntry> {
        self.purge_at(record, keys, None)
    }

    /// Like [`Self::purge`], for a record that may come from the shared log, where it ends at `end`.
    fn purge_at(&self, record: PurgeRecord, keys: &[&[u8]], end: Option<LogOffset>) -> Arc<PurgeEntry> {
        let force = if record.mode == PurgeMode::Hard { PurgeEffect::Hard } else { PurgeEffect::Soft };
        let reach = self.reach(&record.what, keys);
        self.note(|number| {
            match &reach {
                Reach::Keys(keys) => {
                    keys.iter().for_each(|key| self.purges.mark_key(self.name(key), force, number));
                }
                Reach::Url(key) => {
                    self.purges.mark_key(self.name(key), force, number);
                    self.purges.mark_url(&place_of_key(key), force, number);
                }
                Reach::Clauses(clauses) => {
                    clauses.iter().for_each(|clause| self.purges.add(clause.clone(), force, number));
                }
            }
            match end {
                Some(_) => self.note_place(end, number),
                None => self.begin_own(Some(record.id), number),
            }
            self.recent.keep(PurgeEntry { number, noted_at: now(), record, reach })
        })
    }

    /// Returns the reach of a purge. `keys` are the keys of a purged URL: a URL without a site stands for the URL in every site.
    pub fn reach(&self, what: &PurgeTarget, keys: &[&[u8]]) -> Reach {
        let PurgeTarget::Url(_) = what else { return Reach::Clauses(self.purges.clauses(what)) };
        let first = keys.first().copied().unwrap_or_default();
        match self.urls_moved.load(Ordering::Acquire) || place_of_key(first).site.is_empty() {
            true => Reach::Url(first.into()),
            false => Reach::Keys(keys.iter().map(|key| (*key).into()).collect()),
        }
    }

    /// Records that a reload gives URLs other keys. Entries under the earlier keys are found again if another reload restores those keys.
    pub fn urls_move(&self) {
        self.urls_moved.store(true, Ordering::Release);
    }

    /// Returns the purge with this number, as long as it is remembered.
    pub fn purge_of(&self, number: u64) -> Option<Arc<PurgeEntry>> {
        self.recent.numbered(number)
    }

    /// Returns the last purge that removed everything under a key, as far as the key alone shows.
    pub fn last_purge_of(&self, key: &[u8]) -> Option<Arc<PurgeEntry>> {
        self.recent.last(|kept| kept.reach.takes(key, Some(&[])))
    }

    /// Returns the time since which a softly purged response is stale: the time of the purge, or of the response if the purge is forgotten.
    /// If the purging instance's clock is ahead, returns the time at which the purge took effect in this process.
    pub fn stale_since(&self, number: u64, head: &StoredHead) -> Timestamp {
        let purged = self.purge_of(number).and_then(|kept| {
            let at_ms = i64::try_from(kept.record.at_ms).ok()?;
            Some(Timestamp::from_ms(at_ms).min(kept.noted_at))
        });
        purged.unwrap_or(head.facts.response_time).max(head.facts.response_time)
    }

    /// Invalidates these groups of the target's origin. With an id, other instances are notified.
    pub fn invalidate(&self, groups: &Groups, target: &Target<'_>, id: Option<PurgeId>) {
        let names: Vec<Name> = match groups {
            Groups::Named(names) if names.is_empty() => return,
            Groups::Named(names) => names.iter().map(|name| self.group(target, Group::Named(name))).collect(),
            Groups::TooMany => vec![self.group(target, Group::All)],
        };
        let any = self.group(target, Group::Any);
        self.note(|number| {
            self.begin_own(id, number);
            names.iter().chain([&any]).for_each(|name| self.groups.mark(*name, number));
        });
    }

    fn group(&self, target: &Target<'_>, group: Group<'_>) -> Name {
        let mut identity = Vec::new();
        write_identity(target, group, &mut identity);
        Name(self.hasher.hash_one(identity))
    }

    /// Returns a stored response in the form against which purges match.
    fn subject<'a>(&self, key: &'a [u8], membership: Option<&'a Membership>) -> PurgeSubject<'a> {
        let tags = membership.map_or(Some(&[][..]), Membership::tags);
        let of_url = membership.and_then(|membership| membership.key);
        let place = place_of_key(key);
        // A purge of a URL can't list all ports with which the URL may have been stored.
        let has_port = place.authority.len() > place.host().len();
        let own = || (has_port || self.purgers == Purgers::Several).then(|| self.purges.key(&place));
        PurgeSubject { place, tags, key: of_url.or_else(own) }
    }

    fn name(&self, key: &[u8]) -> Name {
        self.purges.key(&place_of_key(key))
    }

    /// Assigns the next number. The number becomes visible only after `mark` has added the invalidation; a response that is checked
    /// meanwhile keeps its earlier number.
    fn note<T>(&self, mark: impl FnOnce(u64) -> T) -> T {
        let _turn = self.turn.lock();
        let number = self.count.load(Ordering::Relaxed) + 1;
        let marked = mark(number);
        self.count.store(number, Ordering::Release);
        marked
    }
}

#[cfg(test)]
mod tests;
